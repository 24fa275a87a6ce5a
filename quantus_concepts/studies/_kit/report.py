"""A report: a table of verdicts, one picture, tables and galleries; also written as CSV, LaTeX, PNG and SVG."""

from __future__ import annotations

import base64
import importlib.metadata
import itertools
import math
import platform
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pandas as pd
import typer
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from captum_concepts.support.files import printable
from captum_concepts.support.log import LOG
from captum_concepts.support.running import hide_bars
from quantus_concepts.explorer.policy import content_policy
from quantus_concepts.results.tables import escape_latex
from quantus_concepts.results.verdicts import verdict_of
from quantus_concepts.studies._kit.folder import REPORT, RunFolder
from quantus_concepts.studies._kit.plots import png, svg
from quantus_concepts.studies._kit.references import bibtex

PACKAGES = ("quantus-concepts", "quantus", "captum", "torch", "torchvision", "scikit-learn", "numpy")
#: Columns of a table's CSV that are numbers.
_NUMBERS = ("value", "low", "high", "random_low", "random_high", "n")
#: Columns, names of rows included, for which a telephone is wide enough.
_FIT = 4
#: Letters of \footnotesize that a page of a paper is wide, those between columns, and how wide \scriptsize is to it.
_PAGE, _GAP, _SMALL = 114, 1.5, 0.8

Writer = Callable[[float], str]


#: How reports write the names of concepts.
def number(value: float, decimals: int = 2) -> str:
    """Write a number with a true minus; "–" where it is not defined."""
    return "–" if value is None or math.isnan(value) else f"{value:z.{decimals}f}".replace("-", "−")


def three(value: float) -> str:
    """Write a number with three decimals."""
    return number(value, 3)


def percent(value: float) -> str:
    """Write a share in percent, without the sign."""
    return number(100 * value, 1)


@dataclass(frozen=True)
class Verdict:
    """The answer of one number to one question, against the range of its random baselines.

    `text` is shown in place of above, within or below, and `why` beside it.
    """

    question: str
    value: float
    low: float = math.nan
    high: float = math.nan
    random_low: float = math.nan
    random_high: float = math.nan
    write: Writer = percent
    text: str = ""
    why: str = ""

    @classmethod
    def of(
        cls,
        question: str,
        row: Mapping[Hashable, float] | pd.Series | None,
        *,
        write: Writer = percent,
        text: str = "",
    ) -> Verdict:
        """Return the verdict of a row with ``value, low, high`` and, where known, ``random_low, random_high``.

        A ``verdict`` of the row stands, and its ``why``.
        """
        row = {} if row is None else row
        text = text or str(row.get("verdict", ""))
        why = str(row.get("why") or "")
        value, low, high, random_low, random_high = (float(row.get(name, math.nan)) for name in _NUMBERS[:5])
        return cls(question, value, low, high, random_low, random_high, write, text, why)

    @property
    def verdict(self) -> str:
        """Above, within or below the random range; "–" without one."""
        return self.text or verdict_of({name: getattr(self, name) for name in _NUMBERS[:5]})

    @property
    def cells(self) -> tuple[str, str, str, str, str]:
        """Question with the reason, number, interval, random range, verdict, as they are shown."""
        return (
            f"{self.question} ({self.why})" if self.why else self.question,
            self.write(self.value) + " %" * (self.write is percent and not math.isnan(self.value)),
            span(self.low, self.high, self.write),
            span(self.random_low, self.random_high, self.write),
            self.verdict,
        )


def span(low: float, high: float, write: Writer) -> str:
    """Write the ends of an interval; nothing where there is none."""
    return "" if math.isnan(low) or math.isnan(high) else f"{write(low)} to {write(high)}"


