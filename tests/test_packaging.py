"""What the project says of what it stands on is so: versions, licences, and what is never executed."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLES = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT, GROUPS = TABLES["project"], TABLES["dependency-groups"]
EXTRAS = PROJECT["optional-dependencies"]
#: What users install, and what tests need in addition; linters are pinned, and not run with the oldest versions, and
#: neither is diffusion, which needs newer versions of huggingface_hub and safetensors than the rest.
INSTALLED = [
    *PROJECT["dependencies"],
    *(requirement for name in ("cub", "coco", "blip", "ray", "cam", "sub") for requirement in EXTRAS[name]),
]
TESTING = [requirement for requirement in GROUPS["tests"] if requirement.startswith("pytest")]
SOURCES = sorted(path for folder in ("quantus_concepts", "adapters") for path in (ROOT / folder).rglob("*.py"))


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirement: str) -> str:
    return normal(re.split(r"[<>=!~\[; ]", requirement)[0])


def version_order(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)]


def test_every_dependency_has_a_lower_bound_and_is_tried_with_it() -> None:
    bounds = {}
    for requirement in (*INSTALLED, *TESTING):
        bound = re.search(r">=([\w.]+)", requirement)
        assert bound, f"{requirement} has no lower bound"
        bounds[named(requirement)] = max(bound[1], bounds.get(named(requirement), ""), key=version_order)
    lines = [line for line in (ROOT / "tests/oldest.txt").read_text("utf-8").splitlines() if line[:1] != "#"]
    pins = dict(line.split("==") for line in lines)
    assert {normal(name): version for name, version in pins.items()} == bounds


def test_extras_are_features_and_the_tools_of_developers_are_groups() -> None:
    features = {*EXTRAS} - {"all"}
    assert set(re.findall(r"\w+", EXTRAS["all"][0].partition("[")[2])) == features
    assert [group["include-group"] for group in GROUPS["dev"]] == ["lint", "tests", "docs"] == [*GROUPS][:-1]
    used = (ROOT / "tox.ini").read_text("utf-8")
    assert re.findall(r"dependency_groups =\n((?:    \w+\n)+)", used)[0].split() == [*GROUPS][:-1]
    # Which import names belong to which distribution.
    assert sorted(PROJECT["import-names"]) == ["captum_concepts", "quantus_concepts"]


def test_the_site_lists_the_licence_of_every_dependency() -> None:
    page = (ROOT / "docs" / "about.md").read_text("utf-8")
    table = page.partition("| package | licence |")[2].partition("\n\n")[0]
    listed = {normal(name) for line in table.splitlines() for name in re.findall(r"`([\w.-]+)`", line)}
    assert {named(requirement) for requirement in (*INSTALLED, *EXTRAS["diffusion"])} <= listed


def test_the_safe_versions_are_those_of_the_security_page() -> None:
    table = re.findall(r"^\| ([\w-]+) \| (\d[\w.]*) \|", (ROOT / "SECURITY.md").read_text("utf-8"), re.MULTILINE)
    lines = [line for line in (ROOT / "constraints-safe.txt").read_text("utf-8").splitlines() if line[:1] != "#"]
    assert lines == [f"{name}>={version}" for name, version in table]
    assert len(lines) > 10


#: Calls that execute what a file or a text holds, whatever their arguments.
EXECUTING = {
    *(f"{module}.{name}" for module in ("pickle", "joblib", "dill", "marshal") for name in ("load", "loads")),
    *("eval", "exec", "yaml.load", "shelve.open", "pd.read_pickle", "os.system", "os.popen"),
    *("torch.load", "torch.hub.load"),
}
#: Calls that execute it but for an argument.
SAFE_WITH = {"np.load": ("allow_pickle", False)}


@cache
def calls(source: str) -> list[tuple[str, dict[str, object]]]:
    """Return the name and the constant keywords of every call."""
    named_calls = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            constants = {
                keyword.arg: keyword.value.value for keyword in node.keywords if isinstance(keyword.value, ast.Constant)
            }
            named_calls.append((ast.unparse(node.func), {str(name): value for name, value in constants.items()}))
    return named_calls


def executing(source: str) -> list[str]:
    """Return the calls that would execute what they read."""
    problems = []
    for name, arguments in calls(source):
        argument, value = SAFE_WITH.get(name, ("", None))
        if name in EXECUTING or name.startswith("subprocess.") or (argument and arguments.get(argument) is not value):
            problems.append(name)
    return problems


def test_no_file_is_executed_by_being_read() -> None:
    problems = {path.relative_to(ROOT).as_posix(): executing(path.read_text("utf-8")) for path in SOURCES}
    assert len(problems) > 100
    # The contract of metrics reads no file: it pickles a metric and takes it back.
    assert {*problems.pop("quantus_concepts/testing/contract.py")} == {"pickle.loads"}
    assert {name: bad_calls for name, bad_calls in problems.items() if bad_calls} == {}
    # Pickles are read in one place, by an unpickler that calls nothing.
    readers = [path.name for path in SOURCES if "Unpickler" in path.read_text("utf-8")]
    assert readers == ["pickles.py"]
    # Models and methods of the user's own, given as path.py:function, are executed in one place.
    files = [path.name for path in SOURCES if any(name.endswith("exec_module") for name, _ in calls(path.read_text()))]
    assert files == ["running.py"]


@pytest.mark.parametrize(
    "source", ["pickle.load(file)", "torch.load(path)", "np.load(path, allow_pickle=True)", "subprocess.run(['ls'])"]
)
def test_such_a_call_is_found(source: str) -> None:
    assert executing(source)
