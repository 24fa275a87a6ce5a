"""Attribution with known ground truth in plain loops and float64, from the formulas."""

import math

import numpy as np


def positive_percentile(maps, percentile=99.0):
    """Of (N, C, H, W) or (N, ...) maps."""
    out = []
    for image in np.asarray(maps, dtype=np.float64):
        positive = np.where(image > 0, image, 0.0)
        if positive.ndim == 3:
            summed = np.zeros((1, *positive.shape[1:]))
            for channel in positive:
                summed[0] += channel
            positive = summed
        lowest, highest = positive.min(), np.percentile(positive, percentile)
        if highest == lowest:
            highest = positive.max()
        scaled = np.zeros_like(positive)
        if highest > lowest:
            for index in np.ndindex(positive.shape):
                scaled[index] = (min(positive[index], highest) - lowest) / (highest - lowest)
        out.append(scaled)
    return np.array(out)


def concept_attribution(maps, masks):
    scores = []
    for image, mask in zip(np.asarray(maps, dtype=np.float64), np.asarray(masks), strict=True):
        total, size = 0.0, 0
        for row in range(image.shape[1]):
            for column in range(image.shape[2]):
                if mask[0, row, column]:
                    size += 1
                    for channel in range(image.shape[0]):
                        total += max(image[channel, row, column], 0.0)
        scores.append(total / size if size else math.nan)
    return np.array(scores)


def mcs(first, second):
    return np.array([a - b for a, b in zip(first, second, strict=True)])


def idr(with_, without):
    scores = []
    for a, b in zip(with_, without, strict=True):
        scores.append(math.nan if math.isnan(a) or math.isnan(b) else 1.0 if a < b else 0.0)
    return np.array(scores)


def perturbation(original, patched):
    return np.array([abs(b - a) / a if a != 0 else math.nan for a, b in zip(original, patched, strict=True)])


def iir(original, patched, threshold=0.1):
    changes = perturbation(original, patched)
    return np.array([math.nan if math.isnan(change) else float(change < threshold) for change in changes])


def pearson(first, second):
    a, b = np.mean(first), np.mean(second)
    top = sum((x - a) * (y - b) for x, y in zip(first, second, strict=True))
    return top / math.sqrt(sum((x - a) ** 2 for x in first) * sum((y - b) ** 2 for y in second))


def relative_contrast(scores, correct_with, correct_without):
    """Curve, drop and their correlation."""
    curve, drop = [], []
    for row, with_, without in zip(scores, correct_with, correct_without, strict=True):
        defined = [score for score in row if not math.isnan(score)]
        curve.append(sum(defined) / len(defined))
        drop.append(sum(float(w) for w in with_) / len(row) - sum(float(w) for w in without) / len(row))
    return np.array(curve), np.array(drop), pearson(curve, drop)


class ConvNet:
    """A 3 x 3 convolution without padding, tanh, mean over positions, linear; and its gradient by hand."""

    def __init__(self, kernel, shift, matrix, bias):
        self.kernel, self.shift, self.matrix, self.bias = (
            np.asarray(value, dtype=np.float64) for value in (kernel, shift, matrix, bias)
        )

    def hidden(self, image):
        height, width = image.shape[1] - 2, image.shape[2] - 2
        out = np.zeros((len(self.kernel), height, width))
        for o in range(len(self.kernel)):
            for i in range(height):
                for j in range(width):
                    out[o, i, j] = math.tanh((self.kernel[o] * image[:, i : i + 3, j : j + 3]).sum() + self.shift[o])
        return out

    def logits(self, image):
        return self.matrix @ self.hidden(image).mean((1, 2)) + self.bias

    def pulled_back(self, image, direction):
        """Gradient of direction . f(x) with respect to x."""
        hidden = self.hidden(image)
        out = np.zeros_like(image)
        for o, weight in enumerate(self.matrix.T @ direction):
            for i in range(hidden.shape[1]):
                for j in range(hidden.shape[2]):
                    slope = weight * (1 - hidden[o, i, j] ** 2) / hidden[o].size
                    out[:, i : i + 3, j : j + 3] += slope * self.kernel[o]
        return out


def patch_objective(logits_patched, logits, image, delta, pixel_range, eta1, eta2, squared):
    """Of one image."""
    power = 2 if squared else 1
    distance = math.sqrt(sum((a - b) ** 2 for a, b in zip(logits_patched, logits, strict=True))) ** power
    size = math.sqrt(sum(value**2 for value in delta.ravel())) ** power
    outside = 0.0
    for pixel in (image + delta).ravel():
        outside += max(pixel - pixel_range[1], 0.0) + max(pixel_range[0] - pixel, 0.0)
    return distance - eta1 * size + eta2 * outside


def patched(net, image, mask, init, *, steps, step_size, eta1=0.01, eta2=0.01, squared=False):
    """Patch one image (C, H, W) of 0 to 255 by gradient descent; the net sees pixels divided by 255."""
    original = net.logits(image / 255)
    delta = (init - image) * mask
    for _ in range(steps):
        difference = net.logits((image + delta) / 255) - original
        distance, size = np.linalg.norm(difference), np.linalg.norm(delta)
        direction = 2 * difference if squared else difference / distance
        gradient = net.pulled_back((image + delta) / 255, direction) / 255
        gradient -= eta1 * (2 * delta if squared else delta / size)
        gradient += eta2 * (1.0 * (image + delta > 255) - 1.0 * (image + delta < 0))
        delta = (delta - step_size * gradient) * mask
    return np.where(mask, np.clip(image + delta, 0, 255), image)
