"""Networks by name or from a file: what they bring, how they are cut, and what is refused with which remedy."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from captum_concepts.backbones.weights import read_weights
from fixtures_commands import NETWORK
from kills import raising
from quantus_concepts.studies._models.named_networks import IMAGENET, cut_network, load_network


@pytest.fixture(autouse=True)
def _inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("network.py").write_text(NETWORK)
    Path("plain.py").write_text(NETWORK.replace("MEAN, STD =", "_, _ ="))
    Path("half.py").write_text(NETWORK.replace("MEAN, STD =", "MEAN, _ ="))
    save_file({"3.weight": torch.zeros(1)}, "other.safetensors")
    torch.save({"weight": Path}, "code.pth")
    torch.save([1], "list.pth")


def test_a_network_from_a_file_brings_its_normalisation():
    network = load_network("network.py:model")
    assert not network.module.training
    assert (network.mean, network.std, network.source) == ((0.5,) * 3, (0.25,) * 3, "model() of network.py")
    given = load_network("network.py:model", mean=(0.0,) * 3, std=(1.0,) * 3)
    assert (given.mean, given.std) == ((0.0,) * 3, (1.0,) * 3)
    assert load_network("plain.py:model", unnormalised=True).mean is None


@pytest.mark.parametrize(("file", "prefix"), [("weights.safetensors", ""), ("weights.pth", "module.")])
def test_weights_are_read_from_a_file(file, prefix):
    weights = load_network("network.py:model").module.state_dict()
    state = {prefix + name: torch.full_like(tensor, 0.5) for name, tensor in weights.items()}
    if file.endswith("pth"):
        torch.save({"state_dict": state}, file)
    else:
        save_file(state, file)
    network = load_network("network.py:model", file)
    assert all(bool((tensor == 0.5).all()) for tensor in network.module.state_dict().values())
    assert network.source == f"model() of network.py, weights of {file}"


@pytest.mark.parametrize("new", [True, False])
def test_numbers_of_every_kind_are_those_that_torch_reads(new):
    kinds = (torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.complex128, torch.int64, torch.bool)
    state = {str(kind): torch.tensor([[1, 0, 3], [4, 5, 6]]).to(kind)[:, 1:].T for kind in kinds}
    torch.save(state, "kinds.pth", _use_new_zipfile_serialization=new)
    found = read_weights(Path("kinds.pth"))
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)


def test_what_is_not_in_the_storage_is_not_left_out():
    # The file holds 3, and that it is to be negated.
    torch.save({"weight": torch.tensor([2 + 3j]).conj().imag}, "negated.pth")
    with pytest.raises(ValueError, match="holds tensors of a type that is not read"):
        read_weights(Path("negated.pth"))


def test_weights_of_the_largest_networks_are_read():
    torch.save({"weight": torch.ones(2)}, "large.pth", _use_new_zipfile_serialization=False)
    with Path("large.pth").open("r+b") as file:
        file.truncate(11 * 10**9)  # takes no place on the disk
    assert read_weights(Path("large.pth"))["weight"].tolist() == [1, 1]


def test_networks_of_libraries_know_how_they_want_their_images():
    before = torch.get_rng_state()
    network = load_network("resnet18", "none")
    assert (network.mean, network.std, network.image_size, network.family) == (*IMAGENET, 224, "torchvision")
    assert load_network("resnet10t", "none").family == "timm"
    assert torch.equal(torch.get_rng_state(), before)


def test_a_network_is_cut_where_its_maps_end():
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = load_network("resnet18", "none")
    backbone, where = cut_network(network, None, images)
    assert "before the model's pooling, averaged over space" in where
    with torch.no_grad():
        torch.testing.assert_close(network.module.fc(backbone.embed(images)), network.module(images))
    for layer in (None, "0"):
        assert cut_network(load_network("network.py:model"), layer, images)[0].channels == 8


REFUSED = {
    "nowhere.py:model": "none at nowhere.py",
    "resnet81": "Nearest: .*resnet18",
    "plain.py:model": "not known.*MEAN and STD",
    "half.py:model": "only one of MEAN and STD",
    "network.py:several": "to return an nn.Module but got list",
    "network.py:fails": r"fails\(\) in network.py failed: .*no such",
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_network_is_refused_with_what_to_do(name):
    with pytest.raises(FileNotFoundError if "nowhere" in name else ValueError, match=REFUSED[name]):
        load_network(name)


@pytest.mark.parametrize(
    ("weights", "message"),
    {
        "other.safetensors": "do not fit Sequential: missing: 0.weight",
        "code.pth": "code.pth .* these are no tensors: weight. Python objects are never unpickled",
        "nowhere.pth": "there is none at nowhere.pth",
        "list.pth": "list.pth to hold a state dict .* but got list",
    }.items(),
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        load_network("network.py:model", weights)


def test_a_network_of_pytorchcv_by_name() -> None:
    pytest.importorskip("pytorchcv")
    network = load_network("resnet18_cub", "none")
    backbone, _ = cut_network(network, None, torch.zeros(1, 3, 224, 224))
    assert (network.mean, network.std, backbone.channels) == ((0.5, 0.5, 0.5), (2.0, 2.0, 2.0), 512)


def test_a_download_that_fails_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torchvision.models.get_model", raising(OSError("no network")))
    with pytest.raises(ValueError, match=r"weights of resnet18 could not be loaded .*no network.* file with --weights"):
        load_network("resnet18")


def test_wrong_images_and_channels_are_refused() -> None:
    with pytest.raises(ValueError, match="`mean` to hold 3 numbers but got 2"):
        load_network("network.py:model", mean=(0.0, 0.0), std=(1.0, 1.0))
    with pytest.raises(ValueError, match=r"does not take images of shape \(3, 24, 24\).*--image-size"):
        cut_network(load_network("network.py:grey"), None, torch.zeros(1, 3, 24, 24))
