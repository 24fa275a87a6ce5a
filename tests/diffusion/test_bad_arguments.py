"""Bad input to what the package of diffusion exports."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("diffusers")

from diffusers import DDIMScheduler

from bad_arguments import Case, assert_refused, spoilt
from quantus_concepts.diffusion import TiedScheduler, TieSchedule, plot_schedule, tied_pair


class Pipeline:
    """Fails the test if it is called: arguments are checked before."""

    scheduler = DDIMScheduler()

    def __call__(self, prompt: Any, generator: Any, **settings: Any) -> Any:
        raise AssertionError("called")


Bad = Mapping[str, Any]
NAN = float("nan")
NOTHING: Bad = {"None": None}
NO_NUMBER: Bad = {"text": "many", "a list": [1.0], "complex": 1j, "a bool": True}
NO_ETA: Bad = {**NO_NUMBER, "NaN": NAN, "above 1": 1.5, "negative": -0.1}
NO_TEXTS: Bad = {**NOTHING, "a number": 3, "of numbers": [3], "empty": []}
NO_SCHEDULER: Bad = {**NOTHING, "text": "ddim", "a class": DDIMScheduler, "without steps": SimpleNamespace()}
G = torch.Generator()


@pytest.mark.parametrize(
    "cases",
    {
        "TieSchedule": {"t_2: below t_1": (lambda: TieSchedule(t_2=0.2), "`t_2`")},
        "TieSchedule.eta": {"step: too large": (lambda: TieSchedule().eta(10, 10), "`step`")},
        "TiedScheduler": spoilt(
            TiedScheduler,
            {"scheduler": DDIMScheduler(), "eta": 0.5},
            scheduler={**NO_SCHEDULER, "tied": TiedScheduler(DDIMScheduler(), 0.5)},
            eta={**NO_ETA, **NOTHING},
        ),
        "tied_pair": spoilt(
            tied_pair,
            {"pipeline": Pipeline(), "prompt": "a", "guidance_prompt": "b"},
            pipeline={**NOTHING, "a class": Pipeline, "without a scheduler": SimpleNamespace(scheduler=None)}
            | {"of another scheduler": SimpleNamespace(scheduler=SimpleNamespace())},
            guidance_prompt={**NO_TEXTS, "of another number": ["a", "b"]},
            eta=NO_ETA,
            generator={**NO_NUMBER, "negative": -1, "too few": [], "too many": [G, G], "of seeds": [3]},
            latents={"too many": torch.ones(2, 4, 8, 8)},
        )
        | spoilt(
            tied_pair,
            {"pipeline": Pipeline(), "guidance_prompt": "b"},
            prompt={what: bad for what, bad in NO_TEXTS.items() if what != "empty"},
        )
        | {
            "prompt: none": (lambda: tied_pair(Pipeline(), [], []), "`prompt`"),
            "prompt: two": (lambda: tied_pair(Pipeline(), ["a", "b"], "c"), "2 prompts"),
        },
        "plot_schedule": {
            "measured: too many": (lambda: plot_schedule(TieSchedule(), 2, [1, 1, 1]), "`measured`"),
        },
    }.values(),
)
@pytest.mark.usefixtures("empty_folder")
def test_refused(cases: Mapping[str, Case]) -> None:
    assert_refused(cases)
