"""Good arguments of `quantus_concepts.diffusion`, where a constraint alone does not make one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from diffusers import DDIMScheduler
from matplotlib.figure import Figure

from quantus_concepts import diffusion as package
from quantus_concepts.diffusion import TieSchedule

PACKAGE = package
OBJECTS: Mapping[str, Callable[[], Any]] = {"TieSchedule": TieSchedule}
GOOD: Mapping[str, Mapping[str, Any]] = {
    "TieSchedule": {"t_1": 0.3},
    "TiedScheduler": {"scheduler": DDIMScheduler(), "eta": 0.5},
    "plot_schedule": {"schedule": TieSchedule(), "ax": Figure().subplots()},
    "tied_pair": {"pipeline": None, "prompt": "a", "guidance_prompt": "b"},
}
#: It needs a pipeline.
NOT_RUN = {"tied_pair"}
