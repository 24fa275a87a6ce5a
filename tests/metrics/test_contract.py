"""The contract of metrics over ours: what scores best, what scores chance, and metrics that break a law."""

from __future__ import annotations

import inspect
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import known_truth
from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM
from captum_concepts.models.interventions import Levels
from contributing_metric import ConceptMass
from known_truth import World
from metric_inputs import EXPORTED
from quantus_concepts import metrics
from quantus_concepts.metrics import ConceptPredictions
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.testing import MetricCase, contract, parametrize_with_metrics
from quantus_concepts.testing.cases import drawn_call
from quantus_concepts.testing.contract import LAWS
from tiny_encoders import PoolingEncoder

TABLE = torch.tensor([[1, 0, 0, 1, 1], [0, 1, 0, 1, 0], [0, 0, 1, 0, 1], [0, 0, 0, 0, 1]])
N_CLASSES, N_CONCEPTS = TABLE.shape
DRAWN = np.random.default_rng(3).random((N_CLASSES, N_CONCEPTS))
PARTS = [0, 1, -1, 2, 0]


def rows(values: Tensor, concepts: Tensor, **parts: Any) -> ConceptPredictions:
    """Return rows of so many values (N, L), of classes in turn that are all recognised, explained by their values."""
    classes = torch.arange(len(values)) % N_CLASSES
    known = {"classes": classes, "predicted": classes, "values": values, "given": values, "about": {"bounded": True}}
    truth = {"concept_labels": concepts, "labels": classes, "network_classes": classes, **parts.pop("truth", {})}
    return ConceptPredictions(**known | parts, truth=truth)


def drawn(seed: int, n: int = 400, **parts: Any) -> ConceptPredictions:
    """Return rows of values that know nothing of concepts, which know nothing of classes."""
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(n, N_CONCEPTS, generator=random)
    predicted = torch.randint(N_CLASSES, (n,), generator=random)
    return rows(
        values, torch.rand(n, N_CONCEPTS, generator=random).lt(0.4).long(), predicted=predicted, head=decoder(), **parts
    )


def copied(n: int = 400) -> ConceptPredictions:
    """Return rows whose values are the concepts of their classes, and the number of one that was put in."""
    concepts = TABLE[torch.arange(n) % N_CLASSES]
    return rows(2.0 * concepts - 1, concepts, head=decoder(), truth={"added": concepts.argmax(1)})


def honest(n: int = 4000) -> ConceptPredictions:
    """Return rows whose values are concepts, some of which are not those of the class, and noise."""
    random = torch.Generator().manual_seed(0)
    concepts = TABLE[torch.arange(n) % N_CLASSES] ^ torch.rand(n, N_CONCEPTS, generator=random).lt(0.2)
    return rows(concepts + 0.2 * torch.randn(n, N_CONCEPTS, generator=random), concepts)


def probabilities(known: ConceptPredictions) -> ConceptPredictions:
    """Return the same rows with values from 0 to 1."""
    return replace(known, values=(known.values > 0).float(), given=(known.values > 0).float())


def prevalent(seed: int) -> ConceptPredictions:
    """Return rows that give every image the share of images with the concept."""
    known = drawn(seed)
    shares = known.truth["concept_labels"].float().mean(0).expand(len(known), -1)
    return replace(known, values=shares, given=shares)


def of_length_1(seed: int) -> Tensor:
    """Return embeddings (400, 8) that know nothing of an image."""
    return nn.functional.normalize(torch.randn(400, 8, generator=torch.Generator().manual_seed(seed)), dim=1)


def decoder() -> nn.Linear:
    """Return a head that finds the class with the concepts."""
    head = nn.Linear(N_CONCEPTS, N_CLASSES)
    head.weight.data, head.bias.data = 2.0 * TABLE - 1, -TABLE.sum(1).float()
    return head


class Thirds(nn.Module):
    """The means of the left, the middle and the right third of an image, as maps of a channel for each."""

    def forward(self, images: Tensor) -> Tensor:
        shown = nn.functional.adaptive_avg_pool2d(images.mean(1, keepdim=True), (1, 3))
        return shown * torch.eye(3, dtype=shown.dtype)[:, None]


def thirds(points: Any, bank: Tensor | None = None) -> dict[str, Any]:
    """Return a call with images of whose thirds one is bright, a concept each, and the places of three parts."""
    classes = np.arange(60) % 3
    images = np.random.default_rng(0).random((60, 1, 12, 12), dtype=np.float32)
    for image, third in zip(images, classes, strict=True):
        image[..., 4 * third : 4 * third + 4] += 3
    head = nn.Linear(3, 3)
    head.weight.data, head.bias.data = torch.eye(3), torch.zeros(3)
    model = PostHocCBM(Thirds(), ConceptBank(torch.eye(3) if bank is None else bank), head, values="raw").eval()
    model.absent_values = torch.zeros(3)
    return {"model": model, "x_batch": images, "y_batch": classes, "custom_batch": {"points": np.asarray(points)}}


