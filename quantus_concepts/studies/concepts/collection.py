"""All numbers of the study, from the images of every seed: its own models, further backbones, the user's models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pandas as pd
from matplotlib.figure import Figure
from torch import Tensor

from captum_concepts.bank.directions import list_first
from captum_concepts.support.running import progress
from quantus_concepts.metrics import UsualMetrics, score_predictions
from quantus_concepts.metrics.concepts.names import DIRECTIONS
from quantus_concepts.metrics.host.model import random_banks_of
from quantus_concepts.metrics.streaming.api import predict_with_controls
from quantus_concepts.painted.images import sample_loader
from quantus_concepts.painted.subject import POST_HOC, RANDOM
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._models.named_networks import Network
from quantus_concepts.studies.concepts.comparisons import compared_rows
from quantus_concepts.studies.concepts.data import BenchmarkData, learnable_concepts, load_concept_data, same_images
from quantus_concepts.studies.concepts.models import Loaded, OwnModel, data_for, normalisation_text
from quantus_concepts.studies.concepts.scores import RANDOM_MAPS, TOPS, pack_rows, swap_rows, unpack_rows
from quantus_concepts.studies.concepts.seed import Seed
from quantus_concepts.studies.concepts.settings import Concepts

#: The page on which concepts are corrected.
EXPLORER = "explore.html"
#: What a model of the user's is called in results.csv, with its name.
OWN = "concept model"
COLLECTED_COLUMNS = ["model", "what", "metric", "explanation", "baseline", "set", "l", "alpha", "item_kind", "item"]
COLLECTED_COLUMNS += ["value", "n", "undefined", "chance", "low", "high", "seed"]


@dataclass(frozen=True)
class Scored:
    """The numbers of one model; in both tables it has the name of the study's own."""

    #: What the model is called in results.csv.
    kind: str
    frame: pd.DataFrame
    #: Scores of images, classes and, in each random bank, concepts (`Seed.observed`).
    observed: pd.DataFrame

    @classmethod
    def of_seed(cls, kind: str, frame: pd.DataFrame, observed: pd.DataFrame, seed: int) -> Scored:
        """Return the numbers of one seed, in the columns of results.csv."""
        return cls(kind, _columns(frame.assign(seed=seed)), observed.assign(seed=seed))


@dataclass(frozen=True)
class Collected:
    """All numbers by model, and what the page says of the images of the first seed."""

    #: By the name of the network or of the user's model; the first has all tables, and is compared with the others.
    models: Mapping[str, Scored]
    gallery: Figure
    images: str
    by_class: bool
    #: Whether seeds share their images.
    same_images: bool

    @property
    def name(self) -> str:
        """The name of the first model."""
        return next(iter(self.models))

    @property
    def main(self) -> Scored:
        """The numbers of the first model."""
        return self.models[self.name]

    @property
    def rivals(self) -> dict[str, Scored]:
        """The numbers of all other models."""
        return {name: scored for name, scored in self.models.items() if name != self.name}

    @property
    def results(self) -> pd.DataFrame:
        """The rows of all models; rivals and their baselines have names of their own."""
        parts = [self.main.frame]
        for name, rival in self.rivals.items():
            models = rival.frame["model"].replace(POST_HOC, rival.kind) + f", {name}"
            parts.append(rival.frame.assign(model=models))
        return pd.concat(parts, ignore_index=True)


