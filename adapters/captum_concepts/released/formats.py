"""The formats of released concept models, a table: how each is recognised and read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts.backbones.backbone import IMAGENET, Normalisation
from captum_concepts.released.parts import Layer, Reading, Release, Tensors, describe, distinguish, texts_of, zeros
from captum_concepts.support.files import list_some, parse_json, quote
from captum_concepts.support.pickles import Bag, read_objects, to_array

CLIP: Normalisation = ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
#: Mean and deviation of Koh et al., which post-hoc CBM took over for its `resnet18_cub`.
HALVES: Normalisation = ((0.5, 0.5, 0.5), (2.0, 2.0, 2.0))
#: How each project normalises images, by the beginning of its name of a backbone.
_LABEL_FREE = {"clip": CLIP, "resnet": IMAGENET}
_POST_HOC = {"resnet18_cub": HALVES, "clip": CLIP, "ham10000": IMAGENET}

_SIGMOID_OR_NOT = (
    "does not say whether its head reads logits or values of a sigmoid. Pass `activation`, torch.sigmoid or None"
)


@dataclass(frozen=True)
class Format:
    """A format: the file in a folder, or the name in a file, by which it is known, and how it is read."""

    name: str
    #: Matches a name of a file in the folder, or of a member of the object in the file.
    known_by: str
    read: Callable[[Reading], Release]
    #: Arguments that have an effect.
    takes: tuple[str, ...] = ()
    #: Returns the state dict of the backbone that comes with it.
    backbone: Callable[[Reading], dict[str, Tensor]] = lambda _: {}


def find_format(reading: Reading) -> Format:
    """Return the format of a folder or a file; the file is read, and kept in `found`."""
    for each in FOLDERS:
        if reading.matching(each.known_by):
            return each
    known = {
        path.parent for path in reading.files.values() if any(re.fullmatch(f.known_by, path.name) for f in FOLDERS)
    }
    if known:
        shown = list_some(sorted(map(str, known)))
        raise reading.error(f"holds no released model by itself, but folders in it do: {shown}. Pass one as `path`")
    reading.path = reading.only_file()
    reading.found = found = read_objects(reading.path)
    names: set[str] = set()
    if isinstance(found, Bag):
        names = found.members()
    elif isinstance(found, dict):
        names = {name for name in found if isinstance(name, str)}
        if found and all(isinstance(entry, tuple) and len(entry) == 5 for entry in found.values()):
            names = {"5-tuples"}
    for each in FILES:
        if any(re.fullmatch(each.known_by, name) for name in names):
            return each
    some = f" of {list_some(sorted(names), 3) or 'nothing'}" if isinstance(found, dict) else ""
    raise reading.error(
        f"holds {describe(found)}{some}, which is no released model of a known format: modules of post-hoc CBM and "
        "CBM, banks of post-hoc CBM, and state dicts of CEM's repository are. Pass the folder of a Label-free CBM, "
        "VLG-CBM, DN-CBM or SpLiCE. Nothing in it was executed"
    )


def _refuse(message: str) -> Callable[[Reading], Release]:
    def read(reading: Reading) -> Release:
        raise reading.error(message)

    return read


# Label-free CBM and VLG-CBM: linear layers, a standardisation, a linear layer.


def _label_free(reading: Reading) -> Release:
    weight = reading.one("W_c.pt", "L d")
    mean, std = (reading.one(f"proj_{name}.pt", "1 L")[0] for name in ("mean", "std"))
    return _standardised(reading, [(weight, zeros(weight))], mean, std, ("W_g", "b_g"))


def _vlg(reading: Reading) -> Release:
    state = reading.file("cbl.pt")
    count = len(state.names()) // 2
    expected = sorted(f"model.{2 * i}.{kind}" for i in range(count) for kind in ("bias", "weight"))
    if state.names() != expected or not count:
        raise reading.error(f"has no concept layer of VLG-CBM in cbl.pt: it holds {list_some(state.names())}")
    layers = state.stack("model.", ["L d", *["L L"] * (count - 1)])
    mean, std = (reading.one(f"train_concept_features_{name}.pt", "L") for name in ("mean", "std"))
    release = _standardised(reading, layers, mean, std, ())
    if count > 1:
        release.warnings.append(
            f"has {count - 1} hidden layers between the embedding and the concepts: values and scores are those of the "
            "release, but concepts have no maps"
        )
    return release


def _standardised(reading: Reading, layers: list[Layer], mean: Tensor, std: Tensor, head: tuple[str, ...]) -> Release:
    names = reading.text("concepts.txt", "List of concepts").split("\n") if "concepts.txt" in reading.files else None
    if flat := torch.nonzero(std <= 0).flatten().tolist():
        shown = list_some(names[j] if names and len(names) == len(std) else j for j in flat)
        raise reading.error(
            f"holds concepts without a deviation among the training images ({shown}), by which values are divided: "
            "they are no numbers. Train it again without them"
        )
    if (nec := reading.options.nec) is not None:
        head = f"W_g@NEC={nec}", f"b_g@NEC={nec}"
        if f"{head[0]}.pt" not in reading.files:
            found = (re.fullmatch(r"W_g@NEC=(\d+)\.pt", name) for name in reading.files)
            raise ValueError(
                f"Expected argument `nec` to be one of the heads in {reading.path}, "
                f"{sorted(int(match[1]) for match in found if match) or 'which has none'}, but got {nec!r}. The script "
                "sparse_evaluation.py of VLG-CBM writes them."
            )
    final = (
        reading.file("final.pt").layer()
        if not head
        else (reading.one(f"{head[0]}.pt", "K L"), reading.one(f"{head[1]}.pt", "K"))
    )
    # (W x + b - mean) / std is one linear layer, so that there are maps of it.
    weight, bias = layers[-1]
    layers = [*layers[:-1], (weight / std[:, None], (bias - mean) / std)]
    backbone: object = None
    if "args.txt" in reading.files:
        try:
            arguments = parse_json(reading.text("args.txt", "Arguments"))
        except ValueError as error:
            raise ValueError(f"{reading.path / 'args.txt'} is no JSON: {error}.") from error
        backbone = arguments.get("backbone") if isinstance(arguments, dict) else None
    return Release(layers, [final], names=names, normalisation=_by_start(_LABEL_FREE, backbone))


def _by_start(known: Mapping[str, Normalisation], backbone: object) -> Normalisation | None:
    name = backbone if isinstance(backbone, str) else ""
    return next((normalisation for start, normalisation in known.items() if name.startswith(start)), None)


def _whole_backbone(reading: Reading) -> dict[str, Tensor]:
    return _tensors(reading.file("backbone.pt")) if "backbone.pt" in reading.files else {}


def _tensors(state: Tensors) -> dict[str, Tensor]:
    return {str(name): tensor for name, tensor in state.found.items() if isinstance(tensor, Tensor)}


# DN-CBM: a sparse autoencoder and a linear layer.


def _dn_cbm(reading: Reading) -> Release:
    path = reading.only(r"(.*/)?sparse_autoencoder_final\.pt", "autoencoders", "Pass a folder with one")
    state = reading.file(path)
    parts = {}
    for name, axes in {"encoder._weight": "L d", "encoder._bias": "L", "tied_bias": "d"}.items():
        tensor = state.found.get(name)
        if isinstance(tensor, Tensor) and tensor.ndim == len(axes.split()) + 1:  # an axis of the layers that are coded
            if len(tensor) != 1:
                raise reading.error(f"codes {len(tensor)} layers at the same time. A concept model reads one")
            axes = f"1 {axes}"
        parts[name] = state.take(name, axes)
        parts[name] = parts[name][0] if axes.startswith("1") else parts[name]
    weight, bias, centre = parts.values()
    remedy = "Pass one as `head`"
    probe = reading.options.head or reading.only(r"(.*/)?on_concepts_.*\.pt", "heads", remedy)
    saved = reading.file(probe).found.get("model")
    head = Tensors(probe, saved if isinstance(saved, Mapping) else {}, reading.sizes)
    rows = head.take("weight", "K L")
    names = None
    if tables := reading.matching(r"(.*/)?concept_names\.csv"):
        lines = [line.partition(",") for line in reading.text(tables[0], "Names of concepts").splitlines() if line]
        if [number for number, _, _ in lines] != [str(i) for i in range(len(lines))]:
            raise ValueError(f"Expected the lines of {tables[0]} to be numbered from 0 but they are not.")
        names = [word for _, _, word in lines]
    return Release(
        [(weight, bias - weight @ centre)],
        [(rows, head.take("bias", "K") if "bias" in head else zeros(rows))],
        nn.ReLU(),
        names=names,
        normalisation=CLIP if "clip" in path.relative_to(reading.path).as_posix() else None,
    )


# SpLiCE: words in the space of CLIP.


def _splice(reading: Reading) -> Release:
    mean = reading.file(reading.only(r"means/[^/]*_image\.pt", "means", "Pass a folder with one")).take("", "d")
    if not reading.matching(r"embeddings/.*\.pt"):
        raise reading.error(
            "holds the mean and the words of SpLiCE but no embeddings of the words, which its first run writes. "
            "`ConceptBank.from_text` makes a bank of words with the same CLIP model"
        )
    path = reading.only(r"embeddings/.*_embeddings\.pt", "embeddings", "Pass a folder with one")
    rows = reading.file(path).take("", "L d")
    words = next((p for p in reading.matching(r"vocab/[^/]*\.txt") if f"_{p.stem}_" in path.name), None)
    # The most frequent words, which are the concepts, are the last lines.
    lines = None if words is None else reading.text(words, "Vocabulary").splitlines()[-len(rows) :]
    warning = (
        "is of SpLiCE, which finds few words for an image with a sparse solver, which is no layer: this bank holds its "
        "directions, and its values are those of the normalised embedding before the solver"
    )
    names = None if lines is None else [line.strip() for line in lines]
    return Release([(rows, -(rows @ mean))], names=names, normalisation=CLIP, warnings=[warning])


# Post-hoc CBM: a bank of vectors, a linear layer, and with PCBM-h a linear residual.


def _bank(reading: Reading) -> Release:
    rows: list[Tensor] = []
    numbers: list[list[float]] = []
    for name, (vector, *accuracies, intercept, _) in reading.found.items():
        array = to_array(vector)
        others = [_number(value) for value in (intercept, *accuracies)]
        if not isinstance(name, str) or array is None or array.ndim != 2 or len(array) != 1 or None in others[:1]:
            raise reading.error(
                f"is no bank of post-hoc CBM: expected a vector (1, d), two accuracies, an intercept and margins under "
                f"each name but {quote(name) if isinstance(name, str) else 'a name'} has others"
            )
        rows.append(reading.part({"": torch.from_numpy(array[0].astype(float))}, name).take("", "d"))
        numbers.append([float("nan") if value is None else value for value in others])
    intercepts, train, test = torch.tensor(numbers, dtype=torch.float64).T
    return Release([(torch.stack(rows), intercepts)], names=[*reading.found], accuracies=(train, test))


def _number(value: object) -> float | None:
    """Return a number of a file, whether Python's or an array of one; None for anything else."""
    if (array := to_array(value)) is not None and array.size == 1:
        return float(array.reshape(()))
    # A whole number of a file may have millions of digits.
    return float(value) if isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**53) else None


