"""The command `substitute filter`: the images of which a model is surest that they show their attribute."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
from PIL import Image

from captum_concepts._support.files import check_plain_file, quoted, written
from captum_concepts._support.images import load_pixels
from captum_concepts._support.progress import progress
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.results import from_cell, write_csv
from quantus_concepts.studies.substitute.answering import LetterModel, load_letter_model
from quantus_concepts.studies.substitute.options import FilterOptions
from quantus_concepts.studies.substitute.pairs import Pair, images_of, read_pairs

MANIFEST = "manifest.csv"
KEPT = "kept"
ANSWERS = ["image", "answer", "probability", "is_choice"]
COLUMNS = ["pair", "bird", "attribute", "image", "answer", "probability", "right", "rank", "kept", "decision"]


def filter_images(options: FilterOptions) -> str:
    """Ask about every image, and write what was decided of each."""
    pairs = read_pairs(options.generated)
    model: LetterModel | None = None
    with OutputFolder("substitute-filter", options.out, options.identity(), overwrite=options.overwrite) as folder:
        decided: list[pd.DataFrame] = []
        for name, pair in progress(pairs.items(), "asking", unit="pair", show=options.progress):
            images = images_of(options.generated / name)
            # More images may have been generated since an interruption.
            kept = folder.kept / f"{name}-{len(images)}.csv"
            if kept.is_file():
                answers = _read(kept)
            else:
                model = model or load_letter_model(options.model, options.precision, options.torch_device())
                answers = _ask(model, pair, images, options)
                _check_letters([*decided, answers])
                _keep(answers, kept)
            decided.append(decide(pair, answers, options.keep_share))
        manifest = pd.concat(decided, ignore_index=True)[COLUMNS]
        with folder.file(MANIFEST) as path:
            write_csv(manifest, path)
    counts = manifest.groupby("pair")["kept"].sum()
    reasons = manifest["decision"].value_counts()
    told = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
    return f"{(counts > 0).sum()} of {len(pairs)} pairs are left, {counts.sum()} images: {told}.\n{folder.path}"


def decide(pair: Pair, answers: pd.DataFrame, keep_share: float) -> pd.DataFrame:
    """Return the answers about a pair's images with what becomes of each."""
    table = answers.assign(pair=pair.name, bird=pair.bird, attribute=pair.attribute)
    table["right"] = table["is_choice"] & (table["answer"] == pair.option)
    # The surest first, of equals the earlier; the wrong have no rank.
    table["rank"] = table["probability"].where(table["right"]).rank(method="first", ascending=False).astype("Int64")
    wanted = max(1, round(keep_share * len(table)))
    enough = int(table["right"].sum()) >= wanted
    top = (table["rank"] <= wanted).fillna(False).astype(bool)
    table["kept"] = top & enough
    table["decision"] = "dropped: answered otherwise"
    table.loc[~table["is_choice"], "decision"] = "dropped: answered with no letter"
    table.loc[table["right"] & ~top, "decision"] = "dropped: others are surer"
    if not enough:
        table.loc[table["right"], "decision"] = "dropped: its pair has too few"
    table.loc[table["kept"], "decision"] = KEPT
    return table


def read_manifest(folder: Path) -> pd.DataFrame:
    """Return what `substitute filter` decided."""
    file = folder / MANIFEST
    try:
        check_plain_file(file, "File")
        table = pd.read_csv(file, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise ValueError(f"Expected {folder} to hold {MANIFEST}, as `substitute filter` writes it ({error}).") from None
    if missing := [name for name in COLUMNS if name not in table.columns]:
        raise ValueError(f"Expected {file} to have the columns {COLUMNS} but it lacks {missing}.")
    return table.map(from_cell)


def _ask(model: LetterModel, pair: Pair, images: list[Path], options: FilterOptions) -> pd.DataFrame:
    rows = []
    for start in range(0, len(images), options.batch_size):
        chosen = images[start : start + options.batch_size]
        pictures = [Image.fromarray(load_pixels(path)) for path in chosen]
        for path, answer in zip(chosen, model.answer(pictures, pair.group), strict=True):
            place = path.relative_to(options.generated).as_posix()
            rows.append((place, answer.said, answer.probability, answer.is_choice))
    return pd.DataFrame(rows, columns=ANSWERS).astype({"probability": float, "is_choice": bool})


def _keep(answers: pd.DataFrame, file: Path) -> None:
    try:
        with written(file) as temporary:
            answers.to_csv(temporary, index=False)
    except OSError as error:
        raise OSError(
            f"The answers on a pair cannot be written to {file} ({error.strerror or error}). Those on the pairs before "
            "stay; make room, and give the same command again: it goes on."
        ) from error


def _read(file: Path) -> pd.DataFrame:
    return pd.read_csv(file, keep_default_na=False, dtype={"answer": str, "is_choice": bool})


def _check_letters(answered: list[pd.DataFrame]) -> None:
    """Raise where so far no image was answered with a letter."""
    if not any(table["is_choice"].any() for table in answered) and len(answered[-1]):
        said = answered[-1]["answer"].iloc[0]
        raise ValueError(
            f"Expected argument `--model` to answer with the letter of a choice but it did on none of "
            f"{sum(map(len, answered))} images, on the last with {quoted(said)}. Take one that follows instructions."
        )
