"""The six questions about an explanation that people answered."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from captum_concepts._support.checks import check_choice


@dataclass(frozen=True)
class Question:
    """A question, answered on five points."""

    name: str
    text: str
    low_is_good: bool = False

    @property
    def sign(self) -> int:
        """1, or -1 where low is good: the best explanation has the largest ``sign * score``."""
        return -1 if self.low_is_good else 1


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
    """Return the names of different questions, at least one, or raise."""
    if isinstance(questions, str) or not isinstance(questions, Collection):
        raise ValueError(f'Expected argument `questions` to be a sequence such as ("Q1",) but got {questions!r}.')
    for name in questions:
        check_choice("questions", name, tuple(QUESTIONS))
    named = tuple(questions)
    if not named or len(set(named)) < len(named):
        raise ValueError(f"Expected argument `questions` to hold different questions, at least one, but got {named}.")
    return named


def question_named(name: str) -> Question:
    """Return a question by its name."""
    check_choice("question", name, tuple(QUESTIONS))
    return QUESTIONS[name]
