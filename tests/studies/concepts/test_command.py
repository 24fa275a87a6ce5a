"""`benchmark concepts` as a command: its results, page and tables, what it goes on from, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from fixtures_commands import NETWORK, check_command, write_own_images
from fixtures_cub import write_cub
from golden.runs import RUNS, smaller
from html_pages import HTMLPage
from kills import raising
from quantus_concepts.datasets import CUB200, PaintedBirds
from quantus_concepts.datasets.birds.attributes import MAX_CONCEPTS, MIN_CONCEPTS, SPECIES
from quantus_concepts.datasets.birds.cub200 import CBM_ATTRIBUTES, GROUP_OF_ATTRIBUTE
from quantus_concepts.functional.statistics.intervals import N_DRAWS
from quantus_concepts.painted import images as loading
from quantus_concepts.painted.images import KeptImages
from quantus_concepts.studies._kit.options import NClasses, NConcepts, option_name
from quantus_concepts.studies._kit.painted import Painted
from quantus_concepts.studies._models.named_networks import load_network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.concepts import settings as of
from quantus_concepts.studies.concepts.data import load_concept_data
from quantus_concepts.studies.concepts.seed import Seed
from quantus_concepts.studies.concepts.settings import Concepts
from quantus_concepts.studies.concepts.terms import MODELS

METRICS = {"CEM", "CLM", "CGIM", "accuracy", "concept accuracy", "negative first", "CAV accuracy"}
METRICS |= {"accuracy after interventions", "part specificity", "CEM gain", "CGIM correlation"}
METRICS |= {"oracle accuracy", "head gap", "oracle on labels", "concept-set ceiling", "completeness"}
METRICS |= {
    "concept-task leakage as wrong labels",
    "concept-set ceiling as wrong labels",
    "images with unique concepts",
}
METRICS |= {"concept-task leakage", "concept-task leakage p", "sparse head accuracy", "NEC"}
METRICS |= {"accuracy, heads of other seeds", "concept AUC", "concept AUC within predicted classes"}
#: The command of the recorded run, but for its folder.
RECORDED = shlex.split(RUNS["concepts"].commands[0])[:-1]
OWN = "--data folder --root fruit --concepts concepts.csv --min-images 1 --backbone"
FOLDER = f"{OWN} network.py:model --no-progress --device cpu"


def run(arguments: str) -> int:
    return main(["benchmark", "concepts", *shlex.split(arguments)])


@pytest.fixture(autouse=True)
def _inside_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with smaller(figures=False):
        yield


@pytest.fixture(scope="module")
def finished(golden: Callable[[str], Path]) -> Path:
    """The folder of the recorded run, which has two seeds, figures and an explorer."""
    return golden("concepts")


def test_painted_birds_from_drawing_to_results(finished):
    table = pd.read_csv(finished / "results.csv", keep_default_na=False)
    assert set(table.model) >= {*MODELS, "plain backbone", "post-hoc CBM, raw values"}
    assert set(table.baseline) >= {"parts of another image", "centred Gaussian", "mean place of the part"}
    shuffled = table[table.baseline == "fitted to shuffled images"]
    assert set(zip(shuffled.metric, shuffled.explanation, shuffled.set, strict=True)) == {
        ("CGIM correlation", "effect", "correct"),
        ("CGIM correlation", "value", "all"),
    }
    assert set(table.metric) == METRICS
    assert set(table.seed) == {0, 1}
    # The oracle, whose values are the true concepts, leaks nothing, and its head reads nothing else.
    oracle = table[(table.model == "oracle") & (table.what == "score")]
    assert set(oracle[oracle.metric == "concept-task leakage p"].value) == {"1.0"}
    assert list(oracle[oracle.metric == "oracle accuracy"].value) == list(
        oracle[oracle.metric == "oracle on labels"].value
    )
    assert len(table[table.metric == "accuracy, heads of other seeds"]) == 2 * 2
    oracle = table[(table.model == "oracle") & (table.metric == "CEM") & (table.explanation == "value")]
    # At least one concept is present in each image, and the oracle ranks it first.
    assert oracle[oracle.l == "1"].value.astype(float).tolist() == [1.0] * 4
    # Other individuals of the same classes, for each seed.
    classes = table[(table.item_kind == "class") & (table.item != "") & (table.model == "oracle")]
    first, second = (set(group.item) for _, group in classes.groupby("seed"))
    assert len(first) == 3
    assert first == second
    chances = table[(table.model == "oracle") & (table.metric == "CEM")].groupby("seed").chance.first()
    assert chances.nunique() == 2
    settings = table[table.item_kind == "setting"]
    assert len(settings) == 2 * 10
    assert "C=0.001, n=50" in set(settings.item)


def test_the_page_is_well_formed_and_what_it_links_is_there(finished):
    text = (finished / "report.html").read_text(encoding="utf-8")
    page = HTMLPage(text)
    files = [source[2:] for source in page.sources if source.startswith("./")]
    assert {"explore.html", "results.csv", "tables/cem-gain.csv"} <= set(files)
    # Painted birds have no row of the paper.
    assert not {"tables/table-1.csv", "tables/table-2.csv"} & set(files)
    assert all((finished / name).is_file() for name in files)
    listed = json.loads((finished / "run.json").read_text())["files"]
    assert {"explore.html", "results.csv", "report.html", "figures/gallery.png"} <= set(listed)
    assert "39 random banks for each" in text
    # Several seeds have the row of CGIM that the caption promises.
    compared = pd.read_csv(finished / "tables" / "comparisons.csv")
    rows = compared[compared["what"].str.startswith("CGIM correlation")]
    assert {"post-hoc CBM"} == set(rows["a"])
    assert rows[rows["column"] == "first less second"]["value"].notna().any()


def test_a_finished_run_makes_nothing_again(finished, monkeypatch):
    again = raising(AssertionError("made again"))
    for name in ("_state", "_shown", "_explorer"):
        monkeypatch.setattr(Seed, name, again)
    monkeypatch.setattr(Seed, "models", property(again))
    out = shutil.copytree(finished, "out")
    Path(out, "report.html").unlink()
    assert main([*RECORDED, str(out)]) == 0
    for name in ("results.csv", "explore.html"):
        assert Path(out, name).read_bytes() == (finished / name).read_bytes()


def test_the_explorer_is_of_the_images_of_the_table(finished):
    page = (finished / "explore.html").read_text(encoding="utf-8")
    data = json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])
    assert len(data["pictures"]) == len(data["random_values"]) == 18
    # How many are classified right is the accuracy in the table.
    table = pd.read_csv(finished / "results.csv").query(
        "metric == 'accuracy' and model == 'post-hoc CBM' and item.isna() and seed == 0"
    )
    wrong = [value for value in data["scores"]["confidence when wrong"][0] if value is not None]
    assert 1 - len(wrong) / 18 == pytest.approx(table["value"].iloc[0])


def test_images_of_the_users_own_with_a_network_of_their_own(tmp_path, capsys):
    write_own_images(tmp_path)
    assert run(f"{FOLDER} --parts parts.csv --out result") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "result"
    table = pd.read_csv("result/results.csv", keep_default_na=False)
    plain = table[table.model == "plain backbone"]
    # 8 test images, and an untrained network with two outputs.
    assert plain.n.astype(int).tolist() == [8]
    post_hoc = table[table.model == "post-hoc CBM"]
    accuracy = post_hoc[(post_hoc.metric == "accuracy") & (post_hoc.item_kind == "")]
    # Red and green are told apart by any eight filters.
    assert accuracy.value.astype(float).tolist() == [1.0]
    assert set(post_hoc[post_hoc.metric == "CLM"].l) == {"1"}
    assert set(post_hoc[post_hoc.metric == "CEM"].l) == {"1", "3"}
    assert "oracle" not in set(table.model)
    assert "mean 0.5, 0.5, 0.5, deviation 0.25, 0.25, 0.25" in Path("result/report.html").read_text("utf-8")


def test_weights_layer_and_normalisation_of_the_users_choice(tmp_path):
    write_own_images(tmp_path)
    filters = torch.rand(8, 3, 3, 3, generator=torch.Generator().manual_seed(0))
    network = {"0.weight": filters, "0.bias": torch.ones(8)}
    save_file(network | {"4.weight": torch.zeros(2, 8), "4.bias": torch.tensor([0.0, 1.0])}, "weights.safetensors")
    more = "--weights weights.safetensors --layer 0 --mean 0,0,0 --std 1,1,1"
    assert run(f"{FOLDER} {more} --out result --no-sweep") == 0
    table = pd.read_csv("result/results.csv")
    # These weights take every image for a pear, which is half of them.
    assert table[table.model == "plain backbone"].value.tolist() == [0.5]
    page = Path("result/report.html").read_text("utf-8")
    assert "mean 0, 0, 0, deviation 1, 1, 1" in page
    assert "layer 0, averaged over space" in page
    # Without parts there is no location.
    assert "CLM" not in set(table.metric)
    assert "there is no CLM" in page


def test_as_printed_changes_the_values_the_head_and_the_order_of_concepts():
    assert Concepts(as_printed=True) == Concepts(as_printed=True, values="raw")
    few = (
        "--painted n_train=60,n_test=18,n_classes=3,n_concepts=8 --image-size 32 --epochs 1 --n-pos 10 --n-neg 10 "
        "--seeds 1 --no-sweep --no-interventions --precision float32 --no-progress --device cpu"
    )
    tables = {}
    for how in ("--values raw", "--as-printed"):
        assert run(f"{few} {how} --out {how[2:5]}") == 0
        table = pd.read_csv(f"{how[2:5]}/results.csv", keep_default_na=False)
        tables[how] = table.set_index([*table.columns.difference(["value", "low", "high", "n", "undefined", "chance"])])
        assert ("as printed in the papers" in Path(f"{how[2:5]}/report.html").read_text("utf-8")) == (
            how != "--values raw"
        )

    def changed(**of):
        """Tell whether some of the values are others as printed."""
        raw, printed = (
            [row.value for row in table.reset_index().itertuples() if all(getattr(row, k) == v for k, v in of.items())]
            for table in tables.values()
        )
        assert len(raw) == len(printed) > 0
        return raw != printed

    post_hoc, everywhere = {"model": "post-hoc CBM"}, {"metric": "CEM", "set": "all", "baseline": ""}
    assert not changed(**post_hoc, metric="concept AUC")
    # The order alone.
    assert changed(model="oracle", **everywhere, explanation="contribution")
    assert not changed(model="oracle", **everywhere, explanation="weight")
    # The head alone.
    for model in ("post-hoc CBM", "random directions", "post-hoc CBM, margin values"):
        assert changed(model=model, metric="CGIM", explanation="weight", item="")
    assert not changed(model="traditional CBM", metric="CGIM", explanation="weight", item="")


def test_the_official_cub_layout_with_the_papers_numbers_beside_ours(tmp_path):
    root = write_cub(tmp_path)
    Path("network.py").write_text(NETWORK)
    more = (
        "--backbone network.py:model --image-size 32 --min-images 1 --no-sweep --no-progress --device cpu --out result"
    )
    assert run(f"--data cub --root {shlex.quote(str(root))} {more}") == 0
    table = pd.read_csv("result/results.csv", keep_default_na=False)
    concepts = table[(table.model == "post-hoc CBM") & (table.item_kind == "concept") & (table.item != "")]
    assert concepts.metric.value_counts().to_dict() == {
        "CGIM": 4 * 112,
        # By value over the correct and over all images.
        "CGIM correlation": 5 * 112,
        "concept AUC": 112,
        "CAV accuracy": 112,
        "concept-task leakage": 112,
        "concept-task leakage p": 112,
    }
    existence = table[(table.model == "post-hoc CBM") & (table.metric == "CEM") & (table.set == "all")]
    assert set(existence.n.astype(int)) == {6}
    cells = pd.read_csv("result/tables/table-1.csv").query("model == 'paper' and set == 'all images'")
    assert cells.query("explanation == 'value u'").value.tolist() == [0.843, 0.801, 0.772]


def test_each_seed_paints_other_birds_of_the_same_classes(monkeypatch):
    monkeypatch.setattr(loading, "PAINTED_AT_ONCE", 12)
    settings = Concepts(min_images=1, image_size=32, painted=Painted(n_train=27, n_test=10, n_classes=5), seeds=2)
    _, together = load_concept_data(settings, None)
    # Other birds of the same classes, with a truth of their own.
    birds = KeptImages(PaintedBirds(57, image_size=32, n_classes=5), range(30, 57))
    later = PaintedBirds(27, image_size=32, n_classes=5, first=30)
    assert torch.equal(together.train.images, birds.images)
    assert torch.equal(together.train.labels, birds.labels)
    assert torch.equal(together.training_concepts, later.class_concepts)


@pytest.mark.parametrize("painted", [True, False])
def test_truth_of_cgim_is_from_images_that_fitted_no_directions(tmp_path, painted):
    write_own_images(tmp_path)
    drawn = Painted(n_train=20, n_test=10, n_classes=5) if painted else None
    files = {} if painted else {"root": tmp_path / "fruit", "concepts": str(tmp_path / "concepts.csv")}
    kind = "painted" if painted else "folder"
    (data,) = load_concept_data(Concepts(data=kind, min_images=1, image_size=32, painted=drawn, seeds=1, **files), None)
    for images, truth in ((data.test, data.class_concepts), (data.train, data.training_concepts)):
        members = torch.nn.functional.one_hot(images.labels, data.n_classes).float()
        torch.testing.assert_close(truth, members.T @ images.concept_labels / members.sum(0)[:, None])


#: Official numbers of the wing colours that are concepts, but one.
RARE = {str(number + 1) for number in CBM_ATTRIBUTES if GROUP_OF_ATTRIBUTE[number] == "has_wing_color"} - {"24"}
PATTERNS = "has_wing_*, has_bill_shape::dagger"


@pytest.fixture
def cub(tmp_path):
    (tmp_path / "network.py").write_text(NETWORK)
    root = write_cub(tmp_path)
    # One image has these, half of the training images the others.
    marks = root / "attributes/image_attribute_labels.txt"
    lines = [line.split() for line in marks.read_text().splitlines()]
    for line in lines:
        if line[1] in RARE:
            line[2] = str(int(line[0] == "1"))
    marks.write_text("\n".join(" ".join(line) for line in lines))
    return root


def cub_settings(**changed):
    return Concepts(**{"data": "cub", "root": Path("CUB_200_2011"), "min_images": 1} | changed)


def test_truth_stays_aligned_with_the_concepts_that_are_left(cub):
    settings = cub_settings(concepts=PATTERNS, min_images=3, image_size=32)
    (data,) = load_concept_data(settings, load_network("network.py:model"))
    full = CUB200(cub, "train", concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = full.concept_labels.sum(0)
    learnable = torch.nonzero(torch.minimum(counts, 6 - counts) >= 3).flatten().tolist()
    assert 0 < len(learnable) < len(full.concept_names)
    assert data.concept_names == [full.concept_names[j] for j in learnable]
    assert data.left_out == [name for j, name in enumerate(full.concept_names) if j not in learnable]
    for ours, theirs in ((data.train, full), (data.test, CUB200(cub, "test", concepts=full.concept_names))):
        assert torch.equal(ours.concept_labels, theirs.concept_labels[:, learnable])
        assert torch.equal(ours[2].concepts, theirs[2].concepts[learnable])
    assert torch.equal(data.class_concepts, full.class_concepts[:, learnable])
    assert torch.equal(data.part_of_concept, full.part_of_concept[learnable])
    assert any(
        f"{len(data.left_out)} of {len(full.concept_names)} concepts are left out" in note for note in data.notes
    )


def test_concepts_left_out_are_undefined_in_results(cub):
    arguments = f"--data cub --root CUB_200_2011 --concepts '{PATTERNS}' --image-size 32 --min-images 3 --no-sweep"
    assert run(f"{arguments} --backbone network.py:model --no-progress --device cpu --out result") == 0
    table = pd.read_csv("result/results.csv", keep_default_na=False, na_values="")
    data = CUB200(cub, concepts=["has_wing_*", "has_bill_shape::dagger"])
    counts = np.minimum(data.concept_labels.sum(0), 6 - data.concept_labels.sum(0)).numpy()
    rare = {name for name, count in zip(data.concept_names, counts, strict=True) if count < 3}
    table = table[table["baseline"].isna()]  # their means alone
    concepts = table[(table["item_kind"] == "concept") & (table["metric"] != "CLM")]
    for (_, metric, *_), rows in concepts.groupby(["model", "metric", "explanation", "set"], dropna=False):
        items = rows[rows["item"].notna()].set_index("item")
        if metric == "concept AUC within predicted classes":  # has a mean alone
            assert items.empty
            continue
        assert set(items.index) == set(data.concept_names)
        assert items.loc[sorted(rare), "value"].isna().all()
        assert items.loc[sorted(rare), "undefined"].eq(1).all()
        (mean,) = rows.loc[rows["item"].isna(), "undefined"]
        assert mean >= len(rare)


def test_a_file_says_for_which_size_its_network_is_made(cub):
    (data,) = load_concept_data(cub_settings(), load_network("network.py:model"))
    assert data.train[0].image.shape == (3, 224, 224)
    assert any("does not say for which size" in note for note in data.notes)
    (cub.parent / "network.py").write_text(NETWORK + "\nIMAGE_SIZE = 48\n")
    (data,) = load_concept_data(cub_settings(), load_network("network.py:model"))
    assert data.train[0].image.shape == (3, 48, 48)
    assert not any("which size" in note for note in data.notes)


@pytest.mark.parametrize(
    ("arguments", "message"),
    {
        "--painted n_train=2": "`--painted n_train` to be at least 20",
        "--painted n_concepts=3": "`--painted n_concepts` to lie in .4, 104. but got 3",
        "--painted colour=3": "the keys n_train, .* deviation but got 'colour'",
        "--painted n_train=many": "`n_train=` with a whole number but got 'n_train=many'",
        "--image-size 36": "multiple of 8",
        "--painted n_train=60,n_train=70": "`n_train=` once but got it twice",
        "--root fruit": "`--root` has no effect",
        "--data folder --root fruit": "--concepts",
        "--data folder --root fruit --concepts nowhere.csv": "`--concepts` to name a file",
        f"{OWN} network.py:model --backbone small": "`--backbone small` to be the first",
        "--labels majority": "`--labels` has no effect",
        f"{OWN} network.py:model --precision float32": "`--precision` has no effect",
        f"{OWN} network.py:model --layer nowhere": "nowhere",
        "--C 0": "`--C`",
    }.items(),
)
def test_refusals(tmp_path, arguments, message, capsys):
    write_own_images(tmp_path, counts=(2, 2))
    check_command(["benchmark", "concepts", "--no-progress", *shlex.split(arguments)], message, capsys)


def test_the_folder_of_cub_is_looked_at_before_weights_are_downloaded(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("quantus_concepts.studies.concepts.models.load_network", lambda *_: pytest.fail("downloaded"))
    (tmp_path / "wrong").mkdir()
    arguments = ["benchmark", "concepts", "--no-progress", "--data", "cub", "--root", "wrong"]
    check_command(arguments, "`root` to be the folder of CUB-200-2011 but found neither wrong/images.txt", capsys)


def test_bounds_are_those_of_what_is_drawn():
    bounds = [(kind.__metadata__[0].min, kind.__metadata__[0].max) for kind in (NClasses, NConcepts)]
    assert bounds == [(2, len(SPECIES)), (MIN_CONCEPTS, MAX_CONCEPTS)]
    # Known without loading NumPy.
    assert of.N_BANKS == N_DRAWS


def test_help_shows_what_a_user_of_own_data_needs_and_names_the_rest(capsys):
    assert main(["benchmark", "concepts", "--help"]) == 0
    shown, _, further = capsys.readouterr().out.partition("Further options")
    options = {*re.findall(r"--[a-zA-Z][\w-]*", shown.partition("Options")[2] + further.partition("Data")[2])}
    names = Concepts.shown.split()
    assert len(names) <= 20
    assert {option_name(name) for name in names} <= options
    assert main(["benchmark", "concepts", "--painted", "help"]) == 0
    assert "n_classes=20  Classes." in capsys.readouterr().out
