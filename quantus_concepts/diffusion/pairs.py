"""A pair of images whose generation is tied: the reference, and the guide that is thrown away."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator

from captum_concepts._support.checks import as_list, check_kind, check_whole
from captum_concepts._support.constraints import Instance, check_arguments
from captum_concepts._support.shown import one_line
from quantus_concepts.diffusion.schedule import TieSchedule
from quantus_concepts.diffusion.scheduler import TiedScheduler


class TiedPair(NamedTuple):
    """Images generated side by side.

    Attributes
    ----------
    reference : object
        Output of the pipeline for the prompts: a list of images, an array or a tensor, as its `output_type` says.
    guide : object
        The same for the guidance prompts, which the paper throws away.
    shares : list of float
        Share of the predictions that was tied at each step.
    """

    reference: Any
    guide: Any
    shares: list[float]

    def __repr__(self) -> str:
        return one_line(self)


@check_arguments(latents=Instance(torch.Tensor, "a tensor"))
def tied_pair(
    pipeline: Any,
    prompt: str | Sequence[str],
    guidance_prompt: str | Sequence[str],
    eta: TieSchedule | float | None = None,
    *,
    quantile: str = "element",
    generator: Generator | Sequence[Generator] | int = 0,
    latents: torch.Tensor | None = None,
    **settings: Any,
) -> TiedPair:
    """Generate references and guides side by side, from the same noise, with tied predictions.

    Tied Diffusion Guidance of Bader et al. (2025), "SUB", Section 3. The pipeline runs once on all prompts, with a
    `TiedScheduler` in place of its scheduler, which it gets back in any case. Each pair starts from the same noise, and
    so does what a scheduler draws at its steps: a pipeline alone gives each prompt other noise, from one generator too.

    Parameters
    ----------
    pipeline : diffusers.DiffusionPipeline
        Any from text to images whose scheduler has `step`: FLUX, Stable Diffusion 1, 2, XL, 3 and others.
    prompt : str or sequence of str
        Prompt of the reference: the bird with the attribute. Several are generated as one batch.
    guidance_prompt : str or sequence of str
        Prompt of the guide, one for each prompt: what has the attribute.
    eta : TieSchedule or float, optional
        Share that is tied at each step; by default ``TieSchedule()``.
    quantile : str
        "element" or "pixel", see `TiedScheduler`.
    generator : torch.Generator, sequence of them or int
        Generator of the noise: one for each reference (its guide gets a copy), one for all references, or a seed. A
        single one moves on as in a call without guides.
    latents : Tensor, optional
        (N, ...) start noise of the references in place of what the generators draw.
    **settings
        Goes to the pipeline: steps, guidance scale, size, `num_images_per_prompt`, `output_type` and so on. What it
        takes for each prompt, it needs for the references and then the guides.

    Returns
    -------
    TiedPair
        N references and N guides: N prompts times `num_images_per_prompt`.

    Raises
    ------
    TypeError
        If the pipeline cannot be called with prompts and generators or has no scheduler with `step`, or an argument is
        of another kind.
    ValueError
        If there are not as many guidance prompts, generators or latents as prompts, or eta lies outside [0, 1].
    """
    prompts, guides = _texts("prompt", prompt), _texts("guidance_prompt", guidance_prompt)
    if len(prompts) != len(guides):
        raise ValueError(
            f"Expected argument `guidance_prompt` to have one text for each of the {len(prompts)} prompts but got "
            f"{len(guides)}."
        )
    _check_pipeline(pipeline)
    scheduler = TiedScheduler(pipeline.scheduler, TieSchedule() if eta is None else eta, quantile)
    n_pairs = len(prompts) * check_whole("num_images_per_prompt", settings.get("num_images_per_prompt", 1), 1)
    if latents is not None:
        if len(latents) != n_pairs:
            raise ValueError(f"Expected argument `latents` to have {n_pairs} rows, one a pair, but got {len(latents)}.")
        settings["latents"] = torch.cat([latents, latents])
    settings["generator"] = _generators(generator, n_pairs)
    before = pipeline.scheduler
    pipeline.scheduler = scheduler
    try:
        images = pipeline(prompt=[*prompts, *guides], **settings | {"return_dict": True}).images
    finally:
        pipeline.scheduler = before
    return TiedPair(images[:n_pairs], images[n_pairs:], scheduler.shares)


def _texts(name: str, value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else as_list(name, value, "texts")
    for text in texts:
        check_kind(name, text, str, "a text or several")
    if not texts:
        raise ValueError(f"Expected argument `{name}` to be a text or several but got none.")
    return texts


def _check_pipeline(pipeline: Any) -> None:
    kind = f"the class {pipeline.__name__}" if isinstance(pipeline, type) else type(pipeline).__name__
    step = getattr(getattr(pipeline, "scheduler", None), "step", None)
    if isinstance(pipeline, type) or not callable(pipeline) or not callable(step):
        raise TypeError(
            f"Expected argument `pipeline` to be a pipeline of diffusers, whose scheduler has `step`, but got {kind}."
        )
    taken = inspect.signature(type(pipeline).__call__).parameters
    lacking = [name for name in ("prompt", "generator") if name not in taken]
    if lacking and not any(one.kind is one.VAR_KEYWORD for one in taken.values()):
        raise TypeError(
            f"Expected argument `pipeline` to be called with prompts and generators but {kind} takes no "
            f"{' and no '.join(f'`{name}`' for name in lacking)}. With other conditions, give it a TiedScheduler and "
            "call it with the references' first and the guides' after them."
        )


def _generators(given: Any, n_pairs: int) -> list[Generator]:
    """Return one generator for each reference, and then one in the same state for each guide."""
    if isinstance(given, Generator):
        own = [given] * n_pairs
    elif isinstance(given, list | tuple):
        own = list(given)
        if len(own) != n_pairs or not all(isinstance(each, Generator) for each in own):
            raise ValueError(
                f"Expected argument `generator` to be {n_pairs} generators, one a pair, but got {len(own)} of "
                f"{sorted({type(each).__name__ for each in own})}."
            )
    else:
        own = [Generator().manual_seed(check_whole("generator", given, 0, 2**63 - 1))] * n_pairs
    # One that several references share is drawn from in their order, and so is its copy.
    copies = {id(each): Generator(each.device).set_state(each.get_state()) for each in own}
    return own + [copies[id(each)] for each in own]
