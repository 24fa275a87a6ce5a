"""How much of two predictions is tied at which step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from captum_concepts.support.checks import check_range, check_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class TieSchedule:
    """The share eta of the elements that is tied at each step: all at first, then fewer, at last none.

    The steps t = 1 to T up to ``t_1 * T`` tie everything, those from ``t_2 * T`` on nothing, and between them
    eta is ``exp(-rate * (t / T - t_1))``.

    Bader et al. (2025), "SUB", Eq. 4, of which only a text without its formula was at hand: the exponential and the
    defaults are ours and may differ from the paper's, which took one set for patterns and another for shapes and
    colours, found by looking at a few birds.

    The effect of a schedule was measured once on painted birds (a small diffusion model of eight classes, 36 pairs of
    class and attribute, 144 images of 24 pixels). The prompt alone showed the requested attribute in 15 % of the
    images and kept 67 % of the others, these defaults 17 % and 63 %, (0.5, 0.95, 1) 22 % and 55 %: the longer the tie,
    the more of the guide, and none was better at both. A larger model, on a GPU, of sixteen classes and 48 pixels
    obeyed no better: 14 % and 70 %, (0.2, 0.6, 3) 17 % and 65 %. The defaults stand in between. On photographs none was
    tried: look at a few pairs of your own before many are generated.

    Parameters
    ----------
    t_1 : float
        End of the first phase, as a share of the run in [0, 1].
    t_2 : float
        Start of the last phase, in [t_1, 1] or above 1 for none.
    rate : float
        How fast eta falls in between, for a whole run: of 3, eta is down to exp(-3) after T steps.

    Raises
    ------
    ValueError
        If a share lies outside its range, or the rate is negative or not finite.
    """

    t_1: float = 0.3
    t_2: float = 0.8
    rate: float = 3.0

    def __post_init__(self) -> None:
        """Raise if the schedule is invalid."""
        check_range("t_1", self.t_1, 0, 1)
        check_range("t_2", self.t_2, self.t_1, 2)
        check_range("rate", self.rate, 0, math.inf, open_high=True)

    def eta(self, step: int, n_steps: int) -> float:
        """Return the share that is tied at a step.

        Parameters
        ----------
        step : int
            Which step, from 0.
        n_steps : int
            Number of steps.

        Returns
        -------
        float
            In [0, 1].

        Raises
        ------
        TypeError
            If `step` is not a whole number.
        ValueError
            If there is no such step.
        """
        done = (check_whole("step", step, 0, n_steps - 1) + 1) / n_steps
        if done <= self.t_1:
            return 1.0
        return 0.0 if done >= self.t_2 else math.exp(-self.rate * (done - self.t_1))


def plot_schedule(
    schedule: TieSchedule, n_steps: int = 50, measured: Sequence[float] | None = None, ax: Axes | None = None
) -> tuple[Figure, Axes]:
    """Plot the tied share over the steps.

    Parameters
    ----------
    schedule : TieSchedule
        Schedule to draw.
    n_steps : int
        Number of steps.
    measured : sequence of float, optional
        One share for each of the first steps, such as `TiedScheduler.shares`, drawn as points.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on; by default a new figure.

    Returns
    -------
    tuple
        Figure and axes.

    Raises
    ------
    ValueError
        If there are more shares than steps.
    """
    shares = measured or []
    if len(shares) > n_steps:
        raise ValueError(f"Expected argument `measured` to have at most {n_steps} shares but got {len(shares)}.")
    # Imported only where they are needed, for they take long.
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(figsize=(5.6, 3.0), layout="constrained")
    steps = range(1, n_steps + 1)
    ax.step(steps, [schedule.eta(step - 1, n_steps) for step in steps], where="mid", label="asked for")
    if shares:
        ax.plot(range(1, len(shares) + 1), shares, "o", markersize=3.5, label="measured")
        ax.legend(frameon=False)
    for end, name in ((schedule.t_1, "$T_1$"), (schedule.t_2, "$T_2$")):
        if end <= 1:
            ax.axvline(end * n_steps, color="0.75", linewidth=0.8, zorder=0)
            ax.annotate(name, (end * n_steps, 1.02), xycoords=("data", "axes fraction"), ha="center")
    ax.set(xlabel="step", ylabel="tied share", ylim=(-0.03, 1.05))
    figure: Any = ax.get_figure()
    return figure, ax
