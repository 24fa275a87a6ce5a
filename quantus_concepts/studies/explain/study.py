"""The command `explain`: a concept model, and a table, a page and pictures of what it says of images."""

from __future__ import annotations

import io
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.transforms.v2.functional import center_crop, pil_to_tensor, resize

from captum_concepts import Backbone, ConceptBank, PostHocCBM, ResidualCBM, show_concepts
from captum_concepts._support.images import load_pixels
from captum_concepts._support.progress import progress
from captum_concepts.backbones.named import build_backbone, check_source
from captum_concepts.bank.folders import find_concept_folders
from captum_concepts.models.random_banks import RandomBank
from captum_concepts.models.residual import split_linear
from captum_concepts.pictures.views import ConceptViews, class_labels, concept_views
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.explorer.explore import explore
from quantus_concepts.score_tables import to_markdown
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._models.loading import KeptImages, sample_loader
from quantus_concepts.studies._models.networks import Network, cut_network, load_network
from quantus_concepts.studies._models.training import SmallResNet, folded, train
from quantus_concepts.studies.explain.options import ExplainOptions

PAGE, TABLE = "explain.html", "results.csv"
#: Of painted birds.
N_SHOWN, SIZE, N_CLASSES, N_CONCEPTS = 6, 64, 6, 18


def explain(options: ExplainOptions) -> str:
    """Write the page, the pictures and the table; return the table and the folder."""
    with OutputFolder("explain", options.out, options.identity(), overwrite=options.overwrite) as folder:
        truth: dict[str, Any] = {}
        if options.image:
            model, photographs = concept_model(options)
            pictures = torch.stack([photographs.read(path) for path in options.image])
            mean, std = (torch.tensor(each)[:, None, None] for each in (photographs.mean, photographs.std))
            names, images = [path.stem for path in options.image], (pictures - mean) / std
        else:
            model, images, truth = _painted(options)
            names, pictures = [f"bird {i}" for i in range(len(images))], images
        views = concept_views(model, images, options.batch_size)
        classes = class_labels(getattr(model, "class_names", None), _logits(views).shape[1])
        table = concept_table(views, names, classes, _p_values(model))
        folder.write_text(TABLE, table.to_csv(index=False))
        shared: dict[str, Any] = {"class_names": classes, "batch_size": options.batch_size}
        page = explore(model, images, pictures=pictures, title="Concepts of the images", **shared, **truth)
        folder.write_text(PAGE, page.html)
        for i, name in enumerate(names):
            own = {key: value[i : i + 1] for key, value in truth.items()}
            figure, _ = show_concepts(
                model, images[i : i + 1], options.top, pictures=pictures[i : i + 1], **shared, **own
            )
            held = io.BytesIO()
            figure.savefig(held, format="png", dpi=110)
            folder.write_bytes(f"{i + 1:02d} {name.replace('/', '_')}.png", held.getvalue())
    shown = table.groupby("image", sort=False).head(options.top)
    return "\n".join(
        [to_markdown(_readable(shown).reset_index(drop=True)), "", f"Correct concepts on {PAGE}.", str(folder.path)]
    )


