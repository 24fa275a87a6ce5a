"""The command `explain`: a concept model, and a table, a page and pictures of what it says of images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from captum_concepts._support.files import printable
from captum_concepts._support.images import load_pixels
from captum_concepts._support.progress import progress
from captum_concepts._support.running import tensor_output
from captum_concepts.backbones.named import build_model, load_tokenizer
from captum_concepts.bank.folders import find_concept_folders
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.models.residual import split_linear
from captum_concepts.pictures.views import ClassViews, class_labels, concept_views
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.explorer.explore import explore
from quantus_concepts.score_tables import to_markdown
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.results import WORKBOOK, frame_grid, write_csv, write_workbook
from quantus_concepts.studies._kit.run import warnings_as_notes
from quantus_concepts.studies._models.loading import KeptImages, sample_loader
from quantus_concepts.studies._models.networks import Network, cut_network, load_network
from quantus_concepts.studies._models.training import SmallResNet, fold_images, train
from quantus_concepts.studies.explain.options import ExplainOptions

PAGE, TABLE = "explain.html", "results.csv"
#: Painted birds: images, pixels, classes, concepts.
N_SHOWN, SIZE, N_CLASSES, N_CONCEPTS = 6, 64, 6, 18


def explain(options: ExplainOptions) -> str:
    """Write the page, the pictures and the table; return the table and the folder."""
    # Where pyarrow is installed pandas keeps texts in it, and names of files may hold halves of characters.
    texts = pd.option_context("mode.string_storage", "python")
    place = OutputFolder("explain", options.out, options.identity(), overwrite=options.overwrite)
    with texts, place as folder, warnings_as_notes() as notes:
        truth: dict[str, Any] = {}
        if options.image:
            model, photographs = concept_model(options)
            pictures = torch.stack([photographs.read(path) for path in options.image])
            names, images = image_names(options.image), photographs.normalised(pictures)
        else:
            model, images, truth = _painted(options)
            names, pictures = [f"bird {i}" for i in range(len(images))], images
        views = concept_views(model, images, options.batch_size)
        classes = class_labels(getattr(model, "class_names", None), views.logits.shape[1])
        table = concept_table(views, names, classes, model.concept_layer.p_values.tolist())
        top = table.groupby(table.index // len(views.names)).head(options.top)
        printed = to_markdown(_readable(top).reset_index(drop=True))
        with folder.file(TABLE) as path:
            write_csv(table, path)
        if options.xlsx:
            with folder.file(WORKBOOK) as path:
                write_workbook([("Concepts of the images", frame_grid(top))], path)
        shared: dict[str, Any] = {"class_names": classes, "batch_size": options.batch_size}
        page = explore(model, images, pictures=pictures, title="Concepts of the images", **shared, **truth)
        folder.write_text(PAGE, page.html)
        for i, name in enumerate(names):
            truth_of_image = {key: value[i : i + 1] for key, value in truth.items()}
            figure, _ = show_concepts(
                model, images[i : i + 1], options.top, pictures=pictures[i : i + 1], **shared, **truth_of_image
            )
            with folder.file(f"{i + 1:02d} {Path(name).name}.png") as path:
                figure.savefig(path, format="png", dpi=110)
    for note in notes:
        typer.echo(f"Note: {printable(note)}", err=True)
    return "\n".join([printed, f"Correct concepts on {PAGE}.", str(folder.path)])


def image_names(paths: list[Path]) -> list[str]:
    """Return the names of files; their paths where two have the same name."""
    names = [path.stem for path in paths]
    return names if len({*names}) == len(names) else [str(path) for path in paths]


def concept_table(views: ClassViews, names: list[str], classes: list[str], p_values: list[float]) -> pd.DataFrame:
    """Return a row for each image and concept, the largest contribution first."""
    parts = views.contributions
    shares = views.logits.softmax(1).amax(1)
    rows = []
    for i, name in enumerate(names):
        # If the classes are the concepts, only one has a contribution: the others are ordered by value.
        order = np.lexsort((-views.values[i].numpy(), -parts[i].abs().numpy()))
        for j in order.tolist():
            row = {
                "image": name,
                "class": classes[int(views.logits[i].argmax())],
                "probability": shares[i].item(),
                "concept": views.names[j],
                "value": views.values[i, j].item(),
                "p_value": p_values[j],
                "contribution": parts[i, j].item() + 0.0,
            }
            for what in ("value", "contribution"):
                ends: Tensor | None = getattr(views, f"random_{what}s")
                low, high = (torch.nan, torch.nan) if ends is None else ends[i].tolist()
                row |= {f"random_{what}_low": low, f"random_{what}_high": high}
            rows.append(row)
    return pd.DataFrame(rows)


def _readable(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table that is printed: ranges of random directions in one column each."""

    def spread(what: str) -> pd.Series:
        low, high = table[f"random_{what}_low"], table[f"random_{what}_high"]
        return low.map("{:+.2f}".format) + " to " + high.map("{:+.2f}".format)

    printed = table[["image", "class", "concept", "value", "p_value", "contribution"]].copy()
    for what in ("value", "contribution"):
        if table[f"random_{what}_low"].notna().all():
            printed[f"random {what}s"] = spread(what)
    return printed.dropna(axis="columns", how="all")


