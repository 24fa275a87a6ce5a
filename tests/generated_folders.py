"""A folder as `substitute generate` writes it, of plain colours, and one as `substitute filter` does."""

from __future__ import annotations

from pathlib import Path

from PIL import Image

from quantus_concepts.studies.substitute.filtering import COLUMNS, MANIFEST
from quantus_concepts.studies.substitute.pairs import choose_pairs, write_pair

BIRDS, ATTRIBUTES = ["Blue_Jay", "Cardinal"], ["has_crown_color--black", "has_bill_shape--needle"]


def write_generated(root: Path, n_per_pair: int = 3) -> Path:
    for place, pair in enumerate(choose_pairs(BIRDS, ATTRIBUTES)):
        folder = root / pair.name
        folder.mkdir(parents=True)
        write_pair(folder, pair)
        for number in range(n_per_pair):
            Image.new("RGB", (20, 16), (40 * place, 30 * number, 200)).save(folder / f"{number:05d}.png")
    return root


def write_filtered(folder: Path, generated: Path, kept: set[str]) -> Path:
    """Write a manifest that keeps the images named, or those of which the pair is."""
    lines = [",".join(COLUMNS)]
    for pair in choose_pairs(BIRDS, ATTRIBUTES):
        for file in sorted((generated / pair.name).glob("0*.png")):
            image = f"{pair.name}/{file.name}"
            stays = bool(kept & {pair.name, image})
            lines.append(f"{pair.name},{pair.bird},{pair.attribute},{image},x,0.5,{stays},1,{stays},kept")
    folder.mkdir()
    (folder / MANIFEST).write_text("\n".join(lines) + "\n")
    return folder
