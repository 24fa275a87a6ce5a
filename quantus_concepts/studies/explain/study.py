"""The command `explain`: a table, a page and pictures of what a concept model says of images."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd
import torch
from torch import Tensor

from captum_concepts import Backbone, PostHocCBM, show_concepts
from captum_concepts.pictures.views import ConceptViews, class_labels, concept_views
from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.explorer.explore import explore
from quantus_concepts.score_tables import to_markdown
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._models.loading import KeptImages, sample_loader
from quantus_concepts.studies._models.training import SmallResNet, folded, train
from quantus_concepts.studies.explain.models import concept_model
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
