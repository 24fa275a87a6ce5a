"""The kinds of explanation that people and scorers rate, and the six questions they answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from torch import Tensor

from captum_concepts.support.checks import check_choice, check_mapping, different_names
from captum_concepts.texts import in_one_line

MODALITIES = ("map", "drawing", "concepts")


@in_one_line
@dataclass(frozen=True)
class MapExplanation:
    """An image and the relevance of its pixels.

    Attributes
    ----------
    image : Tensor
        (3, H, W), float in [0, 1].
    map : Tensor
        (h, w), float, of any range and any size; resized to the image where they differ.
    normalise : str, optional
        How this map comes to [0, 1], as in `unit_maps`; None leaves it to the `Embedder`.
    """

    image: Tensor
    map: Tensor
    normalise: str | None = None

    modality = "map"


@in_one_line
@dataclass(frozen=True)
class DrawingExplanation:
    """An explanation as the picture that people saw, which goes to the encoder as it is.

    Attributes
    ----------
    picture : Tensor
        (3, H, W), float in [0, 1], of any size.
    """

    picture: Tensor

    modality = "drawing"


@in_one_line
@dataclass(frozen=True)
class ConceptExplanation:
    """Concepts and how much each of them matters.

    Attributes
    ----------
    values : mapping of str to float
        Importance of each concept, of any sign.
    ascending : bool
        Whether small values mean important, as for counterfactual explanations.
    written : mapping of str to float, optional
        The entries of the file they were read from, as they stand there; for the sentence of the release.
    vocabulary : sequence of str
        All concepts of the data set, for the sentence of the release; empty where they are not known.

    Raises
    ------
    TypeError
        If `values` is no mapping.
    """

    values: Mapping[str, float]
    ascending: bool = False
    written: Mapping[str, float] | None = None
    vocabulary: Sequence[str] = ()

    def __post_init__(self) -> None:
        """Check the kind of values."""
        check_mapping("values", self.values, 'Give the importance of each concept by its name, such as {"fur": 0.5}.')

    modality = "concepts"


Explanation = MapExplanation | DrawingExplanation | ConceptExplanation


Key = TypeVar("Key")


class LazyExplanations(Sequence[Explanation], Generic[Key]):
    """Explanations that are read, or drawn, on each access; a slice reads none."""

    def __init__(self, load: Callable[[Key], Explanation], keys: Sequence[Key]) -> None:
        self._load, self._keys = load, keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return LazyExplanations(self._load, self._keys[index])
        return self._load(self._keys[index])


@dataclass(frozen=True)
class Question:
    """A question, answered on five points; its wording is "" where it is not known.

    `ends` are the texts at the first and the last point of the page that asks it, if not the usual ones.
    """

    name: str
    text: str = ""
    low_is_good: bool = False
    ends: tuple[str, str] | None = field(default=None, compare=False)

    @property
    def sign(self) -> int:
        """1, or -1 where low is good: the best explanation has the largest ``sign * score``."""
        return -1 if self.low_is_good else 1

    @property
    def reading(self) -> str:
        """What was asked, as a report says it."""
        text = self.text or "A question of this study, whose wording its files do not give."
        return f"{text} Low is good." if self.low_is_good else text


#: The paper's, whose wordings and directions hold where these were asked and nowhere else.
QUESTIONS = {
    question.name: question
    for question in (
        Question("Q1", "Is the explanation consistent with how I would explain the predicted class?"),
        Question("Q2", "Can the explanation of the prediction be trusted?"),
        Question("Q3", "Is the explanation easy to understand?"),
        Question("Q4", "Would many people understand it, whatever their background and culture?"),
        Question("Q5", "How much did the explanation change with a light perturbation of the image?", low_is_good=True),
        Question("Q6", "How much did it change with a strong perturbation that changed the prediction?"),
    )
}


def check_questions(questions: Sequence[str]) -> tuple[str, ...]:
    """Return the names of different questions, the paper's or a study's own, at least one, or raise."""
    names = different_names("questions", questions)
    if not names or not all(names) or isinstance(questions, Set):
        raise ValueError(f"Expected argument `questions` to be a sequence of at least one name but got {questions!r}.")
    return tuple(names)


def question_named(question: str | Question) -> Question:
    """Return a question of the paper by its name, and any other as it is."""
    if isinstance(question, Question):
        return question
    check_choice("question", question, tuple(QUESTIONS))
    return QUESTIONS[question]


def low_is_good_in(questions: Iterable[Question]) -> str:
    """Say in which questions low is good; "" if in none."""
    names = [question.name for question in questions if question.low_is_good]
    return f" Low is good in {' and '.join(names)}." if names else ""


def papers(questions: Iterable[Question]) -> list[str]:
    """Return the names of those that are the paper's questions: its numbers may stand beside them."""
    return [question.name for question in questions if question == QUESTIONS.get(question.name)]
