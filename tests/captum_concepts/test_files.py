"""Files of users: archives that grow, and what processes that ended left half-written."""

from __future__ import annotations

import os
from pathlib import Path

from captum_concepts.support.files import _PARTIAL, _host, clear_abandoned


def test_what_processes_that_are_gone_left_is_removed(tmp_path: Path) -> None:
    names = {
        process: tmp_path / f"{_PARTIAL}-{_host()}-{process}-0.png" for process in (os.getpid(), 2**22 + 1, 10**14)
    }
    for path in names.values():
        path.touch()
    clear_abandoned(tmp_path)
    assert [path for path in names.values() if path.exists()] == [names[os.getpid()]]
