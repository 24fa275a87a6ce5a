"""Two images whose generation is tied at each step: the scheduler that does it, and the pair."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from captum_concepts.support.checks import as_list, check_choice, check_kind, check_range, check_whole
from captum_concepts.texts import describe, in_one_line
from quantus_concepts.diffusion.schedule import TieSchedule

QUANTILES = ("element", "pixel")


class TiedScheduler:
    """The scheduler of a pipeline of diffusers, which ties the two halves of the batch before each step.

    With predictions e_R of the first half and e_G of the second and ``D = |e_R - e_G|``, both become (e_R + e_G) / 2
    where D is at or below its eta-quantile, and stay elsewhere: the smallest ceil(eta * n) of the n differences are
    tied, each image pair by itself. Of eta = 0 the step is that of the scheduler, to the bit.

    Bader et al. (2025), "SUB", Eqs. 3 to 6, after its text. Whether the quantile is over elements of the latent
    or over its places, all channels together, is left open there ("elements (i.e. image pixels)").

    The result is an object of its own class, derived from the scheduler's, with a copy of its state; the
    scheduler itself is left as it was. The two halves stay equal only from equal noise (`tied_pair` sees to that), and
    under a scheduler that draws noise from the generators it is given, or none.

    Parameters
    ----------
    scheduler : object
        Scheduler of any pipeline of diffusers: has `step(model_output, timestep, sample, ...)` and `timesteps`.
    eta : TieSchedule or float
        Share that is tied at each step; a number in [0, 1] for all alike.
    quantile : str
        "element", or "pixel": by the mean difference over the channels of each place of the latent, which are the
        second axis of (N, C, H, W) and the last of (N, tokens, C); a token of FLUX is a patch of 2 x 2 places.

    Attributes
    ----------
    eta : TieSchedule or float
        As given.
    quantile : str
        As given.
    shares : list of float
        Share that was tied at each step of the last run, the mean over the pairs.

    Raises
    ------
    TypeError
        If the scheduler has no `step` or no `timesteps`, or eta is neither a schedule nor a number.
    ValueError
        If eta lies outside [0, 1], there is no such quantile, or at a step the batch is odd.
    """

    eta: TieSchedule | float
    quantile: str
    timesteps: Any
    _shares: dict[int, Tensor]

    def __new__(cls, scheduler: Any, eta: TieSchedule | float, quantile: str = "element") -> TiedScheduler:
        """Make an object of a class derived from the scheduler's."""
        kind = f"the class {scheduler.__name__}" if isinstance(scheduler, type) else type(scheduler).__name__
        for name in ("step", "timesteps"):
            if isinstance(scheduler, type) or not hasattr(scheduler, name):
                raise TypeError(
                    f"Expected argument `scheduler` to be that of a diffusers pipeline, with `{name}`, but got {kind}."
                )
        if isinstance(scheduler, TiedScheduler):
            raise TypeError(
                f"Expected argument `scheduler` to be the scheduler of a pipeline but got {kind}, a tied one."
            )
        check_choice("quantile", quantile, QUANTILES)
        if not isinstance(eta, TieSchedule):
            check_range("eta", eta, 0, 1)
        base: Any = type(scheduler)
        tied = object.__new__(_tied_class(base))
        vars(tied).update(copy.deepcopy(vars(scheduler)))
        tied.eta, tied.quantile, tied._shares = eta, quantile, {}
        return tied

    def __repr__(self) -> str:
        return describe(self, eta=self.eta, quantile=self.quantile)

    @property
    def shares(self) -> list[float]:
        """Share that was tied at each step of the last run."""
        return [float(share) for share in self._shares.values()]

    def _tie(self, predicted: Tensor, timestep: Any) -> Tensor:
        """Return the predictions of a batch after tying, and note how much was tied."""
        if len(predicted) % 2:
            raise ValueError(
                f"Expected a batch of references and as many guides but got {len(predicted)} images: give the pipeline "
                "as many prompts of guides, after those of the references, or call `tied_pair`."
            )
        distances = (torch.as_tensor(self.timesteps).double() - float(timestep)).abs().tolist()
        # Schedulers of higher order list a timestep twice. Any other than the next in the list begins a run, which need
        # not be at the first one.
        step = max(self._shares, default=-1) + 1
        if step in (0, len(distances)) or distances[step] > min(distances):
            self._shares.clear()
            step = distances.index(min(distances))
        eta = self.eta.eta(step, len(distances)) if isinstance(self.eta, TieSchedule) else self.eta
        tied, self._shares[step] = tie(predicted, eta, self.quantile)
        return tied


