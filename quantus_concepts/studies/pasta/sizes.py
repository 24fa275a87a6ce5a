"""`pasta sizes`: does the size of the network that is explained matter (Figure 8)?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import torch

from captum_concepts.attributions.methods import build_methods
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.plots import MUTED, lines
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, three, write_report
from quantus_concepts.studies._kit.results import one, over_seeds, pick, with_random_range
from quantus_concepts.studies.pasta.material import (
    CONTROLS,
    METHODS,
    RatedBirds,
    label_names_of,
    train_classifier,
)
from quantus_concepts.studies.pasta.report import READING, banner_of, table
from quantus_concepts.studies.pasta.scorers import Plan, splits_interval, train_on_ratings

SCORE, ACCURACY, SLOPE = "score", "accuracy", "slope"
PER_SIZE = "per tenfold size"


def whole_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read at least two numbers with commas between them."""
    try:
        numbers = sorted({int(number) for number in text.split(",")})
    except ValueError:
        numbers = []
    if len(numbers) < 2 or numbers[0] < 2:
        raise ValueError(
            f"Expected `{option}` to be two or more whole numbers from 2, with commas between them, but got {text!r}."
        )
    return tuple(numbers)


def run_sizes(
    folder: RunFolder,
    ratings: RatedExplanations,
    embedder: Embedder,
    plan: Plan,
    birds: RatedBirds,
    *,
    channels: Sequence[int],
    n_networks: int,
    classifier_epochs: int,
) -> None:
    """Score the explanations of networks of several sizes, and write all of it."""
    with warnings_as_notes(folder):
        plan = replace(plan, label_names=label_names_of(ratings))
        scorer = train_on_ratings(folder, ratings, embedder, plan).scorer
        networks = network_sizes(folder, birds, scorer, embedder, channels, n_networks, classifier_epochs, plan.device)
        means = over_seeds(networks, ["name", "parameters", "measure"], interval=splits_interval)
        frame = pd.concat([means, slopes(networks)], ignore_index=True)
        folder.write("networks.csv", networks.to_csv(index=False))
    more = {"encoder": embedder.name, "device": str(plan.device)}
    write_report(folder, frame, sizes_report(frame, banner_of(ratings, embedder.encoder)), more)


def network_sizes(
    folder: RunFolder,
    birds: RatedBirds,
    scorer: Scorer,
    embedder: Embedder,
    channels: Sequence[int],
    n_networks: int,
    epochs: int,
    device: torch.device,
) -> pd.DataFrame:
    """Score the explanations of small networks of several widths, each trained several times.

    The true class is explained and shown to the scorer, not the one predicted: else the rating of a map that ignores
    the network follows the network's accuracy.
    """
    rows = []
    for network in range(n_networks):
        for width in channels:
            classifier = train_classifier(folder, birds, epochs=epochs, device=device, channels=width, network=network)
            parameters = sum(parameter.numel() for parameter in classifier.model.parameters())
            metric = PASTAScore(
                scorer,
                embedder,
                question=scorer.questions[0],
                class_names=classifier.class_names,
                disable_warnings=True,
            )
            images = classifier.images.numpy()
            rows.append(("network", parameters, ACCURACY, classifier.accuracy, len(images), network))
            # Random maps are others for each network, as its own are.
            methods = build_methods(METHODS, seed=birds.seed + 1000 * network + width)
            for name, explain in methods.items():
                maps = explain(model=classifier.model, inputs=images, targets=classifier.labels)
                scores = np.asarray(metric(classifier.model, images, classifier.labels, maps), dtype=float)
                defined = scores[~np.isnan(scores)]
                value = float(defined.mean()) if defined.size else math.nan
                rows.append((name, parameters, SCORE, value, defined.size, network))
    return pd.DataFrame(rows, columns=["name", "parameters", "measure", "value", "n", "seed"])


