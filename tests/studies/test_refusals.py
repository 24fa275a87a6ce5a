"""Bad options of every command: one line that names the option as it is typed, at once, and nothing is written."""

from __future__ import annotations

import dataclasses
import importlib
import shlex
import types
import typing
from importlib.util import find_spec
from pathlib import Path

import pytest

from fixtures_commands import COMMANDS, check_command, write_place
from quantus_concepts.datasets.birds.attributes import MAX_CONCEPTS, MIN_CONCEPTS, SPECIES
from quantus_concepts.studies._kit.command import option_name
from quantus_concepts.studies._models.options import PAINTED_SIZES
from quantus_concepts.studies.app import COMMANDS as EXPORTED
from quantus_concepts.studies.concepts.options import ConceptOptions

LONG = "x" * 300
LOADED = [
    *(run.partition(":")[0] for _, run in EXPORTED.values()),
    *("timm", "torchvision.models", "quantus_concepts.pasta.encoders.open_clip_models"),
]
#: Options whose bad values need others beside them, or whose refusal names another option.
BESIDE = {
    "compose": {"annotations": "--objects cutouts"},
    "benchmark concepts": {
        "root": "--data folder --concepts concepts.csv",
        "parts": "--data folder --root fruit --concepts concepts.csv",
        "part_of_concept": "--data folder --root fruit --concepts concepts.csv --parts parts.csv",
    },
    "benchmark attribution": {
        "objects": "--data folders --scenes scenes",
        "scenes": "--data folders --objects cutouts",
        "annotations": "--data coco-miniplaces --objects cutouts --scenes scenes",
        "root": "--data bam",
    },
    "benchmark substitution": {
        "root": "--data sub --cub-root fruit",
        "cub_root": "--data sub --root fruit",
        **dict.fromkeys(("per_pair", "cbm"), "--data sub --root fruit --cub-root fruit"),
    },
    "pasta train": dict.fromkeys(("encoder_weights", "encoder_tokenizer"), "--encoder clip"),
    "pasta score": dict.fromkeys(("encoder_weights", "encoder_tokenizer"), "--encoder clip"),
    "pasta ablate": dict.fromkeys(("encoder_weights", "encoder_tokenizer"), "--encoder clip"),
}
#: What a path cannot name, by what it has to name; a scorer may be a file or a folder.
PATHS = {"file": ("nowhere", "empty"), "folder": ("nowhere", "file.txt"), "new folder": ("file.txt",), "": ()}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    # What commands load takes seconds, and counts for no refusal.
    for module in LOADED:
        importlib.import_module(module)
    return write_place(tmp_path_factory.mktemp("place"))


@pytest.fixture(autouse=True)
def _inside(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "100")


def typed(field: dataclasses.Field) -> str:
    return field.metadata["flag"] or option_name(field.name)


