"""Names of classes and concepts are shown as they are: `$...$` is no formula, `[red]` no markup."""

from __future__ import annotations

import html
from pathlib import Path

import torch
from torch import Tensor, nn

from captum_concepts._support.shown import readable_name
from fixtures_commands import write_own_images
from golden.runs import smaller
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.studies._models.normalised import better_normalised
from quantus_concepts.studies.app import main

ODD = r"$\frac$ [red]"


def test_a_run_with_odd_names_from_the_images_to_the_report(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_own_images(tmp_path, (ODD, "[bold]"))
    concepts = [f"{ODD} {name}" for name in ("a", "b", "$_{$")]
    table = [f"class,{','.join(concepts)}", f"{ODD},1,0,1", "[bold],0,1,0"]
    Path("concepts.csv").write_text("\n".join(table) + "\n")
    arguments = (
        "--data folder --root fruit --concepts concepts.csv --min-images 1 --backbone network.py:model --unnormalised"
    )
    more = "--no-progress --device cpu --out result --no-sweep --method mean"
    with smaller(figures=True):
        assert main(["benchmark", "concepts", *arguments.split(), *more.split()]) == 0
    page = Path("result/report.html").read_text(encoding="utf-8")
    assert all(readable_name(name) in page for name in concepts)
    # Two columns are the same.
    assert f"{concepts[0]!r} = {concepts[2]!r}" in html.unescape(page)
    drawn = {path.stem for path in Path("result/figures").glob("*.png")}
    assert drawn >= {"presence_and_place", "best_and_worst_concepts", "gallery"}


class Bright(nn.Module):
    """Class 0 for images above the mean they were normalised with."""

    def forward(self, images: Tensor) -> Tensor:
        brightness = images.mean((1, 2, 3))
        return torch.stack([brightness, -brightness], 1)


class Samples:
    """Bright images of class 0 and dark ones of class 1, normalised."""

    class_names = ("bright", "dark")

    def __init__(self, mean: float, std: float) -> None:
        self.mean, self.std = mean, std

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> ConceptSample:
        image = torch.full((3, 4, 4), 0.6 if index < 10 else 0.3)
        return ConceptSample((image - self.mean) / self.std, int(index >= 10), torch.zeros(2), torch.zeros(0, 1, 2))


def test_a_network_that_does_better_with_the_usual_means_is_told() -> None:
    (note,) = better_normalised(Bright(), Samples(0.0, 1.0), None, None)
    assert "right on 50% of 20 test images as they are given to it, and on 100% with ImageNet's" in note
    (note,) = better_normalised(Bright(), Samples(0.9, 0.5), (0.9,) * 3, (0.5,) * 3)
    assert "50%" in note
    assert better_normalised(Bright(), Samples(0.45, 0.2), (0.45,) * 3, (0.2,) * 3) == []
    # A network of other classes has no accuracy here.
    assert better_normalised(nn.Flatten(), Samples(0.0, 1.0), None, None) == []
