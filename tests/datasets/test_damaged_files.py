"""Whatever lies where a file is expected: each loader refuses it by name, in time, and takes no memory for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from captum_concepts import ConceptBank, method_from_spec
from damaged import DAMAGES, Loader, check_damaged
from fixtures_cub import write_cub
from fixtures_pasta import write_pasta_release
from quantus_concepts.datasets import (
    CUB200,
    BAMFolder,
    COCOObjects,
    ConceptFolder,
    CutoutFolder,
    PastaRatings,
    SceneFolder,
)
from quantus_concepts.pasta.encoders.weights import load_weights
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer

RELEASED = {
    "net.0.weight": (4, 1050),
    "net.0.bias": (4,),
    "net.2.weight": (3, 4),
    "net.2.bias": (3,),
    "net.4.weight": (1, 3),
    "net.4.bias": (1,),
}


def all_of(dataset: object) -> None:
    """Read every sample."""
    for index in range(len(dataset)):  # type: ignore[arg-type]
        dataset[index]  # type: ignore[index]


def paint(path: Path, mode: str = "RGB", size: tuple[int, int] = (12, 10)) -> Path:
    """Write an image; with transparency, where it has any, around a square."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(len(path.name)).integers(0, 256, (size[1], size[0], len(mode)), dtype=np.uint8)
    if mode == "RGBA":
        pixels[..., 3] = 0
        pixels[2:6, 2:6, 3] = 255
    Image.fromarray(pixels.squeeze()).save(path)
    return path


def cub(root: Path) -> dict[str, Loader]:
    folder = write_cub(root)
    call = lambda: all_of(CUB200(folder))  # noqa: E731
    image = sorted((folder / "images").rglob("*.jpg"))[0]
    names = ["images.txt", "classes.txt", "train_test_split.txt", "parts/part_locs.txt"]
    names += [f"attributes/{name}.txt" for name in ("attributes", "image_attribute_labels")]
    paths = [image, *(folder / name for name in names), folder / "attributes/class_attribute_labels_continuous.txt"]
    return {f"CUB200 {path.stem[:20]}": Loader(path, call) for path in paths}


def concept_folder(root: Path) -> dict[str, Loader]:
    paths = [paint(root / "images" / name / f"{i}.png") for name in ("bird", "cat") for i in range(4)]
    texts = {
        "concepts.csv": "class,fur,wings\nbird,0,0.9\ncat,1,0\n",
        "parts.csv": "image,part,x,y\ncat/0.png,ear,3,4\ncat/1.png,ear,10,4.5\nbird/2.png,ear,0,9\n",
        "about.csv": "concept,part\nfur,ear\nwings,ear\n",
    }
    for name, text in texts.items():
        (root / name).write_text(text)
    tables = [root / name for name in texts]
    call = lambda: all_of(ConceptFolder(root / "images", *tables[:2], part_of_concept=tables[2]))  # noqa: E731
    return {f"ConceptFolder {path.name}": Loader(path, call) for path in (paths[0], *tables)}


def bam(root: Path) -> dict[str, Loader]:
    """The layout of the release with one pair of classes, masks as PNG and as an archive."""
    found = {}
    for kind in ("png", "npz"):
        base, name = root / kind, "dog-track-0900"
        for folder in ("obj", "scene", "scene_only"):
            paint(base / folder / "val" / f"{name}.jpg", size=(16, 16))
            (base / folder / "val.txt").write_text(f"{name}.jpg 0\n")
        (base / "obj" / "val_loc.txt").write_text(f"{name}.jpg 2,2,9,9\n")
        mask = base / "obj" / ("val_mask.npz" if kind == "npz" else f"val_mask/{name}.png")
        paint(mask.with_suffix(".png"), "L", (16, 16))
        if kind == "npz":
            mask.with_suffix(".png").unlink()
            np.savez_compressed(mask, **{str(number): np.ones((5, 5), dtype=bool) for number in range(20)})
        lists = [base / "obj/val.txt", base / "obj/val_loc.txt", base / f"obj/val/{name}.jpg"] if kind == "png" else []
        call = lambda base=base: [all_of(BAMFolder(base, view=view)) for view in ("os", "og", "0s")]  # noqa: E731
        found |= {f"BAMFolder {path.name}": Loader(path, call) for path in (mask, *lists)}
    return found


def coco(root: Path) -> dict[str, Loader]:
    photograph, path = paint(root / "images" / "1.png", size=(60, 40)), root / "instances.json"
    outline = [[10, 10, 30, 10, 10, 30]]
    content = {
        "images": [{"id": 1, "file_name": "1.png", "height": 40, "width": 60}],
        "categories": [{"id": 18, "name": "dog"}],
        "annotations": [{"id": 11, "image_id": 1, "category_id": 18, "segmentation": outline}],
    }
    path.write_text(json.dumps(content))
    call = lambda: all_of(COCOObjects(path, root / "images", ["dog"]))  # noqa: E731
    return {"COCOObjects json": Loader(path, call), "COCOObjects photograph": Loader(photograph, call)}


