"""Bad arguments of pasta that no constraint describes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from bad_arguments import assert_refused, public_functions, spoilt
from good.pasta import DIM, GOOD, IMAGES, MIXTURE, SCORER, explain
from one_line import all_say_what_they_are, public_classes
from quantus_concepts import pasta
from quantus_concepts.pasta import EmbeddedEncoder, Embedder, Regressor, Scorer

NAN, INF = float("nan"), float("inf")
NOWHERE = ("", "nowhere", "a\0b", "~nosuchuser/x", "x" * 300, "file.txt/x", None, 3)
EMBEDDER = Embedder("embedded", size=16)
PARTS = SimpleNamespace(encode_image=explain, encode_text=explain, preprocess=explain, tokenizer=explain)
NO_IMAGES = (None, "images", IMAGES[0], torch.rand(2, 4, 8, 8), 2 + IMAGES, IMAGES * NAN, IMAGES.long())
NO_LEARNED = {
    "targets": (None, "votes", np.ones((5, 1)), np.ones((6, 2)), np.zeros((6, 1)), np.full((6, 1), INF)),
    "labels": ("cat", ["cat"] * 5, ["bird"] * 6, [5] * 6, [0.5] * 6, None, 3),
    "label_names": (None, "cat", 3),
    "train": ([], [0, 0], [9], [-1], [0.5], np.ones(5, bool), "all", 3),
    "questions": ((), "Q1", ("Q7",), 3),
}
LABELLED = {"labels": ["cat"] * 6, "label_names": ["cat", "dog"]}
ARGUMENTS = GOOD | {
    "ObjectEncoder": {"parts": PARTS},
    "OpenClipEncoder": {},
    "TrainingSettings": {},
    "blip_encoder": {},
    "fit_regressor": GOOD["fit_regressor"] | LABELLED,
    "save_scorer": {"scorer": SCORER},
    "score_masks": {"scorer": SCORER, "embedder": EMBEDDER},
    "train_scorer": GOOD["train_scorer"] | LABELLED,
}


@pytest.fixture(autouse=True, scope="module")
def _inside(empty_folder: None) -> None:
    Path("folder").mkdir()
    Path("file.txt").write_text("no data")


@pytest.mark.parametrize(
    ("name", "bad"),
    {
        "Scorer": {
            "questions": ((), "Q1", ("Q7",), ("Q1", "Q1"), (1,), None, 3),
            "labels": ((), "cat", ("a", "a"), (1, 2), 3),
        },
        "Embedder": {
            "encoder": ("", "siglop", None, 3, object()),
            "colours": ("", "bwrr", None, 3),
            "template": ("no slot", 3, None),
            "cache": ("", "file.txt", "a\0b"),
        },
        "OpenClipEncoder": {
            "model_name": ("", "ViT-L-16-SigLOP"),
            "pretrained": ("", "webbli", "nowhere.safetensors", Path("nowhere")),
            "model_config": ({}, {"embed_dim": 4}),
            "tokenizer": ("nowhere", "file.txt", 3),
        },
        "ObjectEncoder": {"parts": (None, 3, SimpleNamespace(), nn.Identity())},
        "blip_encoder": {"model": (nn.Identity(), None, 3, ""), "revision": (3,)},
        "perturb": {"images": (2 + IMAGES, IMAGES * NAN)},
        "robustness_pairs": {
            "model": (nn.Identity(),),
            "images": NO_IMAGES[1:-1],
            "labels": ([0],),
            "explain_func": (lambda **_: np.zeros(1), lambda **_: None),
            "perturbations": ("brightness", [], ["brightnes"], [3], 3, ["brightness"] * 2),
            "mean": ((0.5,) * 3, 0.5),
            "std": ((0.5,) * 3, 0.5),
        },
        "TrainingSettings": {"weights": ((1, 2), (1, 2, NAN), (1, 2, -1))},
        "train_scorer": NO_LEARNED | {"validation": ([0], [9], [-1], [0.5], np.ones(5, bool), "all")},
        "fit_regressor": NO_LEARNED | {"parameters": ({"alfa": 1}, {"alpha": -1})},
        "load_scorer": {"source": (*NOWHERE, "folder", {}, {"Q7": "file.txt"}, {"Q1": "nowhere"})},
        "save_scorer": {"path": ("new.pth",)},
        "score_masks": {
            "scorer": (None, 3, nn.Identity()),
            "embedder": (None, 3, nn.Identity()),
            "question": ("", "Q2", None, 3),
            "labels": ("bird", 5, -2, ["cat", "bird"], [0.5], 0.5),
            "mean": ((0.5,) * 3, 0.5),
            "std": ((0.5,) * 3, 0.5),
        },
        "best_explainer": {"scores": ({}, {"a": [1.0], "b": [1.0, 2.0]}, {"a": 1.0}, {"a": [INF]}, {"a": ["x"]})}
        | {"question": ("", "Q7", None, 3)},
        "rating_correlations": {
            "values": ({"a": np.ones(3)}, {"a": np.ones((4, 1))}, {"a": ["x"] * 4}),
            "ratings": (None, "votes", np.ones(4), np.ones((4, 5)), np.ones((4, 2, 5)), np.ones((1, 4, 2, 6))),
            "questions": (("Q7",), "Q1", None, 3),
        },
        "sparseness": {"explanations": (None, 3, [np.ones(3)], [np.ones((1, 1, 2, 2))], ["map"], [None])},
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_arguments_are_refused_by_name(name, bad):
    assert_refused(spoilt(getattr(pasta, name), ARGUMENTS[name], **bad))


@pytest.mark.parametrize(
    ("call", "good", "bad"),
    [
        (EmbeddedEncoder().encode_images, {}, {"images": NO_IMAGES}),
        (EmbeddedEncoder().encode_texts, {}, {"texts": (None, "wing", [3])}),
        (
            EMBEDDER.embed_maps,
            {"images": IMAGES, "maps": IMAGES[:, 0]},
            {
                "images": NO_IMAGES,
                "maps": (
                    None,
                    np.ones((2, 4, 4)),
                    IMAGES[0, 0],
                    IMAGES[:1, 0],
                    IMAGES[:, 0] * NAN,
                    IMAGES[:, 0] + INF,
                    IMAGES[:, 0].long(),
                ),
            },
        ),
        (
            EMBEDDER.embed_concepts,
            {"values": np.ones((1, 2)), "names": ["a", "b"]},
            {
                "values": (np.ones(2), np.full((1, 2), NAN), np.array([["x", "y"]]), None, np.ones((1, 3))),
                "names": (["a", "a"], None),
            },
        ),
        (EMBEDDER.embed, {}, {"explanations": (None, [IMAGES[0, 0]])}),
        (Embedder.from_settings, {"encoder": "embedded"}, {"settings": ({"colour": "bwr"},)}),
        (
            SCORER.score,
            {"embeddings": torch.rand(2, DIM)},
            {
                "embeddings": (
                    np.ones((2, DIM)),
                    None,
                    torch.rand(DIM),
                    torch.tensor(1.0),
                    torch.rand(2, 5),
                    torch.ones(2, DIM).long(),
                ),
                "labels": (["cat", "bird"], "cat", ["cat"], [0, 2], [0, -2], [0.5, 1], 1),
            },
        ),
        (SCORER.select, {}, {"questions": ([], None, ["Q1", "Q1"])}),
        (MIXTURE.chosen, {}, {"maps": (*tuple({"a": np.ones(n), "b": np.ones(3)} for n in (2, 3)), {"a": [1, 2]})}),
        (MIXTURE.compare, {}, {"values": (*tuple({"a": [1, 2], "b": bad} for bad in ([1] * 3, ["x", "y"])), {})}),
        (
            partial(pasta.PERTURBATIONS["brightness jitter"], IMAGES, 1.0),
            {},
            {"draws": (torch.rand(3, 1, dtype=torch.float64),)},
        ),
        (partial(pasta.perturb, IMAGES, "random patches"), {}, {"magnitude": (40,)}),
        (
            partial(pasta.score_masks, SCORER, EMBEDDER),
            {"mean": (0.5,) * 3, "std": (0.5,) * 3},
            {
                "mean": ((0.5,) * 2, ("a",) * 3, (NAN,) * 3, (INF,) * 3, 0.5),
                "std": ((0.5,) * 2, ("a",) * 3, (NAN,) * 3, (INF,) * 3, 0.5, (0,) * 3),
            },
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_bad_arguments_of_methods_are_refused_by_name(call, good, bad):
    assert_refused(spoilt(call, good, **bad))


def test_bad_calls_are_refused_by_name():
    assert_refused(
        {
            **{f"drawings {n}": (partial(EMBEDDER.embed_drawings, bad), "`images`") for n, bad in enumerate(NO_IMAGES)},
            "list of nothing": (lambda: EMBEDDER.embed([pasta.ConceptExplanation({})]), "`values`"),
            "list of no concepts": (lambda: EMBEDDER.embed_concepts(np.ones((5, 0)), []), "`values`"),
            "list of NaN": (lambda: EMBEDDER.embed([pasta.ConceptExplanation({"a": NAN})]), "`values`"),
            "preset of nothing": (lambda: pasta.OpenClipEncoder.preset(None), "`encoder`"),
            "preset of no model": (lambda: pasta.OpenClipEncoder.preset("a/b"), "a"),
            "preset with no weights": (lambda: pasta.OpenClipEncoder.preset("clip", weights="nowhere"), "`pretrained`"),
            "scores without labels": (lambda: Scorer(DIM, labels=None).score(torch.rand(2, DIM), [0, 1]), "`labels`"),
            "labels for a scorer without": (
                lambda: pasta.score_masks(Scorer(EMBEDDER.dim, labels=None), EMBEDDER, labels="cat"),
                "`labels`",
            ),
            "explainer that is called mixture": (
                lambda: pasta.best_explainer({"mixture": [1.0]}).compare({"mixture": [1.0]}),
                "['mixture']",
            ),
            "select another question": (lambda: SCORER.select("Q2"), "Q2"),
            "join one question twice": (lambda: Scorer.join([SCORER, SCORER]), "`questions`"),
            "join other sizes": (lambda: Scorer.join([SCORER, Scorer(5, ("Q2",))]), "`dim`"),
            "encoder of another size": (lambda: SCORER.check_encoder(EMBEDDER), "`encoder`"),
        }
    )


def test_everything_public_has_constraints_or_cases():
    # Records and results: nothing of them is checked before they are used.
    bare = {"ConceptExplanation", "DrawingExplanation", "MapExplanation", "RatingCorrelation", "RobustnessPairs"}
    bare |= {"Training", "Mixture", "Regressor", "EmbeddingCache"}
    unconstrained = {name for name, function in public_functions(pasta) if not hasattr(function, "constraints")}
    assert {name for name in unconstrained if "." not in name} - ARGUMENTS.keys() == bare


def test_objects_say_what_they_are() -> None:
    examples = {name: kind(**ARGUMENTS[name]) for name, kind in public_classes(pasta).items() if name in ARGUMENTS}
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
        "Regressor": Regressor("ridge", SCORER, []),
        "RobustnessPairs": pasta.RobustnessPairs("Q1", *[wide] * 6, ("a",) * 50, wide, wide, 0, 0),  # type: ignore[arg-type]
        "Training": pasta.Training(SCORER, [{"loss": 1 / 3}] * 50, {"Q1": 3}),
    }
    all_say_what_they_are(pasta, examples | records)
    assert repr(EMBEDDER) == f"Embedder({EMBEDDER.name!r}, size=16)"
