"""Bad options of every command: one line that names the option as it is typed, at once, and nothing is written."""

from __future__ import annotations

import dataclasses
import importlib
import re
import shlex
import types
import typing
from importlib.util import find_spec
from pathlib import Path

import pytest

from fixtures_commands import COMMANDS, check_command, write_place
from kills import raising
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
NEEDED_WITH = {
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
    monkeypatch.setattr("torch.optim.AdamW.step", lambda *_, **__: pytest.fail("trained"))


def typed(field: dataclasses.Field) -> str:
    return field.metadata["flag"] or option_name(field.name)


def kinds(hint: object) -> tuple[object, ...]:
    """Return the types an option may have."""
    return typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)


def bad_values(field: dataclasses.Field, hint: object) -> tuple[str, ...]:
    """Return what the declaration of an option says that it cannot be."""
    meta, accepted = field.metadata, kinds(hint)
    values: tuple[str, ...] = ()
    if Path in accepted:
        values = ("a\0b", *(() if field.name == "out" else (LONG,)), *PATHS[meta["path"]])
    if meta["bounds"] is not None:
        low, high = meta["bounds"]
        values = (f"{low if meta['open']['open_low'] else low - 1}", f"{high + (not meta['open']['open_high'])}", "x")
        values += ("nan", "inf", "-inf") if float in accepted else ("1.5",)
    if str in accepted and field.default != "":
        values += ("",)
    if meta["choices"] is not None:
        values = ("", "nonsense")
    return ("", "nonsense", "cuda:99") if field.name == "device" else values


def without(arguments: list[str], option: str) -> list[str]:
    """Leave an option out of good arguments."""
    place = arguments.index(option) if option in arguments else len(arguments)
    return arguments[:place] + arguments[place + 2 :]


def option_cases():
    """Make a case of the bad values of each option of each command."""
    for command, (options, good) in COMMANDS.items():
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            if field.metadata["argument"]:
                continue
            if values := bad_values(field, hints[field.name]):
                name = typed(field)
                companions = shlex.split(NEEDED_WITH.get(command, {}).get(field.name, ""))
                arguments = [*command.split(), *without(shlex.split(good), name), *companions]
                yield pytest.param(arguments, name, values, id=f"{command} {name}")


@pytest.mark.parametrize(("arguments", "name", "values"), list(option_cases()))
def test_what_an_option_cannot_be(arguments, name, values, capsys):
    for value in values:
        check_command([*arguments, f"{name}={value}"], name, capsys)


