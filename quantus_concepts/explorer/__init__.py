"""A page that shows a concept model's images, maps and values, and lets its concepts be corrected."""
