"""Write small files in the layout in which the authors' code of concept bottleneck models leaves them.

Names of files and tensors, shapes and types are those that the authors' code writes (Label-free CBM fa2869d, VLG-CBM
376a768, post-hoc CBM c0ba2b7, DN-CBM 03484ba, ConceptBottleneck d6353f2, CEM 1a30035, SpLiCE 9a49810); all code here
is our own. The numbers are random, and each case has them, so that `reference/released.py` need not read any file.
Classes of pickled modules are stand-ins with the same module and class names; they are gone from `sys.modules` after
writing, as on the machine of somebody who has the file alone.
"""

from __future__ import annotations

import json
import pickle
import sys
import types
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

D, L, K = 16, 7, 5  # width of the backbone, concepts, classes
CONCEPTS = ["a long beak", "blue wings", "red feet", "a white belly", "webbed feet", "a crest", "striped wings"]


@dataclass
class Case:
    """One release: where it lies, how it is read, and the numbers in it."""

    format: str
    path: Path
    numbers: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)


def draw(seed: int, **shapes: tuple[int, ...]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


def spread(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.3


def write_texts(folder: Path, names: list[str], arguments: dict[str, object]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "concepts.txt").write_text("\n".join(names), encoding="utf-8")  # no newline at the end
    (folder / "args.txt").write_text(json.dumps(arguments, indent=2), encoding="utf-8")
    (folder / "metrics.txt").write_text(json.dumps({"lam": 0.0007, "metrics": {}}, indent=2), encoding="utf-8")


# Label-free CBM


def label_free(folder: Path, seed: int = 0, nec: tuple[int, ...] = ()) -> Case:
    n = draw(seed, W_c=(L, D), proj_mean=(1, L), W_g=(K, L), b_g=(K,)) | {"proj_std": spread(seed, 1, L)}
    write_texts(
        folder, CONCEPTS, {"dataset": "cub", "backbone": "resnet18_cub", "feature_layer": "features.final_pool"}
    )
    for name, tensor in n.items():
        # W_c is a selection of rows of a parameter, and is written while it still requires its gradient.
        torch.save(tensor.clone().requires_grad_(name == "W_c"), folder / f"{name}.pt")
    for count in nec:
        weight = n["W_g"] * (n["W_g"].abs() >= n["W_g"].abs().flatten().sort().values[K * L - min(count * K, K * L)])
        torch.save(weight, folder / f"W_g@NEC={count}.pt")
        torch.save(n["b_g"] + count, folder / f"b_g@NEC={count}.pt")
        n[f"W_g@NEC={count}"], n[f"b_g@NEC={count}"] = weight, n["b_g"] + count
    return Case("label-free", folder, n)


# VLG-CBM


def vlg(folder: Path, seed: int = 1, hidden: int = 0, backbone: nn.Module | None = None) -> Case:
    n: dict[str, Any] = draw(seed, mean=(L,), W_g=(K, L), b_g=(K,)) | {"std": spread(seed, L), "layers": []}
    arguments = {"dataset": "cub", "backbone": "resnet18_cub", "feature_layer": "features.final_pool"}
    arguments |= {"cbl_hidden_layers": hidden, "use_clip_penultimate": False, "cbl_finetune": backbone is not None}
    write_texts(folder, CONCEPTS, arguments)
    state = {}
    for i in range(hidden + 1):
        drawn = draw(seed + 10 + i, weight=(L, L if i else D), bias=(L,))
        n["layers"].append((drawn["weight"], drawn["bias"]))
        # Linear, ReLU, Linear, ...: a ReLU has a number and no tensors.
        state |= {f"model.{2 * i}.weight": drawn["weight"], f"model.{2 * i}.bias": drawn["bias"]}
    torch.save(state, folder / "cbl.pt")
    torch.save(n["mean"], folder / "train_concept_features_mean.pt")
    torch.save(n["std"], folder / "train_concept_features_std.pt")
    torch.save({"weight": n["W_g"], "bias": n["b_g"]}, folder / "final.pt")
    for count in (5, 10, 15, 20, 25, 30):
        kept = min(count, L) * K
        weight = n["W_g"] * (n["W_g"].abs() >= n["W_g"].abs().flatten().sort().values[K * L - kept])
        n[f"W_g@NEC={count}"], n[f"b_g@NEC={count}"] = weight, n["b_g"] + count / 10
        torch.save(weight, folder / f"W_g@NEC={count}.pt")
        torch.save(n[f"b_g@NEC={count}"], folder / f"b_g@NEC={count}.pt")
    if backbone is not None:
        # The whole fine-tuned network, its last layer included.
        torch.save({**backbone.state_dict(), "output.weight": torch.zeros(3, D)}, folder / "backbone.pt")
    return Case("vlg", folder, n)


# Modules that are pickled whole


@contextmanager
def stand_ins(**classes: dict[str, tuple[type, ...]]):
    """Make classes of given names importable while files are written: ``module__submodule={"Name": bases}``."""
    made, modules = {}, []
    for path, members in classes.items():
        parts = path.split("__")
        for depth in range(1, len(parts) + 1):
            name = ".".join(parts[:depth])
            if name not in sys.modules:
                sys.modules[name] = types.ModuleType(name)
                modules.append(name)
        for name, bases in members.items():
            made[name] = type(name, bases, {"__module__": ".".join(parts)})
            setattr(sys.modules[".".join(parts)], name, made[name])
    try:
        yield types.SimpleNamespace(**made)
    finally:
        for name in modules:
            del sys.modules[name]


def save_whole(module: object, path: Path, legacy: bool = False, cuda: bool = False, old_source: bool = False) -> None:
    """Write as `torch.save(module, path)` does: from a GPU, before torch 1.6, with sources since changed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    patches = []
    if cuda:  # what a file written from a GPU says of its storages
        patches.append(mock.patch("torch.serialization.location_tag", return_value="cuda:0"))
    if old_source:  # the old format keeps the source of each class, and compares it with today's
        patches.append(
            mock.patch("torch.serialization.get_source_lines_and_file", lambda kind: (["# older\n"], 1, f"{kind}.py"))
        )
    for patch in patches:
        patch.start()
    try:
        torch.save(module, path, _use_new_zipfile_serialization=not legacy)
    finally:
        for patch in patches:
            patch.stop()


# PCBM


def pcbm_bank(path: Path, seed: int = 2, text: bool = False) -> Case:
    rng = np.random.default_rng(seed)
    bank: dict[str, tuple] = {}
    for name in CONCEPTS:
        if text:  # of CLIP, which runs in half precision on a GPU
            vector = rng.normal(size=(1, D)).astype(np.float16)
            bank[name] = (vector / np.linalg.norm(vector), None, None, 0, {})
        else:  # of scikit-learn's SVC
            margins = {"max": np.float64(2.0), "min": np.float64(-2.0), "pos_mean": np.float64(1.0), "pos_count": 50.0}
            bank[name] = (rng.normal(size=(1, D)), 0.9, 0.8, rng.normal(size=(1,)), margins)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(bank))
    vectors = torch.tensor(np.concatenate([entry[0] for entry in bank.values()])).float()
    intercepts = torch.tensor([float(np.array(entry[3]).reshape(())) for entry in bank.values()])
    return Case("pcbm-bank", path, {"cavs": vectors, "intercepts": intercepts, "names": list(bank)})


def pcbm(
    folder: Path, bank: Case, seed: int = 3, hybrid: bool = False, binary: bool = False, norm: float = 1, **how: bool
) -> Case:
    n_classes = 2 if binary else K
    rows = 1 if binary else K  # scikit-learn's coefficients of two classes are one row
    # scikit-learn's coefficients are float64; training the hybrid turns them into float32.
    kind = torch.float32 if hybrid else torch.float64
    n = draw(seed, weight=(rows, L), bias=(rows,), residual=(n_classes, D), residual_bias=(n_classes,))
    n |= {"cavs": bank.numbers["cavs"], "intercepts": bank.numbers["intercepts"][:, None]}
    n["norms"] = norm * n["cavs"].norm(dim=1, keepdim=True)
    classes = {i: f"{i:03d}.Bird_{i}" for i in range(n_classes)}
    with stand_ins(models__pcbm_utils={"PosthocLinearCBM": (nn.Module,), "PosthocHybridCBM": (nn.Module,)}) as their:
        linear = their.PosthocLinearCBM()
        linear.backbone_name = "resnet18_cub"
        linear.cavs, linear.intercepts, linear.norms = n["cavs"], n["intercepts"], n["norms"]  # no buffers
        linear.names, linear.n_concepts, linear.n_classes = list(CONCEPTS), L, n_classes
        linear.idx_to_class = classes
        linear.classifier = nn.Linear(L, n_classes)
        linear.classifier.weight.data, linear.classifier.bias.data = n["weight"].to(kind), n["bias"].to(kind)
        module = linear
        if hybrid:
            module = their.PosthocHybridCBM()
            module.bottleneck, module.d_embedding, module.n_classes = linear, D, n_classes
            module.residual_classifier = nn.Linear(D, n_classes)
            module.residual_classifier.weight.data = n["residual"]
            module.residual_classifier.bias.data = n["residual_bias"]
        stem = "pcbm-hybrid" if hybrid else "pcbm"
        name = f"{stem}_cub__resnet18_cub__cub_resnet18_cub_0__lam:0.0002__alpha:0.99__seed:42.ckpt"
        save_whole(module, folder / name, **how)
    return Case("pcbm-hybrid" if hybrid else "pcbm", folder / name, n)


# DN-CBM


def dn_cbm(folder: Path, seed: int = 4, expansion: int = 8, components: bool = True) -> Case:
    m = D * expansion
    n = draw(seed, tied_bias=(1, D), weight=(1, m, D), bias=(1, m), decoder=(1, D, m), probe=(K, m))
    config = "lr0.0005_l1coeff3e-05_ef8_rf10_hookout_bs4096_epo200"
    probe = "lr0.01_bs512_epo200_nobias_clCE_spL1_spl0.1"
    sae = folder / "SAE/SAEImg/cc3m/clip_RN50/out" / config
    heads = folder / "probe/cc3m/clip_RN50/out" / config / "places365" / probe / "on_concepts_ckpts"
    (sae / "sae_checkpoints").mkdir(parents=True, exist_ok=True)
    heads.mkdir(parents=True, exist_ok=True)
    cut = (lambda t: t) if components else (lambda t: t[0])
    state = {"tied_bias": n["tied_bias"], "pre_encoder_bias._bias_reference": n["tied_bias"]}
    state |= {"encoder._weight": n["weight"], "encoder._bias": n["bias"], "decoder._weight": n["decoder"]}
    state |= {"post_decoder_bias._bias_reference": n["tied_bias"]}
    torch.save({k: cut(t) for k, t in state.items()}, sae / "sae_checkpoints" / "sparse_autoencoder_final.pt")
    head = {"model": {"weight": n["probe"]}, "epoch": 200, "val_acc_top1": torch.tensor(0.5), "train_loss": 1.0}
    head |= {"zero_count_dict": {0: 1, 1e-9: 2}, "val_coverage_energy_wise": {0.9: {"positive": 3.0}}}
    torch.save(head, heads / f"on_concepts_final_{probe}.pt")
    words = ["dog", "sea", "wall", "tree"]  # the word nearest to each of the neurons: they repeat
    n["names"] = [words[i % 4] if i < 8 else f"word{i}" for i in range(m)]
    (sae / "concept_names.csv").write_text("".join(f"{i},{w}\n" for i, w in enumerate(n["names"])), encoding="utf-8")
    return Case("dn-cbm", folder, n)


# CBM of Koh et al.


def koh(
    folder: Path, kind: str = "Joint", seed: int = 5, use_sigmoid: bool = False, use_relu: bool = False,
    features: nn.Module | None = None, expand_dim: int = 0, **how: bool,
) -> Case:  # fmt: skip
    n = draw(seed, weight=(L, D), bias=(L,), W_g=(K, L), b_g=(K,), W_y=(K, D), b_y=(K,))
    n |= {"use_sigmoid": use_sigmoid, "use_relu": use_relu}
    names = dict.fromkeys(("End2EndModel", "Inception3", "MLP", "FC", "BasicConv2d"), (nn.Module,))
    with stand_ins(CUB__template_model=names) as their:

        def fc(weight: Tensor, bias: Tensor) -> nn.Module:
            layer = their.FC()
            layer.expand_dim = expand_dim
            if expand_dim:
                layer.relu, layer.fc_new = nn.ReLU(), nn.Linear(D, expand_dim)
                layer.fc = nn.Linear(expand_dim, len(weight))
            else:
                layer.fc = nn.Linear(D, len(weight))
                layer.fc.weight.data, layer.fc.bias.data = weight.clone(), bias.clone()
            return layer

        inception = their.Inception3()
        inception.aux_logits, inception.transform_input, inception.n_attributes = True, True, L
        inception.bottleneck = kind != "Multitask"
        for name, child in (features or nn.Sequential()).named_children():
            setattr(inception, name, child)
        inception.AuxLogits = nn.Linear(3, 3)
        inception.all_fc = nn.ModuleList()
        inception.cy_fc = None
        if kind in ("Multitask", "Standard"):
            inception.all_fc.append(fc(n["W_y"], n["b_y"]))
        if kind != "Standard":
            for j in range(L):  # one layer with one output for each concept
                inception.all_fc.append(fc(n["weight"][j : j + 1], n["bias"][j : j + 1]))
        mlp = their.MLP()
        mlp.expand_dim, mlp.linear = 0, nn.Linear(L, K)
        mlp.linear.weight.data, mlp.linear.bias.data = n["W_g"].clone(), n["b_g"].clone()
        module: nn.Module = inception
        if kind == "Joint":
            module = their.End2EndModel()
            module.first_model, module.sec_model = inception, mlp
            module.use_relu, module.use_sigmoid = use_relu, use_sigmoid
        elif kind == "Head":
            module = mlp
        path = folder / "outputs" / "best_model_1.pth"
        save_whole(module, path, **how)
    return Case("koh", path, n)


# CEM, and the CBM of the same repository


def cem(folder: Path, seed: int = 6, embedding: int = 4, backbone: nn.Module | None = None) -> Case:
    name = "ConceptEmbeddingModel_resnet34_fold_1"
    n = {f"context.{i}": draw(seed + i, weight=(2 * embedding, D), bias=(2 * embedding,)) for i in range(L)}
    n |= draw(seed, prob=(1, 2 * embedding), prob_bias=(1,), W_g=(K, L * embedding), b_g=(K,))
    state = {
        f"pre_concept_model.{key}": tensor for key, tensor in (backbone or nn.Conv2d(3, D, 3)).state_dict().items()
    }
    for i in range(L):
        state |= {f"concept_context_generators.{i}.0.{key}": n[f"context.{i}"][key] for key in ("weight", "bias")}
    state |= {"concept_prob_generators.0.weight": n["prob"], "concept_prob_generators.0.bias": n["prob_bias"]}
    state |= {"c2y_model.0.weight": n["W_g"], "c2y_model.0.bias": n["b_g"]}
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / f"{name}.pt")
    np.save(folder / f"{name}_training_times.npy", np.array([1.0, 2.0]))
    return Case("cem", folder / f"{name}.pt", n)


def cem_repository_cbm(
    folder: Path, seed: int = 7, sigmoid: bool = True, backbone: nn.Module | None = None, hidden: tuple[int, ...] = ()
) -> Case:
    widths = [L, *hidden]
    n: dict[str, Any] = draw(seed, weight=(L, D), bias=(L,), W_g=(K, widths[-1]), b_g=(K,)) | {"sigmoid": sigmoid}
    drawn = [draw(seed + i, W=(m, k), b=(m,)) for i, (k, m) in enumerate(zip(widths, hidden, strict=False))]
    n["hidden"] = [(each["W"], each["b"]) for each in drawn]
    state = {f"x2c_model.{key}": tensor for key, tensor in (backbone or nn.Conv2d(3, D, 3)).state_dict().items()}
    state |= {
        "x2c_model.fc.weight": n["weight"],
        "x2c_model.fc.bias": n["bias"],
    }
    for i, (weight, bias) in enumerate([*n["hidden"], (n["W_g"], n["b_g"])]):
        state |= {f"c2y_model.{2 * i}.weight": weight, f"c2y_model.{2 * i}.bias": bias}
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(state, folder / "ConceptBottleneckModel_resnet34_fold_1.pt")
    return Case("cem-cbm", folder / "ConceptBottleneckModel_resnet34_fold_1.pt", n)


# SpLiCE


def splice(folder: Path, seed: int = 8, embeddings: bool = True) -> Case:
    n: dict[str, Any] = draw(seed, mean=(D,), dictionary=(L, D))
    n["dictionary"] = nn.functional.normalize(n["dictionary"], dim=1)
    n["mean"] = 0.5 * nn.functional.normalize(n["mean"], dim=0)
    n["names"] = CONCEPTS
    for part in ("means", "vocab", "embeddings"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    torch.save(n["mean"], folder / "means" / "open_clip_ViT-B-32_image.pt")
    # The concepts are the last lines of the vocabulary.
    (folder / "vocab" / "laion.txt").write_text("\n".join(["rare", "rarer", *CONCEPTS]) + "\n", encoding="utf-8")
    if embeddings:
        torch.save(n["dictionary"], folder / "embeddings" / f"open_clip:ViT-B-32_laion_{L}_embeddings.pt")
    return Case("splice", folder, n)


def write_all(root: Path, backbone: nn.Module | None = None) -> dict[str, Case]:
    """Write every case that can be read."""
    cases = {
        "label_free": label_free(root / "label_free/cub_cbm_2023_01_01_00_00", nec=(5, 10)),
        "vlg": vlg(root / "vlg/cub_cbm_2024_01_01"),
        "vlg_hidden": vlg(root / "vlg_hidden", hidden=2),
        "vlg_finetuned": vlg(root / "vlg_finetuned", backbone=backbone or nn.Conv2d(3, D, 3)),
        "pcbm_bank": pcbm_bank(root / "pcbm/cub_resnet18_cub_0.1_100.pkl"),
        "pcbm_text_bank": pcbm_bank(root / "pcbm/multimodal_concept_clip:RN50_cifar10_recurse:1.pkl", text=True),
        "cbm_joint": koh(root / "koh/Joint", features=backbone),
        "cbm_joint_legacy": koh(root / "koh/JointLegacy", features=backbone, legacy=True, old_source=True, cuda=True),
        "cbm_joint_sigmoid": koh(root / "koh/JointSigmoid", use_sigmoid=True, features=backbone),
        "cbm_joint_relu": koh(root / "koh/JointRelu", use_relu=True, features=backbone),
        "cem_cbm": cem_repository_cbm(root / "cem_cbm", backbone=backbone),
        "splice": splice(root / "splice"),
        "dn_cbm": dn_cbm(root / "dn_cbm"),
        "dn_cbm_without_axis": dn_cbm(root / "dn_cbm_flat", components=False),
        "cem_cbm_hidden": cem_repository_cbm(root / "cem_cbm_hidden", backbone=backbone, hidden=(6, 4)),
    }
    bank = cases["pcbm_bank"]
    cases |= {
        "pcbm": pcbm(root / "pcbm/new", bank),
        "pcbm_legacy": pcbm(root / "pcbm/legacy", bank, legacy=True, old_source=True),
        "pcbm_cuda": pcbm(root / "pcbm/cuda", bank, cuda=True),
        "pcbm_binary": pcbm(root / "pcbm/binary", bank, binary=True),
        "pcbm_hybrid": pcbm(root / "pcbm/hybrid", bank, hybrid=True),
        "pcbm_hybrid_legacy": pcbm(root / "pcbm/hybrid_legacy", bank, hybrid=True, legacy=True, old_source=True),
        "pcbm_hybrid_binary": pcbm(root / "pcbm/hybrid_binary", bank, hybrid=True, binary=True),
    }
    # The concept model and the head of Koh et al.'s independent and sequential models lie in two files.
    concepts, head = koh(root / "koh/Concept", "Concept", features=backbone), koh(root / "koh/Independent", "Head")
    for name, sigmoid in {"cbm_independent": True, "cbm_sequential": False}.items():
        options = {"head": head.path, "activation": torch.sigmoid if sigmoid else None}
        cases[name] = Case("koh", concepts.path, concepts.numbers | {"use_sigmoid": sigmoid}, options)
    cases["label_free_nec"] = Case("label-free", cases["label_free"].path, cases["label_free"].numbers, {"nec": 5})
    cases["vlg_nec"] = Case("vlg", cases["vlg"].path, cases["vlg"].numbers, {"nec": 10})
    for name in ("cem_cbm", "cem_cbm_hidden"):
        cases[name].options["activation"] = torch.sigmoid
    return cases
