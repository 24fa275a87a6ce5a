"""The commands around ratings: benchmark pasta, pasta train, score, sheet, ablate, sizes, metrics."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, Unpack

import typer

from quantus_concepts.studies._kit.options import (
    MANY,
    BatchSize,
    Device,
    Out,
    Overwrite,
    Progress,
    Seed,
    drop_idle,
    given_settings,
    torch_device,
)

if TYPE_CHECKING:
    from quantus_concepts.pasta.embedder import Embedder
    from quantus_concepts.studies._kit.folder import RunFolder


RATINGS, TRAINING, EMBEDDING, BIRDS = "Ratings", "Training", "Embedding", "Painted birds and simulated raters"
USES = "What the score is used for"


class OptionSettings(TypedDict, total=False):
    """Settings of typer's options."""

    min: float
    max: float
    exists: bool
    file_okay: bool
    dir_okay: bool


def option(help: str, panel: str | None = None, *flags: str, **settings: Unpack[OptionSettings]) -> object:
    """Declare an option with its help, the panel it stands in, and typer's settings."""
    return typer.Option(*flags, help=help, rich_help_panel=panel, **settings)


#: Settings of whole numbers, of folders and of files that are there.
ONE: OptionSettings = {"min": 1, "max": MANY}
FOLDER: OptionSettings = {"exists": True, "file_okay": False}
FILE: OptionSettings = {"exists": True, "dir_okay": False}
Question = Annotated[
    str, option("Names of questions with commas, or all in one training; the paper's are Q1 to Q6.", TRAINING)
]
Splits = Annotated[int, option("Splits to train and test on.", TRAINING, **ONE)]
_EPOCHS = "Passes over the training explanations; if none are given 20 with the embedded encoder, else 600."
ScorerEpochs = Annotated[int | None, option(_EPOCHS, TRAINING, **ONE)]
_RATE = "Learning rate (Adam); if none is given 0.003 with the embedded encoder, else 2e-6."
LearningRate = Annotated[float | None, option(_RATE, TRAINING, min=0, max=1000)]
_DATA = "Folder with human_annotations.json or CSV files, or a CSV file; by default simulated raters of painted birds."
Data = Annotated[Path | None, option(_DATA, RATINGS, exists=True)]
NImages = Annotated[int | None, option("Painted birds, if no folder is given; by default 120.", RATINGS, **ONE)]
Cache = Annotated[Path | None, option("Folder that keeps embeddings for the next run.", EMBEDDING, file_okay=False)]
_ENCODERS = "siglip, clip, eva02, embedded (untrained, to try things), or MODEL/TAG of open_clip."
Encoder = Annotated[str, option(_ENCODERS, EMBEDDING)]
_WEIGHTS = "File of the encoder's weights; by default open_clip downloads them."
EncoderWeights = Annotated[Path | None, option(_WEIGHTS, EMBEDDING, **FILE)]
_TOKENIZER = "Folder of the encoder's tokenizer, if it is from transformers."
EncoderTokenizer = Annotated[Path | None, option(_TOKENIZER, EMBEDDING, **FOLDER)]
NTrain = Annotated[int, option("Birds each network learns from.", USES, min=2, max=MANY)]
NExplained = Annotated[int, option("Birds that are explained.", USES, **ONE)]
NMasks = Annotated[int, option("Masks of RISE.", USES, **ONE)]
ClassifierEpochs = Annotated[int, option("Epochs of each small network that is explained.", USES, **ONE)]

#: Why options about networks have no effect.
WITH_DATA = "with --data: the networks of its explanations are unknown"


@contextmanager
def run_folder(command: str, settings: dict[str, str], out: Path | None, overwrite: bool) -> Iterator[RunFolder]:
    """Open the folder of a run."""
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies._kit.plots import report_style

    with RunFolder(command, settings, out, overwrite=overwrite) as folder, report_style():
        yield folder


