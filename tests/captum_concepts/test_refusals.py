"""Bad input to what names concepts and explains, one argument at a time; other tests have what messages say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import captum.attr
import numpy as np
import pytest
import torch
from captum.attr import LayerGradCam, Saliency
from captum.concept import CAV, Concept
from matplotlib.figure import Figure
from torch import Tensor, nn

import captum_concepts
from captum_concepts import (
    Backbone,
    BottleneckCBM,
    CoAM,
    ConceptBank,
    LayerFeatures,
    PostHocCBM,
    RandomAttribution,
    SobelEdges,
    SteeredRISE,
    TCAVScore,
    build_method,
    build_methods,
    embed,
    explain_func,
    from_open_clip,
    from_timm,
    from_torchvision,
    gallery,
    method_from_spec,
    overlay,
    plot_coam,
    tcav_contrast,
    tcav_score,
)
from refusals import Refusal
from spoiling import (
    INF,
    NAN,
    NO_ARRAY,
    NO_CHOICE,
    NO_FUNCTION,
    NO_MODULE,
    NO_NUMBER,
    NO_POSITIVE,
    NO_SEED,
    NOTHING,
    TEXT,
    Bad,
    Table,
    cases,
    public_callables,
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
BACKBONE = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU()).eval()
CBM = PostHocCBM(BACKBONE, BANK, nn.Linear(3, 2)).eval()
BOTTLENECK = BottleneckCBM(BACKBONE, nn.Linear(2, 3), nn.Linear(3, 2)).eval()
CUT = Backbone(BACKBONE, "mean", None, 2)
NET = nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2)).eval()
CLASSES = torch.arange(8) % 2
LOADER = [(IMAGES, CLASSES, torch.from_numpy(PRESENT))]
SCORE = TCAVScore(0.5, 0.5, {})
PICTURE, MAP = np.zeros((4, 5, 3)), np.eye(2)

NO_IMAGES: Bad = {"None": None, "text": "birds.png", "a list": [[1.0]], "of rank 3": IMAGES[0]}
NO_NAMES: Bad = {"a number": 3, "text": "red", "one too few": ["red"], "twice the same": ["red", "red", "red"]}
NO_PATH: Bad = {"None": None, "a number": 3, "a list": ["bank.safetensors"]}
NO_DEVICE: Bad = {"text": "gpu number one", "a list": ["cpu"], "a fraction": 0.5}
NO_LOADER: Bad = {
    "None": None,
    "a number": 3,
    "of numbers": [1, 2],
    "of texts": [("a", "b", "c")],
    "of images of text": [(np.array(["a"]), CLASSES, CLASSES)],
    "of None": [None],
}
NO_CONCEPTS: Bad = {"text": "red", "None in it": [None], "NaN": [NAN], "too large": [3], "nested": [[[0]]]}
NO_TARGET: Bad = {
    "text": "cat",
    "a fraction": 0.5,
    "a bool": True,
    "complex": torch.zeros(8, dtype=torch.complex64),
    "too large": 7,
    "negative": -1,
    "one too few": CLASSES[:7],
}
NO_ATTRIBUTED: Bad = {"None": None, "text": "birds", "a list": [[1.0]], "an array": IMAGES.numpy()}


def table_images(**arguments: Any) -> object:
    return CBM.concept_maps(**arguments)


def call_explainer(**changes: Any) -> object:
    return explain_func(Saliency)(**{"model": NET, "inputs": IMAGES.numpy(), "targets": CLASSES.numpy(), **changes})


def random(**changes: Any) -> object:
    return RandomAttribution(NET).attribute(**{"inputs": IMAGES, **changes})


def steered(**changes: Any) -> object:
    good = {"inputs": IMAGES, "target": CLASSES, "lam": 0, "n_masks": 2, "cells": 2}
    return SteeredRISE(NET).attribute(**{**good, **changes})


class Answers(nn.Module):
    """A model that answers with what it is told, whatever it is asked."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def forward(self, images: Tensor) -> Any:
        return self.answer