OWN = "--data folder --root fruit --concepts concepts.csv --min-images 1 --backbone"
NETWORK = f"{OWN} network.py:model"
SUB = "--data sub --root fruit --cub-root fruit"
FOLDED = "--data folders --objects cutouts --scenes scenes"
PHOTO = "--image fruit/test/apple/0.png"
#: What is asked of a cluster has no effect without one.
ENGINE = {
    f"--{name} {value}": f"--{name}" for name, value in (("address", "auto"), ("gpus-per-worker", 1), ("workers", 2))
}
HALF_A_NORMALISATION = {"--mean 0,0,0": "--std", "--std 1,1,1": "--mean"}
#: Functions of network.py that give no network, and why.
NO_NETWORKS = {
    "modle": "has no function 'modle'. It has: .*model",
    "text": "has no function 'text'",
    "several": "to return an nn.Module but got list",
    "needs": "needs",
    "fails": r"fails\(\) in network.py failed: .*no such",
    "leaves": "leaves",
}
NO_FILES = {
    "network.py": "path.py:factory",
    "nowhere.py:model": "none at nowhere.py",
    "resnet81": "Nearest: .*resnet18",
}
QUESTIONS = {"--question Q7": "--question"}
#: For each command, what is added to good arguments where the refusal has to name the option given last.
NAMED = {
    "compose": ("--objects nowhere | --objects file.txt | --scenes nowhere | --scenes file.txt | --object-classes dog"),
    "explain": (
        "--image nowhere.png | --image fruit | --text striped | --layer conv1 | --weights none | "
        f"{PHOTO} --concepts fruit --backbone timm:resnet18 --layer 4"
    ),
    "benchmark concepts": (
        "--n-train 2 | --n-test 2 | --image-size 36 | --image-size 24 | --image-size 520 | --parts parts.csv | "
        "--root fruit | --concepts concepts.csv | --weights none | --mean 0,0,0 --std 1,1,0 | "
        "--mean 0,0,0 --std 1,inf,1 | --unnormalised | --backbone empty.py:model | --out file.txt/x | "
        f"{NETWORK} --layer="
    ),
    "benchmark attribution": (
        "--data bam --root scenes --robustness | --data bam --root scenes | --mean 0,0,0 --std 0,0,0 | "
        "--models /proc/nowhere/models"
    ),
    "benchmark substitution": (
        "--n-train 2 | --n-test 2 | --image-size 36 | --correlations 0,,1 | --correlations 0,2 | "
        "--correlations nan | --correlations nonsense | --root fruit | --encoders siglop | --per-pair 3 | "
        f"--cbm file.txt | --backbone resnet18 | {SUB} --seeds 2 | {SUB} --backbone small --cbm concepts.csv | "
        f"{SUB} --backbone small --image-size 36 | {SUB} --backbone nonsense"
    ),
    "benchmark pasta": "--question Q1,,Q2 | --n-per-image 1000",
    "pasta train": (
        "--datasets nonsense | --datasets coco, | --question Q7 | --encoder siglop | "
        "--encoder embedded --encoder-weights file.txt | --encoder embedded --encoder-tokenizer empty | "
        "--template nonsense"
    ),
    "pasta score": (
        "--scorer nowhere | --scorer file.txt | --scorer empty | --encoder siglop | "
        "--encoder embedded --encoder-weights file.txt | --encoder-tokenizer empty | --labels-from nowhere | "
        "--labels-from empty | --ascending nonsense | --ascending , | --images empty | --explanations empty"
    ),
    "pasta sheet": (
        "--questions Q7 | --labels-from nowhere | --ascending nonsense | --images empty | "
        "--explanations empty | --light empty | --strong images"
    ),
    "pasta ablate": (
        "--tables nonsense | --tables 14 | --question Q7 | --data empty | --encoder siglop | "
        "--encoder-weights file.txt | --encoder-tokenizer empty"
    ),
    "pasta sizes": "--encoders siglop | --encoders embedded, | --data empty",
    "pasta metrics": "--data empty",
    "substitute generate": "--attributes , | --out made",
    "substitute filter": "--model empty | --model nowhere/to/be/found",
    "substitute sheet": "--max-megabytes 0.001",
    "substitute export": "--ratings nowhere | --ratings votes.json",
}
#: And where it has to say more, what that is.
BAD: dict[str, dict[str, str]] = {
    "compose": {
        "--annotations file.txt": "--objects",
        "--min-photographs 2": "`--min-photographs` has no effect without `--annotations`",
        "--n-per-pairs 3": "--n-per-pair",
        "extra": "extra",
    },
    "explain": {
        **HALF_A_NORMALISATION,
        PHOTO: "--concepts",
        "--concepts fruit": "--image",
        "--backbone network.py:model": "--image",
        "--mean 0,0,x --std 1,1,1": "--mean",
        f"{PHOTO} --text a --backbone resnet18": "--backbone.*open_clip",
        f"{PHOTO} --text a --backbone transformers:ViTModel:x": "reads texts",
        f"{PHOTO} --text a --backbone open_clip:ViT-B-32": "'library:model:weights'",
        f"{PHOTO} --concepts fruit": "--backbone",
        f"{PHOTO} --concepts fruit --backbone network.py:modell": "model",
        f"{PHOTO} --concepts fruit --cbm file.txt": "--concepts and --cbm",
        "extra": "extra",
    },
    "benchmark concepts": {
        **ENGINE,
        **HALF_A_NORMALISATION,
        "--method svn": "--method.*Did you mean 'svm'",
        "--labels imge": "--labels.*Did you mean 'image'",
        "--data cub --parts parts.csv --root fruit": "--parts",
        "--data cub --root fruit --weights none": "fruit",
        "--data folder": "--root",
        "--data cub": "--root",
        f"{NETWORK} --part-of-concept parts.csv": "`--parts`",
        "--layer conv1": "`--layer` belongs to a network of your own: name it with --backbone",
        "--mean 0,0,nan --std 1,1,1": "--mean",
        "--mean a,b,c --std 1,1,1": "--mean",
        "--mean 0,0,0 --std 1,1,1 --unnormalised": "either `--mean` and `--std` or `--unnormal",
        **{f"--backbone {name}": message for name, message in NO_FILES.items()},
        "--out images": "already holds files.*--out",
        "--out images --overwrite": "did not write.*--out",
        "--seedz 3": "--seed",
        **{f"{OWN} network.py:{name}": message for name, message in NO_NETWORKS.items()},
        f"{OWN} network.py:MEAN": "MEAN",
        f"{OWN} network.py:sys": "sys",
        f"{OWN} syntax.py:model": "syntax.py cannot be run: SyntaxError",
        f"{OWN} plain.py:model": "not known.*MEAN and STD.*--mean.*--unnormalised",
        f"{NETWORK} --mean 0,0 --std 1,1": "each of 3 channels but got 2",
        f"{NETWORK} --layer 99": "`--layer` to name a layer of Sequential but got '99'",
        f"{NETWORK} --layer 4": "to give maps",
        f"{NETWORK} --weights nowhere.pth": "there is none at nowhere.pth",
        f"{NETWORK} --weights file.txt": "file.txt holds no weights that can be read safely",
        f"{NETWORK} --weights other.safetensors": "do not fit Sequential: missing: 0.weight",
        f"{NETWORK} --weights cut.safetensors": "holds no weights",
        f"{NETWORK} --weights code.pth": "weights_only=True",
        f"{NETWORK} --weights empty": "empty",
        f"{OWN} network.py:grey": "--image-size",
    },
    "benchmark attribution": {
        **HALF_A_NORMALISATION,
        "--object-classes dog": "`--object-classes` has no effect with `--data painted`.*belongs to: coco",
        "--min-photographs 2": "`--min-photographs` has no effect with `--data painted`.*belongs to: coco",
        "--data folder": "`--data` to be one of .* but got 'folder'. Did you mean 'folders'",
        "--data folders --scenes scenes": "`--objects` with `--data folders` but it is missing",
        "--data coco-miniplaces --objects cutouts --scenes scenes": "--annotations",
        "--data bam": "`--root` with `--data bam`",
        "--data bam --root scenes --relative": "`--relative` needs images .*--data folders",
        "--root scenes": "`--root` has no effect with `--data painted`.*belongs to: bam",
        "--scenes scenes": "belongs to: coco-miniplaces, folders",
        "--image-size 36": "`--image-size` to be a multiple of 8, .* but got 36",
        "--weights w.pth": "`--weights` belongs to a network of your own",
        "--layer layer4": "`--layer` to name a layer of FineResNet but got 'layer4'",
        "--methods ,": "`--methods` to hold names with commas between them",
        "--methods gradcam": "`--methods`.* but got 'gradcam'. Nearest: .*'Grad-CAM'",
        "--methods grad-cam,Oclusion": "but got 'Oclusion'. Nearest: .*'Occlusion'",
        "--methods mine.py:method": "with a file that exists but got 'mine.py:method'",
        "--methods methods.py:invertd": r"'methods.py' to have 'invertd' but it has not. Nearest: \['inverted'",
        "--methods methods.py:number": "'methods.py:number' to be a function but got int",
        "--methods syntax.py:inverted": "syntax.py cannot be run: SyntaxError",
        "--methods raises.py:method": "raises.py cannot be run: RuntimeError: not today",
        "--methods nowhere.at_all:method": "No module named 'nowhere'",
        "--methods NeuronGradient": "NeuronGradient",
        "--common-object brid": "`--common-object` to be one of .* Did you mean 'bird'",
        "--target-scene hill": "`--target-scene` to be one of .* Did you mean 'hills'",
        f"{FOLDED} --common-object leave": "`--common-object` to be one of .* Did you mean 'leaf'",
        f"{FOLDED} --target-scene beech": "`--target-scene` to be one of .* Did you mean 'beach'",
        "--mean nan,0,0 --std 1,1,1": "--mean",
        **{f"--backbone {name}": message for name, message in NO_FILES.items()},
        "--backbone resnet18 --weights nowhere.pth": "there is none at nowhere.pth",
        **{f"--backbone network.py:{name}": message for name, message in NO_NETWORKS.items()},
        "--backbone network.py:grey": "grey",
        "--backbone network.py:without_classifier": "without_classifier",
        "--models file.txt": "`--models` to name a folder but file.txt is a file",
        **ENGINE,
    },
    "benchmark substitution": {
        **ENGINE,
        "--n-concepts 4": "`--n-classes`",
        "--data sub": "--root",
        "--data sub --root fruit": "--cub-root",
        **{
            f"{of}--{name}": f"--{name.split()[0]}"
            for of in ("", f"{SUB} --backbone small ")
            for name in ("layer x", "weights x", "mean x", "std x", "unnormalised")
        },
        **{f"{SUB} {half}": name for half, name in HALF_A_NORMALISATION.items()},
        f"{SUB} --backbone network.py:model": "CUB",
        "--out images --overwrite": "--out",
    },
    "benchmark pasta": {
        **QUESTIONS,
        **ENGINE,
    },
    "pasta train": {
        "--data empty": "--data.*human_annotations.json",
        "--encoder a/b": "a",
        "--sentence release --template {}": "--template",
        **ENGINE,
    },
    "pasta score": {
        **QUESTIONS,
        "--question Q5": "Q5",
        "--encoder clip --encoder-weights file.txt": "file.txt",
        "--labels-from file.txt": "file.txt",
        **ENGINE,
    },
    "pasta sheet": {
        "--questions Q5": "--light",
        "--questions Q6": "--strong",
    },
    "pasta join": {
        "nowhere.json": "nowhere.json",
        "empty": "files",
        "file.txt": "file.txt",
        "--data empty": "votes.json",
    },
    "pasta ablate": {
        "--n-images 2": "images",
    },
    "pasta sizes": {
        **{f"--widths={value}": "--widths" for value in ("8", "", "0,8", "a,b")},
        **{f"--channels={value}": "--channels" for value in ("8", "1,2", "nan,8")},
    },
    "substitute generate": {
        "--birds Blue_Jya": "Blue_Jay",
        "--attributes has_crown_color--blak": "--attributes",
        "--t-1 0.9": "--t-2",
        "--out file.txt/x": "file.txt",
    },
    "substitute filter": {
        "--generated empty": "empty",
    },
    "substitute sheet": {
        "--generated empty": "empty",
        "--filtered empty": "manifest.csv",
    },
    "substitute export": {
        "--generated empty": "empty",
        "--filtered empty": "manifest.csv",
        "--ratings file.txt": "file.txt",
    },
}


