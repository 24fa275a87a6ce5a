"""A model that answers questions about images with the letter of a choice."""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from PIL import Image

from captum_concepts._support.lazy import check_extra
from quantus_concepts.pasta.encoders.downloads import first_line
from quantus_concepts.studies.substitute.generate import dtype_of
from quantus_concepts.studies.substitute.pairs import OTHER, options_of, words_of


class Answer(NamedTuple):
    """What was answered: a choice or, where the likeliest token is no letter, that token; and its probability."""

    said: str
    probability: float
    is_choice: bool


def question_about(group: str) -> tuple[str, list[str]]:
    """Return the question about a group, and its choices."""
    choices = [*options_of(group), OTHER]
    listed = "\n".join(f"{letter}) {choice}" for letter, choice in zip(string.ascii_uppercase, choices, strict=False))
    return (
        f"What type of {words_of(group)} does this bird have? Please pick between\n{listed}\n"
        "Answer with the letter alone.",
        choices,
    )


class LetterModel:
    """A model of transformers from image and text to text, read at its first answered token.

    The probability of a letter is that of its token among all, with and without a space before it together.
    """

    def __init__(self, model: Any, processor: Any) -> None:
        self.model, self.processor = model, processor
        tokenizer = processor.tokenizer
        self.places: list[list[int]] = []
        for letter in string.ascii_uppercase:
            written = (tokenizer.encode(text, add_special_tokens=False) for text in (letter, f" {letter}"))
            found = {tokens[0] for tokens in written if len(tokens) == 1 and tokens[0] != tokenizer.unk_token_id}
            if not found:
                raise ValueError(
                    f"Expected argument `--model` to answer with letters but its tokenizer has no token {letter!r}. "
                    "Take another model."
                )
            self.places.append(sorted(found))
        tokenizer.padding_side = "left"

    @torch.no_grad()
    def answer(self, images: Sequence[Image.Image], group: str) -> list[Answer]:
        """Ask about a group of attributes on some images."""
        question, choices = question_about(group)
        content = [{"type": "image"}, {"type": "text", "text": question}]
        text = self.processor.apply_chat_template([{"role": "user", "content": content}], add_generation_prompt=True)
        inputs = self.processor(
            text=[text] * len(images), images=[[image] for image in images], padding=True, return_tensors="pt"
        ).to(self.model.device)
        inputs["pixel_values"] = inputs["pixel_values"].to(self.model.dtype)
        shares = self.model(**inputs).logits[:, -1].float().softmax(-1)
        letters = torch.stack([shares[:, places].sum(1) for places in self.places[: len(choices)]], dim=1).cpu()
        likeliest = shares.max(1)
        answers = []
        for row, share, token in zip(letters, likeliest.values.tolist(), likeliest.indices.tolist(), strict=True):
            # Where another token is likelier than every letter, it would have said that.
            if float(row.max()) < share:
                answers.append(Answer(self.processor.tokenizer.decode([token]), share, False))
            else:
                answers.append(Answer(choices[int(row.argmax())], float(row.max()), True))
        return answers


def load_letter_model(model: str, precision: str, device: torch.device) -> LetterModel:
    """Load a model from a folder or from Hugging Face; none of its code is run."""
    check_extra("transformers", "diffusion", "Filtering")
    # Imported only where they are needed, for they take long.
    from transformers import AutoModelForImageTextToText, AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(model, trust_remote_code=False)
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            model, dtype=dtype_of(precision, device), use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:  # of the library, for whatever is wrong
        raise ValueError(
            f"Expected argument `--model` to be a model of transformers from image and text to text but {model} cannot "
            f"be loaded ({first_line(error)}). Fetch it into a folder and name that."
        ) from None
    return LetterModel(loaded.to(device).eval().requires_grad_(False), processor)
