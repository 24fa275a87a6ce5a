"""The study of substitutions: painted birds or the images of SUB, to one tidy frame, a row a number."""

from __future__ import annotations

import math
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

from captum_concepts.backbones import Backbone
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.heads import fit_logistic
from captum_concepts.support.files import shorten
from captum_concepts.support.running import device_of, hide_bars
from quantus_concepts.datasets import CUB200, SUB, PaintedBirds, PaintedSubstitutions
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.metrics.streaming.substitutions import substitution_tables
from quantus_concepts.metrics.streaming.table import SCORE_COLUMNS as OF_TABLES
from quantus_concepts.metrics.streaming.table import mean_row, score_table
from quantus_concepts.painted.images import KeptImages, painted_birds, sample_loader
from quantus_concepts.painted.subject import BACKBONE, small_backbone
from quantus_concepts.painted.training import one_thread
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._kit.options import SMALL
from quantus_concepts.studies._models.concept_models import Known, Recital
from quantus_concepts.studies._models.named_networks import Network, cut_network, load_network
from quantus_concepts.studies._models.networks import SMALL_NETWORK
from quantus_concepts.studies.substitution import kinds
from quantus_concepts.studies.substitution.gallery import Gallery, choose_shown_pairs, read_answers
from quantus_concepts.studies.substitution.kept_pairs import KeptPairs
from quantus_concepts.studies.substitution.models import Models, Point, Training
from quantus_concepts.studies.substitution.settings import PAINTED_SIZE, Substitution
from quantus_concepts.studies.substitution.vision_language import score_vision_language

#: Default size of images for networks without one.
IMAGE_SIZE = 224
#: Metrics whose scores of images are compared.
COMPARED = ("S+", "S-")
SUBSTITUTION_COLUMNS = ["model", "labels", "what", "correlation", "metric", "item_kind", "item"]
SUBSTITUTION_COLUMNS += ["value", "low", "high", "n", "undefined", "chance", "seed"]


def collect(settings: Substitution, folder: RunFolder) -> tuple[pd.DataFrame, pd.DataFrame, Gallery | None]:
    """Train and score the models of every seed and correlation, the first of which is that of the main table.

    Painted birds have a gallery, of the first seed. Beside the numbers the scores of images of the main table are
    returned.
    """
    kind = Painted if settings.data == "painted" else Published
    seeds, correlations = range(settings.seed, settings.seed + settings.seeds), settings.all_correlations
    points = [(seed, correlation) for seed in seeds for correlation in correlations]
    frames, of_images, gallery, n_threads = [], [], None, torch.get_num_threads()
    for number, (seed, correlation) in enumerate(points):
        main = correlation == correlations[0]
        rows = kinds.ROWS if main else kinds.CURVE
        point = kind(
            folder=folder, settings=settings, seed=seed, correlation=correlation, rows=rows, n_threads=n_threads
        )
        if settings.progress:
            with hide_bars():
                typer.echo(f"Seed {seed}, correlation {correlation:g} ({number + 1} of {len(points)})", err=True)
        # An unknown name raises before any work.
        loaded = {name: as_encoder(name, device=point.device) for name in settings.encoder_names if main}
        # On one thread no number depends on how many cores there are.
        with one_thread() if point.trains else nullcontext():
            scores = folder.cached(f"scores {seed} {correlation:g}", point.key, partial(point.scores, loaded))
            if isinstance(point, Painted) and number == 0:
                gallery = point.gallery()
        single = scores["image"].notna()
        if main:
            of_images.append(scores.loc[single, ["model", "metric", "image", "pair", "value"]].assign(seed=seed))
        scores = scores[~single]
        parts = scores["model"].str.partition(kinds.OF)
        # Single attributes, groups and classes only with the metrics of the page.
        scores = scores[(scores["item"] == "") | scores["metric"].isin(("S+", "S-", "original"))]
        frames.append(
            scores.assign(model=parts[0], labels=parts[2], correlation=correlation, seed=seed)[SUBSTITUTION_COLUMNS]
        )
    return pd.concat(frames, ignore_index=True), pd.concat(of_images, ignore_index=True), gallery


