"""MCS, IDR and IIR of all methods on the networks of the study."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts import method_from_spec
from captum_concepts._support.disk_cache import bytes_tensor, tensor_bytes
from captum_concepts.attributions.methods import CONTROL_METHODS, METHOD_NAMES, PAPER_METHODS
from quantus_concepts.datasets import ComposedDataset
from quantus_concepts.metrics import PatchResult, RegionAttributions, Subject, attribute_regions, optimise_patch
from quantus_concepts.metrics.contrast.scores import (
    Pair,
    accuracy_table,
    contrast_scores,
    contrast_table,
    marked_rows,
    random_regions,
    relative_table,
    right_by_commonality,
    undefined_reasons,
)
from quantus_concepts.studies._kit.pictures import PictureGrid, PictureRow
from quantus_concepts.studies._kit.run import Run
from quantus_concepts.studies.attribution.data import CHANGES, AttributionData
from quantus_concepts.studies.attribution.model_training import N_COMPARED, data_identity
from quantus_concepts.studies.attribution.options import AttributionOptions

Methods = Mapping[str, Callable[..., np.ndarray]]
#: By name of the method.
Attributions = dict[str, RegionAttributions]
#: Results of a method by subject that are kept.
PARTS = ("inside", "elsewhere", "maps")
#: Options that a method's explanation depends on.
SETTINGS = ("n_samples", "n_steps", "noise", "batch_size", "seed", "layer")


def explain_subjects(
    run: Run[AttributionOptions],
    methods: Methods,
    subjects: Mapping[str, Subject],
    masks: Any,
    elsewhere: Mapping[Subject, Any] | None = None,
    keep: Mapping[Subject, Sequence[int]] | None = None,
    after_each: Callable[[Attributions], object] = lambda attributions: None,
) -> Attributions:
    """Return what `attribute_regions` gives of named subjects, each kept as it is done; call `after_each`."""
    options, attributions = run.options, {name: RegionAttributions() for name in methods}
    settings = {name: getattr(options, name) for name in SETTINGS} | {"methods": list(methods)}
    for subject_name, subject in subjects.items():
        rows = list((keep or {}).get(subject, ()))
        regions = {key: other for key, other in (elsewhere or {}).items() if key is subject}
        depends = settings | {
            "model": subject.model,
            "labels": subject.labels,
            "images": subject.batch(list(range(min(N_COMPARED, len(subject))))),
            "shown": rows,
            "elsewhere": bool(regions),
            "device": str(options.torch_device()),
        }
        explain = partial(
            attribute_regions,
            methods,
            [subject],
            masks,
            elsewhere=regions,
            keep={subject: rows},
            batch_size=options.batch_size,
            display_progressbar=options.progress,
        )
        tensors = run.kept(f"explanations of {subject_name}", depends, partial(_explained, explain, subject))
        _add(attributions, tensors, subject)
        after_each(attributions)
    for name, result in attributions.items():
        if result.failure:
            # A method that fails once has no number of any subject.
            nan = {subject: torch.full((len(subject),), torch.nan).double() for subject in subjects.values()}
            regions = {subject: nan[subject] for subject in elsewhere or {}}
            attributions[name] = RegionAttributions(nan, regions, {}, result.failure)
    return attributions


def _explained(explain: Callable[[], Attributions], subject: Subject, _: object) -> dict[str, Tensor]:
    tensors = {}
    for name, result in explain().items():
        tensors[f"{name}: failure"] = bytes_tensor(result.failure.encode())
        for part in PARTS:
            if subject in (values := getattr(result, part)):
                tensors[f"{name}: {part}"] = torch.as_tensor(np.ascontiguousarray(values[subject]))
    return tensors


def _add(attributions: Attributions, tensors: Mapping[str, Tensor], subject: Subject) -> None:
    for name, result in attributions.items():
        # A method that fails for one subject may do so for others.
        result.failure = result.failure or tensor_bytes(tensors[f"{name}: failure"]).decode()
        for part in PARTS:
            if (values := tensors.get(f"{name}: {part}")) is not None:
                getattr(result, part)[subject] = values.numpy() if part == "maps" else values


#: Images of a sheet.
N_SHOWN = 3
#: By metric: the label of each subject's line, for the class of the object and of the scene, and the caption.
LAYOUTS: dict[str, tuple[tuple[str, str], str]] = {
    # As the paper's Figure 4.
    "MCS": (
        ("f_o: {object}", "f_s: {scene}"),
        "The same image explained for the model of objects (f_o) and the model of scenes (f_s): importance inside the "
        "outline should be high above and low below.",
    ),
    # As the paper's Figure 8a.
    "IDR": (
        ("{scene}, with object", "without object"),
        "The model of scenes (f_s) with an object, which it does not use, and without it: importance inside the "
        "outline should be lower above than below.",
    ),
    # As the paper's Figure 8b.
    "IIR": (
        ("{scene}", "with patch"),
        "A model of bare scenes (f_0) without and with a patch that leaves its logits as they were: importance inside "
        "the outline should stay as it is.",
    ),
}
COMMONALITY = (
    "One image under models trained with the object in a share k of the scenes: from left to right the object should "
    "matter less (as the paper's Figure 6)."
)


def shown_rows(chosen: Tensor, objects: Tensor, scenes: Tensor, count: int = N_SHOWN) -> list[int]:
    """Return the first images that enter a metric, of different objects and scenes while there are any."""
    rows = torch.nonzero(chosen).flatten().tolist() or list(range(len(chosen)))
    different: list[int] = []
    for row in rows:
        if all(objects[row] != objects[other] and scenes[row] != scenes[other] for other in different):
            different.append(row)
    return sorted([*different, *(row for row in rows if row not in different)][:count])


def saliency_sheets(
    pairs: Mapping[str, tuple[Subject, Subject]],
    attributions: Attributions,
    rows_of: Mapping[str, Sequence[int]],
    enters: Mapping[str, Tensor],
    data: ComposedDataset,
) -> dict[str, PictureGrid]:
    """Lay out maps: for each image a line for each subject, a column for each method that did not fail."""
    sheets, columns = {}, _without_failure(attributions)
    for metric, pair in pairs.items():
        labels, caption = LAYOUTS[metric]
        rows = list(rows_of[metric])
        regions = data.masks(rows)[:, 0].numpy()
        lines = []
        for place, row in enumerate(rows):
            classes = {
                "object": data.object_names[int(data.object_labels[row])],
                "scene": data.scene_names[int(data.scene_labels[row])],
            }
            for label, subject in zip(labels, pair, strict=True):
                maps = [(result, subject) for result in columns.values()]
                lines.append(_picture_row(label.format(**classes), subject, row, regions[place], maps, place))
        if not enters[metric][rows].any():
            caption += f" None of these images enters {metric}: there were no better ones to show."
        sheets[metric.lower()] = PictureGrid(metric.lower(), [*columns], lines, caption)
    return sheets


def commonality_sheet(
    subjects: Mapping[float, Subject], attributions: Attributions, row: int, masks: Callable[[list[int]], Tensor]
) -> PictureGrid:
    """Lay out the maps of one image: a line for each method that did not fail, a column for each commonality."""
    first, region = next(iter(subjects.values())), masks([row])[0, 0].numpy()
    lines = [
        _picture_row(method, first, row, region, [(result, subject) for subject in subjects.values()])
        for method, result in _without_failure(attributions).items()
    ]
    return PictureGrid("relative", [f"k = {k:g}" for k in subjects], lines, COMMONALITY)


def _picture_row(
    label: str,
    pictured: Subject,
    row: int,
    region: np.ndarray,
    maps: Sequence[tuple[RegionAttributions, Subject]],
    place: int = 0,
) -> PictureRow:
    return PictureRow(
        label,
        pictured.batch([row])[0].permute(1, 2, 0).clamp(0, 1).numpy(),
        [result.maps[subject][place] for result, subject in maps],
        region,
        [float(result.inside[subject][row]) for result, subject in maps],
    )


def _without_failure(attributions: Attributions) -> Attributions:
    return {name: result for name, result in attributions.items() if not result.failure}


#: The paper's k.
COMMONALITIES = tuple(k / 10 for k in range(1, 11))
#: Name of a loaded network within its model.
LOADED = "network"

Models = Mapping[str, nn.Module]


def model_name(commonality: float) -> str:
    """Name the model trained with the object in a share of the scenes."""
    return f"f_s^{commonality:.1f}"


def requested_methods(options: AttributionOptions) -> dict[str, Callable[..., np.ndarray]]:
    """Return the methods of `--methods`, or those of the paper, and the controls."""
    spelling = {name.lower(): name for name in METHOD_NAMES}
    names = [spelling.get(name.lower(), name) for name in options.method_names or PAPER_METHODS]
    settings = {name: getattr(options, name) for name in SETTINGS}
    settings |= {"layer": requested_layer(options), "device": options.torch_device()}
    try:
        return {name: method_from_spec(name, **settings) for name in dict.fromkeys([*names, *CONTROL_METHODS])}
    except (ValueError, TypeError) as error:
        raise ValueError(f"Argument `--methods` names what cannot be used. {error}") from error


def requested_layer(options: AttributionOptions) -> str | None:
    """Return the layer by its name in the networks that are trained: loaded ones have a normalisation in front."""
    if options.layer is None or options.trains or options.layer.startswith(f"{LOADED}."):
        return options.layer
    return f"{LOADED}.{options.layer}"


def score_absolute(
    run: Run[AttributionOptions], data: AttributionData, models: Models, methods: Methods
) -> pd.DataFrame:
    """Score MCS, IDR and IIR, and lay out their saliency sheets."""
    options, test = run.options, data.test
    n_images, n_patches = (min(count, len(test)) for count in (options.n_images, options.n_patches))
    objects, scenes = test.object_labels[:n_images], test.scene_labels[:n_images]
    patches, bare = _patches(run, data, models["f_0"], n_patches), test.with_view("0s").images
    subjects = {
        "f_o": Subject(models["f_o"], test.images, objects),
        "f_s": Subject(models["f_s"], test.images, scenes),
        "f_s without objects": Subject(models["f_s"], bare, scenes),
        "f_0": Subject(models["f_0"], bare, scenes[:n_patches]),
        "f_0 with patches": Subject(models["f_0"], patches.images, scenes[:n_patches]),
    }
    pairs: dict[str, Pair] = {
        "MCS": (subjects["f_o"], subjects["f_s"]),
        "IDR": (subjects["f_s"], subjects["f_s without objects"]),
        "IIR": (subjects["f_0"], subjects["f_0 with patches"]),
    }
    why = _why_undefined(run, pairs, test, max(n_images, n_patches), patches.converged.numpy())
    enters = {metric: torch.from_numpy(reasons == "") for metric, reasons in why.items()}
    both = enters["MCS"] & enters["IDR"]
    rows = shown_rows(both if both.any() else enters["MCS"] | enters["IDR"], objects, scenes)
    rows_of = {"MCS": rows, "IDR": rows, "IIR": shown_rows(enters["IIR"], objects[:n_patches], scenes[:n_patches])}
    run.say("Explaining")
    attributions = explain_subjects(
        run,
        methods,
        subjects,
        test.masks,
        dict.fromkeys(pairs["MCS"], random_regions(test.masks, n_images, options.seed)),
        {subject: rows_of[metric] for metric, pair in pairs.items() for subject in pair},
        partial(say_scores, run, pairs, why),
    )
    note_failures(run, attributions)
    run.settings["images explained"] = f"{n_images} for MCS and IDR, {n_patches} for IIR"
    run.facts["sheets"] = saliency_sheets(pairs, attributions, rows_of, enters, test)
    scores = contrast_scores(attributions, pairs, why, threshold=options.threshold)
    return contrast_table(scores, unconverged=int((~patches.converged).sum()))


def _why_undefined(
    run: Run[AttributionOptions],
    pairs: Mapping[str, Pair],
    data: ComposedDataset,
    count: int,
    converged: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    size = run.options.batch_size
    logits = {subject: subject.logits(size) for subject in dict.fromkeys(itertools.chain(*pairs.values()))}
    converged = np.empty(0, dtype=bool) if converged is None else converged
    return undefined_reasons(pairs, logits, converged, marked_rows(data.masks, count, size))


def score_robustness(
    run: Run[AttributionOptions],
    changed: Callable[[str], ComposedDataset],
    models: Models,
    methods: Methods,
) -> pd.DataFrame:
    """Return MCS of every method under every change of size and place, the models staying as they are."""
    options, tables = run.options, []
    for change in CHANGES:
        data = changed(change)
        count = min(options.n_images, len(data))
        pair = (
            Subject(models["f_o"], data.images, data.object_labels[:count]),
            Subject(models["f_s"], data.images, data.scene_labels[:count]),
        )
        named = {f"{name}, {change}": subject for name, subject in zip(("f_o", "f_s"), pair, strict=True)}
        attributions = explain_subjects(run, methods, named, data.masks)
        why = _why_undefined(run, {"MCS": pair}, data, count)
        tables.append(contrast_table(contrast_scores(attributions, {"MCS": pair}, why)).assign(variant=change))
    return pd.concat(tables).assign(metric="robustness", chance=np.nan)


def score_commonality(
    run: Run[AttributionOptions], data: AttributionData, models: Models, methods: Methods
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Explain the target scene with the common object under every f_s^k; return curves, and accuracies."""
    options = run.options
    test = data.with_common_object(1.0, "test")
    chosen = torch.nonzero(torch.as_tensor(test.scene_labels == test.target_scene)).flatten()[: options.n_relative]
    labels, places = test.scene_labels[chosen], chosen.tolist()

    images, bare, masks = (
        partial(_at, function, places) for function in (test.images, test.with_view("0s").images, test.masks)
    )
    with_object = {k: Subject(models[model_name(k)], images, labels) for k in COMMONALITIES}
    without = {k: Subject(models[model_name(k)], bare, labels) for k in COMMONALITIES}
    right = right_by_commonality(with_object, without, options.batch_size)
    # The first image that as many models as possible classify correctly.
    pictured = int(right[0].double().sum(0).argmax())
    named = {model_name(k): subject for k, subject in with_object.items()}
    attributions = explain_subjects(run, methods, named, masks, keep={of: [pictured] for of in named.values()})
    note_failures(run, attributions)
    run.facts["sheets"]["relative"] = commonality_sheet(with_object, attributions, pictured, masks)
    accuracies = accuracy_table(right, list(COMMONALITIES)).assign(model="f_s^k").drop(columns="method")
    marked = marked_rows(masks, len(places), options.batch_size)
    return relative_table(attributions, with_object, right, options.seed, marked), accuracies


