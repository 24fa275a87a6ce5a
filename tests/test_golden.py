"""The small runs of every command and every metric give what was recorded, as far as other kernels may round it.

Every command that keeps what is expensive is interrupted once and goes on. To the bit it is compared by
``tests/golden/record.py --compare``, on the machine that recorded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from golden.compare import differences
from golden.record import RECORDED
from golden.runs import RUNS, keys_of, read_table, tables_in
from golden.tolerances import Tolerance, tolerance_of


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_recorded(name: str, golden: Callable[[str], Path]) -> None:
    for file, frame in tables_in(name, golden(name).parent).items():
        recorded = read_table(RECORDED / name / file)
        tolerance = tolerance_of(name, file)
        wrong, _ = differences(recorded, frame, keys_of(name, file, frame), tolerance.same)
        assert not wrong, "\n".join([f"{name}/{file}: {len(wrong)} differences", *wrong[:10]])


def table(**columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"method": ["a", "b"], "value": ["0.5", ""], "n": ["3", "0"]} | columns)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (table(value=["0.6", ""]), "method a: value was 0.5, is 0.6"),
        (table(value=["", ""]), "method a: value was 0.5, is NaN"),
        (table(value=["0.5", "0.1"]), "method b: value was NaN, is 0.1"),
        (table(method=["a", "c"]), "1 rows are missing: method b"),
        (table(n=["4", "0"]), "method a: n was 3.0, is 4.0"),
        (table().iloc[:1], "1 rows are missing: method b"),
        (pd.concat([table(), table().iloc[:1]]), "1 new rows: method a"),
        (pd.concat([table(), table(method=["c", "d"])]), "new row: c"),
        (table().drop(columns="n"), "column 'n' is missing"),
    ],
)
def test_what_differs_is_found(changed: pd.DataFrame, message: str) -> None:
    wrong, _ = differences(table(), changed, ["method"], Tolerance(0.01, exact=("n",)).same)
    assert wrong[0].startswith(message)


def test_order_and_new_columns_are_no_difference() -> None:
    reordered = table(value=["0.505", "nan"]).iloc[::-1].assign(low="1")[["n", "low", "value", "method"]]
    assert differences(table(), reordered, ["method"], Tolerance(0.01).same) == ([], ["new column 'low'"])
    wrong, _ = differences(table(), reordered, ["method"])
    assert len(wrong) == 1
    assert math.isclose(float(wrong[0].split("is ")[1].split()[0]), 0.505)
