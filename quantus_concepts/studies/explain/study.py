"""A concept model, and a table, a page and pictures of what it says of images."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import typer
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.v2.functional import center_crop, pil_to_tensor, resize

from captum_concepts import Backbone, ConceptBank, PostHocCBM, ResidualCBM, show_concepts
from captum_concepts.backbones.named import NO_WEIGHTS, build_model, load_tokenizer
from captum_concepts.bank.folders import find_concept_folders
from captum_concepts.models.chain import make_linear
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.pictures.views import ClassViews, class_labels, concept_views
from captum_concepts.support.files import image_files, printable
from captum_concepts.support.images import image_head, load_pixels
from captum_concepts.support.running import progress, tensor_output
from captum_concepts.texts import readable_name
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.datasets.folders import IMAGE_SUFFIXES
from quantus_concepts.explorer.explore import explore
from quantus_concepts.painted.images import KeptImages, sample_loader
from quantus_concepts.painted.networks import SmallResNet, fold_images
from quantus_concepts.painted.training import load_trained, train
from quantus_concepts.results.tables import to_markdown
from quantus_concepts.studies._kit.folder import REPORT, RunFolder, plain_name, warnings_as_notes
from quantus_concepts.studies._kit.options import SMALL
from quantus_concepts.studies._kit.plots import png
from quantus_concepts.studies._models.named_networks import Network, cut_network, load_network
from quantus_concepts.studies.explain.settings import Explain

#: Painted birds: images, pixels, classes, concepts.
N_SHOWN, SIZE, N_CLASSES, N_CONCEPTS = 6, 64, 6, 18
#: Images of no concept from which the middle of the embeddings is taken, through which random directions go.
N_MIDDLE = 50


@dataclass(frozen=True)
class Shown:
    """A concept model and images of it: as it takes them, as they are shown, and what is known of them."""

    model: Any
    names: Sequence[str]
    images: Tensor
    pictures: Tensor
    truth: Mapping[str, Any] = field(default_factory=dict)


def run_explain(settings: Explain, folder: RunFolder) -> None:
    """Print the strongest concepts, and write the table of all, a picture of each image, and the page."""
    with warnings_as_notes(folder):
        shown = photographs(settings) if settings.image else fetch_painted_birds(folder, settings)
        model, images, truth = shown.model, shown.images, dict(shown.truth)
        views = concept_views(model, images, settings.batch_size)
        classes = class_labels(getattr(model, "class_names", None), views.logits.shape[1])
        table = explained_concept_table(views, shown.names, classes, model.concept_layer.p_values.tolist())
        folder.write("results.csv", table.to_csv(index=False))
        strongest = table.groupby(table.index // len(views.names)).head(settings.top)
        typer.echo(to_markdown(_printed(strongest).reset_index(drop=True)))
        shared: dict[str, Any] = {"class_names": classes, "batch_size": settings.batch_size}
        for i, name in enumerate(shown.names):
            of_image = {key: value[i : i + 1] for key, value in truth.items()} | {"pictures": shown.pictures[i : i + 1]}
            figure, _ = show_concepts(model, images[i : i + 1], settings.top, **shared, **of_image)
            folder.write(plain_name(f"figures/{i + 1:02d} {Path(name).name}.png"), png(figure))
        page = explore(model, images, pictures=shown.pictures, title="Concepts of the images", **shared, **truth)
    folder.write(REPORT, page.html)
    for note in folder.notes:
        typer.echo(f"Note: {printable(note)}", err=True)
    typer.echo(f"Correct concepts on {REPORT}.")


def photographs(settings: Explain) -> Shown:
    """Return a concept model, from a folder of concepts, texts or a file, and photographs."""
    paths = [
        photo
        for path in settings.image or []
        for photo in (image_files(path, IMAGE_SUFFIXES) if path.is_dir() else [path])
    ]
    if not paths:
        raise ValueError(f"Expected photographs ({', '.join(IMAGE_SUFFIXES)}) but the folder holds none.")
    for path in paths:
        # Before directions are fitted, which may take minutes.
        image_head(path)
    if settings.text:
        model, form = _of_texts(settings, settings.text)
    elif settings.cbm is not None:
        model, form = _of_file(settings, settings.cbm)
    elif settings.concepts is not None:
        model, form = _of_folder(settings, settings.concepts)
    else:
        raise ValueError("Expected concepts, texts or the file of a concept model but got none.")
    pictures = torch.stack([form.read(path) for path in paths])
    names = [path.stem for path in paths]
    # Their paths where two have the same name.
    names = names if len({*names}) == len(names) else [str(path) for path in paths]
    # Names of files may hold halves of characters, which pandas cannot keep.
    names = [name.encode("utf-8", "backslashreplace").decode("utf-8") for name in names]
    return Shown(model, names, form.normalised(pictures), pictures)


def fetch_painted_birds(folder: RunFolder, settings: Explain) -> Shown:
    """Return a post-hoc model of a small network trained on painted birds, and other birds with their truth."""
    seed, n_train = settings.seed, settings.n_train
    drawn: dict[str, Any] = {"image_size": SIZE, "n_classes": N_CLASSES, "n_concepts": N_CONCEPTS, "seed": seed}
    birds = KeptImages(PaintedBirds(n_train, "train", **drawn))
    network = SmallResNet(N_CLASSES, seed=seed)

    def make() -> dict[str, Tensor]:
        train(network, fold_images(birds.images), birds.labels, seed=seed, display_progressbar=settings.progress)
        return network.state_dict()

    load_trained(network, folder.cached("network", (n_train, drawn), make))
    with warnings_as_notes(folder):
        model = PostHocCBM.fit(
            Backbone(network.features, "mean", None, network.channels),
            sample_loader(birds, settings.batch_size),
            names=birds.concept_names,
            class_names=birds.class_names,
            random_banks=settings.random_banks,
            seed=seed,
        ).eval()
    pictured = KeptImages(PaintedBirds(N_SHOWN, "test", **drawn))
    images = pictured.images.float() / 255
    order = clearest_first(concept_views(model, images, settings.batch_size), pictured.labels)
    images = images[order]
    truth = {"labels": pictured.labels[order], "concept_labels": pictured.concept_labels[order]}
    return Shown(model, [f"bird {i}" for i in range(len(images))], images, images, truth)


def clearest_first(views: ClassViews, labels: Tensor) -> list[int]:
    """Return the order of images that starts with the clearest: answered right, with most concepts unlike random ones.

    Of equals it is the most probable answer. The other images keep their order.
    """
    right = views.predicted == labels
    low, high = (0.0, 0.0) if views.random_values is None else views.random_values[:, :, None].unbind(1)
    outside = ((views.values < low) | (views.values > high)).sum(1)
    shares = views.logits.softmax(1).amax(1)
    keys = list(zip(right.tolist(), outside.tolist(), shares.tolist(), strict=True))
    first = keys.index(max(keys))
    return [first, *(i for i in range(len(keys)) if i != first)]


def explained_concept_table(
    views: ClassViews, names: Sequence[str], classes: list[str], p_values: list[float]
) -> pd.DataFrame:
    """Return a row for each image and concept, the largest effect first, or contribution where no level is known."""
    kind, parts = views.kind, views.parts
    shares = views.logits.softmax(1).amax(1)
    rows = []
    for i, name in enumerate(names):
        # If the classes are the concepts, only one contributes: the others are ordered by value.
        order = np.lexsort((-views.values[i].numpy(), -parts[i].abs().numpy()))
        for j in order.tolist():
            row = {
                "image": name,
                "class": classes[int(views.logits[i].argmax())],
                "probability": shares[i].item(),
                "concept": views.names[j],
                "value": views.values[i, j].item(),
                "p_value": p_values[j],
                kind: parts[i, j].item() + 0.0,
            }
            for what, ends in (("value", views.random_values), (kind, views.random_parts)):
                low, high = (torch.nan, torch.nan) if ends is None else ends[i].tolist()
                row |= {f"random_{what}_low": low, f"random_{what}_high": high}
            rows.append(row)
    table = pd.DataFrame(rows)
    ends = table[["value", "random_value_low", "random_value_high"]].to_numpy(float)
    return table.assign(value_is=[place_in_range(*row) for row in ends.tolist()])


def place_in_range(value: float, low: float, high: float) -> str:
    """Say where a value lies to the range of 95 % of random directions; nothing where that is not known."""
    if np.isnan(low) or np.isnan(high):
        return ""
    return "below random" if value < low else "above random" if value > high else "inside random range"


def _printed(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table that is printed: ranges of random directions, and where the number lies, in one column each."""

    def spread(what: str) -> pd.Series:
        low, high = table[f"random_{what}_low"], table[f"random_{what}_high"]
        where = np.select([table[what] > high, table[what] < low], ["above", "below"], "within")
        place = pd.Series(where, index=table.index, dtype=str)
        return place + " " + low.map("{:+.2f}".format) + " to " + high.map("{:+.2f}".format)

    kind = "effect" if "effect" in table else "contribution"
    printed = table[["image", "class", "concept", "value", "p_value", kind]].copy()
    printed["concept"] = printed["concept"].map(readable_name)
    for what in ("value", kind):
        if table[f"random_{what}_low"].notna().all():
            printed[f"random {what}s"] = spread(what)
    if (table["value_is"] != "").all():
        printed.insert(4, "value is", table["value_is"])
    printed = printed.rename(columns={"p_value": "p of direction"})
    return printed.dropna(axis="columns", how="all")