def _pcbm(reading: Reading) -> Release:
    linear = reading.found
    residual = linear.member("residual_classifier")
    if residual is not None:
        linear = linear.member("bottleneck")
    if not isinstance(linear, Bag):
        raise reading.error("has no bottleneck of post-hoc CBM")
    state = reading.part({name: linear.member(name) for name in ("cavs", "intercepts", "norms")})
    cavs, intercepts, norms = state.take("cavs", "L d"), state.take("intercepts", "L 1"), state.take("norms", "L 1")
    if not torch.allclose(norms[:, 0], cavs.norm(dim=1), rtol=1e-4):
        raise reading.error("has norms that are not those of its vectors, which no concept bank can represent")
    weight, bias = reading.part(linear.member("classifier"), "classifier.").layer(axes="C L")
    extra = None if residual is None else reading.part(residual, "residual_classifier.").layer(axes="K d")
    classes = linear.member("idx_to_class")
    count = 2 if len(weight) == 1 else len(weight)
    if extra is not None and len(extra[0]) != count:
        raise reading.error(f"has a residual of {len(extra[0])} classes and a classifier of {count}")
    listed = [classes[k] for k in range(count)] if isinstance(classes, dict) and {*classes} == {*range(count)} else None
    class_names = texts_of(listed)
    warnings = []
    if extra is not None and len(weight) == 1:
        # Their sum of (N, 1) and (N, 2) adds the one number of the concepts to both classes.
        weight, bias = weight.repeat(2, 1), bias.repeat(2)
        warnings.append(
            "adds the same number to both of its classes for the concepts, as its code does with two classes: which "
            "class it predicts depends on the residual alone"
        )
    return Release(
        [(cavs, intercepts[:, 0])],
        [(weight, bias)],
        margins=True,
        residual=extra,
        names=texts_of(linear.member("names")),
        class_names=None if class_names is None else distinguish(class_names),
        normalisation=_by_start(_POST_HOC, linear.member("backbone_name")),
        warnings=warnings,
    )


