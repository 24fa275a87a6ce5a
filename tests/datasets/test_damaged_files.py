"""Whatever lies where a file is expected: each loader refuses it by name, in time, and takes no memory for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from captum_concepts import ConceptBank
from captum_concepts.backbones.weights import load_weights
from damaged import DAMAGES, Loader, check_damaged
from data_files import write_files
from fixtures_cub import write_cub
from fixtures_pasta import RELEASED_KEYS, write_pasta_release
from quantus_concepts.datasets import (
    CUB200,
    BAMFolder,
    COCOObjects,
    ConceptCSV,
    ConceptFolder,
    CutoutFolder,
    PastaRatings,
    SceneFolder,
)
from quantus_concepts.datasets.scenes.bam_folder import NumberedMasks
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer


def all_of(dataset: object) -> None:
    """Read every sample."""
    for index in range(len(dataset)):  # type: ignore[arg-type]
        dataset[index]  # type: ignore[index]


def cub(root: Path) -> list[Loader]:
    folder = write_cub(root)
    names = ["images.txt", "classes.txt", "train_test_split.txt", "parts/part_locs.txt", "attributes/attributes.txt"]
    names += ["attributes/image_attribute_labels.txt", "attributes/class_attribute_labels_continuous.txt"]
    paths = [min((folder / "images").rglob("*.jpg")), *(folder / name for name in names)]
    return [Loader(path, lambda: all_of(CUB200(folder))) for path in paths]


def folders(root: Path) -> list[Loader]:
    write_files(root)
    tables = [root / f"{name}.csv" for name in ("concepts", "parts", "about")]
    annotated = lambda: all_of(ConceptFolder(root / "scenes", *tables[:2], part_of_concept=tables[2]))  # noqa: E731
    listed = root / "table.csv"
    pd.read_csv(listed).to_parquet(root / "table.parquet")
    photographs = lambda: all_of(COCOObjects(root / "coco.json", root / "photographs", ["dog"]))  # noqa: E731
    composed = lambda: [all_of(BAMFolder(root / "bam", view=view)) for view in ("os", "og", "0s")]  # noqa: E731
    masks = root / "val_mask.npz"
    np.savez_compressed(masks, **{str(number): np.ones((5, 5), dtype=bool) for number in range(20)})
    objects = root / "bam" / "obj"
    for path in (root / "bam").rglob("*loc.txt"):
        if path != objects / "val_loc.txt":  # others take its place
            path.unlink()
    return [
        *(Loader(path, annotated) for path in (root / "scenes" / "cat" / "0.png", *tables)),
        *(
            Loader(path, lambda path=path: all_of(ConceptCSV(path, root / "scenes")))
            for path in (listed, listed.with_suffix(".parquet"))
        ),
        Loader(root / "scenes" / "cat" / "0.png", lambda: all_of(ConceptCSV(listed, root / "scenes"))),
        *(Loader(path, photographs) for path in (root / "photographs" / "1.png", root / "coco.json")),
        *(Loader(objects / name, composed) for name in ("val.txt", "val_loc.txt")),
        *(Loader(min((objects / name).iterdir()), composed) for name in ("val", "val_mask")),
        Loader(masks, lambda: NumberedMasks(masks).read("dog-track-0900.jpg", 0, (2, 2, 9, 9), 16, (16, 16))),
        Loader(root / "cutouts" / "cat" / "0.png", lambda: all_of(CutoutFolder(root / "cutouts"))),
        Loader(root / "scenes" / "cat" / "0.png", lambda: all_of(SceneFolder(root / "scenes"))),
    ]


def ratings(root: Path) -> list[Loader]:
    folder = write_pasta_release(root, n_images=1, explainers=("3", "41"), datasets=["coco"])
    files = [path for name in ("expl", "activations") for path in (folder / "result_dataset" / name).iterdir()]
    drawing = next(path for path in files if "_3_" in path.name and path.suffix == ".png")
    maps, concepts = (next(path for path in files if path.suffix == suffix) for suffix in (".npy", ".json"))
    return [
        Loader(folder / "human_annotations.json", lambda: PastaRatings(folder)),
        *(Loader(path, lambda: list(PastaRatings(folder).explanations)) for path in (drawing, concepts)),
        Loader(maps, lambda: list(PastaRatings(folder, drawings=False).explanations)),
    ]


def models(root: Path) -> list[Loader]:
    save_scorer(Scorer(4, ("Q1", "Q2"), ("a", "b"), (5, 3)), root / "ours.safetensors")
    released = dict(zip(RELEASED_KEYS, ((4, 1050), (4,), (3, 4), (3,), (1, 3), (1,)), strict=True))
    (root / "folder").mkdir()
    for name in ("PASTA_Q1.pth", "folder/PASTA_Q2.pth"):
        torch.save({key: torch.ones(shape) for key, shape in released.items()}, root / name)
    ConceptBank(torch.rand(5, 7)).save(root / "bank.safetensors")
    torch.save(torch.nn.Linear(2, 2).state_dict(), root / "linear.pt")
    save_file(torch.nn.Linear(2, 2).state_dict(), root / "linear.safetensors")
    reads: dict[str, Callable[[Path], object]] = {
        "ours.safetensors": load_scorer,
        "PASTA_Q1.pth": load_scorer,
        "folder/PASTA_Q2.pth": lambda path: load_scorer(path.parent),
        "bank.safetensors": ConceptBank.load,
        "linear.pt": lambda path: load_weights(torch.nn.Linear(2, 2), path),
        "linear.safetensors": lambda path: load_weights(torch.nn.Linear(2, 2), path),
    }
    return [Loader(root / name, lambda path=root / name, load=load: load(path)) for name, load in reads.items()]


@pytest.fixture(scope="module", params=[cub, folders, ratings, models], ids=lambda build: build.__name__)
def loaders(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Loader]:
    files = request.param(tmp_path_factory.mktemp("files"))
    for loader in files:
        loader.call()
    return files


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused_by_name(loaders: list[Loader], damage: str) -> None:
    for loader in loaders:
        check_damaged(loader, damage)