def benchmark_pasta(
    question: Question = "all",
    seeds: Splits = 5,
    epochs: ScorerEpochs = 20,
    learning_rate: LearningRate = 3e-3,
    n_images: Annotated[int, option("Painted birds whose explanations are rated.", BIRDS, **ONE)] = 240,
    n_per_image: Annotated[int, option("Explanations of each that are rated.", BIRDS, **ONE)] = 21,
    image_size: Annotated[int, option("Height and width in pixels.", BIRDS, min=32, max=512)] = 64,
    uses: Annotated[bool, option("Mixture, steered RISE, robustness, other metrics.", USES)] = True,
    n_explained: NExplained = 48,
    n_masks: NMasks = 400,
    classifier_epochs: ClassifierEpochs = 6,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: BatchSize = 64,
) -> Path:
    """Train scorers on simulated ratings and test them on images and explainers they never saw: the PASTA-score.

    With no option: explanations of known quality are drawn for painted birds, five simulated raters answer six
    questions on them, scorers are trained on five splits and held against what the raters' own noise allows. Then the
    score chooses among Captum's methods, steers RISE, and is compared with other metrics, as `pasta metrics` does it.

    Example: quantus-concepts benchmark pasta --n-images 120 --seeds 3 --no-uses
    """
    values = locals()
    settings = given_settings(values)
    if not uses:
        idle = ("n_explained", "n_masks", "classifier_epochs")
        settings = drop_idle(settings, benchmark_pasta, values, "with --no-uses", *idle)
    from quantus_concepts.datasets.ratings.raters import simulated_ratings
    from quantus_concepts.studies.pasta.material import (
        EMBEDDED,
        RatedBirds,
        label_names_of,
        load_embedder,
        question_names,
        training_settings,
    )
    from quantus_concepts.studies.pasta.scorers import Plan
    from quantus_concepts.studies.pasta.training import run_training

    chosen = torch_device(device)
    ratings = simulated_ratings(n_images=n_images, n_per_image=n_per_image, image_size=image_size, seed=seed)
    plan = Plan(
        question_names(question),
        label_names=label_names_of(ratings),
        settings=training_settings(EMBEDDED, epochs, learning_rate),
        seed=seed,
        n_splits=seeds,
        device=chosen,
        progress=progress,
    )
    embedder = load_embedder(EMBEDDED, device=chosen, batch_size=batch_size, display_progressbar=progress)
    birds = RatedBirds(n_explained, image_size=image_size, seed=seed) if uses else None
    with run_folder("benchmark pasta", settings, out, overwrite) as folder:
        run_training(folder, ratings, embedder, plan, birds=birds, n_masks=n_masks, epochs=classifier_epochs)
    return folder.path


