"""The study of substitutions: from its settings to one tidy frame, a row a number, and a gallery."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import typer
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from captum_concepts._support.files import shorten
from captum_concepts._support.progress import hide_bars
from captum_concepts._support.running import device_of
from captum_concepts.backbones import Backbone
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.heads import fit_logistic
from quantus_concepts.datasets import CUB200, SUB, PaintedBirds, PaintedSubstitutions, SubstitutionSample
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.metrics import score_substitutions, score_vision_language
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.metrics.streaming.rows import mean_row, score_table
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._models.concept_models import Known, Recital
from quantus_concepts.studies._models.loading import KeptImages, painted_birds, sample_loader
from quantus_concepts.studies._models.networks import SMALL_NETWORK, Network, cut_network, load_network
from quantus_concepts.studies._models.subjects import BACKBONE, Recognition, small_backbone
from quantus_concepts.studies._models.training import one_thread
from quantus_concepts.studies.substitution.gallery import Gallery, choose_pairs, read_answers
from quantus_concepts.studies.substitution.models import (
    CURVE,
    EMBEDDING,
    MEMORISER,
    OF,
    ORACLE,
    POST_HOC,
    RANDOM,
    RECITER,
    ROWS,
    SAVED,
    Fitting,
    Rows,
    Training,
    row_name,
    thresholds,
)

SMALL = "small"
#: Defaults of painted birds, and of networks without a size.
PAINTED_SIZE, IMAGE_SIZE = 64, 224
COLUMNS = ["model", "labels", "correlation", "metric", "item_kind", "item"]
COLUMNS += ["value", "low", "high", "n", "undefined", "chance", "seed"]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What is evaluated: painted birds of some seeds and correlations, or with `root` the images of SUB."""

    seeds: range
    correlation: float
    #: Other correlations, of the curve.
    others: tuple[float, ...]
    n_train: int
    n_test: int
    #: Settings of `PaintedBirds`.
    birds: Mapping[str, Any]
    root: Path | None
    cub_root: Path | None
    per_pair: int | None
    image_size: int | None
    backbone: str
    layer: str | None
    weights: str | None
    #: Arguments of `load_network`.
    normalisation: Mapping[str, Any]
    cbm: Path | None
    encoders: tuple[str, ...]
    epochs: int
    random_banks: int
    device: torch.device
    batch_size: int
    progress: bool


def collect(settings: Settings, folder: RunFolder) -> tuple[pd.DataFrame, Gallery | None]:
    """Train and score the models of every seed and correlation; painted birds have a gallery, of the first seed."""
    # An unknown name raises before any work.
    encoders = {name: as_encoder(name, device=settings.device) for name in settings.encoders}
    points = [
        (seed, correlation) for seed in settings.seeds for correlation in (settings.correlation, *settings.others)
    ]
    frames, gallery, n_threads = [], None, torch.get_num_threads()
    for number, (seed, correlation) in enumerate(points):
        if settings.progress:
            with hide_bars():
                typer.echo(f"Seed {seed}, correlation {correlation:g} ({number + 1} of {len(points)})", err=True)
        main = correlation == settings.correlation
        given = {
            name: getattr(settings, name) for name in ("epochs", "batch_size", "random_banks", "device", "progress")
        }
        fitting = Fitting(folder=folder, seed=seed, correlation=correlation, n_threads=n_threads, **given)
        rows = ROWS if main else CURVE
        # On one thread no number depends on how many cores there are.
        with one_thread() if settings.backbone == SMALL else nullcontext():
            point: Published | Painted = (
                Painted(settings, fitting, rows) if settings.root is None else Published(settings, fitting)
            )
            scores = folder.cached(
                f"scores {seed} {correlation:g}", fitting.key, partial(point.scores, encoders if main else {})
            )
            if isinstance(point, Painted) and number == 0:
                gallery = point.gallery()
        parts = scores["model"].str.partition(OF)
        # Single attributes, groups and classes only with the metrics of the page.
        scores = scores[(scores["item"] == "") | scores["metric"].isin(("S+", "S-", "original"))]
        frames.append(scores.assign(model=parts[0], labels=parts[2], correlation=correlation, seed=seed)[COLUMNS])
    return pd.concat(frames, ignore_index=True), gallery