def slopes(frame: pd.DataFrame) -> pd.DataFrame:
    """Return how much each method's value rises for ten times the parameters, with its interval over networks.

    The slope of the least-squares line on log10(parameters) is taken for each seed; seeds, not images, are what the
    interval is over. NaN below two sizes.
    """

    def slope(group: pd.DataFrame) -> float:
        complete = group.dropna(subset=["value", "parameters"]).astype({"value": float, "parameters": float})
        if complete["parameters"].nunique() < 2:
            return math.nan
        return float(np.polyfit(np.log10(complete["parameters"]), complete["value"], 1)[0])

    groups = frame.groupby(["name", "seed"], sort=False)
    rows = [{"name": name, "seed": seed, "measure": SLOPE, "value": slope(of)} for (name, seed), of in groups]
    return over_seeds(pd.DataFrame(rows), ["name", "measure"], interval=splits_interval)


def sizes_report(frame: pd.DataFrame, banner: str) -> Report:
    """Declare the report."""
    slope_rows = with_random_range(pick(frame, measure=SLOPE).rename(columns={"name": "model"}), "random", ["measure"])
    verdicts = [
        Verdict.of(
            f"Are larger networks rated higher? (rating per tenfold size, {name})",
            one(slope_rows, model=name),
            write=three,
        )
        for name in METHODS
        if name not in CONTROLS
    ]
    return Report(
        "PASTA-score: does the size of the explained network matter?",
        verdicts,
        sizes_picture(pick(frame, measure=SCORE)),
        [Section("Networks that are explained", [networks_table(frame)])],
        lead="Small networks of several sizes, explained for the true class; one scorer rates all explanations. "
        "Encoders of several sizes are a table of `pasta ablate`.",
        reading={
            "Score": READING["Score"],
            "Per tenfold size": "How much the rating rises for ten times the parameters, by a line through the sizes "
            "for each network trained.",
            "Random range": "The 95 % interval of the same slope for random maps.",
            "Figure 8": "The paper asks this of CLIP's ViT-B-16 to ViT-g-14, zero-shot, and finds lower scores for "
            "larger networks; its figure prints no numbers but those of two single explanations (3.12 and 2.75).",
        },
        banner=banner,
        links={"networks.csv": "networks.csv"},
    )


def sizes_picture(means: pd.DataFrame) -> Picture:
    """Draw mean ratings against numbers of parameters, a line for each method; controls are dashed."""
    sizes = sorted(means["parameters"].dropna().unique())
    figure, _ = lines(
        means.assign(decades=np.log10(means["parameters"].astype(float))),
        "decades",
        "name",
        label_x="parameters",
        label="mean predicted rating",
        percent=False,
        colours=dict.fromkeys(CONTROLS, MUTED),
        dashed=CONTROLS,
        ticks={float(np.log10(size)): f"{size:,.0f}" for size in sizes},
    )
    caption = "Mean predicted rating by network size; the methods in grey do not look at the network."
    return Picture("networks", figure, caption)


def networks_table(networks: pd.DataFrame) -> Table:
    """Return the mean rating of each method (row) at each size (column)."""
    heads = [f"{size:,.0f}" for size in sorted(networks["parameters"].dropna().unique())]
    means = pick(networks, measure=[ACCURACY, SCORE])
    means = means.assign(head=means["parameters"].map("{:,.0f}".format))
    cells = pd.concat([means, pick(networks, measure=SLOPE, name=list(METHODS)).assign(head=PER_SIZE)])
    accuracy = "share the network classifies correctly"
    cells["name"] = cells["name"].replace({"network": accuracy})
    caption = (
        f"Small numbers are 95 % intervals over networks, none below 3. {' and '.join(CONTROLS)} ignore the network."
    )
    title = "Mean predicted rating, 1 to 5, by number of parameters"
    orders = {"name": [accuracy, *METHODS], "head": [*heads, PER_SIZE]}
    return table("networks-by-method", title, cells, "name", "head", caption, number, **orders)