@dataclass(frozen=True)
class Photographs:
    """How photographs become images of a model: the middle square, in its size, normalised."""

    size: int
    mean: tuple[float, ...] = (0.0,) * 3
    std: tuple[float, ...] = (1.0,) * 3

    def picture(self, image: Image.Image) -> Tensor:
        """Return the middle square (3, H, W) in [0, 1]."""
        pixels = pil_to_tensor(image.convert("RGB"))
        return center_crop(resize(pixels, [self.size], antialias=True), [self.size]).float() / 255

    def __call__(self, image: Image.Image) -> Tensor:
        """Return what the model takes."""
        return self.normalised(self.picture(image))

    def normalised(self, pictures: Tensor) -> Tensor:
        """Return pictures (..., 3, H, W) in [0, 1] as the model takes them."""
        mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (self.mean, self.std))
        return (pictures - mean) / std

    def read(self, path: Path) -> Tensor:
        """Return the picture of a file."""
        return self.picture(Image.fromarray(load_pixels(path)))


def _of_file(settings: Explain, cbm: Path) -> tuple[Any, Photographs]:
    """Return the concept model of a file, and how it takes photographs."""
    if settings.network == SMALL:
        model = PostHocCBM.load(cbm, download=settings.download)
        return model.to(settings.place).eval(), usual_photographs(settings, model)
    backbone, _, _, photographs = _backbone(settings)
    return PostHocCBM.load(cbm, backbone).eval(), photographs


