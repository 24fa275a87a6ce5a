"""Record what the small runs give, or compare with what was recorded to the bit.

`python tests/golden/record.py [names]` writes; `python tests/golden/record.py --compare [names]` compares, and ends
with 1 where something differs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
# As pytest does: the tests' helpers are imported by their own names.
sys.path[:0] = [str(HERE.parent)]

import pandas as pd  # noqa: E402
import torch  # noqa: E402

from golden.compare import differences  # noqa: E402
from golden.runs import RUNS, keys_of, read_table, tables_of  # noqa: E402

RECORDED = HERE / "recorded"


def record(name: str, tables: dict[str, pd.DataFrame]) -> str:
    """Write the tables of a run, in the order of their keys, and say how many rows they have."""
    for file, frame in tables.items():
        keys = keys_of(name, file, frame)
        if again := int(frame.duplicated(keys).sum()):
            raise ValueError(f"{again} rows of {name}/{file} have the keys {keys} of another.")
        path = RECORDED / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.sort_values(keys).to_csv(path, index=False)
    return ", ".join(f"{file} of {len(frame)} rows" for file, frame in tables.items())


def compare(name: str, tables: dict[str, pd.DataFrame]) -> bool:
    """Print what differs from what was recorded, and return whether nothing does."""
    good = True
    for file, frame in tables.items():
        recorded = read_table(RECORDED / name / file)
        wrong, notes = differences(recorded, frame, keys_of(name, file, frame))
        print(f"{name}/{file}: {f'{len(wrong)} differences' if wrong else f'identical, {len(recorded)} rows'}")
        for line in [*wrong[:10], *notes[:10]]:
            print(f"    {line}")
        good &= not wrong
    return good


def main() -> int:
    """Run, and record or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"of {', '.join(RUNS)}; by default all")
    parser.add_argument("--compare", action="store_true", help="compare, and write nothing")
    options = parser.parse_args()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    warnings.simplefilter("ignore")
    good, done = True, set[str]()
    with tempfile.TemporaryDirectory() as place:
        for name in options.names or RUNS:
            tables = tables_of(name, Path(place), done)
            if options.compare:
                good &= compare(name, tables)
            else:
                print(f"{name}: {record(name, tables)}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
