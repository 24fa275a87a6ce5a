"""Pages in Debian's chromium, without a window: what they hold after a script has used them."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Helpers of the scripts. Keys go to what has the focus, as a person's do, and so through the page's own handlers.
HELPERS = """
const byId = (id) => document.getElementById(id);
const key = (name, more = {}) =>
  (document.activeElement ?? document.body).dispatchEvent(
    new KeyboardEvent("keydown", { key: name, bubbles: true, cancelable: true, ...more }));
const typed = (id, text) => {
  byId(id).focus();
  byId(id).value = text;
  byId(id).dispatchEvent(new Event("input", { bubbles: true }));
};
const begin = (name) => { typed("annotator", name); byId("begin").click(); };
// The file the page would download.
let blob = null, fileName = null;
URL.createObjectURL = (made) => { blob = made; return "blob:nothing"; };
HTMLAnchorElement.prototype.click = function () { fileName = this.download; };
const saved = async () => { byId("save").click(); return { name: fileName, text: await blob.text() }; };
const tell = (result) => parent.postMessage(result, "*");
"""

#: Visits one page after the other, in a frame, each for ten seconds at most.
INDEX = """<!DOCTYPE html><html><body><script>
(async () => {
  const told = {};
  for (const name of NAMES) {
    const frame = document.createElement("iframe");
    Object.assign(frame, { width: 1200, height: 900, src: `${name}.html` });
    told[name] = await new Promise((resolve) => {
      window.onmessage = (event) => resolve(event.data);
      setTimeout(() => resolve({ error: "no result" }), 10000);
      document.body.append(frame);
    });
    frame.remove();
  }
  const element = document.createElement("pre");
  element.id = "told";
  element.textContent = JSON.stringify(told);
  document.body.append(element);
})();
</script></body></html>"""


def find_chromium() -> str:
    """Return the browser; skips the test where there is none."""
    browser = next((path for name in NAMES if (path := shutil.which(name))), None)
    if browser is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium): the rating page is not tried.")
    return browser


@dataclass(frozen=True)
class Visit:
    """A page, and what is done on it: a script that passes its result to `tell`, once."""

    page: str
    script: str
    before: str = ""

    def driven(self) -> str:
        """Return the page with the script behind its own, and with another one before them."""
        start = '<script nonce="driver">'
        driver = (
            f"{start}{HELPERS}(async () => {{ try {{ {self.script} }} "
            "catch (error) { tell({ error: String(error.stack) }); } })();</script>"
        )
        # The page's policy allows its own script only.
        page = self.page.replace("script-src ", "script-src 'nonce-driver' ", 1)
        page = page.replace("<body>", f"<body>{start}{self.before}</script>")
        return page.replace("</body>", f"{driver}</body>")


def visit_all(visits: Mapping[str, Visit], folder: Path) -> dict[str, Any]:
    """Make all visits, one after the other in one browser, and return the result of each."""
    browser = find_chromium()
    for name, visit in visits.items():
        (folder / f"{name}.html").write_text(visit.driven(), encoding="utf-8")
    index = folder / "index.html"
    index.write_text(INDEX.replace("NAMES", json.dumps(list(visits))), encoding="utf-8")
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        f"--user-data-dir={folder / 'profile'}",
        "--virtual-time-budget=100000",
        "--dump-dom",
        index.as_uri(),
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    answer = re.search(r'<pre id="told">(.*?)</pre>', ran.stdout, re.DOTALL)
    if answer is None:
        raise AssertionError(f"The pages gave no result.\n{ran.stderr[-2000:]}\n{ran.stdout[-500:]}")
    answers: dict[str, Any] = json.loads(html.unescape(answer[1]))
    return answers
