"""The command `quantus-concepts benchmark attribution`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies.attribution.options import DATA, Options
from quantus_concepts.studies.attribution.run import run
from quantus_concepts.studies.run_options import (
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
    SeedOption,
)

DATA_HELP = "Data"
BACKBONE_HELP = "Models"
METHODS_HELP = "Methods"
METRICS_HELP = "Metrics"
PREMISES_HELP = "When the ground truth counts as verified"


def attribution(
    data: Annotated[
        str, typer.Option(help=f"Which images: {', '.join(DATA)}.", rich_help_panel=DATA_HELP)
    ] = Options.data,
    objects: Annotated[
        Path | None,
        typer.Option(
            help="folders: RGBA cut-outs, a folder for each class. coco-miniplaces: the photographs of COCO.",
            rich_help_panel=DATA_HELP,
        ),
    ] = None,
    annotations: Annotated[
        Path | None, typer.Option(help="coco-miniplaces: instances_*.json.", rich_help_panel=DATA_HELP)
    ] = None,
    scenes: Annotated[
        Path | None, typer.Option(help="Scenes, a folder for each class.", rich_help_panel=DATA_HELP)
    ] = None,
    root: Annotated[
        Path | None, typer.Option(help="bam: folder in the layout of the paper's release.", rich_help_panel=DATA_HELP)
    ] = None,
    image_size: Annotated[
        int | None,
        typer.Option(
            help="Height and width in pixels; by default 64, and 224 with another backbone.", rich_help_panel=DATA_HELP
        ),
    ] = None,
    n_train: Annotated[
        int, typer.Option(help="Training images of each pair of object and scene.", rich_help_panel=DATA_HELP)
    ] = Options.n_train,
    n_test: Annotated[int, typer.Option(help="Test images of each pair.", rich_help_panel=DATA_HELP)] = Options.n_test,
    test_share: Annotated[
        float, typer.Option(help="Share of cut-outs and scenes that only tests see.", rich_help_panel=DATA_HELP)
    ] = Options.test_share,
    backbone: Annotated[
        str, typer.Option(help="small, a torchvision or timm name, or path.py:factory.", rich_help_panel=BACKBONE_HELP)
    ] = Options.backbone,
    weights: Annotated[
        str | None, typer.Option(help="File of weights to start from, or none.", rich_help_panel=BACKBONE_HELP)
    ] = None,
    mean: Annotated[
        str | None,
        typer.Option(help="Normalisation: mean per channel, 0.5,0.5,0.5.", rich_help_panel=BACKBONE_HELP),
    ] = None,
    std: Annotated[
        str | None, typer.Option(help="Normalisation: deviation per channel.", rich_help_panel=BACKBONE_HELP)
    ] = None,
    unnormalised: Annotated[
        bool,
        typer.Option("--unnormalised", help="The backbone takes images in [0, 1].", rich_help_panel=BACKBONE_HELP),
    ] = False,
    epochs: Annotated[
        int, typer.Option(help="Passes over the training images.", rich_help_panel=BACKBONE_HELP)
    ] = Options.epochs,
    train_batch_size: Annotated[
        int, typer.Option(help="Images in a step of the training.", rich_help_panel=BACKBONE_HELP)
    ] = Options.train_batch_size,
    learning_rate: Annotated[
        float | None, typer.Option(help="By default what suits the backbone.", rich_help_panel=BACKBONE_HELP)
    ] = None,
    augment: Annotated[
        bool, typer.Option("--augment", help="Mirror and shift training images.", rich_help_panel=BACKBONE_HELP)
    ] = False,
    models: Annotated[
        Path | None,
        typer.Option(
            help="Folder of trained models: what is there is not trained again, and an interrupted training goes on. "
            "By default a new one in --out.",
            rich_help_panel=BACKBONE_HELP,
        ),
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="Names with commas: of the paper (grad-cam), one smoothed (grad-cam + smoothgrad), any Captum class "
            "(Occlusion), or your own, "
            "module:function or path.py:function. By default the paper's eight; random and Sobel edges are always "
            "there.",
            rich_help_panel=METHODS_HELP,
        ),
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Of Grad-CAM; by default the last with maps.", rich_help_panel=METHODS_HELP)
    ] = None,
    n_samples: Annotated[
        int, typer.Option(help="Noisy copies of SmoothGrad.", rich_help_panel=METHODS_HELP)
    ] = Options.n_samples,
    n_steps: Annotated[
        int, typer.Option(help="Steps of integrated gradients.", rich_help_panel=METHODS_HELP)
    ] = Options.n_steps,
    noise: Annotated[
        float, typer.Option(help="Of SmoothGrad, as a share of the image's range.", rich_help_panel=METHODS_HELP)
    ] = Options.noise,
    n_images: Annotated[
        int, typer.Option(help="Images explained for MCS and IDR.", rich_help_panel=METRICS_HELP)
    ] = Options.n_images,
    n_patches: Annotated[int, typer.Option(help="Images for IIR.", rich_help_panel=METRICS_HELP)] = Options.n_patches,
    patch_steps: Annotated[
        int, typer.Option(help="Steps of a patch's optimisation.", rich_help_panel=METRICS_HELP)
    ] = Options.patch_steps,
    step_size: Annotated[
        float | None,
        typer.Option(
            help="On pixels of 0 to 255; by default 500, and 5000 for the small network.", rich_help_panel=METRICS_HELP
        ),
    ] = None,
    eta1: Annotated[
        float | None,
        typer.Option(
            help="Weight of the patch's size; by default 0.01, and 0.001 for the small network.",
            rich_help_panel=METRICS_HELP,
        ),
    ] = None,
    threshold: Annotated[
        float, typer.Option(help="Of IIR: relative change that counts.", rich_help_panel=METRICS_HELP)
    ] = Options.threshold,
    tolerance: Annotated[
        float, typer.Option(help="Logit distance up to which a patch counts.", rich_help_panel=METRICS_HELP)
    ] = Options.tolerance,
    relative: Annotated[
        bool,
        typer.Option(
            "--relative", help="Train ten more models, for the relative contrast.", rich_help_panel=METRICS_HELP
        ),
    ] = False,
    common_object: Annotated[str | None, typer.Option(help="The common feature.", rich_help_panel=METRICS_HELP)] = None,
    target_scene: Annotated[
        str | None, typer.Option(help="The scene that always has it.", rich_help_panel=METRICS_HELP)
    ] = None,
    n_relative: Annotated[
        int, typer.Option(help="Images of that scene explained.", rich_help_panel=METRICS_HELP)
    ] = Options.n_relative,
    robustness: Annotated[
        bool,
        typer.Option(
            "--robustness",
            help="MCS with objects of other sizes and at other places, too (Figure 5 of the paper).",
            rich_help_panel=METRICS_HELP,
        ),
    ] = False,
    tcav: Annotated[bool, typer.Option(help="TCAV beside the methods.", rich_help_panel=METRICS_HELP)] = Options.tcav,
    max_drop: Annotated[
        float, typer.Option(help="Accuracy that removing the common feature may cost.", rich_help_panel=PREMISES_HELP)
    ] = Options.max_drop,
    min_remain: Annotated[
        float, typer.Option(help="Share of correct answers that must stay.", rich_help_panel=PREMISES_HELP)
    ] = Options.min_remain,
    max_above_chance: Annotated[
        float,
        typer.Option(help="Accuracy above chance that the feature alone may have.", rich_help_panel=PREMISES_HELP),
    ] = Options.max_above_chance,
    device: DeviceOption = Options.device,
    batch_size: BatchSizeOption = Options.batch_size,
    seed: SeedOption = Options.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Ask attribution methods for the importance of what provably does not matter: MCS, IDR, IIR.

    With no option: objects are painted on scenes, small networks are trained on the objects and on the scenes, it is
    verified that each ignores the other, and eight methods of Captum, two controls and TCAV are compared. Prints the
    main table; the last line is the folder with report.html, results.csv, the figures and the trained models.
    """
    options = Options(
        data=data,
        objects=objects,
        annotations=annotations,
        scenes=scenes,
        root=root,
        image_size=image_size,
        n_train=n_train,
        n_test=n_test,
        test_share=test_share,
        backbone=backbone,
        weights=weights,
        mean=mean,
        std=std,
        unnormalised=unnormalised,
        epochs=epochs,
        train_batch_size=train_batch_size,
        learning_rate=learning_rate,
        augment=augment,
        models=models,
        methods=methods,
        layer=layer,
        n_samples=n_samples,
        n_steps=n_steps,
        noise=noise,
        n_images=n_images,
        n_patches=n_patches,
        patch_steps=patch_steps,
        step_size=step_size,
        eta1=eta1,
        threshold=threshold,
        tolerance=tolerance,
        relative=relative,
        common_object=common_object,
        target_scene=target_scene,
        n_relative=n_relative,
        robustness=robustness,
        tcav=tcav,
        max_drop=max_drop,
        min_remain=min_remain,
        max_above_chance=max_above_chance,
        device=device,
        batch_size=batch_size,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(run(options))
