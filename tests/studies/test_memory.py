"""The memory of a command's own process."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import numpy as np
from quantus_concepts.studies.app import keep_freed_memory

if sys.argv[1] == "keep":
    keep_freed_memory()
np.ones(4 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(8):
    np.ones(4 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone gives memory back at once")
def test_a_command_keeps_the_memory_of_freed_arrays(monkeypatch):
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)

    def faults(how):
        return int(subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True).stdout)

    kept = faults("keep")
    assert kept < faults("not") / 4
    # What the user has set stays.
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert faults("keep") > 4 * kept
