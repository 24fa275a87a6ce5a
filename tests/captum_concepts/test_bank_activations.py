"""Concepts without labels: planted directions are found again, and what does not fit is refused."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from captum_concepts import ConceptBank
from untouched import untouched

L, D, N = 3, 8, 40
DRAWN = torch.Generator().manual_seed(0)
#: Non-negative directions of which each has two dimensions for itself.
PLANTED = nn.functional.normalize(torch.eye(L).repeat_interleave(2, 1) @ torch.eye(2 * L, D), dim=1)
#: In each place one or two of them are active.
CODES = torch.rand(N, L, 4, 4, generator=DRAWN) * (torch.rand(N, L, 4, 4, generator=DRAWN) < 0.4)
IMAGES = torch.einsum("nlhw,ld->ndhw", CODES, PLANTED)


class Given(nn.Module):
    """A backbone whose maps are the images."""

    def forward(self, images: Tensor) -> Tensor:
        return images


@pytest.mark.parametrize("loader", [False, True])
def test_planted_directions_are_found(loader: bool) -> None:
    images = [{"pixel_values": batch} for batch in IMAGES.split(7)] if loader else IMAGES
    backbone = Given()
    with untouched(backbone):
        bank = ConceptBank.from_activations(backbone, images, L)
    assert bank.names == ["concept 1", "concept 2", "concept 3"]
    assert torch.allclose(bank.norms, torch.ones(L))
    likeness = (bank.cavs @ PLANTED.T).abs()
    assert (likeness.amax(0) > 0.99).all()
    # Each finds another one.
    assert sorted(likeness.argmax(1).tolist()) == [0, 1, 2]
    values = IMAGES.mean((2, 3)) @ bank.cavs.T + bank.intercepts
    assert torch.allclose(values.mean(0), torch.zeros(L), atol=1e-5)
    again = ConceptBank.from_activations(backbone, images, L)
    assert torch.equal(again.cavs, bank.cavs)


def test_planted_directions_of_any_sign_are_found_and_the_method_is_said() -> None:
    # Each place shows one of three directions of either sign, around a mean that says nothing.
    drawn = torch.Generator().manual_seed(0)
    planted = nn.functional.normalize(torch.randn(L, D, generator=drawn), dim=1)
    # The directions lead from the mean of all places.
    planted -= planted.mean(0)
    shown = torch.arange(N * 16).view(N, 4, 4) % L
    mean = 5 * torch.randn(D, 1, 1, generator=drawn)
    images = planted[shown].permute(0, 3, 1, 2) + 0.05 * torch.randn(N, D, 4, 4, generator=drawn) + mean
    with untouched(), pytest.warns(UserWarning, match="below 0, .* clusters"):
        bank = ConceptBank.from_activations(Given(), images, L)
    assert bank.settings["method"] == "kmeans"
    assert torch.allclose(bank.norms, torch.ones(L))
    likeness = bank.cavs @ nn.functional.normalize(planted, dim=1).T
    assert (likeness.amax(1) > 0.99).all()
    assert sorted(likeness.argmax(1).tolist()) == [0, 1, 2]
    assert ConceptBank.from_activations(Given(), IMAGES, L).settings["method"] == "nmf"


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        ConceptBank.from_activations(Given(), IMAGES * torch.nan, L)
    with pytest.raises(ValueError, match="at most 8"):
        ConceptBank.from_activations(Given(), IMAGES, 9)
    with pytest.raises(ValueError, match="at least one image"):
        ConceptBank.from_activations(Given(), [], 2)
