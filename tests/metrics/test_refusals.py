"""Bad input to metrics and what is built on them, one argument at a time; `test_bad_input` has what messages say."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bad_arguments import public_functions
from quantus_concepts import metrics
from refusals import Refusal, check_all
from refused import interventions, metric_classes, scores
from spoiling import Table, public_callables

TABLE: Table = {**metric_classes.TABLE, **scores.TABLE, **interventions.TABLE}
#: Results, and the parts of a metric that its host calls.
RESULTS = {"PatchResult", "Premise", "PremiseCheck", "RegionAttributions"}
HOOKS = {
    "custom_preprocess",
    "custom_postprocess",
    "evaluate_batch",
    "recall",
    "concept_features",
    "concept_outputs",
    "usable",
    "concept_attributions",
    "fail",
    "leave_out",
    "plot",
    "plot_scores",
    "check",
    "make",
    "inputs",
    "batch",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("refusals", TABLE.values(), ids=TABLE)
@pytest.mark.usefixtures("empty_folder")
def test_refused(refusals: Mapping[str, Refusal]) -> None:
    check_all(refusals)


def test_every_callable_has_constraints_or_is_in_the_table() -> None:
    constrained = {name for name, function in public_functions(metrics) if hasattr(function, "constraints")}
    public = set(public_callables(metrics, ("quantus_concepts",)))
    named = {name for name in public if name.partition(".")[2] not in HOOKS}
    assert named - constrained == (TABLE.keys() | RESULTS) - constrained
