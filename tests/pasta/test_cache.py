import os
from itertools import count

import pytest
import torch
from safetensors.torch import save

from kills import killed, needs_fork
from quantus_concepts.pasta.cache import EmbeddingCache

KEYS = [f"{i:064x}" for i in range(10)]


def rows(n=3, dim=5):
    return {key: torch.full((dim,), float(i)) + 0.125 for i, key in enumerate(KEYS[:n])}


def test_what_is_put_is_got_by_another_object(tmp_path):
    folder = tmp_path / "cache"
    cache = EmbeddingCache(folder)
    assert cache.get(KEYS[:2]) == {}
    assert not folder.exists()
    cache.put(rows())
    embeddings = EmbeddingCache(str(folder)).get([*KEYS[:2], KEYS[9]])
    assert list(embeddings) == KEYS[:2]
    assert all(torch.equal(embedding, rows()[key]) for key, embedding in embeddings.items())
    cache.put({KEYS[0]: torch.zeros(5, requires_grad=True)})
    assert not cache.get(KEYS[:1])[KEYS[0]].any()


@pytest.mark.parametrize("damage", ["truncated", "longer", "of other tensors", "60 GB", "a pipe"])
def test_a_damaged_entry_is_missing_and_warned_of_once(tmp_path, damage):
    cache = EmbeddingCache(tmp_path)
    cache.put(rows())
    first, second = (cache.folder / key[:2] / f"{key[2:]}.safetensors" for key in KEYS[:2])
    content = first.read_bytes()
    first.unlink()
    if damage == "60 GB":
        first.touch()
        os.truncate(first, 60 * 10**9)
    elif damage == "a pipe":
        os.mkfifo(first)
    else:
        first.write_bytes(damaged(content, damage))
    second.write_bytes(b"x")
    with pytest.warns(UserWarning, match=r"cannot be used .*: what it held is computed again") as warned:
        assert list(cache.get(KEYS[:3])) == KEYS[2:3]
    assert damage != "60 GB" or "it has 60000000000 bytes" in str(warned[0].message)
    cache.put(rows())
    assert list(cache.get(KEYS[:3])) == KEYS[:3]
    assert len(warned) == 1


def damaged(content, damage):
    return {
        "truncated": content[:-4],
        "longer": content + b"1234",
        "of other tensors": save({"other": torch.zeros(3)}),
    }[damage]


@pytest.mark.filterwarnings("error")
@needs_fork
def test_a_kill_in_the_middle_of_a_file(tmp_path):
    whole = {KEYS[5]: torch.full((4096,), 5.0)}
    n_complete, half_written = [], []
    for number in count(1):
        folder = tmp_path / str(number)
        ended = killed(lambda folder=folder: EmbeddingCache(folder).put(whole), number)
        half_written += [path for path in folder.rglob(".*") if path.is_file()]
        cache = EmbeddingCache(folder)
        n_complete.append(len(cache.get(whole)))
        cache.put(whole)
        assert cache.get(whole)[KEYS[5]].eq(5).all()
        if ended == 0:
            break
    assert half_written
    assert not any(path.exists() for path in half_written)
    assert n_complete[0] == 0
    assert n_complete[-1] == 1


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path):
    cache = EmbeddingCache(tmp_path / "cache")
    (tmp_path / "cache").write_text("in the way")
    with pytest.warns(UserWarning, match="cannot be written"):
        cache.put(rows())
    with pytest.raises(ValueError, match="`cache` to be a folder"):
        EmbeddingCache(tmp_path / "cache")


def test_a_key_is_no_path(tmp_path):
    with pytest.raises(ValueError, match="`keys` to hold hexadecimal keys"):
        EmbeddingCache(tmp_path).put({"../../abc": torch.zeros(3)})
    with pytest.raises(ValueError, match="`keys` to hold hexadecimal keys"):
        EmbeddingCache(tmp_path).get(["../../abc"])