def _of_folder(settings: Explain, concepts: Path) -> tuple[Any, Photographs]:
    """Return a concept model of a folder of example images, and how it takes photographs."""
    backbone, classifier, names, photographs = _backbone(settings)
    bank = ConceptBank.from_folders(
        backbone,
        concepts,
        transform=photographs,
        batch_size=settings.batch_size,
        seed=settings.seed,
        display_progressbar=settings.progress,
    )
    middle = _middle(settings, concepts, backbone, photographs)
    return _with_classes(backbone, bank, classifier, names, middle, settings), photographs


def _backbone(settings: Explain) -> tuple[Backbone, nn.Linear | None, list[str] | None, Photographs]:
    """Return the network cut where its maps end, its classifier, the names of its classes, and its images."""
    if settings.network.partition(":")[0] in ("torchvision", "timm", "open_clip", "transformers"):
        built = build_model(settings.network)
        built.model.to(settings.place)
        photographs = usual_photographs(settings, built.backbone)
        library, name, *_ = settings.network.split(":")
        classifies = library in ("torchvision", "timm") or name.endswith("ForImageClassification")
        classifier = _classifier(built.model, built.backbone, photographs.size) if classifies else None
        return built.backbone, classifier, _fitting_names(built.class_names, classifier), photographs
    network = load_network(settings.network, settings.weights, **settings.normalisation)
    size = settings.image_size or network.image_size or 224
    photographs = Photographs(size, network.mean or (0.0,) * 3, network.std or (1.0,) * 3)
    network.module.to(settings.place)
    backbone, _ = cut_network(network, settings.layer, torch.zeros(1, 3, size, size, device=settings.place))
    if network.mean is not None and network.std is not None:
        backbone = replace(backbone, normalisation=(network.mean, network.std))
    classifier = _classifier(network.module, backbone, size)
    return backbone, classifier, _fitting_names(_class_names(network, settings), classifier), photographs