def boxed(seed: int | None = None) -> dict[str, Any]:
    """Return a call with boxes of the bright thirds; with a seed maps show nothing."""
    call = thirds(CENTRES, None if seed is None else torch.ones(3, 3))
    boxes = np.broadcast_to(np.array([[0, 0, 4, 12], [4, 0, 4, 12], [8, 0, 4, 12]], dtype=float), (60, 3, 4))
    if seed is not None:
        call["x_batch"] = np.random.default_rng(seed).random((60, 1, 12, 12), dtype=np.float32)
    return {**call, "custom_batch": {"regions": boxes}}


CENTRES = np.broadcast_to([[1.5, 5.5], [5.5, 5.5], [9.5, 5.5]], (60, 3, 2))


def scattered(seed: int) -> dict[str, Any]:
    return thirds(np.random.default_rng(seed).uniform(-0.5, 11.5, (60, 3, 2)))


def of_world(name: str, n: int = 12, seed: int = 0, explain: Any = known_truth.knows) -> tuple[Any, dict[str, Any]]:
    """Return a metric of attributions, and a call with objects on scenes."""
    world = World(n, seed)
    metric, call = known_truth.metric_and_call(name, world, explain)
    truth = metric.bound_truth
    return metric.vary(**dict.fromkeys(truth)), {**call, "s_batch": world.masks, "custom_batch": truth}


def powers(model: Any, inputs: Any, targets: Any, **keywords: Any) -> np.ndarray:
    """Explain each model by another power of what images show."""
    return np.tanh(np.asarray(inputs).sum(1, keepdims=True) / 4) ** (1 + len(model.uses) % 4)


def of_attributions(name: str, **settings: Any) -> MetricCase:
    metric, call = of_world(name)
    # Not those of the optimum: Quantus refuses maps of ones.
    return MetricCase(metric, optimum=call, call=of_world(name, explain=powers)[1], **settings)


