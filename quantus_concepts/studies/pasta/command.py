"""The settings of the commands around ratings, which are their options: benchmark pasta, pasta train, score, ..."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypedDict, Unpack

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

if TYPE_CHECKING:
    from quantus_concepts.datasets.ratings.rated import RatedExplanations
    from quantus_concepts.pasta.embedder import Embedder
    from quantus_concepts.pasta.scorer import Scorer
    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.pasta.scorers import Plan


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

    @cached_property
    def ratings(self) -> RatedExplanations:
        """The simulated ratings."""
        from quantus_concepts.datasets.ratings.raters import simulated_ratings

        return simulated_ratings(
            n_images=self.n_images, n_per_image=self.n_per_image, image_size=self.image_size, seed=self.seed
        )

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of the scorers."""
        from quantus_concepts.studies.pasta.material import load_embedder

        return load_embedder(EMBEDDED, device=self.place, batch_size=self.batch_size, display_progressbar=self.progress)

    @property
    def plan(self) -> Plan:
        """How scorers are trained and tested."""
        from quantus_concepts.studies.pasta.scorers import plan_of

        return plan_of(self)

    def check(self) -> None:
        """Raise ValueError for a question that nobody answers."""
        _ = self.plan, self.embedder

    def idle(self) -> tuple[str, tuple[str, ...]]:
        """Return the options of the uses, where there are none."""
        return "with --no-uses", () if self.uses else ("n_explained", "n_masks", "classifier_epochs")

    def run(self, folder: RunFolder) -> None:
        """Train and test scorers, and use the one of all ratings."""
        from quantus_concepts.studies.pasta.training import run_training

        run_training(self, folder)


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

    @cached_property
    def ratings(self) -> RatedExplanations:
        """The ratings of the folder or file."""
        from quantus_concepts.datasets.ratings.rated_file import PREDICTED
        from quantus_concepts.datasets.ratings.released import PastaRatings
        from quantus_concepts.studies.pasta.material import words

        labels = PREDICTED if self.labels == "none" else self.labels
        return PastaRatings(self.data, datasets=words(self.datasets) or None, labels=labels)

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder of the scorers."""
        from quantus_concepts.pasta.embedder import Embedder
        from quantus_concepts.studies.pasta.material import embedding_settings, load_encoder

        return Embedder.from_settings(
            load_encoder(self.encoder, self.encoder_weights, self.encoder_tokenizer, device=self.place),
            embedding_settings(self.embedding or []),
            cache=self.cache,
            batch_size=self.batch_size,
            display_progressbar=self.progress,
        )

    @property
    def plan(self) -> Plan:
        """How scorers are trained and tested."""
        from quantus_concepts.studies.pasta.scorers import plan_of

        plan = plan_of(self)
        label_names = None if self.labels == "none" else plan.label_names
        training = replace(plan.settings, loss=self.loss)
        return replace(plan, votes=self.votes, label_names=label_names, settings=training, control=False)

    def check(self) -> None:
        """Raise ValueError for ratings or an encoder that cannot be used."""
        _ = self.ratings, self.embedder, self.plan

    def run(self, folder: RunFolder) -> None:
        """Train and test scorers."""
        from quantus_concepts.studies.pasta.training import run_training

        run_training(self, folder)


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

    @cached_property
    def ratings(self) -> RatedExplanations:
        """The ratings of the folder or file, or simulated ones."""
        from quantus_concepts.studies.pasta.material import load_ratings

        return load_ratings(self.data, self.n_images, self.seed)

    @property
    def maps(self) -> RatedExplanations | None:
        """The ratings with the maps of what people saw as drawings, where there are some."""
        from quantus_concepts.studies.pasta.material import load_ratings

        has_drawings = self.data is not None and "drawing" in self.ratings.modalities
        return load_ratings(self.data, drawings=False) if has_drawings else None

    @cached_property
    def embedders(self) -> dict[str, Embedder]:
        """The embedder of every encoder, that of `--encoder` first."""
        from quantus_concepts.studies.pasta.ablate import other_encoders
        from quantus_concepts.studies.pasta.material import HowToEmbed, load_embedder

        how = HowToEmbed(cache=self.cache, batch_size=self.batch_size, display_progressbar=self.progress)
        files = {self.encoder: (self.encoder_weights, self.encoder_tokenizer)}
        names = [self.encoder, *other_encoders(self.encoder, self.encoders)]
        return {name: load_embedder(name, *files.get(name, ()), device=self.place, **how) for name in names}

    @property
    def plan(self) -> Plan:
        """How scorers are trained and tested."""
        from quantus_concepts.studies.pasta.scorers import plan_of

        return plan_of(self)

    def check(self) -> None:
        """Raise ValueError for tables that there are not, and for ratings or encoders that cannot be used."""
        from quantus_concepts.studies.pasta.ablate import table_names

        table_names(self.tables)
        _ = self.plan, self.embedders

    def run(self, folder: RunFolder) -> None:
        """Train and test every variant."""
        from quantus_concepts.studies.pasta.ablate import run_ablations

        run_ablations(self, folder)


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

    @cached_property
    def ratings(self) -> RatedExplanations:
        """The ratings, with maps and no drawings of them, which are not sparse."""
        from quantus_concepts.studies.pasta.material import load_ratings

        return load_ratings(self.data, drawings=False)

    def check(self) -> None:
        """Raise ValueError for ratings that cannot be used."""
        _ = self.ratings

    def run(self, folder: RunFolder) -> None:
        """Measure the explanations, and relate the measures to the votes."""
        from quantus_concepts.studies.pasta.metrics import run_metrics

        run_metrics(self, folder)


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

    @cached_property
    def loaded(self) -> Scorer:
        """The scorer, with the questions named."""
        from quantus_concepts.studies.pasta.score import read_scorer

        if self.scorer is None:
            raise ValueError(
                "A scorer is needed: --scorer FILE. There are three ways to one: PASTA_Q1.pth to PASTA_Q6.pth of "
                "ENSTA-U2IS/PASTA_weights on the Hugging Face hub, trained on people's ratings; one that "
                "`quantus-concepts pasta train` trained on ratings of your own; scorer.safetensors of "
                "`quantus-concepts benchmark pasta`, which is a demonstration, for its raters are simulated."
            )
        return read_scorer(self.scorer, self.question)

    @cached_property
    def embedder(self) -> Embedder:
        """The embedder that the scorer was trained with, or with another encoder."""
        from quantus_concepts.studies.pasta.score import make_embedder

        return make_embedder(self)

    @property
    def labels(self) -> str:
        """Where the labels of explanations are from."""
        from quantus_concepts.datasets.ratings.explanation_files import FROM_FILE_NAME, FROM_IMAGE_NAME

        by_image = self.loaded.labelled_by == FROM_IMAGE_NAME
        return self.labels_from or (FROM_IMAGE_NAME if by_image else FROM_FILE_NAME)

    def check(self) -> None:
        """Raise ValueError without a scorer, or for one that cannot be used."""
        _ = self.loaded, self.embedder

    def run(self, folder: RunFolder) -> None:
        """Score the explanations."""
        from quantus_concepts.studies.pasta.score import run_score

        run_score(self, folder)


@dataclass(frozen=True, kw_only=True)
class Sheet(Settings):
    """Write a page on which people rate explanations, for a browser without network.

    It shows an image and an explanation, without the explainer's name and for everybody in another order, asks the
    questions of the PASTA paper on five points, and saves the answers as a CSV file. The folder holds rate.html and the
    images and explanations that the answers name: put the files of all annotators into it, and `pasta train --data`
    reads them.

    Example: quantus-concepts pasta sheet --images images --explanations maps --seed 1 --out sheet
    """

    words = "pasta sheet"

    images: Images
    explanations: Explanations
    labels_from: Annotated[str, option(f"{LABELS}.")] = "file-name"
    ascending: Ascending = None
    questions: Annotated[
        str | None,
        option("Questions, separated by commas; by default Q1 to Q4, and Q5 and Q6 with --light and --strong.", PAGE),
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

    @property
    def changes(self) -> dict[str, Path | None]:
        """The folders of perturbed images, by the question that asks about them."""
        return {"Q5": self.light, "Q6": self.strong}

    @property
    def asked(self) -> tuple[str, ...]:
        """The questions of the page."""
        from quantus_concepts.studies.pasta.sheet import page_questions

        return page_questions(self.questions, self.changes)

    def check(self) -> None:
        """Raise ValueError for questions that cannot be asked."""
        _ = self.asked

    def run(self, folder: RunFolder) -> None:
        """Write the page, and what its answers name."""
        from quantus_concepts.studies.pasta.sheet import write_sheet

        write_sheet(self, folder)