# Concept bottleneck models of Koh et al.: Inception with a layer for each concept.


def _koh(reading: Reading) -> Release:
    joint = reading.found.member("first_model")
    network = reading.found if joint is None else joint
    layers = network.member("all_fc") if isinstance(network, Bag) else None
    modules = layers.member("_modules") if isinstance(layers, Bag) else None
    parts = [part for part in modules.values() if isinstance(part, Bag)] if isinstance(modules, dict) else []
    if not parts:
        raise reading.error("has no layers of concepts: `all_fc` of its network is empty")
    if any(part.member("expand_dim") for part in parts):
        raise reading.error(
            "was trained with expand_dim: each concept has a hidden layer of its own, which is no concept layer of "
            "this package. Build the layers anew of its state dict, as your own class"
        )
    first = dict(parts[0].tensors()).get("fc.weight")
    if (first is not None and len(first) > 1) or network.member("n_attributes") == 0:
        kind = "multitask" if len(parts) > 1 else "standard"
        raise reading.error(
            f"is the {kind} model of CBM, which has no bottleneck: its classes are read from the features"
        )
    single = [reading.part(part, f"all_fc.{j}.").layer("fc.", "1 d") for j, part in enumerate(parts)]
    weight, bias = (torch.cat(each) for each in zip(*single, strict=True))
    reading.sizes["L"] = len(weight)
    activation: Any
    if joint is not None:
        if reading.options.head is not None:
            raise reading.error("is a joint model, with a head of its own. Leave out `head`")
        head = reading.part(reading.found.member("sec_model"), "sec_model.")
        relu, sigmoid = (reading.found.member(name) for name in ("use_relu", "use_sigmoid"))
        if isinstance(relu, bool) and isinstance(sigmoid, bool):
            if not isinstance(reading.options.activation, str):
                raise reading.error("says itself which activation its head reads. Leave out `activation`")
            activation = nn.ReLU() if relu else torch.sigmoid if sigmoid else None
        else:
            activation = reading.activation(_SIGMOID_OR_NOT)
    else:
        message = (
            "is the concept model of CBM alone. Pass the file of its second stage as `head`, and as `activation` what "
            "the head was trained on: torch.sigmoid for an independent model, None for a sequential one"
        )
        activation = reading.activation(message)
        if reading.options.head is None:
            raise reading.error(message)
        head = Tensors(reading.options.head, read_objects(reading.options.head), reading.sizes)
    if head.names() != ["linear.bias", "linear.weight"]:
        raise ValueError(
            f"Expected the second stage in {head.path} to be one linear layer but it has "
            f"{list_some(head.names()) or 'none'}."
        )
    transform = network.member("transform_input")
    return Release(
        [(weight, bias)],
        [head.layer("linear.")],
        activation,
        named=False,
        normalisation=HALVES,
        transform_input=transform if isinstance(transform, bool) else None,
    )