@dataclass(kw_only=True)
class Painted(Point):
    """Painted birds, and the models that are trained on them."""

    trains = True

    @cached_property
    def data(self) -> tuple[Training, KeptImages, KeptPairs]:
        """Birds to train on, birds to test on, and those with one attribute replaced."""
        drawn, settings = self.settings.birds, self.settings
        birds = drawn.birds(settings.image_size or PAINTED_SIZE, self.seed) | {"correlation": self.correlation}
        (train,) = painted_birds((birds | {"split": "train"}, 0, drawn.n_train), display_progressbar=settings.progress)
        test = PaintedBirds(drawn.n_test, "test", keep=True, **birds)
        training = Training(train, (train.class_concepts >= 0.5).float(), train.class_concepts)
        return training, KeptImages(test), KeptPairs(PaintedSubstitutions(test, seed=self.seed))

    @cached_property
    def models(self) -> tuple[Models, dict[tuple[str, str], Any]]:
        """Concept models of trained networks, an oracle and memorisers, and random ones; and the networks."""
        training, seen, pairs = self.data
        networks = self.train(training)
        small, train, class_concepts = networks[BACKBONE, ""], training.images, pairs.data.class_concepts
        models, random = self.fit(training, small_backbone(small), Recital(small.classifier, class_concepts), networks)
        recognition, concepts, classes = pairs.recognition(seen)
        head = fit_logistic(train.concept_labels, train.labels, len(train.class_names))
        reciter = models.pop(kinds.RECITER)
        for name, values in ((kinds.ORACLE, concepts), (kinds.MEMORISER, class_concepts[classes])):
            model = BottleneckCBM(recognition, Known(values), head, activation=None)
            models[name] = model.eval().to(self.device)
        return (models | {kinds.RECITER: reciter}, random), networks

    def scores(self, encoders: Mapping[str, Encoder]) -> pd.DataFrame:
        """Score all models."""
        (models, networks), settings = self.models, self.settings
        pairs, seen = _loader(self.data[2], settings.batch_size), sample_loader(self.data[1], settings.batch_size)
        scores = _score(models, pairs, seen, settings.progress)
        # The class of a concept embedding model does not follow from its values: it is the network's own.
        own = {kinds.row_name(*key): network for key, network in networks.items() if key[0] == kinds.EMBEDDING}
        scores = scores[~(scores["model"].isin(list(own)) & (scores["metric"] == "class kept"))]
        kept = [_class_kept(name, network, pairs) for name, network in own.items()]
        return pd.concat([scores, *kept, *_score_encoders(encoders, pairs, settings.progress)], ignore_index=True)

    def gallery(self) -> Gallery:
        """Return some substitutions and what models say of them, from the cache where it has them."""

        def images() -> dict[str, Tensor]:
            samples = [self.data[2].samples[row] for row in choose_shown_pairs(self.data[2], self.seed)]
            return {"images": torch.stack([torch.stack([sample.before, sample.image]) for sample in samples])}

        def answers() -> pd.DataFrame:
            return read_answers(self.models[0][0], self.data[2], choose_shown_pairs(self.data[2], self.seed))

        shown = self.folder.cached("gallery images", self.key, images)["images"]
        return Gallery(shown, self.folder.cached("gallery answers", self.key, answers))