BY_NUMBERS = dict.fromkeys(["order_of_images", "order_of_concepts"], "it draws by the numbers of rows and columns")
OF_SIGMOIDS = {
    "model": BottleneckCBM(nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU()), nn.Linear(6, N_CONCEPTS), decoder()).eval()
}
OF_PROBABILITIES = {"positive_factor": "probabilities are in [0, 1]"}
LEVELS = Levels(torch.full((N_CONCEPTS,), -1.0), torch.ones(N_CONCEPTS))
PATCH = metrics.Patch(drawn_call()["x_batch"][0], pixel_range=(-6, 6), steps=2, tolerance=10)
#: Whose optimum or chance is not known.
UNKNOWN = {
    "Locality": "it is in units of the spread of values: no optimum",
    "Faithfulness": "no map removes all of a class, or nothing",
    "PASTAScore": "what a scorer gives",
    "IIR": "chance depends on the noise",
}
CASES = [
    MetricCase(ConceptMass(), optimum=copied(), chance=drawn),
    MetricCase(metrics.CEM(), optimum=copied(), chance=drawn),
    MetricCase(metrics.CEM(top_l=2, only_correct=True, importance="contribution")),
    MetricCase(metrics.CEM(gain=True), best=0.4, chance=drawn),
    MetricCase(metrics.CGIM(TABLE.numpy()), optimum=rows(TABLE.float(), TABLE)),
    MetricCase(metrics.CGIM(TABLE.numpy(), per="class", centred=True), optimum=copied(), chance=drawn, at_chance=0),
    MetricCase(metrics.CGIM(DRAWN, importance="weight")),
    MetricCase(metrics.CGIM(TABLE.numpy(), per="class", importance="value")),
    MetricCase(metrics.ConceptAUC(), optimum=copied(), chance=drawn),
    # A random order of few images has more than the prevalence: .01 of 400.
    MetricCase(metrics.ConceptQuality(), optimum=copied(), chance=prevalent),
    MetricCase(metrics.ConceptQuality("f1", threshold=0.0), optimum=copied(), chance=drawn),
    MetricCase(
        metrics.ConceptQuality("brier"),
        best=0,
        optimum=probabilities(copied()),
        chance=prevalent,
        call=OF_SIGMOIDS,
        excused=OF_PROBABILITIES,
    ),
    MetricCase(
        metrics.ConceptQuality("calibration_error", n_bins=2),
        best=0,
        optimum=probabilities(copied()),
        chance=prevalent,
        at_chance=0,
        call=OF_SIGMOIDS,
        excused=OF_PROBABILITIES,
    ),
    MetricCase(
        metrics.Monosemanticity(),
        optimum=rows(copied().values[:, :3], TABLE[:, :3], truth={"embeddings": torch.eye(4)[torch.arange(400) % 4]}),
        chance=lambda seed: drawn(seed, truth={"embeddings": of_length_1(seed)}),
        call={"custom_batch": {"embeddings": of_length_1(1)[:30]}},
    ),
    MetricCase(metrics.OracleHead(TABLE.numpy(), threshold=0.0), optimum=copied(), chance=drawn),
    MetricCase(
        metrics.SubstitutionScore(threshold=0.0),
        optimum=copied(),
        chance=lambda seed: drawn(seed, truth={"added": torch.arange(400) % N_CONCEPTS}),
    ),
    MetricCase(
        metrics.CLM(alpha=3, part_of_concept=[0, 1, 2]), optimum=thirds(CENTRES), chance=scattered, call=thirds(CENTRES)
    ),
    MetricCase(metrics.CLM(alpha=3, part_of_concept=PARTS, top_l=2, importance="value")),
    MetricCase(metrics.ConceptRegions("iou", part_of_concept=[0, 1, 2]), optimum=boxed(), call=boxed()),
    MetricCase(
        metrics.ConceptRegions("energy", part_of_concept=[0, 1, 2]),
        chance=lambda seed: boxed(seed),
        call=boxed(),
        at_chance=None,
    ),
    MetricCase(metrics.Locality(PARTS)),
    MetricCase(
        metrics.Locality([0, 1, 2]),
        chance=lambda seed: thirds(CENTRES, torch.ones(3, 3)),
        at_chance=0,
        call=thirds(CENTRES),
    ),
    MetricCase(
        metrics.ConceptSetCeiling(),
        optimum=copied(),
        chance=lambda seed: rows(torch.zeros(400, N_CONCEPTS), torch.zeros(400, N_CONCEPTS)),
        at_chance=1 / N_CLASSES,
    ),
    MetricCase(
        metrics.ConceptTaskLeakage(n_bins=2, n_permutations=19),
        best=0,
        tolerance=0.002,
        optimum=honest(),
        chance=drawn,
        at_chance=0,
        excused=BY_NUMBERS,
    ),
    MetricCase(
        metrics.InterconceptLeakage(n_bins=2, n_permutations=19),
        best=0,
        tolerance=0.002,
        optimum=rows(honest().values, honest().truth["concept_labels"]),
        chance=drawn,
        at_chance=0,
        excused=BY_NUMBERS,
    ),
    MetricCase(
        metrics.Completeness(),
        optimum=copied(),
        chance=drawn,
        call={"custom_batch": {"network_classes": np.arange(30) % 4, "labels": np.arange(30) % 4}},
    ),
    MetricCase(
        metrics.SparseHeadAccuracy(sizes=(1, 2), n_steps=3, n_iterations=50),
        optimum=rows(torch.eye(4).repeat(100, 1), TABLE.repeat(100, 1)),
        chance=drawn,
        at_chance=1 / 4,
        excused={"order_of_images": "its halves are the even and the odd images of each class"},
    ),
    MetricCase(
        metrics.InterventionAccuracy(levels=LEVELS),
        optimum=copied(),
        chance=drawn,
        at_chance=1 / 4,
        excused=BY_NUMBERS | {"positive_factor": "levels are in units of values"},
    ),
    MetricCase(metrics.Faithfulness("gaussian", thresholds=(10, 30))),
    MetricCase(metrics.Faithfulness("road", thresholds=(10, 20))),
    MetricCase(
        metrics.PASTAScore(
            Scorer(PoolingEncoder.dim, labels=None, hidden=(8,)), PoolingEncoder(), denormalise=torch.sigmoid
        ),
        call={"custom_batch": {"labels": None}},
        excused={"unknown_classes": "it runs no classes of a model"},
    ),
    of_attributions("MCS", chance=lambda seed: of_world("MCS", 200, seed, known_truth.random)[1]),
    of_attributions("IDR", chance=lambda seed: of_world("IDR", 200, seed, known_truth.random)[1]),
    of_attributions("IIR"),
    MetricCase(metrics.IIR(patch=PATCH, agreement=-1)),
]


@parametrize_with_metrics(CASES)
def test_contract(case: MetricCase, law: Any) -> None:
    law(case)


def test_every_metric_has_a_case_with_its_optimum_and_chance() -> None:
    for kind in [*EXPORTED, ConceptMass]:
        cases = [case for case in CASES if type(case.metric) is kind]
        known = any(case.optimum is not None for case in cases) and any(case.chance is not None for case in cases)
        assert cases, kind.__name__
        assert known != (kind.__name__ in UNKNOWN), kind.__name__


