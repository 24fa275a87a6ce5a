"""The work of `substitute export`: the images that were kept, in the format in which SUB is published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from captum_concepts.support.files import read_json
from captum_concepts.support.progress import progress
from quantus_concepts.datasets.substitution.sub_files import ATTRIBUTE as ATTRIBUTE_LABEL
from quantus_concepts.datasets.substitution.sub_files import BIRD as BIRD_LABEL
from quantus_concepts.datasets.substitution.sub_files import FOLDER, IMAGE, arrow, schema_of
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies.substitute.page import ATTRIBUTE, BIRD, CHOICE, YES

ANSWERS = "answers.csv"
#: Key of the answers in a record of a file that a person saved.
VOTES = "Annotation"
#: Images of a row group, the smallest part that is read.
ROWS_AT_ONCE = 100


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
        raise ValueError("Expected `--ratings` to hold answers but it holds none.")
    return table.drop_duplicates(["annotator", "image"], keep="last")


def _row(record: dict[str, Any], votes: dict[str, Any], file: Path) -> tuple[Any, ...] | None:
    # One page asks whether the attribute is there, the other one which of the group is.
    option = record["attribute"].partition("--")[2]
    correct = [votes[name] == right for name, right in ((ATTRIBUTE, YES), (CHOICE, option)) if name in votes]
    if not correct:
        return None
    faithful = float(votes[BIRD] == YES) if BIRD in votes else float("nan")
    return votes.get("annotator") or file.stem, record["pair"], record["image"], float(correct[0]), faithful


def answers_text(answers: pd.DataFrame) -> str:
    """Return the answers as CSV; a name that a spreadsheet would compute gets a ' in front."""
    names = answers["annotator"].str.replace(r"^(?=[=+\-@\t\r])", "'", regex=True)
    return answers.assign(annotator=names).to_csv(index=False)


def write_parquet(
    folder: RunFolder, images: pd.DataFrame, root: Path, rows_per_file: int, *, show_progress: bool
) -> None:
    """Write images of the folder `root`."""
    pa, parquet = arrow(), arrow("pyarrow.parquet")
    birds, attributes = sorted(set(images["bird"])), sorted(set(images["attribute"]))
    schema = schema_of(attributes, birds, licence="")
    n_files = -(-len(images) // rows_per_file)
    with progress(total=len(images), description="writing", unit="image", show=show_progress) as bar:
        for number in range(n_files):
            rows = images.iloc[number * rows_per_file : (number + 1) * rows_per_file]
            name = f"{FOLDER}/test-{number:05d}-of-{n_files:05d}.parquet"
            with folder.file(name) as temporary, parquet.ParquetWriter(temporary, schema) as writer:
                for start in range(0, len(rows), ROWS_AT_ONCE):
                    part = rows.iloc[start : start + ROWS_AT_ONCE]
                    pictures = [
                        {"bytes": (root / place).read_bytes(), "path": place.replace("/", "-")}
                        for place in part["image"]
                    ]
                    columns = {
                        IMAGE: pictures,
                        ATTRIBUTE_LABEL: [attributes.index(name) for name in part["attribute"]],
                        BIRD_LABEL: [birds.index(name) for name in part["bird"]],
                    }
                    writer.write_table(pa.table(columns, schema=schema))
                    bar.update(len(part))
