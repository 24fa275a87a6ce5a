"""The work of `substitute filter`: the images of which a model is surest that they show their attribute."""

from __future__ import annotations

import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pandas as pd
import torch
from PIL import Image

from captum_concepts.lazy import check_extra
from captum_concepts.support.files import quote
from captum_concepts.support.images import load_pixels
from captum_concepts.support.running import progress as show_progress
from quantus_concepts.pasta.encoders.downloads import first_line
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies.substitute.pairs import OTHER, Pair, images_of, options_of, words_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Answer(NamedTuple):
    """An answer: a choice or, where the likeliest token is no letter, that token; and its probability."""

    text: str
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

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self.model, self.processor = model, processor
        tokenizer = processor.tokenizer
        self.places: list[list[int]] = []
        for letter in string.ascii_uppercase:
            encoded = (tokenizer.encode(text, add_special_tokens=False) for text in (letter, f" {letter}"))
            ids = {tokens[0] for tokens in encoded if len(tokens) == 1 and tokens[0] != tokenizer.unk_token_id}
            if not ids:
                raise ValueError(
                    f"Expected `--model` to answer with letters but its tokenizer has no token {letter!r}. "
                    "Take another model."
                )
            self.places.append(sorted(ids))
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
            # A model that generates text would answer with the likeliest token.
            if float(row.max()) < share:
                answers.append(Answer(self.processor.tokenizer.decode([token]), share, False))
            else:
                answers.append(Answer(choices[int(row.argmax())], float(row.max()), True))
        return answers


def load_letter_model(model: str, dtype: torch.dtype, device: torch.device) -> LetterModel:
    """Load a model from a folder or from Hugging Face; none of its code is run."""
    check_extra("transformers", "diffusion", "Filtering")
    # Imported only where they are needed, for they take long.
    from transformers import AutoModelForImageTextToText, AutoProcessor

    try:
        processor = AutoProcessor.from_pretrained(model, trust_remote_code=False)
        loaded: Any = AutoModelForImageTextToText.from_pretrained(
            model, dtype=dtype, use_safetensors=True, trust_remote_code=False
        )
    except Exception as error:  # of the library, for whatever is wrong
        raise ValueError(
            f"Expected `--model` to be a model of transformers from image and text to text but {model} cannot "
            f"be loaded ({first_line(error)}). Fetch it into a folder and name that."
        ) from None
    return LetterModel(loaded.to(device).eval().requires_grad_(False), processor)


MANIFEST = "manifest.csv"
KEPT = "kept"
ANSWERS = ["image", "answer", "probability", "is_choice"]
DECISION_COLUMNS = ["pair", "bird", "attribute", "image", "answer", "probability", "right", "rank", "kept", "decision"]


def filter_pairs(
    folder: RunFolder,
    root: Path,
    pairs: Mapping[str, Pair],
    load: Callable[[], LetterModel],
    *,
    keep_share: float,
    batch_size: int,
    progress: bool,
) -> pd.DataFrame:
    """Ask about every image of the folder `root`, and return the decision on each."""
    model = cache(load)
    answers: list[pd.DataFrame] = []
    for name, pair in show_progress(pairs.items(), "asking", unit="pair", show=progress):
        images = images_of(root / name)
        # More images may have been generated since an interruption.
        key = {"settings": folder.settings, "pair": name, "images": [path.name for path in images]}

        def make(pair: Pair = pair, images: list[Path] = images) -> pd.DataFrame:
            made = _ask(model(), pair, images, root, batch_size)
            _check_letters([*answers, made])
            return made

        answers.append(folder.cached(name, key, make))
    decisions = [decide(pair, table, keep_share) for pair, table in zip(pairs.values(), answers, strict=True)]
    return pd.concat(decisions, ignore_index=True)[DECISION_COLUMNS]


def decide(pair: Pair, answers: pd.DataFrame, keep_share: float) -> pd.DataFrame:
    """Return the answers about a pair's images with the decision on each."""
    table = answers.assign(pair=pair.name, bird=pair.bird, attribute=pair.attribute)
    table["right"] = table["is_choice"] & (table["answer"] == pair.option)
    # The surest first, of equals the earlier; wrong answers have no rank.
    table["rank"] = table["probability"].where(table["right"]).rank(method="first", ascending=False).astype("Int64")
    n_kept = max(1, round(keep_share * len(table)))
    enough = int(table["right"].sum()) >= n_kept
    top = (table["rank"] <= n_kept).fillna(False).astype(bool)
    table["kept"] = top & enough
    table["decision"] = "dropped: answered otherwise"
    table.loc[~table["is_choice"], "decision"] = "dropped: answered with no letter"
    table.loc[table["right"] & ~top, "decision"] = "dropped: others are surer"
    if not enough:
        table.loc[table["right"], "decision"] = "dropped: its pair has too few"
    table.loc[table["kept"], "decision"] = KEPT
    return table


def _ask(model: LetterModel, pair: Pair, images: list[Path], root: Path, batch_size: int) -> pd.DataFrame:
    rows = []
    for start in range(0, len(images), batch_size):
        chosen = images[start : start + batch_size]
        pictures = [Image.fromarray(load_pixels(path)) for path in chosen]
        for path, answer in zip(chosen, model.answer(pictures, pair.group), strict=True):
            place = path.relative_to(root).as_posix()
            rows.append((place, answer.text, answer.probability, answer.is_choice))
    return pd.DataFrame(rows, columns=ANSWERS).astype({"probability": float, "is_choice": bool})


def _check_letters(tables: list[pd.DataFrame]) -> None:
    """Raise where none of the answers so far is a letter."""
    if not any(table["is_choice"].any() for table in tables) and len(tables[-1]):
        answer = tables[-1]["answer"].iloc[0]
        raise ValueError(
            f"Expected `--model` to answer with the letter of a choice but it did on none of "
            f"{sum(map(len, tables))} images, on the last with {quote(answer)}. Take one that follows instructions."
        )
