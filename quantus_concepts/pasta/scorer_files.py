"""Files of scorers: ours in safetensors, and the checkpoints as Kazmierczak et al. released them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from captum_concepts.backbones.weights import read_state
from captum_concepts.support.checks import check_choice, check_path
from captum_concepts.support.files import check_target, parse_json, shorten, write_atomically
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.pasta.labels import RELEASED_LABELS
from quantus_concepts.pasta.scorer import RELEASED_ENCODERS, Scorer

#: Tensors of a released checkpoint, in the order of the layers.
RELEASED_KEYS = tuple(f"net.{layer}.{kind}" for layer in (0, 2, 4) for kind in ("weight", "bias"))
#: How the released scorers were shown explanations, and where their labels came from.
RELEASED_SETTINGS = {"sentence": "release"}
RELEASED_METADATA = {"released": True, "labels_from": "image-name"}
_KIND = "quantus_concepts.Scorer"
_FIELDS = ("dim", "questions", "labels", "hidden", "encoder", "settings", "metadata")
#: A file, the file of each question, or a folder of files.
ScorerSource: TypeAlias = str | os.PathLike[str] | Mapping[str, str | os.PathLike[str]]
_TORCH_SUFFIXES = (".pth", ".pt", ".bin", ".ckpt")


def save_scorer(scorer: Scorer, path: str | os.PathLike[str]) -> None:
    """Write a scorer as one safetensors file, with all that belongs to it as metadata.

    The file appears under its name only when it is complete; one already there is replaced.

    Parameters
    ----------
    scorer : Scorer
        Its labels, questions, encoder, settings and metadata are kept; arrays among them become lists.
    path : path
        Path of the file, which ends in ``.safetensors``.

    Raises
    ------
    ValueError
        If the name ends otherwise, or settings or metadata hold what JSON cannot.
    FileNotFoundError
        If its folder does not exist.
    IsADirectoryError
        If it is a folder.
    """
    target = check_target(check_path("path", path), "a scorer")
    if target.suffix != ".safetensors":
        raise ValueError(f"Expected argument `path` to end in .safetensors but got {target.name!r}.")
    content = scorer_bytes(scorer)
    with write_atomically(target) as temporary:
        temporary.write_bytes(content)


def scorer_bytes(scorer: Scorer) -> bytes:
    """Return what `save_scorer` writes; equal scorers give equal bytes."""
    header = {"kind": _KIND}
    for name in _FIELDS:
        try:
            header[name] = json.dumps(getattr(scorer, name), default=_to_json)
        except (TypeError, ValueError) as error:
            raise ValueError(f"Expected `{name}` of the scorer to hold what JSON can but: {error}.") from error
    # Copies: safetensors takes no memory that is shared or not contiguous.
    tensors = {name: value.detach().cpu().contiguous().clone() for name, value in scorer.state_dict().items()}
    content = save(tensors, header)
    # safetensors writes its metadata in a random order.
    size = int.from_bytes(content[:8], "little")
    head = json.dumps(json.loads(content[8 : 8 + size]), sort_keys=True).encode()
    head += b" " * (-len(head) % 8)
    return len(head).to_bytes(8, "little") + head + content[8 + size :]


def load_scorer(
    source: ScorerSource,
    *,
    dim: int | None = None,
    encoder: str | None = None,
    device: torch.device | str = "cpu",
) -> Scorer:
    """Read a scorer that `save_scorer` has written, or released checkpoints; nothing in a file is executed.

    A released checkpoint holds `RELEASED_KEYS` (or these under "state_dict"), of one question, whose name is taken
    from that of the file (``PASTA_Q1.pth``). What encoder it was trained on is not in it: its inputs tell the size of
    the embeddings, after the 26 `RELEASED_LABELS`, or without labels where they are of the size of a released encoder.

    Parameters
    ----------
    source : path, or mapping of str to path
        A file; the file of each question; or a folder of such files, whose questions are joined.
    dim : int, optional
        Size of the embeddings the scorer must take; needed only for a checkpoint in the released format that was
        trained on another encoder.
    encoder : str, optional
        Name of the encoder of released checkpoints; "siglip" by default for embeddings of 1024, unknown otherwise.
    device : torch.device or str
        Device of the scorer.

    Returns
    -------
    Scorer
        In eval mode; of all questions that were found.

    Raises
    ------
    FileNotFoundError
        If a file is missing; of a mapping all that are.
    ValueError
        If a file cannot be read, has other keys or sizes than a scorer, or the files do not belong together.
    """
    files = _files(source)
    scorers = [_read_scorer(path, name, dim, encoder) for path, name in files]
    answering: dict[str, Path] = {}
    for (path, _), scorer in zip(files, scorers, strict=True):
        for question in scorer.questions:
            if (other := answering.setdefault(question, path)) != path:
                raise ValueError(
                    f"Both {other.name} and {path.name} in {path.parent} answer {question}. Name one of them, or the "
                    "file of each question."
                )
    return Scorer.join(scorers).to(device).eval() if len(scorers) > 1 else scorers[0].to(device).eval()


def scorer_from(value: Scorer | ScorerSource) -> Scorer:
    """Return a scorer, read from its file where a path is given."""
    if isinstance(value, Scorer | str | os.PathLike | Mapping):
        return value if isinstance(value, Scorer) else load_scorer(value)
    raise TypeError(f"Expected argument `scorer` to be a Scorer, or the file of one, but got {type(value).__name__}.")


def _files(source: ScorerSource) -> list[tuple[Path, str | None]]:
    """Return files and, where it is known, the question of each."""
    if isinstance(source, Mapping):
        for name in source:
            check_choice("source", name, QUESTIONS)
        named = [(check_path("source", path), name) for name, path in source.items()]
        missing = [str(path) for path, _ in named if not path.is_file()]
        if missing or not named:
            raise FileNotFoundError(
                f"There is no scorer at {', '.join(missing) or '(no file was named)'}: no such file."
            )
        return [(path, name) for path, name in named]
    path = check_path("source", source)
    if not path.is_dir():
        if not path.exists():
            raise FileNotFoundError(f"There is no scorer at {path}: no such file.")
        return [(path, None)]
    ours = sorted(path.glob("*.safetensors"))
    released = [file for file in sorted(path.iterdir()) if file.suffix in _TORCH_SUFFIXES and _question_in(file)]
    if ours and released:
        raise ValueError(
            f"{path} holds both {ours[0].name} and {released[0].name}. Name one of them, or the file of each question."
        )
    if not ours and not released:
        raise FileNotFoundError(
            f"There is no scorer in {path}. Expected PASTA_Q1.pth to PASTA_Q6.pth, or files that `save_scorer` wrote."
        )
    return [(file, None) for file in ours or released]


def _question_in(path: Path) -> str | None:
    names = re.findall(r"(?<![A-Za-z0-9])(Q\d+)(?![0-9])", path.stem)
    return names[-1] if names and names[-1] in QUESTIONS else None


def _read_scorer(path: Path, question: str | None, dim: int | None, encoder: str | None) -> Scorer:
    tensors, header = read_state(path)
    if header.get("kind") == _KIND:
        scorer = _our_scorer(path, tensors, header)
        if question is not None:
            scorer = scorer.select(question)
        if dim is not None and dim != scorer.dim:
            raise ValueError(
                f"{path} is a scorer for embeddings of {scorer.dim} ({scorer.encoder or 'encoder unknown'}), not {dim}."
            )
        return scorer
    name = question or _question_in(path)
    if name is None:
        raise ValueError(
            f"The name of {path} does not tell its question. Name it as in PASTA_Q1.pth, or give "
            '{"Q1": path} for the question it answers.'
        )
    return _released_scorer(path, tensors, name, dim, encoder)


def _our_scorer(path: Path, tensors: Mapping[str, Tensor], header: Mapping[str, str]) -> Scorer:
    try:
        fields = {name: parse_json(header[name]) for name in _FIELDS}
        # Before anything of a size that is only claimed is made.
        shapes = _layer_shapes(len(fields["labels"] or ()) + fields["dim"], fields["hidden"])
        n_questions = len(fields["questions"])
        names = (f"{kind}.{layer}" for layer in range(len(shapes) // 2) for kind in ("weights", "biases"))
        claimed = {name: (n_questions, *shape) for name, shape in zip(names, shapes, strict=True)}
        if wrong := _wrong_shapes(tensors, claimed):
            raise ValueError(f"its metadata do not fit its tensors: {wrong}")
        scorer = Scorer(**fields)
        scorer.load_state_dict(dict(tensors))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} is a damaged scorer: {shorten(error)}") from error
    _check_numbers(path, tensors)
    return scorer


def _released_scorer(
    path: Path, tensors: Mapping[str, Tensor], question: str, dim: int | None, encoder: str | None
) -> Scorer:
    weight, *biases = (tensors.get(f"net.{name}", torch.empty(0)) for name in ("0.weight", "0.bias", "2.bias"))
    hidden = [max(1, bias.numel()) for bias in biases]
    n_inputs = weight.numel() // hidden[0]
    expected = dict(zip(RELEASED_KEYS, _layer_shapes(n_inputs, hidden), strict=True))
    if wrong := _wrong_shapes(tensors, expected):
        raise ValueError(f"{path} does not hold a released scorer: {wrong}.")
    _check_numbers(path, tensors)
    size, labels = _inputs(path, n_inputs, dim)
    if encoder is None and size == RELEASED_ENCODERS["siglip"]:
        encoder = "siglip"
    scorer = Scorer(
        size, (question,), labels, hidden, encoder=encoder, settings=RELEASED_SETTINGS, metadata=RELEASED_METADATA
    )
    layers = {"weight": scorer.weights, "bias": scorer.biases}
    with torch.no_grad():
        for place, key in enumerate(RELEASED_KEYS):
            layers[key.rpartition(".")[2]][place // 2].copy_(tensors[key][None])
    return scorer


def _layer_shapes(n_inputs: int, hidden: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the shapes of weight and bias of each layer."""
    return [shape for n_in, n_out in pairwise([n_inputs, *hidden, 1]) for shape in ((n_out, n_in), (n_out,))]


