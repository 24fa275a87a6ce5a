"""Models that others have released: a safe reader of pickles, and a table of the formats of their training code."""