TABLE: Table = {
    "ConceptBank": spoilt(
        ConceptBank,
        {"cavs": np.eye(3)},
        cavs={**NO_ARRAY, "None": None, "bools": np.eye(3, dtype=bool), "NaN": np.eye(3) * NAN},
        intercepts={"text": ["a"] * 3, "a number": 1.0, "ragged": [[1.0], [], []], "infinite": [INF, 0, 0]},
        names={"a number": 3, "twice the same": ["a", "a", "b"], "not texts": [None, 1, 2]},
        train_accuracy={"text": ["a"] * 3, "above 1": [2.0, 0.5, 0.5], "negative": [-1.0, 0, 0], "of two": [0.5, 0.5]},
        test_accuracy={"text": ["a"] * 3, "above 1": [2.0, 0.5, 0.5], "infinite": [INF, 0, 0], "a number": 0.5},
        settings={"a list": [1], "text": "svm"},
    ),
    "ConceptBank.fit": spoilt(
        ConceptBank.fit,
        {"features": FEATURES, "labels": PRESENT, "n_pos": 2, "n_neg": 2},
        features={**NO_ARRAY, "None": None, "of rank 1": FEATURES[:, 0], "one too few": FEATURES[:7]},
        labels={**NO_ARRAY, "None": None, "of rank 1": PRESENT[:, 0], "halves": PRESENT / 2, "negative": -PRESENT},
        names={"a number": 3, "one too few": ["a"], "twice the same": ["a", "a"]},
        method=NO_CHOICE,
        n_pos=NO_POSITIVE,
        n_neg=NO_POSITIVE,
        C={**NO_NUMBER, "None": None, "NaN": NAN, "zero": 0.0, "infinite": INF},
        seed=NO_SEED,
        hold_back={**NO_NUMBER, "None": None, "NaN": NAN, "one": 1.0, "negative": -0.1},
    ),
    "ConceptBank.from_text": spoilt(
        ConceptBank.from_text,
        {"model": Tower(), "tokenizer": tokens, "prompts": ["a", "b"]},
        model={"None": None, "text": "ViT-B-32", "a class": Tower},
        tokenizer={"None": None, **NO_FUNCTION, "that gives no tensor": lambda texts: texts},
        prompts={"None": None, "a number": 3, "not texts": [None, 1]},
        names={"a number": 3, "text": "ab", "twice the same": ["a", "a"]},
        batch_size=NO_POSITIVE,
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
        names={"a number": 3, "text": "ab", "two for one": ["a", "b"]},
        concept={"None": None, "a fraction": 0.5, "a bool": True, "a list": [0], "negative": -1},
        layer={"a number": 3, "a list": ["layer"], "unknown": "head"},
    ),
    "ConceptBank.random": spoilt(
        ConceptBank.random,
        {"n_concepts": 2, "n_features": 3},
        n_concepts=NO_POSITIVE,
        n_features=NO_POSITIVE,
        names={"a number": 3, "text": "ab", "one too few": ["a"]},
        seed=NO_SEED,
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
    "ConceptBank.rename": spoilt(
        BANK.rename,
        {},
        mapping={"None": None, "a list": ["red"], "unknown": {"rde": "a"}, "to one name": {"red": "blue"}, "text": "red"},
    ),
    "ConceptBank.to": spoilt(
        BANK.to, {}, device=NO_DEVICE, dtype={"text": "float64", "integers": torch.int64, "complex": torch.complex64}
    ),
    "ConceptBank.save": spoilt(BANK.save, {}, path=NO_PATH)
    | {
        "settings: with what JSON cannot": Refusal(
            lambda: ConceptBank(np.eye(2), settings={"a": object()}).save("bank"),  # type: ignore[dict-item]
            "`settings`",
        )
    },
    "ConceptBank.load": spoilt(ConceptBank.load, {"path": "bank.safetensors"}, path=NO_PATH, device=NO_DEVICE),
    "PostHocCBM": spoilt(
        PostHocCBM,
        {"features": BACKBONE, "bank": BANK, "head": nn.Linear(3, 2)},
        features=NO_MODULE,
        bank={"None": None, "text": "bank.safetensors", "an array": np.eye(3), "a path": Path("bank")},
        head={**NO_MODULE, "of other concepts": nn.Linear(4, 2)},
        values=NO_CHOICE,
        pool={"None": None, "a number": 3, "unknown": "max"},
        maps=NO_FUNCTION,
    ),
    "PostHocCBM.fit": spoilt(
        PostHocCBM.fit,
        {"features": BACKBONE, "loader": LOADER, "n_pos": 2, "n_neg": 2},
        features=NO_MODULE,
        loader={**NO_LOADER, "of bool classes": [(IMAGES, CLASSES > 0, torch.from_numpy(PRESENT))]},
        concept_labels={**NO_ARRAY, "of rank 1": PRESENT[:, 0], "halves": PRESENT / 2, "one too few": PRESENT[:7]},
        names={"a number": 3, "text": "ab", "one too few": ["a"], "twice the same": ["a", "a"]},
        values=NO_CHOICE,
        pool={"None": None, "a number": 3},
        maps=NO_FUNCTION,
        method=NO_CHOICE,
        n_pos=NO_POSITIVE,
        n_neg=NO_POSITIVE,
        C={**NO_NUMBER, "None": None, "NaN": NAN, "negative": -1},
        head={"None": None, "a number": 3, "unknown": "logisitc", "that gives no module": lambda u, y: u},
        n_classes={"text": "2", "a fraction": 2.5, "a bool": True, "too few": 1},
        seed=NO_SEED,
    ),
    "PostHocCBM.concept_maps": spoilt(
        CBM.concept_maps, {"images": IMAGES}, images=NO_IMAGES, concepts={**NO_CONCEPTS, "a number": 3.5}
    ),
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
        concept_layer=NO_MODULE,
        head={**NO_MODULE, "of other concepts": nn.Linear(4, 2)},
        pool={"None": None, "a number": 3, "unknown": "max"},
        maps=NO_FUNCTION,
        activation=NO_FUNCTION,
        project=NO_FUNCTION,
    ),
    "BottleneckCBM.concept_maps": spoilt(
        BOTTLENECK.concept_maps, {"images": IMAGES}, images=NO_IMAGES, concepts=NO_CONCEPTS
    ),
    "Backbone": spoilt(
        Backbone,
        {"features": BACKBONE, "pool": "mean", "maps": None, "channels": 2},
        features=NO_MODULE,
        pool={"None": None, "a number": 3},
        maps=NO_FUNCTION,
        channels=NO_POSITIVE,
    ),
    "Backbone.embed": spoilt(CUT.embed, {}, images={"None": None, "a list": [1], "text": "a"}),
    "embed": spoilt(
        embed,
        {"features": BACKBONE, "loader": LOADER},
        features=NO_MODULE,
        loader={**NO_LOADER, "empty": []},
        pool={"None": None, "a number": 3, "unknown": "max"},
        maps=NO_FUNCTION,
    ),
    **{
        function.__name__: spoilt(
            function, {}, model={"None": None, "a number": 3, "a class": nn.Linear, "of no family": BACKBONE}
        )
        for function in (from_open_clip, from_timm, from_torchvision)
    },
    "LayerFeatures": spoilt(
        LayerFeatures,
        {"model": NET, "layer": "0"},
        model=NO_MODULE,
        layer={"None": None, "a number": 0, "unknown": "head", "empty": "", "of another": nn.Linear(1, 1)},
    ),
    "CoAM": spoilt(
        CoAM,
        {"forward_func": NET, "layer": "0", "cavs": np.eye(2)},
        forward_func={"None": None, "text": "resnet18", "a list": [NET]},
        layer={"None": None, "a number": 0, "unknown": "head", "a list": ["0"]},
        cavs={**NO_ARRAY, "None": None, "of rank 1": np.ones(2), "NaN": np.eye(2) * NAN, "empty": np.ones((0, 2))},
        device_ids={"text": "cuda:0", "a number": 0},
    ),
    "CoAM.of": spoilt(CoAM.of, {}, model=NO_MODULE),
    "CoAM.attribute": spoilt(
        CoAM(CBM).attribute,
        {"inputs": IMAGES},
        inputs={**NO_ATTRIBUTED, "an empty tuple": ()},
        target=NO_TARGET,
    ),
    "RandomAttribution": spoilt(
        RandomAttribution,
        {"forward_func": NET},
        forward_func={"None": None, "text": "resnet18"},
        seed={**NO_SEED, "None": None},
    ),
    "RandomAttribution.attribute": spoilt(
        random, {}, inputs={**NO_ATTRIBUTED, "an empty tuple": ()}, target={"one too few": CLASSES[:7], "NaN": [NAN]}
    ),
    "SobelEdges.attribute": spoilt(
        SobelEdges(NET).attribute, {}, inputs={**NO_ATTRIBUTED, "integers": torch.ones(1, 1, 4, 4, dtype=torch.int64)}
    ),
    "SteeredRISE": spoilt(
        SteeredRISE, {"forward_func": NET}, forward_func={"None": None, "text": "resnet18"}, score_func=NO_FUNCTION
    ),
    "SteeredRISE.attribute": spoilt(
        steered,
        {},
        inputs={**NO_ATTRIBUTED, "an empty tuple": ()},
        target=NO_TARGET,
        lam={**NO_NUMBER, "None": None},
        n_masks=NO_POSITIVE,
        cells={"None": None, "text": "77", "a bool": True, "a fraction": 2.5, "NaN": (NAN, NAN)},
        p={**NO_NUMBER, "None": None, "NaN": NAN, "above 1": 1.5},
        seed=NO_SEED,
        batch_size=NO_POSITIVE,
        baselines={"None": None, "text": "black", "a list": [[0.0]], "NaN": NAN, "complex": 1j},
        activation=NO_CHOICE,
    ),
    "build_method": spoilt(
        build_method,
        {"name": "IG + SmoothGrad"},
        name=NO_CHOICE,
        layer={"a number": 0, "a module": NET[0]},
        n_samples=NO_POSITIVE,
        noise={**NO_NUMBER, "None": None, "NaN": NAN, "negative": -1, "infinite": INF},
        stdev={**NO_NUMBER, "NaN": NAN, "negative": -1, "infinite": INF},
        n_steps=NO_POSITIVE,
        baseline={"text": "black", "None": None, "complex": 1j, "NaN": NAN, "of rank 2": np.ones((2, 2)), "ragged": [[1], []]},
        batch_size=NO_POSITIVE,
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "build_methods": spoilt(
        build_methods,
        {},
        names={"a number": 3, "not names": [3]},
        n_steps={"text": "many"},
        seed={"a bool": True, "a fraction": 0.5},
        device={"text": "gpu number one"},
    ),
    "method_from_spec": spoilt(
        method_from_spec,
        {"spec": "Occlusion"},
        spec={"None": None, "a number": 3, "empty": "", "no function": ":", "a file that is not there": "method.py:f"},
        layer={"a number": 0, "a module": NET[0]},
        n_steps=NO_POSITIVE,
        baseline={"text": "black", "None": None, "NaN": NAN},
        batch_size=NO_POSITIVE,
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "explain_func": spoilt(
        explain_func,
        {"factory": Saliency},
        factory={"None": None, "a number": 3},
        layer={"a number": 0, "a list": ["0"]},
        attribute_kwargs={"a list": [1], "text": "abs", "a number": 3},
        batch_size=NO_POSITIVE,
        interpolate=NO_CHOICE,
        channels=NO_CHOICE,
        rescale={"text": "yes", "None": None},
        device=NO_DEVICE,
        seed=NO_SEED,
    )
    | {
        "internal_batch_size: text": Refusal(
            lambda: explain_func(captum.attr.IntegratedGradients, internal_batch_size="64"), "`internal_batch_size`"
        ),
        "internal_batch_size: negative": Refusal(
            lambda: explain_func(captum.attr.IntegratedGradients, internal_batch_size=-1), "`internal_batch_size`"
        ),
    },
    "explain_func.__call__": spoilt(
        call_explainer,
        {},
        model={"None": None, "text": "resnet18", "a list": [NET]},
        inputs={**NO_ARRAY, "None": None},
        targets={**NO_TARGET, "text": ["cat"] * 8, "objects": np.array([None] * 8)},
        device=NO_DEVICE,
    )
    | {
        f"model that returns {what}": Refusal(lambda answer=answer: call_explainer(model=Answers(answer)), names)
        for what, answer, names in (
            ("nothing", None, "return"),
            ("an empty tuple", (), "return"),
            ("texts", ["a"], "return"),
            ("a vector", torch.ones(8, requires_grad=True), "return"),
            ("nothing of the inputs", torch.ones(8, 2), "gradient"),
        )
    }
    | {
        "layer of no module": Refusal(
            lambda: explain_func(LayerGradCam, layer="0")(lambda x: x, IMAGES.numpy(), CLASSES.numpy()), "`model`"
        )
    },
    "tcav_score": spoilt(
        tcav_score,
        {
            "model": NET,
            "layers": ["0"],
            "concept_images": IMAGES,
            "negative_images": IMAGES,
            "inputs": IMAGES,
            "target": 0,
            "n_random": 2,
            "n_samples": 2,
        },
        model=NO_MODULE,
        layers={"None": None, "a number": 3, "not names": [0]},
        concept_images=NO_IMAGES | {"none": IMAGES[:0]},
        negative_images=NO_IMAGES,
        inputs=NO_IMAGES | {"none": IMAGES[:0]},
        target={"None": None, **NO_TARGET},
        n_random=NO_POSITIVE,
        n_samples=NO_POSITIVE,
        alpha={**NO_NUMBER, "None": None, "NaN": NAN},
        method=NO_CHOICE,
        C={**NO_NUMBER, "None": None, "NaN": NAN, "zero": 0},
        batch_size={"text": "many", "a bool": True, "NaN": NAN},
        device=NO_DEVICE,
        seed=NO_SEED,
    ),
    "tcav_contrast": spoilt(
        tcav_contrast,
        {"first": SCORE, "second": SCORE},
        first={"None": None, "a number": 0.5, "text": "0.5"},
        second={"None": None, "a number": 0.5, "text": "0.5"},
    ),
    "overlay": spoilt(
        overlay,
        {"image": PICTURE, "map": MAP},
        image={**NO_ARRAY, "None": None, "empty": np.zeros((0, 4, 3))},
        map={**NO_ARRAY, "None": None, "empty": np.zeros((0, 0))},
        beta={**NO_NUMBER, "NaN": NAN},
        coloured={"None": None, "a number": 3, "an array": np.ones(2)},
        threshold={**NO_NUMBER, "NaN": NAN},
    ),
    "plot_coam": spoilt(
        plot_coam,
        {"image": PICTURE, "map": MAP},
        image={"text": "bird.png", "None": None},
        map={"text": "map.npy", "a number": 3.0},
        present={"text": "yes", "an array": np.array([True, False])},
        ax={"a number": 3, "a figure": Figure(), "text": "ax"},
    ),
    "gallery": spoilt(
        gallery,
        {"images": PICTURE[None], "maps": MAP[None, None], "names": ["red"]},
        images={"None": None, "a number": 3, "text": "birds"},
        maps={"None": None, "a list": [MAP], "text": np.array([[[["a"]]]])},
        names={"None": None, "a number": 3},
        present={"text": [["yes"]], "ragged": [[True], []], "halves": [[0.5]]},
        absent={"text": [["yes"]], "halves": [[0.5]]},
        class_maps={"a list": [MAP], "text": np.array([[["a"]]])},
        class_names={"a number": 3, "text": "a"},
        contributions={"text": [["a"]], "complex": [[1j]]},
        beta={"text": "0.4"},
        threshold={"text": "0.4"},
        axes={"a number": 3, "a list": [1, 2], "of texts": np.array([["a", "b"]])},
    ),
}
#: Results, and what is tried under the name of the class that has it.
EXCEPTIONS = {
    "Embeddings": "a result",
    "TCAVContrast": "a result",
    "TCAVScore": "a result",
    "SobelEdges": "takes a model that is never run",
    "Backbone.embed_features": "takes what its own features give",
    "Backbone.feature_maps": "takes what its own features give",
    "PostHocCBM.embed_features": "the first half of values_from_features",
    "PostHocCBM.project_features": "maps_from_features by another name",
    "PostHocCBM.forward": "PyTorch's own errors",
    "BottleneckCBM.embed_features": "as of PostHocCBM",
    "BottleneckCBM.forward": "PyTorch's own errors",
    "BottleneckCBM.maps_from_features": "as of PostHocCBM",
    "BottleneckCBM.project_features": "as of PostHocCBM",
    "BottleneckCBM.values_from_features": "as of PostHocCBM",
    "LayerFeatures.forward": "PyTorch's own errors",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [pytest.param(refusal, id=name) for name, refusal in cases(TABLE)])
def test_refused(case: Refusal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    case.check()


def test_every_callable_is_in_the_table() -> None:
    public = set(public_callables(captum_concepts, ("captum_concepts",)))
    assert public == {name for name in TABLE if name != "explain_func.__call__"} | EXCEPTIONS.keys()
