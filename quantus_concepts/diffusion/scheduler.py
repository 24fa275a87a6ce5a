"""A scheduler that ties the predictions of two images before each of its steps."""

from __future__ import annotations

import copy
import functools
import math
from typing import Any

import torch
from torch import Tensor

from captum_concepts._support.checks import check_range
from captum_concepts._support.constraints import Choice, check_arguments
from captum_concepts._support.shown import describe
from quantus_concepts.diffusion.schedule import TieSchedule

QUANTILES = ("element", "pixel")


class TiedScheduler:
    """The scheduler of a pipeline of diffusers, which ties the two halves of the batch before each step.

    With predictions e_R of the first half and e_G of the second and ``D = |e_R - e_G|``, both become (e_R + e_G) / 2
    where D is at or below its eta-quantile, and stay elsewhere: the smallest ceil(eta * n) of the n differences are
    tied, each image pair by itself. Of eta = 0 the step is that of the scheduler, to the bit.

    Bader et al. (2025), "SUB", Eqs. 3 to 6, as its text tells them. Whether the quantile is over elements of the latent
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

    @check_arguments(quantile=Choice(QUANTILES))
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

    own = {"step": step, "__init__": __init__, "__module__": __name__}
    return type(f"Tied{base.__name__}", (TiedScheduler, base), own)
