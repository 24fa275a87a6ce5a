"""The study of substitutions: controls that are known beforehand, labels, networks, and a page of a tiny run."""

from __future__ import annotations

import io
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from captum_concepts import ConceptBank, PostHocCBM
from fixtures_commands import NETWORK
from fixtures_cub import CLASSES, write_cub
from golden.record import RECORDED
from golden.runs import RUNS, smaller
from kills import raising
from quantus_concepts import score_substitutions
from quantus_concepts.datasets import CUB200, SUB, write_sub
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.painted.images import painted_birds
from quantus_concepts.studies._kit.results import PAPER, load_paper, one, pick
from quantus_concepts.studies._models.concept_models import (
    EmbeddingNetwork,
    JointNetwork,
    Recital,
    SeparateNetworks,
    joint_loss,
)
from quantus_concepts.studies._models.named_networks import cut_network, load_network
from quantus_concepts.studies.app import main
from quantus_concepts.studies.substitution import kinds, models, report
from quantus_concepts.studies.substitution.kinds import (
    CLASS_HARD,
    CLASS_SOFT,
    IMAGE_HARD,
    IMAGE_SOFT,
    INDEPENDENT,
    JOINT,
    MEMORISER,
    ORACLE,
    POST_HOC,
    RANDOM,
    RECITER,
    ROWS,
    SAVED,
    SHORT,
    TRAINED,
)
from quantus_concepts.studies.substitution.models import Training
from quantus_concepts.studies.substitution.report import joined_substitutions

#: Painted birds that are trained on in a second.
SMALL = "benchmark substitution --painted n_train=30,n_test=15,n_classes=3,n_concepts=8 --image-size 32 --epochs 1 "
SMALL += "--device cpu --no-progress"


@pytest.fixture(scope="module")
def scores() -> pd.DataFrame:
    """Return the recorded results, which another test compares with a new run."""
    return pd.read_csv(RECORDED / "substitution" / "results.csv", keep_default_na=True).fillna(
        {"labels": "", "item_kind": "", "item": ""}
    )


def test_controls_have_their_known_scores(scores):
    rows = pick(scores, metric=["S+", "S-"])
    assert set(pick(rows, model=ORACLE)["value"]) == {1.0}
    assert set(pick(rows, model=MEMORISER)["value"]) == {0.0}
    # Attributes differ in how often they are put in; of all of them random directions are at chance.
    of_all = pick(rows, model=RANDOM, item_kind="")
    assert len(of_all) == 4
    assert ((of_all["low"] < 0.5) & (of_all["high"] > 0.5)).all()
    recited = pick(scores, metric="recital", item_kind="")
    assert set(pick(recited, model=MEMORISER)["value"]) == {1.0}
    assert set(pick(recited, model=ORACLE)["value"]) == {0.0}
    assert set(pick(scores, model=MEMORISER, metric="rises")["value"]) == {0.0}
    assert set(pick(scores, model=ORACLE, metric=["rises", "selectivity", "T"], item_kind="")["value"]) == {1.0}


def test_a_row_says_what_it_is(scores):
    is_range = scores["model"] == RANDOM
    assert set(scores.loc[is_range, "what"]) == {"random range"}
    assert set(scores.loc[~is_range & (scores["item"] == ""), "what"]) == {"score"}
    assert set(scores.loc[~is_range & (scores["item"] != ""), "what"]) == {"item"}


def test_every_model_has_every_number(scores):
    main = pick(scores, correlation=0.0, item_kind="", seed=0)
    for model, labels in ROWS.items():
        assert set(pick(main, model=model)["labels"]) == set(labels)
    counts = main.groupby(["model", "labels"])["metric"].nunique()
    assert counts.nunique() == 1, counts


@pytest.fixture
def training() -> Training:
    (birds,) = painted_birds(({"n_classes": 4, "n_concepts": 8, "image_size": 32, "split": "train"}, 0, 40))
    return Training(birds, (birds.class_concepts >= 0.5).float(), birds.class_concepts)


def test_labels_are_what_their_names_say(training):
    images = training.images
    share, of_image = images.class_concepts[images.labels], images.concept_labels
    assert torch.equal(training.targets(IMAGE_HARD), of_image)
    assert torch.equal(training.targets(CLASS_SOFT), share)
    assert torch.equal(training.targets(CLASS_HARD), (share >= 0.5).float())
    torch.testing.assert_close(training.targets(IMAGE_SOFT), 0.75 * of_image + 0.25 * share)


