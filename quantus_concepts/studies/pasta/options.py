"""Options of the PASTA commands, and the available ablations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quantus_concepts.studies._kit.command import MANY, Options, RunOptions, option, option_name, redeclared, share

SCORER = "PASTA-score"
SHUFFLED = "shuffled votes"
HUMAN = "one annotator"
SIMULATED_HUMAN = "one simulated rater"
CEILING = "ceiling"
#: The other scoring functions, as the paper's Table 17 calls them, by their kind.
REGRESSORS = {"svm": "SVM", "ridge": "ridge", "lasso": "lasso"}
#: Order of the rows; the regressors come after the scorer.
MODELS = (SCORER, "ridge", "lasso", "SVM", SHUFFLED, HUMAN, SIMULATED_HUMAN, CEILING)

MEASURES = {"MSE": "MSE ↓", "QWK": "QWK ↑", "SCC": "SCC ↑", "SCC rounded": "SCC ↑, rounded"}
#: Measures of the paper.
PAPER_MEASURES = ("MSE", "QWK", "SCC")

KINDS = {"map": "maps", "drawing": "drawings", "concepts": "concepts"}
#: The kind of maps in ratings with the pictures that people saw.
DRAWING = "drawing"

#: Mark of tables and figures of simulated raters.
SIMULATED = "simulated raters"
SIMULATED_TEXT = (
    "The raters are simulated: a stated function of how well an explanation matches a known truth, with noise and a "
    "bias for each rater. No person rated anything, and no number here says how people would judge."
)
SOURCE = "Kazmierczak et al., Benchmarking XAI Explanations with Human-Aligned Evaluations"
TABLE_1_SOURCE = "Kazmierczak et al., Table 1: 5 splits of the PASTA data set, 21,110 rated explanations"


@dataclass(frozen=True)
class Variant:
    """One choice; everything else is the default."""

    name: str
    embedding: tuple[tuple[str, Any], ...] = ()
    votes: str = "mode"
    labelled: bool = True
    training: tuple[tuple[str, Any], ...] = ()
    regressor: str = ""
    drawn: bool = True


@dataclass(frozen=True)
class Ablation:
    """Choices to compare: the first one is the default."""

    title: str
    about: str
    variants: tuple[Variant, ...]
    table: int | None = None
    #: The kind of explanation that the choice concerns; "" for all.
    modality: str = ""


def _variants(argument: str, *values: Any, drawn: bool = True) -> tuple[Variant, ...]:
    return tuple(Variant(str(value), ((argument, value),), drawn=drawn) for value in values)


#: By the name that `--tables` takes; numbers are the paper's.
ABLATIONS = {
    "votes": Ablation(
        "How votes are joined",
        "Each is tested against votes joined its own way, as in the paper: the target changes as well as the training.",
        (Variant("mode"), Variant("mean", votes="mean"), Variant("median", votes="median")),
        15,
    ),
    "labels": Ablation(
        "Whether the scorer sees the class",
        "The class, one-hot, before the embedding, or the embedding alone.",
        (Variant("embedding and label"), Variant("embedding alone", labelled=False)),
        16,
    ),
    "scorers": Ablation(
        "Scoring functions",
        "The network and three regressors on the same inputs.",
        (
            Variant(SCORER),
            Variant("SVM", regressor="svm"),
            Variant("ridge", regressor="ridge"),
            Variant("lasso", regressor="lasso"),
        ),
        17,
    ),
    "saliency": Ablation(
        "How maps are shown",
        "Laid over the image (Eq. 1), or the image times the map (Eq. 14); and, where ratings come with the drawings "
        "that people saw, these. The embedded encoder is scaled to pictures laid over, so that the others fall outside "
        "of what it tells apart.",
        (*_variants("saliency", "overlay", "masked", drawn=False), Variant(DRAWING)),
        18,
        "map",
    ),
    "n-top": Ablation(
        "How many concepts are named",
        "In the text of an explanation; one with fewer concepts names all it has.",
        _variants("n_top", 15, 5, 10, 20),
        19,
        "concepts",
    ),
    "concepts": Ablation(
        "How concepts are embedded",
        "The names of the first concepts as one text, with or without a template; or the mean of all embeddings, "
        "each name's times its value (Eq. 15).",
        (
            Variant("sentence"),
            Variant("weighted", (("concepts", "weighted"),)),
            Variant("sentence with template", (("template", "Concepts in explanation: {}"),)),
        ),
        20,
        "concepts",
    ),
    "losses": Ablation(
        "The loss",
        "The paper's sum of three losses, the release's weights and losses, and the paper's without one of the three.",
        (
            Variant("paper"),
            Variant("release", training=(("loss", "release"),)),
            Variant("without cosine", training=(("weights", (0.0, 0.001, 0.01)),)),
            Variant("without squared", training=(("weights", (1.0, 0.0, 0.01)),)),
            Variant("without ranking", training=(("weights", (1.0, 0.001, 0.0)),)),
        ),
    ),
}


ALL = "all"
#: File of ratings in a folder.
ANNOTATIONS = "human_annotations.json"
EMBEDDED = "embedded"
#: Training on the embedded encoder, found by trial on simulated ratings.
EMBEDDED_EPOCHS, EMBEDDED_LEARNING_RATE = 20, 3e-3
#: ROAD is slow, so only few of the most and least relevant pixels are removed.
CORRELATED_THRESHOLDS = (6, 12)
#: Training birds of an explained network.
N_CLASSIFIER = 2000
RATINGS, TRAINING, EMBEDDING = "Ratings", "Training", "Embedding"
BIRDS, APPLICATIONS = "Painted birds and simulated raters", "What the score is used for"


def question_names(text: str) -> tuple[str, ...]:
    """Read the questions an option names."""
    from quantus_concepts.datasets.ratings.explanations import QUESTIONS

    if text.strip().lower() == ALL:
        return tuple(QUESTIONS)
    names = {name.strip() for name in text.split(",")}
    if names - set(QUESTIONS):
        raise ValueError(
            f"Expected argument `--question` to be {ALL} or some of {', '.join(QUESTIONS)} with commas between them "
            f"but got {text!r}."
        )
    return tuple(name for name in QUESTIONS if name in names)


def table_names(text: str) -> tuple[str, ...]:
    """Read which ablations an option names, or numbers as the paper does."""
    numbers = {str(ablation.table): name for name, ablation in ABLATIONS.items() if ablation.table}
    words = [word.strip() for word in text.split(",")]
    names = list(ABLATIONS) if words == [ALL] else [numbers.get(word, word) for word in words]
    unknown = [name for name in names if name not in ABLATIONS]
    if unknown:
        raise ValueError(
            f"Expected argument `--tables` to be {ALL}, or some of {', '.join(ABLATIONS)} or the paper's numbers "
            f"{', '.join(numbers)} with commas between them, but got {unknown[0]!r}."
        )
    return tuple(dict.fromkeys(names))


def whole_numbers(text: str, argument: str) -> tuple[int, ...]:
    """Read at least two numbers with commas between them."""
    try:
        numbers = sorted({int(number) for number in text.split(",")})
    except ValueError:
        numbers = []
    if len(numbers) < 2 or numbers[0] < 2:
        raise ValueError(
            f"Expected argument `{argument}` to be two or more whole numbers from 2, with commas between them, but got "
            f"{text!r}."
        )
    return tuple(numbers)


def check_annotations(data: Path | None) -> None:
    """Raise unless a folder of ratings that is named holds some."""
    from captum_concepts._support.checks import check_file

    if data is not None:
        check_file("--data", data / ANNOTATIONS)


@dataclass(frozen=True, kw_only=True)
class CacheOptions(Options):
    """Where embeddings are kept."""

    cache: Path | None = option(
        None,
        "Folder that keeps embeddings for the next run.",
        panel=EMBEDDING,
        path="new folder",
        shown=False,
        matters=False,
    )


@dataclass(frozen=True, kw_only=True)
class EncoderOptions(CacheOptions):
    """Which encoder embeds explanations; its files, where it has some."""

    encoder: str | None = option(
        "siglip",
        "siglip, clip, eva02, embedded (untrained, to try things), or MODEL/TAG of open_clip.",
        panel=EMBEDDING,
    )
    encoder_weights: Path | None = option(
        None,
        "File of the encoder's weights; by default open_clip downloads them.",
        panel=EMBEDDING,
        path="file",
        shown=False,
    )
    encoder_tokenizer: Path | None = option(
        None,
        "Folder of the encoder's tokenizer, if it is from transformers.",
        panel=EMBEDDING,
        path="folder",
        shown=False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("encoder_weights", "encoder_tokenizer"):
            if getattr(self, name) is not None and (self.encoder or "").partition(" ")[0] == EMBEDDED:
                raise ValueError(
                    f"Argument `{option_name(name)}` has no effect on the embedded encoder, which has its own."
                )


@dataclass(frozen=True, kw_only=True)
class SplitOptions(Options):
    """For which questions scorers are trained, and on how many splits."""

    question: str = option(ALL, "Q1 to Q6, some with commas, or all in one training.", panel=TRAINING)
    seeds: int = option(5, "Splits to train and test on.", panel=TRAINING, bounds=(1, MANY))

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.questions

    @property
    def questions(self) -> tuple[str, ...]:
        """The questions to train for."""
        return question_names(self.question)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(SplitOptions, RunOptions):
    """How scorers are trained."""

    epochs: int = option(EMBEDDED_EPOCHS, "Passes over the training explanations.", panel=TRAINING, bounds=(1, MANY))
    learning_rate: float = option(
        EMBEDDED_LEARNING_RATE, "Learning rate (Adam).", panel=TRAINING, bounds=(0, 1000), open_low=True
    )
    train_share: float = share(0.7, "Share of images, and of explainers, to train on.", panel=TRAINING)
    regressors: bool = option(False, "Also ridge, lasso and SVM.", panel=TRAINING)


@dataclass(frozen=True, kw_only=True)
class PastaOptions(TrainingOptions):
    """Train a scorer on simulated ratings and test it on images and explainers it never saw: the PASTA-score.

    With no option: explanations of known quality are drawn for painted birds, five simulated raters answer six
    questions on them, scorers are trained on five splits and held against what the raters' own noise allows. Then the
    score chooses among Captum's methods, steers RISE, and is compared with other metrics. Prints the main table; the
    last line is the folder with report.html, results.csv, the figures and the scorers.
    """

    examples = (
        "benchmark pasta --question Q1",
        "benchmark pasta --n-images 120 --seeds 3 --no-uses",
    )
    quick = "--n-per-image 12 --image-size 32 --no-uses --n-images 20 --seeds 1 --epochs 1"

    n_images: int = option(240, "Painted birds whose explanations are rated.", panel=BIRDS, bounds=(1, MANY))
    n_per_image: int = option(21, "Explanations of each that are rated.", panel=BIRDS, bounds=(1, MANY))
    image_size: int = option(64, "Height and width in pixels.", panel=BIRDS, bounds=(32, 512))
    uses: bool = option(True, "Mixture, steered RISE, robustness, other metrics.", panel=APPLICATIONS)
    n_explained: int = option(48, "Birds that Captum's methods explain.", panel=APPLICATIONS, bounds=(1, MANY))
    n_masks: int = option(400, "Masks of the steered RISE.", panel=APPLICATIONS, bounds=(1, MANY))
    classifier_epochs: int = option(
        6, "Epochs of the small network that is explained.", panel=APPLICATIONS, bounds=(1, MANY)
    )


@dataclass(frozen=True, kw_only=True)
class RatingsOptions(RunOptions):
    """Whose votes: people's of a folder, or simulated raters'."""

    data: Path | None = option(
        None,
        "Folder with human_annotations.json; by default simulated raters of painted birds.",
        panel=RATINGS,
        path="folder",
    )
    n_images: int = option(120, "Number of painted birds, if no folder is given.", panel=RATINGS, bounds=(1, MANY))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_annotations(self.data)

    @property
    def idle(self) -> tuple[str, ...]:
        """The number of birds where there are none."""
        return () if self.data is None else ("n_images",)


@dataclass(frozen=True, kw_only=True)
class ScorersOptions(SplitOptions, CacheOptions, RatingsOptions):
    """How scorers are trained on an encoder, whose own epochs and learning rate are the default."""

    question: str = redeclared(SplitOptions, "question", "Q1", help="Q1 to Q6, some with commas, or all.")
    epochs: int | None = redeclared(
        TrainingOptions,
        "epochs",
        None,
        help="Passes over the training explanations; by default 20 with the embedded encoder, else the paper's 600.",
    )
    learning_rate: float | None = redeclared(
        TrainingOptions,
        "learning_rate",
        None,
        help="Learning rate (Adam); by default 0.003 with the embedded encoder, else the paper's.",
    )


@dataclass(frozen=True, kw_only=True)
class AblateOptions(EncoderOptions, ScorersOptions):
    """Which choices of the PASTA-score matter: votes, labels, scoring function, embedding, loss (Tables 15 to 20).

    Every choice is trained and tested on the same splits, with the votes and with shuffled votes. The paper's figures
    stand beside ours; they are of its own data and encoder. Without --data simulated raters of painted birds vote.
    """

    examples = (
        "pasta ablate --seeds 3",
        "pasta ablate --data PASTA --encoder clip",
    )
    quick = "--tables labels --n-images 20 --seeds 1 --epochs 1"

    tables: str = option(ALL, f"{ALL}, or some of {', '.join(ABLATIONS)}, with commas.", shown=False)
    encoder: str = redeclared(EncoderOptions, "encoder", EMBEDDED, shown=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self.ablations

    @property
    def ablations(self) -> tuple[str, ...]:
        """The ablations to run."""
        return table_names(self.tables)


@dataclass(frozen=True, kw_only=True)
class SizesOptions(ScorersOptions):
    """Whether size matters: of the network that is explained (Figure 8), and of the encoder that scorers use.

    With no option: networks and untrained encoders of several widths, painted birds and simulated raters.
    """

    examples = (
        "pasta sizes --seeds 3",
        "pasta sizes --data PASTA",
    )
    quick = "--no-classifiers --n-images 20 --seeds 1 --epochs 1"

    encoders: str | None = option(
        None, "Encoders to compare, separated by commas: siglip, clip, eva02, embedded, MODEL/TAG.", shown=False
    )
    widths: str = option(
        "8,32,128,512", "Widths of the embedded encoder (untrained), if no encoders are given.", shown=False
    )
    classifiers: bool = option(True, "Also explain networks of several sizes; only with simulated raters.", shown=False)
    channels: str = option("8,16,32,64", "Channels of the networks that are explained.", shown=False)
    n_networks: int = option(3, "Networks trained of each size.", bounds=(1, MANY))
    n_train: int = option(N_CLASSIFIER, "Birds each network learns from.", bounds=(2, MANY))
    n_explained: int = option(32, "Birds that are explained.", bounds=(1, MANY))
    classifier_epochs: int = option(4, "Epochs of each network.", bounds=(1, MANY))

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_numbers(self.widths, "--widths")
        whole_numbers(self.channels, "--channels")


@dataclass(frozen=True, kw_only=True)
class MetricsOptions(RatingsOptions):
    """Votes on explanations and other measures of them: robustness, sparseness, marked pixels (Tables 2, 8, 10, 11).

    With no option: methods that explain a small network, rated by simulated raters. With --data: the votes of a folder
    by explainer, and the sparseness of its maps; the rest would need the networks that were explained.
    """

    examples = (
        "pasta metrics",
        "pasta metrics --data PASTA",
    )
    quick = "--n-images 20 --n-explained 4 --n-train 20 --classifier-epochs 1"

    n_explained: int = option(24, "Birds whose explanations are rated and measured.", bounds=(1, MANY))
    n_train: int = option(N_CLASSIFIER, "Birds that network learns from.", bounds=(2, MANY))
    classifier_epochs: int = option(4, "Epochs of the small network that is explained.", bounds=(1, MANY))
    n_masks: int = option(100, "Masks of RISE.", bounds=(1, MANY))
    n_samples: int = option(5, "Draws of noise for each MaxSensitivity.", bounds=(1, MANY))
