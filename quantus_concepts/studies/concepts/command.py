"""The command `benchmark concepts`; what computes is loaded when it runs, not for its help."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

from captum_concepts.lazy import check_extra
from quantus_concepts.studies._kit.options import (
    AUTO,
    BACKBONE,
    MANY,
    PAINTED,
    RUN,
    SMALL,
    BatchSize,
    Device,
    Engine,
    Epochs,
    ImageSize,
    Layer,
    Mean,
    Out,
    Overwrite,
    Progress,
    Readers,
    Seed,
    Std,
    Unnormalised,
    Weights,
    check_birds,
    check_stride,
    drop_idle,
    given_settings,
    normalisation,
    refuse_without_effect,
    require,
    shown,
    torch_device,
)
from quantus_concepts.studies._kit.painted import Painted, PaintedOption

#: Defaults by kind of data.
DEFAULT_BACKBONE = {"painted": SMALL, "cub": "resnet18_cub", "folder": "resnet18"}
DEFAULT_SEEDS = {"painted": 4, "cub": 1, "folder": 1}
#: The range of so many is their smallest to their largest; `functional.intervals.N_DRAWS`, which loads NumPy.
N_BANKS = 39
_data, _bank, _run = (partial(typer.Option, rich_help_panel=name) for name in ("Data", "Concept bank", RUN))
_painted = partial(typer.Option, rich_help_panel=PAINTED)
_FEW = "Minimum number of training images with a concept, and without it; other concepts are left out."
_CONCEPTS = "folder: CSV of concepts per image or per class. cub: names or patterns of concepts, with commas between."
_LABELS = "cub: concept labels per image, or by majority of the class (majority)."
_FEWER = "cub, folder: at most so many training and so many test images of each class, drawn with --seed."
_PRECISION = "float32, bfloat16 (weights stay float32), or auto: bfloat16 where the processor multiplies in it."
_SEEDS = "Number of seeds, counted up from --seed (painted: 4, else 1)."
_ABOUT = "folder: CSV of concept and part, where names do not tell."
_BACKBONE = (
    "small (trained here), resnet18_cub, a torchvision or timm name, or path.py:factory, whose MEAN and STD normalise "
    "its images. May be given several times: the first has all tables, and all are compared."
)
_MODEL = (
    "Concept model of your own to compare with: path.py:factory (the file is executed; its MEAN and STD normalise the "
    "images), or what goes with a --backbone: a file of PostHocCBM.save, or a folder or file written by Label-free "
    "CBM, VLG-CBM, post-hoc CBM, DN-CBM or CBM. May be given several times."
)
_EXPLORE = "Write explore.html, a page to explore test images and correct concepts."
_STRENGTH = "Regularisation of the SVM."
_file, _count = partial(_data, exists=True, dir_okay=False), partial(_bank, min=1, max=MANY)
#: Options without an effect on a network that is not trained.
TRAINING = ("epochs", "precision")
#: What a user of own data needs.
SHOWN: tuple[str, ...] = (
    "data",
    "root",
    "concepts",
    "parts",
    "labels",
    "values",
    "random_banks",
    "backbone",
    "model",
    "layer",
    "mean",
)
SHOWN += ("std", "unnormalised", "image_size", "painted", "explore", "seeds", "device", "out", "overwrite")


@shown(*SHOWN)
def benchmark_concepts(
    data: Annotated[Literal["painted", "cub", "folder"], _data(help="Which images.")] = "painted",
    root: Annotated[
        Path | None, _data(exists=True, file_okay=False, help="Folder of the images (cub: the official layout).")
    ] = None,
    concepts: Annotated[str | None, _data(help=_CONCEPTS)] = None,
    min_images: Annotated[int, _data(min=1, max=MANY, help=_FEW)] = 10,
    parts: Annotated[Path | None, _file(help="folder: CSV of part points, for CLM.")] = None,
    part_of_concept: Annotated[Path | None, _file(help=_ABOUT)] = None,
    labels: Annotated[Literal["image", "majority"], _data(help=_LABELS)] = "image",
    images_per_class: Annotated[int | None, _data(min=1, max=MANY, help=_FEWER)] = None,
    method: Annotated[Literal["svm", "mean"], _bank(help="svm, or mean (FastCAV).")] = "svm",
    C: Annotated[float, typer.Option("--C", min=0, max=MANY, help=_STRENGTH, rich_help_panel="Concept bank")] = 1.0,
    n_pos: Annotated[int, _count(help="Number of images with the concept.")] = 100,
    n_neg: Annotated[int, _count(help="Number of images without the concept.")] = 100,
    values: Annotated[
        Literal["margin", "raw"], _bank(help="Concept values, margin or raw; one table has both.")
    ] = "margin",
    random_banks: Annotated[int, _bank(min=N_BANKS, max=MANY, help="Number of random banks (baseline).")] = N_BANKS,
    interventions: Annotated[bool, _bank(help="Accuracy while people correct concepts.")] = True,
    sweep: Annotated[bool, _bank(help="Try other C and numbers of images (Table 3).")] = True,
    backbone: Annotated[list[str] | None, typer.Option(help=_BACKBONE, rich_help_panel=BACKBONE)] = None,
    model: Annotated[list[str] | None, typer.Option(help=_MODEL, rich_help_panel=BACKBONE)] = None,
    layer: Layer = None,
    weights: Weights = None,
    mean: Mean = None,
    std: Std = None,
    unnormalised: Unnormalised = False,
    image_size: ImageSize = None,
    painted: Annotated[Painted | None, PaintedOption] = None,
    epochs: Epochs = 9,
    precision: Annotated[Literal["auto", "float32", "bfloat16"], _painted(help=_PRECISION)] = "auto",
    engine: Engine = "local",
    seeds: Annotated[int | None, _run(min=1, max=1000, help=_SEEDS)] = None,
    seed: Seed = 0,
    device: Device = AUTO,
    batch_size: BatchSize = 64,
    readers: Readers = 0,
    explore: Annotated[bool, typer.Option("--explore", help=_EXPLORE, rich_help_panel=RUN)] = False,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
) -> Path:
    """Evaluate a post-hoc concept bottleneck model: are its concepts real, present, and in the right place?

    With no option: painted birds are drawn, a small network is trained, and the post-hoc model is compared with a
    traditional one, an oracle and random directions. Prints the main numbers; the last line is the folder with
    report.html, results.csv, tables and figures.

    Example: quantus-concepts benchmark concepts --seeds 2

    Example: quantus-concepts benchmark concepts --data cub --root CUB_200_2011 --backbone resnet18 --model cbm.py:joint
    """
    named = locals()
    settings = given_settings(named)
    specs = list(dict.fromkeys(backbone or [DEFAULT_BACKBONE[data]]))
    n_seeds = seeds if seeds is not None else DEFAULT_SEEDS[data]
    trains, given = specs[0] == SMALL, [spec for spec in specs if spec != SMALL]
    normalised = normalisation(mean, std, unnormalised)
    if data == "painted":
        refuse_without_effect("with --data painted", root=root, concepts=concepts, images_per_class=images_per_class)
    else:
        require(f"with --data {data}", root=root, **({"concepts": concepts} if data == "folder" else {}))
        refuse_without_effect(f"with --data {data}", painted=painted)
    if data != "folder":
        refuse_without_effect(f"with --data {data}", parts=parts, part_of_concept=part_of_concept)
    elif not Path(concepts or "").is_file():
        raise ValueError(f"Expected `--concepts` to name a file but there is none at {concepts}.")
    if data != "cub":
        refuse_without_effect(f"with --data {data}", labels=None if labels == "image" else labels)
    mine = {"layer": layer, "weights": weights, "mean": mean, "std": std, "unnormalised": unnormalised}
    if not given:
        refuse_without_effect("on the small network: name one of your own with --backbone", **mine)
    elif len(given) > 1:
        refuse_without_effect("with several --backbone: a file path.py:factory can say it of each", **mine)
    if not trains:
        reason = f"on {specs[0]}, which is not trained"
        settings = drop_idle(settings, benchmark_concepts, named, reason, *TRAINING)
        if SMALL in specs:
            raise ValueError(f"Expected `--backbone {SMALL}` to be the first of several but {specs[0]} is.")
    if C <= 0:
        raise ValueError(f"Expected `--C` to be above 0 but got {C:g}.")
    if data == "painted":
        painted = painted or Painted()
        settings["painted"] = str(painted)
        check_birds(painted.n_classes, image_size)
    if trains:
        check_stride(image_size)
    if engine == "ray":
        check_extra("ray", "ray", "`--engine ray`")

    from quantus_concepts.datasets.birds.cub200 import find_cub
    from quantus_concepts.painted.training import processor_has_bfloat16
    from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
    from quantus_concepts.studies._kit.plots import report_style
    from quantus_concepts.studies._kit.report import write_report
    from quantus_concepts.studies.concepts.collection import collect
    from quantus_concepts.studies.concepts.data import Source
    from quantus_concepts.studies.concepts.models import Settings, load_backbone
    from quantus_concepts.studies.concepts.report import build_report
    from quantus_concepts.studies.concepts.rivals import load_model

    if data == "cub":  # before weights are downloaded
        find_cub(root or "")
    place = torch_device(device)
    settings |= {"backbone": settings.get("backbone", specs[0]), "seeds": str(n_seeds)}
    source = Source(
        data=data,
        root=root,
        concepts=concepts,
        parts=parts,
        part_of_concept=part_of_concept,
        labels=labels,
        painted=painted,
        image_size=image_size,
        min_images=min_images,
        images_per_class=images_per_class,
        seeds=range(seed, seed + n_seeds),
        progress=progress,
    )
    how = Settings(
        method=method,
        C=C,
        n_pos=n_pos,
        n_neg=n_neg,
        min_images=min_images,
        values=values,
        random_banks=random_banks,
        interventions=interventions,
        sweep=sweep and method == "svm",
        explore=explore,
        epochs=epochs,
        bfloat16=precision == "bfloat16" or (precision == AUTO and place.type == "cpu" and processor_has_bfloat16()),
        layer=layer,
        device=place,
        batch_size=batch_size,
        readers=readers,
        engine=engine,
        progress=progress,
    )
    networks = [None if spec == SMALL else load_backbone(spec, weights, layer, place, normalised) for spec in specs]
    loaded = [network for network in networks if network is not None]
    own_models = [load_model(spec, source, loaded, layer, place) for spec in dict.fromkeys(model or [])]
    names = [*(network.source for network in loaded), *(own.name for own in own_models)]
    if doubled := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"Expected models of different names but two are {doubled[0]}. Rename a file or a function.")
    with RunFolder("benchmark concepts", settings, out, overwrite=overwrite) as folder, report_style():
        with warnings_as_notes(folder):
            collected = collect(folder, source, how, networks, own_models)
        report = build_report(collected, values=values, paper=data == "cub", n_banks=random_banks, explorer=explore)
        write_report(folder, collected.results, report, {"device": str(place), "bfloat16": str(how.bfloat16)})
    return folder.path
