"""Concept models on substituted images, painted or of SUB, and pictures of what they say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from captum_concepts._support.progress import part
from captum_concepts._support.running import device_of
from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.heads import fit_logistic
from quantus_concepts.datasets import PaintedBirds, PaintedSubstitutions, SubstitutionSample
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.metrics import score_substitutions, score_vision_language
from quantus_concepts.metrics.host.model import ConceptModel, concept_outputs
from quantus_concepts.metrics.host.rows import Row
from quantus_concepts.metrics.streaming.rows import mean_row, score_table
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.studies._kit.charts import INK, PALETTE, png
from quantus_concepts.studies._kit.run import Kept, Run, warnings_as_notes
from quantus_concepts.studies._models.concept_models import (
    EmbeddingNetwork,
    JointNetwork,
    Known,
    Recital,
    SeparateNetworks,
    joint_loss,
)
from quantus_concepts.studies._models.loading import KeptImages, painted_birds, sample_loader
from quantus_concepts.studies._models.subjects import BACKBONE, Recognition, bank_model, random_models, small_backbone
from quantus_concepts.studies._models.training import (
    KeptSamples,
    SmallResNet,
    fit,
    load_trained,
    one_thread,
    run_together,
)
from quantus_concepts.studies.substitution.options import (
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
    PAINTED_SIZE,
    POST_HOC,
    RANDOM,
    RECITER,
    SEPARATE,
    SubstitutionOptions,
    row_name,
)


def pair_loader(data: Any, batch_size: int) -> DataLoader[Any]:
    """Return batches of images with a substitution."""
    # In the order of the files of SUB, of which one row group is in memory at a time.
    return DataLoader(data, batch_size, generator=torch.Generator())


def score_models(
    run: Run[SubstitutionOptions],
    models: Mapping[str, ConceptModel],
    random: Sequence[ConceptModel],
    pairs: DataLoader[Any],
    seen: DataLoader[Any],
) -> pd.DataFrame:
    """Score models and random ones."""
    arguments: dict[str, Any] = {"threshold": thresholds(models), "controls": {RANDOM: random}, "seen": seen}
    return score_substitutions(models, pairs, **arguments, display_progressbar=run.progress)


BATCH = 32
#: Weight of the class in soft labels of an image: people are surer of concepts that are usual for the class.
LEANING = 0.25
#: Shares of the time of a seed.
DRAWING, TRAINING, SCORING = 1, 4, 1

Rows = Mapping[str, Sequence[str]]
#: Models by name, and random ones.
Models = tuple[dict[str, ConceptModel], list[PostHocCBM]]


class _StoppedError(Exception):
    """Another training failed, whose error is raised."""


@dataclass
class Training:
    """Images to train on, the concepts (K, L) of each class, and the share of its images that have them."""

    images: ConceptDataset
    class_concepts: Tensor
    share: Tensor

    def targets(self, labels: str) -> Tensor:
        """Return the concept labels (N, L) of the images."""
        of_image, classes = self.images.concept_labels, self.images.labels
        share = self.share[classes]
        return {
            CLASS_HARD: self.class_concepts[classes],
            CLASS_SOFT: share,
            IMAGE_HARD: of_image,
            IMAGE_SOFT: torch.lerp(of_image, share, LEANING),
        }[labels]


@dataclass
class Painted:
    """Birds to train on, birds to test on, and those with one attribute replaced."""

    train: Training
    seen: KeptImages
    pairs: KeptPairs


def paint(options: SubstitutionOptions, seed: int, correlation: float) -> Painted:
    """Paint the birds of a seed and a correlation."""
    settings = options.birds(options.image_size or PAINTED_SIZE, seed) | {"correlation": correlation}
    (train,) = painted_birds((settings | {"split": "train"}, 0, options.n_train), display_progressbar=options.progress)
    birds = PaintedBirds(options.n_test, "test", keep=True, **settings)
    training = Training(train, (train.class_concepts >= 0.5).float(), train.class_concepts)
    return Painted(training, KeptImages(birds), KeptPairs(PaintedSubstitutions(birds, seed=seed)))


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
    point = f"seed {seed}, correlation {correlation:g}"
    with part(f"{point}: painting birds", DRAWING):
        data = paint(options, seed, correlation)
    # So no number depends on how many cores there are.
    n_threads = torch.get_num_threads()
    with one_thread():
        with part(f"{point}: training", TRAINING):
            networks = train_networks(run, data.train, rows, seed, n_threads)
        with part(f"{point}: scoring", SCORING):
            models, random = painted_models(run, point, data, rows, networks, seed)
            pairs = pair_loader(data.pairs, options.batch_size)
            scores = score_models(run, models, random, pairs, sample_loader(data.seen, options.batch_size))
            # The class of a concept embedding model does not follow from its values: it is the network's own.
            own_classes = {
                row_name(EMBEDDING, labels): networks[EMBEDDING, labels] for labels in rows.get(EMBEDDING, ())
            }
            scores = scores[~(scores["model"].isin(list(own_classes)) & (scores["metric"] == "class kept"))]
            class_kept = [_class_kept(name, network, pairs) for name, network in own_classes.items()]
            parts = [score_table([row]) for row in class_kept] + score_encoders(encoders, pairs, show=run.progress)
            scores = pd.concat([scores, *parts], ignore_index=True)
    if first:
        run.settings |= data.pairs.settings()
        run.facts["gallery"] = png(draw_gallery(models, data.pairs, thresholds(models), seed))
    return scores


def score_encoders(encoders: Mapping[str, Encoder], images: DataLoader[Any], *, show: bool) -> list[pd.DataFrame]:
    """Score vision-language models, with "none" among the options and without."""
    tables = {
        name: score_vision_language(encoder, images, display_progressbar=show) for name, encoder in encoders.items()
    }
    return [table.assign(model=f"{name}{OF}" + table["set"]) for name, table in tables.items()]


@torch.no_grad()
def _class_kept(name: str, network: nn.Module, pairs: DataLoader[Any]) -> Row:
    """Return how often the class that a network of concepts and classes predicts stays."""
    n_concepts, device = len(pairs.dataset.concept_names), device_of(network)  # type: ignore[attr-defined]
    classes = [
        torch.stack([network(images.to(device))[:, n_concepts:].argmax(1) for images in (batch.before, batch.image)])
        for batch in pairs
    ]
    before, after = torch.cat(classes, 1).cpu()
    return mean_row(before == after, pairs.dataset.pairs, model=name, metric="class kept")  # type: ignore[attr-defined]


def thresholds(models: Iterable[str]) -> dict[str, float]:
    """Return the threshold of each model: 0 for margins, 0.5 for shares."""
    return {name: 0.0 if name.startswith((POST_HOC, RANDOM)) else 0.5 for name in (*models, RANDOM)}


def train_networks(
    run: Run[SubstitutionOptions], train: Training, rows: Rows, seed: int, n_threads: int
) -> dict[tuple[str, str], nn.Module]:
    """Train a backbone on the classes, and the networks of all rows but those made of it; several at a time."""
    device = run.options.torch_device()
    birds: Any = train.images
    n_classes, n_concepts = train.class_concepts.shape
    makers: dict[str, Callable[[], nn.Module]] = {
        BACKBONE: lambda: SmallResNet(n_classes, seed=seed),
        INDEPENDENT: lambda: SmallResNet(n_concepts, seed=seed),
        JOINT: lambda: JointNetwork(n_concepts, n_classes, seed),
        SEPARATE: lambda: SeparateNetworks(n_concepts, seed),
        EMBEDDING: lambda: EmbeddingNetwork(n_concepts, n_classes, seed),
    }
    keys = [(BACKBONE, ""), *((model, labels) for model in rows if model in makers for labels in rows[model])]
    networks = {key: makers[key[0]]().to(device) for key in keys}
    images = birds.images.contiguous(memory_format=torch.channels_last)
    parts = (birds.images, birds.labels, birds.concept_labels)
    settings: dict[str, Any] = {"epochs": run.options.epochs, "batch_size": BATCH, "seed": seed}
    depends = {"data": parts, "device": str(device), "shape": [n_classes, n_concepts], **settings}

    def task(model: str, labels: str) -> Callable[[Event, int], None]:
        network = networks[model, labels]
        with_classes = model in (JOINT, EMBEDDING)
        targets = train.targets(labels) if labels else birds.labels
        targets = torch.cat([targets, birds.labels[:, None].float()], 1) if with_classes else targets

        def work(stop: Event, position: int) -> None:
            def make(files: Kept) -> Mapping[str, Tensor]:
                finished = fit(
                    network,
                    KeptSamples(images, targets),
                    loss=joint_loss if with_classes else None,
                    checkpoint=files,
                    description=f"training {row_name(model, labels)}",
                    position=position,
                    stop=stop,
                    display_progressbar=run.progress,
                    **settings,
                )
                if not finished:
                    raise _StoppedError
                return network.state_dict()

            try:
                state = run.kept(row_name(model, labels), {"model": model, "labels": labels, **depends}, make)
            except _StoppedError:
                return
            load_trained(network, state)

        return work

    run_together([task(*key) for key in keys], n_threads)
    return networks


def painted_models(
    run: Run[SubstitutionOptions],
    point: str,
    data: Painted,
    rows: Rows,
    networks: Mapping[tuple[str, str], Any],
    seed: int,
) -> Models:
    """Make concept models of the networks, an oracle, a memoriser and random baselines."""
    small, train = networks[BACKBONE, ""], data.train.images
    recital = Recital(small.classifier, data.pairs.class_concepts)
    backbone = small_backbone(small)
    models, random = concept_models(run, point, data.train, backbone, recital, rows, networks, seed)
    recognition, concepts, classes = data.pairs.recognition(data.seen)
    head = fit_logistic(train.concept_labels, train.labels, len(train.class_names))
    reciter = models.pop(RECITER)
    for name, values in ((ORACLE, concepts), (MEMORISER, data.pairs.class_concepts[classes])):
        model = BottleneckCBM(recognition, Known(values), head, activation=None)
        models[name] = model.eval().to(run.options.torch_device())
    return models | {RECITER: reciter}, random


def concept_models(
    run: Run[SubstitutionOptions],
    point: str,
    train: Training,
    backbone: Backbone,
    recital: Recital | None,
    rows: Rows,
    networks: Mapping[tuple[str, str], Any],
    seed: int,
) -> Models:
    """Make post-hoc models of a backbone, models of the networks, one that recites the class, and random ones."""
    options, data = run.options, train.images
    n_classes, device = len(data.class_names), options.torch_device()
    embedded = embed(backbone, sample_loader(data, options.batch_size), display_progressbar=run.progress)
    models: dict[str, ConceptModel] = {}
    for model, labels_of_model in rows.items():
        for labels in labels_of_model:
            targets = train.targets(labels)
            network: Any = networks.get((model, labels))
            if model == POST_HOC:
                labelled = embedded._replace(concept_labels=targets)
                models |= post_hoc_models(run, point, backbone, labelled, labels, data, seed)
                continue
            # A joint network has a head of its own; the head of the others is fitted to their labels. That of a
            # concept embedding model takes more than the values.
            head = network.classes if model == JOINT else fit_logistic(targets, data.labels, n_classes)
            bottleneck = BottleneckCBM(network.features, network.classifier, head)
            models[row_name(model, labels)] = bottleneck.eval().to(device)
    recital = recital or Recital(fit_logistic(embedded.features, data.labels, n_classes), train.class_concepts)
    models[RECITER] = BottleneckCBM(backbone, recital, recital.head(), activation=None).eval().to(device)
    count = options.random_banks
    return models, random_models(backbone, embedded, data.concept_names, n_classes, "margin", count, seed)


def post_hoc_models(
    run: Run[SubstitutionOptions],
    point: str,
    backbone: Backbone,
    train: Embeddings,
    labels: str,
    data: ConceptDataset,
    seed: int,
) -> dict[str, ConceptModel]:
    """Return the post-hoc CBM of a backbone and one kind of labels by its name, or note why there is none."""
    targets = train.concept_labels
    constant = [] if targets is None else torch.nonzero(targets.amin(0) == targets.amax(0)).flatten().tolist()
    if constant:
        run.note(
            f"There is no {POST_HOC} of labels {labels}: with them {len(constant)} concepts are the same in all "
            f"images, {data.concept_names[constant[0]]} among them, and have no direction."
        )
        return {}
    with warnings_as_notes() as warned:
        # All concepts, however rare: substitutions name them by their index.
        bank = ConceptBank.fit(train.features, targets, data.concept_names, seed=seed, min_images=1)
    # Without the long list of the concepts' names.
    run.note(*(f"{point}, {POST_HOC}, labels {labels}: {text.partition(': ')[0].rstrip('.')}." for text in warned))
    return {row_name(POST_HOC, labels): bank_model(backbone, bank, train, len(data.class_names), "margin")}


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

    def settings(self) -> dict[str, str]:
        """Return the counts that a report lists."""
        counts = {"substitutions": len(self), "pairs of class and attribute": len(self.pairs.unique())}
        counts["attributes put in"] = len(self.added.unique())
        return {name: str(count) for name, count in counts.items()}

    def recognition(self, seen: KeptImages) -> tuple[Recognition, Tensor, Tensor]:
        """Return a network that recognises all images, and their concepts and classes."""
        images = torch.cat([self.after, self.before, seen.images]).float() / 255
        concepts = torch.cat([self.concept_labels, self.concept_labels_before, seen.concept_labels])
        return Recognition(list(images)), concepts, torch.cat([self.labels, self.labels, seen.labels])


N_ROWS = 6
#: Names of models, one of each kind, and their heads: more columns cannot be read.
COLUMNS = {
    row_name(POST_HOC, CLASS_HARD): "post-hoc\nCBM",
    row_name(INDEPENDENT, CLASS_HARD): "CBM,\nindependent",
    row_name(SEPARATE, CLASS_HARD): "CBM, network\nper concept",
    row_name(EMBEDDING, CLASS_HARD): "concept\nembedding",
    RECITER: "memoriser,\nown class",
}
#: Colours of answers: only the option put in, the option taken out, anything else.
GOOD, BAD, OTHER = PALETTE[2], PALETTE[0], "#8A8A8A"


def draw_gallery(
    models: Mapping[str, ConceptModel], pairs: KeptPairs, threshold: Mapping[str, float], seed: int
) -> Figure:
    """Draw some substitutions of different attributes, with the answers of models on the image after."""
    rows = _sample_rows(pairs, seed)
    samples = [pairs[index] for index in rows]
    after = torch.stack([sample.image for sample in samples])
    names = [name for name in COLUMNS if name in models]
    answers = [concept_outputs(models[name], after).values.cpu() >= threshold[name] for name in names]
    # One pair of axes for everything: many take longer than the models.
    columns = ["before", "after", *(COLUMNS[name] for name in names)]
    fig = Figure(figsize=(1.6 + 0.9 * len(columns), 0.5 + 0.9 * len(rows)), layout="constrained")
    ax = fig.add_subplot()
    for place, (index, sample) in enumerate(zip(rows, samples, strict=True)):
        added, removed = int(pairs.added[index]), int(pairs.removed[index])
        for column, image in enumerate((sample.before, sample.image)):
            ends = (column + 0.03, column + 0.97, place + 0.97, place + 0.03)
            ax.imshow(image.permute(1, 2, 0).clamp(0, 1), extent=ends)
        for column, present in enumerate(answers, start=2):
            text, colour = _options_present(pairs, present[place], added, removed)
            ax.text(column + 0.5, place + 0.5, text, ha="center", va="center", fontsize=9, color=colour)
    for column, title in enumerate(columns):
        ax.text(column + 0.5, -0.06, title, ha="center", va="bottom", fontsize=8, color=INK)
    ax.set_yticks(
        [place + 0.5 for place in range(len(rows))], [_substitution_text(pairs, index) for index in rows], fontsize=9
    )
    ax.set_xlim(0, len(columns))
    ax.set_ylim(len(rows), 0)
    ax.set_xticks([])
    ax.tick_params(length=0, labelcolor=INK)
    # To the right: room for what is written on the left.
    ax.set_aspect("equal", anchor="E")
    for spine in ax.spines.values():
        spine.set_visible(False)
    return fig


def _substitution_text(pairs: KeptPairs, index: int) -> str:
    old, new = (pairs.concept_names[int(concepts[index])].partition("::") for concepts in (pairs.removed, pairs.added))
    return f"{new[0].removeprefix('has_').replace('_', ' ')}:\n{old[2]}\n→ {new[2]}"


def _sample_rows(pairs: KeptPairs, seed: int) -> list[int]:
    """Return some substitutions, of as many attributes as there are."""
    order = np.random.default_rng(seed).permutation(len(pairs)).tolist()
    groups = [pairs.concept_names[int(pairs.added[index])].partition("::")[0] for index in order]
    first = [index for place, index in enumerate(order) if groups[place] not in groups[:place]]
    return (first + [index for index in order if index not in first])[:N_ROWS]


def _options_present(pairs: KeptPairs, present: Tensor, added: int, removed: int) -> tuple[str, str]:
    """Return the options of the touched group that a model sees, and the colour of this answer."""
    group = pairs.concept_names[added].partition("::")[0]
    members = [place for place, name in enumerate(pairs.concept_names) if name.partition("::")[0] == group]
    parts = [place for place in members if present[place]]
    colour = GOOD if parts == [added] else BAD if removed in parts else OTHER
    return "\n".join(pairs.concept_names[place].partition("::")[2] for place in parts) or "none", colour