def collect(
    settings: Concepts, folder: RunFolder, loaded: Loaded, tell: Callable[[Scored, bool, str], None]
) -> Collected:
    """Build and score the models of every seed: of the first network all, of others the post-hoc model.

    After each seed but the last, `tell` gets the numbers of the first model so far, whether concepts are of classes,
    and how far it is.
    """
    (network, *others), own_models = loaded
    main = "the small network" if network is None else network.source
    scored: dict[str, list[Scored]] = {}
    swapped: dict[int, dict[str, Tensor]] = {}
    described, gallery, by_class = "", Figure(), False
    seeds, drawn_data = settings.all_seeds, load_concept_data(settings, network)
    bar = progress(drawn_data, folder.command, total=len(seeds), unit="seed", show=settings.progress)
    for number, (seed, data) in enumerate(zip(seeds, bar, strict=True)):
        folder.note(*data.notes)
        ours = Seed(folder, settings, network, data, seed)
        parts = {main: Scored.of_seed(POST_HOC, ours.table(), ours.observed(), seed)}
        if len(seeds) > 1:
            swapped[seed] = ours.swap_parts()
        drawn = number if network is None else 0
        for other in others:
            if other is not None:
                parts[other.source] = score_backbone(folder, settings, other, drawn, seed)
        for own in own_models:
            parts[own.name] = score_own(folder, settings, own, drawn, seed, data)
        for name, part in parts.items():
            scored.setdefault(name, []).append(part)
        if number + 1 < len(seeds):
            tell(joined_parts(scored[main]), data.by_class, f"{main}, {number + 1} of {len(seeds)} seeds")
        if number == 0:
            counts = f"{len(data.train)} training and {len(data.test)} test images"
            described = f"{data.title}: {counts}, {data.n_classes} classes, {len(data.concept_names)} concepts"
            gallery, by_class = ours.gallery(), data.by_class
            if settings.explore:
                folder.write(EXPLORER, ours.explorer())
    models = {name: joined_parts(parts) for name, parts in scored.items()}
    if not (swap := swap_rows(swapped)).empty:
        frame = pd.concat([models[main].frame, _columns(swap)], ignore_index=True)
        models[main] = replace(models[main], frame=frame)
    return Collected(models, gallery, described, by_class, same_images=settings.same_images)


def joined_parts(parts: Sequence[Scored]) -> Scored:
    """Return the numbers of several seeds in one."""
    frames, observed = ([getattr(part, name) for part in parts] for name in ("frame", "observed"))
    return Scored(parts[0].kind, pd.concat(frames, ignore_index=True), pd.concat(observed, ignore_index=True))


def score_backbone(folder: RunFolder, settings: Concepts, network: Network, seed_number: int, seed: int) -> Scored:
    """Score the post-hoc model of another backbone on the images of a seed."""
    data = replace(learnable_concepts(settings, same_images(settings, network, seed_number)), has_oracle=False)
    small = replace(settings, interventions=False, sweep=False)
    own = Seed(folder, small, network, data, seed)
    return Scored.of_seed(POST_HOC, own.table(), own.observed(), seed)


def score_own(
    folder: RunFolder, settings: Concepts, own: OwnModel, seed_number: int, seed: int, others: BenchmarkData
) -> Scored:
    """Score a concept model of the user's on the images of a seed; `others` have the concepts of the study's models."""
    data = data_for(settings, own, seed_number)
    folder.note(f"Normalisation for {own.name}: {normalisation_text(data)}.")
    if further := [name for name in data.concept_names if name not in others.concept_names]:
        folder.note(
            f"{own.name} has concepts that the study's models lack: {list_first(further)}. Its numbers "
            "are those of all its concepts, so a difference can come from other concepts; only CGIM correlation is "
            "compared over the shared ones. For a fair comparison give it the same concepts."
        )

    metrics = UsualMetrics(top_l=[top for top in TOPS if top <= len(data.concept_names)])

    def run() -> dict[str, Tensor]:
        banks = random_banks_of(own.model)
        models, _ = predict_with_controls(
            {POST_HOC: own.model},
            sample_loader(data.test, settings.batch_size, settings.readers),
            metrics,
            {RANDOM: banks} if banks else None,
            class_concepts=data.class_concepts,
            truth=data.truth,
            control_stride=max(1, len(data.test) // RANDOM_MAPS),
            display_progressbar=settings.progress,
        )
        return pack_rows(models)

    key: dict[str, object] = {"settings": folder.settings, "device": str(settings.place), "model": own.name}
    key |= {"data": data.fingerprint, "drawn": seed_number, "weights": own.fingerprint}
    rows = unpack_rows(folder.cached(f"model {own.name}", key, run))
    frame = score_predictions(rows, metrics)
    # What a model knows of its directions is about no images.
    frame = frame[frame["metric"] != DIRECTIONS]
    return Scored.of_seed(OWN, frame, compared_rows(score_predictions(rows, metrics, per_image=True)), seed)


def _columns(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of results.csv, with whole numbers in the file."""
    return frame[COLLECTED_COLUMNS].astype({"l": "Int64"})
