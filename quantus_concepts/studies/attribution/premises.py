"""What must hold of a model for the ground truth to be true, and whether it does, in numbers and in words."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from captum_concepts.checks import check_range

# Accuracies are quotients: a drop of exactly the limit must not exceed it by rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Limits:
    """How far from ideal a model may be for its ground truth to count as verified."""

    drop: float = 0.02
    remain: float = 0.95
    above_chance: float = 0.05

    def __post_init__(self) -> None:
        for name in ("drop", "remain", "above_chance"):
            check_range(name, getattr(self, name), 0, 1)


@dataclass(frozen=True)
class Premise:
    """One thing that must hold."""

    name: str
    value: float
    limit: float
    holds: bool
    sentence: str


@dataclass(frozen=True)
class PremiseCheck:
    """What a model does when the common feature is removed, and when nothing else is left."""

    # The quantities are those of Figure 3 (top) of Yang and Kim. The common feature of f_o is the scene, that of
    # f_s the object: it is in every class, and so tells nothing.

    model: str
    feature: str
    accuracy_with: float
    accuracy_without: float
    accuracy_only: float
    remains_correct: float
    median_kl_same: float
    median_kl_changed: float
    chance: float
    n: int
    limits: Limits = field(default_factory=Limits)

    @property
    def premises(self) -> list[Premise]:
        """The premises, each with its verdict."""
        # The first three are the paper's. The last is ours: a model that has learned nothing ignores the common
        # feature, but does not look at anything else either.
        return [self._removed(), self._remain_correct(), self._alone(), self._learned()]

    @property
    def verified(self) -> bool:
        """Whether all premises hold."""
        return all(premise.holds for premise in self.premises)

    def _removed(self) -> Premise:
        drop, limit = self.accuracy_with - self.accuracy_without, self.limits.drop
        holds = drop <= limit + _ROUNDING
        start = f"Removing the {self.feature}"
        if math.isnan(drop):
            sentence = f"What removing the {self.feature} costs {self.model} is not known."
        elif drop < -_ROUNDING:
            # By more than the limit: the feature matters after all, if not in favour of the model.
            misled = f", so the {self.feature} misleads it" if -drop > limit + _ROUNDING else ""
            sentence = f"{start} costs {self.model} nothing: its accuracy rises by {_points(-drop)}{misled}."
        else:
            verdict = "no more" if holds else "more"
            sentence = (
                f"{start} costs {self.model} {_points(drop, limit)}, {verdict} than the {_number(limit)} allowed."
            )
        return Premise("removed", drop, limit, holds, sentence)

    def _remain_correct(self) -> Premise:
        share, limit = self.remains_correct, self.limits.remain
        holds = share >= limit - _ROUNDING
        if math.isnan(share):
            sentence = f"{self.model} is right on no image, so none can stay right without the {self.feature}."
        else:
            verdict = "at least" if holds else "fewer than"
            sentence = (
                f"{_number(share, limit)} % of the correct predictions of {self.model} stay correct without the "
                f"{self.feature}, {verdict} the {_number(limit)} % asked for."
            )
        return Premise("remain correct", share, limit, holds, sentence)

    def _alone(self) -> Premise:
        above, limit = self.accuracy_only - self.chance, self.limits.above_chance
        holds = above <= limit + _ROUNDING
        start = f"From the {self.feature} alone {self.model}"
        if math.isnan(above):
            sentence = f"What {self.model} tells from the {self.feature} alone is not known."
        elif above <= _ROUNDING:
            sentence = f"{start} does no better than chance ({_number(self.chance)} %)."
        else:
            verdict = "no more" if holds else "more"
            sentence = (
                f"{start} is {_points(above, limit)} better than chance ({_number(self.chance)} %), {verdict} than "
                f"the {_number(limit)} allowed."
            )
        return Premise("alone", above, limit, holds, sentence)

    def _learned(self) -> Premise:
        above, limit = self.accuracy_with - self.chance, self.limits.above_chance
        holds = above > limit + _ROUNDING
        accuracy = f"{self.model} is right on {_number(self.accuracy_with)} % of the images"
        chance = f"chance is {_number(self.chance)} %"
        if math.isnan(above):
            sentence = f"The accuracy of {self.model} is not known."
        elif holds:
            sentence = f"{accuracy}; {chance}."
        else:
            sentence = f"{accuracy} and {chance}: it has not learned what it should look at."
        return Premise("learned", above, limit, holds, sentence)


@dataclass(frozen=True)
class CommonalityRow:
    """Accuracy of a model f_s^k on its target class with and without the object: Figure 3, bottom."""

    k: float
    accuracy_with: float
    accuracy_without: float
    n: int

    @property
    def drop(self) -> float:
        """Accuracy that removing the object costs."""
        return self.accuracy_with - self.accuracy_without


def _number(share: float, limit: float | None = None) -> str:
    """Write a share in percent, with as many digits as it takes to tell it from a limit."""
    if abs(share) < _ROUNDING:
        return "0"
    for digits in (1, 2, 3, 4):
        text = f"{100 * share:.{digits}f}"
        if limit is None or abs(share - limit) < _ROUNDING or float(text) != round(100 * limit, 9):
            break
    return text.rstrip("0").rstrip(".")


def _points(share: float, limit: float | None = None) -> str:
    text = _number(share, limit)
    return f"{text} point" if text == "1" else f"{text} points"