def combination_cases():
    """Make a case of what is added to good arguments; an option given twice counts as it is given last."""
    for command in COMMANDS:
        # Neither a file nor what others wrote is replaced; there are no votes to join.
        out = {} if command == "pasta join" else {"--out file.txt": "file.txt", "--out images": "images"}
        cases = (case for case in NAMED.get(command, "").split(" | ") if case)
        named = {case: re.findall(r"--[A-Za-z][\w-]*", case)[-1] for case in cases}
        for more, names in (out | named | BAD.get(command, {})).items():
            good = COMMANDS[command][1]
            if command == "pasta join" and not more.startswith("--"):
                good = good.removeprefix("votes.json")
            arguments = [*command.split(), *shlex.split(good), *shlex.split(more)]
            lacking = command == "substitute generate" and find_spec("diffusers") is None
            marks = pytest.mark.skipif(lacking, reason="the extra diffusion is not installed")
            yield pytest.param(arguments, names, id=f"{command} {more}", marks=marks)


@pytest.mark.parametrize(("arguments", "names"), list(combination_cases()))
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


def test_a_download_that_fails_is_told_in_one_line(capsys, monkeypatch):
    monkeypatch.setattr("torchvision.models.get_model", raising(OSError("no network")))
    message = r"weights of resnet18 could not be loaded \(OSError: no network\). Pass a file with --weights"
    check_command(["benchmark", "concepts", *shlex.split(f"{OWN} resnet18")], message, capsys)


def test_every_option_has_cases():
    for command, (options, _) in COMMANDS.items():
        hints = typing.get_type_hints(options)
        for field in dataclasses.fields(options):
            if hints[field.name] is bool or field.metadata["argument"]:
                continue
            added = " ".join([NAMED.get(command, ""), *BAD.get(command, {})]).replace("=", " ").split()
            tried = bool(bad_values(field, hints[field.name])) or typed(field) in added
            assert tried, f"No case of {command} {typed(field)}."


def test_bounds_are_those_of_what_is_drawn():
    bounds = {field.name: field.metadata["bounds"] for field in dataclasses.fields(ConceptOptions)}
    assert bounds["n_classes"] == (2, len(SPECIES))
    assert bounds["n_concepts"] == (MIN_CONCEPTS, MAX_CONCEPTS)
    assert PAINTED_SIZES == (32, 512)
