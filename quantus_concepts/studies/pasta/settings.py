"""The settings of the commands around ratings, which are their options: benchmark pasta, pasta train, score, ..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypedDict, Unpack

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings
from quantus_concepts.studies.attribution.settings import method_names, methods_text

RATINGS, TRAINING, EMBEDDING, BIRDS = "Ratings", "Training", "Embedding", "Painted birds and simulated raters"
USES = "What the score is used for"
#: The encoder that needs no weights.
EMBEDDED = "embedded"


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
ONE: OptionSettings = {"min": 1, "max": kit.MANY}
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
NExplained = Annotated[int, option("Birds that are explained.", USES, **ONE)]
NMasks = Annotated[int, option("Masks of RISE.", USES, **ONE)]
ClassifierEpochs = Annotated[int, option("Epochs of each small network that is explained.", USES, **ONE)]
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


@dataclass(frozen=True, kw_only=True)
class BenchmarkPasta(Settings):
    """Train scorers on simulated ratings and test them on images and explainers they never saw: the PASTA-score.

    With no option: explanations of known quality are drawn for painted birds, five simulated raters answer six
    questions on them, scorers are trained on five splits and held against what the raters' own noise allows. Then the
    score chooses among Captum's methods, steers RISE, and is compared with other metrics of explanations.

    Example: quantus-concepts benchmark pasta --n-images 120 --seeds 3 --no-uses
    """

    words = "benchmark pasta"

    question: Question = "all"
    seeds: Splits = 5
    epochs: ScorerEpochs = 20
    learning_rate: LearningRate = 3e-3
    n_images: Annotated[int, option("Painted birds whose explanations are rated.", BIRDS, **ONE)] = 240
    n_per_image: Annotated[int, option("Explanations of each that are rated.", BIRDS, **ONE)] = 21
    image_size: Annotated[int, option("Height and width in pixels.", BIRDS, min=32, max=512)] = 64
    uses: Annotated[bool, option("Mixture, steered RISE, robustness, other metrics.", USES)] = True
    methods: Annotated[
        str | None,
        option(
            "Explainers to choose among and to measure, names with commas as in benchmark attribution: HiResCAM, Lime, "
            "KernelShap, path.py:function. By default the eight of its paper; random and Sobel edges are always there.",
            USES,
        ),
    ] = None
    n_explained: NExplained = 48
    n_masks: NMasks = 400
    classifier_epochs: ClassifierEpochs = 6
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 64

    encoder = EMBEDDED

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return the options of the uses, where there are none."""
        return "with --no-uses", () if self.uses else ("methods", "n_explained", "n_masks", "classifier_epochs")

    def check(self) -> None:
        """Raise ValueError for no names of explainers."""
        _ = self.method_names

    def listed(self) -> dict[str, str]:
        """Return the settings, with all explainers by name where they are chosen."""
        return super().listed() | ({"methods": methods_text(self.method_names)} if self.methods is not None else {})

    @property
    def method_names(self) -> list[str]:
        """The explainers of `--methods`, each once, or those of the paper, and the controls."""
        return method_names(self.methods)


@dataclass(frozen=True, kw_only=True)
class Train(Settings):
    """Say what people said, train a scorer that predicts it, and test it on images and explainers it never saw.

    Writes the scorer of all ratings, a table in the form of the paper's Table 1 with its figures next to ours, and
    learning curves. With fewer than 8 explainers the test is on new images only.

    Example: quantus-concepts pasta train --data PASTA --encoder clip
    """

    words = "pasta train"

    data: Annotated[
        Path,
        option(
            "CSV file with the columns image, explainer, rater, one for each question and, if known, label; or a "
            "folder with such files, as `pasta sheet` makes one, or with human_annotations.json, as published "
            "(ENSTA-U2IS/PASTA). questions.json beside a CSV file says what was asked.",
            RATINGS,
            exists=True,
        ),
    ]
    datasets: Annotated[str | None, option("Only these data sets, with commas.", RATINGS)] = None
    labels: Annotated[
        Literal["predicted", "image-name", "none"],
        option(
            "predicted: the class predicted (the column label). image-name: the one in the name of the image's file, "
            "as the release. none: the scorer sees no class.",
            RATINGS,
        ),
    ] = "predicted"
    votes: Annotated[
        Literal["mode", "mean", "median"], option("How the votes on one explanation are joined.", RATINGS)
    ] = "mode"
    question: Question = "all"
    seeds: Splits = 5
    epochs: ScorerEpochs = None
    learning_rate: LearningRate = None
    loss: Annotated[Literal["paper", "release"], option("As in the paper, or as in its release.", TRAINING)] = "paper"
    encoder: Encoder = "siglip"
    encoder_weights: EncoderWeights = None
    encoder_tokenizer: EncoderTokenizer = None
    cache: Cache = None
    embedding: Annotated[
        list[str] | None,
        option(
            "Another setting of quantus_concepts.pasta.Embedder, KEY=VALUE, such as n_top=10 or sentence=release; may "
            "be given several times.",
            EMBEDDING,
        ),
    ] = None
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 16