def pasta_train(
    data: Annotated[
        Path,
        option(
            "CSV file with the columns image, explainer, rater, one for each question and, if known, label; or a "
            "folder with such files, as `pasta sheet` makes one, or with human_annotations.json, as published "
            "(ENSTA-U2IS/PASTA). questions.json beside a CSV file says what was asked.",
            RATINGS,
            exists=True,
        ),
    ],
    datasets: Annotated[str | None, option("Only these data sets, with commas.", RATINGS)] = None,
    labels: Annotated[
        Literal["predicted", "image-name", "none"],
        option(
            "predicted: the class predicted (the column label). image-name: the one in the name of the image's file, "
            "as the release. none: the scorer sees no class.",
            RATINGS,
        ),
    ] = "predicted",
    votes: Annotated[
        Literal["mode", "mean", "median"], option("How the votes on one explanation are joined.", RATINGS)
    ] = "mode",
    question: Question = "all",
    seeds: Splits = 5,
    epochs: ScorerEpochs = None,
    learning_rate: LearningRate = None,
    loss: Annotated[Literal["paper", "release"], option("As in the paper, or as in its release.", TRAINING)] = "paper",
    encoder: Encoder = "siglip",
    encoder_weights: EncoderWeights = None,
    encoder_tokenizer: EncoderTokenizer = None,
    cache: Cache = None,
    embedding: Annotated[
        list[str] | None,
        option(
            "Another setting of quantus_concepts.pasta.Embedder, KEY=VALUE, such as n_top=10 or sentence=release; may "
            "be given several times.",
            EMBEDDING,
        ),
    ] = None,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: BatchSize = 16,
) -> Path:
    """Say what people said, train a scorer that predicts it, and test it on images and explainers it never saw.

    Writes the scorer of all ratings, a table in the form of the paper's Table 1 with its figures next to ours, and
    learning curves. With fewer than 8 explainers the test is on new images only.

    Example: quantus-concepts pasta train --data PASTA --encoder clip
    """
    settings = given_settings(locals())
    from dataclasses import replace

    from quantus_concepts.datasets.ratings.rated_file import PREDICTED
    from quantus_concepts.datasets.ratings.released import PastaRatings
    from quantus_concepts.pasta.embedder import Embedder
    from quantus_concepts.studies.pasta.material import (
        embedding_settings,
        label_names_of,
        load_encoder,
        training_settings,
        voted_questions,
        words,
    )
    from quantus_concepts.studies.pasta.scorers import Plan
    from quantus_concepts.studies.pasta.training import run_training

    is_labelled = labels != "none"
    ratings = PastaRatings(data, datasets=words(datasets) or None, labels=labels if is_labelled else PREDICTED)
    embedder = Embedder.from_settings(
        load_encoder(encoder, encoder_weights, encoder_tokenizer, device=torch_device(device)),
        embedding_settings(embedding or []),
        cache=cache,
        batch_size=batch_size,
        display_progressbar=progress,
    )
    plan = Plan(
        voted_questions(question, ratings),
        votes=votes,
        label_names=label_names_of(ratings) if is_labelled else None,
        settings=replace(training_settings(encoder, epochs, learning_rate), loss=loss),
        seed=seed,
        n_splits=seeds,
        control=False,
        device=torch_device(device),
        progress=progress,
    )
    with run_folder("pasta train", settings, out, overwrite) as folder:
        run_training(folder, ratings, embedder, plan, labels)
    return folder.path


def pasta_ablate(
    tables: Annotated[
        str, option("all, or some of votes, labels, scorers, saliency, n-top, concepts, losses, encoders, with commas.")
    ] = "all",
    encoder: Encoder = "embedded",
    encoder_weights: EncoderWeights = None,
    encoder_tokenizer: EncoderTokenizer = None,
    encoders: Annotated[
        str | None,
        option(
            "Other encoders to compare with --encoder, with commas; by default widths of the embedded one, "
            "embedded/WIDTH, if that is it.",
            EMBEDDING,
        ),
    ] = None,
    cache: Cache = None,
    data: Data = None,
    n_images: NImages = None,
    question: Question = "Q1",
    seeds: Splits = 5,
    epochs: ScorerEpochs = None,
    learning_rate: LearningRate = None,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: BatchSize = 64,
) -> Path:
    """Which choices matter: votes, labels, scoring function, encoder, embedding, loss (Tables 15 to 20).

    Every choice is trained and tested on the same splits, with the votes and with shuffled votes. The paper's figures
    stand beside ours; they are of its own data and encoder. Without --data simulated raters of painted birds vote.

    Example: quantus-concepts pasta ablate --data PASTA --encoder clip
    """
    settings = given_settings(locals())
    from quantus_concepts.studies.pasta.ablate import other_encoders, run_ablations, table_names
    from quantus_concepts.studies.pasta.material import load_embedder, load_ratings, training_settings, voted_questions
    from quantus_concepts.studies.pasta.scorers import Plan

    chosen = torch_device(device)
    ablations = table_names(tables)
    ratings = load_ratings(data, n_images, seed)
    # The maps of what people saw as drawings.
    maps = None if data is None or "drawing" not in ratings.modalities else load_ratings(data, drawings=False)
    plan = Plan(
        voted_questions(question, ratings),
        settings=training_settings(encoder, epochs, learning_rate),
        seed=seed,
        n_splits=seeds,
        device=chosen,
        progress=progress,
    )

    def load(name: str, *files: Path | None) -> Embedder:
        return load_embedder(
            name, *files, device=chosen, cache=cache, batch_size=batch_size, display_progressbar=progress
        )

    embedder = load(encoder, encoder_weights, encoder_tokenizer)
    others = {name: load(name) for name in other_encoders(encoder, encoders)}
    with run_folder("pasta ablate", settings, out, overwrite) as folder:
        run_ablations(folder, ablations, ratings, embedder, plan, maps, others)
    return folder.path


