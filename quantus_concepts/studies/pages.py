"""Rendering of the reports' templates."""

from __future__ import annotations

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined


def render_page(template: str, **content: Any) -> str:
    """Render a template of ``benchmark/templates``."""
    environment = Environment(
        loader=PackageLoader("quantus_concepts.studies", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(template).render(**content)
