"""The commands `substitute ...`: images of birds with one attribute replaced, made, filtered, rated and exported."""
