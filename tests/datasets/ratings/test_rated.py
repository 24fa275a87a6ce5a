"""Explanations with votes: selecting, joining, checking."""

import numpy as np
import pandas as pd
import pytest
import torch

from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.datasets.ratings.rated import RatedExplanations

N = 4


def _rated(**changes):
    votes = np.full((N, 3, 6), 2.0)
    votes[:, 0, 0] = [1, 2, 3, 4]
    votes[1, :, 4] = np.nan
    values = {
        "explanations": [ConceptExplanation({"wing": float(i)}) for i in range(N)],
        "votes": votes,
        "image_ids": ["a_0", "a_0", "b_0", "b_1"],
        "explainer_ids": ["x", "y", "x", "y"],
        "labels": ["cat", "dog", "", "cat"],
        "datasets": ["a", "a", "b", "b"],
        "modalities": ["concepts"] * N,
        "name": "mine",
        "notes": ["few"],
    }
    return RatedExplanations(**(values | changes))


@pytest.mark.parametrize("items", [[3, 1], np.array([3, 1]), torch.tensor([3, 1])])
def test_select_by_index_keeps_the_order(items):
    class Unread(list):
        def __getitem__(self, index):
            raise AssertionError("read")

    some = _rated(simulated=True, explanations=Unread(range(N))).select(items)
    assert some.image_ids.tolist() == ["b_1", "a_0"]
    assert some.explainer_ids.tolist() == ["y", "y"]
    assert some.labels.tolist() == ["cat", "dog"]
    assert some.datasets.tolist() == ["b", "a"]
    assert some.votes[:, 0, 0].tolist() == [4, 2]
    assert (some.name, some.simulated, some.notes) == ("mine", True, ("few",))


def test_select_by_mask_and_again():
    rated = _rated()
    some = rated.select(rated.datasets == "b")
    assert [e.values["wing"] for e in some.explanations] == [2.0, 3.0]
    assert some.select([1]).explanations[0].values == {"wing": 3.0}
    assert [e.values["wing"] for e in some.explanations[1:]] == [3.0]
    assert len(rated.select([])) == 0


def test_targets():
    rated = _rated()
    mean = rated.targets("mean")
    np.testing.assert_allclose(mean[:, 0], [5 / 3, 2, 7 / 3, 8 / 3])
    assert rated.targets()[:, 0].tolist() == [2, 2, 2, 2]
    assert np.argwhere(np.isnan(mean)).tolist() == [[1, 4]]
    with pytest.raises(ValueError, match="`how`"):
        rated.targets("most")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"votes": np.ones((N, 0, 6))}, "at least one annotator"),
        ({"votes": np.ones((N + 1, 3, 6))}, "`votes` to have shape"),
        ({"labels": ["cat"] * (N - 1)}, "`labels` to have shape"),
        ({"votes": np.full((N, 3, 6), 6.0)}, r"whole votes of 1 to 5, .* got 6 at \(0, 0, 0\); 72 of 72"),
        ({"votes": np.full((N, 3, 6), 2.5)}, "whole votes of 1 to 5"),
        ({"expected": np.zeros((N, 6))}, r"`expected` to lie in \[1, 5\]"),
        ({"modalities": ["text"] * N}, "`modalities`"),
        ({"image_ids": ["0", "1", "0", "2"]}, "`image_ids` to differ between data sets"),
    ],
)
def test_bad_values(changes, message):
    with pytest.raises(ValueError, match=message):
        _rated(**changes)


@pytest.mark.parametrize("items", [[4], [-1], [0.0], np.ones(3, dtype=bool)])
def test_bad_items(items):
    with pytest.raises(ValueError, match="`items`"):
        _rated().select(items)


def test_nullable_columns_of_pandas_are_accepted():
    votes = pd.DataFrame({"vote": [3, None] * 36}, dtype="Int64").to_numpy(dtype=object).reshape(N, 3, 6)
    rated = _rated(votes=votes, labels=pd.Series(list("abcd"), dtype="string"))
    assert rated.votes.dtype == np.float64
    np.testing.assert_array_equal(rated.votes.ravel(), [3.0, np.nan] * 36)
    assert rated.labels.tolist() == list("abcd")
    assert rated.select(pd.Series([3, 1], dtype="Int64")).labels.tolist() == ["d", "b"]
    assert rated.select(pd.Series([True, False, False, True], dtype="boolean")).labels.tolist() == ["a", "d"]
