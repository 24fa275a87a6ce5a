"""`pasta metrics`: how other measures of explanations agree with people's ratings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats
from torch import nn

from captum_concepts.attributions.methods import build_methods
from captum_concepts.attributions.steered_rise import SteeredRISE
from captum_concepts.support.running import device_of, warn_user
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import SimulatedRaters, first_answers, map_likeness, rate_map
from quantus_concepts.functional.attribution.overlay import resize, unit_maps
from quantus_concepts.functional.statistics.intervals import baseline_range, interval
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.metrics.faithfulness import THRESHOLDS
from quantus_concepts.metrics.pasta.rated_metrics import FAITHFULNESS, SENSITIVITY, measure_maps
from quantus_concepts.pasta.applications.correlations import sparseness
from quantus_concepts.pasta.applications.robustness import QUESTIONS_OF_CHANGE, robustness_pairs
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.plots import dots
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, percent, write_report
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies.pasta.material import (
    CORRELATED_THRESHOLDS,
    EMBEDDED,
    METHODS,
    Classifier,
    RatedBirds,
    label_names_of,
    load_embedder,
    load_ratings,
    train_classifier,
)
from quantus_concepts.studies.pasta.report import banner_of, is_release, paper_table, table, with_texts
from quantus_concepts.studies.pasta.scorers import (
    SCORER,
    Plan,
    best_scorer,
    cached_arrays,
    identity_of_ratings,
    spearman,
)

IMAGE, EXPLAINER, MODALITY = "image", "explainer", "modality"
RISE, MASK_ERROR = "RISE", "MAE"
#: Resamplings of the images behind an interval, and shuffles behind the range of the control.
N_DRAWN = 200
ENDS = ("low", "high", "control low", "control high")
#: Metrics of the paper's Table 10.
RAW_METRICS = ("Faithfulness (ROAD)", "MaxSensitivity (Gaussian)", "Sparseness")
SHARE = "share between"


def measure_ratings(
    ratings: RatedExplanations,
    model: nn.Module | None = None,
    methods: Mapping[str, Callable[..., np.ndarray] | None] | None = None,
    *,
    thresholds: Sequence[int] = THRESHOLDS,
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
        settings: dict[str, Any] = {"thresholds": thresholds, "n_samples": n_samples, "batch_size": batch_size}
        for name, scores in measure_maps(model, images, maps, explain, seed=seed, **settings).items():
            values[name][rows] = scores
    return values


def run_metrics(
    folder: RunFolder,
    ratings: RatedExplanations | None,
    birds: RatedBirds,
    plan: Plan,
    n_images: int | None,
    classifier_epochs: int,
    n_masks: int,
    n_samples: int,
    batch_size: int,
) -> None:
    """Measure rated explanations, relate the measures to the votes, and write all of it; the paper's numbers last.

    Without `ratings` methods explain a network of `birds`, and a scorer is trained by the `plan`.
    """
    with warnings_as_notes(folder):
        if ratings is not None:
            key: Any = identity_of_ratings(ratings)
            more: dict[str, np.ndarray] = {}
            measure = partial(measure_ratings, ratings, progress=plan.progress)
            values = cached_arrays(folder, "metrics", key, measure)
        else:
            seed, masks = birds.seed, birds.masks
            classifier = train_classifier(folder, birds, epochs=classifier_epochs, device=plan.device)
            rise = partial(_rise, n_masks=n_masks, seed=seed)
            methods: dict[str, Callable[..., np.ndarray]] = {RISE: rise, **build_methods(METHODS, seed=seed)}
            ratings = rate_methods(classifier, masks, methods, seed)
            measure = partial(
                measure_ratings,
                ratings,
                classifier.model,
                methods,
                thresholds=CORRELATED_THRESHOLDS,
                n_samples=n_samples,
                batch_size=batch_size,
                seed=seed,
                progress=plan.progress,
            )
            key = [identity_of_ratings(ratings), classifier.model, n_masks, n_samples, batch_size, seed]
            values = cached_arrays(folder, "metrics", key, measure)
            scores = _scores(folder, ratings, load_ratings(None, n_images, seed), plan, batch_size)
            more = {SCORER: scores, MASK_ERROR: mask_error(ratings, masks)}
        folder.note(*ratings.notes)
        explanations = explanation_frame(ratings, values | more)
        folder.write("explanations.csv", explanations.to_csv(index=False))
        frame = related_frame(explanations, ratings.questions, list(values), birds.seed)
    write_report(folder, frame, report(frame, explanations, ratings), {"device": str(plan.device)})


def _scores(
    folder: RunFolder, ratings: RatedExplanations, graded: RatedExplanations, plan: Plan, batch_size: int
) -> np.ndarray:
    """Train a scorer on graded explanations, and return its scores of the others."""
    embedder = load_embedder(EMBEDDED, device=plan.device, batch_size=batch_size, display_progressbar=plan.progress)
    scorer = best_scorer(folder, graded, embedder, replace(plan, label_names=label_names_of(graded)))
    scores = scorer.score(embedder.embed(ratings.explanations).cpu(), ratings.labels.tolist())
    return scores[:, 0].cpu().numpy()


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


def explanation_frame(ratings: RatedExplanations, values: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return a row for each explanation: image, explainer, modality, joined votes by question, and other measures."""
    columns = {IMAGE: ratings.image_ids, EXPLAINER: ratings.explainer_ids, MODALITY: ratings.modalities}
    votes = dict(zip(ratings.questions, ratings.targets().T, strict=True))
    return pd.DataFrame({**columns, **votes, **values})