@dataclass(frozen=True, kw_only=True)
class Ablate(Settings):
    """Which choices matter: votes, labels, scoring function, encoder, embedding, loss (Tables 15 to 20).

    Every choice is trained and tested on the same splits, with the votes and with shuffled votes. The paper's figures
    stand beside ours; they are of its own data and encoder. Without --data simulated raters of painted birds vote.

    Example: quantus-concepts pasta ablate --data PASTA --encoder clip
    """

    words = "pasta ablate"

    tables: Annotated[
        str, option("all, or some of votes, labels, scorers, saliency, n-top, concepts, losses, encoders, with commas.")
    ] = "all"
    encoder: Encoder = "embedded"
    encoder_weights: EncoderWeights = None
    encoder_tokenizer: EncoderTokenizer = None
    encoders: Annotated[
        str | None,
        option(
            "Other encoders to compare with --encoder, with commas; by default widths of the embedded one, "
            "embedded/WIDTH, if that is it.",
            EMBEDDING,
        ),
    ] = None
    cache: Cache = None
    data: Data = None
    n_images: NImages = None
    question: Question = "Q1"
    seeds: Splits = 5
    epochs: ScorerEpochs = None
    learning_rate: LearningRate = None
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 64


@dataclass(frozen=True, kw_only=True)
class Metrics(Settings):
    """Votes on explanations, and how sparse maps are: differences between explainers, correlation (Tables 7 to 11).

    Other measures need the networks that were explained, which a folder of ratings has not: `benchmark pasta` has them
    for painted birds.

    Example: quantus-concepts pasta metrics --data PASTA
    """

    words = "pasta metrics"

    data: Annotated[
        Path, option("Folder with human_annotations.json or CSV files, or a CSV file.", RATINGS, exists=True)
    ]
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    seed: kit.Seed = 0


@dataclass(frozen=True, kw_only=True)
class Score(Settings):
    """Predict how people would rate explanations on disk: maps, drawings and lists of concepts, on one scale.

    Writes scores.csv (a row for each explanation), and report.html with the best and the worst and, of several
    explainers, which one is best how often.

    Example: quantus-concepts pasta score --images images --explanations maps --scorer PASTA_weights
    """

    words = "pasta score"

    images: Images
    explanations: Explanations
    labels_from: Annotated[
        str | None,
        option(f"{LABELS}; by default image-name for scorers trained so, as the released ones, else file-name."),
    ] = None
    ascending: Ascending = None
    scorer: Annotated[Path | None, option(_SCORER, SCORER, exists=True)] = None
    question: Annotated[str, option("all, or some with commas; the first is sorted by.", SCORER)] = "all"
    clip: Annotated[bool, option("Set scores above 5 to 5; the release leaves them.", SCORER)] = True
    n_shown: Annotated[
        int, option("Number of the best, and of the worst, explanations on the page.", min=0, max=kit.MANY)
    ] = 12
    encoder: Annotated[str | None, option(_ENCODER, EMBEDDING)] = None
    encoder_weights: EncoderWeights = None
    encoder_tokenizer: EncoderTokenizer = None
    cache: Cache = None
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    device: kit.Device = kit.AUTO
    batch_size: kit.BatchSize = 16


@dataclass(frozen=True, kw_only=True)
class Sheet(Settings):
    """Write a page on which people rate explanations, for a browser without network.

    It shows an image and an explanation, without the explainer's name and for everybody in another order, asks the
    questions of the PASTA paper, or your own, on five points, and saves the answers as a CSV file. The folder holds
    rate.html and the images and explanations that the answers name: put the files of all annotators into it, and
    `pasta train --data` reads them.

    Example: quantus-concepts pasta sheet --images images --explanations maps --seed 1 --out sheet
    """

    words = "pasta sheet"

    images: Images
    explanations: Explanations
    labels_from: Annotated[str, option(f"{LABELS}.")] = "file-name"
    ascending: Ascending = None
    questions: Annotated[
        str | None,
        option(
            "Questions of the paper with commas, or a file of your own, questions.json; by default Q1 to Q4, and Q5 "
            "and Q6 with --light and --strong.",
            PAGE,
        ),
    ] = None
    n_items: Annotated[int | None, option("Explanations to take, drawn with --seed; by default all.", PAGE, **ONE)] = (
        None
    )
    light: Annotated[Path | None, option(_LIGHT, PERTURBED, **FOLDER)] = None
    strong: Annotated[Path | None, option(_STRONG, PERTURBED, **FOLDER)] = None
    picture_size: PictureSize = 384
    max_megabytes: MaxMegabytes = 50.0
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False
    seed: kit.Seed = 0
