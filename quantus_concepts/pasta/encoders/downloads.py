"""Getting weights and tokenizers from the net, and saying in one sentence what to fetch where that fails."""

from __future__ import annotations

import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub.constants import ENDPOINT

from captum_concepts.support.files import without_advice

#: Names under which Hugging Face's repositories keep weights of open_clip, the one that executes nothing first.
WEIGHT_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
TOKENIZER_FILES = ("tokenizer_config.json", "tokenizer.json")
#: The branch, tag or commit of a repository that is fetched where none is named.
REVISION = "main"
#: Seconds after which a server counts as out of reach; libraries retry for a minute.
PATIENCE = 8


def first_line(error: BaseException) -> str:
    """Return the kind of an error and the first line of its message."""
    lines = without_advice(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def fetch_weights(name: str, source: Mapping[str, Any], download: Callable[[Mapping[str, Any]], str]) -> Path:
    """Return the file of some weights of open_clip, from its cache or downloaded."""
    repository, _, file = source.get("hf_hub", "").rpartition("/")
    names = (file,) if file else WEIGHT_FILES
    if repository and (path := _cached_file(repository, names)) is not None:
        return path
    # The revision is open_clip's choice, which names none.
    address = f"{ENDPOINT}/{repository}/resolve/{REVISION}/{names[0]}" if repository else source["url"]
    try:
        _check_reachable(address, hub=bool(repository))
        return Path(download(source))
    except Exception as error:  # each library has its own errors for a download that failed
        raise ValueError(
            f"The weights of {name} are not on this machine and cannot be downloaded "
            f"({first_line(error)}): fetch {address} and name the file with --encoder-weights FILE "
            "(argument `pretrained`). --encoder embedded tries everything without weights."
        ) from None


def fetch_folder(what: str, repository: str, files: Sequence[str], remedy: str, revision: str = REVISION) -> str:
    """Return where a model or tokenizer of Hugging Face can be read from: its folder, or its name there."""
    paths = [_cached_file(repository, (name,), revision) for name in files]
    # The folder: given a name, the libraries ask the server even for what they have.
    if paths[0] is not None and None not in paths:
        return str(paths[0].parent)
    try:
        _check_reachable(f"{ENDPOINT}/{repository}/resolve/{revision}/{files[0]}", hub=True)
    except Exception as error:  # each library has its own errors for a download that failed
        raise ValueError(
            f"{what} is not on this machine and cannot be downloaded ({first_line(error)}): fetch "
            f"{' and '.join(files)} of {ENDPOINT}/{repository} (revision {revision}) into a folder and {remedy}."
        ) from None
    return repository


def _cached_file(repository: str, names: tuple[str, ...], revision: str = REVISION) -> Path | None:
    """Return the first of some files that Hugging Face's cache has."""
    for name in names:
        path = huggingface_hub.try_to_load_from_cache(repository, name, revision=revision)
        if isinstance(path, str):
            return Path(path)
    return None


def _check_reachable(address: str, *, hub: bool) -> None:
    """Raise the library's own error immediately if a server does not answer."""
    if hub:
        # Knows the user's proxies and certificates, as the download does; any answer will do.
        huggingface_hub.get_session().head(address, timeout=PATIENCE)
    else:
        request = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(request, timeout=PATIENCE):
            pass