@dataclass(frozen=True)
class Table:
    """A table over a tidy frame: which columns make its rows, and which its columns.

    A cell shows ``value``, below it ``low`` to ``high`` in small type. Rows and columns keep the order of the frame,
    that of a categorical column its own. The columns ``text`` and ``verdict`` of the frame stand in place of a number
    and of above or below; ``best`` marks a number, ``wrong`` shows it in red.
    """

    name: str
    title: str
    frame: pd.DataFrame
    rows: Sequence[str]
    columns: Sequence[str]
    write: Writer | Mapping[str, Writer] = percent
    caption: str = ""

    @property
    def _cells(self) -> pd.DataFrame:
        frame = self.frame.assign(**{end: self.frame.get(end, math.nan) for end in _NUMBERS[1:5]})
        texts = frame.get("text", pd.Series("", frame.index)).astype(object)
        return frame[frame["value"].notna() | (texts.notna() & (texts != ""))]

    @property
    def is_empty(self) -> bool:
        """Whether the table has no cell."""
        return self._cells.empty

    def _pivot(self, cells: pd.Series) -> pd.DataFrame:
        keys = [*self.rows, *self.columns]
        frame = self._cells[keys].assign(cell=cells)
        if (again := frame.duplicated(keys)).any():
            raise ValueError(
                f"Expected table {self.name!r} to have one row for each {keys} but {int(again.sum())} are there again: "
                f"{frame.loc[again, keys].iloc[0].to_list()}."
            )
        orders = {key: _order(frame[key]) for key in keys}
        wide = frame.pivot(index=list(self.rows), columns=list(self.columns), values="cell")
        for axis, names in (("index", self.rows), ("columns", self.columns)):
            labels = sorted(
                getattr(wide, axis),
                key=lambda label, names=names: [  # type: ignore[misc]
                    orders[name].index(part)
                    for name, part in zip(names, label if isinstance(label, tuple) else (label,), strict=True)
                ],
            )
            wide = wide.reindex(**{axis: pd.MultiIndex.from_tuples(labels) if len(names) > 1 else labels})
        return wide.rename_axis(index=[None] * len(self.rows), columns=[None] * len(self.columns)).fillna("")

    def _written(self, cell: Callable[[str, str, str], str]) -> pd.DataFrame:
        frame = self._cells
        texts = []
        for _, row in frame.iterrows():
            write = self.write if callable(self.write) else self.write.get(row["metric"], number)
            text = row.get("text")
            shown = text if isinstance(text, str) and text else write(row["value"])
            mark = next((name for name in ("wrong", "best") if row.get(name) is True), "")
            texts.append(cell(shown, span(row["low"], row["high"], write), mark))
        return self._pivot(pd.Series(texts, frame.index, dtype=object))

    @property
    def html(self) -> Markup:
        """The table as HTML, by pandas."""

        def cell(text: str, small: str, mark: str) -> str:
            shown = Markup({"best": "<b>{}</b>", "wrong": '<b class="bad">{}</b>', "": "{}"}[mark]).format(text)
            return str(shown + Markup("<small>{}</small>").format(small) if small else shown)

        wide = self._written(cell)
        is_cards = wide.index.nlevels + wide.shape[1] > _FIT
        if is_cards:
            _name_cells(wide)
        styler = wide.style.format_index(escape=None if is_cards else "html")
        styler = styler.format_index(escape="html", axis="columns")
        kind = "numbers cards" if is_cards else "numbers"
        attributes = Markup('class="{}" aria-label="{}"').format(kind, self.title)
        options = {"table_uuid": f"T{self.name}", "cell_ids": False, "sparse_index": not is_cards}
        return Markup(styler.to_html(table_attributes=attributes, **options))

    @property
    def latex(self) -> str:
        """The table in LaTeX, with the rules of booktabs; one that is wider than a page as parts below each other."""
        widths: list[float] = []

        def cell(text: str, small: str, mark: str) -> str:
            widths.append(len(text) + (_SMALL * len(f" ({small})") if small else 0))
            shown = rf"\textbf{{{escape_latex(text)}}}" if mark else escape_latex(text)
            return rf"{shown} {{\scriptsize ({escape_latex(small)})}}" if small else shown

        plain = self._written(cell)
        wide = plain.rename(index=escape_latex, columns=escape_latex)
        of_cells = self._pivot(pd.Series(widths, self._cells.index, dtype=object)).replace("", 0.0)
        lines = [r"\begin{table}", r"\centering\footnotesize\setlength{\tabcolsep}{3pt}"]
        lines += [rf"\caption{{{escape_latex(self.title)}}}", rf"\label{{tab:{self.name}}}"]
        for number_of_part, columns in enumerate(_parts(of_cells)):
            lines += [r"\par\medskip"] if number_of_part else []
            part = wide.iloc[:, columns]
            # Rows of several levels without the package multirow.
            lines += (
                part[(part != "").any(axis=1)]
                .style.to_latex(hrules=True, multirow_align="naive", multicol_align="c")
                .splitlines()
            )
        return "\n".join([*lines, r"\end{table}"]) + "\n"

    @property
    def csv(self) -> str:
        """The table's numbers, one a row, with interval, random range and verdict."""
        frame = self._cells
        frame = frame[frame["value"].notna()]
        rows = frame.to_dict("records")
        said = [row.get("verdict") for row in rows]
        verdicts = [
            text if isinstance(text, str) else Verdict.of("", row).verdict for text, row in zip(said, rows, strict=True)
        ]
        columns = [*self.rows, *self.columns, *(name for name in _NUMBERS if name in self.frame)]
        written = frame[list(dict.fromkeys(columns))].assign(verdict=verdicts)
        return (written.assign(why=frame["why"]) if "why" in frame else written).to_csv(index=False)


