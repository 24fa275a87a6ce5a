"""Truth next to a loader is of its images in their order, and names known on both sides are matched by name."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
)

from captum_concepts import ConceptBank, PostHocCBM
from contributing_metric import ConceptMass
from quantus_concepts import (
    CEM,
    CGIM,
    UsualMetrics,
    explore,
    intervention_curve,
    score_concepts,
    score_discovered,
    score_substitutions,
)
from quantus_concepts.metrics.contrast.regions import Subject
from quantus_concepts.metrics.host.alignment import ModelNames, Order, TruthLookup
from quantus_concepts.metrics.host.looks import Looking
from quantus_concepts.metrics.host.predictions import ConceptPredictions

NAMES, CLASSES = ["red", "green", "blue", "grey"], ["a", "b", "c", "d"]
N = 40
#: Image i is of class i % 4 and shows concept i % 4 alone.
KIND = torch.arange(N) % 4
X = torch.eye(4)[KIND][:, :, None, None].repeat(1, 1, 2, 2)
LABELS = torch.eye(4)[KIND]

#: One concept of each image.
ONE = UsualMetrics(top_l=[1])


def make_model(class_names: list[str] | None = None, names: list[str] | None = NAMES) -> PostHocCBM:
    head = nn.Linear(4, 4)
    head.weight.data, head.bias.data = torch.eye(4), torch.zeros(4)
    model = PostHocCBM(nn.Identity(), ConceptBank(torch.eye(4), names=names), head).eval()
    model.absent_values = torch.zeros(4)
    model.class_names = class_names
    return model


class Data(Dataset):
    """The images, with concepts and classes in some order."""

    def __init__(self, concepts: list[int], classes: list[int] | None = None, n_concepts: int = 4) -> None:
        self.concepts, self.classes = concepts, [0, 1, 2, 3] if classes is None else classes
        self.concept_names = [[*NAMES, "striped"][j] for j in concepts]
        self.class_names = [CLASSES[k] for k in self.classes]
        self.class_concepts = torch.eye(5)[self.classes][:, concepts]
        self.part_of_concept = torch.tensor([*range(4), -1])[concepts]
        self.number = {kind: place for place, kind in enumerate(self.classes)}
        self.added = torch.tensor([concepts.index(int(kind)) for kind in KIND])

    def __len__(self) -> int:
        return N

    def __getitem__(self, index: int) -> tuple[object, ...]:
        kind = int(KIND[index])
        points = torch.tensor([[0.0, 0], [1, 0], [0, 1], [1, 1]])
        return X[index], self.number[kind], torch.eye(5)[kind][self.concepts], points


def value_of(table: pd.DataFrame, metric: str, explanation: str = "value") -> list[float]:
    rows = table[(table.metric == metric) & (table.baseline == "") & (table["item"] == "")]
    return rows[rows.explanation.isin([explanation, ""])].value.tolist()


SHUFFLED = {
    "RandomSampler": lambda data: DataLoader(data, 8, shuffle=True),
    "SubsetRandomSampler": lambda data: DataLoader(data, 8, sampler=SubsetRandomSampler(range(N))),
    "WeightedRandomSampler": lambda data: DataLoader(data, 8, sampler=WeightedRandomSampler(torch.ones(N), N)),
    "BatchSampler": lambda data: DataLoader(data, batch_sampler=BatchSampler(RandomSampler(range(N)), 8, False)),
    "DistributedSampler": lambda data: DataLoader(data, 8, sampler=DistributedSampler(data, 1, 0)),
}
PAIRS = TensorDataset(X, KIND)


@pytest.mark.parametrize("kind", SHUFFLED)
def test_truth_by_argument_next_to_a_loader_that_may_shuffle_raises(kind: str) -> None:
    loader, model = SHUFFLED[kind](PAIRS), make_model()
    for call in (
        lambda: score_concepts(model, loader, ONE, truth={"concept_labels": LABELS}),
        lambda: score_concepts(model, loader, ONE, truth={"labels": KIND, "concept_labels": LABELS}),
        lambda: intervention_curve(model, loader, concept_labels=LABELS, levels=model.value_levels(PAIRS)),
        lambda: score_substitutions(model, loader, added=KIND),
        lambda: score_discovered(nn.Identity(), model.bank, loader, nn.Linear(4, 4), labels=KIND),
        lambda: PostHocCBM.fit(nn.Identity(), loader, concept_labels=LABELS, min_images=1),
        lambda: explore(model, loader, concept_labels=LABELS),
        lambda: Subject(nn.Linear(4, 4), loader, KIND),
    ):
        with pytest.raises(ValueError, match=r"in the order of `.*` but it has a sampler of its own"):
            call()


@pytest.mark.parametrize("kind", SHUFFLED)
def test_truth_of_a_metric_next_to_a_loader_that_may_shuffle_raises(kind: str) -> None:
    with pytest.raises(ValueError, match="in the order of `concept_labels`"):
        score_concepts(make_model(), SHUFFLED[kind](PAIRS), [CEM(LABELS)])


def test_truth_of_a_metric_has_a_row_for_each_image() -> None:
    for rows in (LABELS[:30], torch.cat([LABELS, LABELS])):
        with pytest.raises(ValueError, match=f"`concept_labels` to hold as many rows .* but got {len(rows)}"):
            score_concepts(make_model(), DataLoader(PAIRS, 8), [CEM(rows, importance="value")])


@pytest.mark.parametrize("labels", [KIND[:, None], torch.eye(4)[KIND].long(), KIND.double()])
def test_labels_of_batches_are_read_as_those_of_arguments(labels: torch.Tensor) -> None:
    loader = DataLoader(TensorDataset(X, labels, LABELS), 8)
    assert value_of(score_concepts(make_model(), loader, [CEM(importance="value", only_correct=True)]), "CEM") == [1]


@pytest.mark.parametrize("kind", SHUFFLED)
def test_truth_in_the_batches_may_be_shuffled(kind: str) -> None:
    loader = SHUFFLED[kind](TensorDataset(X, KIND, LABELS))
    assert value_of(score_concepts(make_model(), loader, ONE), "CEM") == [1, 1]


def test_batches_in_order_take_truth_by_argument() -> None:
    ordered = DataLoader(PAIRS, batch_sampler=BatchSampler(SequentialSampler(PAIRS), 7, False))
    for loader in (ordered, DataLoader(Subset(PAIRS, range(N)), 7)):
        table = score_concepts(make_model(), loader, ONE, truth={"concept_labels": LABELS})
        assert value_of(table, "CEM") == [1, 1]


def test_a_selection_of_concepts_does_not_hide_a_shuffling_loader() -> None:
    loader = DataLoader(Data([0, 1, 2, 3, 4]), 8, shuffle=True)
    with pytest.raises(ValueError, match=r"in the order of `labels`"):
        score_concepts(make_model(), loader, ONE, truth={"labels": KIND})


@pytest.mark.parametrize("concepts", [[3, 2, 1, 0], [1, 3, 0, 2], [4, 2, 0, 1, 3]])
@pytest.mark.parametrize("classes", [[0, 1, 2, 3], [2, 0, 3, 1]])
def test_a_data_set_is_matched_by_the_names_of_concepts_and_classes(concepts: list[int], classes: list[int]) -> None:
    model = make_model(CLASSES)
    expected = score_concepts(model, DataLoader(Data([0, 1, 2, 3]), 8), ONE)
    found = score_concepts(model, DataLoader(Data(concepts, classes), 8), ONE)
    pd.testing.assert_frame_equal(found, expected)
    assert value_of(found, "CEM") == [1, 1]
    added = [score_substitutions(model, DataLoader(data, 8)) for data in (Data([0, 1, 2, 3]), Data(concepts, classes))]
    pd.testing.assert_frame_equal(added[1], added[0])
    pages = [explore(model, DataLoader(data, 8)).html for data in (Data([0, 1, 2, 3]), Data(concepts, classes))]
    assert pages[0] == pages[1]


def test_names_of_others_raise() -> None:
    for model in (make_model(names=["red", "green", "blue", "pink"]), make_model(["a", "b", "c", "z"])):
        with pytest.raises(ValueError, match="by their names, but 1 of 4 are not there"):
            score_concepts(model, DataLoader(Data([0, 1, 2, 3]), 8))
    models = {"one": make_model(), "other": make_model(names=NAMES[::-1])}
    with pytest.raises(ValueError, match="concepts in one order"):
        score_concepts(models, DataLoader(PAIRS, 8))
    with pytest.raises(ValueError, match="`concept_names` to be in the order of the model's own names"):
        score_concepts(make_model(), DataLoader(PAIRS, 8), truth={"concept_names": NAMES[::-1]})


def test_a_model_without_names_is_matched_by_place() -> None:
    table = score_concepts(make_model(names=None), DataLoader(Data([0, 1, 2, 3]), 8), ONE)
    assert value_of(table, "CEM") == [1, 1]
    assert NAMES[0] in {*table["item"]}


def test_arrays_are_refused_where_model_and_data_set_have_other_orders() -> None:
    model, loader = make_model(CLASSES), DataLoader(Data([3, 2, 1, 0], [1, 0, 2, 3]), 8)
    with pytest.raises(ValueError, match=r"`class_concepts` to say which (concepts|classes) it is about"):
        score_concepts(model, loader, ONE, class_concepts=np.eye(4))
    for name, value in (("concept_labels", LABELS), ("labels", KIND)):
        with pytest.raises(ValueError, match=f"`{name}` to say which (concepts|classes) it is about"):
            score_concepts(model, loader, ONE, truth={name: value})
    table = pd.DataFrame(np.eye(4), CLASSES, NAMES)
    for frame in (table, table.iloc[::-1], table[NAMES[::-1]]):
        assert value_of(score_concepts(model, loader, ONE, class_concepts=frame), "CGIM") == [1, 1]


def test_a_table_is_matched_by_its_rows_and_columns() -> None:
    table, x = pd.DataFrame(np.eye(4), CLASSES, NAMES), X.numpy()
    of_images = pd.DataFrame(LABELS.numpy(), columns=NAMES)
    for frame in (table, table.iloc[::-1], table[NAMES[::-1]], table.sample(frac=1, random_state=0)):
        for model in (make_model(CLASSES), make_model(CLASSES).eval()):
            assert CGIM(frame, importance="value")(model, x, KIND, channel_first=True) == [1, 1, 1, 1]
        loader = DataLoader(Data([0, 1, 2, 3]), 8)
        assert value_of(score_concepts(make_model(), loader, ONE, class_concepts=frame), "CGIM") == [1, 1]
        metrics = [CGIM(frame, importance="value")]
        assert value_of(score_concepts(make_model(CLASSES), loader, metrics), "CGIM") == [1]
    for frame in (of_images, of_images[NAMES[::-1]]):
        metric = CEM(importance="value")
        assert CEM(frame, importance="value")(make_model(), x, KIND, channel_first=True) == [1] * N
        assert metric(make_model(), x, KIND, channel_first=True, custom_batch={"concept_labels": frame}) == [1] * N
        assert value_of(
            score_concepts(make_model(), DataLoader(PAIRS, 8), ONE, truth={"concept_labels": frame}), "CEM"
        ) == [
            1,
            1,
        ]
    numbers = pd.DataFrame(np.eye(4)[::-1], index=[3, 2, 1, 0], columns=NAMES)
    assert CGIM(numbers, importance="value")(make_model(), x, KIND, channel_first=True) == [1, 1, 1, 1]
    with pytest.raises(ValueError, match="by their names, but 1 of 4"):
        CGIM(table.rename(columns={"red": "rot"}))(make_model(CLASSES), x, KIND, channel_first=True)


def test_a_table_of_a_metric_that_says_nothing_of_names_is_matched_too() -> None:
    table, x = pd.DataFrame(LABELS.numpy(), columns=NAMES), X.numpy()
    for frame in (table, table[NAMES[::-1]]):
        metric = ConceptMass(frame, importance="value")
        assert metric(make_model(), x, KIND, channel_first=True) == [1] * N
        # The table of a variant changes nothing in the metric that it comes from.
        other = metric.vary(importance="contribution")
        other.match_names(ModelNames(None, NAMES[::-1]))
        assert metric(make_model(), x, KIND, channel_first=True) == [1] * N


def test_fit_matches_names() -> None:
    table = pd.DataFrame(LABELS.numpy(), columns=NAMES)
    options = {"min_images": 1, "n_pos": 5, "n_neg": 5}
    cbm = PostHocCBM.fit(nn.Identity(), DataLoader(PAIRS, 8), concept_labels=table, **options)
    assert cbm.bank.names == NAMES
    turned = PostHocCBM.fit(
        nn.Identity(), DataLoader(PAIRS, 8), concept_labels=table[NAMES[::-1]], names=NAMES, **options
    )
    assert turned.bank.names == NAMES
    torch.testing.assert_close(turned.bank.cavs, cbm.bank.cavs)
    loader = DataLoader(Data([0, 1, 2, 3]), 8)
    for arguments in ({"names": NAMES[::-1]}, {"class_names": CLASSES[::-1]}):
        with pytest.raises(ValueError, match="in the order of the names of the loader's data set"):
            PostHocCBM.fit(nn.Identity(), loader, min_images=1, **arguments)


def test_truth_of_images_is_that_of_the_part() -> None:
    data = Data([0, 1, 2, 3])
    data.pairs, data.kinds = np.arange(N), np.arange(N) * 2
    rows = [5, 2, 31]
    look_up = TruthLookup(DataLoader(Subset(Subset(data, range(1, N)), [4, 1, 30]), 2))
    assert look_up("added").tolist() == data.added[rows].tolist()
    assert look_up("pairs").tolist() == rows
    # Under a name that only a metric knows, if it is about images; else all of it.
    assert look_up("kinds", of_images=True).tolist() == [10, 4, 62]
    assert look_up("kinds").tolist() == data.kinds.tolist()
    assert look_up("part_of_concept").tolist() == [0, 1, 2, 3]
    whole = TruthLookup(DataLoader(data, 2))
    assert whole("kinds", of_images=True).tolist() == data.kinds.tolist()


def test_numbers_of_a_data_set_become_those_of_the_model() -> None:
    # The model has the second and the last of four classes, in this order; -1 is none.
    order = Order(classes=[3, 1], n_classes=4)
    for labels in (np.array([-1, 0, 1, 2, 3]), torch.tensor([-1, 0, 1, 2, 3])):
        moved = order.apply("labels", labels)
        assert type(moved) is type(labels)
        assert moved.tolist() == [-1, -1, 1, -1, 0]
    for wrong in (4, -2):
        with pytest.raises(ValueError, match=f"`labels` of the data set to lie in -1 to 3 but got {wrong}"):
            order.apply("labels", np.array([0, wrong, 1]))


def test_metrics_of_one_pass_keep_their_own_truth() -> None:
    """Two of one class, one name, other arrays: for several models, and after the other one was computed."""
    others = 1 - LABELS
    rolled = (KIND + (torch.arange(N) % 3 == 0)) % 4
    metrics = {
        "first": CEM(LABELS, only_correct=True, labels=KIND),
        "second": CEM(others, only_correct=True, labels=rolled),
        "third": CEM(LABELS, only_correct=True, labels=rolled),
    }
    models = {"a": make_model(), "b": make_model()}
    batches = [(X[rows], KIND[rows]) for rows in torch.arange(N).split(8)]
    table = score_concepts(models, batches, metrics, baselines=False)
    counts = N, int((rolled == KIND).sum())
    for name in models:
        rows = table[table["model"] == name].set_index("metric")
        assert rows["value"].to_dict() == {"first": 1, "second": 0, "third": 1}
        assert rows["n"].to_dict() == {"first": counts[0], "second": counts[1], "third": counts[1]}


def test_rows_with_other_truth_forget_what_was_made_of_the_labels() -> None:
    rows = ConceptPredictions(classes=KIND, predicted=KIND, values=LABELS, truth={"labels": KIND})
    assert rows.correct.all()
    ranks, made = rows.ranked("value", 2)[0], rows.once(("of labels",), lambda: rows.labels.sum())
    other = rows.knowing(truth={"labels": (KIND + 1) % 4})
    assert not other.correct.any()
    assert other.once(("of labels",), lambda: "anew") == "anew"
    # What does not depend on it is shared, and the rows themselves stay.
    assert other.ranked("value", 2)[0].data_ptr() == ranks.data_ptr()
    assert rows.once(("of labels",), lambda: "anew") is made
    assert rows.knowing(about={"kind": "other"}).once(("of labels",), lambda: "anew") is made
    # Other values rank anew.
    assert not torch.equal(rows.knowing(values=-LABELS).ranked("value", 2)[0], ranks)


def test_what_all_models_of_a_batch_share_is_made_once() -> None:
    shared: dict[object, object] = {}
    rows = ConceptPredictions(classes=KIND, values=X)
    one, two = (Looking(None, rows, X, None, {}, shared) for _ in range(2))
    first = one.once("key", lambda: [1])
    assert two.once("key", lambda: [2]) is first
    assert two.with_truth({"points": X}).once("key", lambda: [3]) is first
    # Some of the images are others.
    assert two.take(np.array([1, 3])).once("key", lambda: [4]) == [4]