def _wrong_shapes(tensors: Mapping[str, Tensor], expected: Mapping[str, tuple[int, ...]]) -> str:
    """Return what of some tensors is missing, too much, or of another shape; "" if they are as expected."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    problems = {
        "missing: ": [name for name in expected if name not in shapes],
        "not of a scorer: ": [name for name in shapes if name not in expected],
        "": [
            f"{name} {shapes[name]} for {shape}" for name, shape in expected.items() if shapes.get(name, shape) != shape
        ],
    }
    return "; ".join(f"{what}{shorten(', '.join(names[:6]))}" for what, names in problems.items() if names)


def _inputs(path: Path, n_inputs: int, dim: int | None) -> tuple[int, tuple[str, ...] | None]:
    """Return the size of the embeddings, and the labels."""
    sizes = sorted(set(RELEASED_ENCODERS.values()) if dim is None else {dim})
    for size in sizes:
        if n_inputs in (size, size + len(RELEASED_LABELS)):
            return size, RELEASED_LABELS if n_inputs > size else None
    trained = n_inputs - len(RELEASED_LABELS)
    raise ValueError(
        f"net.0.weight in {path} takes {n_inputs} inputs: embeddings of {trained} after {len(RELEASED_LABELS)} labels, "
        f"or of {n_inputs} without labels, but embeddings of {' or '.join(map(str, sizes))} were expected. If it was "
        f"trained on another encoder, say so with dim={trained if trained > 0 else n_inputs}."
    )


def _check_numbers(path: Path, tensors: Mapping[str, Tensor]) -> None:
    bad = [
        name for name, value in tensors.items() if not (value.is_floating_point() and value.float().isfinite().all())
    ]
    if bad:
        raise ValueError(f"The weights in {path} are damaged: {', '.join(bad)} hold NaN, infinity, or no real numbers.")


def _to_json(value: Any) -> Any:
    """Return lists and numbers for arrays and tensors."""
    if isinstance(value, np.ndarray | np.generic | Tensor):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    raise TypeError(f"{type(value).__name__} cannot be written")