def test_a_network_per_concept_shares_nothing():
    network = SeparateNetworks(3, seed=1).eval()
    images = torch.rand(2, 3, 16, 16)
    network(images)[:, 1].sum().backward()
    active = {
        name: parameter.grad.flatten(1).abs().sum(1) > 0
        for name, parameter in network.named_parameters()
        if parameter.ndim > 1
    }
    assert len(active) == 3
    for rows in active.values():
        # Of three equal parts the middle one.
        assert [bool(part.any()) for part in rows.chunk(3)] == [False, True, False]


def test_a_concept_embedding_model_mixes_presence_and_absence():
    network = EmbeddingNetwork(2, 3, seed=0)
    pooled = torch.randn(4, 64)
    with torch.no_grad():
        network.classifier.presence.weight.zero_()
        network.classifier.presence.bias.fill_(100.0)
        logits, mixed = network.classifier.both(pooled)
        pairs = nn.functional.leaky_relu(network.classifier.embeddings(pooled)).view(4, 2, 2, -1)
    assert torch.equal(logits, torch.full((4, 2), 100.0))
    # Surely present: the first of the two embeddings.
    torch.testing.assert_close(mixed, pairs[:, :, 0])


def test_the_loss_of_both_is_that_of_each():
    network = JointNetwork(2, 3, seed=0)
    outputs = network(torch.rand(4, 3, 16, 16))
    targets = torch.tensor([[0, 1, 2], [1, 1, 0], [0, 0, 1], [1, 0, 2]]).float()
    concepts = nn.functional.binary_cross_entropy_with_logits(outputs[:, :2], targets[:, :2])
    classes = nn.functional.cross_entropy(outputs[:, 2:], targets[:, 2].long())
    torch.testing.assert_close(joint_loss(outputs, targets), 20 * concepts + classes)


def test_a_recital_is_of_the_class_that_is_predicted():
    concepts = torch.tensor([[1.0, 0, 1, 0], [0, 1, 1, 0], [0, 1, 0, 1]])
    recital = Recital(nn.Identity(), concepts)
    predicted = torch.eye(3)[[2, 0, 1]]
    values = recital(predicted)
    assert torch.equal(values, concepts[[2, 0, 1]])
    assert recital.head()(values).argmax(1).tolist() == [2, 0, 1]


