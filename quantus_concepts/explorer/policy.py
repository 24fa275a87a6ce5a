"""What a page may load and execute: nothing but what is in it, and of scripts only its own."""

from __future__ import annotations

import base64
import hashlib


def content_policy(script: str = "") -> str:
    """Return the Content-Security-Policy of a page whose one script is this text, or that has none."""
    digest = base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )
