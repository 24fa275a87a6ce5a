"""Concept models to and from the Hugging Face hub."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from captum_concepts.checks import check_kind

#: Of the model, in a repository.
FILE = "concept_model.safetensors"
_CARD = "README.md"


def upload(
    repo_id: str, save: Callable[[Path], None], card: str, *, private: bool | None, token: str | bool | None
) -> str:
    """Make a repository of a model and its card, in one commit; return the address of the commit."""
    _check_name(repo_id)
    from huggingface_hub import HfApi

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Whatever is wrong with the model is told before a repository is made.
        save(folder / FILE)
        (folder / _CARD).write_text(card, encoding="utf-8")
        api = HfApi(token=token, library_name="quantus-concepts")
        api.create_repo(repo_id, private=private, exist_ok=True)
        commit = api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Upload a concept model")
    return str(commit.commit_url)


def download(repo_id: str, file: str, revision: str | None, token: str | bool | None) -> Path:
    """Return the path of a model in a folder, or of the copy of one from the hub."""
    check_kind("repo_id", repo_id, str, "a text")
    if Path(repo_id).is_dir():
        return Path(repo_id) / file
    _check_name(repo_id)
    from huggingface_hub import hf_hub_download
    from huggingface_hub.utils import EntryNotFoundError  # type: ignore[attr-defined]

    try:
        return Path(hf_hub_download(repo_id, file, revision=revision, token=token, library_name="quantus-concepts"))
    except EntryNotFoundError as error:
        if isinstance(error, FileNotFoundError):  # the hub could not be asked
            raise
        raise ValueError(
            f"Expected argument `repo_id` to name a repository with a concept model but {repo_id} has no {file}."
        ) from error


def _check_name(repo_id: str) -> None:
    check_kind("repo_id", repo_id, str, "a text")
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo_id)
    except ValueError as error:
        raise ValueError(f"Expected argument `repo_id` to name a repository, 'user/name', but: {error}") from error
