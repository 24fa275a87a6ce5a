"""Everything on another device: on the simulated one the CPU's numbers to the bit, and few crossings for each batch."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from captum.attr import (
    DeepLift,
    GradientShap,
    InputXGradient,
    IntegratedGradients,
    KernelShap,
    LayerGradCam,
    Occlusion,
    Saliency,
)
from quantus.helpers.enums import DataType
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from both_devices import Arrays, assert_equal, assert_near, assert_rounded, on_cpu, simulated
from captum_concepts import (
    CONTROL_METHODS,
    PAPER_METHODS,
    CoAM,
    ConceptBank,
    PostHocCBM,
    SteeredRISE,
    build_method,
    embed,
    explain_func,
    tcav_score,
)
from captum_concepts.support import running
from device_inputs import (
    BATCH,
    CHANGED,
    CLASS_CONCEPTS,
    CLASSES,
    CONCEPT_LABELS,
    FEW,
    IMAGES,
    LABELS,
    LARGE,
    MANY,
    MAPS,
    PARTS,
    PICTURES,
    POINTS,
    QUARTERS,
    REGION,
    SIZE,
    cbm,
    concept_model,
    predicted,
    scorer,
    small_network,
)
from functional.test_lists_and_arrays import CALLS
from metric_inputs import OF_SEVERAL_CLASSES, metric_arguments, named_arguments
from quantus_concepts import (
    AVAILABLE_METRICS,
    CEM,
    CGIM,
    CLM,
    IIR,
    Faithfulness,
    PASTAScore,
    Patch,
    Subject,
    SubstitutionScore,
    check_premise,
    functional,
    optimise_patch,
    score_concepts,
    score_contrasts,
    score_discovered,
    score_relative,
    score_substitutions,
)
from quantus_concepts.datasets.ratings.explanations import MapExplanation
from quantus_concepts.metrics import UsualMetrics
from quantus_concepts.metrics.pasta.rated_metrics import measure_maps
from quantus_concepts.pasta import Embedder, TrainingSettings, score_masks, train_scorer
from simulated_device import NAME
from tiny_encoders import PoolingEncoder, tiny_open_clip
from tiny_models import N_CLASSES, TinyConceptModel

Run = Callable[[torch.device, int], Any]


def on_images(metric: Callable[[int], Any], classes: np.ndarray | None = None) -> Run:
    """A metric that is given images and, where it asks, an explanation method."""

    def run(device: torch.device, n: int) -> Any:
        targets = predicted(0, IMAGES) if classes is None else classes
        return metric(n)(
            concept_model(device),
            IMAGES[:n],
            targets[:n],
            s_batch=REGION[:n],
            explain_func=explain_func(InputXGradient, channels="sum", batch_size=BATCH),
            batch_size=BATCH,
        )

    return run


def on_concepts(metric: Callable[[int], Any], classes: np.ndarray | None = None) -> Run:
    """A metric of concept attributions, on the head."""

    def run(device: torch.device, n: int) -> Any:
        model = concept_model(device)
        with torch.no_grad():
            values = TinyConceptModel().concept_predictor(torch.from_numpy(IMAGES[:n])).numpy()
        explain = explain_func(InputXGradient, batch_size=BATCH)
        targets = predicted(0, IMAGES[:n]) if classes is None else classes[:n]
        return metric(n)(model.head, values, targets, explain_func=explain, batch_size=BATCH)

    return run


def on_maps(metric: Callable[[int], Any]) -> Run:
    """A metric of maps of a concept, on the concept predictor."""

    def run(device: torch.device, n: int) -> Any:
        model = cbm(device).concept_predictor
        explain = explain_func(CoAM.of, batch_size=BATCH)
        concepts = np.arange(n) % 2
        return metric(n)(model, IMAGES[:n], concepts, s_batch=REGION[:n], explain_func=explain, batch_size=BATCH)

    return run


def of_package(metric: type) -> Run:
    """A metric with the arguments that its constructor names."""

    def run(device: torch.device, n: int) -> Any:
        truth = {
            **{"concept_labels": CONCEPT_LABELS[:n], "class_concepts": CLASS_CONCEPTS, "added": CLASSES[:n]},
            **{"points": POINTS[:n], "part_of_concept": PARTS, "counterpart": CHANGED[:n], "patched": CHANGED[:n]},
            "network_classes": CLASSES[:n],
            **{"contrast_model": TinyConceptModel(1).to(device), "contrast_labels": predicted(1, IMAGES[:n])},
        }
        arguments = named_arguments(metric, metric_arguments(IMAGES[:n], np.random.default_rng(0)) | truth)
        kind = on_images if DataType.IMAGE in metric.data_applicability else on_concepts  # type: ignore[attr-defined]
        classes = CLASSES if metric.__name__ in OF_SEVERAL_CLASSES else None
        return kind(lambda _: metric(**arguments), classes)(device, n)

    return run


def pasta(device: torch.device, n: int, **arguments: Any) -> Any:
    # Pictures of the size that images have: bytes are resized by a kernel of the CPU's own.
    embedder = Embedder(PoolingEncoder(), size=SIZE)
    metric = PASTAScore(scorer(device), embedder, labels=CLASSES[:n] % 2, denormalise=torch.sigmoid, **arguments)
    return [on_images(lambda _: metric)(device, n), metric.question_scores]


METRICS: dict[str, Run] = {
    **{metric.__name__: of_package(metric) for metric in AVAILABLE_METRICS["Concepts"].values()},
    "CGIM of explanations": on_concepts(lambda n: CGIM(CLASS_CONCEPTS)),
    "CEM of the correct": on_images(lambda n: CEM(CONCEPT_LABELS[:n], top_l=2, only_correct=True), CLASSES),
    "CEM of explanations": on_concepts(lambda n: CEM(CONCEPT_LABELS[:n], top_l=2)),
    "CLM of explanations": on_maps(lambda n: CLM(alpha=3)),
    "SubstitutionScore of values": on_concepts(lambda n: SubstitutionScore(CLASSES[:n], threshold=0)),
    "Faithfulness by ROAD": on_images(lambda n: Faithfulness("road", thresholds=(10, 20))),
    "PASTAScore": pasta,
}


def run_patches(device: torch.device, n: int) -> Any:
    patch = Patch(IMAGES[0], pixel_range=(-6, 6), steps=2, tolerance=10)
    return on_images(lambda n: IIR(patch=patch))(device, n)


def run_concepts(device: torch.device, n: int, metrics: Any) -> Any:
    arrays = (IMAGES, CLASSES, CONCEPT_LABELS, POINTS)
    images, labels, concepts, points = (torch.from_numpy(array[:n]) for array in arrays)
    loader = DataLoader(TensorDataset(images, labels, concepts, points.float()), BATCH)
    return score_concepts(
        {"own": concept_model(device), "CBM": cbm(device)},
        loader,
        metrics,
        class_concepts=CLASS_CONCEPTS,
        truth={"part_of_concept": PARTS},
        value_threshold=0.0,
    )


def run_discovered(device: torch.device, n: int) -> Any:
    model = cbm(device)
    head = nn.Linear(model.bank.cavs.shape[1], N_CLASSES).to(device)
    nn.init.eye_(head.weight)
    nn.init.zeros_(head.bias)
    return score_discovered(model.features, model.bank, torch.from_numpy(IMAGES[:n]), head, n_splits=1, n_banks=3)


def run_substitutions(device: torch.device, n: int) -> Any:
    images, before, labels = (torch.from_numpy(array[:n]) for array in (IMAGES, CHANGED, CLASSES))
    batches = [
        {"images": some, "before": earlier, "labels": classes}
        for some, earlier, classes in zip(images.split(BATCH), before.split(BATCH), labels.split(BATCH), strict=True)
    ]
    models = {"own": concept_model(device), "CBM": cbm(device)}
    added, removed = CLASSES[:n], CLASSES[::-1][:n].copy()
    return score_substitutions(
        models, batches, added=added, removed=removed, class_concepts=CLASS_CONCEPTS, threshold=0.0
    )


def subjects(device: torch.device, n: int) -> tuple[dict[int, nn.Module], Callable[..., Subject]]:
    models = {seed: TinyConceptModel(seed).to(device) for seed in range(2)}
    return models, lambda seed, images: Subject(models[seed], images[:n], predicted(seed, images[:n]))


def run_contrasts(device: torch.device, n: int) -> Any:
    _, subject = subjects(device, n)
    scene = subject(1, IMAGES)
    pairs = {"mcs": (subject(0, IMAGES), scene), "idr": (scene, subject(1, CHANGED))}
    pairs["iir"] = (subject(0, IMAGES), subject(0, CHANGED))
    return score_contrasts(_saliency(), REGION[:n], **pairs, batch_size=BATCH, tolerance=10)


def run_relative(device: torch.device, n: int) -> Any:
    models, _ = subjects(device, n)
    arrays = (IMAGES[:n], CHANGED[:n], CLASSES[:n])
    return score_relative(_saliency(), REGION[:n], {0.5: models[0], 1.0: models[1]}, *arrays, batch_size=BATCH)


def run_premise(device: torch.device, n: int) -> Any:
    arrays = (IMAGES[:n], CHANGED[:n], PICTURES[:n], CLASSES[:n])
    return check_premise(TinyConceptModel().to(device), *arrays, name="f", feature="scene", batch_size=BATCH)


def run_rated_metrics(device: torch.device, n: int) -> Any:
    model, explain = TinyConceptModel().to(device), explain_func(Saliency, channels="sum")
    arrays = (torch.from_numpy(PICTURES[:n]), torch.from_numpy(MAPS[:n]))
    return measure_maps(model, *arrays, explain, thresholds=(6,), n_samples=2, batch_size=BATCH)


def patches(device: torch.device, n: int) -> Any:
    model = TinyConceptModel().to(device)
    return optimise_patch(model, PICTURES[:n], REGION[:n], PICTURES[0], steps=3, chunk_size=BATCH)


COLLECTORS: dict[str, Run] = {
    "IIR with patches": run_patches,
    "score_concepts": partial(run_concepts, metrics=UsualMetrics(top_l=[1, 2])),
    "score_concepts by all metrics": partial(run_concepts, metrics="all"),
    "score_discovered": run_discovered,
    "score_substitutions": run_substitutions,
    "score_contrasts": run_contrasts,
    "score_relative": run_relative,
    "check_premise": run_premise,
    "measure_maps": run_rated_metrics,
    "optimise_patch": patches,
}


def _saliency() -> dict[str, Any]:
    return {"saliency": explain_func(Saliency, batch_size=BATCH)}


def run_explanation(explain: Any) -> Run:
    return lambda device, n: explain(small_network().to(device), IMAGES[:n], CLASSES[:n])


def coam(device: torch.device, n: int) -> Any:
    model = cbm(device)
    of_model, of_layer, of_other_model = CoAM(model), CoAM(model, "features", model.bank), CoAM(concept_model(device))
    maps = []
    for start in range(0, n, BATCH):
        images = torch.from_numpy(IMAGES[start : start + BATCH]).to(device)
        maps += [of_model.attribute(images), of_model.attribute(images, 1), of_layer.attribute(images, [0, 1, 2, 0])]
        maps.append(of_other_model.attribute(images, [3, 1, 2, 0]))
        maps.append(of_layer.attribute(images, 1, input_shaped=True))
    return maps


def steered(device: torch.device, n: int, lam: float = 0.5) -> Any:
    judge = score_masks(scorer(device), Embedder(PoolingEncoder(), size=SIZE), labels=0, clip=True)
    rise = SteeredRISE(small_network().to(device), judge if lam else None)
    images = torch.from_numpy(PICTURES[:BATCH]).to(device)
    # As many batches as there would be with `n` images.
    return rise.attribute(images, CLASSES[:BATCH], lam=lam, n_masks=n, cells=4, batch_size=BATCH * BATCH)


def tcav(device: torch.device, n: int) -> Any:
    x = torch.from_numpy(IMAGES)
    result = tcav_score(
        small_network().to(device), ["2"], x[:4] + 1, x, x[:n], 0, n_samples=2, n_random=3, batch_size=BATCH
    )
    return vars(result.layers["2"])


_EXPLAINED = {
    "IntegratedGradients": explain_func(IntegratedGradients, n_steps=3, baselines=IMAGES[:1], batch_size=BATCH),
    "GradientShap": explain_func(GradientShap, baselines=IMAGES[:2], n_samples=2, batch_size=BATCH),
    "DeepLift": explain_func(DeepLift, batch_size=BATCH),
    "Occlusion": explain_func(
        Occlusion, sliding_window_shapes=(3, 6, 6), strides=(3, 6, 6), batch_size=BATCH, rescale=True
    ),
    "KernelShap": explain_func(KernelShap, n_samples=4, batch_size=BATCH, feature_mask=QUARTERS),
    "LayerGradCam": explain_func(LayerGradCam, layer="0", batch_size=BATCH),
    **{
        name: build_method(name, n_samples=2, n_steps=2, batch_size=BATCH)
        for name in (*PAPER_METHODS, *CONTROL_METHODS)
    },
}

ATTRIBUTIONS: dict[str, Run] = {
    **{name: run_explanation(explain) for name, explain in _EXPLAINED.items()},
    "CoAM": coam,
    "SteeredRISE": steered,
    "RISE": partial(steered, lam=0.0),
    "TCAV": tcav,
}


def loader(n: int) -> DataLoader[Any]:
    arrays = (IMAGES, CLASSES, CONCEPT_LABELS)
    return DataLoader(TensorDataset(*(torch.from_numpy(array[:n]) for array in arrays)), BATCH)


def backbone(device: torch.device) -> nn.Module:
    return TinyConceptModel().features.to(device)


def fit_cbm(device: torch.device, n: int, **arguments: Any) -> Any:
    model = PostHocCBM.fit(
        backbone(device), loader(n), n_pos=2, n_neg=2, min_images=1, n_classes=N_CLASSES, **arguments
    )
    return model.state_dict()


def fit_bank(device: torch.device, n: int, method: str = "svm") -> Any:
    features = torch.from_numpy(IMAGES[:n, :, 0].reshape(n, -1)).to(device)
    bank = ConceptBank.fit(features, CONCEPT_LABELS[:n], method=method, n_pos=2, n_neg=2, min_images=1)
    return bank.cavs, bank.intercepts, bank.train_accuracy


def run_embedding(device: torch.device, n: int) -> Any:
    return embed(backbone(device), loader(n))


def run_training(device: torch.device, n: int) -> Any:
    settings = TrainingSettings(epochs=1, batch_size=BATCH, learning_rate=1e-3)
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(2 * MANY, 10, generator=generator).to(device)
    votes = 1 + torch.randint(5, (2 * MANY, 2), generator=generator).float()
    votes[::5, 0] = torch.nan
    trained = train_scorer(
        embeddings,
        votes,
        CLASSES.repeat(2) % 2,
        train=range(n),
        validation=range(MANY, 2 * MANY),
        questions=("Q1", "Q5"),
        label_names=LABELS,
        hidden=(8,),
        settings=settings,
    )
    return [trained.scorer.state_dict(), trained.curve, trained.scorer.score(embeddings, [0] * 2 * MANY)]


def run_pictures(device: torch.device, n: int) -> Any:
    encoder = tiny_open_clip(device=device)
    embedder, judge = Embedder(encoder, size=32, batch_size=BATCH), scorer(device, encoder.dim)
    outputs = []
    for start in range(0, n, BATCH):
        images, maps = (torch.from_numpy(array[start : start + BATCH]).to(device) for array in (LARGE, MAPS))
        outputs += [judge.score(embedder.embed_maps(images, maps)), embedder.embed_drawings(images)]
    return outputs


def embed_explanations(device: torch.device, n: int) -> Any:
    embedder = Embedder(tiny_open_clip(device=device), size=32, batch_size=BATCH)
    pairs = zip(PICTURES[:n], MAPS[:n], strict=True)
    return embedder.embed([MapExplanation(*map(torch.from_numpy, pair)) for pair in pairs])


FITS: dict[str, Run] = {
    "PostHocCBM.fit": fit_cbm,
    "PostHocCBM.fit with an elastic net": partial(fit_cbm, head="elastic_net", method="mean"),
    "ConceptBank.fit": fit_bank,
    "embed": run_embedding,
    "train_scorer": run_training,
    "maps by PASTA": run_pictures,
    "explanations embedded": embed_explanations,
}

RUNS: dict[str, Run] = METRICS | COLLECTORS | ATTRIBUTIONS | FITS

#: Of what sees a batch more than once: how many models there are, versions of its images, and steps of a descent.
VIEWS = {
    "MCS": 2,
    "IDR": 2,
    "IIR": 2,
    "IIR with patches": 6,
    "Faithfulness": 2,
    "Faithfulness by ROAD": 2,
    "score_concepts": 2,
    "score_substitutions": 2,
    "score_contrasts": 5,
    "score_relative": 4,
    "check_premise": 3,
    "measure_maps": 10,
    "optimise_patch": 3,
}

#: Whose own loop asks for numbers: Captum's, and conjugate gradients, every sixteen steps, whether they are there.
ASKING = ("KernelShap", "Faithfulness by ROAD", "measure_maps")

#: Captum draws their noise on the device, whose numbers at random are its own.
DRAWN = ("GradientShap", "SmoothGrad", "IG + SmoothGrad")


@functools.cache
def there(name: str, n: int) -> tuple[Arrays, Counter[tuple[str, str]]]:
    return simulated(lambda device: RUNS[name](device, n))


@functools.cache
def here(name: str) -> Arrays:
    return on_cpu(lambda device: RUNS[name](device, MANY))


@pytest.mark.parametrize("name", RUNS)
def test_results_are_those_of_the_cpu_to_the_bit(name: str) -> None:
    arrays, crossed = there(name, MANY)
    assert any(kind == "to_device" for kind, _ in crossed)
    assert_equal(arrays, here(name))


@pytest.mark.parametrize("name", RUNS)
def test_a_device_without_float64_gives_the_same_but_for_rounding(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WITHOUT_FLOAT64", {NAME})
    arrays, _ = simulated(lambda device: RUNS[name](device, MANY), float64=False)
    assert_rounded(arrays, here(name), tolerance=1e-5)


#: The simulated device has no generators, from which these draw.
DRAWING = (functional.concept_task_leakage, functional.interconcept_leakage)


@pytest.mark.parametrize("number", [number for number, call in enumerate(CALLS) if call[0] not in DRAWING])
def test_formulas_on_a_device_without_float64(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WITHOUT_FLOAT64", {NAME})
    call, arrays, settings = CALLS[number]

    def work(device: torch.device) -> Any:
        return call(
            *(torch.tensor(array.astype(np.float32) if array.dtype == float else array).to(device) for array in arrays),
            **settings,
        )

    assert_rounded(simulated(work, float64=False)[0], on_cpu(work), tolerance=1e-5)


def test_images_in_float64_go_to_a_device_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WITHOUT_FLOAT64", {NAME})

    def work(device: torch.device) -> Any:
        return running.predict_logits(concept_model(device), IMAGES.astype(float))

    assert_rounded(simulated(work, float64=False)[0], on_cpu(work), tolerance=1e-5)


@pytest.mark.parametrize("name", RUNS)
def test_a_gpu_gives_the_same_but_for_rounding(name: str) -> None:
    assert_near(lambda device: RUNS[name](device, MANY), is_random=name in DRAWN)


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ASKING])
def test_few_crossings_for_each_batch(name: str) -> None:
    # What one batch more takes; what is done once is in both.
    more = there(name, MANY)[1].copy()
    more.subtract(there(name, FEW)[1])
    batches = (MANY - FEW) // BATCH
    for kind, most in (("to_host", 2 * VIEWS.get(name, 1)), ("item", 0), ("nonzero", 0)):
        where = {place: n / batches for (crossing, place), n in more.items() if crossing == kind and n}
        assert sum(where.values()) <= most, f"{kind}: {where}"