class Wrong(ConceptMass):
    """A metric that keeps the contract but for one thing."""

    def scored(self, rows: Any, values: Tensor, **others: Any) -> Any:
        return super().scored(rows, self.spoilt(values, rows), **others)

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        raise NotImplementedError


class OfBatches(Wrong):
    """Values are counted from the largest of a batch."""

    def rows_of(self, *batch: Any, **settings: Any) -> Any:
        rows = super().rows_of(*batch, **settings)
        return rows.knowing(truth={**rows.truth, "largest": rows.values.max().expand(len(rows))})

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        return values / (1 + rows.truth["largest"]) if "largest" in rows.truth else values


class OfOrder(Wrong):
    """The first images count less."""

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        return values * torch.linspace(0.9, 1, len(values))


class NeverBest(Wrong):
    """Nothing is quite right."""

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        return 0.9 * values


class Silent(ConceptMass):
    """Zeros are undefined, and nobody is told."""

    def scored(self, rows: Any, values: Tensor, **others: Any) -> Any:
        return super().scored(rows, torch.where(values > 0, values, torch.nan), chance=others["chance"])


class Touching(ConceptMass):
    """A hook stays behind."""

    def rows_of(self, model: Any, *batch: Any, **settings: Any) -> Any:
        model.register_forward_hook(lambda *_: None)
        return super().rows_of(model, *batch, **settings)


class Drawing(Wrong):
    """Draws from the global generator."""

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        return values * torch.rand(len(values))


class OfSize(Wrong):
    """Large importances count more."""

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        return values * rows.importance(self.importance).norm(dim=1).clamp(max=1)


class OfNumbers(Wrong):
    """The first concept counts less."""

    def spoilt(self, values: Tensor, rows: Any) -> Tensor:
        return values * (1 - 0.5 * rows.truth["concept_labels"][:, 0])


class Forgiving(ConceptMass):
    """Whatever is refused has no score."""

    def __call__(self, *arguments: Any, **keywords: Any) -> list[float]:
        try:
            return super().__call__(*arguments, **keywords)
        except ValueError:
            return [np.nan]


#: The laws that a metric breaks, at least.
BROKEN = {
    OfBatches: {"batch_size", "updates", "merged_halves", "tables"},
    OfOrder: {"order_of_images", "optimum"},
    NeverBest: {"optimum", "chance"},
    Silent: {"undefined_scores"},
    Touching: {"nothing_is_changed"},
    Drawing: {"random_numbers", "nothing_is_changed"},
    OfSize: {"positive_factor"},
    OfNumbers: {"order_of_concepts"},
    Forgiving: {"host", "missing_truth", "no_images", "unknown_classes"},
}


@pytest.mark.parametrize("kind", BROKEN)
def test_a_metric_that_breaks_a_law_is_named_with_it(kind: type[ConceptMass]) -> None:
    case = MetricCase(kind(importance="value"), optimum=copied(), chance=drawn)
    broken = {}
    for law in LAWS.values():
        try:
            law(case)
        except AssertionError as error:
            broken[law.name] = str(error)
    assert broken.keys() >= BROKEN[kind], broken
    assert not any("NotImplementedError" in message for message in broken.values())
    for name, message in broken.items():
        assert message.startswith(f"{kind.__name__} breaks the law `{name}`: {LAWS[name].sentence}\n")


def test_laws_are_on_their_page_and_cases_are_checked() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api" / "subpackages.md").read_text("utf-8")
    assert re.findall(r"\| `(\w+)` \| (.*\.) \|", page) == [(name, law.sentence) for name, law in LAWS.items()]
    with pytest.raises(ValueError, match=r"`excused` of CEM to name laws, optimum, .* but got speed"):
        parametrize_with_metrics([MetricCase(metrics.CEM(), excused={"speed": "slow"})])
    with pytest.raises(TypeError, match=r"to hold metrics, as `CEM\(\)`, but got <class"):
        parametrize_with_metrics([metrics.CEM])
    # A bare metric has every law that needs no data.
    (_, params) = parametrize_with_metrics([metrics.CEM()]).args
    assert {law.name for _, law in (param.values for param in params)} == LAWS.keys() - {"optimum", "chance"}


def test_without_assertions_the_contract_refuses_to_run() -> None:
    # As `python -O` compiles it.
    source = inspect.getsource(parametrize_with_metrics)
    names = dict(vars(contract))
    exec(compile(source, contract.__file__, "exec", dont_inherit=True, optimize=1), names)
    with pytest.raises(RuntimeError, match="The laws are assertions"):
        names["parametrize_with_metrics"]([metrics.CEM()])
