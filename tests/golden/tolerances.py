"""How far values of the small runs may lie from those recorded.

Other processors and other kernels round float32 differently, and a training amplifies that. What other kernels gave
(``MKL_CBWR=COMPATIBLE``, and others in some runs) is noted with each tolerance, which is wider.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

#: Only whether there is a value is compared.
ANY = math.inf


@dataclass(frozen=True)
class Tolerance:
    """How far values may lie apart; text and NaN have to be the same."""

    absolute: float = 1e-6
    relative: float = 0.0
    #: Columns, counts above all, that have to be equal.
    exact: tuple[str, ...] = ()
    #: A metric's, a measure's or a method's name, or a column's -> the absolute tolerance in place of the others.
    loose: Mapping[str, float] = field(default_factory=dict)
    #: What the keys of rows begin with whose text is not compared: pictures, in which a value may be rounded up.
    pictures: str = ""

    def same(self, row: Mapping[str, str], column: str, recorded: str, current: str) -> bool:
        """Whether a value found in a row counts as the one recorded."""
        if recorded == current or (self.pictures and any(name.startswith(self.pictures) for name in row.values())):
            return True
        try:
            was, now = float(recorded), float(current)
        except ValueError:
            return False
        loose = [self.loose[name] for name in (column, *row.values()) if name in self.loose]
        if loose:
            return abs(now - was) <= max(loose)
        return column not in self.exact and abs(now - was) <= self.absolute + self.relative * abs(was)


COUNTS = ("n", "undefined", "unconverged", "seeds", "missing")
#: Random maps are seeded by the bits of the model's weights, so that other kernels give other maps.
RANDOM = {"random": ANY}
#: Shares of a few images, which flip, and patches, whose optimisation runs away from another at each step.
FEW = {"IDR": ANY, "IIR": ANY, "perturbation": ANY}
#: Correlations with the marked pixels of a network that was trained on 2000 images: 0.07 seen.
MARKED = {f"Faithfulness ({kind})": 0.3 for kind in ("ROAD", "black", "uniform", "Gaussian")}
#: Rows of a table of explainers into which the random one enters.
OF_ALL = {"SCC": 0.8, "PCC": 0.5, "SCC of means": 0.3, "share between": 0.4, "all": 0.5}
#: Ends of random ranges, which depend on the random explainer too: 0.0053 seen (``ONEDNN_MAX_CPU_ISA=AVX2``).
RANGES = {"random_low": 0.03, "random_high": 0.03}

TOLERANCES = {
    # 3.3e-5 seen, of CGIM; one of 18 images, of settings of the bank.
    ("concepts", "results.csv"): Tolerance(1e-3, exact=COUNTS, loose={"setting": 0.12}),
    # One of 24 pairs seen.
    ("substitution", "results.csv"): Tolerance(1e-3, exact=COUNTS, loose={"class kept": 0.12}),
    # 72 steps of training: 0.016 of MCS, 0.04 of robustness seen.
    ("attribution", "results.csv"): Tolerance(0.1, exact=COUNTS, loose=RANDOM | FEW | {"robustness": 0.2}),
    # None seen; the divergences are written with two digits.
    ("attribution", "premises.csv"): Tolerance(2e-3, relative=0.01),
    # Four images: 0.11 of MCS, 0.10 of relative MCS seen.
    ("attribution-relative", "results.csv"): Tolerance(0.4, exact=COUNTS, loose=RANDOM | FEW),
    # 1.3e-5 seen.
    ("pasta", "results.csv"): Tolerance(1e-3, exact=COUNTS),
    ("pasta", "metrics.csv"): Tolerance(2e-3, exact=COUNTS, loose=RANDOM | OF_ALL | MARKED | RANGES),
    # 0.29 seen of means of six images in [-1, 1].
    ("pasta", "faithfulness.csv"): Tolerance(ANY, exact=COUNTS),
    # 0.03 seen.
    ("pasta", "steering.csv"): Tolerance(0.15, exact=COUNTS),
    # None seen; an image may choose another explainer.
    ("pasta", "wins.csv"): Tolerance(1),
    # 1.1e-5 seen.
    ("pasta-train", "results.csv"): Tolerance(1e-3, exact=COUNTS),
    # 1e-4 seen, the last digit written.
    ("pasta-score", "scores.csv"): Tolerance(2e-3),
    ("pasta-score", "maps.csv"): Tolerance(2e-3),
    # A pixel of one picture seen.
    ("pasta-sheet", "files.csv"): Tolerance(pictures="explanations/"),
    # 3.5e-5 seen.
    ("pasta-ablate", "results.csv"): Tolerance(1e-3, exact=COUNTS),
    ("pasta-ablate", "splits.csv"): Tolerance(1e-3, exact=COUNTS),
    # 5e-7 seen of methods that are not random.
    ("metrics", "summary.csv"): Tolerance(1e-4, exact=COUNTS, loose=RANDOM | {"control": ANY}),
    ("metrics", "scores.csv"): Tolerance(1e-4, loose=RANDOM),
}


def tolerance_of(name: str, file: str) -> Tolerance:
    """Return the tolerance of a file of a run."""
    return TOLERANCES.get((name, file), Tolerance(1e-4))
