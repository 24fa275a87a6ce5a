"""Pairs of birds and attributes, and their prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from captum_concepts.support.checks import check_choice
from captum_concepts.support.files import read_json

PAIRS = Path(__file__).with_name("pairs.json")
#: File of a pair in its folder.
PAIR = "pair.json"
OTHER = "Other"


@dataclass(frozen=True)
class Pair:
    """A bird, the attribute it gets, and the texts of reference and guide."""

    bird: str
    attribute: str
    prompt: str
    guidance_prompt: str

    @property
    def name(self) -> str:
        """Name of its folder."""
        return f"{self.bird}--{self.attribute}"

    @property
    def group(self) -> str:
        """The group of the attribute."""
        return self.attribute.partition("--")[0]

    @property
    def option(self) -> str:
        """The attribute within its group."""
        return self.attribute.partition("--")[2]


@cache
def paper_texts() -> dict[str, Any]:
    """Return birds, attributes, options and prompts of the paper."""
    texts: dict[str, Any] = read_json(PAIRS, "File of pairs")
    return texts


def choose_pairs(birds: Sequence[str] | None = None, attributes: Sequence[str] | None = None) -> list[Pair]:
    """Return the pairs of some birds and attributes; all if None."""
    texts = paper_texts()
    entries = {entry["name"]: entry for entry in texts["attributes"]}
    for name in birds or ():
        check_choice("--birds", name, texts["birds"])
    for name in attributes or ():
        check_choice("--attributes", name, [*entries])
    pairs = []
    for bird in birds or texts["birds"]:
        for attribute in attributes or entries:
            entry = entries[attribute]
            words = {"bird": bird.replace("_", " "), "words": entry["words"], "guide": entry["guide"]}
            prompts = (prompt.format(**words) for prompt in texts["prompts"][entry["kind"]])
            pairs.append(Pair(bird, attribute, *prompts))
    return pairs


def options_of(group: str) -> list[str]:
    """Return the attributes of a group."""
    options: list[str] = paper_texts()["options"][group]
    return options


def words_of(group: str) -> str:
    """Return a group in the words of the prompt."""
    return group.removeprefix("has_").replace("_", " ")


def read_pairs(root: Path) -> dict[str, Pair]:
    """Return the pairs that were generated in a folder, by the names of their folders."""
    pairs = {}
    for file in sorted(root.glob(f"*/{PAIR}")):
        fields = read_json(file, "Pair")
        try:
            pair = Pair(**fields)
            check_choice("attribute", pair.option, options_of(pair.group))
        except (TypeError, KeyError, ValueError) as error:
            raise ValueError(f"{file} is not what `substitute generate` writes ({error}). Remove its folder.") from None
        pairs[file.parent.name] = pair
    if not pairs:
        raise ValueError(f"There are no generated images in {root}. Give the folder that `substitute generate` wrote.")
    return pairs


def images_of(folder: Path) -> list[Path]:
    """Return the images of a pair, in order."""
    return sorted(folder.glob("[0-9]*.png"))