def tie(predicted: Tensor, eta: float, quantile: str = "element") -> tuple[Tensor, Tensor]:
    """Tie the halves of a batch (2 B, ...) by the `eta`-quantile of their difference; also return the share tied."""
    reference, guide = predicted.chunk(2)
    if eta == 0:
        return predicted, predicted.new_zeros((), dtype=torch.float32)
    middle = (reference + guide) / 2
    if eta == 1:
        return torch.cat([middle, middle]), predicted.new_ones((), dtype=torch.float32)
    # Half precision has too few numbers to tell the elements apart.
    distance = (reference - guide).abs() if predicted.dtype == torch.float64 else (reference.float() - guide).abs()
    if quantile == "pixel":
        distance = distance.mean(1 if predicted.ndim > 3 else -1, keepdim=True)
    flat = distance.flatten(1)
    bound = flat.kthvalue(math.ceil(eta * flat.shape[1]), dim=1).values
    near = distance <= bound.view(-1, *[1] * (distance.ndim - 1))
    tied = torch.cat([torch.where(near, middle, reference), torch.where(near, middle, guide)])
    return tied, near.float().mean()


@functools.cache
def _tied_class(base: type) -> type[TiedScheduler]:
    inner: Any = base.step  # type: ignore[attr-defined]

    # Pipelines read from its signature what it takes.
    @functools.wraps(inner)
    def step(self: Any, model_output: Tensor, timestep: Any, *args: Any, **kwargs: Any) -> Any:
        return inner(self, self._tie(model_output, timestep), timestep, *args, **kwargs)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        pass  # its state is a copy

    members = {"step": step, "__init__": __init__, "__module__": __name__}
    return type(f"Tied{base.__name__}", (TiedScheduler, base), members)


@in_one_line
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
        If the pipeline cannot be called with prompts and generators or has no scheduler with `step`, a prompt is no
        text, or eta no number.
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


def _texts(name: str, value: str | Sequence[str]) -> list[str]:
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
    parameters = inspect.signature(type(pipeline).__call__).parameters
    lacking = [name for name in ("prompt", "generator") if name not in parameters]
    if lacking and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        raise TypeError(
            f"Expected argument `pipeline` to be called with prompts and generators but {kind} takes no "
            f"{' and no '.join(f'`{name}`' for name in lacking)}. With other conditions, give it a TiedScheduler and "
            "call it with the references' first and the guides' after them."
        )


def _generators(generator: Generator | Sequence[Generator] | int, n_pairs: int) -> list[Generator]:
    """Return one generator for each reference, and then one in the same state for each guide."""
    if isinstance(generator, Generator):
        references = [generator] * n_pairs
    elif isinstance(generator, list | tuple):
        references = list(generator)
        if len(references) != n_pairs or not all(isinstance(reference, Generator) for reference in references):
            raise ValueError(
                f"Expected argument `generator` to be {n_pairs} generators, one a pair, but got {len(references)} of "
                f"{sorted({type(reference).__name__ for reference in references})}."
            )
    else:
        references = [Generator().manual_seed(check_whole("generator", generator, 0, 2**63 - 1))] * n_pairs
    # One that several references share is drawn from in their order, and so is its copy.
    copies = {id(reference): Generator(reference.device).set_state(reference.get_state()) for reference in references}
    return references + [copies[id(reference)] for reference in references]
