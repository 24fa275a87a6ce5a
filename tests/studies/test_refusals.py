"""Options that do not go together, of commands without a folder of tests here: one line, and nothing is written."""

from __future__ import annotations

import shlex
from importlib.util import find_spec
from pathlib import Path

import pytest

from fixtures_commands import COMMANDS, check_command, write_place

PHOTO = "--image fruit/test/apple/0.png"
#: For each command what is added to good arguments, and what the refusal says.
BAD = {
    "compose": {
        "--objects nowhere": "--objects",
        "--scenes file.txt": "--scenes",
        "--object-classes dog": "--object-classes",
        "--annotations file.txt": "--objects",
        "--min-photographs 2": "--min-photographs",
    },
    "explain": {
        "--image nowhere.png": "--image",
        "--text striped": "`--image` with `--text`",
        "--concepts fruit": "`--image` with `--concepts`",
        "--backbone network.py:model": "`--image` with `--backbone`",
        "--layer conv1": "`--layer` has no effect without a network of your own",
        "--weights none": "--weights",
        "--mean 0,0,0 --std 1,1,1": "--mean",
        "--unnormalised": "--unnormalised",
        "--mean 0,0,0": "--mean",
        "--mean 0,0,x --std 1,1,1": "--mean",
        "--device cuda:99": "--device",
        PHOTO: "--concepts",
        f"{PHOTO} --concepts fruit": "--backbone",
        f"{PHOTO} --text a --backbone resnet18": "--backbone.*open_clip",
        f"{PHOTO} --text a --backbone transformers:ViTModel:x": "reads texts",
        f"{PHOTO} --text a --backbone open_clip:ViT-B-32": "'library:model:weights'",
        f"{PHOTO} --concepts fruit --backbone network.py:modell": "model",
        f"{PHOTO} --concepts fruit --backbone timm:resnet18 --layer 4": "`--layer` has no effect on timm:resnet18",
        f"{PHOTO} --concepts fruit --cbm file.txt": "--concepts and --cbm",
        f"{PHOTO} --cbm file.txt": "file.txt",
    },
    "substitute generate": {
        "--birds Blue_Jya": "Blue_Jay",
        "--attributes has_crown_color--blak": "--attributes",
        "--t-1 0.9": "--t-2",
        "--out file.txt/x": "file.txt",
        "--out made": "--out",
    },
    "substitute filter": {"--generated empty": "empty", "--model nowhere/to/be/found": "--model"},
    "substitute sheet": {
        "--generated empty": "--generated",
        "--filtered empty": "manifest.csv",
        "--max-megabytes 0.001": "--max-megabytes",
    },
    "substitute export": {
        "--generated empty": "--generated",
        "--filtered empty": "manifest.csv",
        "--ratings file.txt": "file.txt",
        "--ratings nowhere": "--ratings",
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("torch.optim.AdamW.step", lambda *_, **__: pytest.fail("trained"))


@pytest.mark.parametrize(("command", "more"), [(command, more) for command, cases in BAD.items() for more in cases])
def test_what_does_not_go_together_or_is_not_there(command, more, capsys):
    if command == "substitute generate" and find_spec("diffusers") is None:
        pytest.skip("the extra diffusion is not installed")
    # An option given twice counts as it is given last.
    check_command([*command.split(), *shlex.split(f"{COMMANDS[command]} {more}")], BAD[command][more], capsys)


@pytest.mark.parametrize("command", sorted(BAD))
def test_neither_a_file_nor_what_others_wrote_is_replaced(command, capsys):
    for out, name in (("file.txt", "file.txt"), ("images", "images")):
        check_command([*command.split(), *shlex.split(f"{COMMANDS[command]} --out {out}")], name, capsys)


@pytest.mark.parametrize(
    ("arguments", "names"),
    {
        "compse": "compose",
        "benchmark conceps": "concepts",
        "pasta scor": "score",
        "benchmark": "command",
        "substitute filtre": "filter",
        "--versio": "--version",
        "explain --topp 3": "--top",
        "explain --top 0": "--top",
    }.items(),
)
def test_unknown_commands_and_options_name_the_nearest(arguments, names, capsys):
    check_command(arguments.split(), names, capsys)
