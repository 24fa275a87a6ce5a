"""The search of the built site finds what people type, in a real browser. `tox` builds the site and names it."""

from __future__ import annotations

import functools
import http.server
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

SITE = os.environ.get("DOCS_SITE", "")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = pytest.mark.skipif(
    not (SITE and CHROMIUM), reason="needs a built site (DOCS_SITE, as tox sets it) and Chromium"
)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=SITE))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


# What people type, also where the page says it in other words, and the pages of which one is among the first three.
@pytest.mark.parametrize(
    ("query", "pages"),
    {
        "heat map": ("visualise",),
        "confidence interval": ("faq", "interval", "quantus", "compare"),
        "torchmetrics": ("training-loops", "comparison"),
        "license": ("faq",),
        "own dataset": ("own_images", "faq"),
        "add a metric": ("contributing",),
    }.items(),
)
def test_search_finds_the_page_among_the_first_three(
    query: str, pages: tuple[str, ...], address: str, tmp_path: Path
) -> None:
    page = f"{address}/search.html?q={query.replace(' ', '+')}"
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--virtual-time-budget=8000",
    ]
    run = subprocess.run([str(CHROMIUM), *options, "--dump-dom", page], capture_output=True, text=True, timeout=120)
    results = re.findall(r'<li[^>]*class="kind-[^"]*"[^>]*>\s*<a href="([^"?#]+)', run.stdout)
    first_pages = list(dict.fromkeys(results))[:3]
    assert any(name in link for link in first_pages for name in pages), first_pages
