"""Concept models that may recite their class: their names, how they are trained, and controls that are known."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Event, Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.heads import fit_logistic
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._models.concept_models import (
    EmbeddingNetwork,
    JointNetwork,
    Recital,
    SeparateNetworks,
    joint_loss,
)
from quantus_concepts.studies._models.loading import sample_loader
from quantus_concepts.studies._models.subjects import BACKBONE, bank_model, random_models
from quantus_concepts.studies._models.training import KeptSamples, SmallResNet, fit, load_trained, run_together

POST_HOC = "post-hoc CBM"
INDEPENDENT = "CBM, independent"
JOINT = "CBM, joint"
SEPARATE = "CBM, one network per concept"
EMBEDDING = "concept embedding model"
SAVED = "post-hoc CBM, saved"
ORACLE = "oracle"
MEMORISER = "class-memoriser"
RECITER = "class-memoriser, own class"
RANDOM = "random directions"

#: In the order of every table.
TRAINED = (POST_HOC, INDEPENDENT, JOINT, SEPARATE, EMBEDDING, SAVED)
CONTROLS = (ORACLE, MEMORISER, RECITER, RANDOM)
MODELS = (*TRAINED, *CONTROLS)

CLASS_HARD, CLASS_SOFT = "per class, hard", "per class, soft"
IMAGE_HARD, IMAGE_SOFT = "per image, hard", "per image, soft"
LABELS = (CLASS_HARD, CLASS_SOFT, IMAGE_HARD, IMAGE_SOFT)
Rows = Mapping[str, Sequence[str]]
#: Which models are trained on which labels: the paper's rows, and those of concept embedding models.
ROWS: Rows = {
    POST_HOC: (CLASS_HARD, IMAGE_HARD),
    INDEPENDENT: LABELS,
    JOINT: LABELS,
    SEPARATE: (CLASS_HARD,),
    EMBEDDING: (CLASS_HARD, IMAGE_HARD),
}
#: The models of the curve over the correlation, trained with labels as in the paper.
CURVE: Rows = {POST_HOC: (CLASS_HARD,), INDEPENDENT: (CLASS_HARD,)}

#: Separates a model from its labels in a name of both.
OF = " | "
BATCH = 32
#: Weight of the class in soft labels of an image: people are surer of concepts that are usual for the class.
LEANING = 0.25


class _NotKeptError(Exception):
    """A network is not trained yet."""


def row_name(model: str, labels: str = "") -> str:
    """Name a model with its labels."""
    return f"{model}{OF}{labels}" if labels else model


@dataclass(frozen=True)
class Training:
    """Images to train on, the concepts (K, L) of each class, and the share of its images that have them."""

    images: ConceptDataset
    class_concepts: Tensor
    share: Tensor

    @classmethod
    def of_marks(cls, train: ConceptDataset, images: ConceptDataset) -> Training:
        """Return images with the concepts of the classes of `train`, and the share of its images marked with them."""
        members = one_hot(train.labels, len(train.class_names)).float()
        return cls(images, train.class_concepts, (members.T @ train.concept_labels) / members.sum(0)[:, None])

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


@dataclass(frozen=True)
class Fitting:
    """How models are trained and fitted."""

    folder: RunFolder
    seed: int
    correlation: float
    epochs: int
    batch_size: int
    random_banks: int
    device: torch.device
    n_threads: int
    progress: bool

    @property
    def key(self) -> dict[str, Any]:
        """What results of this seed and correlation depend on."""
        more = {"seed": self.seed, "correlation": self.correlation, "device": str(self.device)}
        return {"settings": self.folder.settings, **more}

    def networks(self, train: Training, rows: Rows) -> dict[tuple[str, str], Any]:
        """Train a backbone on the classes, and the networks of `rows`; several at a time, each kept when it ends."""
        birds: Any = train.images
        n_classes, n_concepts = train.class_concepts.shape
        makers: dict[str, Callable[[], nn.Module]] = {
            BACKBONE: lambda: SmallResNet(n_classes, seed=self.seed),
            INDEPENDENT: lambda: SmallResNet(n_concepts, seed=self.seed),
            JOINT: lambda: JointNetwork(n_concepts, n_classes, self.seed),
            SEPARATE: lambda: SeparateNetworks(n_concepts, self.seed),
            EMBEDDING: lambda: EmbeddingNetwork(n_concepts, n_classes, self.seed),
        }
        keys = [(BACKBONE, ""), *((model, labels) for model in rows if model in makers for labels in rows[model])]
        networks = {key: makers[key[0]]().to(self.device) for key in keys}
        images = birds.images.contiguous(memory_format=torch.channels_last)
        lock = Lock()

        def task(model: str, labels: str) -> Callable[[Event, int], None]:
            network, name = networks[model, labels], row_name(model, labels)
            with_classes = model in (JOINT, EMBEDDING)
            targets = train.targets(labels) if labels else birds.labels
            targets = torch.cat([targets, birds.labels[:, None].float()], 1) if with_classes else targets

            def work(stop: Event, position: int) -> None:
                with lock:
                    state = self._weights(name)
                if state is None:
                    finished = fit(
                        network,
                        KeptSamples(images, targets),
                        epochs=self.epochs,
                        batch_size=BATCH,
                        seed=self.seed,
                        loss=joint_loss if with_classes else None,
                        description=f"training {name}",
                        position=position,
                        stop=stop,
                        display_progressbar=self.progress,
                    )
                    if not finished:  # another training failed, and its error is raised
                        return
                    with lock:
                        state = self._weights(name, network.state_dict())
                load_trained(network, state or {})

            return work

        run_together([task(*key) for key in keys], self.n_threads)
        return networks

    def _weights(self, name: str, state: dict[str, Tensor] | None = None) -> dict[str, Tensor] | None:
        """Return the weights of a network as they are kept; `state` is kept, None where nothing is."""

        def make() -> dict[str, Tensor]:
            if state is None:
                raise _NotKeptError
            return state

        try:
            return self.folder.cached(f"{name} {self.seed} {self.correlation:g}", {"network": name, **self.key}, make)
        except _NotKeptError:
            return None

    def models(
        self, train: Training, backbone: Backbone, recital: Recital | None, rows: Rows, networks: Mapping[Any, Any]
    ) -> tuple[dict[str, ConceptModel], list[PostHocCBM]]:
        """Make post-hoc models of a backbone, models of the networks, one that recites the class, and random ones."""
        data = train.images
        n_classes = len(data.class_names)
        embedded = embed(backbone, sample_loader(data, self.batch_size), display_progressbar=self.progress)
        models: dict[str, ConceptModel] = {}
        for model, labels_of_model in rows.items():
            for labels in labels_of_model:
                targets = train.targets(labels)
                if model == POST_HOC:
                    labelled = embedded._replace(concept_labels=targets)
                    models |= self._post_hoc(backbone, labelled, labels, data)
                    continue
                network = networks[model, labels]
                # A joint network has a head of its own; the head of the others is fitted to their labels. That of a
                # concept embedding model takes more than the values.
                head = network.classes if model == JOINT else fit_logistic(targets, data.labels, n_classes)
                bottleneck = BottleneckCBM(network.features, network.classifier, head)
                models[row_name(model, labels)] = bottleneck.eval().to(self.device)
        recital = recital or Recital(fit_logistic(embedded.features, data.labels, n_classes), train.class_concepts)
        reciter = BottleneckCBM(backbone, recital, recital.head(), activation=None)
        models[RECITER] = reciter.eval().to(self.device)
        names, count = data.concept_names, self.random_banks
        return models, random_models(backbone, embedded, names, n_classes, "margin", count, self.seed)

    def _post_hoc(
        self, backbone: Backbone, train: Embeddings, labels: str, data: ConceptDataset
    ) -> dict[str, ConceptModel]:
        """Return the post-hoc CBM of a backbone and one kind of labels by its name, or note why there is none."""
        targets = train.concept_labels
        constant = [] if targets is None else torch.nonzero(targets.amin(0) == targets.amax(0)).flatten().tolist()
        if constant:
            self.folder.note(
                f"There is no {POST_HOC} of labels {labels}: with them {len(constant)} concepts are the same in all "
                f"images, {data.concept_names[constant[0]]} among them, and have no direction."
            )
            return {}
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("default")
            # All concepts, however rare: substitutions name them by their index.
            bank = ConceptBank.fit(train.features, targets, data.concept_names, seed=self.seed, min_images=1)
        # Without the long list of the concepts' names.
        texts = [str(warning.message).partition(": ")[0].rstrip(".") for warning in warned]
        where = f"Seed {self.seed}, correlation {self.correlation:g}, {POST_HOC}, labels {labels}"
        self.folder.note(*(f"{where}: {text}." for text in texts))
        return {row_name(POST_HOC, labels): bank_model(backbone, bank, train, len(data.class_names), "margin")}


def thresholds(models: Sequence[str]) -> dict[str, float]:
    """Return the threshold of each model: 0 for margins, 0.5 for shares."""
    return {name: 0.0 if name.startswith((POST_HOC, RANDOM)) else 0.5 for name in (*models, RANDOM)}
