"""The page of `substitute sheet`, on which people check generated birds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from captum_concepts.support.progress import progress
from captum_concepts.support.shown import readable_name
from quantus_concepts.studies.pasta.cards import Gallery
from quantus_concepts.studies.substitute.pairs import OTHER, options_of, words_of

PAGE = "rate.html"
#: Names of the questions in files of answers, and the answers to the first two.
ATTRIBUTE, BIRD, CHOICE = "attribute_there", "still_the_bird", "choice"
YES, SOMEWHAT, NO = "yes", "somewhat", "no"


def draw_images(images: pd.DataFrame, n_per_attribute: int, seed: int) -> pd.DataFrame:
    """Draw images of each attribute."""
    order = images.iloc[np.random.default_rng([seed]).permutation(len(images))]
    return order.groupby("attribute").head(n_per_attribute).sort_values("image")


def render_sheet(
    images: pd.DataFrame, root: Path, chosen: bool, seed: int, limits: tuple[int, float], *, show_progress: bool
) -> str:
    """Return the page about images of the folder `root`; `limits` are those of `Gallery`.

    People choose among the options of the group, or say whether attribute and bird are there.
    """
    gallery = Gallery(*limits)
    items = []
    for row in progress(images.itertuples(), "drawing", unit="image", show=show_progress, total=len(images)):
        group, _, option = row.attribute.partition("--")
        bird, words = readable_name(row.bird), words_of(group)
        item = {
            "record": {name: getattr(row, name) for name in ("image", "pair", "bird", "attribute")},
            # A person who chooses sees neither bird nor attribute.
            "label": words if chosen else f"{bird} with {words} {readable_name(option)}",
            "sections": {"shown": {"image": gallery.image(root / row.image), "label": ""}},
        }
        if chosen:
            item["answers"] = {CHOICE: [*options_of(group), OTHER]}
        items.append(item)
        gallery.check(len(items), len(images), "images", "--n-per-attribute")
    if chosen:
        questions: list[dict[str, Any]] = [{"name": CHOICE, "text": "Which of these does this bird have?"}]
    else:
        scale = [YES, SOMEWHAT, NO]
        questions = [
            {"name": ATTRIBUTE, "text": "Is the attribute that was asked for there?", "answers": scale},
            {"name": BIRD, "text": "Apart from it, is it still this kind of bird?", "answers": scale},
        ]
    texts = {"says": "Look at its: " if chosen else "Asked for: ", "noun": "Picture"}
    title = "What does this bird have?" if chosen else "Birds with one thing changed"
    template = "substitute/sheet.html.j2"
    return gallery.render(template, questions, items, seed, texts, title=title, colours=False, chosen=chosen)
