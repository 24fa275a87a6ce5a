"""The commands around ratings: pasta score, pasta sheet, pasta join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from quantus_concepts.studies._kit.options import (
    MANY,
    BatchSize,
    Device,
    Out,
    Overwrite,
    Progress,
    Seed,
    given_settings,
    torch_device,
)
from quantus_concepts.studies.pasta.command import (
    EMBEDDING,
    FOLDER,
    ONE,
    Cache,
    EncoderTokenizer,
    EncoderWeights,
    option,
    run_folder,
)

SCORER, PAGE, PERTURBED = "Scorer", "Page", "For Q5 and Q6"
LABELS = (
    "file-name (of the explanation), image-name, none, or a CSV file with the columns image, label and, if wanted, "
    "true_label"
)

_IMAGES = "Folder of images called {dataset}_{image id}_{label}.png or .jpg."
Images = Annotated[Path, option(_IMAGES, **FOLDER)]
_EXPLANATIONS = (
    "Folder of .npy maps, .png drawings and .json concepts called like their images, or with one such folder for each "
    "explainer."
)
Explanations = Annotated[Path, option(_EXPLANATIONS, **FOLDER)]
Ascending = Annotated[str | None, option("Explainers whose small values mean important, with commas.")]
PictureSize = Annotated[int, option("Longer side of the pictures in pixels.", PAGE, min=32, max=2048)]
MaxMegabytes = Annotated[float, option("Maximum size of the page in megabytes.", PAGE, min=0, max=2000)]
_LIGHT = "Folder with the folders images and explanations of the same images, lightly perturbed."
_STRONG = "The same, perturbed until the prediction changed; the label of their names is the new prediction."
_SCORER = (
    "File or folder: PASTA_Q1.pth, ... of ENSTA-U2IS/PASTA_weights, what `pasta train` wrote, or the demonstration of "
    "`benchmark pasta`."
)
_ENCODER = "siglip, clip, eva02, embedded or MODEL/TAG of open_clip; by default what the scorer was trained on."


def pasta_score(
    images: Images,
    explanations: Explanations,
    labels_from: Annotated[
        str | None,
        option(f"{LABELS}; by default image-name for scorers trained so, as the released ones, else file-name."),
    ] = None,
    ascending: Ascending = None,
    scorer: Annotated[Path | None, option(_SCORER, SCORER, exists=True)] = None,
    question: Annotated[str, option("all, or some with commas; the first is sorted by.", SCORER)] = "all",
    clip: Annotated[bool, option("Set scores above 5 to 5; the release leaves them.", SCORER)] = True,
    n_shown: Annotated[
        int, option("Number of the best, and of the worst, explanations on the page.", min=0, max=MANY)
    ] = 12,
    encoder: Annotated[str | None, option(_ENCODER, EMBEDDING)] = None,
    encoder_weights: EncoderWeights = None,
    encoder_tokenizer: EncoderTokenizer = None,
    cache: Cache = None,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    device: Device = "auto",
    batch_size: BatchSize = 16,
) -> Path:
    """Predict how people would rate explanations on disk: maps, drawings and lists of concepts, on one scale.

    Writes scores.csv (a row for each explanation), and report.html with the best and the worst and, of several
    explainers, which one is best how often.

    Example: quantus-concepts pasta score --images images --explanations maps --scorer PASTA_weights
    """
    settings = given_settings(locals())
    if scorer is None:
        raise ValueError(
            "A scorer is needed: --scorer FILE. There are three ways to one: PASTA_Q1.pth to PASTA_Q6.pth of "
            "ENSTA-U2IS/PASTA_weights on the Hugging Face hub, trained on people's ratings; one that `quantus-concepts "
            "pasta train` trained on ratings of your own; scorer.safetensors of `quantus-concepts benchmark pasta`, "
            "which is a demonstration, for its raters are simulated."
        )
    from quantus_concepts.datasets.ratings.explanation_files import FROM_FILE_NAME, FROM_IMAGE_NAME, find_explanations
    from quantus_concepts.studies.pasta.material import words
    from quantus_concepts.studies.pasta.score import make_embedder, read_scorer, run_score

    chosen = read_scorer(scorer, question)
    labels = labels_from or (FROM_IMAGE_NAME if chosen.labelled_by == FROM_IMAGE_NAME else FROM_FILE_NAME)
    embedder = make_embedder(
        chosen,
        encoder,
        encoder_weights,
        encoder_tokenizer,
        device=torch_device(device),
        cache=cache,
        batch_size=batch_size,
        display_progressbar=progress,
    )
    with run_folder("pasta score", settings, out, overwrite) as folder:
        files = find_explanations(images, explanations, labels_from=labels, ascending=words(ascending))
        more = {"labels": "none, as trained" if chosen.labels is None else labels}
        run_score(folder, chosen, embedder, files, clip=clip, n_shown=n_shown, progress=progress, more=more)
    return folder.path


def pasta_sheet(
    images: Images,
    explanations: Explanations,
    labels_from: Annotated[str, option(f"{LABELS}.")] = "file-name",
    ascending: Ascending = None,
    questions: Annotated[
        str | None,
        option("Questions, separated by commas; by default Q1 to Q4, and Q5 and Q6 with --light and --strong.", PAGE),
    ] = None,
    n_items: Annotated[
        int | None, option("Explanations to take, drawn with --seed; by default all.", PAGE, **ONE)
    ] = None,
    light: Annotated[Path | None, option(_LIGHT, PERTURBED, **FOLDER)] = None,
    strong: Annotated[Path | None, option(_STRONG, PERTURBED, **FOLDER)] = None,
    picture_size: PictureSize = 384,
    max_megabytes: MaxMegabytes = 50.0,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
) -> Path:
    """Write a page on which people rate explanations, for a browser without network.

    It shows an image and an explanation, without the explainer's name and for everybody in another order, asks the
    questions of the PASTA paper on five points, and saves the answers in the format of its release. The folder holds
    rate.html and what the ratings refer to.

    Example: quantus-concepts pasta sheet --images images --explanations maps --seed 1 --out sheet
    """
    settings = given_settings(locals())
    from quantus_concepts.studies.pasta.sheet import page_questions, write_sheet

    changes = {"Q5": light, "Q6": strong}
    asked = page_questions(questions, changes)
    with run_folder("pasta sheet", settings, out, overwrite) as folder:
        write_sheet(
            folder,
            images,
            explanations,
            asked,
            changes,
            labels_from=labels_from,
            ascending=ascending,
            n_items=n_items,
            picture_size=picture_size,
            max_megabytes=max_megabytes,
            seed=seed,
            progress=progress,
        )
    return folder.path


def pasta_join(
    files: Annotated[list[Path], typer.Argument(exists=True, dir_okay=False, help="Files that the annotators saved.")],
    data: Annotated[Path, option("The folder that `pasta sheet` wrote.", **FOLDER)],
    out: Out = None,
    overwrite: Overwrite = False,
) -> Path:
    """Join the files of several annotators to one folder of ratings, which `pasta train` reads.

    Example: quantus-concepts pasta join *.json --data sheet --out ratings
    """
    settings = given_settings(locals())
    from quantus_concepts.studies.pasta.sheet import join_ratings, write_ratings

    joined = join_ratings(files)
    with run_folder("pasta join", settings, out, overwrite) as folder:
        write_ratings(folder, joined, data)
    return folder.path
