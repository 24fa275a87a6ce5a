"""MCS, IDR and IIR of all methods on the networks of the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from captum_concepts import method_from_spec
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
#: What a method's explanation depends on, beside its name and the images.
SETTINGS = ("n_samples", "n_steps", "noise", "batch_size", "seed", "layer")


def explain_subjects(
    run: Run[AttributionOptions],
    methods: Methods,
    subjects: Mapping[str, Subject],
    masks: Any,
    elsewhere: Mapping[Subject, Any] | None = None,
    keep: Mapping[Subject, Sequence[int]] | None = None,
    after_each: Callable[[dict[str, RegionAttributions]], object] = lambda found: None,
) -> dict[str, RegionAttributions]:
    """Return what `attribute_regions` gives of named subjects, each kept as it is done; call `after_each`."""
    others, shown = elsewhere or {}, keep or {}
    options, found = run.options, {name: RegionAttributions() for name in methods}
    settings = {name: getattr(options, name) for name in SETTINGS} | {"methods": list(methods)}
    for called, subject in subjects.items():
        own, rows = {key: others[key] for key in others if key is subject}, list(shown.get(subject, ()))

        def make(_: Any, subject: Subject = subject, own: Any = own, rows: Sequence[int] = rows) -> dict[str, Tensor]:
            explained = attribute_regions(
                methods,
                [subject],
                masks,
                elsewhere=own,
                keep={subject: rows},
                batch_size=options.batch_size,
                display_progressbar=options.progress,
            )
            return _tensors(explained, subject)

        depends = settings | {
            "model": subject.model,
            "labels": subject.labels,
            "images": subject.batch(list(range(min(N_COMPARED, len(subject))))),
            "shown": rows,
            "elsewhere": bool(own),
            "device": str(options.torch_device()),
        }
        _add(found, run.kept(f"explanations of {called}", depends, make), subject)
        after_each(found)
    return {name: _undefined(subjects, others, each.failure) if each.failure else each for name, each in found.items()}


def _tensors(found: Mapping[str, RegionAttributions], subject: Subject) -> dict[str, Tensor]:
    tensors = {}
    for name, each in found.items():
        tensors[f"{name}: failure"] = torch.tensor(list(each.failure.encode()), dtype=torch.uint8)
        tensors[f"{name}: inside"] = each.inside[subject]
        if subject in each.elsewhere:
            tensors[f"{name}: elsewhere"] = each.elsewhere[subject]
        if subject in each.maps:
            tensors[f"{name}: maps"] = torch.from_numpy(np.ascontiguousarray(each.maps[subject]))
    return tensors


def _add(found: Mapping[str, RegionAttributions], tensors: Mapping[str, Tensor], subject: Subject) -> None:
    for name, each in found.items():
        # A method that fails for one subject may do so for others.
        each.failure = each.failure or bytes(tensors[f"{name}: failure"].tolist()).decode()
        each.inside[subject] = tensors[f"{name}: inside"]
        if f"{name}: elsewhere" in tensors:
            each.elsewhere[subject] = tensors[f"{name}: elsewhere"]
        if f"{name}: maps" in tensors:
            each.maps[subject] = tensors[f"{name}: maps"].numpy()


def _undefined(subjects: Mapping[str, Subject], elsewhere: Mapping[Subject, Any], reason: str) -> RegionAttributions:
    """Return NaN throughout: a method that fails once has no number of any subject."""
    nothing = {subject: torch.full((len(subject),), torch.nan).double() for subject in subjects.values()}
    return RegionAttributions(nothing, {subject: nothing[subject] for subject in elsewhere}, {}, reason)


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
    rest = [row for row in rows if row not in different]
    return sorted([*different, *rest][:count])


def saliency_sheets(
    pairs: Mapping[str, tuple[Subject, Subject]],
    found: Mapping[str, RegionAttributions],
    shown: Mapping[str, Sequence[int]],
    enters: Mapping[str, Tensor],
    data: ComposedDataset,
) -> dict[str, PictureGrid]:
    """Lay out maps: for each image a line for each subject, a column for each method that did not fail."""
    sheets = {}
    for metric, pair in pairs.items():
        labels, caption = LAYOUTS[metric]
        rows = list(shown[metric])
        regions = data.masks(rows)[:, 0].numpy()
        lines = []
        for place, row in enumerate(rows):
            named = {
                "object": data.object_names[int(data.object_labels[row])],
                "scene": data.scene_names[int(data.scene_labels[row])],
            }
            lines += [
                _line(label.format(**named), subject, row, found, place, regions[place])
                for label, subject in zip(labels, pair, strict=True)
            ]
        if not enters[metric][rows].any():
            caption += f" None of these images enters {metric}: there were no better ones to show."
        sheets[metric.lower()] = PictureGrid(metric.lower(), _columns(found), lines, caption)
    return sheets


def commonality_sheet(
    subjects: Mapping[float, Subject],
    found: Mapping[str, RegionAttributions],
    row: int,
    masks: Callable[[list[int]], Tensor],
) -> PictureGrid:
    """Lay out the maps of one image: a line for each method that did not fail, a column for each commonality."""
    image, region = _picture(next(iter(subjects.values())), row), masks([row])[0, 0].numpy()
    lines = [
        PictureRow(
            method,
            image,
            [found[method].maps[subject][0] for subject in subjects.values()],
            region,
            [float(found[method].inside[subject][row]) for subject in subjects.values()],
        )
        for method in _columns(found)
    ]
    return PictureGrid("relative", [f"k = {k:g}" for k in subjects], lines, COMMONALITY)


def _line(
    label: str, subject: Subject, row: int, found: Mapping[str, RegionAttributions], place: int, region: np.ndarray
) -> PictureRow:
    columns = _columns(found)
    return PictureRow(
        label,
        _picture(subject, row),
        [found[name].maps[subject][place] for name in columns],
        region,
        [float(found[name].inside[subject][row]) for name in columns],
    )


def _picture(subject: Subject, row: int) -> np.ndarray:
    return subject.batch([row])[0].permute(1, 2, 0).clamp(0, 1).numpy()


def _columns(found: Mapping[str, RegionAttributions]) -> list[str]:
    return [name for name, each in found.items() if not each.failure]


#: The paper's k.
COMMONALITIES = tuple(k / 10 for k in range(1, 11))
#: What a network that was not built here is called within its model.
LOADED = "network"

Models = Mapping[str, nn.Module]


def model_name(commonality: float) -> str:
    """Name the model trained with the object in a share of the scenes."""
    return f"f_s^{commonality:.1f}"


def methods_asked_for(options: AttributionOptions) -> dict[str, Callable[..., np.ndarray]]:
    """Return the methods of `--methods`, or those of the paper, and the controls."""
    asked_for = options.method_names
    known = {name.lower(): name for name in METHOD_NAMES}
    names = [*PAPER_METHODS] if asked_for is None else [known.get(name.lower(), name) for name in asked_for]
    settings: dict[str, Any] = {
        name: getattr(options, name) for name in ("n_samples", "n_steps", "noise", "batch_size", "seed")
    }
    settings |= {"layer": layer_asked_for(options), "device": options.torch_device()}
    try:
        return {name: method_from_spec(name, **settings) for name in dict.fromkeys([*names, *CONTROL_METHODS])}
    except (ValueError, TypeError) as error:
        raise ValueError(f"Argument `--methods` names what cannot be used. {error}") from error


def layer_asked_for(options: AttributionOptions) -> str | None:
    """Return the layer by its name in the networks that are trained: loaded ones have a normalisation in front."""
    if options.layer is None or options.trains or options.layer.startswith(f"{LOADED}."):
        return options.layer
    return f"{LOADED}.{options.layer}"


def score_absolute(
    run: Run[AttributionOptions], data: AttributionData, models: Models, methods: Methods
) -> pd.DataFrame:
    """Score MCS, IDR and IIR, and lay out their saliency sheets."""
    options, test = run.options, data.test
    bare = test.with_view("0s")
    n_images, n_patches = (min(count, len(test)) for count in (options.n_images, options.n_patches))
    objects, scenes = test.object_labels[:n_images], test.scene_labels[:n_images]
    patches = _patches(run, data, models["f_0"], n_patches)
    object_model, scene_model = (
        Subject(models[name], test.images, labels) for name, labels in (("f_o", objects), ("f_s", scenes))
    )
    pairs: dict[str, Pair] = {
        "MCS": (object_model, scene_model),
        "IDR": (scene_model, Subject(models["f_s"], bare.images, scenes)),
        "IIR": (
            Subject(models["f_0"], bare.images, scenes[:n_patches]),
            Subject(models["f_0"], patches.images, scenes[:n_patches]),
        ),
    }
    bare_scenes, (before, after) = pairs["IDR"][1], pairs["IIR"]
    subjects = {
        "f_o": object_model,
        "f_s": scene_model,
        "f_s without objects": bare_scenes,
        "f_0": before,
        "f_0 with patches": after,
    }
    logits = {subject: subject.logits(options.batch_size) for subject in subjects.values()}
    marked = marked_rows(test.masks, max(n_images, n_patches), options.batch_size)
    why = undefined_reasons(pairs, logits, patches.converged.numpy(), marked)
    enters = {metric: torch.from_numpy(reasons == "") for metric, reasons in why.items()}
    both = enters["MCS"] & enters["IDR"]
    rows = shown_rows(both if both.any() else enters["MCS"] | enters["IDR"], objects, scenes)
    shown = {"MCS": rows, "IDR": rows, "IIR": shown_rows(enters["IIR"], objects[:n_patches], scenes[:n_patches])}
    elsewhere = random_regions(test.masks, n_images, options.seed)
    run.say("Explaining")
    found = explain_subjects(
        run,
        methods,
        subjects,
        test.masks,
        dict.fromkeys(pairs["MCS"], elsewhere),
        {subject: shown[metric] for metric, pair in pairs.items() for subject in pair},
        partial(say_scores, run, pairs, why),
    )
    note_failures(run, found)
    run.settings["images explained"] = f"{n_images} for MCS and IDR, {n_patches} for IIR"
    run.facts["sheets"] = saliency_sheets(pairs, found, shown, enters, test)
    scores = contrast_scores(found, pairs, why, threshold=options.threshold)
    return contrast_table(scores, unconverged=int((~patches.converged).sum()))


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
        found = explain_subjects(run, methods, named, data.masks)
        logits = {subject: subject.logits(options.batch_size) for subject in pair}
        marked = marked_rows(data.masks, count, options.batch_size)
        why = undefined_reasons({"MCS": pair}, logits, np.empty(0, dtype=bool), marked)
        tables.append(contrast_table(contrast_scores(found, {"MCS": pair}, why)).assign(variant=change))
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
    shown = int(right[0].double().sum(0).argmax())
    named = {model_name(k): subject for k, subject in with_object.items()}
    found = explain_subjects(run, methods, named, masks, keep={subject: [shown] for subject in named.values()})
    note_failures(run, found)
    run.facts["sheets"]["relative"] = commonality_sheet(with_object, found, shown, masks)
    accuracies = accuracy_table(right, list(COMMONALITIES)).assign(model="f_s^k").drop(columns="method")
    marked = marked_rows(masks, len(places), options.batch_size)
    return relative_table(found, with_object, right, options.seed, marked), accuracies


def say_scores(
    run: Run[Any], pairs: Mapping[str, Pair], why: Mapping[str, np.ndarray], found: Mapping[str, RegionAttributions]
) -> None:
    """Say the scores of the metric whose explanations have just been finished."""
    known = {name: each for name, each in found.items() if not each.failure}
    done = {metric: pair for metric, pair in pairs.items() if all(set(pair) <= set(of.inside) for of in known.values())}
    latest = [subject for of in known.values() for subject in of.inside][-1:]
    finished = [metric for metric, pair in done.items() if set(latest) & set(pair)]
    if not known or not finished:
        return
    metric, pair = finished[-1], done[finished[-1]]
    table = contrast_table(contrast_scores(known, {metric: pair}, why))
    values = table[table["metric"] == metric]
    scores = ", ".join(f"{row.method} {row.value:.2f}" for row in values.itertuples())
    run.say(f"{metric} ({len(done)} of {len(pairs)} metrics): {scores}")


def note_failures(run: Run[Any], found: Mapping[str, RegionAttributions]) -> None:
    """Say which methods have no scores, and why, or none for some images."""
    for name, each in found.items():
        values = torch.cat([*each.inside.values()])
        undefined = int(values.isnan().sum())
        if each.failure:
            run.note(f"{name} failed and has no scores: {each.failure}")
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
            step_size=settings["step_size"],
            eta1=settings["eta1"],
        )
        return result._asdict()

    depends: dict[str, Any] = {**settings, "steps": options.patch_steps, "tolerance": options.tolerance, "count": count}
    depends |= {"data": data_identity(data.test, data.test.scene_labels), "device": str(options.torch_device())}
    depends |= {"model": model}
    patches = PatchResult(**run.kept("patches", depends, make))
    distance, size = patches.relative_distance.median(), patches.patch_size.median()
    run.settings["patches"] = (
        f"{int(patches.converged.sum())} of {count} converged in {options.patch_steps} steps; median logit distance "
        f"{100 * distance:.1f} % of the logits' norm, median size {size:.0f} (of pixels from 0 to 255); step size "
        f"{settings['step_size']:g}, eta1 {settings['eta1']:g}"
    )
    return patches
