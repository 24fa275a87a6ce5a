"""The command `pasta metrics`: how other metrics agree with people's ratings."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from scipy import stats

from captum_concepts._support.running import device_of
from captum_concepts.attributions.methods import build_methods
from captum_concepts.attributions.steered_rise import SteeredRISE
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.raters import SimulatedRaters, first_answers, map_likeness, rate_map
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.functional.intervals import baseline_range, interval
from quantus_concepts.functional.overlay import unit_maps
from quantus_concepts.functional.votes import MAX_VOTE, MIN_VOTE
from quantus_concepts.metrics.pasta.rated_metrics import Explainer, metric_values
from quantus_concepts.pasta.applications.robustness import QUESTIONS_OF_CHANGE, robustness_pairs
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.findings import (
    RELATIONS,
    Finding,
    Row,
    compared,
    ends,
    number,
    relation_to,
    said,
    sentence,
)
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import names, pick
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._kit.tables import Table, arrange
from quantus_concepts.studies.pasta.evaluation import best_scorer, identity_of_ratings, kept_arrays, spearman
from quantus_concepts.studies.pasta.findings import in_cells, paper_table, study_page, whole_percent
from quantus_concepts.studies.pasta.options import CORRELATED_THRESHOLDS, SCORER, MetricsOptions
from quantus_concepts.studies.pasta.preparing import (
    CONTROLS,
    METHODS,
    Classifier,
    RatedBirds,
    study_embedder,
    study_plan,
    study_ratings,
    train_classifier,
)

IMAGE, EXPLAINER, MODALITY = "image", "explainer", "modality"
RISE, MASK_ERROR = "RISE", "MAE"
#: Resamplings of the images behind an interval, and shuffles behind the range of the control.
N_DRAWN = 200
ENDS = ("low", "high", "control low", "control high")


@named_as_typed(MetricsOptions)
def collect(options: MetricsOptions, run: Run[MetricsOptions]) -> pd.DataFrame:
    """Rate and measure explanations, and relate the measures to the votes; the paper's numbers come last."""
    if options.data is None:
        ratings, values, more = _rate_and_measure(options, run)
    else:
        # Sparseness needs maps, not drawings of them.
        ratings, more = PastaRatings(options.data, drawings=False), {}
        make = partial(metric_values, ratings, display_progressbar=options.progress)
        values = kept_arrays(run.kept, "metrics", {"ratings": identity_of_ratings(ratings)}, make)
    run.note(*ratings.notes)
    run.facts["ratings"] = ratings
    frame = run.frames["explanations"] = explanation_frame(ratings, values | more)
    return related_frame(frame, ratings.questions, list(values), options.seed)


