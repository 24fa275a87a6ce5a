"""The command `substitute export`: the images that were kept, in the format in which SUB is published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from captum_concepts._support.files import read_json
from captum_concepts._support.progress import progress
from quantus_concepts.datasets.substitution.sub_files import ATTRIBUTE as ATTRIBUTE_LABEL
from quantus_concepts.datasets.substitution.sub_files import BIRD as BIRD_LABEL
from quantus_concepts.datasets.substitution.sub_files import FOLDER, IMAGE, arrow, schema_of
from quantus_concepts.studies._kit.output import OutputFolder
from quantus_concepts.studies._kit.results import write_csv
from quantus_concepts.studies.pasta.sheet import VOTES
from quantus_concepts.studies.substitute.filtering import kept_images
from quantus_concepts.studies.substitute.options import ATTRIBUTE, BIRD, CHOICE, YES, ExportOptions

ANSWERS = "answers.csv"
#: Images of a row group, the smallest part that is read.
ROWS_AT_ONCE = 100


def export(options: ExportOptions) -> str:
    """Write the files, and return a summary."""
    images = kept_images(options.generated, options.filtered)
    parts = [f"{len(images)} images of {images['pair'].nunique()} pairs before people were asked."]
    ratings = None
    if options.ratings:
        ratings = read_ratings(options.ratings)
        shares = ratings.groupby("pair")["found"].mean()
        bad = set(shares[shares < options.min_yes].index) & set(images["pair"])
        parts.append(
            f"{len(ratings)} answers of {ratings['annotator'].nunique()} people on {len(shares)} pairs; the attribute "
            f"is found in {ratings['found'].mean():.1%}, and the bird is still the bird in "
            f"{ratings['faithful'].mean():.1%}. {len(bad)} pairs are left out, of whose answers "
            f"fewer than {options.min_yes:.0%} find it."
        )
        images = images[~images["pair"].isin(bad)]
        if images.empty:
            raise ValueError("People found too few attributes: no pair is left. Lower --min-yes, or generate others.")
    with OutputFolder("substitute-export", options.out, options.identity(), overwrite=options.overwrite) as folder:
        _write(folder, images, options)
        if ratings is not None:
            with folder.file(ANSWERS) as path:
                write_csv(ratings, path)
    parts.append(f"{len(images)} images of {images['pair'].nunique()} pairs written.")
    return "\n".join([*parts, str(folder.path)])


def read_ratings(files: Sequence[Path]) -> pd.DataFrame:
    """Return a row for each answer: annotator, pair, image, and whether it found the attribute and the bird."""
    rows = []
    for file in files:
        records = read_json(file, "File of answers")
        try:
            for record in records:
                rows += [_row(record, votes, file) for votes in record[VOTES]]
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file} is not what the page of `substitute sheet` saves ({error!r}).") from None
    columns = ["annotator", "pair", "image", "found", "faithful"]
    table = pd.DataFrame([row for row in rows if row is not None], columns=columns)
    if table.empty:
        raise ValueError("Expected argument `--ratings` to hold answers but it holds none.")
    return table.drop_duplicates(["annotator", "image"], keep="last")


def _row(record: dict[str, Any], votes: dict[str, Any], file: Path) -> tuple[Any, ...] | None:
    # One page asks whether the attribute is there, the other one which of the group is.
    option = record["attribute"].partition("--")[2]
    correct = [votes[name] == right for name, right in ((ATTRIBUTE, YES), (CHOICE, option)) if name in votes]
    if not correct:
        return None
    faithful = float(votes[BIRD] == YES) if BIRD in votes else float("nan")
    return votes.get("annotator") or file.stem, record["pair"], record["image"], float(correct[0]), faithful


def _write(folder: OutputFolder, images: pd.DataFrame, options: ExportOptions) -> None:
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    birds, attributes = sorted(set(images["bird"])), sorted(set(images["attribute"]))
    schema = schema_of(attributes, birds, licence="")
    n_files = -(-len(images) // options.rows_per_file)
    with progress(total=len(images), description="writing", unit="image", show=options.progress) as bar:
        for number in range(n_files):
            rows = images.iloc[number * options.rows_per_file : (number + 1) * options.rows_per_file]
            name = f"{FOLDER}/test-{number:05d}-of-{n_files:05d}.parquet"
            with folder.file(name) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
                for start in range(0, len(rows), ROWS_AT_ONCE):
                    part = rows.iloc[start : start + ROWS_AT_ONCE]
                    pictures = [
                        {"bytes": (options.generated / place).read_bytes(), "path": place.replace("/", "-")}
                        for place in part["image"]
                    ]
                    columns = {
                        IMAGE: pictures,
                        ATTRIBUTE_LABEL: [attributes.index(name) for name in part["attribute"]],
                        BIRD_LABEL: [birds.index(name) for name in part["bird"]],
                    }
                    writer.write_table(pa.table(columns, schema=schema))
                    bar.update(len(part))
