"""What predicts how people would rate an explanation: encoder, embedding, scorer, and their uses."""