@dataclass
class Painted:
    """Painted birds of one seed and correlation, and the models that are trained on them."""

    settings: Settings
    fitting: Fitting
    rows: Rows

    @cached_property
    def data(self) -> tuple[Training, KeptImages, KeptPairs]:
        """Birds to train on, birds to test on, and those with one attribute replaced."""
        settings = self.settings
        birds: dict[str, Any] = {**settings.birds, "seed": self.fitting.seed, "correlation": self.fitting.correlation}
        birds["image_size"] = settings.image_size or PAINTED_SIZE
        (train,) = painted_birds(
            (birds | {"split": "train"}, 0, settings.n_train), display_progressbar=settings.progress
        )
        test = PaintedBirds(settings.n_test, "test", keep=True, **birds)
        training = Training(train, (train.class_concepts >= 0.5).float(), train.class_concepts)
        return training, KeptImages(test), KeptPairs(PaintedSubstitutions(test, seed=self.fitting.seed))

    @cached_property
    def networks(self) -> dict[tuple[str, str], Any]:
        """The trained networks, by model and labels."""
        return self.fitting.networks(self.data[0], self.rows)

    @cached_property
    def models(self) -> tuple[dict[str, ConceptModel], list[PostHocCBM]]:
        """Concept models of the networks, an oracle and memorisers; and random ones."""
        training, seen, pairs = self.data
        small, train = self.networks[BACKBONE, ""], training.images
        recital = Recital(small.classifier, pairs.class_concepts)
        models, random = self.fitting.models(training, small_backbone(small), recital, self.rows, self.networks)
        recognition, concepts, classes = pairs.recognition(seen)
        head = fit_logistic(train.concept_labels, train.labels, len(train.class_names))
        reciter = models.pop(RECITER)
        for name, values in ((ORACLE, concepts), (MEMORISER, pairs.class_concepts[classes])):
            model = BottleneckCBM(recognition, Known(values), head, activation=None)
            models[name] = model.eval().to(self.fitting.device)
        return models | {RECITER: reciter}, random

    def scores(self, encoders: Mapping[str, Encoder]) -> pd.DataFrame:
        """Score all models."""
        _, seen, data = self.data
        models, random = self.models
        pairs = _loader(data, self.settings.batch_size)
        scores = _score(models, random, pairs, sample_loader(seen, self.settings.batch_size), self.settings.progress)
        # The class of a concept embedding model does not follow from its values: it is the network's own.
        own = {row_name(*key): network for key, network in self.networks.items() if key[0] == EMBEDDING}
        scores = scores[~(scores["model"].isin(list(own)) & (scores["metric"] == "class kept"))]
        kept = [_class_kept(name, network, pairs) for name, network in own.items()]
        return pd.concat([scores, *kept, *_score_encoders(encoders, pairs, self.settings.progress)], ignore_index=True)

    def gallery(self) -> Gallery:
        """Return some substitutions and what models say of them, as the cache has them."""
        folder, key = self.fitting.folder, self.fitting.key

        def shown() -> dict[str, Tensor]:
            pairs = self.data[2]
            rows = choose_pairs(pairs, self.fitting.seed)
            return {"images": torch.stack([pairs.before[rows], pairs.after[rows]], dim=1)}

        def answers() -> pd.DataFrame:
            models, pairs = self.models[0], self.data[2]
            return read_answers(models, pairs, choose_pairs(pairs, self.fitting.seed))

        return Gallery(
            folder.cached("gallery images", key, shown)["images"], folder.cached("gallery answers", key, answers)
        )


