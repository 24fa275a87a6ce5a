"""What is done with the options of a command: what its folder is told of them, and which are refused together."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from quantus_concepts.studies._kit.options import (
    channel_numbers,
    check_birds,
    given_settings,
    normalisation,
    refuse_without_effect,
    require,
    torch_device,
)
from quantus_concepts.studies._kit.painted import Painted, read_painted
from quantus_concepts.studies.app import EXIT_BAD_INPUT, main


def test_settings_are_the_options_that_can_change_results(tmp_path):
    given = {"n_train": 3, "seed": 0, "layer": None, "sweep": False, "out": Path("a"), "progress": True, "readers": 2}
    settings = given_settings(given)
    assert settings.pop("version")
    assert settings == {"n train": "3", "seed": "0"}


def test_a_file_is_listed_with_what_it_holds(tmp_path):
    network = tmp_path / "net.py"
    named = {"weights": network, "backbone": f"{network}:model", "root": tmp_path, "name": "resnet18"}
    named |= {"image": [network, network], "text": ["a", "b"], "none": []}
    told = []
    for content in ("a", "b"):
        network.write_text(content)
        told.append(given_settings(named))
    first, second = told
    assert {name for name in first if first[name] != second[name]} == {"weights", "backbone", "image", "root"}
    assert first["text"] == "a, b"
    assert "none" not in first
    assert first["backbone"].startswith(f"{network}:model (")
    assert first["name"] == "resnet18"


def test_options_that_have_no_effect_and_those_that_are_missing_are_named():
    refuse_without_effect("without --root", layer=None, sweep=False)
    with pytest.raises(ValueError, match="`--image-size` has no effect with --cbm"):
        refuse_without_effect("with --cbm", layer=None, image_size=3)
    with pytest.raises(ValueError, match="`--root` with --data folder"):
        require("with --data folder", root=None)
    with pytest.raises(ValueError, match=r"`--image-size` to lie in \[\d+, \d+\] for painted birds but got 3"):
        check_birds(4, 3, {"--n-train": 4})
    with pytest.raises(ValueError, match="`--device`"):
        torch_device("cuda:99")
    assert torch_device("auto").type in ("cpu", "cuda")


def test_painted_birds_are_those_of_the_study_but_for_the_keys_given(capsys):
    usual = Painted(n_train=1200, n_concepts=40)
    assert read_painted("n_classes=5, n_test=7", usual) == Painted(n_train=1200, n_test=7, n_classes=5, n_concepts=40)
    assert read_painted("n_classes=5") == Painted(n_classes=5)
    for study, number in (("substitution", 1200), ("concepts", 2400)):
        assert main(["benchmark", study, "--painted", "help"]) == 0
        assert f"n_train={number}  Training images." in capsys.readouterr().out


def test_normalisation_is_given_whole_or_not_at_all():
    given = normalisation("0.5,0.5, 0.5", "1 2 3", False)
    assert given == {"mean": (0.5, 0.5, 0.5), "std": (1.0, 2.0, 3.0), "unnormalised": False}
    assert normalisation(None, None, True)["unnormalised"]
    assert channel_numbers("--std", None) is None
    for mean, std, unnormalised in (("0", None, False), (None, "0", False), ("0", "1", True), ("a", "1", False)):
        with pytest.raises(ValueError, match="--mean"):
            normalisation(mean, std, unnormalised)
    for std in ("0", "1,-1,1"):
        with pytest.raises(ValueError, match="--std"):
            normalisation("0", std, False)


def test_a_folder_is_listed_with_the_names_sizes_and_times_of_its_files(tmp_path):
    folder = tmp_path / "images"
    (folder / "zebra").mkdir(parents=True)
    photo, weights = folder / "zebra" / "0.png", folder / "net.safetensors"
    photo.write_bytes(b"a")
    weights.write_bytes(b"a")
    out = folder / "out"
    out.mkdir()
    (folder / "again").symlink_to(folder, target_is_directory=True)

    def settings():
        named = {"root": folder, "encoder": f"open_clip:local-dir:{folder}", "data": "images", "out": out}
        return {name: text for name, text in given_settings(named).items() if name != "version"}

    def changed(change):
        before = settings()
        change()
        after = settings()
        return {name for name in before if before[name] != after[name]}

    both = {"root", "encoder"}
    time = photo.stat().st_mtime_ns
    assert changed(lambda: photo.write_bytes(b"bc")) == both
    assert changed(lambda: os.utime(photo, ns=(time, time + 10**9))) == both
    assert changed(lambda: (folder / "zebra" / "1.png").write_bytes(b"")) == both
    assert changed(lambda: photo.rename(folder / "zebra" / "2.png")) == both
    # Of weights the content counts, even with the same size and time.
    times = weights.stat().st_atime_ns, weights.stat().st_mtime_ns
    assert changed(lambda: (weights.write_bytes(b"b"), os.utime(weights, ns=times))) == both
    assert changed(lambda: os.utime(weights, ns=(0, 0))) == set()
    assert changed(lambda: (out / "results.csv").write_text("a")) == set()
    assert changed(lambda: (folder / ".hidden").write_text("a")) == set()


def test_a_missing_extra_is_noticed_before_any_work(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("captum_concepts.lazy.find_spec", lambda name: None)
    assert main(["benchmark", "concepts", "--engine", "ray"]) == EXIT_BAD_INPUT
    assert "`--engine ray` needs the package ray" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_read_is_refused_and_named(tmp_path, monkeypatch):
    (tmp_path / "lost+found").mkdir()
    scandir = os.scandir

    def closed(path="."):  # the tests may run as root, who may read everything
        if Path(path).name == "lost+found":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr("os.scandir", closed)
    with pytest.raises(ValueError, match=r"lost\+found cannot be read \(Permission denied\).*Make it readable"):
        given_settings({"root": tmp_path})
    assert given_settings({"text": "a word " * 100})["text"] == "a word " * 100


def test_a_folder_to_which_links_lead_is_read_once_and_another_target_is_noticed(tmp_path, monkeypatch):
    for i in range(12):
        (tmp_path / f"d{i:02d}").mkdir()
    for i in range(11):
        for name in "xy":
            (tmp_path / f"d{i:02d}" / name).symlink_to(f"../d{i + 1:02d}")
    scandir, read = os.scandir, []
    monkeypatch.setattr("os.scandir", lambda path: read.append(Path(path).resolve()) or scandir(path))
    first = given_settings({"root": tmp_path})["root"]
    assert len(read) == len(set(read)) == 13
    assert given_settings({"root": tmp_path})["root"] == first
    (tmp_path / "d00" / "y").unlink()
    (tmp_path / "d00" / "y").symlink_to("../d05")
    assert given_settings({"root": tmp_path})["root"] != first