def _parts(widths: pd.DataFrame) -> list[list[int]]:
    """Return the columns of each part of a table that fits on a page, by the widths of its cells in letters.

    Columns under one head stay together where they fit.
    """

    def letters(labels: Iterable[Any]) -> list[int]:
        """Return the longest name of each level."""
        rows = [label if isinstance(label, tuple) else (label,) for label in labels]
        return [max(len(str(name)) for name in level) for level in zip(*rows, strict=True)]

    names = widths.columns
    fit = _PAGE - sum(width + _GAP for width in letters(widths.index))
    columns = [max(widths.iloc[:, at].max(), letters([label])[-1]) + _GAP for at, label in enumerate(names)]
    heads = [label[0] if isinstance(label, tuple) else at for at, label in enumerate(names)]

    def width_of(part: list[int]) -> float:
        by_head = itertools.groupby(part, heads.__getitem__)
        return sum(max(sum(columns[at] for at in under), len(f"{head}")) for head, under in by_head)

    parts: list[list[int]] = [[]]
    for _, numbers in itertools.groupby(range(len(columns)), heads.__getitem__):
        group = list(numbers)
        for some in [group] if width_of(group) <= fit else [[at] for at in group]:
            if parts[-1] and width_of(parts[-1] + some) > fit:
                parts.append([])
            parts[-1] += some
    return parts


def _name_cells(wide: pd.DataFrame) -> None:
    """Give each cell the name of its column and each row all its names: on a narrow screen a row is a card.

    Names of columns, and names of rows that the row above has too, are seen on a narrow screen alone.
    """
    for position, label in enumerate(wide.columns):
        name = ", ".join(filter(None, map(str, label if isinstance(label, tuple) else (label,))))
        named = Markup('<span class="column">{}</span>').format(name)
        wide.isetitem(position, [str(named) + text if text else "" for text in wide.iloc[:, position]])
    if wide.index.nlevels == 1:
        wide.index = wide.index.map(lambda label: str(escape(label)))
        return
    rows, above = [], ()
    for row in wide.index:
        again = [row[: level + 1] == above[: level + 1] for level in range(len(row))]
        shown = (Markup('<span class="again">{}</span>' if is_above else "{}") for is_above in again)
        rows.append([str(text.format(label)) for text, label in zip(shown, row, strict=True)])
        above = row
    wide.index = pd.MultiIndex.from_tuples(rows)


def _order(column: pd.Series) -> list[Any]:
    return list(column.cat.categories) if isinstance(column.dtype, pd.CategoricalDtype) else list(dict.fromkeys(column))


@dataclass(frozen=True)
class Picture:
    """A figure of a report, with the caption below it; the file's name is `name`."""

    name: str
    figure: Figure
    caption: str = ""
    wide: bool = False


@dataclass(frozen=True)
class Section:
    """A heading, and tables and pictures below it; `folded` is shown on a click."""

    heading: str
    parts: Sequence[Table | Picture] = ()
    folded: Sequence[Table | Picture] = ()


