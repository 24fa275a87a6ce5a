"""Bad arguments of everything public of pasta: refused by name, at once, and nothing is written."""

from __future__ import annotations

import importlib
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from bad_arguments import assert_refused, public_functions, spoilt
from one_line import all_say_what_they_are, public_classes
from quantus_concepts import pasta
from quantus_concepts.pasta import EmbeddedEncoder, Embedder, Regressor, Scorer, best_explainer

NAN, INF = float("nan"), float("inf")
#: Paths of nothing that is there.
NO_PATHS = ("", "nowhere", "a\0b", "~nosuchuser/x", "x" * 300, "file.txt/x", None, 3)
NO_FOLDERS, NO_FILES = (*NO_PATHS, "file.txt"), (*NO_PATHS, "folder")
#: Records and results: nothing of them is checked before they are used.
BARE = {"ConceptExplanation", "DrawingExplanation", "MapExplanation", "RatingCorrelation", "RobustnessPairs"}
BARE |= {"Training", "Mixture", "Regressor", "EmbeddingCache"}
#: Arguments that take anything, or what only its use can tell.
FREE = {"display_progressbar", "fingerprint", "name", "meaning", "ax", "metadata", "clip"}
DIM = 4


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each kind of file that there is."""
    # What an encoder loads takes seconds, and counts for no refusal.
    importlib.import_module("quantus_concepts.pasta.encoders.open_clip_models")
    root = tmp_path_factory.mktemp("place")
    (root / "folder").mkdir()
    (root / "file.txt").write_text("no data")
    return root


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@cache
def scorer() -> Scorer:
    return Scorer(DIM, ("Q1", "Q5"), ["cat", "dog"], (3, 2))


@cache
def embedder() -> Embedder:
    return Embedder("embedded", size=16)


class Flat(nn.Module):
    """A model of two classes."""

    def forward(self, images):
        return images.flatten(1)[:, :2]


def explained(model, inputs, targets):
    return inputs[:, 0]


# Named by their values: the same in every process.
random = partial(torch.rand, generator=torch.Generator().manual_seed(0))


def to_learn() -> dict[str, object]:
    data = {"embeddings": random(6, DIM), "targets": np.ones((6, 1)), "questions": ["Q1"]}
    return data | {"labels": ["cat"] * 6, "label_names": ["cat", "dog"], "train": [0, 1, 2]}


IMAGES = random(2, 3, 8, 8)
NO_IMAGES = (None, "images", random(3, 8, 8), random(2, 4, 8, 8), 2 + IMAGES, IMAGES * NAN, IMAGES.long())
NO_QUESTIONS = ((), "Q1", ("Q7",), ("Q1", "Q1"), (1,), None, 3)
PARTS = {"encode_image": explained, "encode_text": explained, "preprocess": explained, "tokenizer": explained}
NO_LEARNED = {
    "targets": (None, "votes", np.ones((5, 1)), np.ones((6, 2)), np.zeros((6, 1)), np.full((6, 1), INF)),
    "labels": ("cat", ["cat"] * 5, ["bird"] * 6, [5] * 6, [0.5] * 6, None, 3),
    "label_names": (None, "cat", 3),
    "train": ([], [0, 0], [9], [-1], [0.5], np.ones(5, bool), "all", 3),
    "questions": ((), "Q1", ("Q7",), 3),
}
NO_STATISTICS = ((0.5,) * 2, ("a",) * 3, (NAN,) * 3, (INF,) * 3, 0.5)
#: For each callable what it is given that is good, and for each argument what no constraint describes.
TABLE = {
    "Scorer": (
        lambda: {"dim": DIM},
        {"questions": NO_QUESTIONS, "labels": ((), "cat", ("a", "a"), (1, 2), 3)},
    ),
    "Embedder": (
        lambda: {"encoder": "embedded"},
        {
            "encoder": ("", "siglop", None, 3, object()),
            "colours": ("", "bwrr", None, 3),
            "template": ("no slot", 3, None),
            "cache": ("", "file.txt", "a\0b"),
        },
    ),
    "OpenClipEncoder": (
        dict,
        {
            "model_name": ("", "ViT-L-16-SigLOP"),
            "pretrained": ("", "webbli", "nowhere.safetensors", Path("nowhere")),
            "model_config": ({}, {"embed_dim": 4}),
            "tokenizer": ("nowhere", "file.txt", 3),
        },
    ),
    "ObjectEncoder": (
        lambda: {"parts": SimpleNamespace(**PARTS)},
        {"parts": (None, 3, SimpleNamespace(), nn.Identity())},
    ),
    "blip_encoder": (dict, {"model": (nn.Identity(), None, 3, ""), "revision": (3,)}),
    "perturb": (
        lambda: {"images": IMAGES, "name": "brightness", "magnitude": 1.0},
        {"images": (2 + IMAGES, IMAGES * NAN)},
    ),
    "robustness_pairs": (
        lambda: {"model": Flat(), "images": IMAGES, "labels": None, "explain_func": explained, "question": "Q5"},
        {
            "images": NO_IMAGES[1:-1],
            "labels": ([0],),
            "explain_func": (lambda **_: np.zeros(1), lambda **_: None),
            "perturbations": ("brightness", [], ["brightnes"], [3], 3, ["brightness"] * 2),
            "mean": ((0.5,) * 3, 0.5),
            "std": ((0.5,) * 3, 0.5),
        },
    ),
    "TrainingSettings": (dict, {"weights": ((1, 2), (1, 2, NAN), (1, 2, -1))}),
    "train_scorer": (to_learn, NO_LEARNED | {"validation": ([0], [9], [-1], [0.5], np.ones(5, bool), "all")}),
    "fit_regressor": (
        lambda: to_learn() | {"kind": "ridge"},
        NO_LEARNED | {"parameters": ({"alfa": 1}, {"alpha": -1})},
    ),
    "load_scorer": (
        dict,
        {"source": (*NO_PATHS, "folder", {}, {"Q7": "file.txt"}, {"Q1": "nowhere"})},
    ),
    "save_scorer": (lambda: {"scorer": scorer()}, {"path": ("new.pth",)}),
    "score_masks": (
        lambda: {"scorer": scorer(), "embedder": embedder()},
        {
            "scorer": (None, 3, nn.Identity()),
            "embedder": (None, 3, nn.Identity()),
            "question": ("", "Q2", None, 3),
            "labels": ("bird", 5, -2, ["cat", "bird"], [0.5], 0.5),
            "mean": ((0.5,) * 3, 0.5),
            "std": ((0.5,) * 3, 0.5),
        },
    ),
    "best_explainer": (
        lambda: {"scores": {"a": [1.0], "b": [2.0]}},
        {"scores": ({}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": 1.0}, {"a": [INF]}, {"a": ["x"]})}
        | {"question": ("", "Q7", None, 3)},
    ),
    "rating_correlations": (
        lambda: {"values": {"a": np.ones(4)}, "ratings": np.ones((4, 6))},
        {
            "values": ({"a": np.ones(3)}, {"a": np.ones((4, 1))}, {"a": ["x"] * 4}),
            "ratings": (None, "votes", np.ones(4), np.ones((4, 5)), np.ones((4, 2, 5)), np.ones((1, 4, 2, 6))),
            "questions": (("Q7",), "Q1", None, 3),
        },
    ),
    "sparseness": (
        dict,
        {"explanations": (None, 3, [np.ones(3)], [np.ones((1, 1, 2, 2))], ["map"], [None])},
    ),
}
CASES = {name: spoilt(getattr(pasta, name), good, **bad) for name, (good, bad) in TABLE.items()}


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
def test_bad_arguments_are_refused_by_name(cases):
    assert_refused(cases)


def encoded(texts):
    return EmbeddedEncoder().encode_texts(texts)


def maps(images=IMAGES, heat=IMAGES[:, 0]):
    return lambda: embedder().embed_maps(images, heat)


EMBEDDINGS = random(2, DIM)
MIXTURE = best_explainer({"a": [1.0, 2.0], "b": [2.0, 1.0]})
METHODS = {
    f"{noun} {number}": (call, "`images`")
    for number, bad in enumerate(NO_IMAGES)
    for noun, call in (
        ("encoded images", partial(EmbeddedEncoder().encode_images, bad)),
        ("images under maps", maps(bad)),
        ("drawings", partial(embedder().embed_drawings, bad)),
    )
} | {
    "text of nothing": (lambda: encoded(None), "`texts`"),
    "text in one piece": (lambda: encoded("wing"), "`texts`"),
    "texts of numbers": (lambda: encoded([3]), "`texts`"),
    "maps of nothing": (maps(heat=None), "`maps`"),
    "maps of arrays": (maps(heat=np.ones((2, 4, 4))), "`maps`"),
    "one map": (maps(heat=random(4, 4)), "`maps`"),
    "too few maps": (maps(heat=random(1, 4, 4)), "`maps`"),
    "maps of NaN": (maps(heat=torch.full((2, 4, 4), NAN)), "`maps`"),
    "maps of infinity": (maps(heat=torch.full((2, 4, 4), INF)), "`maps`"),
    "maps of whole numbers": (maps(heat=torch.ones(2, 4, 4).long()), "`maps`"),
    "concepts on one axis": (lambda: embedder().embed_concepts(np.ones(2), ["a", "b"]), "`values`"),
    "concepts of NaN": (lambda: embedder().embed_concepts(np.full((1, 2), NAN), ["a", "b"]), "`values`"),
    "concepts of words": (lambda: embedder().embed_concepts(np.array([["x", "y"]]), ["a", "b"]), "`values`"),
    "concepts of nothing": (lambda: embedder().embed_concepts(None, ["a"]), "`values`"),
    "concepts without names": (lambda: embedder().embed_concepts(np.ones((1, 2)), []), "`values`"),
    "concepts with too few names": (lambda: embedder().embed_concepts(np.ones((1, 2)), ["a"]), "`values`"),
    "concepts of one name": (lambda: embedder().embed_concepts(np.ones((1, 2)), ["a", "a"]), "`names`"),
    "concepts with no names at all": (lambda: embedder().embed_concepts(np.ones((1, 2)), None), "`names`"),
    "explanations of nothing": (lambda: embedder().embed(None), "`explanations`"),
    "explanations of maps": (lambda: embedder().embed([random(4, 4)]), "`explanations`"),
    "explanation of a list": (lambda: embedder().embed([pasta.ConceptExplanation({})]), "`values`"),
    "explanation of NaN": (lambda: embedder().embed([pasta.ConceptExplanation({"a": NAN})]), "`values`"),
    "unknown settings": (lambda: Embedder.from_settings("embedded", {"colour": "bwr"}), "`settings`"),
    "preset of nothing": (lambda: pasta.OpenClipEncoder.preset(None), "`encoder`"),
    "preset of no model": (lambda: pasta.OpenClipEncoder.preset("a/b"), "a"),
    "preset with no weights": (lambda: pasta.OpenClipEncoder.preset("clip", weights="nowhere"), "`pretrained`"),
    "scores of arrays": (lambda: scorer().score(np.ones((2, DIM))), "`embeddings`"),
    "scores of nothing": (lambda: scorer().score(None), "`embeddings`"),
    "scores of one": (lambda: scorer().score(random(DIM)), "`embeddings`"),
    "scores of a number": (lambda: scorer().score(torch.tensor(1.0)), "`embeddings`"),
    "scores of another encoder": (lambda: scorer().score(random(2, 5)), "`embeddings`"),
    "scores of whole numbers": (lambda: scorer().score(torch.ones(2, DIM).long()), "`embeddings`"),
    "scores of no label": (lambda: scorer().score(EMBEDDINGS, ["cat", "bird"]), "`labels`"),
    "scores of a label": (lambda: scorer().score(EMBEDDINGS, "cat"), "`labels`"),
    "scores of one label": (lambda: scorer().score(EMBEDDINGS, ["cat"]), "`labels`"),
    "scores of label 2": (lambda: scorer().score(EMBEDDINGS, [0, 2]), "`labels`"),
    "scores of label -2": (lambda: scorer().score(EMBEDDINGS, [0, -2]), "`labels`"),
    "scores of half labels": (lambda: scorer().score(EMBEDDINGS, [0.5, 1]), "`labels`"),
    "scores of a number as labels": (lambda: scorer().score(EMBEDDINGS, 1), "`labels`"),
    "scores without labels": (lambda: Scorer(DIM, labels=None).score(EMBEDDINGS, [0, 1]), "`labels`"),
    "select nothing": (lambda: scorer().select([]), "`questions`"),
    "select no question": (lambda: scorer().select(None), "`questions`"),
    "select another question": (lambda: scorer().select("Q2"), "Q2"),
    "select a question twice": (lambda: scorer().select(["Q1", "Q1"]), "`questions`"),
    "join one question twice": (lambda: Scorer.join([scorer(), scorer()]), "`questions`"),
    "join other sizes": (lambda: Scorer.join([scorer(), Scorer(5, ("Q2",))]), "`dim`"),
    "encoder of another size": (lambda: scorer().check_encoder(embedder()), "`encoder`"),
    "chosen of one": (lambda: MIXTURE.chosen({"a": np.ones(2)}), "`maps`"),
    "chosen of two lengths": (lambda: MIXTURE.chosen({"a": np.ones(2), "b": np.ones(3)}), "`maps['b']`"),
    "chosen of too many": (lambda: MIXTURE.chosen({"a": np.ones(3), "b": np.ones(3)}), "`maps['a']`"),
    "compare one": (lambda: MIXTURE.compare({"a": np.ones(2)}), "`values`"),
    "compare two lengths": (lambda: MIXTURE.compare({"a": np.ones(2), "b": np.ones(3)}), "`values['b']`"),
    "compare words": (lambda: MIXTURE.compare({"a": np.ones(2), "b": ["x", "y"]}), "`values['b']`"),
    "perturb with draws of others": (
        lambda: pasta.PERTURBATIONS["brightness jitter"](IMAGES, 1.0, draws=random(3, 1)),
        "`draws`",
    ),
    "too many patches": (lambda: pasta.perturb(IMAGES, "random patches", 40), "`magnitude`"),
    **{
        f"{name} of {bad}": (
            partial(pasta.score_masks, scorer(), embedder(), **{"mean": (0.5,) * 3, "std": (0.5,) * 3} | {name: bad}),
            f"`{name}`",
        )
        for name in ("mean", "std")
        for bad in NO_STATISTICS
    },
    "deviation of 0": (lambda: pasta.score_masks(scorer(), embedder(), mean=(0,) * 3, std=(0,) * 3), "`std`"),
}


def test_bad_calls_of_methods_are_refused_by_name():
    assert_refused(METHODS)


def test_everything_public_has_constraints_or_cases():
    unconstrained = {name for name, function in public_functions(pasta) if not hasattr(function, "constraints")}
    assert {name for name in unconstrained if "." not in name} - TABLE.keys() == BARE


def test_objects_say_what_they_are() -> None:
    examples = {name: kind(**TABLE[name][0]()) for name, kind in public_classes(pasta).items() if name in TABLE}
    wide = np.arange(300.0)
    records = {
        "ConceptExplanation": pasta.ConceptExplanation({f"concept {j}": 1 / 3 for j in range(99)}),
        "DrawingExplanation": pasta.DrawingExplanation(IMAGES[0]),
        "EmbeddedEncoder": EmbeddedEncoder(),
        "EmbeddingCache": pasta.EmbeddingCache(Path("folder")),
        "MapExplanation": pasta.MapExplanation(IMAGES[0], IMAGES[0, 0]),
        "Mixture": MIXTURE,
        "Perturbation": pasta.PERTURBATIONS["brightness"],
        "RatingCorrelation": pasta.RatingCorrelation("m", "Q1", *[1 / 3] * 4, 3, 0),
        "Regressor": Regressor("ridge", scorer(), []),
        "RobustnessPairs": pasta.RobustnessPairs("Q1", *[wide] * 6, ("a",) * 50, wide, wide, 0, 0),  # type: ignore[arg-type]
        "Training": pasta.Training(scorer(), [{"loss": 1 / 3}] * 50, {"Q1": 3}),
    }
    all_say_what_they_are(pasta, examples | records)
    assert repr(embedder()) == f"Embedder({embedder().name!r}, size=16)"