def _painted(options: ExplainOptions) -> tuple[Any, Tensor, dict[str, Any]]:
    """Return a post-hoc model of a small network trained on painted birds, other birds, and their truth."""
    settings: dict[str, Any] = {"image_size": SIZE, "n_classes": N_CLASSES, "n_concepts": N_CONCEPTS}
    birds = KeptImages(PaintedBirds(options.n_train, "train", seed=options.seed, **settings))
    network = SmallResNet(N_CLASSES, seed=options.seed)
    train(network, fold_images(birds.images), birds.labels, seed=options.seed, display_progressbar=options.progress)
    backbone = Backbone(network.features, "mean", None, network.channels)
    model = PostHocCBM.fit(
        backbone,
        sample_loader(birds, options.batch_size),
        names=birds.concept_names,
        class_names=birds.class_names,
        random_banks=options.random_banks,
        seed=options.seed,
    ).eval()
    pictured = KeptImages(PaintedBirds(N_SHOWN, "test", seed=options.seed, **settings))
    truth = {"labels": pictured.labels, "concept_labels": pictured.concept_labels}
    return model, pictured.images.float() / 255, truth


#: Images of no concept from which the middle of the embeddings is taken, through which random directions go.
N_MIDDLE = 50


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


def concept_model(options: ExplainOptions) -> tuple[Any, Photographs]:
    """Return the concept model of the options, and how it takes photographs."""
    if options.text:
        return _of_texts(options, options.text)
    if options.cbm is not None and options.trains:
        model = PostHocCBM.load(options.cbm)
        return model.to(options.torch_device()).eval(), usual_photographs(options, model)
    backbone, classifier, names, photographs = _backbone(options)
    if options.cbm is not None:
        return PostHocCBM.load(options.cbm, backbone).eval(), photographs
    bank = ConceptBank.from_folders(
        backbone,
        options.concept_folder,
        transform=photographs,
        batch_size=options.batch_size,
        seed=options.seed,
        display_progressbar=options.progress,
    )
    middle = _middle(options, backbone, photographs)
    return _with_classes(backbone, bank, classifier, names, middle, options), photographs


def _backbone(options: ExplainOptions) -> tuple[Backbone, nn.Linear | None, list[str] | None, Photographs]:
    """Return the network cut where its maps end, its classifier, the names of its classes, and its images."""
    device = options.torch_device()
    if options.library:
        built = build_model(options.backbone_name)
        built.model.to(device)
        photographs = usual_photographs(options, built.backbone)
        classifier = _classifier(built.model, built.backbone, photographs.size) if options.classifies else None
        return built.backbone, classifier, _fitting_names(built.class_names, classifier), photographs
    network = load_network(options.backbone_name, options.weights, **options.normalisation)
    size = options.image_size or network.image_size or 224
    photographs = Photographs(size, network.mean or (0.0,) * 3, network.std or (1.0,) * 3)
    network.module.to(device)
    backbone, _ = cut_network(network, options.layer, torch.zeros(1, 3, size, size, device=device))
    if network.mean is not None and network.std is not None:
        backbone = replace(backbone, normalisation=(network.mean, network.std))
    classifier = _classifier(network.module, backbone, size)
    return backbone, classifier, _fitting_names(_class_names(network, options), classifier), photographs


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


