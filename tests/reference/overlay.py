"""Overlays pixel by pixel in float64, not rounded, with matplotlib's own colour map."""

import matplotlib as mpl
import numpy as np


def overlay(image, heat, weight=0.5, colours="bwr"):
    colour_map = mpl.colormaps[colours]
    _, height, width = image.shape
    out = np.zeros((3, height, width))
    for y in range(height):
        for x in range(width):
            colour = colour_map(float(heat[y, x]))
            for c in range(3):
                out[c, y, x] = weight * image[c, y, x] + (1 - weight) * colour[c]
    return out / out.max()
