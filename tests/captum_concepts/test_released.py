"""Models that the authors' code of other projects has written: every format, against the formula of its code."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import released_files as w
from captum_concepts import (
    Backbone,
    BottleneckCBM,
    ConceptBank,
    PostHocCBM,
    ResidualCBM,
    from_torchvision,
    load_released,
    released_weights,
)
from captum_concepts.released.formats import CLIP, HALVES, IMAGENET
from reference import released as reference


def make_backbone(seed: int = 0) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(3, w.D, 5, stride=2), nn.ReLU(), nn.Conv2d(w.D, w.D, 3)).eval()


@pytest.fixture(scope="module")
def backbone() -> nn.Sequential:
    return make_backbone()


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory, backbone: nn.Sequential) -> dict[str, w.Case]:
    return w.write_all(tmp_path_factory.mktemp("released"), backbone)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.rand(20, 3, 24, 24, generator=torch.Generator().manual_seed(0))


def load(case: w.Case, backbone: nn.Module | Backbone | None, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return load_released(case.path, backbone, **(case.options | options))


NORMALISATION = {
    **dict.fromkeys(("label_free", "label_free_nec", "vlg", "vlg_nec", "vlg_hidden", "vlg_finetuned"), IMAGENET),
    **dict.fromkeys(("pcbm", "pcbm_legacy", "pcbm_cuda", "pcbm_binary"), HALVES),
    **dict.fromkeys(("pcbm_hybrid", "pcbm_hybrid_legacy", "pcbm_hybrid_binary"), HALVES),
    **dict.fromkeys(("cbm_joint", "cbm_joint_legacy", "cbm_joint_sigmoid", "cbm_joint_relu"), HALVES),
    **dict.fromkeys(("cbm_independent", "cbm_sequential"), HALVES),
    **dict.fromkeys(("dn_cbm", "dn_cbm_without_axis"), CLIP),
    **dict.fromkeys(("cem_cbm", "cem_cbm_hidden"), None),
}
BANKS = ("pcbm_bank", "pcbm_text_bank", "splice")


def test_every_case_is_tested(cases: dict[str, w.Case]) -> None:
    assert {*cases} == {*NORMALISATION, *BANKS}


@pytest.mark.parametrize("name", NORMALISATION)
def test_a_model_equals_the_formula_of_its_code(
    name: str, cases: dict[str, w.Case], backbone: nn.Sequential, images: Tensor, tmp_path: Path
) -> None:
    case = cases[name]
    before = [tensor.clone() for tensor in backbone.state_dict().values()]
    model = load(case, backbone)
    kind = ResidualCBM if "hybrid" in name else PostHocCBM if name.startswith("pcbm") else BottleneckCBM
    assert type(model) is kind
    assert not model.training
    with torch.no_grad():
        z = backbone(images).mean((2, 3))
        values, logits = model.concept_predictor(images), model(images)
    expected_values, expected_logits = reference.forward(case, z)
    if name == "pcbm_binary":
        expected_logits = torch.cat([-expected_logits, expected_logits], 1) / 2
    for got, expected in ((values, expected_values), (logits, expected_logits)):
        assert got.dtype == torch.float32
        assert (got - expected).abs().max() <= 1e-6 * max(1, expected.abs().max().item())
    assert torch.equal(logits.argmax(1), expected_logits.argmax(1))
    assert model.normalisation == NORMALISATION[name]
    # It is a model as any other: written, read, scored.
    model.save(tmp_path / "model.safetensors")
    again = kind.load(tmp_path / "model.safetensors", backbone)
    with torch.no_grad():
        assert torch.equal(again(images), logits)
    assert all(torch.equal(a, b) for a, b in zip(before, backbone.state_dict().values(), strict=True))
    if name == "vlg_hidden":
        with pytest.raises(ValueError, match="no weights to make maps"):
            model.concept_maps(images)
    else:
        assert model.concept_maps(images).shape == (20, values.shape[1], 8, 8)


@pytest.mark.parametrize("name", BANKS)
def test_a_bank_equals_the_formula_of_its_code(
    name: str, cases: dict[str, w.Case], backbone: nn.Sequential, images: Tensor
) -> None:
    case = cases[name]
    bank = load(case, None)
    assert isinstance(bank, ConceptBank)
    assert bank.names == w.CONCEPTS
    with torch.no_grad():
        z = backbone(images).mean((2, 3))
    expected, _ = reference.forward(case, z)
    if name == "splice":
        got = nn.functional.normalize(z) @ bank.cavs.T + bank.intercepts
    else:
        got = (z @ bank.cavs.T + bank.intercepts) / bank.norms
    torch.testing.assert_close(got, expected.float(), atol=1e-6, rtol=1e-6)
    known = name == "pcbm_bank"
    assert bank.train_accuracy[0].item() == pytest.approx(0.9 if known else float("nan"), nan_ok=True)
    assert bank.test_accuracy[0].item() == pytest.approx(0.8 if known else float("nan"), nan_ok=True)


def test_names_that_repeat_get_their_number(cases: dict[str, w.Case], backbone: nn.Sequential) -> None:
    with pytest.warns(UserWarning, match=r"8 concepts of the same names, .* dog \[0\], sea \[1\], wall \[2\]"):
        model = load_released(cases["dn_cbm"].path, backbone)
    assert model.concept_layer.names[:5] == ["dog [0]", "sea [1]", "wall [2]", "tree [3]", "dog [4]"]
    assert model.concept_layer.names[8] == "word8"


def test_names_of_concepts_and_classes_may_be_given(cases: dict[str, w.Case], backbone: nn.Sequential) -> None:
    model = load(cases["cbm_joint"], backbone)
    assert not hasattr(model.concept_layer, "names")
    model = load(cases["cbm_joint"], backbone, names=w.CONCEPTS, class_names=list("abcde"))
    assert (model.concept_layer.names, model.class_names) == (w.CONCEPTS, list("abcde"))
    assert load(cases["pcbm"], backbone).class_names == [f"{i:03d}.Bird_{i}" for i in range(w.K)]
    assert load(cases["pcbm"], backbone, class_names=list("abcde")).class_names == list("abcde")
    with pytest.raises(ValueError, match="Expected 7 names of concepts but argument `names` has 2"):
        load(cases["cbm_joint"], backbone, names=["a", "b"])
    with pytest.raises(ValueError, match=r"hold K = 5 names"):
        load(cases["pcbm"], backbone, class_names=["a", "b"])


def test_warnings_say_what_is_lost(cases: dict[str, w.Case], backbone: nn.Sequential) -> None:
    for name, message in {
        "vlg_hidden": "2 hidden layers .* no maps",
        "pcbm_hybrid_binary": "depends on the residual alone",
        "splice": "sparse solver, which is no layer",
    }.items():
        with pytest.warns(UserWarning, match=message) as warned:
            load_released(cases[name].path, backbone)
        assert warned[0].filename == __file__


@pytest.mark.parametrize("name", [name for name in NORMALISATION if "hidden" not in name])
def test_another_backbone_is_refused(name: str, cases: dict[str, w.Case], backbone: nn.Sequential) -> None:
    with pytest.raises(ValueError, match=f"`features`, the backbone .* gives {w.D} numbers"):
        load(cases[name], None)
    narrow = Backbone(nn.Conv2d(3, 9, 3), "mean", None, 9)
    with pytest.raises(ValueError, match=f"embeddings of {w.D} numbers, .* but it gives 9"):
        load(cases[name], narrow)
    known = NORMALISATION[name]
    other = Backbone(backbone, "mean", None, w.D, CLIP if known == HALVES else HALVES)
    if known is None:
        assert load(cases[name], other).normalisation == HALVES
        return
    with pytest.raises(ValueError, match="images were normalised by"):
        load(cases[name], other)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = load_released(cases[name].path, other, **cases[name].options, strict=False)
    assert "images were normalised by" in str(caught[-1].message)
    assert model.normalisation == other.normalisation
    assert load(cases[name], replace(other, normalisation=known)).normalisation == known


@pytest.mark.parametrize(
    "name", ["vlg_finetuned", "cbm_joint", "cbm_joint_legacy", "cbm_independent", "cem_cbm", "cem_cbm_hidden"]
)
def test_the_backbone_of_a_release(name: str, cases: dict[str, w.Case], images: Tensor) -> None:
    network = make_backbone(1)
    with pytest.raises(ValueError, match="brings a backbone of its own, and 4 of the 4 tensors"):
        load(cases[name], network)
    with pytest.warns(UserWarning, match="brings a backbone of its own"):
        load_released(cases[name].path, network, **cases[name].options, strict=False)
    weights = released_weights(cases[name].path)
    assert {*weights} - {*network.state_dict()} == ({"output.weight"} if name == "vlg_finetuned" else set())
    network.load_state_dict(weights, strict=False)
    assert torch.equal(network(images), make_backbone()(images))
    load(cases[name], network)


def test_a_release_without_a_backbone_says_so(cases: dict[str, w.Case], tmp_path: Path) -> None:
    for name in ("label_free", "vlg", "pcbm", "pcbm_bank", "dn_cbm"):
        with pytest.raises(ValueError, match="holds no backbone"):
            released_weights(cases[name].path)
    weights = released_weights(w.cem(tmp_path).path)  # which has no concept model of this package
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {"weight": (16, 3, 3, 3), "bias": (16,)}


def test_inception_of_koh_is_that_of_torchvision(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    # As small as its layers can be: the form is what counts.
    with torch.random.fork_rng():
        network = models.inception_v3(weights=None, transform_input=True, init_weights=False).eval()
    network.fc, network.AuxLogits = nn.Identity(), None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(w, "D", 2048)
        case = w.koh(tmp_path, features=network)
    again = models.inception_v3(weights=None, transform_input=True, init_weights=False, aux_logits=False).eval()
    again.fc = nn.Identity()
    again.load_state_dict(released_weights(case.path))
    model = load_released(case.path, from_torchvision(again))
    image = torch.rand(1, 3, 80, 80)
    with torch.no_grad():
        values, logits = reference.forward(case, network(image))
        assert torch.allclose(model.concept_predictor(image).double(), values, atol=1e-5)
        assert torch.allclose(model(image).double(), logits, atol=1e-5)
    assert model.concept_maps(image).shape == (1, w.L, 1, 1)
    again.transform_input = False
    with pytest.raises(ValueError, match="had transform_input=True, and that of `features` has False"):
        load_released(case.path, from_torchvision(again))


def test_the_head_of_fewer_concepts(cases: dict[str, w.Case], backbone: nn.Sequential) -> None:
    usual, few = load(cases["vlg"], backbone), load(cases["vlg"], backbone, nec=5)
    assert (usual.head.weight != 0).all()
    assert (few.head.weight != 0).sum() == 5 * w.K


def test_the_head_of_a_file_elsewhere(
    cases: dict[str, w.Case], backbone: nn.Sequential, images: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = cases["dn_cbm"]
    rows = torch.ones(3, 8 * w.D)
    torch.save({"model": {"weight": rows, "bias": torch.tensor([0.0, 1.0, 2.0])}}, tmp_path / "head.pt")
    monkeypatch.chdir(tmp_path)
    with torch.no_grad():
        values, _ = reference.forward(case, backbone(images).mean((2, 3)))
        logits = load(case, backbone, head="head.pt")(images)
    torch.testing.assert_close(logits, values.float() @ rows.T + torch.arange(3.0), rtol=1e-5, atol=1e-5)
    with pytest.raises(FileNotFoundError, match=r"There is no file other\.pt"):
        load(case, backbone, head="other.pt")


def test_a_folder_with_one_file_is_that_file(cases: dict[str, w.Case], backbone: nn.Sequential, images: Tensor) -> None:
    case = cases["cbm_joint"]
    with torch.no_grad():
        assert torch.equal(
            load_released(case.path.parent, backbone)(images), load_released(case.path, backbone)(images)
        )


def test_a_folder_of_folders_names_them(cases: dict[str, w.Case], backbone: nn.Sequential, tmp_path: Path) -> None:
    for name in ("birds", "cars"):
        w.label_free(tmp_path / "saved_models" / name)
    with pytest.raises(ValueError, match=r"saved_models holds no .* folders in it do: \S*birds, \S*cars\. Pass one"):
        load_released(tmp_path / "saved_models", backbone)


def test_the_errors_of_load_name_it(cases: dict[str, w.Case], backbone: nn.Sequential) -> None:
    for kind in (BottleneckCBM, PostHocCBM, ResidualCBM):
        for name in ("label_free", "pcbm", "cbm_joint"):
            with pytest.raises((ValueError, FileNotFoundError), match="load_released"):
                kind.load(cases[name].path, backbone)
    with pytest.raises(ValueError, match="load_released"):
        ConceptBank.load(cases["pcbm_bank"].path)


def test_the_train_flags_are_those_of_the_backbone(cases: dict[str, w.Case]) -> None:
    network = make_backbone().train()
    model = load(cases["pcbm_hybrid"], network)
    assert all(module.training for module in model.modules())
    assert not any(module.training for module in load(cases["pcbm_hybrid"], network.eval()).modules())
