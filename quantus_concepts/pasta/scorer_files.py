"""Files of scorers: ours in safetensors, and the checkpoints as Kazmierczak et al. released them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor, nn

from captum_concepts.backbones.weights import read_state
from captum_concepts.support.checks import check_choice, check_path
from captum_concepts.support.files import check_target, parse_json, shorten, write_atomically
from quantus_concepts.datasets.ratings.explanations import QUESTIONS
from quantus_concepts.pasta.labels import RELEASED_LABELS
from quantus_concepts.pasta.scorer import RELEASED_ENCODERS, Scorer

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
    encoder: str | None = None,
    device: torch.device | str = "cpu",
) -> Scorer:
    """Read a scorer that `save_scorer` has written, or released checkpoints; nothing in a file is executed.

    A released checkpoint holds weight and bias of ``net.0``, ``net.2`` and ``net.4`` (or these under "state_dict"), of
    one question, whose name is taken from that of the file (``PASTA_Q1.pth``). What encoder it was trained on is not
    in it. Its inputs are the 26 `RELEASED_LABELS` and an embedding, or, where they are as many as a released encoder
    gives, an embedding alone.

    Parameters
    ----------
    source : path, or mapping of str to path
        A file; the file of each question; or a folder of such files, whose questions are joined.
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
    scorers = [_read_scorer(path, name, encoder) for path, name in files]
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


def _read_scorer(path: Path, question: str | None, encoder: str | None) -> Scorer:
    tensors, header = read_state(path)
    if header.get("kind") == _KIND:
        scorer = _our_scorer(path, tensors, header)
        return scorer if question is None else scorer.select(question)
    name = question or _question_in(path)
    if name is None:
        raise ValueError(
            f"The name of {path} does not say which question it answers. Name it as in PASTA_Q1.pth, or give "
            '{"Q1": path} for the question it answers.'
        )
    return _released_scorer(path, tensors, name, encoder)


# Networks of a size that a file only claims are made on the device "meta", where they take no memory; what does not fit
# raises there.


def _our_scorer(path: Path, tensors: dict[str, Tensor], header: Mapping[str, str]) -> Scorer:
    _check_numbers(path, tensors)
    try:
        with torch.device("meta"):
            scorer = Scorer(**{name: parse_json(header[name]) for name in _FIELDS})
        scorer.load_state_dict(tensors, assign=True)
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"{path} is a damaged scorer: {shorten(error)}") from error
    return scorer.float()


def _released_scorer(path: Path, tensors: dict[str, Tensor], question: str, encoder: str | None) -> Scorer:
    _check_numbers(path, tensors)
    weight, *biases = (tensors.get(f"net.{name}", torch.empty(0)) for name in ("0.weight", "0.bias", "2.bias"))
    hidden = [max(1, bias.numel()) for bias in biases]
    n_inputs = max(1, weight.numel() // hidden[0])
    with torch.device("meta"):
        first, second, last = (nn.Linear(n_in, n_out) for n_in, n_out in pairwise([n_inputs, *hidden, 1]))
        network = nn.ModuleDict({"net": nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), last)})
    try:
        network.load_state_dict(tensors, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{path} does not hold a released scorer: {shorten(error)}") from error
    labels = None if n_inputs in RELEASED_ENCODERS.values() else RELEASED_LABELS
    dim = n_inputs - len(labels or ())
    if dim < 1:
        raise ValueError(
            f"{path} does not hold a released scorer: it has {n_inputs} inputs, not the {len(RELEASED_LABELS)} labels "
            "and an embedding."
        )
    if encoder is None and dim == RELEASED_ENCODERS["siglip"]:
        encoder = "siglip"
    scorer = Scorer(
        dim, (question,), labels, hidden, encoder=encoder, settings=RELEASED_SETTINGS, metadata=RELEASED_METADATA
    )
    with torch.no_grad():
        for layer, weights, bias in zip((first, second, last), scorer.weights, scorer.biases, strict=True):
            weights.copy_(layer.weight[None])
            bias.copy_(layer.bias[None])
    return scorer


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
