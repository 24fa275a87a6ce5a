"""The models of one seed and correlation: how they are trained and fitted."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import embed
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.heads import fit_logistic
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.metrics.host.model import ConceptModel
from quantus_concepts.painted.images import sample_loader
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.painted.subject import BACKBONE, bank_model, fit_random_models
from quantus_concepts.painted.training import KeptSamples, fit, load_trained, run_together
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._models import concept_models as networks
from quantus_concepts.studies.substitution import kinds
from quantus_concepts.studies.substitution.settings import Substitution

BATCH = 32
#: Weight of the class in soft labels of an image: people are surer of concepts that are usual for the class.
LEANING = 0.25
#: Models by name, and random ones.
Models = tuple[dict[str, ConceptModel], list[PostHocCBM]]


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
            kinds.CLASS_HARD: self.class_concepts[classes],
            kinds.CLASS_SOFT: share,
            kinds.IMAGE_HARD: of_image,
            kinds.IMAGE_SOFT: torch.lerp(of_image, share, LEANING),
        }[labels]


class _NotKeptError(Exception):
    """A network is not trained yet."""


@dataclass(kw_only=True)
class Point:
    """One seed and correlation, and how models are trained for it."""

    folder: RunFolder
    settings: Substitution
    seed: int
    correlation: float
    rows: kinds.Rows
    n_threads: int

    @property
    def device(self) -> torch.device:
        """Where models run."""
        return self.settings.place

    @property
    def key(self) -> dict[str, object]:
        """What results depend on."""
        more = {"seed": self.seed, "correlation": self.correlation, "device": str(self.device)}
        return {"settings": self.folder.settings, **more}

    def train(self, train: Training) -> dict[tuple[str, str], Any]:
        """Train a backbone on the classes, and the networks of the rows; several at a time, each kept when it ends."""
        birds: Any = train.images
        n_classes, n_concepts = train.class_concepts.shape
        makers: dict[str, Callable[[], nn.Module]] = {
            BACKBONE: lambda: SmallResNet(n_classes, seed=self.seed),
            kinds.INDEPENDENT: lambda: SmallResNet(n_concepts, seed=self.seed),
            kinds.JOINT: lambda: networks.JointNetwork(n_concepts, n_classes, self.seed),
            kinds.SEPARATE: lambda: networks.SeparateNetworks(n_concepts, self.seed),
            kinds.EMBEDDING: lambda: networks.EmbeddingNetwork(n_concepts, n_classes, self.seed),
        }
        keys = [
            (BACKBONE, ""),
            *((model, label) for model in self.rows if model in makers for label in self.rows[model]),
        ]
        made = {key: makers[key[0]]().to(self.device) for key in keys}
        images = birds.images.contiguous(memory_format=torch.channels_last)
        how: dict[str, Any] = {"epochs": self.settings.epochs, "batch_size": BATCH, "seed": self.seed}
        how["display_progressbar"] = self.settings.progress
        lock = Lock()

        def work(key: tuple[str, str], stop: Event) -> None:
            network, name = made[key], kinds.row_name(*key)
            targets, loss = train.targets(key[1]) if key[1] else birds.labels, None
            if key[0] in (kinds.JOINT, kinds.EMBEDDING):
                targets, loss = torch.cat([targets, birds.labels[:, None].float()], 1), networks.joint_loss
            with lock:
                state = self._weights(name)
            if state is None:
                more: dict[str, Any] = {"description": f"training {name}", "loss": loss, "stop": stop, **how}
                fit(network, KeptSamples(images, targets), **more)
                with lock:
                    state = self._weights(name, network.state_dict())
            load_trained(network, state or {})

        run_together([partial(work, key) for key in keys], self.n_threads)
        return made

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

    def fit(
        self, train: Training, backbone: Backbone, recital: networks.Recital | None, trained: Mapping[Any, Any]
    ) -> Models:
        """Make post-hoc models of a backbone, models of trained networks, one that recites the class, random ones."""
        data, n_classes, settings = train.images, len(train.images.class_names), self.settings
        loader = sample_loader(data, settings.batch_size)
        embedded = embed(backbone, loader, display_progressbar=settings.progress)
        models: dict[str, ConceptModel] = {}
        for model, label in [(model, label) for model, some in self.rows.items() for label in some]:
            targets, name = train.targets(label), kinds.row_name(model, label)
            if model != kinds.POST_HOC:
                network = trained[model, label]
                # A joint network has a head of its own; the head of the others is fitted to their labels. That of a
                # concept embedding model takes more than the values.
                head = network.classes if model == kinds.JOINT else fit_logistic(targets, data.labels, n_classes)
                models[name] = BottleneckCBM(network.features, network.classifier, head).eval().to(self.device)
            elif constant := torch.nonzero(targets.amin(0) == targets.amax(0)).flatten().tolist():
                self.folder.note(
                    f"There is no {model} of labels {label}: with them {len(constant)} concepts are the same in all "
                    f"images, {data.concept_names[constant[0]]} among them, and have no direction."
                )
            else:
                with warnings.catch_warnings(record=True) as warned:
                    warnings.simplefilter("default")
                    # All concepts, however rare: substitutions name them by their index.
                    bank = ConceptBank.fit(embedded.features, targets, data.concept_names, seed=self.seed, min_images=1)
                # Without the long list of the concepts' names.
                texts = [str(warning.message).partition(": ")[0].rstrip(".") for warning in warned]
                where = f"Seed {self.seed}, correlation {self.correlation:g}, {model}, labels {label}"
                self.folder.note(*(f"{where}: {text}." for text in texts))
                models[name] = bank_model(backbone, bank, embedded, n_classes, "margin")
        recital = recital or networks.Recital(
            fit_logistic(embedded.features, data.labels, n_classes), train.class_concepts
        )
        reciter = BottleneckCBM(backbone, recital, recital.head(), activation=None)
        models[kinds.RECITER] = reciter.eval().to(self.device)
        names, count = data.concept_names, settings.random_banks
        return models, fit_random_models(backbone, embedded, names, n_classes, "margin", count, self.seed)
