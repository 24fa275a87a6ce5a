"""What to cite: the BibTeX of the metrics that a report has, and of this package."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterable
from importlib import resources

PACKAGE = "quantus_concepts"
#: How the names of a paper's metrics, or of the commands that are about it, begin.
PAPERS = {
    "aysel2025conceptbased": "CEM|CGIM|CLM|part specificity",
    "bader2025sub": r"S\+|S-",
    "yang2019bim": "MCS|IDR|IIR",
    "kazmierczak2024benchmarking": "pasta|benchmark pasta|PASTA-score|Faithfulness",
}


def bibtex(names: Iterable[object]) -> str:
    """Return the entries of the papers of metrics or commands, by their names, and of this package."""
    text = resources.files(__package__).joinpath("references.bib").read_text(encoding="utf-8")
    text = text.replace("VERSION", importlib.metadata.version("quantus-concepts"))
    about = [str(name) for name in names]
    used = {PACKAGE, *(key for key, pattern in PAPERS.items() if any(re.match(pattern, name) for name in about))}
    entries = re.finditer(r"^@\w+{(\w+),.*?^}", text, re.MULTILINE | re.DOTALL)
    return "\n\n".join(entry[0] for entry in entries if entry[1] in used)
