"""Tied Diffusion Guidance on a tiny FLUX and a tiny Stable Diffusion."""

from __future__ import annotations

import copy
import inspect
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("diffusers")

import diffusers

from quantus_concepts.diffusion import TiedScheduler, TieSchedule, plot_schedule, tied_pair
from quantus_concepts.diffusion.tied import tie
from reference.tying import elements, pixels, tied
from tiny_pipelines import tiny_flux, tiny_stable_diffusion

PROMPTS = ("a photo of Jay with red crown", "a photo of bird with red crown")
SIZE = {"height": 16, "width": 16, "output_type": "latent", "num_inference_steps": 3}
MADE = {"flux": cache(tiny_flux), "stable diffusion": cache(tiny_stable_diffusion)}


@pytest.fixture(params=MADE)
def pipeline(request: pytest.FixtureRequest) -> Any:
    return MADE[request.param]()


@pytest.fixture
def stable() -> Any:
    return MADE["stable diffusion"]()


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_all_tied_are_equal(pipeline: Any) -> None:
    pair = tied_pair(pipeline, *PROMPTS, 1.0, **SIZE)
    assert torch.equal(pair.reference, pair.guide)
    assert pair.shares == [1.0] * 3
    # Also from one generator, and from latents of one's own.
    for start in ({"generator": seeded(5)}, {"latents": torch.randn(pair.reference.shape, generator=seeded(2))}):
        again = tied_pair(pipeline, *PROMPTS, 1.0, **start, **SIZE)
        assert torch.equal(again.reference, again.guide)
    # And are not otherwise.
    free = tied_pair(pipeline, *PROMPTS, 0.0, **SIZE)
    assert not torch.equal(free.reference, free.guide)


def test_none_tied_are_the_pipelines_own_to_the_bit(pipeline: Any) -> None:
    pair = tied_pair(pipeline, *PROMPTS, 0.0, generator=3, **SIZE)
    untied = pipeline(list(PROMPTS), generator=[seeded(3), seeded(3)], **SIZE).images
    assert torch.equal(torch.cat([pair.reference, pair.guide]), untied)
    assert pair.shares == [0.0] * 3


@pytest.mark.parametrize("quantile", ["element", "pixel"])
def test_the_shares_are_those_of_the_schedule(pipeline: Any, quantile: str) -> None:
    schedule = TieSchedule(0.3, 0.8, 3.0)
    pair = tied_pair(pipeline, *PROMPTS, schedule, quantile=quantile, **SIZE | {"num_inference_steps": 10})
    etas = [schedule.eta(step, 10) for step in range(10)]
    np.testing.assert_allclose(etas, [1, 1, 1, 0.7408, 0.5488, 0.4066, 0.3012, 0, 0, 0], atol=5e-5)
    # FLUX has 64 tokens of 4 channels, or 16 of 16: so many places there are at least.
    np.testing.assert_allclose(pair.shares, etas, atol=1 / 16)
    assert all(share >= eta - 1e-6 for share, eta in zip(pair.shares, etas, strict=True))
    assert not torch.equal(pair.reference, pair.guide)


def test_several_pairs_are_those_of_each_alone(pipeline: Any) -> None:
    references, guides = [PROMPTS[0], "a photo of Cardinal with blue crown"], [PROMPTS[1], "a bird with blue crown"]
    both = tied_pair(pipeline, references, guides, 0.5, generator=[seeded(1), seeded(2)], **SIZE)
    for k in range(2):
        alone = tied_pair(pipeline, references[k], guides[k], 0.5, generator=k + 1, **SIZE)
        torch.testing.assert_close(both.reference[k : k + 1], alone.reference)
        torch.testing.assert_close(both.guide[k : k + 1], alone.guide)


def test_the_pipeline_gets_its_scheduler_back(pipeline: Any) -> None:
    scheduler, config, state = pipeline.scheduler, dict(pipeline.config), str(vars(pipeline.scheduler))

    def fail(*_: Any) -> Any:
        raise RuntimeError("out of memory")

    tied_pair(pipeline, *PROMPTS, **SIZE)
    with pytest.raises(RuntimeError, match="out of memory"):
        tied_pair(pipeline, *PROMPTS, callback_on_step_end=fail, **SIZE)
    assert pipeline.scheduler is scheduler
    assert dict(pipeline.config) == config
    assert str(vars(scheduler)) == state


@pytest.mark.parametrize("quantile", ["element", "pixel"])
@pytest.mark.parametrize("name", ["DDPM", "PNDM", "EulerAncestralDiscrete", "HeunDiscrete", "DPMSolverMultistep"])
def test_every_scheduler_of_stable_diffusion(name: str, quantile: str) -> None:
    scheduler = getattr(diffusers, f"{name}Scheduler")()

    def run(stepping: Any) -> torch.Tensor:
        takes, generators = inspect.signature(stepping.step).parameters, [seeded(2), seeded(2)]
        noise = {"generator": generators} if "generator" in takes else {}
        stepping.set_timesteps(6)
        sample = torch.randn(1, 4, 4, 4, generator=seeded(1)).repeat(2, 1, 1, 1)
        aims = torch.randn(2, 4, 4, 4, generator=seeded(3))
        for timestep in stepping.timesteps:
            predicted = stepping.scale_model_input(sample, timestep) - aims
            sample = stepping.step(predicted, timestep, sample, **noise).prev_sample
        return sample

    reference, guide = run(TiedScheduler(scheduler, 1.0, quantile))
    assert torch.equal(reference, guide)
    partly = TiedScheduler(scheduler, TieSchedule(), quantile)
    assert not torch.equal(*run(partly))
    # A share for each call of `step`, also of schedulers that list a timestep twice; the next run begins anew.
    n_steps = len(partly.timesteps)
    etas = [TieSchedule().eta(step, n_steps) for step in range(n_steps)]
    np.testing.assert_allclose(partly.shares, etas, atol=1 / 16)
    run(partly)
    assert len(partly.shares) == n_steps
    assert torch.equal(run(TiedScheduler(scheduler, 0.0, quantile)), run(scheduler))