class KeptPairs(Dataset[SubstitutionSample]):
    """Substitutions whose images are painted once and kept as 8-bit numbers."""

    added: Tensor
    removed: Tensor
    pairs: Tensor
    labels: Tensor
    concept_labels: Tensor
    concept_labels_before: Tensor
    class_concepts: Tensor
    class_names: list[str]
    concept_names: list[str]

    def __init__(self, data: PaintedSubstitutions) -> None:
        samples = [data[index] for index in range(len(data))]
        self.after, self.before = (
            (torch.stack(images) * 255).round().to(torch.uint8)
            for images in ([sample.image for sample in samples], [sample.before for sample in samples])
        )
        self.points = torch.stack([sample.points for sample in samples])
        for name in KeptPairs.__annotations__:
            setattr(self, name, getattr(data, name))

    def __len__(self) -> int:
        return len(self.added)

    def __getitem__(self, index: int) -> SubstitutionSample:
        """Return one sample; raises IndexError past the end."""
        after, before = (images[index].float() / 255 for images in (self.after, self.before))
        label = int(self.labels[index])
        return SubstitutionSample(after, label, self.concept_labels[index], self.points[index], before)

    def recognition(self, seen: KeptImages) -> tuple[Recognition, Tensor, Tensor]:
        """Return a network that recognises all images, and their concepts and classes."""
        images = torch.cat([self.after, self.before, seen.images]).float() / 255
        concepts = torch.cat([self.concept_labels, self.concept_labels_before, seen.concept_labels])
        return Recognition(list(images)), concepts, torch.cat([self.labels, self.labels, seen.labels])


@dataclass
class Published:
    """The images of SUB, and the models that are fitted to the training images of CUB; T_A and T on its test images."""

    settings: Settings
    fitting: Fitting

    def scores(self, encoders: Mapping[str, Encoder]) -> pd.DataFrame:
        """Score all models."""
        settings = self.settings
        small = settings.backbone == SMALL
        network = (
            SMALL_NETWORK if small else load_network(settings.backbone, settings.weights, **settings.normalisation)
        )
        size = settings.image_size or network.image_size or IMAGE_SIZE
        transform = default_transform(size, network.mode, network.mean, network.std)
        train, test = (
            CUB200(settings.cub_root or "", split, transform=transform, class_concepts="majority")
            for split in ("train", "test")
        )
        sub = SUB(settings.root or "", cub=train, transform=transform, per_pair=settings.per_pair)
        self.fitting.folder.note(f"Data: {sub!r}, at {size} px ({network.mode}). Backbone: {network.source}.")
        models, random = self._trained(train) if small else self._fitted(network, train, sub[0].image)
        pairs, seen = _loader(sub, settings.batch_size), sample_loader(test, settings.batch_size)
        scores = _score(models, random, pairs, seen, settings.progress)
        if not encoders:
            return scores
        # Without the transform: encoders prepare images themselves.
        plain = SUB(settings.root or "", cub=train, per_pair=settings.per_pair)
        tables = _score_encoders(encoders, _loader(plain, settings.batch_size), settings.progress)
        return pd.concat([scores, *tables], ignore_index=True)

    def _trained(self, train: CUB200) -> tuple[dict[str, ConceptModel], list[PostHocCBM]]:
        """Train the networks of painted birds on the images of CUB, and make the same models of them."""
        # Six thousand small images of 8 bits fit into memory.
        training = Training.of_marks(train, KeptImages(train))
        networks = self.fitting.networks(training, ROWS)
        small = networks[BACKBONE, ""]
        recital = Recital(small.classifier, training.class_concepts)
        return self.fitting.models(training, small_backbone(small), recital, ROWS, networks)

    def _fitted(
        self, network: Network, train: CUB200, image: Tensor
    ) -> tuple[dict[str, ConceptModel], list[PostHocCBM]]:
        """Fit post-hoc models of a network that is used as it is, and read the one that was saved."""
        settings = self.settings
        network.module.to(settings.device)
        backbone, maps = cut_network(network, settings.layer, image[None].to(settings.device))
        self.fitting.folder.note(f"Maps of the backbone: {maps}.")
        # Before anything is fitted: a file that cannot be used raises now.
        saved = {} if settings.cbm is None else {SAVED: saved_model(settings.cbm, backbone, network, train)}
        rows = {POST_HOC: ROWS[POST_HOC]}
        models, random = self.fitting.models(Training.of_marks(train, train), backbone, None, rows, {})
        return models | saved, random


