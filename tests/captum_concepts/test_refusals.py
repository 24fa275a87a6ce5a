"""Bad input to what names concepts and explains, one argument at a time; other tests have what messages say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import captum_concepts
from refusals import Refusal, check_all
from refused import attributions, concept_models
from spoiling import Table, public_callables

TABLE: Table = {**concept_models.TABLE, **attributions.TABLE}
#: Results, and what is tried under the name of the class that has it.
EXCEPTIONS = {
    "Contributions": "a result",
    "Embeddings": "a result",
    "Levels": "a result",
    "TCAVContrast": "a result",
    "TCAVScore": "a result",
    "SobelEdges": "takes a model that is never run",
    "Backbone.embed_features": "takes what its own features give",
    "Backbone.feature_maps": "takes what its own features give",
    "PostHocCBM.embed_features": "the first half of values_from_features",
    "PostHocCBM.project_features": "maps_from_features by another name",
    "PostHocCBM.forward": "PyTorch's own errors",
    "BottleneckCBM.embed_features": "as of PostHocCBM",
    "BottleneckCBM.forward": "PyTorch's own errors",
    "BottleneckCBM.maps_from_features": "as of PostHocCBM",
    "BottleneckCBM.project_features": "as of PostHocCBM",
    "BottleneckCBM.values_from_features": "as of PostHocCBM",
    "ResidualCBM.concept_maps": "as of PostHocCBM",
    "ResidualCBM.embed_features": "as of PostHocCBM",
    "ResidualCBM.forward": "PyTorch's own errors",
    "ResidualCBM.maps_from_features": "as of PostHocCBM",
    "ResidualCBM.project_features": "as of PostHocCBM",
    "ResidualCBM.values_from_features": "as of PostHocCBM",
    "PostHocCBM.embedded": "value_levels and fit_residual begin with it",
    "BottleneckCBM.embedded": "as of PostHocCBM",
    "ResidualCBM.embedded": "as of PostHocCBM",
    "PostHocCBM.own_inputs": "intervene begins with it",
    "BottleneckCBM.own_inputs": "as of PostHocCBM",
    "ResidualCBM.own_inputs": "as of PostHocCBM",
    "PostHocCBM.logits_from_features": "the second half of forward",
    "BottleneckCBM.logits_from_features": "as of PostHocCBM",
    "ResidualCBM.logits_from_features": "as of PostHocCBM",
    "TCAVScores": "a result",
    "LayerFeatures.forward": "PyTorch's own errors",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("refusals", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("empty_folder")
def test_refused(refusals: Mapping[str, Refusal]) -> None:
    check_all(refusals)


def test_every_callable_is_in_the_table() -> None:
    public = set(public_callables(captum_concepts, ("captum_concepts",)))
    assert public == {name for name in TABLE if name != "explain_func.__call__"} | EXCEPTIONS.keys()
