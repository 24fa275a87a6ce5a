"""A subject to try metrics on: painted birds, networks trained on them, concept models and their random baselines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, LoaderBatch, embed
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.fingerprints import fingerprint_of
from captum_concepts.models.bottleneck import BottleneckCBM
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import ConceptLayer
from captum_concepts.models.heads import fit_logistic
from captum_concepts.models.interventions import mean_absent_values
from captum_concepts.support.checks import check_shape, check_whole
from quantus_concepts.datasets.base import ConceptDataset, ConceptSample
from quantus_concepts.functional import random_banks
from quantus_concepts.painted.images import KeptImages, painted_birds, sample_loader
from quantus_concepts.painted.networks import SmallResNet, fold_images
from quantus_concepts.painted.training import one_thread, train_together

POST_HOC = "post-hoc CBM"
TRADITIONAL = "traditional CBM"
ORACLE = "oracle"
RANDOM = "random directions"
#: The network that is trained on the classes.
BACKBONE = "backbone"
#: Fits a head to concept values (N, L) and classes (N,), of so many classes.
HeadFit = Callable[..., nn.Linear]


@dataclass(frozen=True)
class PaintedSubject:
    """Result of `painted_subject`."""

    #: Painted birds, with their classes, concepts, parts and the concepts of each class.
    train: ConceptDataset
    test: ConceptDataset
    #: Trained on the classes; its ``features`` end before the pooling.
    network: SmallResNet
    #: By name: the post-hoc CBM, a traditional one and the oracle.
    models: dict[str, PostHocCBM | BottleneckCBM | OracleModel]
    #: By name: post-hoc CBMs of random directions in place of concepts, with heads of their own.
    baselines: dict[str, list[PostHocCBM]]

    def __repr__(self) -> str:
        return f"PaintedSubject(train={len(self.train)}, test={len(self.test)}, models={[*self.models]})"

    def loader(self, batch_size: int = 64) -> DataLoader[ConceptSample]:
        """Return the test images in batches, as `score_concepts` takes them."""
        return sample_loader(self.test, batch_size)


def painted_subject(
    n_train: int = 600,
    n_test: int = 200,
    *,
    image_size: int = 64,
    n_classes: int = 10,
    n_concepts: int = 30,
    epochs: int = 6,
    n_pos: int = 100,
    n_neg: int = 100,
    random_directions: int = 39,
    seed: int = 0,
    display_progressbar: bool = False,
    **birds: Any,
) -> PaintedSubject:
    """Paint birds, train a small network on them, and return concept models of it with their random baselines.

    Everything that a concept metric needs, in seconds on two cores, without a download: what `benchmark concepts`
    makes for each of its seeds, smaller.

    Parameters
    ----------
    n_train : int
        Number of images to train on, at least `n_classes`.
    n_test : int
        Number of images to test on, at least `n_classes`.
    image_size : int
        Height and width in pixels, a multiple of 8.
    n_classes : int
        Number of classes K.
    n_concepts : int
        Number of concepts L.
    epochs : int
        Passes over the training images.
    n_pos : int
        Number of images with a concept that its direction is fitted to.
    n_neg : int
        Number of images without it.
    random_directions : int
        Number of baselines.
    seed : int
        Random seed of the birds, the networks and the random directions.
    display_progressbar : bool
        Whether bars show the painting and the training.
    **birds
        Further arguments of `PaintedBirds`, such as ``correlation``.

    Returns
    -------
    PaintedSubject
        ``train`` and ``test`` images, the ``network``, ``models`` by name and ``baselines`` by name.

    Raises
    ------
    ValueError
        If an argument is out of its range, as `PaintedBirds` says.

    Examples
    --------
    >>> from quantus_concepts import painted_subject, score_concepts
    >>> subject = painted_subject(n_train=60, n_test=20, image_size=32, epochs=1)
    >>> table = score_concepts(subject.models, subject.loader(), controls=subject.baselines)
    >>> {"CGIM", "CEM", "CLM"} <= set(table["metric"])
    True
    """
    check_whole("n_train", n_train, n_classes)
    check_whole("n_test", n_test, n_classes)
    settings = birds | {"image_size": image_size, "n_classes": n_classes, "n_concepts": n_concepts, "seed": seed}
    train, test = painted_birds(
        (settings | {"split": "train"}, 0, n_train),
        (settings | {"split": "test"}, 0, n_test),
        display_progressbar=display_progressbar,
    )
    with one_thread():
        networks = untrained_networks(train, seed, torch.device("cpu"))
        train_networks(networks, train, epochs=epochs, seed=seed, display_progressbar=display_progressbar)
        batches = folded_batches(train, 64)
        backbone = small_backbone(networks[BACKBONE])
        embedded = embed(backbone, batches)
        examples = embedded.features, embedded.concept_labels, train.concept_names
        bank = ConceptBank.fit(*examples, n_pos=n_pos, n_neg=n_neg, seed=seed)
        models: dict[str, PostHocCBM | BottleneckCBM | OracleModel] = {
            POST_HOC: bank_model(backbone, bank, embedded, n_classes, "margin"),
            TRADITIONAL: traditional_model(networks[TRADITIONAL], batches, n_classes),
            ORACLE: oracle_model(train, test, n_classes),
        }
        controls = fit_random_models(
            backbone, embedded, train.concept_names, n_classes, "margin", random_directions, seed
        )
    return PaintedSubject(train, test, networks[BACKBONE], models, {RANDOM: controls})


def untrained_networks(train: KeptImages, seed: int, device: torch.device) -> dict[str, SmallResNet]:
    """Return a small network for the classes of images, and one for their concepts."""
    counts = {BACKBONE: len(train.class_names), TRADITIONAL: len(train.concept_names)}
    return {name: SmallResNet(count, seed=seed).to(device) for name, count in counts.items()}


def train_networks(networks: Mapping[str, SmallResNet], train: KeptImages, **settings: Any) -> None:
    """Train both networks at the same time; settings of `train_together`."""
    targets = {BACKBONE: train.labels, TRADITIONAL: train.concept_labels}
    jobs = {f"training the {name}": (networks[name], targets[name]) for name in networks}
    train_together(jobs, train.images, **settings)


def small_backbone(network: SmallResNet) -> Backbone:
    """Return a small network up to its pooling."""
    return Backbone(network.features, "mean", None, network.channels)


def kept_images(data: ConceptDataset) -> KeptImages:
    """Return a data set whose images are kept in memory, or raise."""
    if not isinstance(data, KeptImages):
        raise TypeError(f"Expected the training images to be kept in memory but got {type(data).__name__}.")
    return data


def folded_batches(data: ConceptDataset, batch_size: int) -> list[tuple[Tensor, ...]]:
    """Return batches of images in 8 bits as a small network folds them, of their classes and of their concepts."""
    birds = kept_images(data)
    parts = (tensor.split(batch_size) for tensor in (fold_images(birds.images), birds.labels, birds.concept_labels))
    return list(zip(*parts, strict=True))


def bank_model(
    backbone: Backbone | nn.Module,
    bank: ConceptBank,
    train: Embeddings,
    n_classes: int,
    values: str,
    fit_head: HeadFit = fit_logistic,
) -> PostHocCBM:
    """Make a post-hoc CBM of a bank, with a head fitted to embeddings."""
    with torch.no_grad():
        u = ConceptLayer(bank, values)(train.features)
    model = PostHocCBM(backbone, bank, fit_head(u, train.labels, n_classes), values).eval()
    if train.concept_labels is None or train.concept_labels.shape[1] != len(bank):
        model.mean_values = u.mean(0)
    else:
        model.absent_values = mean_absent_values(u, train.concept_labels)
    return model


def fit_random_models(
    backbone: Backbone,
    train: Embeddings,
    names: Sequence[str],
    n_classes: int,
    values: str,
    n_banks: int,
    seed: int,
    fit_head: HeadFit = fit_logistic,
) -> list[PostHocCBM]:
    """Return post-hoc CBMs of random directions in place of concepts, in eval mode; embeddings with class labels."""
    if train.labels is None:
        raise ValueError("Expected argument `train` to hold class labels but it has none.")
    settings: dict[str, Any] = {"n_banks": n_banks, "values": values, "seed": seed}
    if train.concept_labels is not None and train.concept_labels.shape[1] == len(names):
        settings["concept_labels"] = train.concept_labels
    models = []
    for bank in random_banks(train.features, train.labels, len(names), n_classes, **settings):
        head = bank.head
        if fit_head is not fit_logistic:
            head = fit_head(bank.concept_values(train.features, values), train.labels, n_classes)
        model = PostHocCBM(backbone, ConceptBank(bank.cavs, bank.intercepts, names), head, values).eval()
        model.know_levels(bank)
        models.append(model)
    return models


def traditional_model(network: SmallResNet, loader: Iterable[LoaderBatch], n_classes: int) -> BottleneckCBM:
    """Make a sequential CBM of a network that was trained on the concepts."""
    train = embed(network.features, loader)
    with torch.no_grad():
        values = network.classifier(train.features).sigmoid()
    head = fit_logistic(values, train.labels, n_classes)
    return BottleneckCBM(network.features, network.classifier, head).eval()


def oracle_model(train: ConceptDataset, test: ConceptDataset, n_classes: int) -> OracleModel:
    """Make the oracle for test images, its head fitted to the true attributes of the training images."""
    head = fit_logistic(train.concept_labels, train.labels, n_classes)
    return OracleModel(test, head).eval()


class OracleModel(nn.Module):
    """A concept model whose values are the true attributes and whose maps peak at the true parts."""

    # It takes images as every concept model does, and finds out which one it is given by a digest of its 8-bit
    # content, so that it is evaluated by the same program. Maps are Gaussians at the part's centre (of several
    # places the highest counts), zero where the part is not visible or a concept has none.

    #: It has no answer for images that a metric changes (`Locality`).
    answers_changed_images = False
    #: Its values are 0, absent, and 1.
    bounded = True

    concept_labels: Tensor
    points: Tensor
    part_of_concept: Tensor

    def __init__(self, dataset: ConceptDataset, head: nn.Module, stride: int = 4) -> None:
        super().__init__()
        samples = [dataset[index] for index in range(len(dataset))]
        self.features = Recognition([sample.image for sample in samples])
        self.head = head
        self.stride = stride
        self.size = (int(samples[0].image.shape[-2]), int(samples[0].image.shape[-1]))
        self.register_buffer("concept_labels", torch.stack([sample.concepts for sample in samples]).float())
        self.register_buffer("points", torch.stack([sample.points for sample in samples]).float())
        self.register_buffer("part_of_concept", dataset.part_of_concept)
        self.register_buffer("absent_values", torch.zeros(self.concept_labels.shape[1]))

    @property
    def concept_predictor(self) -> nn.Module:
        """Images (N, 3, H, W) to the true attributes (N, L)."""
        return _Values(self)

    def forward(self, images: Tensor) -> Tensor:
        """Return class logits (N, K) of images (N, 3, H, W)."""
        return self.head(self.values_from_features(self.features(images)))

    def values_from_features(self, features: Tensor) -> Tensor:
        """Return the attributes (N, L) of images given by number (N, 1)."""
        return self.concept_labels[features[:, 0]]

    def maps_from_features(self, features: Tensor, concepts: Tensor | None = None) -> Tensor:
        """Return the maps (N, k, h, w) of images given by number (N, 1)."""
        index = features[:, 0]
        n_concepts = len(self.part_of_concept)
        if concepts is None:
            concepts = torch.arange(n_concepts, device=index.device)
        chosen = concepts.expand(len(index), -1) if concepts.ndim == 1 else concepts
        parts = self.part_of_concept[chosen]
        places = self.points[index[:, None], parts.clamp(min=0)]
        places = places.masked_fill((parts < 0)[..., None, None], torch.nan)
        height, width = (-(-side // self.stride) for side in self.size)
        y = (torch.arange(height, device=index.device) + 0.5) * (self.size[0] / height) - 0.5
        x = (torch.arange(width, device=index.device) + 0.5) * (self.size[1] / width) - 0.5
        across = (places[..., 0, None, None] - x) ** 2
        down = (places[..., 1, None, None] - y[:, None]) ** 2
        # A map's places are a stride apart: one and a half strides wide, the peak stays where the part is.
        return torch.exp(-(across + down) / (2 * (1.5 * self.stride) ** 2)).nan_to_num(0).amax(2)

    def concept_maps(self, images: Tensor, concepts: Tensor | None = None) -> Tensor:
        """Return the maps (N, k, h, w) of images (N, 3, H, W)."""
        return self.maps_from_features(self.features(images), concepts)


class Recognition(nn.Module):
    """Images to their numbers in a list of known ones."""

    _place: Tensor

    def __init__(self, images: list[Tensor]) -> None:
        super().__init__()
        self._number = {_content(image): number for number, image in enumerate(images)}
        # Tells where the module is: what looks numbers up is there too, wherever images are.
        self.register_buffer("_place", torch.empty(0), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Return the number of each image."""
        check_shape("images", images, ("N", "C", "H", "W"), (None, None, None, None))
        numbers = []
        for position, image in enumerate(images):
            number = self._number.get(_content(image))
            if number is None:
                raise ValueError(
                    f"The oracle does not know image {position} of this batch: it knows only the images it was "
                    "made for, unchanged."
                )
            numbers.append(number)
        return torch.tensor(numbers, device=self._place.device)[:, None]


class _Values(nn.Module):
    def __init__(self, oracle: OracleModel) -> None:
        super().__init__()
        self.oracle = oracle

    def forward(self, images: Tensor) -> Tensor:
        return self.oracle.values_from_features(self.oracle.features(images))


def _content(image: Tensor) -> str:
    return fingerprint_of((image.detach().float() * 255).round().to(torch.uint8))