def say_scores(
    run: Run[Any], pairs: Mapping[str, Pair], why: Mapping[str, np.ndarray], attributions: Attributions
) -> None:
    """Say the scores of the metric whose explanations have just been finished."""
    results = _without_failure(attributions)
    explained = [subject for result in results.values() for subject in result.inside]
    done = {metric: pair for metric, pair in pairs.items() if set(pair) <= set(explained)}
    finished = [metric for metric, pair in done.items() if explained[-1] in pair]
    if not finished:
        return
    metric = finished[-1]
    table = contrast_table(contrast_scores(results, {metric: done[metric]}, why))
    scores = ", ".join(f"{row.method} {row.value:.2f}" for row in table[table["metric"] == metric].itertuples())
    run.say(f"{metric} ({len(done)} of {len(pairs)} metrics): {scores}")


def note_failures(run: Run[Any], attributions: Attributions) -> None:
    """Say which methods have no scores, and why, or none for some images."""
    for name, result in attributions.items():
        values = torch.cat([*result.inside.values()])
        undefined = int(values.isnan().sum())
        if result.failure:
            run.note(f"{name} failed and has no scores: {result.failure}")
        elif undefined:
            run.note(f"{name} gave NaN or infinity in {undefined} of {len(values)} maps; those images have no score.")