def explainer_means(frame: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    """Return mean, deviation over explanations and interval of each measure by explainer (Tables 10 and 11)."""
    # The interval is over images, which are independent where an explainer rates each once. The explainer "all"
    # comes last; its interval is clustered by image.
    rows = []
    groups = [*frame.groupby(EXPLAINER, sort=False), ("all", frame)]
    for explainer, group in groups:
        for measure in measures:
            complete = group.dropna(subset=[measure])
            values = complete[measure].to_numpy(float)
            bounds = (MIN_VOTE, MAX_VOTE) if measure in QUESTIONS else (-math.inf, math.inf)
            low, high = interval(values, bounds, complete[IMAGE].to_numpy())
            value = values.mean() if values.size else math.nan
            deviation = values.std(ddof=1) if values.size > 1 else math.nan
            rows.append((explainer, measure, value, deviation, low, high, values.size))
    return pd.DataFrame(rows, columns=[EXPLAINER, "measure", "value", "deviation", "low", "high", "n"])


def share_between(frame: pd.DataFrame, column: str) -> float:
    """Return which share of the variance of a column lies between the means of explainers; NaN without variance."""
    complete = frame.dropna(subset=[column])
    variance = complete[column].var(ddof=0)
    if not variance > 0:
        return math.nan
    return float(complete.groupby(EXPLAINER)[column].transform("mean").var(ddof=0) / variance)


def across_explainers(frame: pd.DataFrame, first: str, second: str) -> float:
    """Return Spearman's correlation of two measures' means over explainers (Table 2)."""
    return _column_correlation(frame.groupby(EXPLAINER, sort=False)[[first, second]].mean(), first, second)


def with_control(
    frame: pd.DataFrame, statistic: Callable[[pd.DataFrame], float], shuffled: str, seed: int = 0, n: int = N_DRAWN
) -> dict[str, float]:
    """Return a statistic with its interval and its control."""
    # The interval (low, high) is the 2.5 to 97.5 % range over resampled images with all their explanations; the
    # control (control low, control high) is that range with the column `shuffled` shuffled among all explanations.
    rng = np.random.default_rng([seed, 3])
    groups = list(frame.groupby(IMAGE, sort=False).indices.values())
    resampled, controls = [], []
    for _ in range(n):
        chosen = rng.integers(0, len(groups), len(groups))
        resampled.append(statistic(frame.iloc[np.concatenate([groups[place] for place in chosen])]))
        controls.append(statistic(frame.assign(**{shuffled: rng.permutation(frame[shuffled].to_numpy())})))
    ends = [*pd.Series(resampled, dtype=float).quantile([0.025, 0.975]), *baseline_range(controls)]
    return {"value": statistic(frame)} | dict(zip(ENDS, ends, strict=True))


def related_frame(
    explanations: pd.DataFrame, questions: Sequence[str], metrics: Sequence[str], seed: int = 0
) -> pd.DataFrame:
    """Return how measures are related to votes and to explainers, by the paper's table, and the paper's numbers."""
    questions = [name for name in questions if explanations[name].notna().any()]
    related = correlations(explanations, metrics, questions, seed)
    means = explainer_means(
        explanations, [*questions, *metrics, *(name for name in (SCORER, MASK_ERROR) if name in explanations)]
    )
    shares = pd.DataFrame(
        [
            {"question": name} | with_control(explanations, partial(share_between, column=name), name, seed)
            for name in questions
        ]
    )
    parts = [related.assign(table="8"), means.assign(table="10, 11")]
    parts.append(shares.assign(table="11", measure=SHARE))
    if MASK_ERROR in explanations:
        statistic = partial(across_explainers, first=MASK_ERROR, second=SCORER)
        human = with_control(explanations, statistic, SCORER, seed)
        parts.append(pd.DataFrame([human | {"table": "2", "measure": "SCC of means"}]))
    parts += [paper_table(table).rename(columns={"row": EXPLAINER}).drop(columns="p") for table in (2, 10, 11)]
    return pd.concat(parts, ignore_index=True)


def correlations(
    explanations: pd.DataFrame, metrics: Sequence[str], questions: Sequence[str], seed: int = 0
) -> pd.DataFrame:
    """Return the SCC of each metric with the votes on each question, with interval and control, and the PCC."""
    rows = []
    for metric in metrics:
        for question in questions:
            complete = explanations.dropna(subset=[metric, question])
            about, n = {"metric": metric, "question": question}, len(complete)
            scc, pcc = dict.fromkeys(("value", *ENDS), math.nan), math.nan
            if n > 2 and complete[metric].nunique() > 1 and complete[question].nunique() > 1:
                statistic = partial(_column_correlation, first=metric, second=question)
                scc = with_control(complete, statistic, question, seed)
                pcc = float(stats.pearsonr(complete[metric], complete[question]).statistic)
            rows += [about | {"measure": "SCC", "n": n} | scc, about | {"measure": "PCC", "n": n, "value": pcc}]
    return pd.DataFrame(rows)


def _column_correlation(frame: pd.DataFrame, first: str, second: str) -> float:
    return spearman(frame[first].to_numpy(float), frame[second].to_numpy(float))


def report(frame: pd.DataFrame, explanations: pd.DataFrame, ratings: RatedExplanations) -> Report:
    """Declare the report."""
    ranged = frame.assign(random_low=frame["control low"], random_high=frame["control high"])
    related = pick(ranged, table="8")
    scc = pick(related, measure="SCC")
    scc = scc[scc["value"].notna()]
    questions = names(related, "question")
    verdicts = [
        Verdict.of(f"Does {row['metric']} follow the votes? (SCC, {row['question']})", row, write=number)
        for row in pick(scc, question=questions[:1]).to_dict("records")
    ]
    human = pick(ranged, measure="SCC of means")
    for row in human.to_dict("records"):
        text = "Do methods nearer to the marked pixels score higher? (SCC of MAE and score; below 0: yes)"
        verdicts.append(Verdict.of(text, row, write=number))
    figure, _ = dots(
        scc, "metric", "question", label="Spearman's correlation with the votes", percent=False, reference=0
    )
    sections = [
        Section("Metrics and votes", [correlation_table(related)]),
        Section("Explainers", [vote_table(ranged, ratings), raw_table(frame)]),
    ]
    if len(human):
        sections.append(Section("Score and marked pixels", [human_table(frame), human_correlation(human)]))
    return Report(
        "PASTA-score: do other metrics follow the votes?",
        verdicts[:8],
        Picture(
            "metrics", figure, "Correlation of metrics with the votes on the same explanations; low is good in Q5."
        ),
        sections,
        lead=f"{len(explanations):,} explanations of {explanations[IMAGE].nunique():,} images by "
        f"{explanations[EXPLAINER].nunique()} explainers.",
        reading={
            "Random range": f"Where 95 % of {N_DRAWN} correlations lie with the votes (or scores) shuffled among all "
            "explanations.",
            "Intervals": "95 % over resampled images with all their explanations. P-values, which take explanations "
            "for independent, are not given.",
            "Marked pixels": "As the paper's Table 2: here the bird's pixels stand for what people would mark. The "
            "paper calls its two rankings consistent; by the numbers it prints RISE is first of three in one and "
            "second in the other.",
            "The paper's explainers": "The published ratings name explainers by number, of which the paper gives no "
            "list; its Tables 10 and 11 are in results.csv.",
            **{name: QUESTIONS[name].text for name in questions},
        },
        banner=banner_of(ratings),
        links={"explanations.csv": "explanations.csv"},
    )


def correlation_table(related: pd.DataFrame) -> Table:
    """Return metrics (rows) against questions (columns)."""
    caption = (
        "As the paper's Tables 7 to 9. SCC: Spearman's, with 95 % intervals; PCC: Pearson's. The CSV has random ranges."
    )
    return table(
        "correlations", "Correlation of metrics and votes", related, "metric measure", "question", caption, number
    )


def vote_table(frame: pd.DataFrame, ratings: RatedExplanations) -> Table:
    """Return the mean votes by explainer (row) and question (column), and the share of variance between explainers."""
    votes = pick(frame, table="10, 11", measure=list(QUESTIONS))
    parts = [votes.assign(question=votes["measure"])]
    if is_release(ratings):
        printed = pick(paper_table("text"), measure="vote", question=names(parts[0], "question"))
        parts.append(printed.assign(explainer="paper, all"))
    shares = pick(frame, measure=SHARE).assign(explainer="share of the variance between explainers", low=math.nan)
    ends = shares["random_high"].map(percent)
    parts = [
        with_texts(pd.concat(parts), number),
        shares.assign(text=shares["value"].map(percent) + " % (shuffled: to " + ends + " %)"),
    ]
    caption = "As the paper's Table 11. Small numbers are 95 % intervals over images. Low is good in Q5."
    title = "Mean of the joined votes, 1 to 5, by explainer"
    return table("votes-by-explainer", title, pd.concat(parts), EXPLAINER, "question", caption, number)


def raw_table(frame: pd.DataFrame) -> Table:
    """Return the mean of each metric (column) by explainer (row)."""
    means = pick(frame, table="10, 11", measure=list(RAW_METRICS))
    caption = "As the paper's Table 10. Empty: not defined, as for a method whose maps do not depend on the image."
    orders = {"explainer": names(means, EXPLAINER), "measure": RAW_METRICS}
    return table(
        "metrics-by-explainer", "Mean of the metrics by explainer", means, EXPLAINER, "measure", caption, **orders
    )


def human_correlation(human: pd.DataFrame) -> Table:
    """Return the correlation of distance and score over methods."""
    caption = (
        "Over methods; small numbers are 95 % intervals. Below 0: methods nearer to the marked pixels score higher."
    )
    rows = human.assign(row="SCC of MAE and score", column="SCC")
    return table(
        "marked-pixels-scc", "Do methods nearer to the bird score higher?", rows, "row", "column", caption, number
    )


def human_table(frame: pd.DataFrame) -> Table:
    """Return the distance of maps to the marked pixels, the score and the votes by method."""
    heads = {MASK_ERROR: "MAE (low is good)", SCORER: SCORER, "Q1": "votes, Q1"}
    rows = pick(frame, table="10, 11", measure=list(heads))
    rows = rows[rows[EXPLAINER] != "all"].assign(measure=rows["measure"].map(heads))
    title = "Difference of the map, in [0, 1], from the bird's mask; mean predicted and given rating"
    caption = "As the paper's Table 2. Small numbers are 95 % intervals over images."
    orders = {"explainer": names(rows, EXPLAINER), "measure": [*heads.values()]}
    return table("marked-pixels", title, rows, EXPLAINER, "measure", caption, number, **orders)
