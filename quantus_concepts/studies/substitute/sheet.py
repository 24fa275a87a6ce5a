"""The command `substitute sheet`: a page on which people check generated birds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from captum_concepts._support.progress import progress
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.pictures import RATING_PAGE, Gallery, readable, write_rating_page
from quantus_concepts.studies.substitute.filtering import kept_images
from quantus_concepts.studies.substitute.options import (
    ATTRIBUTE,
    BIRD,
    CHOICE,
    CHOOSE,
    NO,
    SOMEWHAT,
    YES,
    VerifyOptions,
)
from quantus_concepts.studies.substitute.pairs import OTHER, options_of, words_of


def make_sheet(options: VerifyOptions) -> str:
    """Write the page, and return the next steps."""
    with OutputFolder("substitute-sheet", options.out, options.identity(), overwrite=options.overwrite) as folder:
        images = _sample(kept_images(options.generated, options.filtered), options)
        page = _page(images, options)
        size = write_rating_page(folder, page)
    return "\n".join(
        [
            f"{len(images)} images of {images['pair'].nunique()} pairs. {size}",
            f"Send {RATING_PAGE} to whoever checks. Their files go to "
            "quantus-concepts substitute export --ratings FILE.",
            str(folder.path),
        ]
    )


def _page(images: pd.DataFrame, options: VerifyOptions) -> str:
    gallery = Gallery(options.picture_size, options.max_megabytes)
    chosen = options.ask == CHOOSE
    items = []
    for row in progress(images.itertuples(), "drawing", unit="image", show=options.progress, total=len(images)):
        group, _, option = row.attribute.partition("--")
        bird, words = readable(row.bird), words_of(group)
        item = {
            "record": {name: getattr(row, name) for name in ("image", "pair", "bird", "attribute")},
            # A person who chooses sees neither bird nor attribute.
            "label": words if chosen else f"{bird} with {words} {readable(option)}",
            "sections": {"shown": {"image": gallery.image(options.generated / row.image), "told": ""}},
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
    return gallery.render(template, questions, items, options.seed, texts, title=title, colours=False, chosen=chosen)


def _sample(images: pd.DataFrame, options: VerifyOptions) -> pd.DataFrame:
    rng = np.random.default_rng([options.seed])
    order = images.iloc[rng.permutation(len(images))]
    return order.groupby("attribute").head(options.n_per_attribute).sort_values("image")