def _filled(parts: Sequence[Table | Picture]) -> list[Table | Picture]:
    return [part for part in parts if isinstance(part, Picture) or not part.is_empty]


@dataclass(frozen=True)
class Report:
    """What a reader sees, in this order: verdicts, the picture that answers the main question, sections.

    `lead` says in a sentence what was evaluated, `subject` which model the verdicts are about. `reading` explains
    terms, and `banner` warns before everything else.
    """

    title: str
    verdicts: Sequence[Verdict]
    picture: Picture | None
    sections: Sequence[Section] = ()
    lead: str = ""
    reading: Mapping[str, str] = field(default_factory=dict)
    banner: str = ""
    links: Mapping[str, str] = field(default_factory=dict)
    subject: str = ""

    def __post_init__(self) -> None:
        """Leave out tables without a cell, and sections without anything."""
        sections = [Section(part.heading, _filled(part.parts), _filled(part.folded)) for part in self.sections]
        object.__setattr__(self, "sections", [part for part in sections if part.parts or part.folded])

    @property
    def parts(self) -> list[Table | Picture]:
        """All tables and pictures, in order."""
        first = [] if self.picture is None else [self.picture]
        return [*first, *(part for section in self.sections for part in (*section.parts, *section.folded))]


def write_report(folder: RunFolder, frame: pd.DataFrame, report: Report, more: Mapping[str, str] | None = None) -> None:
    """Write all numbers, tables, figures and, last, ``report.html``; print the verdicts.

    `more` are further settings that the page lists, the number of images for instance.
    """
    LOG.line(f"{folder.command}: report")
    folder.write("results.csv", frame.to_csv(index=False))
    names = ("question", *_NUMBERS[:5], "verdict", "why")
    verdicts = pd.DataFrame([[getattr(row, name) for name in names] for row in report.verdicts], columns=list(names))
    folder.write("tables/verdicts.csv", verdicts.to_csv(index=False))
    images = {}
    for part in report.parts:
        if isinstance(part, Table):
            folder.write(f"tables/{part.name}.csv", part.csv)
            folder.write(f"tables/{part.name}.tex", part.latex)
        else:
            drawn = svg(part.figure)
            images[part.name] = f"data:image/svg+xml;base64,{base64.b64encode(drawn).decode('ascii')}"
            folder.write(f"figures/{part.name}.svg", drawn)
            folder.write(f"figures/{part.name}.png", png(part.figure))
    page = render(
        "report.html.j2",
        title=report.title,
        report=report,
        images=images,
        settings={**folder.settings, **(more or {})},
        notes=folder.notes,
        versions=versions(),
        bibtex=bibtex([folder.command, *(metric for name in ("metric", "measure") for metric in frame.get(name, ()))]),
        created=f"{datetime.now():%d %B %Y, %H:%M}",
    )
    folder.write(REPORT, page)
    print_verdicts(report.verdicts, report.subject)


def print_verdicts(verdicts: Sequence[Verdict], subject: str = "") -> None:
    """Print the table of verdicts on a subject."""
    rows = [(subject, "value", "95 % interval", "random range", ""), *(verdict.cells for verdict in verdicts)]
    rows = [tuple(printable(cell) for cell in row) for row in rows]  # type: ignore[misc]
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    with hide_bars():
        for row in rows:
            first, *rest = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
            typer.echo("  ".join([first, *rest]).rstrip())


def render(template: str, script: str = "", **content: object) -> str:
    """Render a template of ``studies/templates`` or of a study's folder, ``pasta/sheet.html.j2``, and its script."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("quantus_concepts.studies", "templates"), PackageLoader("quantus_concepts.studies", "")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    source = environment.get_template(script).render() if script else ""
    policy = content_policy(source)
    return environment.get_template(template).render(signs=_signs, policy=policy, script=Markup(source), **content)


def _signs(text: str) -> Markup:
    """Escape a text, and keep a number and its sign of percent on one line."""
    return escape(text).replace(" %", "\u00a0%")


def versions() -> dict[str, str]:
    """Return versions by name, of Python, the platform and the packages that are installed."""
    known = {"Python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            known[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # run from a checkout
            continue
    return known