@torch.no_grad()
def _classifier(module: nn.Module, backbone: Backbone, size: int) -> nn.Linear | None:
    """Return the layer that makes the logits from the embedding, where it is a linear one; tried, not guessed."""
    device = next(module.parameters()).device
    images = torch.linspace(-1, 1, size, device=device).expand(1, 3, size, size)
    last = [part for part in module.modules() if type(part) is nn.Linear and part.in_features == backbone.channels]
    logits = tensor_output(module(images))
    embedding = backbone.embed(images)
    for layer in reversed(last):
        outputs = layer(embedding)
        if outputs.shape == logits.shape and torch.allclose(outputs, logits, atol=1e-4, rtol=1e-4):
            return layer
    return None


def _class_names(network: Network, settings: Explain) -> list[str] | None:
    """Return the names of the classes of a network with the weights that timm or torchvision publishes."""
    if network.family != "torchvision":
        return network.class_names
    from torchvision import models

    published = models.get_model_weights(settings.network)
    if settings.weights == NO_WEIGHTS:
        return None
    if settings.weights is None:
        chosen = published["DEFAULT"]
    else:
        # The name of a published file ends with the beginning of its hash.
        with Path(settings.weights).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        chosen = next((each for each in published if each.url.endswith(f"-{digest[:8]}.pth")), None)
    names: list[str] | None = chosen and chosen.meta.get("categories")
    return names


def _fitting_names(names: list[str] | None, classifier: nn.Linear | None) -> list[str] | None:
    return names if names and classifier is not None and len(names) == classifier.out_features else None


def _with_classes(
    backbone: Backbone,
    bank: ConceptBank,
    classifier: nn.Linear | None,
    names: list[str] | None,
    middle: Tensor,
    settings: Explain,
) -> Any:
    """Return the concept model of a classifier; without one the classes are the concepts themselves."""
    if classifier is None:
        return _of_concepts(backbone, bank, middle, settings)
    head, residual = split_linear(classifier, bank.cavs, bank.intercepts)
    model: Any = ResidualCBM(PostHocCBM(backbone, bank, head), residual)
    banks = _random_banks(settings, bank, middle, lambda bank: split_linear(classifier, bank.cavs, bank.intercepts)[0])
    model.bottleneck.random_banks = model.random_banks = banks
    model.absent_values = _level(model, middle)
    model.class_names = names
    return model.eval()


@torch.no_grad()
def split_linear(classifier: nn.Linear, cavs: Tensor, intercepts: Tensor) -> tuple[nn.Linear, nn.Linear]:
    """Return a head on margins and a residual on embeddings whose logits add up to those of a classifier.

    The part of its weights in the span of the concept vectors is the head (by the pseudo-inverse); the rest is the
    residual.
    """
    weight = classifier.weight.double()
    bias = weight.new_zeros(len(weight)) if classifier.bias is None else classifier.bias.double()
    norms = cavs.to(weight).norm(dim=1)
    rows, offsets = cavs.to(weight) / norms[:, None], intercepts.to(weight) / norms
    # Directions that are all but the same would get huge weights of opposite signs.
    in_span = weight @ torch.linalg.pinv(rows, rtol=0.01)
    parts = (in_span, torch.zeros_like(bias)), (weight - in_span @ rows, bias - in_span @ offsets)
    layers = [make_linear(weight, bias, classifier.weight.dtype).train(classifier.training) for weight, bias in parts]
    return layers[0], layers[1]


