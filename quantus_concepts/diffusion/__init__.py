"""Tied Diffusion Guidance for the pipelines of diffusers: a bird with one attribute that its class does not have."""

from typing import TYPE_CHECKING

from captum_concepts.lazy import check_extra, lazily

check_extra("diffusers", "diffusion", "Tied Diffusion Guidance")

if TYPE_CHECKING:
    from quantus_concepts.diffusion.schedule import TieSchedule, plot_schedule
    from quantus_concepts.diffusion.tied import TiedPair, TiedScheduler, tied_pair
else:
    __getattr__, __dir__ = lazily(__name__, __file__)

__all__ = ["TieSchedule", "TiedPair", "TiedScheduler", "plot_schedule", "tied_pair"]
