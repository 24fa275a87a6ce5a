"""Pictures of what a concept model computes for images."""
