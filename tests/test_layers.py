"""The arrows of the house point down: who may import whom, read from the sources."""

from __future__ import annotations

import ast
import importlib.util
from collections import Counter
from functools import cache
from pathlib import Path

import captum_concepts
import quantus_concepts

#: The packages from the ground up; each imports itself and what stands before it.
LAYERS = (
    "captum_concepts",
    "quantus_concepts.functional",
    "quantus_concepts.diffusion",
    "quantus_concepts.datasets",
    "quantus_concepts.pasta",
    "quantus_concepts.metrics",
    "quantus_concepts.results",
    "quantus_concepts.evaluation",
    "quantus_concepts",
    "quantus_concepts.studies",
)
#: Folders that may have more than a dozen files: one formula a file.
MORE_FILES: set[str] = set()
ROOTS = {package.__name__: Path(package.__file__).parent for package in (captum_concepts, quantus_concepts)}


def module_of(name: str, root: Path, file: Path) -> str:
    parts = file.relative_to(root).with_suffix("").parts
    return ".".join([name, *(parts[:-1] if parts[-1] == "__init__" else parts)])


FILES = {module_of(name, root, file): file for name, root in ROOTS.items() for file in sorted(root.rglob("*.py"))}


def layer_of(module: str) -> int:
    """Return the place of the longest of the layers' names that a module's begins with."""
    fitting = [name for name in LAYERS if f"{module}.".startswith(f"{name}.")]
    return LAYERS.index(max(fitting, key=len))


@cache
def imports_of(module: str) -> tuple[tuple[str, str, int], ...]:
    """Return each file of ours that a module imports, anywhere in it, with the name taken from it, and the line."""
    file = FILES[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    imported = []
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imports = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            source = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            imports = [(source, alias.name) for alias in node.names]
        else:
            continue
        for source, name in imports:
            if f"{source}.{name}" in FILES:
                imported.append((f"{source}.{name}", "", node.lineno))
            elif source in FILES:
                imported.append((source, name, node.lineno))
    return tuple(imported)


def test_imports_point_down() -> None:
    wrong = [
        f"{module}, line {line}: {source} is above it"
        for module in FILES
        for source, _, line in imports_of(module)
        if layer_of(source) > layer_of(module)
    ]
    assert not wrong


def test_no_private_name_crosses_packages() -> None:
    wrong = [
        f"{module}, line {line}: {source}.{name}"
        for module in FILES
        for source, name, line in imports_of(module)
        # A package such as `_support` is private to this distribution; a file or a name is private to its package.
        if layer_of(source) != layer_of(module)
        and (source.rpartition(".")[2].startswith("_") or name.startswith("_"))
        and name != "__version__"
    ]
    assert not wrong


def test_arrows_between_rooms_make_no_circle() -> None:
    # A package names what its rooms export; that is no arrow of its own.
    rooms = {name: name.rpartition(".")[0] for name, path in FILES.items() if path.name != "__init__.py"}
    arrows = {
        (room, rooms[source])
        for module, room in rooms.items()
        for source, _, _ in imports_of(module)
        if rooms.get(source, room) != room
    }
    below: dict[str, set[str]] = {}
    for room, other in arrows:
        below.setdefault(room, set()).add(other)
    for room in [*below]:
        reached, waiting = set(), [*below[room]]
        while waiting:
            reached.add(current := waiting.pop())
            waiting += below.get(current, set()) - reached
        assert room not in reached, f"{room} imports what imports it"


def test_at_most_a_dozen_files_in_a_room() -> None:
    counts = Counter(module.rpartition(".")[0] for module, path in FILES.items() if path.name != "__init__.py")
    assert {room for room, count in counts.items() if count > 12} == MORE_FILES


def test_no_circle_of_files() -> None:
    arrows = {module: {source for source, _, _ in imports_of(module)} for module in FILES}
    # What imports nothing that is left, and what nothing left imports, is in no circle.
    while True:
        imported = set().union(*arrows.values())
        outside = [module for module, sources in arrows.items() if module not in imported or not sources]
        if not outside:
            break
        arrows = {
            module: {source for source in sources if source not in outside}
            for module, sources in arrows.items()
            if module not in outside
        }
    assert not arrows
