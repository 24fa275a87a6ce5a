"""Options that do not go together, of commands without a folder of tests here: one line, and nothing is written."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from fixtures_commands import COMMANDS, check_command, write_place

PHOTO = "fruit/test/apple/0.png"
#: For each command what is added to good arguments, and what the refusal says.
BAD = {
    "compose": {"--objects nowhere": "--objects", "--scenes file.txt": "--scenes", "--out images": "images"},
    "explain": {
        "--text striped": "a photograph with `--text`",
        "--layer conv1": "`--layer` has no effect without a network of your own",
        "--download": "`--download` has no effect without --cbm",
        f"{PHOTO} --concepts fruit --backbone network.py:model --download": "`--download` has no effect without --cbm",
        "--mean 0,0,0": "--mean",
        "--device cuda:99": "--device",
        PHOTO: "--concepts",
        f"{PHOTO} --concepts fruit": "--backbone",
        f"{PHOTO} --text a --backbone resnet18": "--backbone.*open_clip",
        f"{PHOTO} --text a --backbone transformers:ViTModel:x": "reads texts",
        f"{PHOTO} --concepts fruit --backbone network.py:modell": "model",
        f"{PHOTO} --concepts fruit --cbm file.txt": "--concepts and --cbm",
        "--out file.txt": "file.txt",
    },
    "substitute generate": {"--birds Blue_Jya": "Blue_Jay", "--t-1 0.9": "--t-2", "--out made": "--out"},
    "substitute filter": {"--generated empty": "empty"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_place(tmp_path_factory.mktemp("place"))


@pytest.mark.parametrize(("command", "more"), [(command, more) for command, cases in BAD.items() for more in cases])
def test_what_does_not_go_together_or_is_not_there(command, more, capsys, place, monkeypatch):
    monkeypatch.chdir(place)
    monkeypatch.setattr("torch.optim.AdamW.step", lambda *_, **__: pytest.fail("trained"))
    if command == "substitute generate" and find_spec("diffusers") is None:
        pytest.skip("the extra diffusion is not installed")
    # An option given twice counts as it is given last.
    check_command([*command.split(), *shlex.split(f"{COMMANDS[command]} {more}")], BAD[command][more], capsys)
