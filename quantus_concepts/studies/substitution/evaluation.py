"""The concept models of one seed and one correlation, and what they say of birds with one attribute replaced."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts.backbones import Backbone
from captum_concepts.bank import ConceptBank
from captum_concepts.bottleneck import BottleneckCBM
from captum_concepts.cbm import PostHocCBM
from captum_concepts.embedding import Embeddings, embed
from captum_concepts.heads import fit_logistic
from captum_concepts.progress import part
from captum_concepts.running import device_of
from quantus_concepts.datasets import PaintedBirds, PaintedSubstitutions
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.metrics import score_vision_language
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.metrics.score_rows import Row, mean_row, score_table
from quantus_concepts.pasta.encoder import Encoder
from quantus_concepts.studies.charts import png
from quantus_concepts.studies.concepts.evaluation import bank_model, random_models
from quantus_concepts.studies.concepts.oracle import OracleModel
from quantus_concepts.studies.kept import Kept
from quantus_concepts.studies.loading import KeptImages, painted_birds, sample_loader
from quantus_concepts.studies.run import Run, warnings_as_notes
from quantus_concepts.studies.substitution.concept_models import (
    EmbeddingNetwork,
    JointNetwork,
    Recital,
    SeparateNetworks,
    joint_loss,
)
from quantus_concepts.studies.substitution.gallery import draw_gallery
from quantus_concepts.studies.substitution.names import (
    CLASS_HARD,
    CLASS_SOFT,
    EMBEDDING,
    IMAGE_HARD,
    IMAGE_SOFT,
    INDEPENDENT,
    JOINT,
    MEMORISER,
    OF,
    ORACLE,
    POST_HOC,
    RANDOM,
    RECITER,
    SEPARATE,
    row_name,
)
from quantus_concepts.studies.substitution.options import PAINTED_SIZE, SubstitutionOptions
from quantus_concepts.studies.substitution.painted_pairs import KeptPairs
from quantus_concepts.studies.substitution.score_ranges import in_order, scored
from quantus_concepts.studies.training import KeptSamples, SmallResNet, fit, one_thread, run_together

BATCH = 32
BACKBONE = "backbone"
#: How far soft labels of an image lean on its class: what is usual of it is said for sure, what is not "probably", as
#: people are asked in CUB-200.
LEANING = 0.25
#: Shares of the time of a seed.
DRAWING, TRAINING, SCORING = 1, 4, 1

Rows = Mapping[str, Sequence[str]]


class _StoppedError(Exception):
    """Another training failed, whose error is told."""


@dataclass
class Painted:
    """Birds to train on, birds to test on, and those with one attribute replaced."""

    train: KeptImages
    seen: KeptImages
    pairs: KeptPairs

    @property
    def own(self) -> Tensor:
        """The concepts (K, L) of most training images of each class."""
        return (self.train.class_concepts >= 0.5).float()

    def targets(self, labels: str) -> Tensor:
        """Return the concept labels (N, L) of the training images."""
        of_image, classes = self.train.concept_labels, self.train.labels
        share = self.train.class_concepts[classes]
        return {
            CLASS_HARD: self.own[classes],
            CLASS_SOFT: share,
            IMAGE_HARD: of_image,
            IMAGE_SOFT: torch.lerp(of_image, share, LEANING),
        }[labels]

    def digest(self) -> str:
        """Return what tells training images and labels apart."""
        parts = (self.train.images, self.train.labels, self.train.concept_labels)
        return hashlib.sha256(b"".join(each.numpy().tobytes() for each in parts)).hexdigest()


def paint(options: SubstitutionOptions, seed: int, correlation: float) -> Painted:
    """Paint the birds of a seed and a correlation."""
    settings = {
        "image_size": options.image_size or PAINTED_SIZE,
        "n_classes": options.n_classes,
        "n_concepts": options.n_concepts,
        "deviation": options.deviation,
        "correlation": correlation,
        "seed": seed,
    }
    (train,) = painted_birds((settings | {"split": "train"}, 0, options.n_train), display_progressbar=options.progress)
    birds = PaintedBirds(options.n_test, "test", keep=True, **settings)  # type: ignore[arg-type]
    return Painted(train, KeptImages(birds), KeptPairs(PaintedSubstitutions(birds, seed=seed)))


def score_point(
    run: Run[SubstitutionOptions],
    encoders: Mapping[str, Encoder],
    seed: int,
    correlation: float,
    rows: Rows,
    *,
    first: bool,
) -> pd.DataFrame:
    """Train and score the models of one seed and correlation."""
    options = run.options
    said = f"seed {seed}, correlation {correlation:g}"
    with part(f"{said}: painting birds", DRAWING):
        data = paint(options, seed, correlation)
    # What is done on each core, and so every number, does not depend on how many there are.
    n_threads = torch.get_num_threads()
    with one_thread():
        with part(f"{said}: training", TRAINING):
            networks = trained(run, data, rows, seed, n_threads)
        with part(f"{said}: scoring", SCORING):
            models, random = concept_models(run, said, data, rows, networks, seed)
            seen, threshold = sample_loader(data.seen, options.batch_size), thresholds(models)
            scores = scored(run, said, models, random, data.pairs, seen, threshold)
            pairs = in_order(data.pairs, options.batch_size)
            # A concept embedding model reads the class off what no values tell.
            mixed = {row_name(EMBEDDING, labels): networks[EMBEDDING, labels] for labels in rows.get(EMBEDDING, ())}
            scores = scores[~(scores["model"].isin(list(mixed)) & (scores["metric"] == "class kept"))]
            kept = (score_table([_class_kept(*each, pairs)]) for each in mixed.items())
            scores = pd.concat([scores, *kept, *ask(encoders, pairs, show=run.progress)], ignore_index=True)
    if first:
        run.settings |= data.pairs.described()
        run.facts["gallery"] = png(draw_gallery(models, data.pairs, threshold, seed))
    return scores


def ask(encoders: Mapping[str, Encoder], images: DataLoader[Any], *, show: bool) -> list[pd.DataFrame]:
    """Ask vision-language models which option of the touched group they see; with "none" among them and without."""
    asked = {
        name: score_vision_language(encoder, images, display_progressbar=show) for name, encoder in encoders.items()
    }
    return [table.assign(model=f"{name}{OF}" + table["set"]) for name, table in asked.items()]


@torch.no_grad()
def _class_kept(name: str, network: nn.Module, pairs: DataLoader[Any]) -> Row:
    """Return how often the class that a network of concepts and classes predicts stays."""
    n_concepts, device = len(pairs.dataset.concept_names), device_of(network)  # type: ignore[attr-defined]
    kept = [
        torch.stack([network(images.to(device))[:, n_concepts:].argmax(1) for images in (batch.before, batch.image)])
        for batch in pairs
    ]
    before, after = torch.cat(kept, 1).cpu()
    return mean_row(before == after, clusters=pairs.dataset.pairs, model=name, metric="class kept")  # type: ignore[attr-defined]


def thresholds(models: Iterable[str]) -> dict[str, float]:
    """Return from which value on a model says that a concept is present: margins have a sign, all others are shares."""
    return {name: 0.0 if name.startswith((POST_HOC, RANDOM)) else 0.5 for name in (*models, RANDOM)}


def trained(
    run: Run[SubstitutionOptions], data: Painted, rows: Rows, seed: int, n_threads: int
) -> dict[tuple[str, str], nn.Module]:
    """Train a backbone on the classes, and the networks of all rows but those made of it; several at a time."""
    device = run.options.torch_device()
    n_classes, n_concepts = data.train.class_concepts.shape
    makers: dict[str, Callable[[], nn.Module]] = {
        BACKBONE: lambda: SmallResNet(n_classes, seed=seed),
        INDEPENDENT: lambda: SmallResNet(n_concepts, seed=seed),
        JOINT: lambda: JointNetwork(n_concepts, n_classes, seed),
        SEPARATE: lambda: SeparateNetworks(n_concepts, seed),
        EMBEDDING: lambda: EmbeddingNetwork(n_concepts, n_classes, seed),
    }
    wanted = [(BACKBONE, ""), *((model, each) for model, of in rows.items() if model in makers for each in of)]
    networks = {key: makers[key[0]]().to(device) for key in wanted}
    images = data.train.images.contiguous(memory_format=torch.channels_last)
    settings: dict[str, Any] = {"epochs": run.options.epochs, "batch_size": BATCH, "seed": seed}
    depends = {"data": data.digest(), "device": str(device), "shape": [n_classes, n_concepts], **settings}

    def task(model: str, labels: str) -> Callable[[Event, int], None]:
        network = networks[model, labels]
        both = model in (JOINT, EMBEDDING)
        targets = data.targets(labels) if labels else data.train.labels
        targets = torch.cat([targets, data.train.labels[:, None].float()], 1) if both else targets

        def work(stop: Event, position: int) -> None:
            def made(files: Kept) -> Mapping[str, Tensor]:
                done = fit(
                    network,
                    KeptSamples(images, targets),
                    loss=joint_loss if both else None,
                    checkpoint=files,
                    description=f"training {row_name(model, labels)}",
                    position=position,
                    stop=stop,
                    display_progressbar=run.progress,
                    **settings,
                )
                if not done:
                    raise _StoppedError
                return network.state_dict()

            try:
                state = run.kept(row_name(model, labels), {"model": model, "labels": labels, **depends}, made)
            except _StoppedError:
                return
            network.load_state_dict(state)
            # As training leaves it: convolutions of another memory format round otherwise.
            network.eval().to(memory_format=torch.channels_last)

        return work

    run_together([task(*key) for key in wanted], n_threads)
    return networks


def concept_models(
    run: Run[SubstitutionOptions],
    said: str,
    data: Painted,
    rows: Rows,
    networks: Mapping[tuple[str, str], Any],
    seed: int,
) -> tuple[dict[str, ConceptModel], list[PostHocCBM]]:
    """Make concept models of the networks, and those that are known to see all, to recite, or to know nothing."""
    options, train, names, n_classes = run.options, data.train, data.train.concept_names, len(data.own)
    device = options.torch_device()
    small = networks[BACKBONE, ""]
    backbone = Backbone(small.features, "mean", None, small.channels)
    embedded = embed(backbone, sample_loader(train, options.batch_size))
    models: dict[str, ConceptModel] = {}
    for model, of in rows.items():
        for labels in of:
            targets = data.targets(labels)
            network: Any = networks.get((model, labels))
            if model == POST_HOC:
                labelled = embedded._replace(concept_labels=targets)
                models |= post_hoc(run, said, backbone, labelled, labels, train, seed)
                continue
            # Where it is not the network's own: from the labels it was trained with to the classes. A concept
            # embedding model has none that takes values alone.
            head = network.classes if model == JOINT else fit_logistic(targets, train.labels, n_classes)
            bottleneck = BottleneckCBM(network.features, network.classifier, head).eval().to(device)
            models[row_name(model, labels)] = bottleneck
    known = data.pairs.known(data.seen)
    head = fit_logistic(train.concept_labels, train.labels, n_classes)
    models[ORACLE] = OracleModel(known, head).eval().to(device)
    models[MEMORISER] = OracleModel(known.recited(data.pairs.class_concepts), head).eval().to(device)
    recital = Recital(small.classifier, data.pairs.class_concepts)
    models[RECITER] = BottleneckCBM(backbone, recital, recital.head(), activation=None).eval().to(device)
    random = random_models(backbone, embedded, names, n_classes, "margin", options.random_banks, seed)
    return models, random


def post_hoc(
    run: Run[SubstitutionOptions],
    said: str,
    backbone: Backbone,
    train: Embeddings,
    labels: str,
    data: ConceptDataset,
    seed: int,
) -> dict[str, ConceptModel]:
    """Return the post-hoc CBM of a backbone and one kind of labels by its name, or note why there is none."""
    targets = train.concept_labels
    same = [] if targets is None else torch.nonzero(targets.amin(0) == targets.amax(0)).flatten().tolist()
    if same:
        run.note(
            f"There is no {POST_HOC} of labels {labels}: with them {len(same)} concepts are the same in all images, "
            f"{data.concept_names[same[0]]} among them, and have no direction."
        )
        return {}
    with warnings_as_notes() as warned:
        bank = ConceptBank.fit(train.features, targets, data.concept_names, seed=seed)
    # How many; the concepts' names after it are a long list.
    run.note(*(f"{said}, {POST_HOC}, labels {labels}: {text.partition(': ')[0].rstrip('.')}." for text in warned))
    return {row_name(POST_HOC, labels): bank_model(backbone, bank, train, len(data.class_names), "margin")}
