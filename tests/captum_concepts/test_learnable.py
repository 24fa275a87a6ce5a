"""Concepts that too few images show or lack, and concepts chosen by name, in banks and post-hoc CBMs."""

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, Subset

from captum_concepts import ConceptBank, PostHocCBM

NAMES = ["red wing", "blue wing", "never", "always", "long tail"]


def samples(n=60, seed=0):
    rng = np.random.default_rng(seed)
    labels = (rng.random((n, 5)) < 0.5).astype(np.float32)
    labels[:, 2:4] = 0, 1
    labels[0, 3] = 0
    features = rng.normal(size=(n, 6)).astype(np.float32)
    features[:, :5] += 2 * labels
    return torch.from_numpy(features), torch.from_numpy(labels)


@pytest.mark.parametrize("method", ["svm", "mean"])
def test_concepts_on_too_few_images_are_left_out_and_the_others_are_as_without_them(method):
    features, labels = samples()
    positions = [0, 1, 4]
    with pytest.warns(UserWarning, match=r"^2 of 5 concepts are left out.*'never' \(0 with, 60 without\), 'always'"):
        bank = ConceptBank.fit(features, labels, NAMES, method)
    alone = ConceptBank.fit(features, labels[:, positions], [NAMES[j] for j in positions], method)
    assert bank.names == alone.names == [NAMES[j] for j in positions]
    assert bank.settings == alone.settings | {"left_out": ["never", "always"]}
    assert torch.equal(bank.cavs, alone.cavs)
    assert ConceptBank.fit(features, labels, NAMES, min_images=1).names == [
        "red wing",
        "blue wing",
        "always",
        "long tail",
    ]
    # Without names concepts keep the numbers that the labels give them.
    assert ConceptBank.fit(features, labels).names == ["concept 0", "concept 1", "concept 4"]


def test_concepts_are_chosen_by_name_pattern_and_number():
    features, labels = samples()
    assert ConceptBank.fit(features, labels, NAMES, concepts="*wing").names == ["red wing", "blue wing"]
    bank = ConceptBank.fit(features, labels, NAMES, concepts=["long tail", 0])
    assert bank.names == ["long tail", "red wing"]
    assert torch.equal(bank.cavs, ConceptBank.fit(features, labels[:, [4, 0]]).cavs)
    with pytest.raises(ValueError, match=r"`concepts` .* none is 'red wign'. The nearest are \['red wing'"):
        ConceptBank.fit(features, labels, NAMES, concepts="red wign")


class Unread(Dataset):
    """Images that must not be read, with labels that are known."""

    def __init__(self, labels):
        self.concept_labels, self.concept_names = labels, list(NAMES)

    def __len__(self):
        return len(self.concept_labels)

    def __getitem__(self, index):
        pytest.fail("an image was read")


@pytest.mark.parametrize("loader", [lambda data: data, lambda data: Subset(Subset(data, range(1, 50)), range(30))])
def test_nothing_is_read_before_a_refusal(loader):
    _, labels = samples()
    batches = DataLoader(loader(Unread(labels)), 16, shuffle=True)
    with pytest.raises(ValueError, match=r"none of 2 concepts has them: 'never' \(0 with"):
        PostHocCBM.fit(torch.nn.Flatten(), batches, concepts=["never", "always"])
    with pytest.raises(ValueError, match="none is 'beak'"):
        PostHocCBM.fit(torch.nn.Flatten(), batches, concepts="beak")