def _koh_backbone(reading: Reading) -> dict[str, Tensor]:
    network = reading.found.member("first_model") or reading.found
    heads = re.compile(r"(all_fc|AuxLogits|cy_fc)\b")
    return {name: tensor for name, tensor in network.tensors() if not heads.match(name)}


# The repository of CEM: a concept bottleneck model, and CEM itself.


def _cem_bottleneck(reading: Reading) -> Release:
    state = reading.part(reading.found)
    last = next((name for name in ("x2c_model.fc.", "x2c_model.classifier.") if f"{name}weight" in state), None)
    if last is None:
        raise reading.error("has no last layer of a concept model: neither x2c_model.fc nor x2c_model.classifier")
    layer = state.layer(last, "L d")
    depth = sum(name.startswith("c2y_model.") and name.endswith(".weight") for name in state.names())
    axes = ["K L"] if depth == 1 else ["H0 L", *(f"H{i + 1} H{i}" for i in range(depth - 2)), f"K H{depth - 2}"]
    return Release([layer], state.stack("c2y_model.", axes), reading.activation(_SIGMOID_OR_NOT), named=False)


def _below(*prefixes: str) -> Callable[[Reading], dict[str, Tensor]]:
    def backbone(reading: Reading) -> dict[str, Tensor]:
        state = _tensors(reading.part(reading.found))
        prefix = next((each for each in prefixes if any(name.startswith(each) for name in state)), "-")
        last = f"{prefix}fc.", f"{prefix}classifier."
        return {n.removeprefix(prefix): t for n, t in state.items() if n.startswith(prefix) and not n.startswith(last)}

    return backbone