@dataclass(kw_only=True)
class Published(Point):
    """The images of SUB, and models that are fitted to the training images of CUB; T_A and T on its test images."""

    @property
    def trains(self) -> bool:
        """Whether small networks are trained."""
        return self.settings.network == SMALL

    @cached_property
    def network(self) -> Network:
        """The network that is cut, with its normalisation."""
        settings = self.settings
        if self.trains:
            return SMALL_NETWORK
        return load_network(settings.network, settings.weights, **settings.normalised)

    @property
    def key(self) -> dict[str, object]:
        """What results depend on; the weights too: a file of code may read others than before."""
        return {**super().key, "weights": fingerprint_of(self.network.module)}

    def scores(self, encoders: Mapping[str, Encoder]) -> pd.DataFrame:
        """Score all models."""
        network, settings = self.network, self.settings
        size = settings.image_size or network.image_size or IMAGE_SIZE
        transform = default_transform(size, network.mode, network.mean, network.std)
        train, test = (
            CUB200(settings.cub_root or "", split, transform=transform, class_concepts="majority")
            for split in ("train", "test")
        )
        sub = SUB(settings.root or "", cub=train, transform=transform, per_pair=settings.per_pair)
        self.folder.note(f"Data: {sub!r}, at {size} px ({network.mode}). Backbone: {network.source}.")
        if self.trains:
            # Six thousand small images of 8 bits fit into memory.
            training = Training.of_marks(train, KeptImages(train))
            networks = self.train(training)
            small = networks[BACKBONE, ""]
            recital = Recital(small.classifier, training.class_concepts)
            models = self.fit(training, small_backbone(small), recital, networks)
        else:
            models = self._fitted(network, train, sub[0].image)
        seen = sample_loader(test, settings.batch_size)
        scores = _score(models, _loader(sub, settings.batch_size), seen, settings.progress)
        if not encoders:
            return scores
        # Without the transform: encoders prepare images themselves.
        plain = SUB(settings.root or "", cub=train, per_pair=settings.per_pair)
        tables = _score_encoders(encoders, _loader(plain, settings.batch_size), settings.progress)
        return pd.concat([scores, *tables], ignore_index=True)

    def _fitted(self, network: Network, train: CUB200, image: Tensor) -> Models:
        """Fit post-hoc models of a network that is used as it is, and read the one that was saved."""
        network.module.to(self.device)
        backbone, maps = cut_network(network, self.settings.layer, image[None].to(self.device))
        self.folder.note(f"Maps of the backbone: {maps}.")
        # Before anything is fitted: a file that cannot be used raises now.
        cbm = self.settings.cbm
        saved = {} if cbm is None else {kinds.SAVED: saved_model(cbm, backbone, network, train)}
        self.rows = {kinds.POST_HOC: self.rows[kinds.POST_HOC]}
        models, random = self.fit(Training.of_marks(train, train), backbone, None, {})
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


def _score(models: Models, pairs: DataLoader[Any], seen: DataLoader[Any], progress: bool) -> pd.DataFrame:
    """Return the numbers of all models, and below them S+ and S- of each image, which have an `image` and a `pair`."""
    named, random = models
    arguments: dict[str, Any] = {"threshold": kinds.thresholds(named), "controls": {kinds.RANDOM: random}, "seen": seen}
    table, images = substitution_tables(named, pairs, **arguments, display_progressbar=progress)
    numbers, scores = table(), images()
    scores = scores[scores["metric"].isin(COMPARED)]
    # Counts stay whole numbers and texts texts in the columns of both.
    filled = pd.DataFrame(OF_TABLES, index=scores.index)
    names = ["model", "metric", "value", "image", "pair"]
    own = filled.drop(columns=names[:3]).join(scores[names]).astype(numbers.dtypes)
    return pd.concat([numbers.assign(image=math.nan, pair=math.nan), own], ignore_index=True)


def _score_encoders(encoders: Mapping[str, Encoder], images: DataLoader[Any], progress: bool) -> list[pd.DataFrame]:
    """Score vision-language models, with "none" among the options and without."""
    scored = {name: score_vision_language(one, images, display_progressbar=progress) for name, one in encoders.items()}
    return [table.assign(model=f"{name}{kinds.OF}" + table["set"]) for name, table in scored.items()]


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
