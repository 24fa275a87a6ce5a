"""A page on which a concept model's images, maps and values are looked at, and its concepts corrected."""
