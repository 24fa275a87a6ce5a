"""The command `benchmark substitution`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from quantus_concepts.studies._kit import options

#: Options of painted birds, which play no role with other images.
_OF_PAINTED = ("n train", "n test", "n classes", "n concepts", "correlation", "deviation", "correlations")
_PAINTED_SIZE = 64
_Folder = Annotated[Path | None, typer.Option(exists=True, file_okay=False, help="sub: folder of the Parquet files.")]
_CUB = Annotated[
    Path | None, typer.Option(exists=True, file_okay=False, help="sub: folder of CUB-200-2011, to train on and for T.")
]
_SAVED = "File of PostHocCBM.save with that backbone and CUB's concepts, to score too."
_ENCODERS = "Vision-language models to evaluate too, separated by commas; embedded is untrained (baseline)."


def benchmark_substitution(
    *,
    data: Annotated[Literal["painted", "sub"], typer.Option(help="Which images.")] = "painted",
    root: _Folder = None,
    cub_root: _CUB = None,
    per_pair: Annotated[int | None, typer.Option(min=1, help="sub: images of each pair; by default all.")] = None,
    image_size: Annotated[
        int | None, typer.Option(min=32, max=4096, help=f"Height and width in pixels (painted: {_PAINTED_SIZE}).")
    ] = None,
    encoders: Annotated[str | None, typer.Option(help=_ENCODERS)] = None,
    backbone: options.Backbone = None,
    cbm: Annotated[Path | None, typer.Option(exists=True, dir_okay=False, help=_SAVED)] = None,
    layer: options.Layer = None,
    weights: options.Weights = None,
    mean: options.Mean = None,
    std: options.Std = None,
    unnormalised: options.Unnormalised = False,
    n_train: options.NTrain = 1200,
    n_test: options.NTest = 300,
    n_classes: options.NClasses = 20,
    n_concepts: options.NConcepts = 40,
    correlation: options.Correlation = 0.0,
    deviation: options.Deviation = 0.1,
    correlations: Annotated[str, typer.Option(help="Other correlations, of the curve; or none.")] = "0,0.5,1",
    epochs: options.Epochs = 6,
    random_banks: Annotated[int, typer.Option(min=39, help="Number of random banks (baseline).")] = 39,
    seeds: options.Seeds = 1,
    seed: options.Seed = 0,
    device: options.Device = options.AUTO,
    batch_size: options.BatchSize = 64,
    progress: options.Progress = True,
    out: options.Out = None,
    overwrite: options.Overwrite = False,
) -> Path:
    """Replace one attribute of a bird by another: does a concept model see it, or recite its class?

    With no option: birds are painted with and without the substitution, concept models of every kind are trained, and
    compared with an oracle, a model that recites the class, and random directions.

    Example: quantus-concepts benchmark substitution --seeds 3

    Example: quantus-concepts benchmark substitution --data sub --root SUB --cub-root CUB_200_2011 --backbone resnet18
    """
    given = options.given_settings(locals())
    network = backbone or (options.SMALL if data == "painted" else "resnet18_cub")
    normalisation = options.normalisation(mean, std, unnormalised)
    if data == "painted":
        of_sub = {"root": root, "cub_root": cub_root, "per_pair": per_pair, "backbone": backbone}
        options.refuse_without_effect("with `--data painted`", **of_sub)
        options.check_birds(n_classes, image_size, {"--n-train": n_train, "--n-test": n_test})
    else:
        options.require("with `--data sub`", root=root, cub_root=cub_root)
        options.refuse_without_effect("with `--data sub`, whose images are given", seeds=seeds > 1)
        given = {name: text for name, text in given.items() if name not in _OF_PAINTED} | {"backbone": network}
    if network == options.SMALL:
        own = {"layer": layer, "weights": weights, "mean": mean, "unnormalised": unnormalised, "cbm": cbm}
        options.refuse_without_effect("without a network of your own (`--backbone`)", **own)
        options.check_stride(image_size)
    others = read_correlations(correlations) - {correlation}
    names = [name.strip() for name in (encoders or "").split(",") if name.strip()]

    # Loaded here: --help answers at once.
    from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
    from quantus_concepts.studies._kit.plots import report_style
    from quantus_concepts.studies._kit.report import write_report
    from quantus_concepts.studies._models.named_networks import load_network
    from quantus_concepts.studies.substitution.report import make_report
    from quantus_concepts.studies.substitution.study import Painted, Published, collect

    make: Callable[..., Painted | Published]
    torch_device = options.torch_device(device)
    # Published images have both folders, painted ones none.
    if root is None or cub_root is None:
        size = image_size or _PAINTED_SIZE
        make = partial(
            Painted,
            n_train=n_train,
            n_test=n_test,
            birds={"n_classes": n_classes, "n_concepts": n_concepts, "deviation": deviation, "image_size": size},
            epochs=epochs,
            batch_size=batch_size,
            random_banks=random_banks,
            device=torch_device,
            progress=progress,
        )
        points = range(seed, seed + seeds), (correlation, *sorted(others))
    else:
        make = partial(
            Published,
            root=root,
            cub_root=cub_root,
            per_pair=per_pair,
            image_size=image_size,
            load=None if network == options.SMALL else partial(load_network, network, weights, **normalisation),
            layer=layer,
            cbm=cbm,
            epochs=epochs,
            batch_size=batch_size,
            random_banks=random_banks,
            device=torch_device,
            progress=progress,
        )
        points = range(seed, seed + 1), (correlation,)
    with RunFolder("benchmark substitution", given, out, overwrite=overwrite) as folder, report_style():
        with warnings_as_notes(folder):
            frame, images, gallery = collect(folder, make, *points, names)
        report = make_report(frame, images, correlation, gallery, published=data == "sub")
        write_report(folder, frame, report)
    return folder.path


def read_correlations(text: str) -> set[float]:
    """Return the numbers of `--correlations`; none for "none"."""
    try:
        values = set() if text == "none" else {float(part) for part in text.split(",")}
    except ValueError:
        values = {-1.0}
    if not all(0 <= value <= 1 for value in values):
        raise ValueError(f"Expected `--correlations` to be numbers from 0 to 1, 0,0.5,1, or none, but got {text!r}.")
    return values
