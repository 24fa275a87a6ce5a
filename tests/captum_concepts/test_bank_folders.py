"""Banks of folders of images: what is planted is found, random images are nothing, folders not as said are named."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from captum_concepts import ConceptBank, embed
from captum_concepts.bank.folders import set_p_values
from simulated_device import simulated_device
from untouched import untouched

N, SIZE, N_SETS = 24, 4, 6

pytestmark = pytest.mark.filterwarnings("ignore:Without `transform` the network")


class Colours(nn.Module):
    """The mean colour of an image as its embedding, in batches that are counted; dropout tells its mode."""

    def __init__(self) -> None:
        super().__init__()
        self.dropout = nn.Dropout(0.5)
        self.seen: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.seen.append(len(images))
        return self.dropout(images)


def write(folder: Path, n: int, red: int = 0, seed: int = 0, size: int = SIZE) -> list[Path]:
    """Save images of random colours, some with more red."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{i:02d}.png" for i in range(n)]
    for path in paths:
        colour = rng.integers(40, 140, 3) + np.array([red, 0, 0])
        pixels = colour + rng.integers(-20, 20, (size, size, 3))
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return paths


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One concept of its own negatives, one that shares random sets, and one that is random itself."""
    root = tmp_path_factory.mktemp("concepts")
    write(root / "own" / "positive", N, red=80, seed=1)
    write(root / "own" / "negative", N, seed=2)
    write(root / "red", N, red=80, seed=3)
    write(root / "nothing", N, seed=4)
    for i in range(N_SETS - 1):
        write(root / f"random_{i}", N, seed=10 + i)
    write(root / "random" / "more", N, seed=30)
    (root / "red" / "notes.txt").write_text("from the garden")
    (root / ".cache").mkdir()
    return root


def bank_of(root: Path, **settings: object) -> ConceptBank:
    with warnings.catch_warnings():
        # `nothing` is hardly recognised, as it should be.
        warnings.filterwarnings("ignore", "1 of 3 concepts have a balanced accuracy below")
        return ConceptBank.from_folders(Colours().train(), root, **settings)


@pytest.fixture(scope="module")
def bank(root: Path) -> ConceptBank:
    return bank_of(root)


def test_planted_directions_are_recovered(bank: ConceptBank) -> None:
    assert bank.names == ["nothing", "own", "red"]
    red = (bank.cavs / bank.norms[:, None])[:, 0]
    assert (red[1:] > 0.95).all()
    assert (bank.test_accuracy[1:] > 0.8).all()
    # Random images are no concept.
    assert bank.test_accuracy[0] == pytest.approx(0.5, abs=0.2)
    assert bank.settings["random_accuracy"] == pytest.approx(0.5, abs=0.15)
    assert bank.p_values[0] > 0.05
    assert bank.p_values[2] < 0.03
    # Its direction knows no random image.
    assert bank.p_values[1].isnan()


@pytest.mark.parametrize(("method", "n_pos", "n_neg"), [("svm", None, None), ("mean", 8, 12)])
def test_each_concept_is_fitted_as_by_fit(root: Path, method: str, n_pos: int | None, n_neg: int | None) -> None:
    bank = bank_of(root, method=method, n_pos=n_pos, n_neg=n_neg, seed=3, C=0.5)
    sets = [root / "random" / "more", *(root / f"random_{i}" for i in range(N_SETS - 1))]
    for name, folders in (("own", [root / "own" / "negative"]), ("red", sets)):
        with_it = root / name / "positive" if name == "own" else root / name
        files = [path for folder in (with_it, *folders) for path in sorted(folder.glob("*.png"))]
        images = torch.stack([torch.from_numpy(np.array(Image.open(path))) for path in files])
        features = embed(nn.Identity(), [(images.permute(0, 3, 1, 2).contiguous().float() / 255,)]).features
        labels = (torch.arange(len(files)) < N)[:, None]
        # A fifth of 24 images is 4.
        fitted = ConceptBank.fit(features, labels, [name], method, n_pos or 20, n_neg or 20, seed=3, C=0.5)
        ours = bank.select(name)
        for tensor in ("cavs", "intercepts", "train_accuracy", "test_accuracy"):
            assert torch.equal(getattr(ours, tensor), getattr(fitted, tensor)), tensor


def test_images_are_embedded_once_without_side_effects(root: Path, bank: ConceptBank) -> None:
    backbone = Colours().train()
    with untouched(backbone), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = ConceptBank.from_folders(backbone, root, batch_size=100)
    assert sum(backbone.seen) == (4 + N_SETS) * N
    assert max(backbone.seen) == 100
    assert torch.equal(again.cavs, bank.cavs)
    assert bank.settings["random_sets"] == N_SETS


@pytest.mark.filterwarnings("ignore:. of 3 concepts have a balanced")
def test_banks_are_on_the_device_of_the_backbone(root: Path) -> None:
    backbone = nn.Conv2d(3, 3, 1)
    here = ConceptBank.from_folders(backbone, root, method="mean")
    with simulated_device() as simulation:
        there = ConceptBank.from_folders(copy.deepcopy(backbone).to(simulation.device), root, method="mean")
        assert there.device == simulation.device
        assert torch.equal(there.cavs.cpu(), here.cavs)


@pytest.mark.parametrize("n_sets", [4, 5])
def test_p_values_need_five_random_sets(n_sets: int, tmp_path: Path) -> None:
    write(tmp_path / "red", 10, red=80)
    for name in range(n_sets):
        write(tmp_path / "chance" / str(name), 10, seed=name)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Expected at least 5 folders")
        bank = ConceptBank.from_folders(Colours(), tmp_path, random="chance", method="mean")
    assert bank.p_values.isnan().all() == (n_sets < 5)


def test_p_values_by_hand() -> None:
    # Means of the sets 0.45, 0.5, 0.55: deviation 0.05, times 2 for what sets share, times sqrt(4 / 3): 0.11547.
    among = np.array([[np.nan, 0.4, 0.5], [0.4, np.nan, 0.6], [0.5, 0.6, np.nan]])
    # (0.5 - 0.5) / 0.11547 = 0; 0.23094 / 0.11547 = 2, beyond which Student's t with 2 degrees lies with 0.0918.
    p_values = set_p_values(np.array([[0.5, 0.5, 0.5], [0.63094, 0.73094, 0.83094]]), among)
    np.testing.assert_allclose(p_values, [0.5, 0.0918], atol=1e-4)


@pytest.mark.parametrize(("n_sets", "scale"), [(4, 1.0), (10, 0.0)])
def test_random_sets_as_concepts_are_significant_at_the_nominal_rate(n_sets: int, scale: float) -> None:
    # Accuracies vary with the set, with the pair, or both; among 1500 sets 5 % are 75 +- 8.
    rng = np.random.default_rng(0)
    p_values = []
    for _ in range(1500):
        part = scale * rng.normal(size=n_sets + 1)
        pair = np.triu(rng.normal(size=(n_sets + 1, n_sets + 1)), 1)
        table = part[:, None] + part + pair + pair.T
        np.fill_diagonal(table, np.nan)
        p_values.append(set_p_values(table[:1, 1:], table[1:, 1:])[0])
    assert np.mean(np.array(p_values) < 0.05) < 0.065


#: What is done to a folder that is right, and what the error has to say.
FAULTS = {
    "one image": (lambda r: write(r / "blue", 1), r"blue, at least 2 .*but there is 1"),
    "a folder inside": (lambda r: write(r / "red" / "more", 2), r"images in .*red, .* but there is a folder 'more'"),
    "of two sizes": (lambda r: write(r / "blue", 2, size=5), r"images of one size but got \(3, 4, 4\) and \(3, 5, 5\)"),
    "unreadable": (lambda r: (r / "red" / "a.png").write_text("a"), r"red/a.png cannot be read \(no known image"),
    "a link to nothing": (lambda r: (r / "red" / "a.png").symlink_to(r / "no"), "red/a.png .* it is a link to nothing"),
    "no positive": (lambda r: write(r / "blue" / "negative", 2), r"folder `positive` next to `negative` in .*blue"),
    "images beside": (
        lambda r: (write(r / "blue" / "positive", 2), write(r / "blue", 2)),
        "nothing but the folders `positive` and `negative` in .*blue",
    ),
    "no random": (lambda r: (r / "random").rename(r / "others"), "a folder 'random' in .* but 'others' has neither"),
    "one concept": (lambda r: write(r / "positive", 2), "`root` to hold one folder for each concept but .*itself"),
    "no concept": (lambda r: (r / "red").rename(r / "random0"), "holds no folder besides those of random images"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_layouts_of_folders_are_refused(tmp_path: Path, fault: str) -> None:
    write(tmp_path / "red", 2, red=80)
    write(tmp_path / "random", 2)
    spoil, message = FAULTS[fault]
    spoil(tmp_path)
    with pytest.raises(ValueError, match=message):
        ConceptBank.from_folders(Colours(), tmp_path)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (torch.full((3, 4, 4), torch.nan), "`backbone` to give finite embeddings but .* 4 of 4 images, .*red/00.png"),
        (torch.zeros(1, 3, 4, 4), r"`transform` to give a tensor \(C, H, W\) .* but got torch.float32, \(1, 3, 4, 4\)"),
    ],
)
def test_what_a_transform_gives_is_checked(tmp_path: Path, given: Tensor, message: str) -> None:
    write(tmp_path / "red", 2)
    write(tmp_path / "random", 2)
    with pytest.raises(ValueError, match=message):
        ConceptBank.from_folders(Colours(), tmp_path, transform=lambda image: given)
