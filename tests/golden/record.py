"""Record what the small runs give, or compare with what was recorded to the bit.

`python tests/golden/record.py [names]` writes; `python tests/golden/record.py --compare [names]` compares, and ends
with 1 where something differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
# As pytest does: the tests' helpers are imported by their own names.
sys.path[:0] = [str(HERE.parent)]

import pandas as pd  # noqa: E402
import torch  # noqa: E402

from golden.compare import Renamed, differences, repeated  # noqa: E402
from golden.runs import RUNS, keys_of, read_table, tables_of  # noqa: E402

RECORDED = HERE / "recorded"


def record(name: str, tables: dict[str, pd.DataFrame], out: Path) -> str:
    """Write the tables of a run, in the order of their keys, and say how many rows they have."""
    for file, frame in tables.items():
        keys = keys_of(name, file, frame)
        if again := repeated(frame, keys):
            raise ValueError(f"{again} rows of {name}/{file} have the keys {keys} of another.")
        path = out / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.sort_values(keys).to_csv(path, index=False)
    return ", ".join(f"{file} of {len(frame)} rows" for file, frame in tables.items())


def compare(name: str, tables: dict[str, pd.DataFrame], renamed: Renamed, more_rows: bool, n_lines: int) -> bool:
    """Print what differs from what was recorded, and return whether nothing does."""
    good = True
    for file in RUNS[name].tables:
        recorded = renamed.applied(read_table(RECORDED / name / file))
        keys = [renamed.columns.get(key, key) for key in keys_of(name, file, tables[file])]
        wrong, notes = differences(recorded, tables[file], keys, more_rows=more_rows)
        print(f"{name}/{file}: {f'{len(wrong)} differences' if wrong else f'identical, {len(recorded)} rows'}")
        for line in [*wrong[:n_lines], *notes[:n_lines]]:
            print(f"    {line}")
        good &= not wrong
    return good


def read_tables(name: str, folder: Path, renamed: Renamed) -> dict[str, pd.DataFrame]:
    """Read the tables of a run from a folder that holds them, or that holds a folder of the run's name."""
    place = folder / name if (folder / name).is_dir() else folder
    return {file: read_table(place / renamed.files.get(file, file)) for file in RUNS[name].tables}


def main() -> int:
    """Run, and record or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RUNS)}; by default all")
    parser.add_argument("--out", type=Path, default=RECORDED, help="folder to record into")
    parser.add_argument("--compare", action="store_true", help="compare, and write nothing")
    parser.add_argument("--given", type=Path, help="compare tables of this folder, and run nothing")
    parser.add_argument("--renamed", nargs="*", default=[], help="old.csv=new.csv, column=new, column:text=new; or =")
    parser.add_argument("--more-rows", action="store_true", help="new rows are no difference")
    parser.add_argument("--shown", type=int, default=10, help="differences printed of each table")
    options = parser.parse_args()
    unknown = set(options.names) - set(RUNS)
    if unknown:
        parser.error(f"no runs: {', '.join(sorted(unknown))}")
    renamed = Renamed.read(options.renamed)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    warnings.simplefilter("ignore")
    good, done = True, set[str]()
    with tempfile.TemporaryDirectory() as place:
        for name in options.names or RUNS:
            started = time.monotonic()
            if options.given is not None:
                tables = read_tables(name, options.given, renamed)
            else:
                tables = tables_of(name, Path(place), done)
                print(f"{name}: {time.monotonic() - started:.1f} s", flush=True)
            if options.compare or options.given is not None:
                good &= compare(name, tables, renamed, options.more_rows, options.shown)
            else:
                print(f"    {record(name, tables, options.out)}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