def _class_names(network: Network, options: ExplainOptions) -> list[str] | None:
    """Return the names of ImageNet's classes for a network of torchvision with its own weights."""
    if network.family != "torchvision" or options.weights is not None:
        return None
    from torchvision import models

    names: list[str] | None = models.get_model_weights(options.backbone_name)["DEFAULT"].meta.get("categories")
    return names


def _fitting_names(names: list[str] | None, classifier: nn.Linear | None) -> list[str] | None:
    return names if names and classifier is not None and len(names) == classifier.out_features else None


def _with_classes(
    backbone: Backbone,
    bank: ConceptBank,
    classifier: nn.Linear | None,
    names: list[str] | None,
    middle: Tensor,
    options: ExplainOptions,
) -> Any:
    """Return the concept model of a classifier; without one the classes are the concepts themselves."""
    if classifier is None:
        return _of_concepts(backbone, bank, middle, options)
    model: Any = ResidualCBM.of_classifier(backbone, bank, classifier)
    banks = _random_banks(options, bank, middle, lambda bank: split_linear(classifier, bank.cavs, bank.intercepts)[0])
    model.bottleneck.random_banks = model.random_banks = banks
    model.class_names = names
    return model.eval()


def _of_concepts(backbone: Backbone, bank: ConceptBank, middle: Tensor, options: ExplainOptions) -> PostHocCBM:
    """Return a model whose classes are its concepts, each of which only its own concept speaks for."""
    head = _identity(len(bank), bank.device)
    model = PostHocCBM(backbone, bank, head).eval()
    model.class_names = bank.names
    model.random_banks = _random_banks(options, bank, middle, lambda _: head)
    return model


def _random_banks(
    options: ExplainOptions, bank: ConceptBank, middle: Tensor, head_of: Callable[[ConceptBank], nn.Linear]
) -> tuple[RandomBank, ...]:
    seeds = range(options.seed * 10_000, options.seed * 10_000 + options.random_banks)
    directions = (ConceptBank.random(len(bank), len(middle), seed=seed, mean=middle) for seed in seeds)
    return tuple(RandomBank(random.cavs, random.intercepts, head_of(random)) for random in directions)


def _identity(count: int, device: torch.device) -> nn.Linear:
    head = nn.utils.skip_init(nn.Linear, count, count, device=device)
    with torch.no_grad():
        head.weight.copy_(torch.eye(count))
        head.bias.zero_()
    return head


@torch.no_grad()
def _middle(options: ExplainOptions, backbone: Backbone, photographs: Photographs) -> Tensor:
    """Return the mean embedding of images without the concepts."""
    folders = find_concept_folders(options.concept_folder, "random")
    paths = [path for paths in folders.random_sets.values() for path in paths]
    paths = paths or [path for concept in folders.concepts for path in concept.negative or ()]
    chosen = paths[:: max(1, len(paths) // N_MIDDLE)][:N_MIDDLE]
    device = options.torch_device()
    rows = [
        backbone.embed(photographs(Image.fromarray(load_pixels(path)))[None].to(device))
        for path in progress(chosen, "Images without the concepts", show=options.progress)
    ]
    return torch.cat(rows).mean(0)


def _of_texts(options: ExplainOptions, texts: list[str]) -> tuple[Any, Photographs]:
    """Return a model of texts, each of which is a concept and a class: what CLIP does without training."""
    built = build_model(options.backbone_name)
    bank = ConceptBank.from_text(built.model, load_tokenizer(options.backbone_name), texts)
    built.model.to(options.torch_device())
    model = _of_concepts(built.backbone, bank, torch.zeros(bank.cavs.shape[1]), options)
    return model, usual_photographs(options, built.backbone)


def usual_photographs(options: ExplainOptions, model: Any) -> Photographs:
    """Return how a backbone, or a concept model of one, takes photographs, unless the options say otherwise."""
    mean, std, unnormalised = (options.normalisation[name] for name in ("mean", "std", "unnormalised"))
    normalisation = model.normalisation if mean is None else (mean, std)
    if unnormalised:
        normalisation = (0.0,) * 3, (1.0,) * 3
    if normalisation is None:
        raise ValueError(
            "How the model wants its images is not known, and with a wrong normalisation its concepts are those of "
            "another one. Give --mean and --std, or say --unnormalised if it takes images in [0, 1]."
        )
    return Photographs(options.image_size or model.image_size or 224, *map(tuple, normalisation))
