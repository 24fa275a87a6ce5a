"""What a PASTA-score is used for, mixtures, steering, robustness, and what the page shows of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from quantus.metrics.faithfulness.faithfulness_correlation import FaithfulnessCorrelation
from torch import Tensor, nn

from captum_concepts._support.fingerprints import fingerprint_of
from captum_concepts._support.running import device_of, seeded_generators
from captum_concepts.attributions.methods import CONTROL_METHODS, PAPER_METHODS, build_methods
from captum_concepts.attributions.steered_rise import SteeredRISE
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional.intervals import t_interval
from quantus_concepts.functional.overlay import unit_maps
from quantus_concepts.metrics.faithfulness.faithfulness import Faithfulness
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.metrics.pasta.rated_metrics import Explainer, metric_values
from quantus_concepts.pasta.applications.correlations import rating_correlations
from quantus_concepts.pasta.applications.mixture import Mixture, best_explainer, plot_mixture
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs, robustness_pairs
from quantus_concepts.pasta.applications.steering import score_masks
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies._kit.charts import Bars, Chart
from quantus_concepts.studies._kit.findings import (
    Finding,
    count_range,
    minus,
    number,
    relation_to,
    said,
    sentence,
    three,
    trend,
    with_interval,
)
from quantus_concepts.studies._kit.page import Section
from quantus_concepts.studies._kit.pictures import PictureGrid, PictureRow, shown_picture, top_concepts
from quantus_concepts.studies._kit.results import names, one, pick
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.evaluation import UNBOUNDED, SplitResult, identity_of_ratings, kept_arrays
from quantus_concepts.studies.pasta.findings import in_cells, paper_table
from quantus_concepts.studies.pasta.options import CORRELATED_THRESHOLDS, N_CLASSIFIER, SIMULATED, PastaOptions
from quantus_concepts.studies.pasta.preparing import Classifier, RatedBirds, train_classifier


def subset_correlations(
    model: nn.Module,
    images: np.ndarray,
    targets: np.ndarray,
    maps: Mapping[str, np.ndarray],
    *,
    subset_size: int,
    n_runs: int = 50,
    seed: int = 0,
) -> dict[str, np.ndarray]:
    """Return the correlation of each image (N,) under each explanation (N, C, H, W); NaN where Quantus refuses one."""
    found = {}
    for name, each in maps.items():
        summed = each.sum(1, keepdims=True)
        # It refuses a whole batch for one constant map.
        rows = np.flatnonzero(np.ptp(summed.reshape(len(summed), -1), axis=1) > 0)
        found[name] = np.full(len(images), math.nan)
        if rows.size:
            metric: Any = FaithfulnessCorrelation(
                nr_runs=n_runs, subset_size=subset_size, disable_warnings=True, return_aggregate=False
            )
            # It draws subsets of pixels from NumPy's global generator: the same ones for each explanation.
            with seeded_generators(device_of(model), seed):
                found[name][rows] = metric(model, images[rows], targets[rows], summed[rows], device=device_of(model))
    return found


#: Weights of the score in the steered RISE; 0 is RISE itself.
WEIGHTS = (0.0, 0.7, 1.0)
N_STEERED = 4
#: Cells of a side of a mask: images are small.
CELLS = 5
#: Explanations on either end of the sheet of explanations by score.
N_RANKED = 6
#: Longer side of a drawing among them, concepts named of a list, and what stands for a picture that there is not.
RANKED_SIZE, N_NAMED = 224, 2
_NO_PICTURE = np.ones((1, 1, 3))
#: Explanations whose correlation with metrics is looked at.
N_CORRELATED = 120
MEAN_COLUMNS = ["name", "mean", "low", "high", "n", "difference", "difference_low", "difference_high"]


def apply_score(
    run: Run[PastaOptions], result: SplitResult, ratings: RatedExplanations, embedder: Embedder, birds: RatedBirds
) -> None:
    """Use a scorer for everything the paper uses it for; frames and facts of the run hold what is found."""
    options, scorer = run.options, result.training.scorer
    question = scorer.questions[0]
    of = train_classifier(
        birds,
        epochs=options.classifier_epochs,
        device=options.torch_device(),
        progress=options.progress,
        keep=run.kept,
    )
    run.note(
        f"The classifier is a small network that classifies {of.accuracy:.0%} of {len(of.images)} birds it has not "
        f"seen correctly; its own prediction is explained. It has seen the rated birds (the first {N_CLASSIFIER:,}), "
        "on which votes are correlated with metrics."
    )
    metric = PASTAScore(scorer, embedder, question=question, class_names=of.class_names, disable_warnings=True)
    images = of.images.numpy()
    network = {"network": [of.model, images]}
    maps = kept_arrays(run.kept, "maps", network | {"seed": options.seed}, partial(_explained, of, options.seed))
    mixture = best_explainer(
        {name: metric(of.model, images, of.predicted, values) for name, values in maps.items()}, question
    )
    wins = sorted(mixture.wins.items(), key=lambda pair: -pair[1])
    faithful = partial(_faithful, of, maps, options)
    correlations = kept_arrays(run.kept, "faithfulness", network | {"seed": options.seed}, faithful)
    compared = mixture.compare(correlations).reset_index(names="name")[MEAN_COLUMNS]
    run.facts |= {"mixture": mixture, "question": question}
    run.frames["wins"] = pd.DataFrame(wins, columns=["explainer", "images"])
    run.frames["faithfulness"] = compared
    masked = Remembered(score_masks(scorer, embedder, question=question, labels=of.class_names))
    settings: dict[str, Any] = {**network, "scorer": scorer}
    settings |= {"embedder": embedder.settings, "question": question}
    settings |= {"masks": options.n_masks, "cells": CELLS, "weights": WEIGHTS, "seed": options.seed}
    steering = partial(_steered, of, SteeredRISE(of.model, masked), metric, options)
    _steer(run, of, kept_arrays(run.kept, "steered RISE", settings, steering))
    explain = build_methods(["Grad-CAM"])["Grad-CAM"]
    for name, asked in (("light", "Q5"), ("strong", "Q6")):
        pairs = robustness_pairs(of.model, images, of.labels, explain, question=asked, seed=options.seed)
        run.facts[name] = _perturbed(pairs)
    run.facts["ranked"] = ranked_rows(result, ratings, question)
    run.frames["correlations"] = _correlated(run, of, network, ratings, scorer.questions)


def _explained(of: Classifier, seed: int) -> dict[str, np.ndarray]:
    images = of.images.numpy()
    methods = build_methods([*PAPER_METHODS, *CONTROL_METHODS], n_samples=8, n_steps=16, seed=seed)
    return {name: explain(model=of.model, inputs=images, targets=of.predicted) for name, explain in methods.items()}


def _faithful(of: Classifier, maps: Mapping[str, np.ndarray], options: PastaOptions) -> dict[str, np.ndarray]:
    size = options.image_size**2 // 16
    return subset_correlations(of.model, of.images.numpy(), of.predicted, maps, subset_size=size, seed=options.seed)


class Remembered:
    """A function that computes nothing twice: every weight of the steered RISE asks it of the same masks."""

    def __init__(self, function: Callable[..., Tensor]) -> None:
        self.function = function
        self.found: dict[str, Tensor] = {}

    def __call__(self, images: Tensor, masks: Tensor, targets: Tensor | None) -> Tensor:
        """Return what the function gives."""
        known = fingerprint_of(images, masks, targets)
        if known not in self.found:
            self.found[known] = self.function(images, masks, targets)
        return self.found[known]


def _steered(of: Classifier, steered: SteeredRISE, metric: PASTAScore, options: PastaOptions) -> dict[str, np.ndarray]:
    """Explain some images by RISE with growing weight of the score; return maps and what they score, by weight."""
    faithfulness = Faithfulness(pixel_range=(0, 1), disable_warnings=True)
    shown = of.images[:N_STEERED].to(options.torch_device())
    targets = torch.as_tensor(of.predicted[: len(shown)], device=shown.device)
    found: dict[str, list[np.ndarray]] = {"maps": [], "score": [], "faithfulness": []}
    for weight in WEIGHTS:
        maps = steered.attribute(shown, targets, lam=weight, n_masks=options.n_masks, cells=CELLS, seed=options.seed)
        arguments = (of.model, shown.cpu().numpy(), of.predicted[: len(shown)], maps.cpu().numpy())
        found["maps"].append(unit_maps(maps[:, 0].cpu()).numpy())
        found["score"].append(np.array(metric(*arguments)))
        found["faithfulness"].append(np.array(faithfulness(*arguments)))
    return {name: np.stack(each) for name, each in found.items()}


def _steer(run: Run[PastaOptions], of: Classifier, found: Mapping[str, np.ndarray]) -> None:
    """Say what the steered RISE gave; frames and facts of the run hold it."""
    rows = []
    for place, weight in enumerate(WEIGHTS):
        for measure in ("score", "faithfulness"):
            values = found[measure][place]
            known = values[~np.isnan(values)]
            mean = float(known.mean()) if known.size else math.nan
            rows.append((measure, f"{weight:g}", mean, *t_interval(known, UNBOUNDED), known.size))
    frame = run.facts["steering"] = pd.DataFrame(rows, columns=["measure", *MEAN_COLUMNS[:5]])
    run.frames["steering"] = frame[frame["measure"] == "score"].reindex(columns=MEAN_COLUMNS)
    mark = f"\n{SIMULATED}" if run.facts["ratings"].simulated else ""
    maps, scores = found["maps"], found["score"]
    run.facts["steered"] = [
        PictureRow(
            f"{of.class_names[of.predicted[place]]}{mark}",
            _picture(of.images[place]),
            [each[place] for each in maps],
            None,
            ["" if math.isnan(each[place]) else f"score {each[place]:.2f}" for each in scores],
        )
        for place in range(maps.shape[1])
    ]


def _perturbed(pairs: RobustnessPairs) -> list[PictureRow]:
    """Return one pair of each perturbation that was used."""
    rows = []
    for name in PERTURBATIONS:
        if name not in pairs.names:
            continue
        place = pairs.names.index(name)
        before, after = (
            unit_maps(torch.as_tensor(values[place]).float().sum(0)[None])[0].numpy()
            for values in (pairs.explanations, pairs.perturbed_explanations)
        )
        image, perturbed = (_picture(each[place]) for each in (pairs.images, pairs.perturbed))
        label = f"{name.replace(' ', chr(10))}\n{float(pairs.magnitudes[place]):g}"
        rows.append(PictureRow(label, image, [perturbed, before, after], None, ["", "", ""]))
    return rows


def ranked_rows(result: SplitResult, ratings: RatedExplanations, question: str) -> dict[str, list[PictureRow]]:
    """Return the explanations never seen in training that score best and worst, the best and the worst first."""
    column = result.training.scorer.questions.index(question)
    scores, votes = result.scores[:, column], result.targets[:, column]
    order = np.argsort(-scores)
    order = order[::-1] if question == "Q5" else order
    n = max(1, min(N_RANKED, len(order) // 2))

    def row_of(place: int) -> PictureRow:
        row = int(result.split.test[place])
        explanation = ratings.explanations[row]
        vote = "–" if math.isnan(votes[place]) else f"{votes[place]:g}"
        label = f"{ratings.explainer_ids[row]}\nscore {scores[place]:.2f}, vote {vote}"
        if isinstance(explanation, ConceptExplanation):
            first = "\n".join(name for name, _ in top_concepts(explanation)[:N_NAMED])
            return PictureRow(f"{label}\n{first}", _NO_PICTURE, [_NO_PICTURE], None, [""])
        size = max(explanation.image.shape[:2]) if isinstance(explanation, MapExplanation) else RANKED_SIZE
        image = _picture(explanation.image) if isinstance(explanation, MapExplanation) else _NO_PICTURE
        return PictureRow(label, image, [_picture(shown_picture(explanation, size))], None, [""])

    return {"best": [row_of(place) for place in order[:n]], "worst": [row_of(place) for place in order[::-1][:n]]}


def _correlated(
    run: Run[PastaOptions],
    of: Classifier,
    network: Mapping[str, Any],
    ratings: RatedExplanations,
    questions: tuple[str, ...],
) -> pd.DataFrame:
    """Return how votes go with metrics, on some of the rated maps."""
    seed = run.options.seed
    maps = np.flatnonzero(ratings.modalities == "map")
    rng = np.random.default_rng([seed, 7])
    some = ratings.select(np.sort(rng.permutation(maps)[:N_CORRELATED]))
    # Under one name: the metrics of a map do not depend on who made it, and are those of many maps at once.
    alike = replace(some, explainer_ids=np.full(len(some), "any"))
    measure = partial(metric_values, alike, {"any": Explainer(of.model)}, thresholds=CORRELATED_THRESHOLDS, seed=seed)
    settings = {**network, "ratings": identity_of_ratings(some), "seed": seed}
    values = kept_arrays(run.kept, "metrics", settings, measure)
    columns = [ratings.questions.index(question) for question in questions]
    return pd.DataFrame(rating_correlations(values, some.targets()[:, columns], questions))


def _picture(image: Tensor) -> np.ndarray:
    """Return an image (3, H, W) as (H, W, 3)."""
    return image.detach().cpu().clamp(0, 1).permute(1, 2, 0).numpy()


#: Rows of the comparison of the mixture, as `Mixture.compare` calls the first two.
CHOICE, AVERAGE = "mixture", "average of explainers"
CHOSEN = {CHOICE: "chosen by the score", AVERAGE: "average of the explainers"}
FAITHFULNESS = "faithfulness correlation"
#: A correlation weaker than this is called weak.
WEAK = 0.4
PERTURBED = ["perturbed", "explanation before", "explanation after"]


def application_sections(
    facts: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], simulated: bool
) -> list[Section]:
    """Return the sections of what the score was used for; what it was not used for has none."""
    sections = []
    if "ranked" in facts:
        charts = [
            Chart(
                name,
                f"The explanations with the {name} score ({facts['question']}).",
                PictureGrid(name, ["explanation"], rows),
            )
            for name, rows in facts["ranked"].items()
        ]
        sections.append(Section("What scores best and worst", charts=charts, beside=True))
    if "mixture" in facts:
        faithful = frames["faithfulness"]
        figure, ax = plot_mixture(facts["mixture"])
        scorer = f", scorer of {SIMULATED}" if simulated else ""
        ax.set_xlabel((ax.get_xlabel() + scorer).replace(", scorer", ",\nscorer"))
        caption = "What the choice does to faithfulness: means over images with 95 % intervals."
        charts = [
            Chart("wins", "How often each explainer is chosen.", figure),
            Chart("faithfulness", caption, faithfulness_bars(faithful, scorer)),
        ]
        heading = "Choosing the explainer for each image"
        sections.append(Section(heading, charts=charts, tables=[faithfulness_table(faithful)]))
    if "steering" in facts:
        columns = [f"λ = {weight}" for weight in names(facts["steering"], "name")]
        caption = "Images explained by RISE with growing weight λ of the score."
        chart = Chart("steering", caption, PictureGrid("steering", columns, facts["steered"]), wide=True)
        sections.append(Section("Steering RISE", tables=[steering_table(facts["steering"])], charts=[chart]))
    captions = {
        "light": "Light perturbations, as question Q5 asks of them: the explanation should stay.",
        "strong": "Strong perturbations that change the prediction, as question Q6 asks of them: the explanation "
        "should change with it.",
    }
    pairs = [
        Chart(name, f"{caption} Below each name its magnitude.", PictureGrid(name, PERTURBED, facts[name]))
        for name, caption in captions.items()
        if facts.get(name)
    ]
    if pairs:
        sections.append(Section("Perturbations", charts=pairs, beside=True))
    if "correlations" in frames:
        sections.append(Section("Do other metrics say the same?", tables=[correlation_table(frames["correlations"])]))
    return sections


def faithfulness_table(faithful: pd.DataFrame) -> Table:
    """Return the mean faithfulness of the choice, of each explainer alone and of their average."""
    label = faithful["name"].replace({CHOICE: CHOSEN[CHOICE]})
    means = in_cells(faithful.assign(value=faithful["mean"], head="mean"), small=["interval"])
    ends = {"low": faithful["difference_low"], "high": faithful["difference_high"]}
    away = in_cells(faithful.assign(value=faithful["difference"], **ends), small=["interval"])
    away["text"] = ["" if math.isnan(value) else minus(f"{value:+z.3f}") for value in away["value"]]
    counts = faithful.assign(head="images", text=faithful["n"].astype(str), small="")
    parts = [means, away.assign(head="choice minus this"), counts]
    printed = paper_table("text").set_index("row")["value"]
    return Table(
        "Faithfulness",
        f"Mean {FAITHFULNESS} over images; higher is better.",
        pd.concat([part.assign(label=label) for part in parts]),
        ["label"],
        ["head"],
        heads={"choice minus this": "paired"},
        key="Small numbers are 95 % intervals over images. For orientation, the paper on its own images: "
        f"{printed[CHOICE]:.4f} for the choice, {printed[AVERAGE]:.4f} on average.",
    )


def steering_table(steering: pd.DataFrame) -> Table:
    """Return mean score and faithfulness of steered explanations by the weight of the score."""
    shown = steering.assign(value=steering["mean"], row="mean " + steering["measure"], head="λ = " + steering["name"])
    return Table(
        "Steering",
        "RISE whose masks are weighted by λ · score + (1 − λ) · class probability; λ = 0 is RISE itself.",
        in_cells(shown, small=["interval"]),
        ["row"],
        ["head"],
        key="Small numbers are 95 % intervals over images. The score is what steers: that it rises says only that "
        "steering works.",
    )


def correlation_table(related: pd.DataFrame) -> Table:
    """Return the correlations of votes with metrics, as the paper's Tables 7 to 9, with its own next to them."""
    printed = pd.concat([paper_table(table) for table in (7, 8, 9)])
    parts = []
    for metric, rows in related.sort_values("question", kind="stable").groupby("metric", sort=False):
        group = f"{metric}, {count_range(rows['n'])}"
        for name, measure in (("Spearman", "SCC"), ("Pearson", "PCC")):
            ours = rows.assign(value=rows[name.lower()], p=rows[f"{name.lower()}_p"], label=name, model="")
            asked = pick(printed, row=metric, measure=measure, question=list(rows["question"]))
            beside = asked.assign(label=f"paper, {name}")
            parts += [each.assign(group=group) for each in (ours, beside) if len(each)]
    shown = in_cells(pd.concat(parts), number, small=[])
    shown["small"] = ["" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}" for p in shown["p"]]
    return Table(
        "Votes and metrics",
        "Correlation of the joined votes with what metrics say of the same explanations.",
        shown,
        ["group", "label"],
        ["question"],
        heads={"Q5": "low is good"},
        key="Small numbers are p-values, which take explanations for independent; several of one image or of one "
        "explainer are not. For orientation: Kazmierczak et al., Tables 7, 8 and 9: image-level attributions of the "
        "PASTA data set.",
    )


