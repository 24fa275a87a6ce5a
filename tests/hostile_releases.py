"""Files that try to run code, to take memory or time, or are damaged, cut, or of other shapes or kinds.

Each entry has a path, arguments of `load_released`, and a part of the message that is expected. Where code would run,
it makes the file `ran` in the folder given.
"""

from __future__ import annotations

import os
import pickle
import shutil
import struct
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

import released_files as w

Cases = dict[str, tuple[Path, dict[str, Any], str]]
UNKNOWN, DAMAGED, CLAIMS = "no released model of a known format", "damaged or cut short", "claims more numbers"


class _Calls:
    def __init__(self, function: object, *args: object) -> None:
        self.called = function, args

    def __reduce__(self) -> Any:
        return self.called


def name(module: str, attribute: str) -> bytes:
    return f"c{module}\n{attribute}\n".encode()


def text(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def number(value: int) -> bytes:
    return b"\x8a\x09" + value.to_bytes(9, "little")


def storage(key: str = "0", count: int = 4) -> bytes:
    """The instructions that push a storage of a zip archive."""
    kind = name("torch", "FloatStorage")
    return b"(" + text("storage") + kind + text(key) + text("cpu") + number(count) + b"tQ"


def tensor(size: tuple[int, ...], stride: tuple[int, ...], of: bytes) -> bytes:
    numbers = b"".join(b"(" + b"".join(map(number, each)) + b"t" for each in (size, stride))
    return name("torch._utils", "_rebuild_tensor_v2") + b"(" + of + b"K\x00" + numbers + b"\x89NtR"


def archive(path: Path, program: bytes, storages: dict[str, bytes], compressed: str = "") -> None:
    """Write what `torch.save` writes, of a program of one's own."""
    with zipfile.ZipFile(path, "w") as file:
        for record, content in {"data.pkl": b"\x80\x02" + program + b".", **storages}.items():
            kind = zipfile.ZIP_DEFLATED if record == compressed else zipfile.ZIP_STORED
            file.writestr(f"archive/{record}", content, kind)


def write_code(root: Path, backbone: nn.Module) -> Cases:
    """Files that would run code."""
    ran = root / "ran"
    runs = _Calls(os.system, f"touch {ran}")
    bank = w.pcbm_bank(root / "good.pkl")
    cases: Cases = {}

    def pickled(title: str, content: bytes, expected: str = UNKNOWN) -> None:
        (root / title).write_bytes(content)
        cases[title] = root / title, {}, expected

    def whole(title: str, value: object, expected: str = UNKNOWN, legacy: bool = False) -> None:
        torch.save(value, root / title, _use_new_zipfile_serialization=not legacy)
        cases[title] = root / title, {}, expected

    pickled("system.pkl", pickle.dumps({"a crest": runs}))
    for protocol in (2, 3, 5):
        pickled(
            f"system{protocol}.pkl", pickle.dumps(runs, protocol), "posix.system" if os.name == "posix" else UNKNOWN
        )
    whole("system.ckpt", runs)
    whole("system_legacy.pth", runs, legacy=True)
    with w.stand_ins(models__pcbm_utils={"PosthocLinearCBM": (nn.Module,)}) as their:
        module = their.PosthocLinearCBM()
        module.cavs, module.names, module.run = bank.numbers["cavs"], runs, runs
        module.intercepts = bank.numbers["intercepts"][:, None]
        module.norms = bank.numbers["cavs"].norm(dim=1, keepdim=True)
        module.classifier = nn.Linear(w.L, 3)
        whole("system_inside.ckpt", module, "does not name")
        module.names, module.classifier = list("abcdefg"), nn.Sequential()
        module.classifier._modules["a"] = module.classifier._modules["b"] = module
        whole("circle.ckpt", module, "classifier.weight")
        module.classifier, module.names = nn.Linear(w.L, 3), [runs] * w.L
        module.backbone_name = ()
        for _ in range(60):  # the text of it would have 2 ** 60 brackets
            module.backbone_name = (module.backbone_name, module.backbone_name)
        whole("system_as_names.ckpt", module, "does not name")
    command = text(f"touch {ran}")
    system = name("os", "system")
    pickled("dotted.pkl", b"\x80\x04" + text("builtins") + text("eval.__call__.x") + b"\x93" + command + b"\x85R.")
    pickled("protocol0.pkl", system + b"(" + command + b"tR.", "neither a pickle nor")
    pickled("obj.pkl", b"\x80\x02(" + system + command + b"o.", "os.system")
    pickled("inst.pkl", b"\x80\x02(" + command + b"ios\nsystem\n.", "os.system")
    pickled("newobj_ex.pkl", b"\x80\x04" + system + command + b"\x85}\x92.", "os.system")
    # State that would become attributes of a function of this package, or of a class.
    known = name("torch._utils", "_rebuild_tensor_v2")
    pickled("build.pkl", b"\x80\x02" + known + b"N}" + text("__defaults__") + b"Ns\x86b.", "a _Name")
    pickled("setstate.pkl", b"\x80\x02" + name("torch.nn", "Linear") + b")\x81}" + text("__class__") + system + b"sb.")
    state = {"weight": runs, "bias": torch.zeros(w.K)}
    torch.save(state, w.vlg(root / "system_in_state").path / "final.pt")
    cases["system_in_state"] = root / "system_in_state", {}, "which was not made"

    class Program(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scripts are deprecated
        torch.jit.save(torch.jit.script(Program()), str(root / "script.pth"))
    cases["script.pth"] = root / "script.pth", {}, "TorchScript"
    return cases


def write_memory(root: Path) -> Cases:
    """Files of a few bytes that claim gigabytes, or years."""
    cases: Cases = {}

    def pickled(title: str, content: bytes, expected: str = DAMAGED) -> None:
        (root / title).write_bytes(b"\x80\x04" + content + b".")
        cases[title] = root / title, {}, expected

    def zipped(title: str, program: bytes, storages: dict[str, bytes], expected: str, compressed: str = "") -> None:
        archive(root / title, program, storages, compressed)
        cases[title] = root / title, {}, expected

    huge = struct.pack("<Q", 10**12)
    pickled("memo.pkl", b"}r\xff\xff\xff\x7f", "of nothing")  # two billion objects: 32 GB, by the unpickler in C
    pickled("bytearray.pkl", b"\x96" + huge, "a kind that is not read")
    pickled("bytes.pkl", b"\x8e" + huge)
    pickled("lists.pkl", b"]" * 2_000_000, "more instructions")
    # A tuple of the tuple of ... twice each: its hash takes 2 ** 60 steps, and so does its text.
    twice = [b"\x940h" + bytes([i]) + b"h" + bytes([i]) + b"\x86" for i in range(60)]
    laughs = b")" + b"".join(twice)
    pickled("hash.pkl", b"}" + laughs + b"Ns", "of nothing")
    pickled("set.pkl", b"\x8f(" + laughs + b"\x90", UNKNOWN)
    pickled("frozenset.pkl", b"(" + laughs + b"\x91", UNKNOWN)
    pickled("laughs.pkl", laughs, "a tuple")
    # One text of a megabyte, encoded a thousand times; a list, copied fifty thousand times.
    encode = b"h\x00h\x01\x85R"
    pickled("encode.pkl", name("_codecs", "encode") + b"\x94" + text("a" * 10**6) + b"\x94" + encode * 1000, CLAIMS)
    pairs = b"](" + b"N" * 50_000 + b"e"
    pickled("copies.pkl", name("collections", "OrderedDict") + b"\x94" + pairs + b"\x94" + encode * 50_000, "a dict")
    pickled("persistent.pkl", storage())
    four = {"data/0": bytes(16)}
    zipped("stride.ckpt", tensor((10**12,), (0,), storage()), four, CLAIMS)
    zipped("negative.ckpt", tensor((4,), (1,), storage()).replace(b"K\x00(", b"J\xff\xff\xff\xff("), four, CLAIMS)
    zipped("storage.ckpt", tensor((4,), (1,), storage(count=10**12)), four, CLAIMS)
    # Tensors as a set, a list, and arguments: `add` and iteration of tensors make others, as large as one likes.
    column = tensor((4, 1), (1, 1), storage())
    zipped("add.ckpt", column + b"(" + column + b"\x90", four, "torch.float32")
    zipped("arguments.ckpt", name("os", "system") + column + b"R", four, DAMAGED)
    many = {"data/0": bytes(4 * 10**5)}
    one = tensor((10**5,), (1,), storage(count=10**5))
    zipped("shared.ckpt", one + b"\x94" + (b"0" + one) * 100, many, CLAIMS)
    zipped("deflated.ckpt", b"}", {"data/0": bytes(10**8)} | four, "of nothing", "data/0")
    zipped("bomb.ckpt", b"]" * 10**7, four, "compressed", "data.pkl")
    zipped("big_endian.ckpt", b"}", four | {"byteorder": b"big"}, "order of bytes")
    zipped("two_programs.ckpt", b"}", {"x/data.pkl": b"\x80\x02}."}, "another kind")
    zipped("twice.ckpt", column + storage(count=2) + b"\x86", four, DAMAGED)
    modules = b"".join(name("a", "B") + b")\x81}" + text("_modules") + b"}" + text("a") for _ in range(10_000))
    pickled("deep.pkl", modules + b"N" + b"ssb" * 10_000, UNKNOWN)
    # A file of a terabyte that takes no place on the disk.
    for title in ("sparse.pkl", "sparse_names/concepts.txt"):
        path = root / title
        if path.parent != root:
            w.label_free(path.parent)
        with path.open("wb") as file:
            file.truncate(2**40)
        cases[title] = (path if path.parent == root else path.parent), {}, "GB" if path.parent == root else "MB"
    # The format before torch 1.6, which says how long each storage is, and makes room before it reads.
    torch.save({"x": torch.zeros(4)}, root / "legacy.ckpt", _use_new_zipfile_serialization=False)
    data = (root / "legacy.ckpt").read_bytes()
    for title, old, new, expected in (
        ("legacy_tensor.ckpt", b"K\x00K\x04\x85", b"K\x00K\xff\x85", CLAIMS),
        ("legacy_bomb.ckpt", b"K\x04N", b"\x8a\x07" + (10**15).to_bytes(7, "little") + b"N", CLAIMS),
        ("legacy_lengths.ckpt", struct.pack("<Q", 4) + bytes(16), struct.pack("<Q", 5) + bytes(16), DAMAGED),
        ("legacy_cut.ckpt", struct.pack("<Q", 4) + bytes(16), struct.pack("<Q", 4) + bytes(8), DAMAGED),
    ):
        assert old in data, title
        (root / title).write_bytes(data.replace(old, new))
        cases[title] = root / title, {}, expected
    # A storage that is not among those that follow would show memory of the process.
    keys = data.rindex(b"\x80\x02]q\x00")
    (root / "legacy_keys.ckpt").write_bytes(data[:keys] + b"\x80\x02].")
    cases["legacy_keys.ckpt"] = root / "legacy_keys.ckpt", {}, DAMAGED
    return cases


def write_wrong(root: Path, backbone: nn.Module) -> Cases:
    """Files that are damaged, missing, of other shapes, or of what is no concept model of this package."""
    cases: Cases = {}
    good = w.pcbm_bank(root / "good.pkl").path.read_bytes()

    def written(title: str, content: bytes, expected: str) -> None:
        (root / title).write_bytes(content)
        cases[title] = root / title, {}, expected

    def folder(title: str, make: Any, change: Callable[[Path], object], expected: str, **options: Any) -> None:
        case = make(root / title)
        change(case.path)
        cases[title] = case.path, options, expected

    torch.save({"a": torch.zeros(1000)}, root / "whole.ckpt")
    written("cut.ckpt", (root / "whole.ckpt").read_bytes()[:900], DAMAGED)
    written("cut_bank.pkl", good[:300], DAMAGED)
    written("huge_array.pkl", good.replace(b"K\x01K\x10\x86", b"K\x01K\xff\x86", 1), "no bank of post-hoc CBM")
    written("empty.pth", b"", "neither a pickle nor")
    with zipfile.ZipFile(root / "other.pt", "w") as other:
        other.writestr("readme.txt", "no model")
    cases["other.pt"] = root / "other.pt", {}, "another kind"
    for title, value in {
        "narrow.pkl": {"a": (torch.zeros(1, 3).numpy(), 1, 1, 0, {}), "b": (torch.zeros(1, 4).numpy(), 1, 1, 0, {})},
        "five.pkl": {"a": (1, 2, 3, 4, 5)},
        "huge_intercept.pkl": {"a": (torch.zeros(1, 3).numpy(), 1, 1, 10**400, {})},
    }.items():
        written(title, pickle.dumps(value), "to have shape (d)" if title == "narrow.pkl" else "no bank of post-hoc CBM")

    nan = torch.full((w.L, w.D), float("nan"))
    flat = torch.ones(w.L).index_fill(0, torch.tensor(2), 0)
    std = "train_concept_features_std.pt"
    folder("nan", w.label_free, lambda f: torch.save(nan, f / "W_c.pt"), "NaN or infinity")
    folder("flat", w.vlg, lambda f: torch.save(flat, f / std), "without a deviation")
    folder("integers", w.label_free, lambda f: torch.save(nan.bool().long(), f / "W_c.pt"), "got torch.int64")
    folder("shape", w.label_free, lambda f: torch.save(torch.ones(w.K, w.L + 1), f / "W_g.pt"), "have shape (K, L)")
    folder("mean", w.label_free, lambda f: torch.save(torch.ones(w.L), f / "proj_mean.pt"), "have shape (1, L)")
    folder("transposed", w.vlg, lambda f: torch.save(torch.ones(w.L, w.K), f / "W_g@NEC=5.pt"), "shape (K, L)", nec=5)
    folder("missing", w.label_free, lambda f: (f / "proj_std.pt").unlink(), "there is no proj_std.pt")
    folder("no_names", w.label_free, lambda f: (f / "concepts.txt").unlink(), "does not name")
    folder("fewer_names", w.vlg, lambda f: (f / "concepts.txt").write_text("a\nb"), "Expected 7 names")
    folder("no_name", w.vlg, lambda f: (f / "concepts.txt").write_text("a\nb\n\nd\ne\nf\ng"), "without a name")
    folder("no_text", w.vlg, lambda f: (f / "concepts.txt").write_bytes(b"\xff\xfe\x00"), "no text in UTF-8")
    folder("brackets", w.vlg, lambda f: (f / "args.txt").write_text("[" * 100_000), "no JSON")
    folder("standard", w.label_free, lambda f: (f / "W_c.pt").unlink(), "without concepts")
    folder("layers", w.vlg, lambda f: torch.save({"weight": nan}, f / "cbl.pt"), "no concept layer of VLG-CBM")
    folder("text_model", w.vlg, lambda f: (f / "cbl_acc.pt").touch(), "reads text")
    folder("nec", w.vlg, lambda f: None, "one of the heads", nec=7)
    folder("useless", w.dn_cbm, lambda f: None, "no effect on DN-CBM", nec=5)
    folder("useless_activation", w.vlg, lambda f: None, "no effect on VLG-CBM", activation=None)
    folder("numbers", w.dn_cbm, _break_numbers, "numbered from 0")
    folder("two_layers", w.dn_cbm, _code_two_layers, "2 layers at the same time")
    folder("two_heads", w.dn_cbm, _write_second_head, "several heads")
    if os.name == "posix":
        folder("device", w.label_free, lambda f: _link(f / "W_c.pt", "/dev/zero"), "a device")
        os.mkfifo(root / "pipe.pth")
        cases["pipe.pth"] = root / "pipe.pth", {}, "a named pipe"
    for title in ("two", "nothing"):
        (root / title).mkdir()
    for file in ("best_model_1.pth", "best_model_2.pth"):
        shutil.copy(root / "good.pkl", root / "two" / file)
    cases["two"] = root / "two", {}, "several files"
    cases["nothing"] = root / "nothing", {}, "no released model"
    cases["not_there"] = root / "not_there", {}, "There is no"
    bank = w.pcbm_bank(root / "bank.pkl")
    cases["norms"] = w.pcbm(root / "norms", bank, norm=2).path, {}, "norms that are not those"
    for kind, expected in {"Multitask": "multitask", "Standard": "standard", "Head": "second stage"}.items():
        cases[kind] = w.koh(root / kind, kind, features=backbone).path, {}, expected
    concepts = w.koh(root / "Concept", "Concept", features=backbone).path
    cases["concept stage"] = concepts, {}, "as `head`"
    cases["concept stage, no head"] = concepts, {"activation": None}, "as `head`"
    cases["head of another kind"] = concepts, {"activation": None, "head": root / "good.pkl"}, "one linear layer"
    joint = w.koh(root / "Joint", features=backbone).path
    cases["head of a joint model"] = joint, {"head": concepts}, "Leave out `head`"
    cases["activation of a joint model"] = joint, {"activation": None}, "Leave out `activation`"
    cases["expand_dim"] = w.koh(root / "Expand", expand_dim=3, features=backbone).path, {}, "hidden layer of its own"
    cases["cem"] = w.cem(root / "cem").path, {}, "concept embedding model"
    cases["cem_cbm"] = w.cem_repository_cbm(root / "cem_cbm", backbone=backbone).path, {}, "`activation`"
    cases["splice"] = w.splice(root / "splice", embeddings=False).path, {}, "no embeddings"
    cases["other backbone"] = w.koh(root / "Other", features=nn.Sequential(nn.Conv2d(3, w.D, 3))).path, {}, "of its own"
    return cases


def _link(path: Path, target: str) -> None:
    path.unlink()
    path.symlink_to(target)


def _break_numbers(folder: Path) -> None:
    (table,) = folder.rglob("concept_names.csv")
    table.write_text("0,dog\n2,sea\n")


def _code_two_layers(folder: Path) -> None:
    (path,) = folder.rglob("sparse_autoencoder_final.pt")
    state = torch.load(path, weights_only=True)
    torch.save({key: torch.cat([value, value]) for key, value in state.items()}, path)


def _write_second_head(folder: Path) -> None:
    (path,) = folder.rglob("on_concepts_*.pt")
    shutil.copy(path, path.with_name("on_concepts_final_other.pt"))