def sources(root: Path) -> dict[str, Loader]:
    for name in ("a", "b"):
        paint(root / "cutouts" / name / "1.png", "RGBA")
        paint(root / "scenes" / name / "1.jpg")
    cutout, scene = root / "cutouts" / "a" / "1.png", root / "scenes" / "a" / "1.jpg"
    return {
        "CutoutFolder": Loader(cutout, lambda: all_of(CutoutFolder(root / "cutouts"))),
        "SceneFolder": Loader(scene, lambda: all_of(SceneFolder(root / "scenes"))),
    }


def ratings(root: Path) -> dict[str, Loader]:
    folder = write_pasta_release(root, n_images=1, explainers=("3", "41"), datasets=["coco"])
    files = {
        path.suffix: path for name in ("expl", "activations") for path in (folder / "result_dataset" / name).iterdir()
    }
    drawing = next(path for path in (folder / "result_dataset/expl").iterdir() if "_3_" in path.name)
    return {
        "PastaRatings json": Loader(folder / "human_annotations.json", lambda: PastaRatings(folder)),
        "PastaRatings drawing": Loader(drawing, lambda: list(PastaRatings(folder).explanations)),
        "PastaRatings map": Loader(files[".npy"], lambda: list(PastaRatings(folder, drawings=False).explanations)),
        "PastaRatings concepts": Loader(files[".json"], lambda: list(PastaRatings(folder).explanations)),
    }


def models(root: Path) -> dict[str, Loader]:
    save_scorer(Scorer(4, ("Q1", "Q2"), ("a", "b"), (5, 3)), root / "ours.safetensors")
    torch.save({name: torch.ones(shape) for name, shape in RELEASED.items()}, root / "PASTA_Q1.pth")
    (root / "folder").mkdir()
    torch.save({name: torch.ones(shape) for name, shape in RELEASED.items()}, root / "folder" / "PASTA_Q2.pth")
    ConceptBank(torch.rand(5, 7)).save(root / "bank.safetensors")
    torch.save(torch.nn.Linear(2, 2).state_dict(), root / "linear.pt")
    save_file(torch.nn.Linear(2, 2).state_dict(), root / "linear.safetensors")
    (root / "methods.py").write_text(
        "import captum.attr\n\n\ndef method(model):\n    return captum.attr.Saliency(model)\n"
    )
    reads = {
        "ours.safetensors": load_scorer,
        "PASTA_Q1.pth": load_scorer,
        "folder/PASTA_Q2.pth": lambda path: load_scorer(path.parent),
        "bank.safetensors": ConceptBank.load,
        "linear.pt": lambda path: load_weights(torch.nn.Linear(2, 2), path),
        "linear.safetensors": lambda path: load_weights(torch.nn.Linear(2, 2), path),
        "methods.py": lambda path: method_from_spec(f"{path}:method"),
    }
    return {
        f"{name}": Loader(root / name, lambda path=root / name, read=read: read(path)) for name, read in reads.items()
    }


BUILDERS = (cub, concept_folder, bam, coco, sources, ratings, models)
NAMES = (
    "CUB200 Black_footed_Albatro",
    "CUB200 images",
    "CUB200 classes",
    "CUB200 train_test_split",
    "CUB200 part_locs",
    "CUB200 attributes",
    "CUB200 image_attribute_labe",
    "CUB200 class_attribute_labe",
    "ConceptFolder 0.png",
    "ConceptFolder concepts.csv",
    "ConceptFolder parts.csv",
    "ConceptFolder about.csv",
    "BAMFolder dog-track-0900.png",
    "BAMFolder val.txt",
    "BAMFolder val_loc.txt",
    "BAMFolder dog-track-0900.jpg",
    "BAMFolder val_mask.npz",
    "COCOObjects json",
    "COCOObjects photograph",
    "CutoutFolder",
    "SceneFolder",
    "PastaRatings json",
    "PastaRatings drawing",
    "PastaRatings map",
    "PastaRatings concepts",
    "ours.safetensors",
    "PASTA_Q1.pth",
    "folder/PASTA_Q2.pth",
    "bank.safetensors",
    "linear.pt",
    "linear.safetensors",
    "methods.py",
)


@pytest.fixture(scope="module")
def loaders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Loader]:
    found = {}
    for build in BUILDERS:
        found |= build(tmp_path_factory.mktemp(build.__name__))
    return found


def test_all_can_be_read_before(loaders: dict[str, Loader]) -> None:
    assert tuple(loaders) == NAMES
    for loader in loaders.values():
        loader.call()


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_refused_by_name(loaders: dict[str, Loader], name: str, damage: str) -> None:
    check_damaged(loaders[name], damage)