def _of_concepts(backbone: Backbone, bank: ConceptBank, middle: Tensor, settings: Explain) -> PostHocCBM:
    """Return a model whose classes are its concepts, each of which only its own concept speaks for."""
    head = _identity(len(bank), bank.device)
    model = PostHocCBM(backbone, bank, head).eval()
    model.class_names = bank.names
    model.random_banks = _random_banks(settings, bank, middle, lambda _: head)
    # Texts have no images without them.
    model.absent_values = _level(model, middle) if middle.any() else None
    return model


@torch.no_grad()
def _level(model: PostHocCBM | ResidualCBM, middle: Tensor) -> Tensor:
    """Return the values of the mean embedding of images without the concepts, which are the mean of their values."""
    values: Tensor = model.concept_layer(middle[None])[0]
    return values


def _random_banks(
    settings: Explain, bank: ConceptBank, middle: Tensor, head_of: Callable[[ConceptBank], nn.Linear]
) -> tuple[RandomBank, ...]:
    seeds = range(settings.seed * 10_000, settings.seed * 10_000 + settings.random_banks)
    directions = (ConceptBank.random(len(bank), len(middle), seed=seed, mean=middle) for seed in seeds)
    return tuple(RandomBank(random.cavs, random.intercepts, head_of(random)) for random in directions)


def _identity(count: int, device: torch.device) -> nn.Linear:
    head = nn.utils.skip_init(nn.Linear, count, count, device=device)
    with torch.no_grad():
        head.weight.copy_(torch.eye(count))
        head.bias.zero_()
    return head


@torch.no_grad()
def _middle(settings: Explain, concepts: Path, backbone: Backbone, photographs: Photographs) -> Tensor:
    """Return the mean embedding of images without the concepts."""
    folders = find_concept_folders(concepts, "random")
    paths = [path for paths in folders.random_sets.values() for path in paths]
    paths = paths or [path for concept in folders.concepts for path in concept.negative or ()]
    chosen = paths[:: max(1, len(paths) // N_MIDDLE)][:N_MIDDLE]
    device = settings.place
    rows = [
        backbone.embed(photographs(Image.fromarray(load_pixels(path)))[None].to(device))
        for path in progress(chosen, "Images without the concepts", show=settings.progress)
    ]
    return torch.cat(rows).mean(0)


def _of_texts(settings: Explain, texts: list[str]) -> tuple[Any, Photographs]:
    """Return a model of texts, each of which is a concept and a class: what CLIP does without training."""
    built = build_model(settings.network)
    bank = ConceptBank.from_text(built.model, load_tokenizer(settings.network), texts)
    built.model.to(settings.place)
    model = _of_concepts(built.backbone, bank, torch.zeros(bank.cavs.shape[1]), settings)
    return model, usual_photographs(settings, built.backbone)


def usual_photographs(settings: Explain, model: Backbone | PostHocCBM) -> Photographs:
    """Return how a backbone, or a concept model of one, takes photographs, unless the options say otherwise."""
    mean, std = settings.normalisation["mean"], settings.normalisation["std"]
    normalisation = model.normalisation if mean is None or std is None else (mean, std)
    if settings.normalisation["unnormalised"]:
        normalisation = (0.0,) * 3, (1.0,) * 3
    if normalisation is None:
        raise ValueError(
            "How the model wants its images is not known, and with a wrong normalisation its concepts are those of "
            "another one. Give --mean and --std, or say --unnormalised if it takes images in [0, 1]."
        )
    return Photographs(settings.image_size or model.image_size or 224, *map(tuple, normalisation))
