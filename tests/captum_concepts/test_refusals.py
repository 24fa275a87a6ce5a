"""Bad input to what names concepts and explains that no constraint describes: arguments that do not fit each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

import captum_concepts
from bad_arguments import public_functions
from refusals import Refusal, check_all
from refused import attributions, concept_models
from spoiling import Table

TABLE: Table = {**concept_models.TABLE, **attributions.TABLE}
#: Results, and what is tried under the name of the class that has it.
EXCEPTIONS = {
    "TCAVScore": "a result",
    "Backbone.embed_features": "takes what its own features give",
    "Backbone.feature_maps": "takes what its own features give",
    "PostHocCBM.project_features": "maps_from_features by another name",
    "BottleneckCBM.embed_features": "as of PostHocCBM",
    "BottleneckCBM.feature_maps": "as of Backbone",
    "BottleneckCBM.forward": "PyTorch's own errors",
    "BottleneckCBM.maps_from_features": "as of PostHocCBM",
    "BottleneckCBM.project_features": "as of PostHocCBM",
    "BottleneckCBM.values_from_features": "as of PostHocCBM",
    "ResidualCBM.project_features": "as of PostHocCBM",
    "BottleneckCBM.embedded": "as of PostHocCBM",
    "BottleneckCBM.own_inputs": "as of PostHocCBM",
    "BottleneckCBM.logits_from_features": "as of PostHocCBM",
    "LayerFeatures.forward": "PyTorch's own errors",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("refusals", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("empty_folder")
def test_refused(refusals: Mapping[str, Refusal]) -> None:
    check_all(refusals)


def test_every_callable_has_constraints_or_is_in_the_table() -> None:
    unconstrained = {
        name for name, function in public_functions(captum_concepts) if not hasattr(function, "constraints")
    }
    assert unconstrained - TABLE.keys() == EXCEPTIONS.keys()