def saved_model(path: Path, backbone: Backbone, network: Network, train: ConceptDataset) -> PostHocCBM:
    """Read a post-hoc model of the backbone, whose values are margins of CUB's concepts."""
    try:
        model = PostHocCBM.load(path, backbone).eval()
    except ValueError as error:
        reason, _, of_backbone = str(error).partition(" Give that one")
        remedy = " Name it with --backbone, --layer and --weights." if of_backbone else ""
        raise ValueError(f"Argument `--cbm` names what cannot be used. {reason}{remedy}") from error
    if model.bank.names != train.concept_names:
        unknown = [name for name in model.bank.names if name not in set(train.concept_names)]
        text = f", {shorten(', '.join(unknown))} among them" if unknown else " in another"
        raise ValueError(
            f"Expected argument `--cbm` to have the {len(train.concept_names)} concepts of CUB200 in their order but "
            f"it has {len(model.bank)}{text}. Fit it with `concept_names` of CUB200."
        )
    with torch.no_grad():
        n_classes = model.head(model.bank.cavs.new_zeros(1, len(model.bank))).shape[1]
    normalisation = None if network.mean is None or network.std is None else (network.mean, network.std)
    of_model = model.normalisation or normalisation
    for what, expected, actual, remedy in (
        ("classes of CUB200 in its head", len(train.class_names), n_classes, "Fit the head to CUB200."),
        ("for values, above 0 where a concept is", "margin", model.values, "Make it with `values='margin'`."),
        ("for mean and deviation of images", normalisation, of_model, "Give its own with --mean and --std."),
    ):
        if actual != expected:
            raise ValueError(f"Expected argument `--cbm` to have {expected} {what}, but it has {actual}. {remedy}")
    return model


def _loader(data: Dataset[Any], batch_size: int) -> DataLoader[Any]:
    # In the order of the files of SUB, of which one row group is in memory at a time.
    return DataLoader(data, batch_size, generator=torch.Generator())


def _score(
    models: Mapping[str, ConceptModel],
    random: list[PostHocCBM],
    pairs: DataLoader[Any],
    seen: DataLoader[Any],
    progress: bool,
) -> pd.DataFrame:
    arguments: dict[str, Any] = {"threshold": thresholds([*models]), "controls": {RANDOM: random}, "seen": seen}
    return score_substitutions(models, pairs, **arguments, display_progressbar=progress)


def _score_encoders(encoders: Mapping[str, Encoder], images: DataLoader[Any], progress: bool) -> list[pd.DataFrame]:
    """Score vision-language models, with "none" among the options and without."""
    tables = {
        name: score_vision_language(encoder, images, display_progressbar=progress) for name, encoder in encoders.items()
    }
    return [table.assign(model=f"{name}{OF}" + table["set"]) for name, table in tables.items()]


@torch.no_grad()
def _class_kept(name: str, network: nn.Module, pairs: DataLoader[Any]) -> pd.DataFrame:
    """Return how often the class that a network of concepts and classes predicts stays."""
    data: Any = pairs.dataset
    n_concepts, device = len(data.concept_names), device_of(network)
    classes = [
        torch.stack([network(images.to(device))[:, n_concepts:].argmax(1) for images in (batch.before, batch.image)])
        for batch in pairs
    ]
    before, after = torch.cat(classes, 1).cpu()
    return score_table([mean_row(before == after, data.pairs, model=name, metric="class kept")])
