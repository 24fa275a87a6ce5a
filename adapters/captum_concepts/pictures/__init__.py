"""What a concept model says of images, drawn."""