#: The first that matches is taken: by the name of a file, relative to the folder.
FOLDERS = (
    Format("CB-LLM", "cbl_acc.pt|train_mean_acc.pt", _refuse("is a CB-LLM, whose backbone reads text, not images")),
    Format("VLG-CBM", "cbl.pt", _vlg, ("nec",), _whole_backbone),
    Format("Label-free CBM", "W_c.pt", _label_free, ("nec",)),
    Format(
        "the standard model of Label-free CBM",
        "W_g.pt",
        _refuse("is the standard model of Label-free CBM, without concepts: there is no W_c.pt"),
    ),
    Format("SpLiCE", "means/.*|vocab/.*", _splice),
    Format("DN-CBM", r"(.*/)?sparse_autoencoder_.*\.pt", _dn_cbm, ("head",)),
)
#: By the name of a member of the object that the file holds.
FILES = (
    Format("a bank of post-hoc CBM", "5-tuples", _bank),
    Format("post-hoc CBM", "residual_classifier|cavs", _pcbm),
    Format("CBM of Koh et al.", "first_model|all_fc", _koh, ("head", "activation"), _koh_backbone),
    Format(
        "the second stage of CBM",
        "expand_dim",
        _refuse(
            "holds the second stage of a CBM alone. Pass the file of its concept model as `path`, and this as `head`"
        ),
    ),
    Format(
        "CEM",
        r"concept_context_generators\..*",
        _refuse(
            "is a concept embedding model: its head reads a mixture of two embeddings of each concept, and not the "
            "concepts' values. Load the CBM of the same experiment, fit a `PostHocCBM` on its backbone, or write the "
            "members of a concept model (docs/own-model.md, CEM)"
        ),
        backbone=_below("pre_concept_model."),
    ),
    Format("CBM of CEM's repository", r"c2y_model\..*", _cem_bottleneck, ("activation",), _below("x2c_model.")),
)
