"""The report of a study: findings, sections of tables and charts, settings; one HTML file with everything in it."""

from __future__ import annotations

import base64
import importlib.metadata
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from quantus_concepts.studies._kit.charts import Chart, png
from quantus_concepts.studies._kit.findings import Finding
from quantus_concepts.studies._kit.tables import Table

PACKAGES = ("quantus-concepts", "quantus", "captum", "torch", "torchvision", "scikit-learn", "numpy")


@dataclass(frozen=True)
class Section:
    """A heading, text, tables and charts (`beside` each other where there is room), and what is folded away."""

    heading: str
    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Chart] = ()
    folded: Sequence[Table] = ()
    after: str = ""
    beside: bool = False


@dataclass
class Page:
    """A report as a study declares it.

    `answers` are one short line each, before the findings with all intervals; the terminal shows them with the tables
    of `main` and the findings of `printed`. `template` may extend ``page.html.j2`` from
    the study's own folder, and gets `content` as well as what every page has; `banner` comes first. `metrics`
    are those that the site explains: by name, the page in its folder ``metrics``.
    """

    title: str
    findings: Sequence[Finding]
    sections: Sequence[Section]
    main: Sequence[Table] = ()
    printed: Sequence[Finding] = ()
    answers: Sequence[Finding] = ()
    banner: str = ""
    source: str = ""
    metrics: Mapping[str, str] = field(default_factory=dict)
    template: str = "page.html.j2"
    content: Mapping[str, Any] = field(default_factory=dict)

    @property
    def charts(self) -> list[Chart]:
        """All charts, in order."""
        return [chart for section in self.sections for chart in section.charts]


def render(
    page: Page,
    *,
    settings: Mapping[str, Any],
    notes: Sequence[str],
    files: Sequence[str],
    pictures: Mapping[str, bytes] | None = None,
    created: datetime | None = None,
) -> str:
    """Return the report as one self-contained HTML document; `pictures` are those of the charts where they exist."""
    pictures = pictures or {chart.name: png(chart.figure) for chart in page.charts}
    embedded = {name: base64.b64encode(picture).decode("ascii") for name, picture in pictures.items()}
    return render_page(
        page.template,
        page=page,
        title=page.title,
        created=f"{created or datetime.now():%d %B %Y, %H:%M}",
        pictures=embedded,
        settings=settings,
        notes=notes,
        versions=versions(),
        files=files,
        site=site_address(),
        **page.content,
    )


def render_page(template: str, **content: Any) -> str:
    """Render a template of ``studies/templates`` or of a study's folder, ``concepts/page.html.j2``."""
    environment = Environment(
        loader=ChoiceLoader(
            [PackageLoader("quantus_concepts.studies", "templates"), PackageLoader("quantus_concepts.studies", "")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template(template).render(**({"signs": _signs} | content))
    # A file's name need not be text; in a string of JavaScript or JSON this writes it as it was.
    return page.encode("utf-8", "backslashreplace").decode("utf-8")


def _signs(text: str) -> Markup:
    """Escape a text, and keep a number and its sign of percent on one line."""
    return escape(text).replace(" %", "\u00a0%")


def site_address() -> str:
    """Return where the site of this version is."""
    about = importlib.metadata.metadata("quantus-concepts")
    urls = dict(url.split(", ", 1) for url in about.get_all("Project-URL") or ())
    return f"{urls['Documentation']}/{about['Version']}"


def versions() -> dict[str, str]:
    """Return versions by name, of Python, the platform and the packages that are installed."""
    versions_of = {"Python": platform.python_version(), "platform": platform.platform()}
    for package in PACKAGES:
        try:
            versions_of[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:  # run from a checkout
            continue
    return versions_of