def pasta_sizes(
    channels: Annotated[str, option("Channels of the networks that are explained.")] = "8,16,32,64",
    n_networks: Annotated[int, option("Networks trained of each size.", **ONE)] = 3,
    n_train: NTrain = 2000,
    n_explained: NExplained = 32,
    classifier_epochs: ClassifierEpochs = 4,
    n_images: NImages = None,
    epochs: ScorerEpochs = None,
    learning_rate: LearningRate = None,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: BatchSize = 64,
) -> Path:
    """Whether the size of the network that is explained matters (Figure 8): painted birds and simulated raters.

    The size of the encoder that scorers use is a table of `pasta ablate`.

    Example: quantus-concepts pasta sizes --n-networks 5
    """
    settings = given_settings(locals())
    from quantus_concepts.studies.pasta.material import (
        EMBEDDED,
        RatedBirds,
        load_embedder,
        load_ratings,
        training_settings,
    )
    from quantus_concepts.studies.pasta.scorers import Plan
    from quantus_concepts.studies.pasta.sizes import run_sizes, whole_numbers

    ratings, chosen = load_ratings(None, n_images, seed), torch_device(device)
    how = training_settings(EMBEDDED, epochs, learning_rate)
    plan = Plan(("Q1",), settings=how, seed=seed, n_splits=1, control=False, device=chosen, progress=progress)
    embedder = load_embedder(EMBEDDED, device=chosen, batch_size=batch_size, display_progressbar=progress)
    counts = whole_numbers(channels, "--channels")
    birds = RatedBirds(n_explained, n_train=n_train, seed=seed)
    with run_folder("pasta sizes", settings, out, overwrite) as folder:
        run_sizes(
            folder,
            ratings,
            embedder,
            plan,
            birds,
            channels=counts,
            n_networks=n_networks,
            classifier_epochs=classifier_epochs,
        )
    return folder.path


def pasta_metrics(
    n_explained: NExplained = 24,
    n_train: NTrain = 2000,
    classifier_epochs: ClassifierEpochs = 4,
    n_masks: NMasks = 100,
    n_samples: Annotated[int, option("Draws of noise for each MaxSensitivity.", USES, **ONE)] = 5,
    data: Data = None,
    n_images: NImages = None,
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: BatchSize = 64,
) -> Path:
    """Votes on explanations and other measures of them: robustness, sparseness, marked pixels (Tables 2, 7 to 11).

    With no option: methods that explain a small network, rated by simulated raters. With --data: the votes of a folder
    by explainer, and the sparseness of its maps; the rest would need the networks that were explained.

    Example: quantus-concepts pasta metrics --data PASTA
    """
    values = locals()
    settings = given_settings(values)
    if data is not None:
        idle = ("n_explained", "n_train", "classifier_epochs", "n_masks", "n_samples")
        settings = drop_idle(settings, pasta_metrics, values, WITH_DATA, *idle)
    from quantus_concepts.studies.pasta.material import EMBEDDED, RatedBirds, load_ratings, training_settings
    from quantus_concepts.studies.pasta.metrics import run_metrics
    from quantus_concepts.studies.pasta.scorers import Plan

    # Sparseness needs maps, not drawings of them.
    ratings = None if data is None else load_ratings(data, n_images, drawings=False)
    birds, chosen = RatedBirds(n_explained, n_train=n_train, seed=seed), torch_device(device)
    how = training_settings(EMBEDDED, None, None)
    plan = Plan(("Q1",), settings=how, seed=seed, n_splits=1, control=False, device=chosen, progress=progress)
    with run_folder("pasta metrics", settings, out, overwrite) as folder:
        run_metrics(folder, ratings, birds, plan, n_images, classifier_epochs, n_masks, n_samples, batch_size)
    return folder.path


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
    questions of the PASTA paper on five points, and saves the answers as a CSV file. The folder holds rate.html and the
    images and explanations that the answers name: put the files of all annotators into it, and `pasta train --data`
    reads them.

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
