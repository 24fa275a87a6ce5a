"""Bad arguments of everything public of the data sets: refused by name, at once, and nothing is written."""

from __future__ import annotations

import json
import pickle
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torchvision.transforms import v2

from bad_arguments import assert_refused, public_functions, spoilt
from block_sources import Blocks, Plains
from fixtures_cub import write_cub
from good.datasets import GOOD
from one_line import all_say_what_they_are, public_classes
from quantus_concepts import datasets

NAN, INF = float("nan"), float("inf")
#: Paths of nothing that is there.
NO_PATHS = ("", "nowhere", "a\0b", "~nosuchuser/x", "x" * 300, "file.txt/x", None, 3)
NO_FOLDERS, NO_FILES = (*NO_PATHS, "file.txt"), (*NO_PATHS, "folder")
#: Records: nothing of them is checked before a data set is made of it.
BARE = {"ExplanationFile", "Split", "find_explanations"}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one of each kind of file that there is."""
    root = tmp_path_factory.mktemp("place")
    (root / "folder").mkdir()
    (root / "file.txt").write_text("no data")
    for name in ("cat", "dog"):
        for kind, mode in (("cutouts", "RGBA"), ("scenes", "RGB"), ("photographs", "RGB")):
            (root / kind / name).mkdir(parents=True)
            Image.new(mode, (8, 8)).save(root / kind / name / "0.png")
    shown = Image.new("RGBA", (8, 8))
    shown.paste((200, 0, 0, 255), (2, 2, 6, 7))
    shown.save(root / "cutouts" / "cat" / "0.png")
    Image.new("RGB", (8, 8)).save(root / "photographs" / "1.png")
    (root / "concepts.csv").write_text("class,red\ncat,1\ndog,0\n")
    (root / "parts.csv").write_text("image,part,x,y\ncat/0.png,red,1,1\n")
    square = [[1, 1, 6, 1, 6, 6, 1, 6]]
    photographs = [{"id": 1, "file_name": "1.png", "height": 8, "width": 8}]
    annotations = [{"id": 1, "image_id": 1, "category_id": 1, "area": 25, "segmentation": square}]
    coco = {"images": photographs, "annotations": annotations, "categories": [{"id": 1, "name": "dog"}]}
    (root / "coco.json").write_text(json.dumps(coco))
    (root / "images").mkdir()
    Image.new("RGB", (8, 8)).save(root / "images" / "pets_0_cat.png")
    np.save(root / "images" / "pets_0_a_cat.npy", np.eye(3, dtype=np.float32))
    record = {"img": "images/pets_0_cat.png", "explication": "images/pets_0_a_cat.png", "Annotation": [{"Q1": 3}]}
    (root / "human_annotations.json").write_text(json.dumps([record]))
    datasets.write_bam(Blocks(), Plains(), root / "bam", n_per_pair=2, image_size=16, display_progressbar=False)
    samples = [(torch.zeros(3, 4, 4), "a::b", "Jay")]
    datasets.write_sub(samples, root / "sub", attribute_names=["a::b"], bird_names=["Jay"])
    return root


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)


@cache
def birds() -> datasets.PaintedBirds:
    return datasets.PaintedBirds(2, image_size=32, n_classes=2, n_concepts=4)


@cache
def composed() -> datasets.ObjectsOnScenes:
    return datasets.ObjectsOnScenes(Blocks(), Plains(), n_per_pair=1, image_size=16)


@cache
def rated() -> datasets.SimulatedRatings:
    return datasets.simulated_ratings(3, 2, 32, n_classes=2, n_concepts=26)


def votes(**changes):
    columns = ("image_ids", "explainer_ids", "labels", "datasets", "modalities")
    values = {"explanations": [1], "votes": np.ones((1, 2, 6)), "name": "mine"}
    return values | {name: ["map"] for name in columns} | changes


#: Paths that could be, of which there is none.
THERE_IS_NONE = ("nowhere", "~nosuchuser/x", "file.txt/x", "file.txt")
NO_LABELS = (np.ones(2), np.ones((1, 1)), 3, None)
NO_VOTES = (None, "many", np.ones((1, 6)), np.ones((2, 2, 6)), np.ones((1, 2, 5)), np.full((1, 2, 6), 0.5))
NO_RATINGS = {"votes": NO_VOTES, "modalities": (*NO_LABELS, ["maps"])}
NO_RATINGS |= dict.fromkeys(("image_ids", "explainer_ids", "labels", "datasets"), NO_LABELS)
#: For each callable what it is given that is good, and for each argument what no constraint describes.
TABLE = {
    "PaintedBirds": (lambda: {"n_images": 3, "n_classes": 3, "image_size": 32}, {"n_images": (2,)}),
    "PaintedSubstitutions": (
        lambda: {"birds": birds()},
        {"concepts": ("red", ["red"], [99], [-1], [0.5], 3, [])},
    ),
    "SUB": (lambda: {"root": "sub"}, {"root": (*NO_FOLDERS, "folder")}),
    "write_sub": (
        lambda: (
            {"samples": [(torch.zeros(3, 2, 2), "a::b", "Jay")], "out": "new"}
            | {"attribute_names": ["a::b"], "bird_names": ["Jay"]}
        ),
        {
            "samples": (None, "images", 3, [], [(3, "a::b", "Jay")], [(torch.zeros(3, 2, 2), "a::c", "Jay")]),
            "attribute_names": (["a::b", "a::b"],),
            "bird_names": (["Jay", "Jay"],),
        },
    ),
    "CutoutFolder": (dict, {"root": THERE_IS_NONE}),
    "SceneFolder": (dict, {"root": THERE_IS_NONE}),
    "CUB200": (dict, {"root": (*THERE_IS_NONE, "folder")}),
    "ConceptFolder": (
        lambda: {"root": "scenes", "concepts": "concepts.csv", "parts": "parts.csv"},
        {
            "root": THERE_IS_NONE,
            "image_size": (0, -1, 1.5, "8", NAN, (8,), (8, 8, 8), (8, 0), (8, "8"), True),
            "part_of_concept": (*(path for path in NO_FILES if path is not None), ["red"], {"rde": "red"}),
        },
    ),
    "COCOObjects": (
        lambda: {"annotations": "coco.json", "images": "photographs", "class_names": ("dog",)},
        {
            "annotations": (*THERE_IS_NONE[:-1], "folder"),
            "images": THERE_IS_NONE,
            "class_names": ("dog", (), ("dog", "dog"), ("dgo",), None, 3, (3,)),
        },
    ),
    "BAMFolder": (dict, {"root": (*THERE_IS_NONE, "folder")}),
    "ObjectsOnScenes": (
        lambda: {"objects": Blocks(), "scenes": Plains(), "commonality": 0.5, "image_size": 16},
        {
            "objects": (None, "cutouts", Plains()),
            "scenes": (None, "scenes", Blocks()),
            "common_object": (-1, 99, "", "dgo", 1.5, NAN),
            "target_scene": (-1, 99, "", "dgo", 1.5, NAN),
            "scale": ((0, 1), (NAN, 1), (0.5,), (0.5, INF), 0.5, None, "ab", ("a", "b")),
        },
    ),
    "MixedScenes": (
        lambda: {"scenes": Plains(), "others": Plains()},
        {
            "scenes": (None, "scenes", Blocks()),
            "others": (None, "scenes", Blocks()),
            "share": ((0.2,), 0.2, None, (NAN, 0.2), (0.3, 0.2), (0.1, 0.5), ("a", "b"), (-0.1, 0.2)),
        },
    ),
    "write_bam": (
        lambda: {"objects": Blocks(), "scenes": Plains(), "out": "new", "image_size": 16, "display_progressbar": False},
        {"objects": (None, "painted", Plains()), "scenes": (None, "painted", Blocks()), "image_size": (15,)},
    ),
    "PastaRatings": (
        lambda: {"root": "."},
        {
            "root": (*THERE_IS_NONE, "folder"),
            "datasets": ((), "cats", ("pets", "cats"), 3),
            "annotations": ("nowhere.json",),
            "concept_explainers": (3,),
            "counterfactual_explainers": (3,),
        },
    ),
    "RatedExplanations": (votes, NO_RATINGS),
    "SimulatedRatings": (lambda: votes(expected=np.ones((1, 6))), NO_RATINGS),
    "leak_free_split": (
        lambda: {"image_ids": list("abc"), "explainer_ids": list("xyz")},
        {"image_ids": (None, "abc", [["a"]]), "explainer_ids": (None, "abc", [["a"]], list("ab"))},
    ),
    "default_transform": (
        lambda: {"image_size": 8},
        {
            "image_size": (0, -1, 1.5, "8", NAN, None, (8,), (8, 8, 8), (8, 0), (8, "8"), True),
            "mean": ((), (NAN,) * 3, (INF,) * 3, ("a",) * 3, 0.5, [[0.5]]),
            "std": ((), (NAN,) * 3, (0, 1, 1), (-1, 1, 1), (INF,) * 3, ("a",) * 3, 0.5),
        },
    ),
    "apply_transform": (
        lambda: {"image": torch.zeros(3, 4, 4), "points": torch.zeros(1, 1, 2), "transform": None},
        {
            "image": (torch.zeros(4, 4), torch.zeros(1, 3, 4, 4), np.zeros((3, 4, 4)), None, "image"),
            "points": (torch.zeros(1, 2), torch.zeros(1, 1, 3), np.zeros((1, 1, 2)), None, "points"),
        },
    ),
}
CASES = {name: spoilt(getattr(datasets, name), good, **bad) for name, (good, bad) in TABLE.items()}


@pytest.mark.parametrize("cases", CASES.values(), ids=CASES)
def test_bad_arguments_are_refused_by_name(cases):
    assert_refused(cases)


def folder_of_concepts(**changes):
    return datasets.ConceptFolder("scenes", "concepts.csv", **changes)


METHODS = {
    "bird past the end": (lambda: birds()[2], "`index`"),
    "bird before the start": (lambda: birds()[-3], "`index`"),
    "bird of a half": (lambda: birds()[0.5], "`index`"),
    "bird of no number": (lambda: birds()["first"], "`index`"),
    "bird of nothing": (lambda: birds()[None], "`index`"),
    "birds past the end": (lambda: birds().images([0, 2]), "`index`"),
    "birds of no list": (lambda: birds().images(3), "`indices`"),
    "substitute past the end": (lambda: birds().substitute(2, 0), "`index`"),
    "substitute no concept": (lambda: birds().substitute(0, "red"), "`concept`"),
    "substitute concept 99": (lambda: birds().substitute(0, 99), "`concept`"),
    "substitute nothing": (lambda: birds().substitute(0, None), "`concept`"),
    "substitution past the end": (lambda: datasets.PaintedSubstitutions(birds())[99], "`index`"),
    "masks past the end": (lambda: birds().part_masks(2), "`index`"),
    "masks of concept -1": (lambda: birds().part_masks(0, -1), "`concept`"),
    "masks of half a concept": (lambda: birds().part_masks(0, 0.5), "`concept`"),
    "object past the end": (lambda: datasets.PaintedObjects(1)[10], "`index`"),
    "object of no number": (lambda: datasets.PaintedObjects(1)["first"], "`index`"),
    "scene past the end": (lambda: datasets.PaintedScenes(1)[10], "`index`"),
    "scene of a half": (lambda: datasets.PaintedScenes(1)[0.5], "`index`"),
    "composed past the end": (lambda: composed()[99], "`index`"),
    "composed of no number": (lambda: composed()["first"], "`index`"),
    "composed images past the end": (lambda: composed().images([99]), "`indices`"),
    "composed masks of halves": (lambda: composed().masks([0.5]), "`indices`"),
    "composed boxes of bools": (lambda: composed().boxes([True]), "`indices`"),
    "composed images of one number": (lambda: composed().images(3), "`indices`"),
    "composed images of words": (lambda: composed().images(["first"]), "`indices`"),
    "composed scene past the end": (lambda: composed().scene(99), "`index`"),
    "composed object past the end": (lambda: composed().pasted(99), "`index`"),
    "BAM past the end": (lambda: datasets.BAMFolder("bam")[99], "`index`"),
    "BAM of no number": (lambda: datasets.BAMFolder("bam")["first"], "`index`"),
    "own image past the end": (lambda: folder_of_concepts()[2], "`index`"),
    "own image of a half": (lambda: folder_of_concepts()[0.5], "`index`"),
    "cut-out past the end": (lambda: datasets.CutoutFolder("cutouts")[2], "`index`"),
    "cut-out of no number": (lambda: datasets.CutoutFolder("cutouts")["first"], "`index`"),
    "own scene past the end": (lambda: datasets.SceneFolder("scenes")[2], "`index`"),
    "photograph past the end": (
        lambda: datasets.COCOObjects("coco.json", "photographs", ("dog",))[1],
        "`index`",
    ),
    "mixed scene past the end": (lambda: datasets.MixedScenes(Plains(), Plains())[999], "`index`"),
    "ratings past the end": (lambda: rated().select([99]), "`items`"),
    "ratings of nothing": (lambda: rated().select(None), "`items`"),
    "ratings of words": (lambda: rated().select(["first"]), "`items`"),
    "ratings by too many bools": (lambda: rated().select(np.ones(9, bool)), "`items`"),
    "votes joined in no way": (lambda: rated().targets("most"), "`how`"),
    "votes joined by nothing": (lambda: rated().targets(None), "`how`"),
    "votes on one axis": (lambda: datasets.SimulatedRaters().vote(np.ones(6)), "`expected`"),
    "votes on nothing": (lambda: datasets.SimulatedRaters().vote(None), "`expected`"),
    "votes on words": (lambda: datasets.SimulatedRaters().vote([["a"]]), "`expected`"),
    "votes with a negative seed": (lambda: datasets.SimulatedRaters().vote(np.ones((1, 6)), -1), "`seed`"),
    "votes with half a seed": (lambda: datasets.SimulatedRaters().vote(np.ones((1, 6)), 0.5), "`seed`"),
    "expected votes of others": (lambda: datasets.SimulatedRatings(**votes(), expected=np.ones((2, 6))), "`expected`"),
    "parts without points": (lambda: folder_of_concepts(part_of_concept={"red": "red"}), "`parts`"),
    "no points and a word": (
        lambda: datasets.apply_transform(torch.zeros(3, 4, 4), torch.zeros(0, 1, 2), lambda image: "image"),
        "`transform`",
    ),
    "points and a function": (
        lambda: datasets.apply_transform(torch.zeros(3, 4, 4), torch.zeros(1, 1, 2), lambda image: image),
        "`transform`",
    ),
    "points and a number": (
        lambda: datasets.apply_transform(torch.zeros(3, 4, 4), torch.zeros(1, 1, 2), 3),
        "`transform`",
    ),
    "no points and a number": (
        lambda: datasets.apply_transform(torch.zeros(3, 4, 4), torch.zeros(0, 1, 2), 3),
        "`transform`",
    ),
    "points dropped": (
        lambda: datasets.apply_transform(
            torch.zeros(3, 4, 4), torch.ones(1, 1, 2), v2.Lambda(lambda each: each[..., :1])
        ),
        "`transform`",
    ),
    "out is a file": (lambda: datasets.write_bam(Blocks(), Plains(), "file.txt"), "file.txt` is a file"),
    "out holds files": (lambda: datasets.write_bam(Blocks(), Plains(), "scenes"), "already holds files"),
}


def test_bad_calls_of_methods_are_refused_by_name():
    assert_refused(METHODS)


MADE = ("PaintedBirds", "PaintedObjects", "PaintedScenes", "ConceptFolder", "COCOObjects", "BAMFolder")
MADE += ("PaintedSubstitutions", "SUB", "ObjectsOnScenes", "MixedScenes", "PastaRatings", "simulated_ratings")


def good(name):
    return (name in TABLE and TABLE[name][0]()) or GOOD[name]


READ = {name: lambda name=name: getattr(datasets, name)(**good(name)) for name in MADE}
READ |= {
    "CutoutFolder": lambda: datasets.CutoutFolder("cutouts"),
    "SceneFolder": lambda: datasets.SceneFolder("scenes"),
}
READ |= {"some ratings": lambda: datasets.PastaRatings(".").select([0])}


def plain(sample):
    fields = vars(sample).values() if hasattr(sample, "modality") else sample
    return [np.asarray(each) for each in fields]


@pytest.mark.parametrize("make", READ.values(), ids=READ)
def test_what_a_worker_of_a_loader_is_sent_gives_the_same_samples(make):
    data = make()
    sent = pickle.loads(pickle.dumps(data))
    items, found = (getattr(each, "explanations", each) for each in (data, sent))
    assert len(found) == len(items)
    np.testing.assert_equal(plain(found[0]), plain(items[0]))
    # What was read before goes along or does not: it is the same.
    np.testing.assert_equal(plain(pickle.loads(pickle.dumps(items))[0]), plain(items[0]))


def test_everything_public_has_constraints_or_cases():
    unconstrained = {name for name, function in public_functions(datasets) if not hasattr(function, "constraints")}
    assert {name for name in unconstrained if "." not in name} - TABLE.keys() == BARE


@pytest.mark.filterwarnings("ignore:The images of sub are licensed")
def test_objects_say_what_they_are(tmp_path: Path) -> None:
    roots = {"CUB200": write_cub(tmp_path), "CutoutFolder": "cutouts", "SceneFolder": "scenes", "BAMFolder": "bam"}
    arguments = {name: good(name) for name in {**GOOD, **TABLE}} | {
        name: {"root": root} for name, root in roots.items()
    }
    kinds = public_classes(datasets)
    examples = {name: kind(**arguments[name]) for name, kind in kinds.items() if name in arguments}
    wide = torch.arange(300.0)
    records = {
        "ComposedSample": datasets.ComposedSample(wide, 0, 0, wide, wide),
        "ConceptSample": datasets.ConceptSample(wide, 0, wide, wide),
        "Cutout": datasets.Cutout(wide.numpy(), wide.numpy()),
        "SUBSample": datasets.SUBSample(wide, 0),
        "Split": datasets.leak_free_split([str(n) for n in range(50)], [str(n % 10) for n in range(50)]),
        "SubstitutionSample": datasets.PaintedSubstitutions(birds())[0],
    }
    interfaces = frozenset({"ExplanationFile", "ComposedDataset", "ConceptDataset", "ObjectSource", "SceneSource"})
    all_say_what_they_are(datasets, examples | records, interfaces)
    assert repr(folder_of_concepts(image_size=8)) == (
        "ConceptFolder(2 images, 2 classes, 1 concepts, image_size=8, root='scenes')"
    )
    assert repr(examples["SceneFolder"]) == "SceneFolder(2 scenes, 2 classes, root='scenes')"
    assert repr(examples["BAMFolder"]).endswith("view='os', split='test', root='bam')")
