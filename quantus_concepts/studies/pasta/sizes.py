"""`pasta sizes`: does size matter, of the network that is explained (Figure 8), and of the encoder of the scorer?"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch

from captum_concepts.attributions.methods import build_methods
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.plots import MUTED, lines
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, write_report
from quantus_concepts.studies._kit.results import names, one, pick
from quantus_concepts.studies.pasta.ablate import Variant, variant_figures
from quantus_concepts.studies.pasta.material import (
    CONTROLS,
    EMBEDDED,
    METHODS,
    HowToEmbed,
    RatedBirds,
    label_names_of,
    load_embedder,
    train_classifier,
    training_settings,
    words,
)
from quantus_concepts.studies.pasta.report import KINDS, READING, banner_of, table, three
from quantus_concepts.studies.pasta.scorers import (
    SCORER,
    SHUFFLED,
    Plan,
    best_scorer,
    embed,
    over_splits,
)

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


def build_embedders(
    encoders: str | None, widths: str, *, device: torch.device, **settings: Unpack[HowToEmbed]
) -> dict[str, Embedder]:
    """Return an embedder for each encoder named, or for each width of the embedded encoder."""
    if encoders is not None:
        return {name: load_embedder(name, device=device, **settings) for name in words(encoders)}
    return {
        f"{EMBEDDED}, width {width}": Embedder(EmbeddedEncoder(device=device, width=width), size=64, **settings)
        for width in whole_numbers(widths, "--widths")
    }


def run_sizes(
    folder: RunFolder,
    ratings: RatedExplanations,
    embedders: Mapping[str, Embedder],
    plan: Plan,
    epochs: int | None,
    learning_rate: float | None,
    birds: RatedBirds | None,
    *,
    channels: Sequence[int],
    n_networks: int,
    classifier_epochs: int,
) -> None:
    """Compare encoders of several sizes, and explanations of networks of several sizes, and write all of it."""

    def plan_for(encoder: str, **changes: Any) -> Plan:
        return replace(plan, settings=training_settings(encoder, epochs, learning_rate), **changes)

    with warnings_as_notes(folder):
        folder.note(*ratings.notes)
        plan = replace(plan, label_names=label_names_of(ratings))
        # Too few images raise before the expensive embedding.
        plan.splits(ratings)
        frames = []
        for name, embedder in embedders.items():
            embeddings = embed(folder, embedder, ratings.explanations)
            figures = variant_figures(folder, ratings, embeddings, Variant(name), plan_for(name))
            # Counted after embedding: the model is built by then.
            frames.append(figures.assign(name=name, parameters=getattr(embedder.encoder, "n_parameters", math.nan)))
        tables = {"encoders": pd.concat(frames, ignore_index=True)}
        results = []
        if birds is not None:
            first = next(iter(embedders.values()))
            settings: dict[str, Any] = {"batch_size": first.batch_size, "display_progressbar": plan.progress}
            embedder = load_embedder(EMBEDDED, device=plan.device, cache=first.cache, **settings)
            scorer = best_scorer(folder, ratings, embedder, plan_for(EMBEDDED, n_splits=1, control=False))
            networks = tables["networks"] = network_sizes(
                folder, birds, scorer, embedder, channels, n_networks, classifier_epochs, plan.device
            )
            means = over_splits(networks, ("name", "parameters", "measure"))
            slope_rows = slopes(networks, ("name", "measure")).assign(measure=SLOPE)
            results += [rows.assign(part="networks") for rows in (means, slope_rows)]
        for question in names(tables["encoders"], "question"):
            chosen = pick(tables["encoders"], question=question, measure="SCC")
            means = over_splits(chosen, ("name", "parameters", "model", "modality", "measure"))
            slope_rows = slopes(chosen, ("model", "modality"))
            results += [rows.assign(part="encoders", question=question) for rows in (means, slope_rows)]
        frame = pd.concat(results, ignore_index=True)
        for name, table in tables.items():
            folder.write(f"{name}.csv", table.to_csv(index=False))
    encoder = ", ".join(embedder.name for embedder in embedders.values())
    banner = banner_of(ratings, encoder)
    write_report(folder, frame, report(frame, banner, [*tables]), {"encoder": encoder, "device": str(plan.device)})


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


def slopes(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """Return how much the value rises for ten times the parameters, with its interval over seeds.

    The slope of the least-squares line on log10(parameters) is taken for each seed of a group of `by`; seeds, not
    images, are what the interval is over. NaN where a group has fewer than two sizes.
    """

    def slope(group: pd.DataFrame) -> float:
        complete = group.dropna(subset=["value", "parameters"]).astype({"value": float, "parameters": float})
        if complete["parameters"].nunique() < 2:
            return math.nan
        return float(np.polyfit(np.log10(complete["parameters"]), complete["value"], 1)[0])

    rows = [
        dict(zip((*by, "seed"), key, strict=True)) | {"value": slope(group), "measure": SLOPE}
        for key, group in frame.groupby([*by, "seed"], sort=False)
    ]
    return over_splits(pd.DataFrame(rows), tuple(dict.fromkeys((*by, "measure"))))


def report(frame: pd.DataFrame, banner: str, tables: Sequence[str]) -> Report:
    """Declare the report."""
    encoders, networks = pick(frame, part="encoders"), pick(frame, part="networks")
    questions = names(encoders, "question")
    verdicts, pictures = [], {}
    for question in questions:
        chosen = pick(encoders, question=question, modality="all")
        slope_rows = pick(chosen, measure=SLOPE)
        row = against(one(slope_rows, model=SCORER), one(slope_rows, model=SHUFFLED))
        text = f"Do larger encoders follow the votes better? (SCC per tenfold size, {question})"
        verdicts.append(Verdict.of(text, row, write=three))
        means = chosen[chosen["measure"] != SLOPE]
        caption = (
            f"Agreement with the votes ({question}) by the size of the encoder; the band is trained on {SHUFFLED}."
        )
        pictures[question] = sizes_picture(f"encoders-{question}", means, "model", "SCC with votes", caption, SHUFFLED)
    sections = [
        Section(
            f"Encoders of the scorer, {question}",
            [
                *([] if question == questions[0] else [pictures[question]]),
                encoders_table(pick(encoders, question=question)),
            ],
        )
        for question in questions
    ]
    if len(networks):
        slope_rows = pick(networks, measure=SLOPE)
        control = one(slope_rows, name="random")
        for name in names(pick(slope_rows, name=[name for name in METHODS if name not in CONTROLS]), "name"):
            text = f"Are larger networks rated higher? (rating per tenfold size, {name})"
            verdicts.append(Verdict.of(text, against(one(slope_rows, name=name), control), write=three))
        caption = "Mean predicted rating by network size; the methods in grey do not look at the network."
        picture = sizes_picture("networks", pick(networks, measure=SCORE), "name", "mean predicted rating", caption)
        sections.append(Section("Networks that are explained", [picture, networks_table(networks)]))
    return Report(
        "PASTA-score: does size matter?",
        verdicts[:8],
        pictures[questions[0]],
        sections,
        lead="Scorers on encoders of several sizes, trained alike on the same splits; small networks of several sizes, "
        "explained for the true class.",
        reading={
            **READING,
            "Per tenfold size": "How much the value rises for ten times the parameters, by a line through the sizes "
            "for each split or network trained.",
            "Random range": f"The 95 % interval of the same slope for scorers trained on {SHUFFLED}, and for random "
            "maps.",
            "Embedded encoder": "Untrained: its width says how many random patterns of pictures it looks at; texts are "
            "the same at every width.",
            "Figure 8": "The paper asks this of CLIP's ViT-B-16 to ViT-g-14, zero-shot, and finds lower scores for "
            "larger networks; its figure prints no numbers but those of two single explanations (3.12 and 2.75).",
        },
        banner=banner,
        links={f"{name}.csv": f"{name}.csv" for name in tables},
    )


def against(row: pd.Series | None, control: pd.Series | None) -> pd.Series | None:
    """Return a row with the interval of its control as the random range."""
    if row is None or control is None:
        return row
    return pd.Series({**row, "random_low": control["low"], "random_high": control["high"]})


def sizes_picture(name: str, means: pd.DataFrame, series: str, label: str, caption: str, band: str = "") -> Picture:
    """Draw values against numbers of parameters, a line for each of a series; controls are dashed."""
    sizes = sorted(means["parameters"].dropna().unique())
    figure, _ = lines(
        means.assign(decades=np.log10(means["parameters"].astype(float))),
        "decades",
        series,
        label_x="parameters",
        label=label,
        percent=False,
        colours=dict.fromkeys(CONTROLS, MUTED),
        dashed=CONTROLS,
        band=band,
        ticks={float(np.log10(size)): f"{size:,.0f}" for size in sizes},
    )
    return Picture(name, figure, caption)


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


def encoders_table(rows: pd.DataFrame) -> Table:
    """Return the agreement with votes at each size (column): of all explanations, of each kind, and of the control."""
    means = rows[rows["measure"] != SLOPE].sort_values("parameters", kind="stable")
    means = means.assign(head=means["name"] + ": " + means["parameters"].map("{:,.0f}".format))
    cells = pd.concat([means, pick(rows, measure=SLOPE).assign(head=PER_SIZE)])
    kinds = cells["modality"].map({"all": "", **{kind: f", {name}" for kind, name in KINDS.items()}})
    question = rows["question"].iloc[0]
    return table(
        f"encoders-{question}-by-kind",
        f"SCC of scores with votes ({question}) by number of the encoder's parameters",
        cells.assign(row=cells["model"] + kinds),
        "row",
        "head",
        "Small numbers are 95 % intervals over splits, none below 3.",
        model=[SCORER, SHUFFLED],
        head=[*names(means, "head"), PER_SIZE],
    )
