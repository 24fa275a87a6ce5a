"""A PASTA scorer of simulated raters, who prefer tidy maps that lie on the bird, with an untrained encoder."""

from __future__ import annotations

import numpy as np

from quantus_concepts.datasets import leak_free_split, simulated_ratings
from quantus_concepts.pasta import Embedder, Scorer, TrainingSettings, train_scorer

ratings = simulated_ratings(n_images=40)  # PastaRatings("folder") for people's
embedder = Embedder("embedded")  # "siglip", "clip" and "eva02" are open_clip's


def train_on(votes: np.ndarray) -> Scorer:
    """Return a scorer of all questions, tested without an image or explainer of its training."""
    split = leak_free_split(ratings.image_ids, ratings.explainer_ids)
    return train_scorer(
        embedder.embed(ratings.explanations),
        votes,
        ratings.labels,
        train=split.train,
        validation=split.validation,
        label_names=sorted(set(ratings.labels.tolist())),
        settings=TrainingSettings(epochs=30, learning_rate=1e-3),
    ).scorer


def scorer_of_votes() -> Scorer:
    """Return a scorer that is trained on the votes."""
    return train_on(ratings.targets())


def scorer_of_shuffled_votes() -> Scorer:
    """Return the baseline: a scorer that is trained on votes in random order."""
    votes = ratings.targets()
    return train_on(votes[np.random.default_rng(0).permutation(len(votes))])