def faithfulness_bars(faithful: pd.DataFrame, scorer: str) -> Bars:
    """Declare the mean faithfulness of the choice, of their average, and of each explainer alone."""
    first = faithful["name"].isin([CHOICE, AVERAGE])
    rows = pd.concat([faithful[first], faithful[~first].sort_values("mean", ascending=False, kind="stable")])
    shown = rows.assign(value=rows["mean"], name=rows["name"].replace(CHOSEN))
    label = f"{FAITHFULNESS} (higher is better){scorer}"
    return Bars(frame=shown, groups="name", label=label, reference=(0, ""), flat=True, points=True, gap_after=2)


def application_answers(facts: Mapping[str, Any], frames: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return one short line on the choice among explainers, with what it is held against."""
    if "mixture" not in facts:
        return []
    frame = frames["faithfulness"]
    chosen, average = (one(frame.assign(value=frame["mean"]), name=name) for name in (CHOICE, AVERAGE))
    if chosen is None or average is None:
        return []
    relation = relation_to(_difference(average), 0.0)
    verdict = {"above": "yes", "below": "no, less than their average"}.get(relation, "not distinguishable from average")
    numbers = f"{three(chosen['value'])}, average of the explainers {three(average['value'])}"
    return [Finding(f"{verdict} ({FAITHFULNESS} {numbers})", "Chooses more faithful explanations")]


def _difference(row: pd.Series) -> dict[str, float]:
    """Return by how much the choice is above a row, image by image."""
    return {"value": row["difference"], "low": row["difference_low"], "high": row["difference_high"]}


def application_findings(
    facts: Mapping[str, Any], frames: Mapping[str, pd.DataFrame], simulated: bool
) -> list[Finding]:
    """Return what can be said of the uses."""
    texts = []
    if "mixture" in facts:
        texts += [("Mixture", said_of_wins(facts["mixture"])), ("Mixture", said_of_choice(frames["faithfulness"]))]
    if "steering" in facts:
        texts += [("Steering", text) for text in said_of_steering(facts["steering"])]
    if "correlations" in frames:
        texts.append(("Other metrics", said_of_metrics(frames["correlations"], simulated)))
    return said(*(Finding(text, topic) for topic, text in texts))


def said_of_wins(mixture: Mixture) -> str:
    """Say which explainer is chosen most often."""
    wins, total = mixture.wins, sum(mixture.wins.values()) + mixture.tied
    tied = f" {mixture.tied} images have several explainers with the best score." if mixture.tied else ""
    if not any(wins.values()):
        return tied.strip()
    name, count = max(wins.items(), key=lambda pair: pair[1])
    never = sum(not won for won in wins.values())
    return (
        f"{name} has the best score ({mixture.question}) most often, for {count} of {total} images; {never} of "
        f"{len(wins)} explainers never have it alone.{tied}"
    )


def said_of_choice(faithful: pd.DataFrame) -> str:
    """Say what the choice does to faithfulness, against the average and against the best explainer for all images."""
    known = faithful.assign(value=faithful["mean"]).dropna(subset=["value"])
    chosen = one(known, name=CHOICE)
    if chosen is None:
        return ""
    parts = [sentence(f"The chosen explanations have a mean {FAITHFULNESS} of {{}}", chosen, write=three)]
    alone = known[~known["name"].isin([CHOICE, AVERAGE])].sort_values("value", kind="stable").tail(1)
    for _, row in pd.concat([pick(known, name=AVERAGE), alone]).iterrows():
        name = "the average of the explainers" if row["name"] == AVERAGE else f"{row['name']} (the most faithful alone)"
        apart = _difference(row)
        parts.append(
            sentence(f"The choice minus {name} is {{}}", apart, {"no difference": _NOTHING}, write=three)
            or f"{name[0].upper()}{name[1:]} has {with_interval(row, three)}."
        )
    return " ".join(parts)


_NOTHING = {"value": 0.0, "low": 0.0, "high": 0.0}


def said_of_steering(steering: pd.DataFrame) -> list[str]:
    """Say whether score and faithfulness change with the weight of the score."""
    made = []
    for measure, rows in steering.assign(value=steering["mean"]).groupby("measure", sort=False):
        first, last = rows.iloc[0], rows.iloc[-1]
        if len(rows) > 1 and not math.isnan(first["value"] + last["value"]):
            weights = f"λ = {first['name']} to {last['name']}, {first['n']} images"
            made.append(f"The mean {measure} goes {trend(first, last, three)} ({weights}).")
    return made


def said_of_metrics(related: pd.DataFrame, simulated: bool) -> str:
    """Say which metric goes most closely with the votes."""
    found = related.dropna(subset=["spearman"])
    if found.empty:
        return ""
    most = found.loc[found["spearman"].abs().idxmax()]
    raters = "the simulated raters' votes" if simulated else "the votes"
    weak = ", which is weak" if abs(most["spearman"]) < WEAK else ""
    return (
        f"{most['metric']} goes most closely with {raters}: Spearman {number(most['spearman'])} on {most['question']} "
        f"(n = {most['n']}){weak}."
    )