def image_scores() -> pd.DataFrame:
    """Return scores of two models and the one that recites, on 40 images in 10 pairs: one sees what is put in."""
    rng = np.random.default_rng(0)
    seen = {RECITER: 0.1, f"{INDEPENDENT}{kinds.OF}{CLASS_HARD}": 0.8, f"{JOINT}{kinds.OF}{CLASS_HARD}": 0.1}
    parts = [
        pd.DataFrame({"model": name, "metric": metric, "image": range(40), "value": rng.random(40) < share})
        for name, of_name in seen.items()
        for metric, share in (("S+", of_name), ("S-", 0.5))
    ]
    scores = pd.concat(parts, ignore_index=True).astype({"value": float})
    return scores.assign(pair=scores["image"] // 4, seed=0)


def test_verdicts_agree_with_the_tables(scores):
    rows = pick(joined_substitutions(scores), correlation=0.0, item_kind="")
    table = pd.read_csv(io.StringIO(report.main_table(rows).csv), keep_default_na=False)
    verdicts = report.verdicts(rows, report.compare_models(image_scores()))
    assert (
        "clearly above 1 of the 1 others; 1 of 2 above the model that recites its class, 0 below"
        in verdicts[0].question
    )
    assert (
        "clearly above 0 of the 1 others; 0 of 2 above the model that recites its class, 0 below"
        in verdicts[1].question
    )
    for metric, question in report.QUESTIONS.items():
        trained = pick(table, metric=report.HEADS[metric], model=[SHORT[name] for name in TRAINED])
        control = one(pick(scores, correlation=0.0, item_kind=""), metric=metric, model=RANDOM)
        for verdict in [verdict for verdict in verdicts if verdict.question.startswith(question)]:
            extreme = trained["value"].astype(float).agg("max" if "highest" in verdict.question else "min")
            tied = trained[trained["value"].astype(float) == extreme]
            model = next(name for name in TRAINED if SHORT[name] == tied["model"].iloc[0])
            assert verdict.value == extreme
            assert ("(tie)" in verdict.question) == (len(tied) > 1)
            assert len(tied) > 1 or f": {model} ({tied['labels'].item()})" in verdict.question
            assert (verdict.random_low, verdict.random_high) == (control["low"], control["high"])


def test_the_papers_rows_are_ours():
    paper = load_paper("quantus_concepts.studies.substitution")
    assert set(paper["model"]) == {PAPER}
    table = pick(paper, of=list(SHORT))
    assert set(table["of"]) <= set(ROWS)
    # Table 1 of the paper: ten trained models, four numbers of each.
    assert len(table) == 40
    row = one(table, of=INDEPENDENT, labels=CLASS_HARD, metric="S+")
    assert row["value"] == 0.408


@pytest.fixture
def finished(golden: Callable[[str], Path]) -> Path:
    return golden("substitution")


def test_a_finished_run_makes_nothing_again(finished, tmp_path, monkeypatch):
    out = shutil.copytree(finished, tmp_path / "out")
    monkeypatch.setattr(models, "fit", raising(AssertionError("made again")))
    arguments = [*shlex.split(RUNS["substitution"].commands[0])[:-1], str(out)]
    with smaller(figures=False):
        assert main(arguments) == 0
    assert (out / "results.csv").read_bytes() == (finished / "results.csv").read_bytes()


def test_the_page_has_its_figures(finished):
    figures = {path.stem for path in (finished / "figures").glob("*.svg")}
    assert figures == {"scores", "curve-seen", "curve-gone", "gallery"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--root .", "`--root` has no effect with `--data painted`"),
        ("--data sub --root .", "Expected `--cub-root` with `--data sub`"),
        ("--data sub --root . --cub-root . --seeds 2", "`--seeds` has no effect"),
        ("--correlations 0,2", "`--correlations`"),
        ("--correlations half", "`--correlations`"),
        ("--data sub --root . --cub-root . --correlations none", "`--correlations` has no effect"),
        ("--data sub --root . --cub-root . --painted n_train=60", "`--painted` has no effect"),
        ("--painted n_train=2", "Expected `--painted n_train` to be at least 20, an image of each class, but got 2."),
        ("--painted n_train=30,n_test=15,n_classes=15,n_concepts=4", "fewer classes (n_classes)"),
    ],
)
def test_refusals(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    refused = f"benchmark substitution --image-size 32 --epochs 1 --device cpu --no-progress {arguments} --out out"
    assert main(refused.split()) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("Error: ") == 1
    assert not Path("out").exists()


@pytest.fixture
def sub_place(tmp_path, monkeypatch) -> str:
    """Write a small SUB, CUB, a network with weights, and return arguments that name them."""
    monkeypatch.chdir(tmp_path)
    cub = write_cub(tmp_path)
    Path("network.py").write_text(NETWORK)
    torch.save(load_network("network.py:model").module.state_dict(), "weights.pth")
    attributes = ["has_crown_color::black", "has_breast_color::blue", "has_bill_shape::needle"]
    birds = [name.partition(".")[2] for name in CLASSES]
    images = torch.rand(12, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    samples = [(image, attributes[n % 3], birds[n // 4]) for n, image in enumerate(images)]
    write_sub(samples, "sub", attribute_names=attributes, bird_names=birds)
    data = f"--data sub --root sub --cub-root {cub} --backbone network.py:model --weights weights.pth --image-size 32"
    return f"benchmark substitution {data} --device cpu --no-progress"


def saved_cbm(n_concepts: int = 112, n_classes: int = 3, **changes: Any) -> PostHocCBM:
    """Make a post-hoc CBM of the network's backbone whose values are drawn."""
    names = CUB200("CUB_200_2011").concept_names[:n_concepts]
    network = load_network("network.py:model", "weights.pth")
    backbone, _ = cut_network(network, None, torch.rand(1, 3, 32, 32))
    generator = torch.Generator().manual_seed(1)
    bank = ConceptBank(torch.randn(n_concepts, 8, generator=generator), names=names)
    return PostHocCBM(changes.pop("features", backbone), bank, nn.Linear(n_concepts, n_classes), **changes).eval()


@pytest.mark.filterwarnings("ignore")
def test_the_report_of_sub_has_the_papers_numbers(sub_place):
    model = saved_cbm()
    model.save("cbm.safetensors")
    with smaller(figures=False):
        assert main(f"{sub_place} --encoders embedded --cbm cbm.safetensors --out out".split()) == 0
    frame = pd.read_csv("out/results.csv").fillna({"labels": "", "item": ""})
    scores = pick(frame, item="")
    assert set(pick(scores, model="embedded")["labels"]) == set(report.OPTIONS)
    scores = pick(scores, model=list(SHORT))
    assert set(scores["metric"]) == {"S+", "S-", "recital", "T_A", "T"}
    # Of the three attributes one is among the 112 concepts.
    assert set(pick(scores, model=POST_HOC)["labels"]) == {CLASS_HARD, IMAGE_HARD}
    assert one(scores, model=POST_HOC, labels=IMAGE_HARD, metric="S+")["n"] == 4
    page = Path("out/report.html").read_text()
    assert "Beside the paper" in page
    assert "40.8" in page
    assert "of the file" in page
    assert "Backbone: model() of network.py" in page
    # Settings of painted birds play no role.
    assert "<dt>painted</dt>" not in page
    assert "<dt>correlations</dt>" not in page
    # The saved model by the library's own call.
    transform = default_transform(32, "resize", (0.5,) * 3, (0.25,) * 3)
    data = SUB("sub", cub=CUB200("CUB_200_2011", class_concepts="majority"), transform=transform)
    expected = pick(score_substitutions(model, DataLoader(data, 5), threshold=0.0), item="")
    for metric in ("S+", "S-", "recital"):
        assert one(scores, model=SAVED, metric=metric)["value"] == pytest.approx(one(expected, metric=metric)["value"])


@pytest.mark.filterwarnings("ignore")
def test_end_to_end_models_are_trained_on_cub(sub_place, monkeypatch):
    monkeypatch.setattr(kinds, "ROWS", {INDEPENDENT: (CLASS_SOFT,), JOINT: (CLASS_HARD,)})
    command = sub_place.replace("network.py:model --weights weights.pth", "small --epochs 1")
    with smaller(figures=False):
        assert main(f"{command} --out out".split()) == 0
    scores = pick(pd.read_csv("out/results.csv").fillna({"labels": "", "item": ""}), item="")
    pairs = scores[["model", "labels"]].drop_duplicates().itertuples(index=False, name=None)
    assert set(pairs) == {(INDEPENDENT, CLASS_SOFT), (JOINT, CLASS_HARD), (RECITER, ""), (RANDOM, "")}
    assert scores.loc[scores["metric"] == "T", "value"].between(0, 1).all()
    assert "34.3" in Path("out/report.html").read_text()


def test_classes_of_cub_have_what_most_say_and_the_share_that_say_so(tmp_path):
    train = CUB200(write_cub(tmp_path), class_concepts="majority")
    training = Training.of_marks(train, train)
    first = train.concept_labels[train.labels == 1]
    assert torch.equal(training.targets(CLASS_SOFT)[train.labels == 1][0], first.mean(0))
    assert torch.equal(training.targets(CLASS_HARD), train.class_concepts[train.labels])
    assert (training.share == 0.5).sum() > 0


@pytest.mark.filterwarnings("ignore")
def test_a_saved_model_that_does_not_fit_is_an_error(sub_place, capsys):
    cases = {
        "100 in another": saved_cbm(n_concepts=100),
        "3 classes .* 4": saved_cbm(n_classes=4),
        "--mean": saved_cbm(),
    }
    cases["--mean"].normalisation = ((0.1,) * 3, (0.2,) * 3)
    for reason, model in cases.items():
        model.save("cbm.safetensors")
        assert main(f"{sub_place} --cbm cbm.safetensors --out refused".split()) == 2
        error = capsys.readouterr().err
        assert re.search(reason, error), error
        assert "--cbm" in error
    Path("cbm.safetensors").write_bytes(Path("cbm.safetensors").read_bytes()[:-9])
    assert main(f"{sub_place} --cbm cbm.safetensors --out refused".split()) == 2
    assert "`--cbm` names what cannot be used" in capsys.readouterr().err
    assert not Path("refused").exists()
