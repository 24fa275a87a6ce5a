"""Files of released models that are hostile or damaged: nothing in them runs, and they take neither memory nor time."""

from __future__ import annotations

import random
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import hostile_releases
import released_files as w
from captum_concepts import load_released, released_weights
from damaged import in_room
from kills import in_time


def make_backbone() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, w.D, 5, stride=2), nn.ReLU(), nn.Conv2d(w.D, w.D, 3)).eval()


def load(path: Path, options: dict[str, Any], backbone: nn.Module) -> object:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_released(path, backbone, **options)


@pytest.mark.parametrize("kind", ["code", "memory", "wrong"])
def test_hostile_files_are_refused(kind: str, tmp_path: Path) -> None:
    backbone = make_backbone()
    arguments = [tmp_path] if kind == "memory" else [tmp_path, backbone]
    cases = getattr(hostile_releases, f"write_{kind}")(*arguments)
    assert len(cases) > 12
    for name, (path, options, expected) in cases.items():
        with in_time(), in_room(), pytest.raises((ValueError, FileNotFoundError)) as caught:
            load(path, options, backbone)
        message = str(caught.value)
        assert expected in message, (name, message)
        assert "Not done in" not in message, name
        assert len(message) < 1500, name
        # Those that bring a backbone of their own may give it.
        if kind != "memory":
            with in_time(), in_room(), suppress(ValueError, FileNotFoundError):
                released_weights(path)
    assert not [*tmp_path.rglob("ran")]
    # What a file says of functions and classes of this package has changed none of them.
    load(w.pcbm(tmp_path / "after", w.pcbm_bank(tmp_path / "after.pkl")).path, {}, backbone)


#: Which file of a release is damaged.
DAMAGED = {
    "label_free": "W_c.pt",
    "vlg": "cbl.pt",
    "dn_cbm": "sparse_autoencoder_final.pt",
    "pcbm": "*.ckpt",
    "pcbm_bank": "*.pkl",
    "koh": "*.pth",
    "koh_legacy": "*.pth",
    "cem_cbm": "*.pt",
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_copies_are_refused_or_read(name: str, tmp_path: Path) -> None:
    backbone = make_backbone()
    match name:
        case "koh" | "koh_legacy":
            case = w.koh(tmp_path / name, features=backbone, legacy=name != "koh", old_source=name != "koh")
        case "pcbm":
            case = w.pcbm(tmp_path / name, w.pcbm_bank(tmp_path / "bank.pkl"))
        case "pcbm_bank":
            case = w.pcbm_bank(tmp_path / name / "bank.pkl")
        case "cem_cbm":
            case = w.cem_repository_cbm(tmp_path / name)
        case _:
            case = getattr(w, name)(tmp_path / name)
    options: dict[str, Any] = {"activation": torch.sigmoid} if name == "cem_cbm" else {}
    options["strict"] = False
    (path,) = (tmp_path / name).rglob(DAMAGED[name])
    good, draw = path.read_bytes(), random.Random(name)
    messages: list[str] = []
    for _ in range(40):
        damaged = bytearray(good)
        for _ in range(draw.randint(1, 4)):
            place, size = draw.randrange(len(damaged)), draw.randint(1, 64)
            piece = draw.randbytes(size)
            damaged[place : place + draw.choice((1, 0, size))] = draw.choice((piece[:1], b"", piece))
        path.write_bytes(damaged)
        with in_time(), in_room():
            try:
                load(case.path, options, backbone)
            except ValueError as error:
                messages.append(str(error))
    assert len(messages) > 10
    assert [message for message in messages if str(path.parent) not in message] == []
    # What is as it was is read.
    path.write_bytes(good)
    assert load(case.path, options, backbone)
    assert not [*tmp_path.rglob("ran")]