@pytest.mark.parametrize("shape", [(2, 3, 3), (4, 5)])
@pytest.mark.parametrize("quantile", ["element", "pixel"])
@pytest.mark.parametrize("eta", [0.05, 0.74])
def test_tied_values_follow_the_formula(shape: tuple[int, ...], quantile: str, eta: float) -> None:
    # An image has rank 2 (tokens) or 3; here two pairs.
    predicted = torch.randn(4, *shape, generator=seeded(1), dtype=torch.float64)
    groups = (elements if quantile == "element" else pixels)(tuple(predicted.shape[1:]))
    together, share = tie(predicted, eta, quantile)
    expected = [tied(predicted[k].numpy(), predicted[k + 2].numpy(), eta, groups) for k in range(2)]
    np.testing.assert_allclose(together.numpy(), np.concatenate([[e[0] for e in expected], [e[1] for e in expected]]))
    equal = [np.isclose(e[0], e[1]).mean() for e in expected]
    assert float(share) == pytest.approx(np.mean(equal))


def test_tied_by_hand() -> None:
    predicted = torch.tensor([[0.0, 0.0, 0.0, 0.0], [1.0, -2.0, 3.0, 4.0]])
    together, share = tie(predicted, 0.5)
    assert together.tolist() == [[0.5, -1.0, 0.0, 0.0], [0.5, -1.0, 3.0, 4.0]]
    assert float(share) == 0.5
    half, _ = tie(predicted.bfloat16(), 0.5)
    assert half.dtype == torch.bfloat16
    assert half.float().equal(together)


def test_a_run_that_begins_in_the_middle_ends_free() -> None:
    # As pipelines from image to image do: they step through the last of the timesteps only.
    scheduler = TiedScheduler(diffusers.DDIMScheduler(), TieSchedule(0.3, 0.8, 3.0))
    scheduler.set_timesteps(10)
    for _ in range(2):
        for timestep in scheduler.timesteps[6:]:
            scheduler.step(torch.randn(2, 1, 4, 4), timestep, torch.randn(2, 1, 4, 4))
        assert scheduler.shares == pytest.approx([5 / 16, 0, 0, 0])


def test_schedules_that_cannot_be() -> None:
    with pytest.raises(ValueError, match=r"`t_2` to lie in \[0.3, 2\]"):
        TieSchedule(t_2=0.2)
    with pytest.raises(ValueError, match=r"`step` to lie in \[0, 9\]"):
        TieSchedule().eta(10, 10)
    with pytest.raises(ValueError, match=r"`eta` to lie in \[0, 1\]"):
        TiedScheduler(diffusers.DDIMScheduler(), -0.1)
    for scheduler, message in (
        (diffusers.DDIMScheduler, "that of a diffusers pipeline"),
        (SimpleNamespace(step=None), "with `timesteps`"),
        (TiedScheduler(diffusers.DDIMScheduler(), 0.5), "a tied one"),
    ):
        with pytest.raises(TypeError, match=f"`scheduler` .*{message}"):
            TiedScheduler(scheduler, 0.5)
    with pytest.raises(ValueError, match="`measured` to have at most 2 shares but got 3"):
        plot_schedule(TieSchedule(), 2, [1.0, 1.0, 1.0])


def test_the_plot_shows_schedule_and_measurement() -> None:
    _, ax = plot_schedule(TieSchedule(0.5, 0.9, 1.0), 10, [1.0, 0.5])
    (points,) = [line for line in ax.lines if line.get_marker() == "o"]
    assert points.get_xydata().tolist() == [[1, 1.0], [2, 0.5]]
    steps = ax.lines[0].get_ydata()
    assert [steps[0], steps[4], steps[8]] == [1.0, 1.0, 0.0]


class OfClasses:
    """A pipeline that is called with classes."""

    scheduler = diffusers.DDIMScheduler()

    def __call__(self, class_labels: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"pipeline": SimpleNamespace(scheduler=None)}, TypeError, "`pipeline` to be a pipeline of diffusers"),
        ({"pipeline": OfClasses()}, TypeError, "takes no `prompt` and no `generator`"),
        ({"prompt": []}, ValueError, "`prompt` to be a text or several but got none"),
        ({"guidance_prompt": ["a", "b"]}, ValueError, "`guidance_prompt` to have one text for each of the 1 prompts"),
        ({"generator": [seeded(0)] * 2}, ValueError, "`generator` to be 1 generators"),
        ({"latents": torch.ones(2, 4, 8, 8)}, ValueError, "`latents` to have 1 rows"),
    ],
)
def test_bad_arguments_of_a_pair(stable: Any, changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        tied_pair(**{"pipeline": stable, "prompt": "a", "guidance_prompt": "b", **SIZE} | changes)
    ours = copy.copy(stable)
    ours.scheduler = TiedScheduler(stable.scheduler, 0.5)
    with pytest.raises(ValueError, match="as many guides but got 1 images"):
        ours(PROMPTS[0], **SIZE)
