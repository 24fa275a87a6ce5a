"""Bad input to banks, concept models and backbones, one argument at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from captum.concept import CAV, Concept
from torch import Tensor, nn

from captum_concepts import (
    Backbone,
    BottleneckCBM,
    ConceptBank,
    LayerFeatures,
    PostHocCBM,
    ResidualCBM,
    embed,
    fit_elastic_net,
    fit_logistic,
    fit_residual,
    from_open_clip,
    from_pyc,
    from_timm,
    from_torchvision,
    from_transformers,
    prune,
)
from refusals import Refusal
from spoiling import (
    NAN,
    NO_ARRAY,
    NO_MODULE,
    Bad,
    Table,
    spoilt,
)


class Tower(nn.Module):
    """A text encoder that may give anything."""

    def __init__(self, given: Any = None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.given = given

    def encode_text(self, tokens: Tensor) -> Any:
        return torch.ones(len(tokens), 2) if self.given is None else self.given


def trained_cav(weights: Any = ((1.0, 0.0), (-1.0, 0.0))) -> CAV:
    concepts = [Concept(0, "red", None), Concept(1, "blue", None)]
    return CAV(concepts, "layer", {"weights": torch.tensor(weights), "classes": [0, 1]})


def tokens(texts: list[str]) -> Tensor:
    return torch.zeros(len(texts), 3, dtype=torch.int64)


BANK = ConceptBank([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], names=["red", "blue", "long"])
FEATURES, PRESENT = np.arange(16.0).reshape(8, 2) % 5, np.eye(2, dtype=int)[np.arange(8) % 2]
IMAGES = torch.rand(8, 3, 8, 8)
BACKBONE = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Sigmoid()).eval()
CBM = PostHocCBM(BACKBONE, BANK, nn.Linear(3, 2)).eval()
BOTTLENECK = BottleneckCBM(BACKBONE, nn.Linear(2, 3), nn.Linear(3, 2)).eval()
RESIDUAL = ResidualCBM(CBM, nn.Linear(2, 2)).eval()
CUT = Backbone(BACKBONE, "mean", None, 2)
NET = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()
CLASSES = torch.arange(8) % 2
LOADER = [(IMAGES, CLASSES, torch.from_numpy(PRESENT))]

NO_IMAGES: Bad = {"None": None, "text": "birds.png", "a list": [[1.0]], "of rank 3": IMAGES[0]}
NO_DEVICE: Bad = {"text": "gpu number one", "a list": ["cpu"], "a fraction": 0.5}
NO_LOADER: Bad = {
    "of numbers": [1, 2],
    "of texts": [("a", "b", "c")],
    "of images of text": [(np.array(["a"]), CLASSES, CLASSES)],
    "of None": [None],
}
NO_FIT: dict[str, Bad] = {
    "labels": {"of one class": CLASSES * 0, "negative": CLASSES - 1, "halves": CLASSES / 2},
    "n_classes": {"too few": 1},
}
#: Where None stands for the one that is named.
NO_BACKBONE: Bad = {what: value for what, value in NO_MODULE.items() if value is not None}
NO_SOURCE: Bad = {"no model": "timm", "unknown": "keras:resnet50", "no weights": "open_clip:ViT-B-32"}
NO_REPOSITORY: Bad = {"too deep": "a/b/c", "with a space": "my birds"}
NO_CONCEPTS: Bad = {"text": "red", "None in it": [None], "NaN": [NAN], "too large": [3], "nested": [[[0]]]}


NO_INPUTS: Bad = {"None": None, "text": "birds.png", "of rank 1": IMAGES[0, 0, 0]}
ONE_CONCEPT: Bad = {
    **NO_CONCEPTS,
    "text": "rde",
    "unknown": ["rde"],
    "twice the same": [1, 1],
    "empty": torch.zeros(0, dtype=torch.int64),
}
NO_LEVELS: Bad = {
    "a number": 1.0,
    "text": ("a", "b"),
    "one": [[0.0] * 3],
    "NaN": np.full((2, 3), NAN),
    "of two concepts": np.zeros((2, 2)),
    "descending": np.array([[1.0] * 3, [0.0] * 3]),
}
INTERVENTION = {"inputs": IMAGES, "concepts": [0, 1], "values": [0, 1], "levels": (np.zeros(3), np.ones(3))}


def stored(model: Any) -> dict[str, dict[str, Refusal]]:
    """Bad input to how a model is written and read, by method."""
    hub, file = {"repo_id": "someone/birds"}, {"path": "cbm.safetensors"}
    return {
        "save": spoilt(model.save, file, backbone=NO_SOURCE),
        "load": spoilt(model.load, file, features=NO_BACKBONE),
        "push_to_hub": spoilt(model.push_to_hub, hub, repo_id=NO_REPOSITORY, backbone=NO_SOURCE),
        "from_hub": spoilt(model.from_hub, hub, repo_id=NO_REPOSITORY, features=NO_BACKBONE),
    }


STORED = {"PostHocCBM": CBM, "ResidualCBM": RESIDUAL}


def intervention(model: Any) -> dict[str, Refusal]:
    """Return the cases of `intervene`."""
    return spoilt(
        model.intervene,
        INTERVENTION,
        inputs=NO_INPUTS,
        concepts=ONE_CONCEPT,
        values={"None": None, "text": "a", "NaN": [NAN, 0.0], "one too few": [1], "no labels": [2, 0]},
        levels=NO_LEVELS,
    )


def levels(model: Any) -> dict[str, Refusal]:
    """Return the cases of `value_levels`."""
    loaders = {**NO_LOADER, "empty": [], "with NaN": [(IMAGES * NAN,)]}
    return spoilt(model.value_levels, {}, loader=loaders)


HEADS: Bad = {"of other concepts": nn.Linear(4, 2)}
TABLE: Table = {
    "ConceptBank": spoilt(ConceptBank, {"cavs": np.eye(3)}, cavs={"bools": np.eye(3, dtype=bool)}),
    # Below the working directory, which is empty, so that a good call would stop at `root` and name that.
    "ConceptBank.from_folders": spoilt(
        ConceptBank.from_folders,
        {"backbone": BACKBONE, "root": "."},
        backbone=NO_MODULE,
        root={"without folders": "."},
        random={"None": None, "a number": 3, "empty": "", "a path": "../random"},
    ),
    "ConceptBank.join": spoilt(ConceptBank.join, {"banks": [BANK]}, banks={"of one name": [BANK, BANK]}),
    "ConceptBank.from_text": spoilt(
        ConceptBank.from_text,
        {"model": Tower(), "tokenizer": tokens, "prompts": ["a", "b"]},
        model={"None": None, "text": "ViT-B-32", "a class": Tower},
        tokenizer={"that gives no tensor": lambda texts: texts},
        names={"a number": 3, "text": "ab", "twice the same": ["a", "a"]},
        templates={"without a place": ["a photo"]},
    )
    | {
        f"model that gives {what}": Refusal(
            lambda given=given: ConceptBank.from_text(Tower(given), tokens, ["a", "b"]), "`model`"
        )
        for what, given in {"a text": "a", "one row": torch.ones(1, 2), "rank 1": torch.ones(2)}.items()
    },
    "ConceptBank.from_captum": spoilt(
        ConceptBank.from_captum,
        {"cavs": trained_cav()},
        cavs={"text": "cavs.pt", "a number": 3, "None": None},
        concept={"None": None, "a fraction": 0.5, "a bool": True, "a list": [0], "negative": -1},
        layer={"unknown": "head"},
    ),
    "ConceptBank.random": spoilt(
        ConceptBank.random,
        {"n_concepts": 2, "n_features": 3},
        mean={"text": ["a", "b", "c"], "a number": 1.0, "NaN": [NAN, 0, 0], "of rank 2": np.eye(3)},
    ),
    "ConceptBank.index": {
        "name: None": Refusal(lambda: BANK.index(None), "`name`"),  # type: ignore[arg-type]
        "name: a list": Refusal(lambda: BANK.index(["red"]), "`name`"),  # type: ignore[arg-type]
        "name: unknown": Refusal(lambda: BANK.index("rde"), "`name`"),
    },
    "ConceptBank.select": spoilt(
        BANK.select,
        {},
        concepts={"None": None, "a bool": True, "a fraction": 1.5, "of rank 2": np.array([[0, 1]]), "NaN": [NAN]},
    ),
    "ConceptBank.rename": spoilt(BANK.rename, {}, mapping={"unknown": {"rde": "a"}, "to one name": {"red": "blue"}}),
    "ConceptBank.to": spoilt(BANK.to, {}, dtype={"integers": torch.int64, "complex": torch.complex64}),
    "ConceptBank.save": {
        "settings: with what JSON cannot": Refusal(
            lambda: ConceptBank(np.eye(2), settings={"a": object()}).save("bank"),  # type: ignore[dict-item]
            "`settings`",
        )
    },
    "PostHocCBM": spoilt(
        PostHocCBM,
        {"features": BACKBONE, "bank": BANK, "head": nn.Linear(3, 2)},
        features=NO_MODULE,
        head={"of other concepts": nn.Linear(4, 2)},
    ),
    "PostHocCBM.fit": spoilt(
        PostHocCBM.fit,
        {"features": BACKBONE, "loader": LOADER, "n_pos": 2, "n_neg": 2, "min_images": 1},
        features=NO_MODULE,
        bank={"beside numbers of images": BANK},
        loader={**NO_LOADER, "of bool classes": [(IMAGES, CLASSES > 0, torch.from_numpy(PRESENT))]},
        concept_labels={**NO_ARRAY, "of rank 1": PRESENT[:, 0], "halves": PRESENT / 2, "one too few": PRESENT[:7]},
        names={"a number": 3, "text": "ab", "one too few": ["a"], "twice the same": ["a", "a"]},
        head={"that gives no module": lambda u, y: u},
        n_classes={"too few": 1},
        concepts={"a number": 2, "unknown": "concept 9", "a pattern of none": "wing*", "nothing": []},
    ),
    **{f"{name}.{method}": cases for name, model in STORED.items() for method, cases in stored(model).items()},
    "PostHocCBM.save": stored(CBM)["save"]
    | {
        "head: of another kind": Refusal(
            lambda: PostHocCBM(BACKBONE, BANK, nn.Bilinear(3, 3, 2)).save("cbm.safetensors"), "`head`"
        )
    },
    "ResidualCBM.save": stored(RESIDUAL)["save"]
    | {
        "residual: of another kind": Refusal(
            lambda: ResidualCBM(CBM, nn.Bilinear(2, 2, 2)).save("cbm.safetensors"), "`residual`"
        ),
        "bottleneck: of another kind": Refusal(
            lambda: ResidualCBM(BOTTLENECK, nn.Linear(2, 2)).save("cbm.safetensors"), "a PostHocCBM but got Bottleneck"
        ),
    },
    "PostHocCBM.concept_maps": spoilt(CBM.concept_maps, {"images": IMAGES}, concepts={**NO_CONCEPTS, "a number": 3.5}),
    "PostHocCBM.maps_from_features": spoilt(
        CBM.maps_from_features,
        {"features": BACKBONE(IMAGES)},
        features={"None": None, "text": "a", "of another width": IMAGES, "of rank 3": IMAGES[0]},
        concepts=NO_CONCEPTS,
    ),
    "PostHocCBM.values_from_features": spoilt(
        CBM.values_from_features,
        {},
        features={"None": None, "text": "a", "of another width": IMAGES, "of rank 3": IMAGES[0]},
    ),
    "BottleneckCBM": spoilt(
        BottleneckCBM,
        {"features": BACKBONE, "concept_layer": nn.Linear(2, 3), "head": nn.Linear(3, 2)},
        features=NO_MODULE,
        concept_layer={"with a sigmoid": nn.Sequential(nn.Linear(2, 3), nn.Sigmoid())},
        head={"of other concepts": nn.Linear(4, 2)},
    ),
    "BottleneckCBM.concept_maps": spoilt(BOTTLENECK.concept_maps, {"images": IMAGES}, concepts=NO_CONCEPTS),
    **{
        f"{name}.{method}": cases
        for name, model in (("PostHocCBM", CBM), ("BottleneckCBM", BOTTLENECK), ("ResidualCBM", RESIDUAL))
        for method, cases in (
            ("intervene", intervention(model)),
            ("value_levels", levels(model)),
            ("with_head", spoilt(model.with_head, {}, head=HEADS)),
        )
    },
    "ResidualCBM": spoilt(
        ResidualCBM,
        {"bottleneck": CBM, "residual": nn.Linear(2, 2)},
        bottleneck={"with a residual": RESIDUAL},
        residual={"of another width": nn.Linear(3, 2), "of one class": nn.Linear(2, 1)},
    ),
    "ResidualCBM.of_classifier": spoilt(
        ResidualCBM.of_classifier,
        {"features": NET, "bank": CBM.bank, "classifier": nn.Linear(CBM.bank.cavs.shape[1], 4)},
        features=NO_MODULE,
        classifier={"of another width": nn.Linear(9, 4)},
    ),
    "ResidualCBM.contributions": spoilt(RESIDUAL.contributions, {}, inputs=NO_INPUTS),
    "fit_residual": spoilt(
        fit_residual,
        {"cbm": CBM, "loader": LOADER},
        cbm={"with a residual": RESIDUAL},
        loader={**NO_LOADER, "empty": [], "of other classes": [(IMAGES, CLASSES + 1)]},
    ),
    "prune": spoilt(
        prune,
        {"cbm": CBM, "concepts": "red"},
        concepts=ONE_CONCEPT,
        classes={"text": "bird", "a fraction": [0.5], "too large": [2], "bools": [True, False], "nested": [[[0]]]},
    ),
    "Backbone": spoilt(
        Backbone,
        {"features": BACKBONE, "pool": "mean", "maps": None, "channels": 2},
        normalisation={
            "text": "imagenet",
            "a mean alone": (0.5, 0.5, 0.5),
            "of two lengths": ((0.5,) * 3, (0.5,)),
            "a deviation of 0": ((0.5,) * 3, (0.5, 0.5, 0.0)),
            "NaN": ((NAN,) * 3, (0.5,) * 3),
        },
    ),
    "Backbone.normalise": spoilt(
        Backbone(BACKBONE, "mean", None, 2, ((0.5,) * 3, (0.5,) * 3)).normalise,
        {},
        images={
            "None": None,
            "text": "birds.png",
            "bytes": IMAGES.byte(),
            "of two channels": IMAGES[:, :2],
            "of rank 2": IMAGES[0, 0],
        },
    )
    | {"normalisation: unknown": Refusal(lambda: CUT.normalise(IMAGES), "`normalisation`")},
    "embed": spoilt(
        embed, {"features": BACKBONE, "loader": LOADER}, features=NO_MODULE, loader={**NO_LOADER, "empty": []}
    ),
    "fit_logistic": spoilt(fit_logistic, {"values": FEATURES, "labels": CLASSES}, **NO_FIT),
    "fit_elastic_net": spoilt(fit_elastic_net, {"values": FEATURES, "labels": CLASSES}, **NO_FIT),
    **{
        function.__name__: spoilt(function, {}, model={"None": None, "a number": 3, "a class": nn.Linear})
        for function in (from_open_clip, from_timm, from_torchvision)
    },
    # What else it takes is tried where a model of PyC's is at hand.
    "from_pyc": spoilt(from_pyc, {}, model={"of another library": nn.Linear(2, 2)}),
    "from_transformers": spoilt(
        from_transformers,
        {"model": NET},
        model={"None": None, "a number": 3, "a class": nn.Linear, "of another library": nn.Linear(2, 2)},
        processor={"text": "google/vit", "a function": tokens},
    ),
    "LayerFeatures": spoilt(
        LayerFeatures,
        {"model": NET, "layer": "0"},
        layer={"None": None, "a number": 0, "unknown": "head", "empty": "", "of another": nn.Linear(1, 1)},
    ),
}
