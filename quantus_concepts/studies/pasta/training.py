"""`benchmark pasta` and `pasta train`: scorers that learn from votes, tested on what they never saw, and their uses."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from quantus.metrics.faithfulness.faithfulness_correlation import FaithfulnessCorrelation
from torch import nn

from captum_concepts.attributions.steered_rise import SteeredRISE
from captum_concepts.support.running import device_of, error_text, seeded_generators
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, MapExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.rated_file import PREDICTED
from quantus_concepts.datasets.ratings.raters import N_CLASSES, simulated_ratings
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.functional.statistics.intervals import relation
from quantus_concepts.metrics.faithfulness import Faithfulness
from quantus_concepts.metrics.pasta.pasta_score import PASTAScore
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.pasta.applications.mixture import Mixture, best_explainer, plot_mixture
from quantus_concepts.pasta.applications.perturbations import PERTURBATIONS
from quantus_concepts.pasta.applications.robustness import RobustnessPairs, robustness_pairs
from quantus_concepts.pasta.applications.steering import score_masks
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.overlay import unit_maps
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import scorer_bytes
from quantus_concepts.results.verdicts import ABOVE_ZERO, BELOW_ZERO, NOT_SHOWN, UNKNOWN
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.galleries import GalleryRow, draw_gallery
from quantus_concepts.studies._kit.plots import dots
from quantus_concepts.studies._kit.report import Picture, Section, Table, Verdict, number, three, write_report
from quantus_concepts.studies._kit.results import names, one, pick
from quantus_concepts.studies.attribution.methods import named_methods
from quantus_concepts.studies.attribution.settings import methods_text
from quantus_concepts.studies.pasta.cards import pixels, shown_picture, top_concepts
from quantus_concepts.studies.pasta.material import (
    METHODS,
    Classifier,
    HowToEmbed,
    RatedBirds,
    embedding_settings,
    for_spreadsheets,
    load_embedder,
    load_encoder,
    train_classifier,
    words,
)
from quantus_concepts.studies.pasta.metrics import Measured, measure_methods, metric_sections
from quantus_concepts.studies.pasta.report import (
    paper_table,
    said_section,
    said_verdicts,
    table,
    training_report,
)
from quantus_concepts.studies.pasta.scorers import SCORER, Plan, cached_arrays, plan_of, train_on_ratings
from quantus_concepts.studies.pasta.settings import BenchmarkPasta, Train
from quantus_concepts.studies.pasta.votes import EXPLAINER, IMAGE, explainer_means, vote_differences, vote_means

#: The scorer that was trained on all ratings.
SCORER_FILE = "scorer.safetensors"


def load_material(settings: BenchmarkPasta | Train) -> tuple[RatedExplanations, Embedder, Plan]:
    """Return the ratings, what embeds them, and how scorers are trained and tested."""
    show = settings.progress
    if isinstance(settings, BenchmarkPasta):
        ratings: RatedExplanations = simulated_ratings(
            n_images=settings.n_images,
            n_per_image=settings.n_per_image,
            image_size=settings.image_size,
            seed=settings.seed,
        )
        plan = plan_of(settings, ratings)
        how = HowToEmbed(batch_size=settings.batch_size, display_progressbar=show)
        return ratings, load_embedder(settings.encoder, device=settings.place, **how), plan
    is_labelled = settings.labels != "none"
    ratings = PastaRatings(
        settings.data, datasets=words(settings.datasets) or None, labels=settings.labels if is_labelled else PREDICTED
    )
    embedder = Embedder.from_settings(
        load_encoder(settings.encoder, settings.encoder_weights, settings.encoder_tokenizer, device=settings.place),
        embedding_settings(settings.embedding or []),
        cache=settings.cache,
        batch_size=settings.batch_size,
        display_progressbar=show,
    )
    plan = plan_of(settings, ratings)
    label_names = plan.label_names if is_labelled else None
    training = replace(plan.settings, loss=settings.loss)
    return (
        ratings,
        embedder,
        replace(plan, votes=settings.votes, label_names=label_names, settings=training, control=False),
    )


def run_training(settings: BenchmarkPasta | Train, folder: RunFolder) -> None:
    """Train and test scorers on ratings, and write the report, the scores and the scorer of all ratings."""
    methods = benchmark_methods(settings) if isinstance(settings, BenchmarkPasta) and settings.uses else {}
    ratings, embedder, plan = load_material(settings)
    labels, used = settings.labels if isinstance(settings, Train) else PREDICTED, None
    with folder:
        with warnings_as_notes(folder):
            outcome = train_on_ratings(folder, ratings, embedder, plan, labels)
            means = vote_means(ratings, plan.questions)
            compared = vote_differences(ratings, plan.questions)
            tables = {"vote_differences": compared, "votes": means, "scores": outcome.scores}
            if isinstance(settings, BenchmarkPasta) and settings.uses:
                used = use_score(settings, folder, methods, outcome.scorer, embedder)
                tables |= used.frames
            for name, table in tables.items():
                folder.write(f"{name}.csv", for_spreadsheets(table).to_csv(index=False))
            folder.write(SCORER_FILE, scorer_bytes(outcome.scorer))
        title = f"PASTA-score: training on {ratings.name}"
        if ratings.simulated:
            title = "PASTA-score: does it predict how people rate explanations?"
        scored = pick(outcome.scores, model=SCORER)
        sections = [] if used is None else use_sections(used, scored, ratings)
        report = training_report(
            title,
            outcome.frame,
            outcome.scores,
            outcome.trained,
            ratings,
            plan,
            embedder.encoder,
            first=(
                said_verdicts(means, compared, ratings),
                said_section(means, compared, ratings, plan.questions, plan.votes),
            ),
            more=([] if used is None else use_verdicts(used), sections),
            links=tuple(tables),
        )
        shown = {name.replace("_", " "): str(value) for name, value in embedder.settings.items()}
        write_report(folder, outcome.frame, report, shown | {"encoder": embedder.name, "device": str(plan.device)})


#: Weights of the score in the steered RISE; 0 is RISE itself.
WEIGHTS = (0.0, 0.7, 1.0)
N_STEERED = 4
#: Cells of a side of a mask: images are small.
CELLS = 5
#: Draws of noise for each MaxSensitivity.
N_SAMPLES = 5
#: Explanations on either end of the galleries by score, names of concepts among them, and pixels of a drawing.
N_RANKED, N_NAMED, RANKED_SIZE = 6, 6, 224
CHOICE, AVERAGE = "mixture", "average of explainers"
MEAN_COLUMNS = ["name", "mean", "low", "high", "n", "difference", "difference_low", "difference_high"]


@dataclass(frozen=True)
class Uses:
    """What came of the uses of a score: tables, and pictures of the steered RISE and of perturbed images."""

    question: str
    mixture: Mixture
    faithfulness: pd.DataFrame
    steering: pd.DataFrame
    measured: Measured
    steered: list[GalleryRow]
    light: list[GalleryRow]
    strong: list[GalleryRow]

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """The tables, as files have them."""
        wins = sorted(self.mixture.wins.items(), key=lambda pair: -pair[1])
        return {
            "wins": pd.DataFrame(wins, columns=["explainer", "images"]),
            "faithfulness": self.faithfulness,
            "steering": self.steering,
            "metrics": self.measured.related,
        }


def benchmark_methods(settings: BenchmarkPasta) -> dict[str, Callable[..., Any]]:
    """Build the explainers that the score chooses among, and try chosen ones before anything is trained."""
    methods = named_methods(settings.method_names, n_samples=8, n_steps=16, seed=settings.seed)
    if settings.methods is None:
        return methods
    network, size = SmallResNet(N_CLASSES).eval(), settings.image_size
    image = np.random.default_rng(0).random((1, 3, size, size), dtype=np.float32)
    for name, explain in methods.items():
        try:
            maps = np.asarray(explain(model=network, inputs=image, targets=np.zeros(1, np.int64)))
        except Exception as error:  # a user's function may raise anything
            raise ValueError(
                f"`--methods` names {name}, which does not explain the small network of this study: "
                f"{error_text(error)}. Leave it out."
            ) from error
        if maps.ndim != 4 or maps.shape[0] != 1 or maps.shape[2:] != image.shape[2:]:
            raise ValueError(
                f"Expected {name} of `--methods` to return (N, C, {size}, {size}) for {image.shape} but got "
                f"{maps.shape}."
            )
    return methods


def use_score(
    settings: BenchmarkPasta,
    folder: RunFolder,
    methods: Mapping[str, Callable[..., Any]],
    scorer: Scorer,
    embedder: Embedder,
) -> Uses:
    """Use a scorer for everything the paper uses it for."""
    question, seed, n_masks = scorer.questions[0], settings.seed, settings.n_masks
    # A function of a user's file may change under its name.
    named = methods_text(methods)
    birds = RatedBirds(settings.n_explained, image_size=settings.image_size, seed=seed)
    classifier = train_classifier(
        folder, birds, epochs=settings.classifier_epochs, device=settings.place, progress=settings.progress
    )
    images = classifier.images.numpy()
    folder.note(
        f"The classifier is a small network that classifies {classifier.accuracy:.0%} of {len(images)} birds it has "
        "not seen correctly; its own prediction is explained."
    )
    metric = PASTAScore(scorer, embedder, question=question, class_names=classifier.class_names, disable_warnings=True)
    network = [classifier.model, images]
    maps = cached_arrays(folder, "maps", [network, named, seed], partial(_explain, classifier, methods))
    mixture = best_explainer(
        {name: metric(classifier.model, images, classifier.predicted, values) for name, values in maps.items()},
        question,
    )

    def measure() -> dict[str, np.ndarray]:
        size = birds.image_size**2 // 16
        return subset_correlations(classifier.model, images, classifier.predicted, maps, subset_size=size, seed=seed)

    correlations = cached_arrays(folder, "faithfulness", [network, seed], measure)
    mask_score = score_masks(scorer, embedder, question=question, labels=classifier.class_names)
    rise = SteeredRISE(classifier.model, mask_score)
    key = [network, scorer, embedder.settings, question, n_masks, CELLS, WEIGHTS, seed]
    steered = cached_arrays(
        folder, "steered RISE", key, partial(_steer, classifier, rise, metric, n_masks, seed, settings.place)
    )
    explain = next(iter(methods.values()))
    light, strong = (
        perturbation_rows(
            robustness_pairs(classifier.model, images, classifier.labels, explain, question=change, seed=seed)
        )
        for change in ("Q5", "Q6")
    )
    return Uses(
        question,
        mixture,
        mixture.compare(correlations).reset_index(names="name")[MEAN_COLUMNS],
        steering_means(steered),
        measure_methods(
            folder,
            classifier,
            birds.masks,
            {name: methods[name] for name in (METHODS if settings.methods is None else methods)},
            scorer,
            embedder,
            named=named,
            n_masks=n_masks,
            n_samples=N_SAMPLES,
            seed=seed,
            progress=settings.progress,
        ),
        _steered_rows(classifier, steered),
        light,
        strong,
    )


def _explain(classifier: Classifier, methods: Mapping[str, Callable[..., Any]]) -> dict[str, np.ndarray]:
    images = classifier.images.numpy()
    return {
        name: explain(model=classifier.model, inputs=images, targets=classifier.predicted)
        for name, explain in methods.items()
    }


def _steer(
    classifier: Classifier, rise: SteeredRISE, metric: PASTAScore, n_masks: int, seed: int, device: torch.device
) -> dict[str, np.ndarray]:
    """Explain some images by RISE with growing weight of the score; return maps and their scores, by weight."""
    faithfulness = Faithfulness(pixel_range=(0, 1), disable_warnings=True)
    images = classifier.images[:N_STEERED].to(device)
    targets = torch.as_tensor(classifier.predicted[: len(images)], device=images.device)
    # A map is linear in the weights of its masks: two maps give all others.
    unsteered, steered = (
        rise.attribute(images, targets, lam=weight, n_masks=n_masks, cells=CELLS, seed=seed) for weight in (0.0, 1.0)
    )
    results: dict[str, list[np.ndarray]] = {"maps": [], "score": [], "faithfulness": []}
    for weight in WEIGHTS:
        maps = torch.lerp(unsteered, steered, weight)
        arguments = (classifier.model, images.cpu().numpy(), classifier.predicted[: len(images)], maps.cpu().numpy())
        results["maps"].append(unit_maps(maps[:, 0].cpu()).numpy())
        results["score"].append(np.array(metric(*arguments)))
        results["faithfulness"].append(np.array(faithfulness(*arguments)))
    return {name: np.stack(arrays) for name, arrays in results.items()}


def steering_means(results: Mapping[str, np.ndarray]) -> pd.DataFrame:
    """Return the mean score and faithfulness of the steered explanations, by the weight of the score."""
    measures = ("score", "faithfulness")
    scores = {name: results[name].reshape(-1) for name in measures}
    weights = np.repeat([f"{weight:g}" for weight in WEIGHTS], results["score"].shape[1])
    frame = pd.DataFrame({IMAGE: np.arange(len(weights)), EXPLAINER: weights, **scores})
    means = explainer_means(frame, measures, (-math.inf, math.inf))
    means = means.rename(columns={EXPLAINER: "name", "value": "mean"})
    return means[["measure", "name", "mean", "low", "high", "n"]]


def _steered_rows(classifier: Classifier, results: Mapping[str, np.ndarray]) -> list[GalleryRow]:
    maps, scores = results["maps"], results["score"]
    return [
        GalleryRow(
            classifier.class_names[classifier.predicted[place]],
            [pixels(classifier.images[place]), *maps[:, place]],
            ["", *("" if math.isnan(score) else f"score {score:.2f}" for score in scores[:, place])],
        )
        for place in range(maps.shape[1])
    ]


def perturbation_rows(pairs: RobustnessPairs) -> list[GalleryRow]:
    """Return one pair of each perturbation that was used: image, perturbed, and the explanation of both."""
    rows = []
    for name in (name for name in PERTURBATIONS if name in pairs.names):
        place = pairs.names.index(name)
        before, after = (
            unit_maps(torch.as_tensor(values[place]).float().sum(0)[None])[0].numpy()
            for values in (pairs.explanations, pairs.perturbed_explanations)
        )
        image, perturbed = (pixels(images[place]) for images in (pairs.images, pairs.perturbed))
        rows.append(GalleryRow(f"{name}, {float(pairs.magnitudes[place]):g}", [image, perturbed, before, after]))
    return rows


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
    correlations = {}
    for name, attributions in maps.items():
        summed = attributions.sum(1, keepdims=True)
        # Quantus refuses a whole batch for one constant map.
        rows = np.flatnonzero(np.ptp(summed.reshape(len(summed), -1), axis=1) > 0)
        correlations[name] = np.full(len(images), math.nan)
        if rows.size:
            metric: Any = FaithfulnessCorrelation(
                nr_runs=n_runs, subset_size=subset_size, disable_warnings=True, return_aggregate=False
            )
            # Quantus draws subsets of pixels from NumPy's global generator: the same ones for each explanation.
            with seeded_generators(device_of(model), seed):
                scores = metric(model, images[rows], targets[rows], summed[rows], device=device_of(model))
            correlations[name][rows] = scores
    return correlations


def use_verdicts(used: Uses) -> list[Verdict]:
    """Ask whether the choice by the score is more faithful than a random choice, the average of explainers."""
    rows = used.faithfulness.assign(
        value=used.faithfulness["difference"],
        low=used.faithfulness["difference_low"],
        high=used.faithfulness["difference_high"],
    )
    row = one(rows, name=AVERAGE)
    question = "Is the explainer chosen by score more faithful than the average? (difference)"
    if row is None:
        return []
    words = {"above": ABOVE_ZERO, "at": NOT_SHOWN, "below": BELOW_ZERO, "": UNKNOWN}
    text = words[relation((row["low"], row["high"]), (0.0, 0.0))]
    return [Verdict.of(question, row, write=three, text=text)]


def ranked_rows(scored: pd.DataFrame, ratings: RatedExplanations, question: str) -> dict[str, list[GalleryRow]]:
    """Return the best and the worst explanation of the explainers at either end, the best and the worst first."""
    low_is_good = ratings.asked[question].low_is_good
    ranked = pick(scored, question=question).sort_values("score", ascending=low_is_good, kind="stable")
    ends = {"best": ranked, "worst": ranked[::-1]}
    count = min(N_RANKED, max(1, ranked["explainer"].nunique() // 2))
    return {
        name: [_ranked_row(row, ratings) for row in rows.drop_duplicates("explainer")[:count].to_dict("records")]
        for name, rows in ends.items()
    }


def _ranked_row(row: Mapping[Hashable, Any], ratings: RatedExplanations) -> GalleryRow:
    explanation = ratings.explanations[row["item"]]
    label = f"{row['explainer']}: score {row['score']:.2f}, vote {number(row['vote'])}"
    if isinstance(explanation, MapExplanation):
        longest = max(explanation.image.shape[1:])
        return GalleryRow(label, [pixels(explanation.image), pixels(shown_picture(explanation, longest))])
    if isinstance(explanation, ConceptExplanation):
        concepts = "\n".join(name for name, _ in top_concepts(explanation)[:N_NAMED])
        return GalleryRow(label, [_image_of(ratings, row["item"]), concepts])
    return GalleryRow(label, ["", pixels(shown_picture(explanation, RANKED_SIZE))])


def _image_of(ratings: RatedExplanations, item: int) -> np.ndarray | str:
    """Return the image that a list of concepts explains, which is that of a map; "" if there is no map of it."""
    of_image = (ratings.image_ids == ratings.image_ids[item]) & (ratings.modalities == "map")
    maps = (ratings.explanations[int(place)] for place in np.flatnonzero(of_image)[:1])
    return next((pixels(explanation.image) for explanation in maps if isinstance(explanation, MapExplanation)), "")


def use_sections(used: Uses, scored: pd.DataFrame, ratings: RatedExplanations) -> list[Section]:
    """Return a section for each use of the score."""
    ranked = [
        Picture(
            name,
            draw_gallery(["image", "explanation"], rows, cell=1.4),
            f"Explanations with the {name} score ({used.question}), one of each explainer.",
        )
        for name, rows in ranked_rows(pick(scored, seed=scored["seed"].min()), ratings, used.question).items()
    ]
    faithful = used.faithfulness.assign(value=used.faithfulness["mean"])
    faithful["name"] = faithful["name"].replace({CHOICE: "chosen by the score"})
    bars = pd.concat([faithful.head(2), faithful.iloc[2:].sort_values("value", ascending=False, kind="stable")])
    printed = paper_table("text").set_index("row")["value"]
    chosen = Picture(
        "faithfulness",
        dots(bars, "name", label="faithfulness correlation (higher is better)", percent=False, reference=0)[0],
        "What the choice does to faithfulness: means over images with 95 % intervals. For orientation, the paper on "
        f"its own images: {printed[CHOICE]:.4f} for the choice, {printed[AVERAGE]:.4f} on average.",
    )
    pictures = [
        Picture(name, draw_gallery(["image", "perturbed", "map before", "map after"], rows), caption)
        for name, rows, caption in (
            (
                "light",
                used.light,
                "Light perturbations (Q5): the explanation should stay. Beside each name its magnitude.",
            ),
            ("strong", used.strong, "Strong perturbations that change the prediction (Q6): so should the explanation."),
        )
        if rows
    ]
    columns = ["image", *(f"λ = {name}" for name in names(used.steering, "name"))]
    steered = Picture(
        "steering",
        draw_gallery(columns, used.steered),
        "RISE with growing weight λ of the score: masks are weighted by λ · score + (1 − λ) · class probability, and "
        "λ = 0 is RISE itself. The score is what steers: that it rises says only that steering works.",
    )
    return [
        Section("Best and worst explanations", ranked),
        Section(
            "Choosing the explainer for each image",
            [chosen, Picture("wins", plot_mixture(used.mixture)[0], "How often each explainer has the best score.")],
            [faithfulness_table(faithful)],
        ),
        Section("Steering RISE", [steered]),
        Section("Perturbations", folded=pictures),
        *metric_sections(used.measured),
    ]


def faithfulness_table(faithful: pd.DataFrame) -> Table:
    """Return the mean faithfulness of the choice, of each explainer alone and of their average, and what it gains."""
    ends = {"value": "difference", "low": "difference_low", "high": "difference_high"}
    difference = faithful.assign(**{name: faithful[column] for name, column in ends.items()}, head="choice less this")
    frame = pd.concat([faithful.assign(head="mean"), difference])
    caption = "Small numbers are 95 % intervals over images; the difference is paired."
    title = "Faithfulness of the choice and of each explainer"
    return table("faithfulness-by-explainer", title, frame, "name", "head", caption)
