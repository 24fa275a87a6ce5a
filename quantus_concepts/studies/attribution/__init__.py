"""`benchmark attribution`: does an attribution method give importance to what provably does not matter?"""
