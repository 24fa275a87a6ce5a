import multiprocessing
import os
import pathlib
import signal
import warnings
from typing import Any

import pytest
import torch
from safetensors.torch import save

from kills import NO_FORK, needs_fork
from quantus_concepts.pasta.cache import EmbeddingCache

KEYS = [f"{i:064x}" for i in range(1000)]
# Processes of their own that need no seconds to import torch.
FORK: Any = multiprocessing.get_context("fork") if hasattr(os, "fork") else None


def write(folder, rounds):
    """Write 200 entries again and again."""
    cache = EmbeddingCache(folder)
    for _ in range(rounds):
        for i in range(200):
            cache.put({KEYS[i]: torch.full((4096,), float(i))})


@pytest.fixture
def writer(tmp_path):
    """Start other processes that write."""
    if FORK is None:
        pytest.skip(NO_FORK)
    started = []

    def start(rounds):
        process = FORK.Process(target=write, args=(tmp_path, rounds), daemon=True)
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()


def rows(n=3, dim=5):
    return {key: torch.full((dim,), float(i)) + 0.125 for i, key in enumerate(KEYS[:n])}


def entries(folder):
    return [path for path in folder.rglob("[!.]*") if path.is_file()]


def partial_files(folder):
    return [path for path in folder.rglob(".*") if path.is_file()]


def test_what_is_put_is_got_by_another_object(tmp_path):
    folder = tmp_path / "cache"
    cache = EmbeddingCache(folder)
    assert cache.get(KEYS[:2]) == {}
    assert not folder.exists()
    cache.put(rows())
    embeddings = EmbeddingCache(str(folder)).get([*KEYS[:2], KEYS[9]])
    assert list(embeddings) == KEYS[:2]
    assert all(
        torch.equal(embeddings[key], rows()[key]) and embeddings[key].dtype == torch.float32 for key in embeddings
    )
    embeddings[KEYS[0]] += 1
    assert torch.equal(cache.get(KEYS[:1])[KEYS[0]], rows()[KEYS[0]])
    cache.put({})
    cache.put({KEYS[0]: torch.zeros(5, requires_grad=True)})
    assert not cache.get(KEYS[:1])[KEYS[0]].any()


@pytest.mark.parametrize("damage", ["truncated", "empty", "longer", "of other tensors"])
def test_a_damaged_entry_is_missing_and_warned_of_once(tmp_path, damage):
    cache = EmbeddingCache(tmp_path)
    cache.put(rows())
    first, second = (cache.folder / key[:2] / f"{key[2:]}.safetensors" for key in KEYS[:2])
    content = first.read_bytes()
    changed = {
        "truncated": content[:-4],
        "empty": b"",
        "longer": content + b"1234",
        "of other tensors": save({"other": torch.zeros(3)}),
    }[damage]
    first.write_bytes(changed)
    second.write_bytes(b"x")
    with pytest.warns(UserWarning, match="cannot be used .*: what it held is computed again") as warned:
        assert list(cache.get(KEYS[:3])) == KEYS[2:3]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(cache.get(KEYS[:3])) == KEYS[2:3]
        cache.put(rows())
        assert list(cache.get(KEYS[:3])) == KEYS[:3]
    assert len(warned) == 1


def check_entries(folder):
    """Read all entries, none of which may be damaged; return how many there are."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        embeddings = EmbeddingCache(folder).get(KEYS[:200])
    assert all(torch.equal(value, torch.full((4096,), float(int(key, 16)))) for key, value in embeddings.items())
    assert len(embeddings) == len(entries(folder))
    return len(embeddings)


def die_writing(folder, moment):
    """Kill oneself before a file gets its name, or right after."""
    replace = pathlib.Path.replace

    def killing(path, target):
        if moment == "renamed":
            replace(path, target)
        os.kill(os.getpid(), signal.SIGKILL)

    pathlib.Path.replace = killing
    EmbeddingCache(folder).put({KEYS[5]: torch.full((4096,), 5.0)})


@needs_fork
@pytest.mark.parametrize(("moment", "n_partial", "n_complete"), [("written", 1, 0), ("renamed", 0, 1)])
def test_a_kill_in_the_middle_of_a_file(tmp_path, moment, n_partial, n_complete):
    process = FORK.Process(target=die_writing, args=(tmp_path, moment))
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert len(partial_files(tmp_path)) == n_partial
    assert check_entries(tmp_path) == n_complete
    EmbeddingCache(tmp_path).put({KEYS[5]: torch.full((4096,), 5.0)})
    assert check_entries(tmp_path) == 1
    assert not partial_files(tmp_path)


def test_two_processes_at_once(tmp_path, writer):
    processes = [writer(1) for _ in range(2)]
    while any(process.is_alive() for process in processes):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            embeddings = EmbeddingCache(tmp_path).get(KEYS[:200])
        assert all(value[0] == int(key, 16) for key, value in embeddings.items())
    assert [process.exitcode for process in processes] == [0, 0]
    assert check_entries(tmp_path) == 200
    assert not partial_files(tmp_path)


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path):
    cache = EmbeddingCache(tmp_path / "cache")
    (tmp_path / "cache").write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be written .*: the run goes on without it") as warned:
        cache.put(rows())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.put(rows())
    assert len(warned) == 1
    with pytest.raises(ValueError, match=r"`cache` to be a folder but .* is a file"):
        EmbeddingCache(tmp_path / "cache")


@pytest.mark.parametrize("key", ["ab", "../../abc"])
def test_a_key_is_no_path(tmp_path, key):
    cache = EmbeddingCache(tmp_path / "cache")
    with pytest.raises(ValueError, match="`keys` to hold hexadecimal keys"):
        cache.put({key: torch.zeros(3)})
    with pytest.raises(ValueError, match="`keys` to hold hexadecimal keys"):
        cache.get([key])
