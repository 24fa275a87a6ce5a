"""The commands that train scorers: benchmark pasta, pasta train, pasta ablate, pasta sizes, pasta metrics."""

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
Question = Annotated[str, option("Q1 to Q6, some with commas, or all in one training.", TRAINING)]
Splits = Annotated[int, option("Splits to train and test on.", TRAINING, **ONE)]
_EPOCHS = "Passes over the training explanations; if none are given 20 with the embedded encoder, else 600."
ScorerEpochs = Annotated[int | None, option(_EPOCHS, TRAINING, **ONE)]
_RATE = "Learning rate (Adam); if none is given 0.003 with the embedded encoder, else 2e-6."
LearningRate = Annotated[float | None, option(_RATE, TRAINING, min=0, max=1000)]
TrainShare = Annotated[float, option("Share of images, and of explainers, to train on.", TRAINING, min=0, max=1)]
Regressors = Annotated[bool, option("Also ridge, lasso and SVM.", TRAINING, "--regressors")]
_DATA = "Folder with human_annotations.json, or a CSV file; by default simulated raters of painted birds."
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
    train_share: TrainShare = 0.7,
    regressors: Regressors = False,
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
    score chooses among Captum's methods, steers RISE, and is compared with other metrics.

    Example: quantus-concepts benchmark pasta --n-images 120 --seeds 3 --no-uses
    """
    values = locals()
    settings = given_settings(values)
    if not uses:
        idle = ("n_explained", "n_masks", "classifier_epochs")
        settings = drop_idle(settings, benchmark_pasta, values, "with --no-uses", *idle)
    from quantus_concepts.studies.pasta.material import EMBEDDED, RatedBirds, question_names, training_settings
    from quantus_concepts.studies.pasta.scorers import Plan
    from quantus_concepts.studies.pasta.training import run_benchmark

    plan = Plan(
        question_names(question),
        settings=training_settings(EMBEDDED, epochs, learning_rate),
        train_share=train_share,
        seed=seed,
        n_splits=seeds,
        regressors=regressors,
        device=torch_device(device),
        progress=progress,
    )
    birds = RatedBirds(n_explained, image_size=image_size, seed=seed) if uses else None
    with run_folder("benchmark pasta", settings, out, overwrite) as folder:
        run_benchmark(folder, plan, n_images, n_per_image, image_size, batch_size, birds, n_masks, classifier_epochs)
    return folder.path


def pasta_train(
    data: Annotated[
        Path,
        option(
            "CSV file with the columns image, explainer, rater, Q1 to Q6 and, if known, label; or "
            "folder with human_annotations.json, as published (ENSTA-U2IS/PASTA) or made with `pasta sheet`.",
            RATINGS,
            exists=True,
        ),
    ],
    datasets: Annotated[str | None, option("Only these data sets, with commas.", RATINGS)] = None,
    modality: Annotated[
        Literal["map", "drawing", "concepts"] | None,
        option("Only explanations of this kind: drawing, concepts, or map (drawn anew from its values).", RATINGS),
    ] = None,
    drawings: Annotated[
        bool,
        option(
            "Show maps by the pictures people rated, or draw them anew from their values.",
            RATINGS,
            "--drawings/--redraw",
        ),
    ] = True,
    labels: Annotated[
        Literal["predicted", "image-name"],
        option(
            "predicted: the class predicted. image-name: the one in the name of the image's file, as the release.",
            RATINGS,
        ),
    ] = "predicted",
    votes: Annotated[
        Literal["mode", "mean", "median"], option("How the votes on one explanation are joined.", RATINGS)
    ] = "mode",
    sparseness: Annotated[
        bool, option("Also correlate the votes with the sparseness of the maps (Table 9).", RATINGS, "--sparseness")
    ] = False,
    question: Question = "all",
    seeds: Splits = 5,
    epochs: ScorerEpochs = None,
    learning_rate: LearningRate = None,
    train_share: TrainShare = 0.7,
    regressors: Regressors = False,
    loss: Annotated[Literal["paper", "release"], option("As in the paper, or as in its release.", TRAINING)] = "paper",
    labelled: Annotated[bool, option("Whether the scorer sees the class.", TRAINING)] = True,
    encoder: Encoder = "siglip",
    encoder_weights: EncoderWeights = None,
    encoder_tokenizer: EncoderTokenizer = None,
    cache: Cache = None,
    saliency: Annotated[
        Literal["overlay", "masked"],
        option("overlay: the map laid over the image. masked: image times map.", EMBEDDING),
    ] = "overlay",
    n_top: Annotated[int, option("Concepts named in the sentence.", EMBEDDING, **ONE)] = 15,
    template: Annotated[str, option("A sentence with {} where the names of the concepts go.", EMBEDDING)] = "",
    concepts: Annotated[
        Literal["sentence", "weighted"],
        option("sentence: of the top concepts. weighted: mean of all concepts' embeddings.", EMBEDDING),
    ] = "sentence",
    sentence: Annotated[
        Literal["ours", "release"],
        option("Sentence of the concepts: ours, or release for exactly that of the released code.", EMBEDDING),
    ] = "ours",
    progress: Progress = True,
    out: Out = None,
    overwrite: Overwrite = False,
    seed: Seed = 0,
    device: Device = "auto",
    batch_size: BatchSize = 16,
) -> Path:
    """Train a scorer that predicts how people rate explanations, and test it on images and explainers it never saw.

    Writes the scorers, a table in the form of the paper's Table 1 with its figures next to ours, and learning curves.

    Example: quantus-concepts pasta train --data PASTA --encoder clip
    """
    settings = given_settings(locals())
    from dataclasses import replace
    from functools import partial

    from quantus_concepts.datasets.ratings.released import PastaRatings
    from quantus_concepts.pasta.embedder import Embedder
    from quantus_concepts.studies.pasta.material import (
        label_names_of,
        load_encoder,
        training_settings,
        voted_questions,
        words,
    )
    from quantus_concepts.studies.pasta.scorers import Plan
    from quantus_concepts.studies.pasta.training import run_training

    load = partial(PastaRatings, data, datasets=words(datasets) or None, drawings=drawings, labels=labels)
    ratings = load(modality=modality)
    embedder = Embedder(
        load_encoder(encoder, encoder_weights, encoder_tokenizer, device=torch_device(device)),
        saliency=saliency,
        n_top=n_top,
        template=template,
        concepts=concepts,
        sentence=sentence,
        cache=cache,
        batch_size=batch_size,
        display_progressbar=progress,
    )
    plan = Plan(
        voted_questions(question, ratings),
        votes=votes,
        label_names=label_names_of(ratings) if labelled else None,
        settings=replace(training_settings(encoder, epochs, learning_rate), loss=loss),
        train_share=train_share,
        seed=seed,
        n_splits=seeds,
        control=False,
        regressors=regressors,
        device=torch_device(device),
        progress=progress,
    )
    # Of the maps themselves, not of the drawings that people saw.
    maps = load(modality="map") if sparseness else None
    with run_folder("pasta train", settings, out, overwrite) as folder:
        run_training(folder, ratings, embedder, plan, maps, labels)
    return folder.path


def pasta_ablate(
    tables: Annotated[
        str, option("all, or some of votes, labels, scorers, saliency, n-top, concepts, losses, with commas.")
    ] = "all",
    encoder: Encoder = "embedded",
    encoder_weights: EncoderWeights = None,
    encoder_tokenizer: EncoderTokenizer = None,
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
    """Which choices of the PASTA-score matter: votes, labels, scoring function, embedding, loss (Tables 15 to 20).

    Every choice is trained and tested on the same splits, with the votes and with shuffled votes. The paper's figures
    stand beside ours; they are of its own data and encoder. Without --data simulated raters of painted birds vote.

    Example: quantus-concepts pasta ablate --data PASTA --encoder clip
    """
    settings = given_settings(locals())
    from quantus_concepts.studies.pasta.ablate import run_ablations, table_names
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
    embedder = load_embedder(
        encoder,
        encoder_weights,
        encoder_tokenizer,
        device=chosen,
        cache=cache,
        batch_size=batch_size,
        display_progressbar=progress,
    )
    with run_folder("pasta ablate", settings, out, overwrite) as folder:
        run_ablations(folder, ablations, ratings, embedder, plan, maps)
    return folder.path


def pasta_sizes(
    encoders: Annotated[
        str | None, option("Encoders to compare, separated by commas: siglip, clip, eva02, embedded, MODEL/TAG.")
    ] = None,
    widths: Annotated[
        str, option("Widths of the embedded encoder (untrained), if no encoders are given.")
    ] = "8,32,128,512",
    classifiers: Annotated[bool, option("Also explain networks of several sizes; only with simulated raters.")] = True,
    channels: Annotated[str, option("Channels of the networks that are explained.")] = "8,16,32,64",
    n_networks: Annotated[int, option("Networks trained of each size.", **ONE)] = 3,
    n_train: NTrain = 2000,
    n_explained: NExplained = 32,
    classifier_epochs: ClassifierEpochs = 4,
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
    """Whether size matters: of the network that is explained (Figure 8), and of the encoder that scorers use.

    With no option: networks and untrained encoders of several widths, painted birds and simulated raters.

    Example: quantus-concepts pasta sizes --seeds 3
    """
    values = locals()
    settings = given_settings(values)
    if encoders is not None:
        settings = drop_idle(settings, pasta_sizes, values, "with --encoders", "widths")
    if data is not None or not classifiers:
        reason = (
            "with --no-classifiers" if data is None else "with --data: the networks of its explanations are unknown"
        )
        idle = ("channels", "n_networks", "n_train", "n_explained", "classifier_epochs")
        settings = drop_idle(settings, pasta_sizes, values, reason, *idle)
    from quantus_concepts.studies.pasta.material import RatedBirds, load_ratings, voted_questions
    from quantus_concepts.studies.pasta.scorers import Plan
    from quantus_concepts.studies.pasta.sizes import build_embedders, run_sizes, whole_numbers

    ratings, chosen = load_ratings(data, n_images, seed), torch_device(device)
    plan = Plan(voted_questions(question, ratings), seed=seed, n_splits=seeds, device=chosen, progress=progress)
    embedders = build_embedders(
        encoders, widths, device=chosen, cache=cache, batch_size=batch_size, display_progressbar=progress
    )
    counts = whole_numbers(channels, "--channels")
    birds = RatedBirds(n_explained, n_train=n_train, seed=seed) if classifiers and data is None else None
    with run_folder("pasta sizes", settings, out, overwrite) as folder:
        run_sizes(
            folder,
            ratings,
            embedders,
            plan,
            epochs,
            learning_rate,
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
    """Votes on explanations and other measures of them: robustness, sparseness, marked pixels (Tables 2, 8, 10, 11).

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