def kinds(hint: object) -> tuple[object, ...]:
    """Return the types an option may have."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def bad_values(field: dataclasses.Field, hint: object) -> tuple[str, ...]:
    """Return what the declaration of an option says that it cannot be."""
    said, found = field.metadata, kinds(hint)
    values: tuple[str, ...] = ()
    if Path in found:
        values = ("a\0b", *(() if field.name == "out" else (LONG,)), *PATHS[said["path"]])
    if said["bounds"] is not None:
        low, high = said["bounds"]
        values = (f"{low if said['open']['open_low'] else low - 1}", f"{high + (not said['open']['open_high'])}", "x")
        values += ("nan", "inf", "-inf") if float in found else ("1.5",)
    if said["choices"] is not None:
        values = ("", "nonsense")
    return ("", "nonsense", "cuda:99") if field.name == "device" else values


def without(arguments: list[str], option: str) -> list[str]:
    """Leave an option out of good arguments."""
    place = arguments.index(option) if option in arguments else len(arguments)
    return arguments[:place] + arguments[place + 2 :]


def declared():
    """Make a case of the bad values of each option of each command."""
    for command, (options, good) in COMMANDS.items():
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            if field.metadata["argument"]:
                continue
            if values := bad_values(field, hints[field.name]):
                name = typed(field)
                beside = shlex.split(BESIDE.get(command, {}).get(field.name, ""))
                arguments = [*command.split(), *without(shlex.split(good), name), *beside]
                yield pytest.param(arguments, name, values, id=f"{command} {name}")


@pytest.mark.parametrize(("arguments", "name", "values"), list(declared()))
def test_what_an_option_cannot_be(arguments, name, values, capsys):
    for value in values:
        check_command([*arguments, f"{name}={value}"], name, capsys)


OWN = "--data folder --root fruit --concepts concepts.csv --min-images 1"
SUB = "--data sub --root fruit --cub-root fruit"
FOLDED = "--data folders --objects cutouts --scenes scenes"
#: What is asked of a cluster has no effect without one.
ENGINE = {"--address auto": "--address", "--gpus-per-worker 1": "--gpus-per-worker", "--workers 2": "--workers"}
#: For each command, what is added to good arguments, and what the refusal has to name.
BAD = {
    "compose": {
        "--objects nowhere": "--objects",
        "--objects file.txt": "--objects",
        "--objects=": "--objects",
        "--scenes nowhere": "--scenes",
        "--scenes file.txt": "--scenes",
        "--annotations file.txt": "--objects",
        "--object-classes dog": "--object-classes",
        "--min-photographs 2": "--min-photographs",
        "--out file.txt": "file.txt",
        "--out images": "images",
        "--out images --overwrite": "images",
        "--out file.txt/x": "file.txt",
        "--n-per-pairs 3": "--n-per-pair",
        "extra": "extra",
    },
    "explain": {
        "--image nowhere.png": "--image",
        "--image fruit": "--image",
        "--image fruit/test/apple/0.png": "--concepts",
        "--text striped": "--text",
        "--backbone network.py:model": "--image",
        "--layer conv1": "--layer",
        "--weights none": "--weights",
        "--mean 0,0,0": "--std",
        "--std 1,1,1": "--mean",
        "--mean 0,0,x --std 1,1,1": "--mean",
        "--image fruit/test/apple/0.png --text a --backbone resnet18": "--backbone",
        "--image fruit/test/apple/0.png --concepts fruit": "--backbone",
        "--image fruit/test/apple/0.png --concepts fruit --backbone network.py:modell": "model",
        "--image fruit/test/apple/0.png --concepts fruit --cbm file.txt": "--cbm",
        "--out file.txt": "file.txt",
        "extra": "extra",
    },
    "benchmark concepts": {
        **ENGINE,
        "--n-train 2": "--n-train",
        "--n-test 2": "--n-test",
        "--image-size 36": "--image-size",
        "--image-size 24": "--image-size",
        "--image-size 520": "--image-size",
        "--parts parts.csv": "--parts",
        "--root fruit": "--root",
        "--data cub --parts parts.csv --root fruit": "--parts",
        "--concepts concepts.csv": "`--concepts`",
        "--data folder": "--root",
        "--data cub": "--root",
        f"{OWN} --part-of-concept parts.csv --backbone network.py:model": "`--parts`",
        "--layer conv1": "--layer",
        "--weights none": "--weights",
        "--mean 0,0,0": "--std",
        "--std 1,1,1": "--mean",
        "--mean 0,0,nan --std 1,1,1": "--mean",
        "--mean a,b,c --std 1,1,1": "--mean",
        "--mean 0,0,0 --std 1,1,0": "--std",
        "--mean 0,0,0 --std 1,inf,1": "--std",
        "--mean 0,0,0 --std 1,1,1 --unnormalised": "--unnormalised",
        "--unnormalised": "--unnormalised",
        "--backbone=": "--backbone",
        "--backbone nonsense": "--backbone",
        "--backbone network.py": "--backbone",
        "--backbone nowhere.py:model": "--backbone",
        "--backbone empty.py:model": "--backbone",
        "--out file.txt": "--out",
        "--out images": "--out",
        "--out images --overwrite": "--out",
        "--out file.txt/x": "--out",
        "--seedz 3": "--seed",
        **{
            f"{OWN} --backbone network.py:{name}": name
            for name in ("modle", "text", "several", "needs", "fails", "leaves", "MEAN", "sys")
        },
        f"{OWN} --backbone syntax.py:model": "syntax.py",
        f"{OWN} --backbone plain.py:model": "--mean",
        f"{OWN} --backbone network.py:model --mean 0,0 --std 1,1": "3 channels",
        f"{OWN} --backbone network.py:model --layer 99": "--layer",
        f"{OWN} --backbone network.py:model --layer=": "--layer",
        f"{OWN} --backbone network.py:model --weights nowhere.pth": "nowhere.pth",
        f"{OWN} --backbone network.py:model --weights file.txt": "file.txt",
        f"{OWN} --backbone network.py:model --weights empty": "empty",
        f"{OWN} --backbone network.py:grey": "--image-size",
    },
    "benchmark attribution": {
        "--object-classes dog": "--object-classes",
        "--min-photographs 2": "--min-photographs",
        "--data folders": "--objects",
        "--data coco-miniplaces --objects cutouts --scenes scenes": "--annotations",
        "--data bam --root scenes --robustness": "--robustness",
        "--data bam --root scenes": "--root",
        "--weights w.pth": "--weights",
        "--layer=": "--layer",
        "--methods=": "--methods",
        "--methods nonsense": "--methods",
        "--methods methods.py:nothing": "--methods",
        "--methods syntax.py:inverted": "--methods",
        "--common-object=": "--common-object",
        "--target-scene=": "--target-scene",
        f"{FOLDED} --common-object bird": "--common-object",
        "--mean 0,0,0": "--std",
        "--mean 0,0,0 --std 0,0,0": "--std",
        "--mean nan,0,0 --std 1,1,1": "--mean",
        "--std 1,1,1": "--mean",
        "--backbone network.py": "--backbone",
        **{
            f"--backbone network.py:{name}": name
            for name in ("modle", "text", "several", "needs", "fails", "leaves", "grey", "without_classifier")
        },
        "--models /proc/nowhere/models": "--models",
        **ENGINE,
        "--out file.txt": "--out",
    },
    "benchmark substitution": {
        **ENGINE,
        "--n-train 2": "--n-train",
        "--n-test 2": "--n-test",
        "--image-size 36": "--image-size",
        "--correlations=": "--correlations",
        "--correlations 0,,1": "--correlations",
        "--correlations 0,2": "--correlations",
        "--correlations nan": "--correlations",
        "--correlations nonsense": "--correlations",
        "--n-concepts 4": "`--n-classes`",
        "--root fruit": "--root",
        "--unnormalised": "--unnormalised",
        "--encoders siglop": "--encoders",
        "--encoders=": "--encoders",
        "--per-pair 3": "--per-pair",
        "--cbm file.txt": "--cbm",
        "--backbone resnet18": "--backbone",
        "--layer conv1": "--layer",
        "--weights none": "--weights",
        "--mean 0,0,0": "--mean",
        "--std 1,1,1": "--std",
        "--data sub": "--root",
        "--data sub --root fruit": "--cub-root",
        f"{SUB} --seeds 2": "--seeds",
        **{f"{SUB} --backbone small --{name} x": f"--{name}" for name in ("layer", "weights", "mean", "std")},
        f"{SUB} --backbone small --cbm concepts.csv": "--cbm",
        f"{SUB} --backbone small --unnormalised": "--unnormalised",
        f"{SUB} --backbone small --image-size 36": "--image-size",
        f"{SUB} --mean 0,0,0": "--std",
        f"{SUB} --std 1,1,1": "--mean",
        f"{SUB} --backbone nonsense": "--backbone",
        f"{SUB} --backbone network.py:model": "CUB",
        "--out file.txt": "--out",
        "--out images --overwrite": "--out",
    },
    "benchmark pasta": {
        "--question Q7": "--question",
        "--question=": "--question",
        "--question Q1,,Q2": "--question",
        "--n-per-image 1000": "--n-per-image",
        **ENGINE,
        "--out file.txt": "--out",
    },
    "pasta train": {
        "--data empty": "--data",
        "--datasets nonsense": "--datasets",
        "--datasets=": "--datasets",
        "--datasets coco,": "--datasets",
        "--question Q7": "--question",
        "--encoder=": "--encoder",
        "--encoder siglop": "--encoder",
        "--encoder a/b": "a",
        "--encoder embedded --encoder-weights file.txt": "--encoder-weights",
        "--encoder embedded --encoder-tokenizer empty": "--encoder-tokenizer",
        "--template nonsense": "--template",
        "--sentence release --template {}": "--template",
        **ENGINE,
        "--out file.txt": "--out",
    },
    "pasta score": {
        "--scorer nowhere": "--scorer",
        "--scorer file.txt": "--scorer",
        "--scorer empty": "--scorer",
        "--question Q7": "--question",
        "--question=": "--question",
        "--question Q5": "Q5",
        "--encoder siglop": "--encoder",
        "--encoder clip --encoder-weights file.txt": "file.txt",
        "--encoder embedded --encoder-weights file.txt": "--encoder-weights",
        "--encoder-tokenizer empty": "--encoder-tokenizer",
        "--labels-from nowhere": "--labels-from",
        "--labels-from empty": "--labels-from",
        "--labels-from=": "--labels-from",
        "--labels-from file.txt": "file.txt",
        "--ascending nonsense": "--ascending",
        "--ascending ,": "--ascending",
        "--images empty": "--images",
        "--explanations empty": "--explanations",
        **ENGINE,
        "--out images": "--out",
    },
    "pasta sheet": {
        "--questions Q7": "--questions",
        "--questions=": "--questions",
        "--questions Q5": "--light",
        "--questions Q6": "--strong",
        "--labels-from nowhere": "--labels-from",
        "--labels-from=": "--labels-from",
        "--ascending nonsense": "--ascending",
        "--ascending=": "--ascending",
        "--images empty": "--images",
        "--explanations empty": "--explanations",
        "--light empty": "--light",
        "--strong images": "--strong",
        "--out images": "--out",
    },
    "pasta join": {
        "nowhere.json": "nowhere.json",
        "empty": "files",
        "file.txt": "file.txt",
        "--data empty": "votes.json",
    },
    "pasta ablate": {
        "--tables nonsense": "--tables",
        "--tables=": "--tables",
        "--tables 14": "--tables",
        "--question Q7": "--question",
        "--data empty": "--data",
        "--encoder siglop": "--encoder",
        "--encoder-weights file.txt": "--encoder-weights",
        "--encoder-tokenizer empty": "--encoder-tokenizer",
        "--n-images 2": "images",
    },
    "pasta sizes": {
        "--encoders siglop": "--encoders",
        "--encoders=": "--encoders",
        "--encoders embedded,": "--encoders",
        "--widths 8": "--widths",
        "--widths=": "--widths",
        "--widths 0,8": "--widths",
        "--widths a,b": "--widths",
        "--channels 8": "--channels",
        "--channels 1,2": "--channels",
        "--channels nan,8": "--channels",
        "--question=": "--question",
        "--data empty": "--data",
    },
    "pasta metrics": {"--data empty": "--data", "--out file.txt": "--out"},
    "substitute generate": {
        "--model=": "--model",
        "--birds Blue_Jya": "Blue_Jay",
        "--birds=": "--birds",
        "--attributes has_crown_color--blak": "--attributes",
        "--attributes ,": "--attributes",
        "--t-1 0.9": "--t-2",
        "--out made": "--out",
        "--out file.txt": "file.txt",
        "--out file.txt/x": "file.txt",
    },
    "substitute filter": {
        "--model=": "--model",
        "--model empty": "--model",
        "--model nowhere/to/be/found": "--model",
        "--generated empty": "empty",
        "--out images": "--out",
    },
    "substitute sheet": {
        "--generated empty": "empty",
        "--filtered empty": "manifest.csv",
        "--max-megabytes 0.001": "--max-megabytes",
        "--out images": "--out",
    },
    "substitute export": {
        "--generated empty": "empty",
        "--filtered empty": "manifest.csv",
        "--ratings nowhere": "--ratings",
        "--ratings votes.json": "--ratings",
        "--ratings file.txt": "file.txt",
        "--out images": "--out",
    },
}


def combined():
    """Make a case of what is added to good arguments; an option given twice counts as it is given last."""
    for command, added in BAD.items():
        for more, names in added.items():
            good = COMMANDS[command][1]
            if command == "pasta join" and not more.startswith("--"):
                good = good.removeprefix("votes.json")
            arguments = [*command.split(), *shlex.split(good), *shlex.split(more)]
            lacking = command == "substitute generate" and find_spec("diffusers") is None
            marks = pytest.mark.skipif(lacking, reason="the extra diffusion is not installed")
            yield pytest.param(arguments, names, id=f"{command} {more}", marks=marks)


@pytest.mark.parametrize(("arguments", "names"), list(combined()))
def test_what_does_not_go_together_or_is_not_there(arguments, names, capsys):
    check_command(arguments, names, capsys)


@pytest.mark.parametrize(
    ("arguments", "names"),
    {
        "compse": "compose",
        "benchmark conceps": "concepts",
        "pasta scor": "score",
        "benchmark": "command",
        "pasta": "command",
        "substitute": "command",
        "substitute filtre": "filter",
        "substitute generate": "--out",
        "substitute sheet": "--generated",
        "--versio": "--version",
        "pasta join": "files",
        "pasta score": "--images",
        "pasta score --images images": "--explanations",
        "pasta train": "--data",
        "compose --n-per-pair": "--n-per-pair",
        "benchmark attribution --tcavv": "--tcav",
        "benchmark concepts --no-sweeep": "--no-sweep",
        "pasta metrics --cache x": "--cache",
    }.items(),
)
def test_unknown_commands_and_options_name_the_nearest(arguments, names, capsys):
    check_command(arguments.split(), names, capsys)


def test_every_option_has_cases():
    by_hand = {(command, names.strip("`")) for command, added in BAD.items() for names in added.values()}
    for command, (options, _) in COMMANDS.items():
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            if hints[field.name] is bool or field.metadata["argument"]:
                continue
            tried = bool(bad_values(field, hints[field.name])) or (command, typed(field)) in by_hand
            assert tried, f"No case of {command} {typed(field)}."


def test_bounds_are_those_of_what_is_drawn():
    bounds = {field.name: field.metadata["bounds"] for field in dataclasses.fields(ConceptOptions)}
    assert bounds["n_classes"] == (2, len(SPECIES))
    assert bounds["n_concepts"] == (MIN_CONCEPTS, MAX_CONCEPTS)
    assert PAINTED_SIZES == (32, 512)
