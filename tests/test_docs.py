"""The site: everything public is in its reference, and the examples of CONTRIBUTING.md run."""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn
from torch.utils.data import DataLoader

from captum_concepts import PostHocCBM, from_transformers
from quantus_concepts import AVAILABLE_METRICS, UsualMetrics, headline, score_concepts
from quantus_concepts.datasets import PaintedBirds

METRICS = [metric.__name__ for metric in AVAILABLE_METRICS["Concepts"].values()]
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PACKAGES = {
    "captum_concepts": "adapters/captum_concepts",
    "quantus_concepts": "quantus_concepts",
    **{
        f"quantus_concepts.{name}": f"quantus_concepts/{name}"
        for name in ("metrics", "datasets", "pasta", "functional", "diffusion", "testing")
    },
}


def exported(folder: str) -> set[str]:
    """Return what a package exports, read from its stub, or from the source of one that has none."""
    stub = ROOT / folder / "__init__.pyi"
    tree = ast.parse((stub if stub.exists() else stub.with_suffix(".py")).read_text("utf-8"))
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    if not stub.exists():
        (value,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
        return {*value}
    # A star stands for all that a package inside exports.
    names = {alias.name for node in imports for alias in node.names} - {"*"}
    names |= {ast.unparse(node.target) for node in tree.body if isinstance(node, ast.AnnAssign)}
    return names.union(*(exported(f"{folder}/{node.module}") for node in imports if node.names[0].name == "*"))


def referenced() -> list[tuple[str, str]]:
    """Return package and name of every entry of the reference."""
    entries = []
    for page in sorted((DOCS / "api").glob("*.md")):
        for package, names in re.findall(r"\.\. api:: (\S+)\n(.*?)```", page.read_text("utf-8"), flags=re.DOTALL):
            lines = (line.partition(":") for line in names.splitlines() if not line.strip().startswith(":"))
            entries += [(package, name.strip()) for name, _, _ in lines if name.strip()]
            entries += [(package, name) for name in (exported(PACKAGES[package]) if ":all:" in names else ())]
            entries += [(package, name) for name in (METRICS if ":metrics:" in names else ())]
    return entries


@pytest.mark.parametrize("page", sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")]), ids=lambda page: page.stem)
def test_tables_of_a_page_are_in_one_piece(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE):
        # After an empty line rows are no table.
        assert re.fullmatch(r"[ :|-]+", table.splitlines()[1] if table.count("\n") > 1 else ""), table


def test_every_public_name_is_in_the_reference_once() -> None:
    entries = referenced()
    assert [entry for entry, count in Counter(entries).items() if count > 1] == []
    documented = {(package, name) for package, name in entries if package in PACKAGES}
    assert {(package, name) for package, name in documented if name not in exported(PACKAGES[package])} == set()
    # quantus_concepts exports much of its subpackages again, which is documented in either place.
    names = {name for _, name in documented} | {package.rpartition(".")[2] for package in PACKAGES}
    untold = {package: sorted(exported(folder) - names) for package, folder in PACKAGES.items()}
    assert {package: missing for package, missing in untold.items() if missing} == {}


def test_examples_of_contributing_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 2
    # Where pickle looks for the metric.
    module = ModuleType("contributing_blocks")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    for number, block in enumerate(blocks):
        exec(compile(block, f"CONTRIBUTING.md, block {number}", "exec"), names)
    names["test_concept_mass"]()
    (mark,) = names["test_contract"].pytestmark
    for case, law in (param.values for param in mark.args[1]):
        names["test_contract"](case, law)


@pytest.mark.filterwarnings("ignore")
def test_the_callback_of_the_trainer_logs_its_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate", reason="the extra diffusion is not installed")
    transformers = pytest.importorskip("transformers", reason="the extra hf is not installed")
    # The folder tests/datasets, from which tests can import, is taken for the package datasets.
    monkeypatch.setattr("transformers.trainer.is_datasets_available", lambda: False)
    page = (DOCS / "training-loops.md").read_text("utf-8")
    (source,) = re.findall(r"```python\n(class ConceptScores\(TrainerCallback\):\n.*?)```", page, flags=re.DOTALL)
    birds = PaintedBirds(48, "test", image_size=32, n_classes=4, n_concepts=12, keep=True)
    loader = DataLoader(birds, 16)  # type: ignore[arg-type]
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(image_size=32, patch_size=8, num_labels=4, **size)

    def concept_model(model: nn.Module) -> PostHocCBM:
        return PostHocCBM.fit(
            from_transformers(model), loader, names=birds.concept_names, n_pos=9, n_neg=9, min_images=5, random_banks=0
        )

    names: dict[str, Any] = {"TrainerCallback": transformers.TrainerCallback, "concept_model": concept_model}
    names |= {"score_concepts": score_concepts, "UsualMetrics": UsualMetrics, "headline": headline}
    exec(source, names)
    samples = [{"pixel_values": bird.image, "labels": bird.label} for bird in birds]
    settings = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "no"}
    trainer = names["trainer"] = transformers.Trainer(
        model=transformers.ViTForImageClassification(config),
        args=transformers.TrainingArguments(tmp_path, max_steps=1, eval_strategy="steps", eval_steps=1, **settings),
        train_dataset=samples,
        eval_dataset=samples,
        callbacks=[names["ConceptScores"](loader)],
    )
    trainer.train()
    (scores,) = (entry for entry in trainer.state.log_history if "CEM" in entry)
    assert scores["step"] == 1
    assert 0 <= scores["CEM"] <= 1
