"""The painted subject to try metrics on."""

from __future__ import annotations

import pytest
import torch

from quantus_concepts import PaintedSubject, painted_subject, score_concepts


@pytest.fixture(scope="module")
def subject() -> PaintedSubject:
    return painted_subject(
        120, 40, image_size=32, n_classes=4, n_concepts=8, epochs=2, random_directions=4, correlation=0.5
    )


def test_metrics_score_its_models_and_baselines(subject: PaintedSubject) -> None:
    table = score_concepts(
        subject.models, subject.loader(16), class_concepts=subject.test.class_concepts, controls=subject.baselines
    )
    present = table[(table["metric"] == "CEM") & (table["explanation"] == "value") & (table["set"] == "all")]
    present = present[present["l"] == 1].set_index("model")["value"]
    assert set(present.index) == {*subject.models, *subject.baselines}
    # The best one can do; directions without knowledge are not above it.
    assert present["oracle"] == 1
    assert (present <= 1).all()


def test_the_same_seed_makes_the_same_subject(subject: PaintedSubject) -> None:
    state = torch.get_rng_state()
    again = painted_subject(
        120, 40, image_size=32, n_classes=4, n_concepts=8, epochs=2, random_directions=4, correlation=0.5
    )
    assert torch.equal(torch.get_rng_state(), state)
    images = torch.stack([subject.test[row].image for row in range(4)])
    first, second = (painted.models["post-hoc CBM"](images) for painted in (subject, again))
    assert torch.equal(first, second)
    other = painted_subject(120, 40, image_size=32, n_classes=4, n_concepts=8, epochs=1, random_directions=1, seed=1)
    assert not torch.equal(other.test[0].image, subject.test[0].image)
