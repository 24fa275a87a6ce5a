"""Does size matter: of the network that is explained (the paper's Figure 8), and of the encoder of the scorer."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from captum_concepts.paper_methods import build_methods
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.metrics.pasta_score import PASTAScore
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies.pasta.ablations import Variant, variant_figures
from quantus_concepts.studies.pasta.options import Options
from quantus_concepts.studies.pasta.seeds import Plan
from quantus_concepts.studies.pasta.study import over_splits
from quantus_concepts.studies.pasta.uses import classifier_birds, train_classifier

#: Explanations of the networks; the last two know nothing of them: their ratings must not change with size.
METHODS = ("Grad-CAM", "vanilla gradient", "gradient x input", "guided backpropagation", "Sobel edges", "random")
CONTROLS = ("Sobel edges", "random")
SCORE, ACCURACY, SLOPE = "score", "accuracy", "slope"


def classifier_sizes(
    options: Options,
    scorer: Scorer,
    embedder: Embedder,
    channels: Sequence[int],
    n_networks: int,
    n_train: int,
    say: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Score the explanations of small networks of several widths, each trained several times."""
    # Returns a row for each method, width and network: name, parameters, measure (`SCORE`, or `ACCURACY` of the
    # network), value (a mean over the images), n, seed. The true class is explained and told to the scorer, not the
    # one predicted: else the rating of a map that ignores the network follows the network's accuracy.
    birds = classifier_birds(options, n_train)
    rows = []
    for network in range(n_networks):
        for width in channels:
            say(f"Training and explaining a network of {width} channels ({network + 1} of {n_networks})")
            of = train_classifier(options, birds, channels=width, network=network)
            parameters = sum(each.numel() for each in of.model.parameters())
            metric = PASTAScore(
                scorer, embedder, question=scorer.questions[0], class_names=of.class_names, disable_warnings=True
            )
            images = of.images.numpy()
            rows.append(("network", parameters, ACCURACY, of.accuracy, len(images), network))
            # Random maps are others for each network, as its own are.
            methods = build_methods(METHODS, seed=options.seed + 1000 * network + width)
            for name, explain in methods.items():
                maps = explain(model=of.model, inputs=images, targets=of.labels)
                scores = np.asarray(metric(of.model, images, of.labels, maps), dtype=float)
                known = scores[~np.isnan(scores)]
                value = float(known.mean()) if known.size else math.nan
                rows.append((name, parameters, SCORE, value, known.size, network))
    return pd.DataFrame(rows, columns=["name", "parameters", "measure", "value", "n", "seed"])


def encoder_sizes(
    ratings: RatedExplanations,
    embedders: Mapping[str, Embedder],
    plans: Mapping[str, Plan],
    say: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Train and test scorers on the embeddings of several encoders, on the same splits."""
    # Returns the rows of `variant_figures` with name and number of parameters of the encoder.
    frames = []
    for name, embedder in embedders.items():
        say(f"Embedding and training: {name}")
        embeddings = embedder.embed(ratings.explanations).cpu()
        found = variant_figures(ratings, embeddings, Variant(name), plans[name])
        # Counted after embedding: the model is built by then.
        frames.append(found.assign(name=name, parameters=getattr(embedder.encoder, "n_parameters", math.nan)))
    return pd.concat(frames, ignore_index=True)


def slopes(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return how much the value rises for ten times the parameters, with its interval over seeds."""
    # The slope of the least-squares line on log10(parameters) is taken for each seed of a group of `by`; seeds, not
    # images, are what the interval is over. NaN where a group has fewer than two sizes.

    def slope(group: pd.DataFrame) -> float:
        known = group.dropna(subset=["value", "parameters"])
        if known["parameters"].nunique() < 2:
            return math.nan
        return float(np.polyfit(np.log10(known["parameters"].to_numpy(float)), known["value"].to_numpy(float), 1)[0])

    rows = [
        dict(zip((*by, "seed"), key, strict=True)) | {"value": slope(group), "measure": SLOPE}
        for key, group in frame.groupby([*by, "seed"], sort=False)
    ]
    return over_splits(pd.DataFrame(rows), tuple(dict.fromkeys((*by, "measure"))))
