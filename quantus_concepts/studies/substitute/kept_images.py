"""The images that are left: all that were generated, or what the filter kept of them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from captum_concepts._support.files import shortened
from quantus_concepts.datasets.folders import inside
from quantus_concepts.studies.substitute.filtering import MANIFEST, read_manifest
from quantus_concepts.studies.substitute.pairs import images_of, read_pairs


def kept_images(generated: Path, filtered: Path | None) -> pd.DataFrame:
    """Return pair, bird, attribute and image of what is left; the image is a path in the folder of all."""
    columns = ["pair", "bird", "attribute", "image"]
    if filtered is None:
        rows = [
            (pair.name, pair.bird, pair.attribute, path.relative_to(generated).as_posix())
            for name, pair in read_pairs(generated).items()
            for path in images_of(generated / name)
        ]
        images = pd.DataFrame(rows, columns=columns)
    else:
        manifest = read_manifest(filtered)
        images = manifest[manifest["kept"].astype(str) == "True"][columns].reset_index(drop=True)
        places = [inside(generated, name, f"{filtered / MANIFEST}, column image") for name in images["image"]]
        missing = [place.name for place in places if not place.is_file()]
        if missing:
            raise ValueError(
                f"Expected argument `--generated` to hold the images of {filtered / MANIFEST} but {len(missing)} of "
                f"{len(images)} are missing: {shortened(', '.join(missing))}. Give the folder that was filtered."
            )
    if images.empty:
        raise ValueError(f"No image of {generated} is left. Generate more, or keep a larger share.")
    return images