def concept_table(views: ConceptViews, names: list[str], classes: list[str], p_values: list[float]) -> pd.DataFrame:
    """Return a row for each image and concept, the largest contribution first."""
    logits, parts = _logits(views), views.contributions
    assert parts is not None
    shares = logits.softmax(1).amax(1)
    rows = []
    for i, name in enumerate(names):
        for j in parts[i].abs().argsort(descending=True, stable=True).tolist():
            row = {
                "image": name,
                "class": classes[int(logits[i].argmax())],
                "probability": shares[i].item(),
                "concept": views.names[j],
                "value": views.values[i, j].item(),
                "p_value": p_values[j],
                "contribution": parts[i, j].item(),
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

    shown = table[["image", "class", "concept", "value", "p_value", "contribution"]].copy()
    for what in ("value", "contribution"):
        if table[f"random_{what}_low"].notna().all():
            shown[f"random {what}s"] = spread(what)
    return shown.dropna(axis="columns", how="all")


def _logits(views: ConceptViews) -> Tensor:
    assert views.logits is not None
    return views.logits


def _p_values(model: Any) -> list[float]:
    found: list[float] = model.concept_layer.p_values.tolist()
    return found


def _painted(options: ExplainOptions) -> tuple[Any, Tensor, dict[str, Any]]:
    """Return a post-hoc model of a small network trained on painted birds, other birds, and their truth."""
    settings: dict[str, Any] = {"image_size": SIZE, "n_classes": N_CLASSES, "n_concepts": N_CONCEPTS}
    birds = KeptImages(PaintedBirds(options.n_train, "train", seed=options.seed, **settings))
    network = SmallResNet(N_CLASSES, seed=options.seed)
    train(network, folded(birds.images), birds.labels, seed=options.seed, display_progressbar=options.progress)
    backbone = Backbone(network.features, "mean", None, network.channels)
    model = PostHocCBM.fit(
        backbone,
        sample_loader(birds, options.batch_size),
        names=birds.concept_names,
        class_names=birds.class_names,
        random_banks=options.random_banks,
        seed=options.seed,
    ).eval()
    others = KeptImages(PaintedBirds(N_SHOWN, "test", seed=options.seed, **settings))
    truth = {"labels": others.labels, "concept_labels": others.concept_labels}
    return model, others.images.float() / 255, truth


#: Images of no concept from which the middle of the embeddings is taken, through which random directions go.
N_MIDDLE = 50
LIBRARIES = ("torchvision", "timm", "open_clip", "transformers")


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
        mean, std = (torch.tensor(each)[:, None, None] for each in (self.mean, self.std))
        return (self.picture(image) - mean) / std

    def read(self, path: Path) -> Tensor:
        """Return the picture of a file."""
        return self.picture(Image.fromarray(load_pixels(path)))


def concept_model(options: ExplainOptions) -> tuple[Any, Photographs]:
    """Return the concept model of the options, and how it takes photographs."""
    if options.text:
        return _of_texts(options)
    if options.cbm is not None and options.trains:
        model = PostHocCBM.load(options.cbm)
        return model.to(options.torch_device()).eval(), _usual(options, model.normalisation)
    backbone, classifier, names, photographs = _backbone(options)
    if options.cbm is not None:
        return PostHocCBM.load(options.cbm, backbone).eval(), photographs
    assert options.concepts is not None
    bank = ConceptBank.from_folders(
        backbone,
        options.concepts,
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
    if options.backbone_name.partition(":")[0] in LIBRARIES:
        backbone = build_backbone(options.backbone_name)
        backbone.features.to(device)
        return backbone, None, None, _usual(options, backbone.normalisation)
    network = load_network(options.backbone_name, options.weights, **options.normalisation)
    size = options.image_size or network.image_size or 224
    photographs = Photographs(size, network.mean or (0.0,) * 3, network.std or (1.0,) * 3)
    network.module.to(device)
    blank = torch.zeros(1, 3, size, size, device=device)
    backbone, _ = cut_network(network, options.layer, blank)
    if network.mean is not None and network.std is not None:
        backbone = replace(backbone, normalisation=(network.mean, network.std))
    classifier = _classifier(network.module, backbone, blank + torch.linspace(-1, 1, size, device=device))
    return backbone, classifier, _class_names(network, classifier, options), photographs


@torch.no_grad()
def _classifier(module: nn.Module, backbone: Backbone, images: Tensor) -> nn.Linear | None:
    """Return the layer that makes the logits from the embedding, where it is a linear one; tried, not guessed."""
    last = [part for part in module.modules() if type(part) is nn.Linear and part.in_features == backbone.channels]
    logits = module(images)
    embedding = backbone.embed(images)
    for layer in reversed(last):
        found = layer(embedding)
        if found.shape == getattr(logits, "shape", None) and torch.allclose(found, logits, atol=1e-4, rtol=1e-4):
            return layer
    return None


def _class_names(network: Network, classifier: nn.Linear | None, options: ExplainOptions) -> list[str] | None:
    """Return the names of ImageNet's classes for a network of torchvision with its own weights."""
    if network.family != "torchvision" or options.weights is not None or classifier is None:
        return None
    from torchvision import models

    names = models.get_model_weights(options.backbone_name)["DEFAULT"].meta.get("categories", [])
    return list(names) if len(names) == classifier.out_features else None


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
    drawn = []
    for number in range(options.random_banks):
        random = ConceptBank.random(len(bank), len(middle), seed=_seed(options, number), mean=middle)
        head, _ = split_linear(classifier, random.cavs, random.intercepts)
        drawn.append(RandomBank(random.cavs, random.intercepts, head))
    model.bottleneck.random_banks = model.random_banks = tuple(drawn)
    model.class_names = names
    return model.eval()


def _of_concepts(backbone: Backbone, bank: ConceptBank, middle: Tensor, options: ExplainOptions) -> PostHocCBM:
    """Return a model whose classes are its concepts, each of which only its own concept speaks for."""
    head = _identity(len(bank), bank.device)
    model = PostHocCBM(backbone, bank, head).eval()
    model.class_names = bank.names
    model.random_banks = tuple(
        RandomBank(random.cavs, random.intercepts, head)
        for number in range(options.random_banks)
        for random in [ConceptBank.random(len(bank), len(middle), seed=_seed(options, number), mean=middle)]
    )
    return model


def _identity(count: int, device: torch.device) -> nn.Linear:
    head = nn.utils.skip_init(nn.Linear, count, count, device=device)
    with torch.no_grad():
        head.weight.copy_(torch.eye(count))
        head.bias.zero_()
    return head


def _seed(options: ExplainOptions, number: int) -> int:
    return options.seed * 10_000 + number


@torch.no_grad()
def _middle(options: ExplainOptions, backbone: Backbone, photographs: Photographs) -> Tensor:
    """Return the mean embedding of images without the concepts."""
    assert options.concepts is not None
    found = find_concept_folders(options.concepts, "random")
    without = [path for each in found.random_sets.values() for path in each]
    without = without or [path for each in found.concepts for path in each.negative or ()]
    chosen = without[:: max(1, len(without) // N_MIDDLE)][:N_MIDDLE]
    device = options.torch_device()
    rows = [
        backbone.embed(photographs(Image.fromarray(load_pixels(path)))[None].to(device))
        for path in progress(chosen, "Images without the concepts", show=options.progress)
    ]
    return torch.cat(rows).mean(0)


def _of_texts(options: ExplainOptions) -> tuple[Any, Photographs]:
    """Return a model of texts, each of which is a concept and a class: what CLIP does without training."""
    import open_clip

    assert options.text is not None
    _, name, weights = check_source("--backbone", options.backbone_name)
    backbone = build_backbone(options.backbone_name)
    with torch.random.fork_rng(devices=[]):
        texts = open_clip.create_model(name, pretrained=weights)
    bank = ConceptBank.from_text(texts, open_clip.get_tokenizer(name), options.text).to(torch.device("cpu"))
    backbone.features.to(options.torch_device())
    model = _of_concepts(backbone, bank, torch.zeros(bank.cavs.shape[1]), options)
    return model, _usual(options, backbone.normalisation)


def _usual(options: ExplainOptions, normalisation: Any) -> Photographs:
    said = options.normalisation
    mean, std = normalisation if normalisation is not None else ((0.0,) * 3, (1.0,) * 3)
    if said["mean"] is not None:
        mean, std = said["mean"], said["std"]
    return Photographs(options.image_size or 224, tuple(mean), tuple(std))
