"""`pasta metrics`: how other measures of explanations agree with people's ratings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from captum_concepts.attributions.steered_rise import SteeredRISE
from captum_concepts.support.running import device_of, warn_user
from quantus_concepts.datasets.folders import list_some
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, MapExplanation, Question, low_is_good_in, papers
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import SimulatedRaters, first_answers, map_likeness, rate_map
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.metrics.pasta.rated_metrics import FAITHFULNESS, SENSITIVITY, measure_maps
from quantus_concepts.pasta.agreement import spearman
from quantus_concepts.pasta.applications.correlations import rating_correlations, sparseness, with_baseline
from quantus_concepts.pasta.applications.robustness import QUESTIONS_OF_CHANGE, robustness_pairs
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.overlay import resize, unit_maps
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.plots import dots
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, write_report
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies.pasta.material import (
    CORRELATED_THRESHOLDS,
    Classifier,
    for_spreadsheets,
    load_ratings,
)
from quantus_concepts.studies.pasta.report import (
    VOTES_READING,
    banner_of,
    paper_table,
    said_section,
    said_verdicts,
    table,
)
from quantus_concepts.studies.pasta.scorers import SCORER, cached_arrays, identity_of_ratings
from quantus_concepts.studies.pasta.settings import Metrics
from quantus_concepts.studies.pasta.votes import (
    EXPLAINER,
    IMAGE,
    MODALITY,
    explainer_means,
    vote_differences,
    vote_means,
)

RISE, MASK_ERROR = "RISE", "MAE"
#: The correlation of two measures of methods, by their means.
ACROSS = "SCC of means"
SHARE = "share between"
#: Most verdicts of a report.
MOST_VERDICTS = 9
#: Birds of the explained network that are rated and measured, at most.
N_MEASURED = 24


@dataclass(frozen=True)
class Measured:
    """Rated explanations with other measures of them (a row each), how these go with votes, explainers compared."""

    ratings: RatedExplanations
    explanations: pd.DataFrame
    related: pd.DataFrame
    compared: pd.DataFrame


def measure_ratings(
    ratings: RatedExplanations,
    model: nn.Module | None = None,
    methods: Mapping[str, Callable[..., np.ndarray] | None] | None = None,
    *,
    n_samples: int = 10,
    batch_size: int = 64,
    seed: int = 0,
    progress: bool = False,
) -> dict[str, np.ndarray]:
    """Return the sparseness (N,) of rated maps and, with a model, what `measure_maps` says of those of each method.

    Methods go by explainer id; NaN for concepts and drawings, and for explainers without a method.
    """
    values = {"Sparseness": sparseness(ratings.explanations, progress)}
    if n_drawings := int((ratings.modalities == "drawing").sum()):
        warn_user(f"{n_drawings} of {len(ratings)} explanations are drawings, of which no metric is defined.")
    if model is None:
        return values
    values |= {name: np.full(len(ratings), np.nan) for name in (*FAITHFULNESS, *SENSITIVITY)}
    for method, explain in (methods or {}).items():
        rows = np.flatnonzero((ratings.explainer_ids == method) & (ratings.modalities == "map"))
        explanations: list[Any] = [ratings.explanations[int(row)] for row in rows]
        images = torch.stack([explanation.image.float() for explanation in explanations])
        maps = torch.cat(
            [resize(each.map.float()[None, None], (images.shape[2], images.shape[3]))[:, 0] for each in explanations]
        )
        measured = measure_maps(
            model,
            images,
            maps,
            explain,
            thresholds=CORRELATED_THRESHOLDS,
            n_samples=n_samples,
            batch_size=batch_size,
            seed=seed,
        )
        for name, scores in measured.items():
            values[name][rows] = scores
    return values


def measure_methods(
    folder: RunFolder,
    classifier: Classifier,
    masks: np.ndarray,
    methods: Mapping[str, Callable[..., np.ndarray]],
    scorer: Scorer,
    embedder: Embedder,
    *,
    named: str,
    n_masks: int,
    n_samples: int,
    seed: int,
    progress: bool,
) -> Measured:
    """Let RISE and methods explain a network of painted birds, rate and score that, and relate all measures.

    `named` says which methods these are, for the cache.
    """
    n = min(N_MEASURED, len(classifier.images))
    classifier = replace(
        classifier,
        images=classifier.images[:n],
        labels=classifier.labels[:n],
        predicted=classifier.predicted[:n],
    )
    masks = masks[:n]
    rise = partial(_rise, n_masks=n_masks, seed=seed)
    methods = {RISE: rise, **methods}
    ratings = rate_methods(classifier, masks, methods, seed)
    measure = partial(
        measure_ratings,
        ratings,
        classifier.model,
        methods,
        n_samples=n_samples,
        batch_size=embedder.batch_size,
        seed=seed,
        progress=progress,
    )
    key = [identity_of_ratings(ratings), classifier.model, named, n_masks, n_samples, embedder.batch_size, seed]
    values = cached_arrays(folder, "metrics", key, measure)
    labels = None if scorer.labels is None else ratings.labels.tolist()
    scores = scorer.score(embedder.embed(ratings.explanations), labels)[:, 0].cpu().numpy()
    return related(ratings, values, seed, {SCORER: scores, MASK_ERROR: mask_error(ratings, masks)})


def run_metrics(settings: Metrics, folder: RunFolder) -> None:
    """Measure rated explanations, relate the measures to the votes, and write all of it."""
    # Sparseness needs maps, not drawings of them.
    ratings = load_ratings(settings.data, drawings=False)
    with folder:
        with warnings_as_notes(folder):
            measured = related(ratings, measure_ratings(ratings, progress=settings.progress), settings.seed)
            folder.note(*ratings.notes)
            folder.write("explanations.csv", for_spreadsheets(measured.explanations).to_csv(index=False))
            folder.write("vote_differences.csv", for_spreadsheets(measured.compared).to_csv(index=False))
        write_report(folder, for_spreadsheets(measured.related), metrics_report(measured))


def _rise(model: torch.nn.Module, inputs: Any, targets: Any, n_masks: int, seed: int, **quantus: Any) -> np.ndarray:
    """Explain by RISE: the steered one without a score."""
    device = device_of(model)
    images, classes = torch.as_tensor(inputs, device=device), torch.as_tensor(targets, device=device)
    return SteeredRISE(model).attribute(images, classes, lam=0, n_masks=n_masks, cells=5, seed=seed).cpu().numpy()


def rate_methods(
    classifier: Classifier, masks: np.ndarray, methods: Mapping[str, Callable[..., np.ndarray]], seed: int = 0
) -> RatedExplanations:
    """Let simulated raters vote on explanations of a network by the masks (N, H, W) of the birds."""
    # The predicted class is explained. Q5 and Q6 are of the pairs that `robustness_pairs` finds, and NaN where it
    # finds none.
    images, n = classifier.images.numpy(), len(classifier.images)
    parts = []
    for name, explain in methods.items():
        maps = np.asarray(explain(model=classifier.model, inputs=images, targets=classifier.predicted)).reshape(
            n, -1, *masks.shape[1:]
        )
        maps = maps.sum(1)
        expected = np.full((n, len(QUESTIONS)), np.nan)
        expected[:, :4] = [first_answers(*rate_map(*pair)) for pair in zip(maps, masks, strict=True)]
        for question in QUESTIONS_OF_CHANGE:
            pairs = robustness_pairs(classifier.model, classifier.images, None, explain, question=question, seed=seed)
            for place, index in enumerate(pairs.indices):
                maps_of_pair = (pairs.explanations[place], pairs.perturbed_explanations[place])
                likeness = map_likeness(*(np.reshape(heat, (-1, *masks.shape[1:])).sum(0) for heat in maps_of_pair))
                expected[index, list(QUESTIONS).index(question)] = 1 - likeness
        parts.append((name, maps, MIN_VOTE + (MAX_VOTE - MIN_VOTE) * expected))
    expected = np.concatenate([votes for *_, votes in parts])
    places = np.tile(np.arange(n), len(parts))
    return RatedExplanations(
        [
            MapExplanation(image, torch.as_tensor(heat).float())
            for _, maps, _ in parts
            for image, heat in zip(classifier.images, maps, strict=True)
        ],
        SimulatedRaters().vote(expected, seed),
        image_ids=np.array([f"bird {place:04d}" for place in places]),
        explainer_ids=np.repeat([name for name, *_ in parts], n),
        labels=np.array(classifier.class_names)[classifier.predicted[places]],
        datasets=np.full(len(places), "painted birds"),
        modalities=np.full(len(places), "map"),
        name="methods on painted birds, simulated raters",
        simulated=True,
        raters=tuple(f"rater {number + 1}" for number in range(SimulatedRaters().n_raters)),
        notes=(
            "No person voted: simulated raters vote by a stated function of the overlap with the bird in the picture.",
        ),
    )


def mask_error(ratings: RatedExplanations, masks: np.ndarray) -> np.ndarray:
    """Return the mean absolute difference of each map, scaled to [0, 1], from the mask of its image: (N,)."""
    # `ratings` has the images of the masks in the same order for each explainer.
    errors = [
        float(np.abs(unit_maps(explanation.map[None].float())[0].numpy() - masks[place % len(masks)]).mean())
        for place, explanation in enumerate(ratings.explanations)
        if isinstance(explanation, MapExplanation)
    ]
    return np.array(errors)


def related(
    ratings: RatedExplanations,
    values: Mapping[str, np.ndarray],
    seed: int = 0,
    more: Mapping[str, np.ndarray] | None = None,
) -> Measured:
    """Relate measures of explanations to the joined votes and to explainers, by the paper's table.

    Those of `more` have means by explainer alone.
    """
    columns = {IMAGE: ratings.image_ids, EXPLAINER: ratings.explainer_ids, MODALITY: ratings.modalities}
    votes = dict(zip(ratings.questions, ratings.targets().T, strict=True))
    if taken := {*columns, *values, *(more or {})} & {*votes}:
        raise ValueError(f"Expected questions of ratings to be called otherwise than {list_some(sorted(taken))}.")
    explanations = pd.DataFrame({**columns, **votes, **values, **(more or {})})
    questions = [name for name in ratings.questions if explanations[name].notna().any()]
    found = rating_correlations(
        values, explanations[questions].to_numpy(), questions, images=ratings.image_ids, seed=seed
    )
    parts = [correlation_rows(found).assign(table="8")]
    parts.append(vote_means(ratings, questions).assign(table="11"))
    parts.append(explainer_means(explanations, [*values, *(more or {})], (-math.inf, math.inf)).assign(table="10"))
    shares = [
        {"question": name} | with_baseline(explanations, partial(share_between, column=name), name, seed)
        for name in questions
    ]
    parts.append(pd.DataFrame(shares).assign(table="11", measure=SHARE))
    if more and MASK_ERROR in more:
        statistic = partial(across_explainers, first=MASK_ERROR, second=SCORER)
        human = with_baseline(explanations, statistic, SCORER, seed)
        parts.append(pd.DataFrame([human | {"table": "2", "measure": ACROSS}]))
        parts.append(paper_table(2).rename(columns={"row": EXPLAINER}).drop(columns="p"))
    related_rows = pd.concat(parts, ignore_index=True)
    return Measured(ratings, explanations, related_rows, vote_differences(ratings, questions))


def correlation_rows(found: Sequence[Any]) -> pd.DataFrame:
    """Return `rating_correlations` as rows: Spearman's (SCC) with interval and random range, and Pearson's (PCC)."""
    frame = pd.DataFrame([asdict(row) for row in found])
    ends = ["low", "high", "random_low", "random_high"]
    ranks = frame[["metric", "question", "n", *ends]].assign(measure="SCC", value=frame["spearman"])
    pearson = frame[["metric", "question", "n"]].assign(measure="PCC", value=frame["pearson"])
    return pd.concat([ranks, pearson]).sort_index(kind="stable").reset_index(drop=True)


def share_between(frame: pd.DataFrame, column: str) -> float:
    """Return which share of the variance of a column lies between the means of explainers; NaN without variance."""
    complete = frame.dropna(subset=[column])
    variance = complete[column].var(ddof=0)
    if not variance > 0:
        return math.nan
    return float(complete.groupby(EXPLAINER)[column].transform("mean").var(ddof=0) / variance)


def across_explainers(frame: pd.DataFrame, first: str, second: str) -> float:
    """Return Spearman's correlation of two measures' means over explainers (Table 2)."""
    means = frame.groupby(EXPLAINER, sort=False)[[first, second]].mean()
    return spearman(means[first].to_numpy(float), means[second].to_numpy(float))


def metric_verdicts(measured: Measured) -> list[Verdict]:
    """Ask of each metric whether it follows the votes on the first question."""
    scc = pick(measured.related, table="8", measure="SCC")
    rows = pick(scc[scc["value"].notna()], question=names(scc, "question")[:1]).to_dict("records")
    return [
        Verdict.of(f"Does {row['metric']} follow the votes? (SCC, {row['question']})", row, write=number)
        for row in rows
    ]


def metric_sections(measured: Measured) -> list[Section]:
    """Return the correlations of metrics with the votes, and score and votes by distance from the marked pixels."""
    asked = measured.ratings.asked
    sections = [Section("Metrics and votes", [correlation_table(pick(measured.related, table="8"), asked)])]
    if MASK_ERROR in measured.explanations:
        sections.append(Section("Score and marked pixels", [human_table(measured.related)]))
    return sections


def metrics_report(measured: Measured) -> Report:
    """Declare the report."""
    ratings, related_rows = measured.ratings, measured.related
    scc = pick(related_rows, table="8", measure="SCC")
    questions = names(scc, "question")
    asked_of = {name: ratings.asked[name] for name in questions}
    figure, _ = dots(
        scc[scc["value"].notna()],
        "metric",
        "question",
        label="Spearman's correlation with the votes",
        percent=False,
        reference=0,
    )
    means = pick(related_rows, table="11", measure=questions)
    asked = metric_verdicts(measured)
    return Report(
        "PASTA-score: do other metrics follow the votes?",
        # What the raters said comes first, and is left out before any answer.
        [*said_verdicts(means, measured.compared, ratings)[: max(1, MOST_VERDICTS - len(asked))], *asked],
        Picture(
            "metrics",
            figure,
            f"Correlation of metrics with the votes on the same explanations.{low_is_good_in(asked_of.values())}",
        ),
        [
            said_section(means, measured.compared, ratings, questions, shares=pick(related_rows, measure=SHARE)),
            *metric_sections(measured),
        ],
        lead=f"{len(ratings):,} explanations of {len(set(ratings.image_ids.tolist())):,} images by "
        f"{len(set(ratings.explainer_ids.tolist()))} explainers.",
        reading={
            **VOTES_READING,
            "Random range": "Of correlations: with the votes (or scores) shuffled among all explanations.",
            "Intervals": "95 % over resampled images with all their explanations; of mean votes over raters and "
            "images, or images alone where it is not known who voted.",
            **{name: question.reading for name, question in asked_of.items()},
        },
        banner=banner_of(ratings),
        links={name: name for name in ("vote_differences.csv", "explanations.csv")},
    )


def correlation_table(rows: pd.DataFrame, asked: Mapping[str, Question]) -> Table:
    """Return metrics (rows) against questions (columns), with the paper's numbers of the same metrics."""
    printed = pd.concat([paper_table(number_) for number_ in (7, 8, 9)]).assign(metric=lambda of: of["row"])
    chosen = {name: asked[name] for name in names(rows, "question", list(asked))}
    printed = pick(printed, metric=names(rows, "metric"), question=papers(chosen.values()))
    frame = pd.concat([rows, printed.assign(measure="paper, " + printed["measure"])], ignore_index=True)
    caption = (
        "As the paper's Tables 7 to 9. SCC: Spearman's, 95 % intervals; PCC: Pearson's. The CSV has random ranges; "
        f"paper: of its own data and classifiers.{low_is_good_in(chosen.values())}"
    )
    orders = {
        "metric": names(rows, "metric"),
        "measure": ["SCC", "paper, SCC", "PCC", "paper, PCC"],
        "question": list(chosen),
    }
    title = "Correlation of metrics and votes"
    return table("correlations", title, frame, "metric measure", "question", caption, number, **orders)


def human_table(frame: pd.DataFrame) -> Table:
    """Return the distance of maps to the marked pixels, the score and the votes by method."""
    heads = {MASK_ERROR: "MAE (low is good)", SCORER: SCORER, "Q1": "votes, Q1"}
    rows = pick(frame[frame["model"] != "paper"] if "model" in frame else frame, measure=list(heads))
    rows = rows[rows[EXPLAINER].notna()]
    # The number that the verdict is about, below the methods that it is of.
    across = pick(frame, measure=ACROSS).assign(measure=SCORER, **{EXPLAINER: "SCC with MAE, over methods"})
    rows = pd.concat([rows, across], ignore_index=True)
    rows = rows.assign(measure=rows["measure"].map(heads))
    title = "Difference of the map, in [0, 1], from the bird's mask; mean predicted and given rating"
    caption = "As the paper's Table 2. Small numbers are 95 % intervals."
    orders = {"explainer": names(rows, EXPLAINER), "measure": [*heads.values()]}
    return table("marked-pixels", title, rows, EXPLAINER, "measure", caption, number, **orders)
