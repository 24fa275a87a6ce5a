"""The command `benchmark substitution`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from quantus_concepts.studies._kit.options import (
    AUTO,
    BACKBONE,
    MANY,
    PAINTED,
    RUN,
    SMALL,
    Backbone,
    BatchSize,
    Correlation,
    Deviation,
    Device,
    Epochs,
    Layer,
    Mean,
    NClasses,
    NConcepts,
    NTest,
    NTrain,
    Out,
    Overwrite,
    Progress,
    Seed,
    Seeds,
    Std,
    Unnormalised,
    Weights,
    given_settings,
    normalisation,
    refuse_without_effect,
    require,
    torch_device,
)

_DATA = "Data"
#: Options of painted birds, which play no role with other images.
_OF_PAINTED = ("n train", "n test", "n classes", "n concepts", "correlation", "deviation", "correlations")
#: Pixels for each place of the small network's maps.
_STRIDE = 8


def benchmark_substitution(
    *,
    data: Annotated[Literal["painted", "sub"], typer.Option(help="Which images.", rich_help_panel=_DATA)] = "painted",
    root: Annotated[
        Path | None,
        typer.Option(exists=True, file_okay=False, help="sub: folder of the Parquet files.", rich_help_panel=_DATA),
    ] = None,
    cub_root: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            file_okay=False,
            help="sub: folder of CUB-200-2011, to train on and for T.",
            rich_help_panel=_DATA,
        ),
    ] = None,
    per_pair: Annotated[
        int | None,
        typer.Option(min=1, max=MANY, help="sub: images of each pair; by default all.", rich_help_panel=_DATA),
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(min=32, max=4096, help="Height and width in pixels (painted: 64).", rich_help_panel=_DATA),
    ] = None,
    encoders: Annotated[
        str | None,
        typer.Option(
            help="Vision-language models to evaluate too, separated by commas; embedded is untrained (baseline).",
            rich_help_panel=_DATA,
        ),
    ] = None,
    backbone: Backbone = None,
    cbm: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="File of PostHocCBM.save with that backbone and CUB's concepts, to score too.",
            rich_help_panel=BACKBONE,
        ),
    ] = None,
    layer: Layer = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    unnormalised: Unnormalised = False,
    n_train: NTrain = 1200,
    n_test: NTest = 300,
    n_classes: NClasses = 20,
    n_concepts: NConcepts = 40,
    correlation: Correlation = 0.0,
    deviation: Deviation = 0.1,
    correlations: Annotated[
        str, typer.Option(help="Other correlations, of the curve; or none.", rich_help_panel=PAINTED)
    ] = "0,0.5,1",
    epochs: Epochs = 6,
    random_banks: Annotated[
        int, typer.Option(min=39, max=MANY, help="Number of random banks (baseline).", rich_help_panel=RUN)
    ] = 39,
    seeds: Seeds = 1,
    seed: Seed = 0,
    device: Device = AUTO,
    batch_size: BatchSize = 64,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
) -> Path:
    """Replace one attribute of a bird by another: does a concept model see it, or recite its class?

    With no option: birds are painted with and without the substitution, concept models of every kind are trained, and
    compared with an oracle, a model that recites the class, and random directions.

    Example: quantus-concepts benchmark substitution --seeds 3

    Example: quantus-concepts benchmark substitution --data sub --root SUB --cub-root CUB_200_2011 --backbone resnet18
    """
    given = given_settings(locals())
    network = backbone or (SMALL if data == "painted" else "resnet18_cub")
    named = normalisation(mean, std, unnormalised)
    if data == "painted":
        reason = "with `--data painted`"
        refuse_without_effect(reason, root=root, cub_root=cub_root, per_pair=per_pair, backbone=backbone)
    else:
        require("with `--data sub`", root=root, cub_root=cub_root)
        if seeds > 1:
            raise ValueError("`--seeds` has no effect with `--data sub`, whose images are given. Leave it out.")
    if network == SMALL:
        reason = f"without a network of your own ({BACKBONE.lower()})"
        refuse_without_effect(reason, layer=layer, weights=weights, mean=mean, unnormalised=unnormalised, cbm=cbm)
        if image_size is not None and image_size % _STRIDE:
            raise ValueError(
                f"Expected `--image-size` to be a multiple of {_STRIDE}, the stride of the small network, but got "
                f"{image_size}."
            )
    curve = read_correlations(correlations)

    # Loaded here: --help answers at once.
    from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
    from quantus_concepts.studies._kit.plots import report_style
    from quantus_concepts.studies._kit.report import write_report
    from quantus_concepts.studies.substitution.report import make_report
    from quantus_concepts.studies.substitution.study import Settings, collect

    settings = Settings(
        seeds=range(seed, seed + seeds),
        correlation=correlation,
        others=tuple(sorted(curve - {correlation})) if data == "painted" else (),
        n_train=n_train,
        n_test=n_test,
        birds={"n_classes": n_classes, "n_concepts": n_concepts, "deviation": deviation},
        root=root,
        cub_root=cub_root,
        per_pair=per_pair,
        image_size=image_size,
        backbone=network,
        layer=layer,
        weights=weights,
        normalisation=named,
        cbm=cbm,
        encoders=tuple(name.strip() for name in (encoders or "").split(",") if name.strip()),
        epochs=epochs,
        random_banks=random_banks,
        device=torch_device(device),
        batch_size=batch_size,
        progress=progress,
    )
    if data == "sub":
        given = {name: text for name, text in given.items() if name not in _OF_PAINTED} | {"backbone": network}
    with RunFolder("benchmark substitution", given, out, overwrite=overwrite) as folder:
        with warnings_as_notes(folder):
            frame, gallery = collect(settings, folder)
        with report_style():
            write_report(folder, frame, make_report(frame, settings, gallery))
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
