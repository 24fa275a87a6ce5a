"""The study `pasta sizes`: does size matter, of the network explained (Figure 8), and of the encoder of the scorer?"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from captum_concepts.attributions.methods import build_methods
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.embedded_encoder import EmbeddedEncoder
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies._kit.charts import GREY, Chart, Curves
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.findings import Finding, number, relation_to, said, with_intervals
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._kit.tables import Table, arrange
from quantus_concepts.studies.pasta.evaluation import (
    best_scorer,
    embed_ratings,
    over_splits,
    splits_of,
    variant_figures,
)
from quantus_concepts.studies.pasta.findings import compared_with_zero, in_cells, study_page, value_range
from quantus_concepts.studies.pasta.options import (
    EMBEDDED,
    KINDS,
    SCORER,
    SHUFFLED,
    SizesOptions,
    Variant,
    whole_numbers,
)
from quantus_concepts.studies.pasta.preparing import (
    CONTROLS,
    METHODS,
    RatedBirds,
    study_embedder,
    study_plan,
    study_ratings,
    train_classifier,
)

SCORE, ACCURACY, SLOPE = "score", "accuracy", "slope"
FIGURE_8 = (
    "The mean predicted rating of explanations of networks that differ in width only; each is trained anew several "
    "times and explained for the true class, which the scorer sees: were it the predicted class, even a map that "
    "ignores the network would be rated by the network's accuracy. The paper asks this of CLIP's ViT-B-16 to ViT-g-14, "
    "zero-shot, and finds lower scores for larger networks; its figure prints no numbers but those of two single "
    "explanations (3.12 and 2.75)."
)
OF_ENCODERS = (
    "The agreement with votes of scorers on embeddings of encoders of several sizes. The embedded encoder is "
    "untrained: its width says how many random patterns of pictures it looks at, and texts are the same at every "
    "width. Scorers are trained alike on all of them."
)
KEY = (
    "Small numbers are 95 % intervals over {over}, none below 3, else the deviation. The last column: how much the "
    "value rises for ten times the parameters, by a line through the sizes for each of the {over}."
)


@named_as_typed(SizesOptions, encoder="--encoders")
def collect(options: SizesOptions, run: Run[SizesOptions]) -> pd.DataFrame:
    """Return means and slopes of both questions; what they are made of are the frames of the run."""
    embedders = _embedders(options)
    ratings = study_ratings(options)
    run.note(*ratings.notes)
    run.settings["encoder"] = ", ".join(embedder.name for embedder in embedders.values())
    run.facts["simulated"] = ratings.simulated
    frames = []
    # Too few images raise before the expensive embedding.
    splits_of(ratings, study_plan(options, ratings))
    for name, embedder in embedders.items():
        run.say(f"Embedding and training: {name}")
        embeddings = embed_ratings(run, embedder, ratings)
        plan = study_plan(options, ratings, name)
        figures = variant_figures(ratings, embeddings, Variant(name), plan, run.kept)
        # Counted after embedding: the model is built by then.
        frames.append(figures.assign(name=name, parameters=getattr(embedder.encoder, "n_parameters", math.nan)))
    encoders = run.frames["encoders"] = pd.concat(frames, ignore_index=True)
    results = []
    if options.classifiers and options.data is None:
        embedder = study_embedder(options)
        plan = study_plan(options, ratings, n_splits=1, control=False)
        scorer = best_scorer(run, ratings, embedder, plan)
        networks = run.frames["networks"] = network_sizes(options, run, scorer, embedder)
        means = over_splits(networks, ("name", "parameters", "measure"))
        slope_rows = slopes(networks, ("name", "measure")).assign(measure=SLOPE)
        results += [rows.assign(part="networks") for rows in (means, slope_rows)]
    for question in names(encoders, "question"):
        chosen = pick(encoders, question=question, measure="SCC")
        means = over_splits(chosen, ("name", "parameters", "model", "modality", "measure"))
        slope_rows = slopes(chosen, ("model", "modality"))
        results += [rows.assign(part="encoders", question=question) for rows in (means, slope_rows)]
    return pd.concat(results, ignore_index=True)


def _embedders(options: SizesOptions) -> dict[str, Embedder]:
    if options.encoders is not None:
        encoders = (name.strip() for name in options.encoders.split(","))
        return {name: study_embedder(options, name) for name in encoders}
    base = study_embedder(options)
    return {
        f"{EMBEDDED}, width {width}": Embedder(
            EmbeddedEncoder(device=options.torch_device(), width=width),
            **base.settings,
            cache=base.cache,
            batch_size=base.batch_size,
            display_progressbar=base.display_progressbar,
        )
        for width in whole_numbers(options.widths, "--widths")
    }


def network_sizes(options: SizesOptions, run: Run[SizesOptions], scorer: Scorer, embedder: Embedder) -> pd.DataFrame:
    """Score the explanations of small networks of several widths, each trained several times.

    The true class is explained and shown to the scorer, not the one predicted: else the rating of a map that ignores
    the network follows the network's accuracy.
    """
    birds = RatedBirds(options.n_explained, options.n_train, seed=options.seed)
    rows = []
    for network in range(options.n_networks):
        for width in whole_numbers(options.channels, "--channels"):
            run.say(f"Training and explaining a network of {width} channels ({network + 1} of {options.n_networks})")
            classifier = train_classifier(
                birds,
                epochs=options.classifier_epochs,
                device=options.torch_device(),
                channels=width,
                network=network,
                keep=run.kept,
            )
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
            methods = build_methods(METHODS, seed=options.seed + 1000 * network + width)
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


def page(frame: pd.DataFrame, run: Run[SizesOptions]) -> Page:
    """Declare the page."""
    sections, findings, answers = [], [], []
    networks = pick(frame, part="networks")
    if len(networks):
        slope_rows = pick(networks, measure=SLOPE, name=list(METHODS))
        curves = sizes_chart(pick(networks, measure=SCORE), "mean predicted rating")
        chart = Chart("networks", "Mean predicted rating by network size.", curves)
        sections.append(Section("Networks that are explained", FIGURE_8, [networks_table(networks)], [chart]))
        findings.append(Finding(finding(slope_rows, "Predicted rating rises with size"), "Networks"))
        answers.append(Finding(answer_of(slope_rows, "methods"), "Larger networks are rated higher"))
    encoders = pick(frame, part="encoders")
    for question in names(encoders, "question"):
        chosen = pick(encoders, question=question)
        title = f"Encoders of the scorer, {question}"
        means = chosen[chosen["measure"] != SLOPE]
        of_all = pick(means, modality="all")
        curves = sizes_chart(of_all.assign(name=of_all["model"]), "SCC with votes")
        caption = f"Rank correlation of scores with votes on {question} by the size of the encoder."
        chart = Chart(f"encoders-{question}", caption, curves)
        table = encoders_table(title, means, pick(chosen, measure=SLOPE))
        sections.append(Section(title, OF_ENCODERS, [table], [chart]))
    slope_rows = pick(encoders, measure=SLOPE, model=SCORER, modality="all")
    slope_rows = slope_rows.assign(name=slope_rows["question"])
    findings.append(Finding(finding(slope_rows, "SCC with votes rises with size"), "Encoders"))
    answers.append(Finding(answer_of(slope_rows, "questions"), "Larger encoders agree better"))
    title, simulated = "PASTA-score: does size matter", run.facts["simulated"]
    return study_page(title, said(*findings), sections, simulated, answers=said(*answers))


STUDY = Study("pasta-sizes", collect, page)


def networks_table(networks: pd.DataFrame) -> Table:
    """Return the mean rating of each method (row) at each size (column)."""
    sizes = sorted(networks["parameters"].dropna().unique())
    heads = {size: f"{size:,.0f}" for size in sizes}
    means = pick(networks, measure=[ACCURACY, SCORE]).assign(head=networks["parameters"].map(heads))
    slope_rows = pick(networks, measure=SLOPE, name=list(METHODS)).assign(head=SLOPE)
    order = [*heads.values(), SLOPE]
    return Table(
        "Networks that are explained",
        "Mean predicted rating, 1 to 5, by number of parameters. The two in grey do not look at the network.",
        arrange(in_cells(pd.concat([means, slope_rows]), number), name=["network", *METHODS], head=order),
        ["name"],
        ["head"],
        labels={"network": "share the network classifies correctly"},
        heads=dict.fromkeys(order, "parameters") | {SLOPE: "per tenfold"},
        controls=CONTROLS,
        key=KEY.format(over="networks trained of a size"),
    )


def encoders_table(title: str, means: pd.DataFrame, slope_rows: pd.DataFrame) -> Table:
    """Return the agreement with votes at each size (column): of all explanations, of each kind, and of the control."""
    encoders = means.drop_duplicates("name").sort_values("parameters", kind="stable")
    rows = {
        (model, kind): model if kind == "all" else f"{model}, {KINDS[kind]}"
        for model in (SCORER, SHUFFLED)
        for kind in names(means, "modality")
    }
    cells = in_cells(pd.concat([means, slope_rows.assign(name=SLOPE)]))
    cells["row"] = [rows[pair] for pair in zip(cells["model"], cells["modality"], strict=True)]
    heads = {row.name: f"{row.parameters:,.0f} parameters" for row in encoders.itertuples(index=False)}
    return Table(
        title,
        "Rank correlation (SCC) of scores with votes on unseen images and explainers.",
        arrange(cells, row=list(rows.values()), name=[*heads, SLOPE]),
        ["row"],
        ["name"],
        heads=heads | {SLOPE: "per tenfold"},
        controls=[label for (model, _), label in rows.items() if model == SHUFFLED],
        key=KEY.format(over="splits") + " Intervals of correlations are on Fisher's z.",
    )


def finding(slope_rows: pd.DataFrame, text: str) -> str:
    """Say which slopes are above and below 0 by more than their interval."""
    return compared_with_zero(slope_rows, text, "name", "slope", "repetitions")


def answer_of(slope_rows: pd.DataFrame, what: str) -> str:
    """Return on how many rows the value rises with size, and the range of the slopes."""
    rows = slope_rows[slope_rows["value"].notna()]
    if rows.empty:
        return ""
    rising = sum(relation_to(row, 0.0) == "above" for _, row in with_intervals(rows).iterrows())
    return f"{rising} of {len(rows)} {what} (slopes {value_range(rows['value'].tolist())} per tenfold size)"


def sizes_chart(means: pd.DataFrame, label: str) -> Curves:
    """Declare values against numbers of parameters, a line for each name; controls are dashed."""
    sizes = sorted(means["parameters"].dropna().unique())
    return Curves(
        frame=means.assign(decades=np.log10(means["parameters"].astype(float))),
        x="decades",
        series="name",
        label_x="parameters",
        label=label,
        ticks={float(np.log10(size)): f"{size:,.0f}" for size in sizes},
        styles=dict.fromkeys((*CONTROLS, SHUFFLED), "--"),
        colours=dict.fromkeys((*CONTROLS, SHUFFLED), GREY),
    )