def _rate_and_measure(
    options: MetricsOptions, run: Run[MetricsOptions]
) -> tuple[RatedExplanations, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return rated explanations of a network, their metrics, and their scores and errors to the masks."""
    run.say("Training the network that is explained")
    birds = RatedBirds(options.n_explained, options.n_train, seed=options.seed)
    epochs, device, masks = options.classifier_epochs, options.torch_device(), birds.masks
    classifier = train_classifier(birds, epochs=epochs, device=device, keep=run.kept)
    rise = partial(_rise, n_masks=options.n_masks, seed=options.seed)
    methods: dict[str, Any] = {RISE: rise, **build_methods(METHODS, seed=options.seed)}
    run.say("Explaining and rating")
    ratings = rate_methods(classifier, masks, methods, options.seed)
    run.say("Measuring")
    explainers = {name: Explainer(classifier.model, explain) for name, explain in methods.items()}
    measure = partial(
        metric_values,
        ratings,
        explainers,
        thresholds=CORRELATED_THRESHOLDS,
        n_samples=options.n_samples,
        batch_size=options.batch_size,
        seed=options.seed,
        display_progressbar=options.progress,
    )
    values = kept_arrays(run.kept, "metrics", {"ratings": identity_of_ratings(ratings)} | run.settings, measure)
    run.say("Training a scorer")
    graded, embedder = study_ratings(options), study_embedder(options)
    plan = study_plan(options, graded, questions=("Q1",), n_splits=1, control=False)
    scorer = best_scorer(run, graded, embedder, plan)
    scores = scorer.score(embedder.embed(ratings.explanations).cpu(), ratings.labels.tolist())[:, 0].cpu().numpy()
    return ratings, values, {SCORER: scores, MASK_ERROR: mask_error(ratings, masks)}


def _rise(model: torch.nn.Module, inputs: Any, targets: Any, n_masks: int, seed: int, **quantus: Any) -> np.ndarray:
    """Explain by RISE: the steered one without a score."""
    device = device_of(model)
    images, classes = torch.as_tensor(inputs, device=device), torch.as_tensor(targets, device=device)
    return SteeredRISE(model).attribute(images, classes, lam=0, n_masks=n_masks, cells=5, seed=seed).cpu().numpy()


def rate_methods(
    classifier: Classifier, masks: np.ndarray, methods: Mapping[str, Callable[..., Any]], seed: int = 0
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


def explanation_frame(ratings: RatedExplanations, values: Mapping[str, Any]) -> pd.DataFrame:
    """Return a row for each explanation: image, explainer, modality, joined votes by question, and other measures."""
    columns = {IMAGE: ratings.image_ids, EXPLAINER: ratings.explainer_ids, MODALITY: ratings.modalities}
    votes = dict(zip(ratings.questions, ratings.targets().T, strict=True))
    return pd.DataFrame({**columns, **votes, **{name: np.asarray(column) for name, column in values.items()}})


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
    parts.append(shares.assign(table="11", measure="share between"))
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


def inside_control(row: Mapping[str, Any]) -> bool:
    """Return whether a value lies in the range of its control."""
    return bool(row["control low"] <= row["value"] <= row["control high"])


#: Metrics of the paper's Table 10.
RAW_METRICS = ("Faithfulness (ROAD)", "MaxSensitivity (Gaussian)", "Sparseness")
#: Data sets and size of the published ratings, with which the paper's means over all explainers are comparable.
RELEASE = ({"coco", "pascalpart", "monumai", "catsdogscars"}, 20_000)
SHARE = "share of the variance between explainers"
CORRELATIONS = (
    "The rank correlation of metrics with the votes on the same explanations, as the paper's Tables 7 to 9. Several "
    "explanations are of one image, so p-values, which take them for independent, are not given."
)
RAW = "As the paper's Table 10: mean and standard deviation over explanations."
VOTES = (
    "As the paper's Table 11: the mean of the joined votes. The published ratings name explainers by number, of which "
    "the paper gives no list; its rows are in results.csv."
)
HUMAN = (
    "As the paper's Table 2, in which people's saliency stands beside the score of three methods: here the bird's "
    "pixels stand for what people would mark. The paper calls its two rankings consistent; by the numbers it prints "
    "RISE is first of three in one and second in the other."
)
KEY = (
    "Small numbers are 95 % intervals over resampled images with all their explanations. ≈: inside the 95 % range "
    "with the votes shuffled among all explanations. Nothing is corrected for the number of comparisons."
)


def page(frame: pd.DataFrame, run: Run[Any]) -> Page:
    """Declare the page."""
    ratings: RatedExplanations = run.facts["ratings"]
    ours = pick(frame, model=None)
    related, means, shares, human = (pick(ours, table=table) for table in ("8", "10, 11", "11", "2"))
    sections = [
        Section("Metrics and votes", CORRELATIONS, [correlation_table(related)]),
        Section("Metrics by explainer", RAW, [raw_table(means)]),
        Section("Votes by explainer", VOTES, [vote_table(means, shares, ratings)]),
    ]
    findings = [*metric_findings(related), share_finding(shares)]
    if len(human):
        sections.append(Section("Score and marked pixels", HUMAN, [human_table(means)]))
        findings.append(human_finding(human.iloc[0], len(names(means, EXPLAINER)) - 1))
    title = "PASTA-score: votes and other measures"
    return study_page(title, said(*findings), sections, ratings.simulated, answers=answers(related, human))


STUDY = Study("pasta-metrics", collect, page)


def correlation_table(related: pd.DataFrame) -> Table:
    """Return metrics (rows) against questions (columns)."""
    cells = in_cells(pick(related, measure="SCC"), small=["interval"])
    cells["mark"] = ["≈" if inside_control(row) else "" for row in cells.to_dict("records")]
    note = "Spearman's correlation of metric and votes. Pearson's is in results.csv."
    return Table("Metrics and votes", note, cells, ["metric"], ["question"], key=KEY)


def raw_table(means: pd.DataFrame) -> Table:
    """Return the mean of each metric (column) by explainer (row)."""
    return Table(
        "Metrics by explainer",
        "Mean ± standard deviation over explanations.",
        arrange(in_cells(means, small=["deviation"]), explainer=names(means, EXPLAINER), measure=RAW_METRICS),
        [EXPLAINER],
        ["measure"],
        controls=CONTROLS,
        key="–: not defined, as for a method whose maps do not depend on the image.",
    )


def vote_table(means: pd.DataFrame, shares: pd.DataFrame, ratings: RatedExplanations) -> Table:
    """Return the mean votes by explainer (row) and question (column), and the share of variance between explainers."""
    votes = in_cells(means[means["measure"].isin(list(QUESTIONS))].assign(question=means["measure"]), number)
    parts = [votes]
    if set(ratings.datasets.tolist()) == RELEASE[0] and len(ratings) >= RELEASE[1] and not ratings.simulated:
        printed = pick(paper_table("text"), measure="vote", question=names(votes, "question"))
        parts.append(in_cells(printed, number).assign(explainer="paper, all"))
    controls = [f"shuffled: to {number(high)}" for high in shares["control high"]]
    parts.append(in_cells(shares, number).assign(explainer=SHARE, small=controls))
    return Table(
        "Votes by explainer",
        "Mean of the joined votes, 1 to 5.",
        pd.concat(parts),
        [EXPLAINER],
        ["question"],
        labels={name: f"{name} {'↓' if question.low_is_good else '↑'}" for name, question in QUESTIONS.items()},
        controls=CONTROLS,
        key="Small numbers are 95 % intervals over images; of the last row, the end of the 95 % range with the votes "
        "shuffled among all explanations.",
    )


def human_table(means: pd.DataFrame) -> Table:
    """Return the distance of maps to the marked pixels, the score and the votes by method."""
    heads = {MASK_ERROR: "MAE ↓", SCORER: "PASTA-score ↑", "Q1": "votes, Q1 ↑"}
    methods = [name for name in names(means, EXPLAINER) if name != "all"]
    return Table(
        "Score and marked pixels",
        "Mean absolute difference of the map, in [0, 1], from the bird's mask; mean predicted and given rating.",
        arrange(in_cells(means, number), explainer=methods, measure=list(heads)),
        [EXPLAINER],
        ["measure"],
        labels=heads,
        controls=CONTROLS,
        key="Small numbers are 95 % intervals over images.",
    )


def control_of(row: Mapping[str, Any]) -> Row:
    """Return the range of a statistic with shuffled votes or scores."""
    return {"value": math.nan, "low": row["control low"], "high": row["control high"]}


def answers(related: pd.DataFrame, human: pd.DataFrame) -> list[Finding]:
    """Return one short line on the metrics, and one on the pixels that people would mark."""
    rows = pick(related, measure="SCC").dropna(subset=["value"])
    answers = []
    if len(rows):
        outside = rows[[not inside_control(row) for row in rows.to_dict("records")]]
        most = rows.loc[rows["value"].abs().idxmax()]
        text = f"{outside['metric'].nunique()} of {rows['metric'].nunique()} beyond chance on some question, most "
        answers.append(
            Finding(f"{text}{most['metric']} on {most['question']} (SCC {number(most['value'])})", "Metrics")
        )
    for row in human.dropna(subset=["value"]).to_dict("records"):
        # The smaller the error of a map, the higher its score should be.
        verdict = (
            "not distinguishable from chance" if inside_control(row) else "yes" if row["value"] < 0 else "the opposite"
        )
        answers.append(Finding(f"{verdict} (SCC {number(row['value'])})", "Score agrees with marked pixels"))
    return answers


def metric_findings(related: pd.DataFrame) -> list[Finding]:
    """Say for each metric on which questions it correlates with the votes more than shuffled votes do."""
    rows = pick(related, measure="SCC").dropna(subset=["value"])
    # Compared by its value: the range of the control has the spread of the images.
    rows = rows.assign(low=math.nan, high=math.nan)
    return [
        Finding(compared(group, control_of, "SCC above that with shuffled votes", _with_value), str(metric))
        for metric, group in rows.groupby("metric", sort=False)
    ]


def _with_value(row: Mapping[str, Any]) -> str:
    return f"{row['question']} ({number(row['value'])})"


def share_finding(shares: pd.DataFrame) -> Finding:
    """Say how much of the variance of votes lies between explainers."""
    parts = [
        f"{row['question']} {whole_percent(row['value'])} (to {whole_percent(row['control high'])})"
        for _, row in shares.iterrows()
    ]
    text = f"Share of the variance of votes that lies between explainers (shuffled): {', '.join(parts)}."
    return Finding(text, "Explainers")


def human_finding(row: Mapping[str, Any], n: int) -> Finding:
    """Say whether the score orders methods as the marked pixels do."""
    control = control_of(row)
    chance = f"shuffled scores, 95 % of them {ends(control, number)}"
    value_alone = {**row, "low": math.nan, "high": math.nan}
    relation = "" if math.isnan(row["value"]) else RELATIONS[relation_to(value_alone, control)]
    text = (
        f"SCC over {n} methods of their difference from the marked pixels with their score: {{}}, {relation} {chance}"
    )
    return Finding(sentence(text, row, write=number), "Marked pixels")