def _at(function: Callable[[list[int]], Tensor], places: Sequence[int], rows: Sequence[int]) -> Tensor:
    return function([places[row] for row in rows])


def _patches(run: Run[AttributionOptions], data: AttributionData, model: nn.Module, count: int) -> PatchResult:
    options, rows = run.options, list(range(count))
    run.say(f"Optimising {count} patches")
    settings = options.patch_settings

    def make(_: Any) -> dict[str, Tensor]:
        result = optimise_patch(
            model,
            data.test.with_view("0s").images(rows).float() / 255,
            data.test.masks(rows),
            data.test.images(rows).float() / 255,
            steps=options.patch_steps,
            tolerance=options.tolerance,
            display_progressbar=options.progress,
            **settings,
        )
        return result._asdict()

    depends = {
        **settings,
        **{"steps": options.patch_steps, "tolerance": options.tolerance, "count": count, "model": model},
        **{"data": data_identity(data.test, data.test.scene_labels), "device": str(options.torch_device())},
    }
    patches = PatchResult(**run.kept("patches", depends, make))
    distance, size = patches.relative_distance.median(), patches.patch_size.median()
    run.settings["patches"] = (
        f"{int(patches.converged.sum())} of {count} converged in {options.patch_steps} steps; median logit distance "
        f"{100 * distance:.1f} % of the logits' norm, median size {size:.0f} (of pixels from 0 to 255); step size "
        f"{settings['step_size']:g}, eta1 {settings['eta1']:g}"
    )
    return patches
