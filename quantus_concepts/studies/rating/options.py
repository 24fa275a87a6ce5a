"""The options of `pasta train`, `pasta score`, `pasta sheet` and `pasta join`; no library is loaded for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from quantus_concepts.studies._kit.command import (
    MANY,
    DeviceOptions,
    EngineOptions,
    Options,
    OutOptions,
    ProgressOptions,
    SeedOptions,
    TableOptions,
    option,
    redeclared,
)
from quantus_concepts.studies.pasta.options import (
    ALL,
    EMBEDDING,
    RATINGS,
    TRAINING,
    EncoderOptions,
    TrainingOptions,
    check_annotations,
    question_names,
)

SCORER, PAGE, PERTURBED = "Scorer", "Page", "For Q5 and Q6"
#: Keys of a record of the release: its votes, and the kind of an explanation without values, a drawing.
VOTES, MODALITY = "Annotation", "modality"
#: Where labels come from, if not from a file.
FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS = "file-name", "image-name", "none"
LABELS = (
    "file-name (of the explanation), image-name, none, or a CSV file with the columns image, label and, if wanted, "
    "true_label"
)


@dataclass(frozen=True, kw_only=True)
class ExplanationOptions(Options):
    """Which explanations, of which images."""

    images: Path = option(help="Folder of images called {dataset}_{image id}_{label}.png or .jpg.", path="folder")
    explanations: Path = option(
        help="Folder of .npy maps, .png drawings and .json concepts called like their images, or with one such folder "
        "for each explainer.",
        path="folder",
    )
    labels_from: str | None = option(FROM_FILE_NAME, LABELS + ".")
    ascending: str | None = option(None, "Explainers whose small values mean important, with commas.")

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_file

        super().__post_init__()
        if self.labels_from not in (None, FROM_FILE_NAME, FROM_IMAGE_NAME, NO_LABELS):
            check_file("--labels-from", self.labels_from, f"{FROM_FILE_NAME}, {FROM_IMAGE_NAME}, {NO_LABELS} or a file")
        if self.ascending is not None and not words(self.ascending):
            raise ValueError(f"Expected argument `--ascending` to name explainers but got {self.ascending!r}.")


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(EncoderOptions, ExplanationOptions, EngineOptions, ProgressOptions, TableOptions, DeviceOptions):
    """Predict how people would rate explanations on disk: maps, drawings and lists of concepts, on one scale.

    Prints a table of the explainers; the last line is the folder with scores.csv (a row for each explanation), and
    report.html with the best and the worst and, of several explainers, which one is best how often.
    """

    examples = (
        "pasta score --images images --explanations maps --scorer PASTA_weights",
        "pasta score --images images --explanations maps --scorer scorer --labels-from labels.csv",
    )

    labels_from: str | None = option(
        None,
        LABELS + "; by default image-name for scorers trained so, as the released ones, else file-name.",
        shown=False,
    )
    scorer: Path | None = option(
        None,
        "File or folder: PASTA_Q1.pth, ... of ENSTA-U2IS/PASTA_weights, what `pasta train` wrote, or the "
        "demonstration of `benchmark pasta`.",
        panel=SCORER,
    )
    question: str = option(ALL, "all, or some with commas; the first is sorted by.", panel=SCORER)
    encoder: str | None = option(
        None,
        "siglip, clip, eva02, embedded or MODEL/TAG of open_clip; by default what the scorer was trained on.",
        panel=EMBEDDING,
        shown=False,
    )
    clip: bool = option(True, "Set scores above 5 to 5; the release leaves them.", panel=SCORER, shown=False)
    n_shown: int = option(
        12, "Number of the best, and of the worst, explanations on the page.", bounds=(0, MANY), shown=False
    )
    batch_size: int = redeclared(DeviceOptions, "batch_size", 16, shown=False)

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_path

        super().__post_init__()
        if self.scorer is not None and not check_path("--scorer", self.scorer).exists():
            raise ValueError(
                f"Expected argument `--scorer` to name a file or folder but there is none at {self.scorer}."
            )
        question_names(self.question)


@dataclass(frozen=True, kw_only=True)
class PageOptions(ProgressOptions, OutOptions, SeedOptions):
    """A page on which people answer questions about pictures."""

    late: ClassVar[int] = 1

    picture_size: int = option(384, "Longer side of the pictures in pixels.", panel=PAGE, bounds=(32, 2048))
    max_megabytes: float = option(
        50.0, "Maximum size of the page in megabytes.", panel=PAGE, bounds=(0, 2000), open_low=True
    )


@dataclass(frozen=True, kw_only=True)
class SheetOptions(ExplanationOptions, PageOptions):
    """Write a page on which people rate explanations, for a browser without network.

    It shows an image and an explanation, without the explainer's name and for everybody in another order, asks the
    questions of the PASTA paper on five points, and saves the answers in the format of its release. The last line is
    the folder with rate.html and what the ratings refer to.
    """

    examples = (
        "pasta sheet --images images --explanations maps",
        "pasta sheet --images images --explanations maps --seed 1 --out sheet",
    )

    questions: str | None = option(
        None,
        "Questions, separated by commas; by default Q1 to Q4, and Q5 and Q6 with --light and --strong.",
        panel=PAGE,
    )
    n_items: int | None = option(
        None, "Explanations to take, drawn with --seed; by default all.", panel=PAGE, bounds=(1, MANY)
    )
    light: Path | None = option(
        None,
        "Folder with the folders images and explanations of the same images, lightly perturbed.",
        panel=PERTURBED,
        path="folder",
    )
    strong: Path | None = option(
        None,
        "The same, perturbed until the prediction changed; the label of their names is the new prediction.",
        panel=PERTURBED,
        path="folder",
    )

    def __post_init__(self) -> None:
        from captum_concepts._support.checks import check_folder

        super().__post_init__()
        for name in ("light", "strong"):
            if (root := getattr(self, name)) is not None:
                for part in ("images", "explanations"):
                    check_folder(f"--{name}", root / part)


@dataclass(frozen=True, kw_only=True)
class JoinOptions(OutOptions):
    """Join the files of several annotators to one folder of ratings, which `pasta train` reads."""

    examples = (
        "pasta join ann.json ben.json --data sheet",
        "pasta join *.json --data sheet --out ratings",
    )

    files: list[Path] = option(help="Files that the annotators saved.", argument=True, path="file")
    data: Path = option(help="The folder that `pasta sheet` wrote.", path="folder")


def words(text: str | None) -> list[str]:
    """Split what was given with commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


@dataclass(frozen=True, kw_only=True)
class FolderOptions(Options):
    """Which ratings of a folder a scorer learns from, and how."""

    data: Path = option(
        help="Folder with human_annotations.json, as published (ENSTA-U2IS/PASTA) or made with `pasta sheet`.",
        panel=RATINGS,
        path="folder",
        shown=False,
    )
    datasets: str | None = option(None, "Only these data sets, with commas.", panel=RATINGS)
    modality: str | None = option(
        None,
        "Only explanations of this kind: drawing, concepts, or map (drawn anew from its values).",
        panel=RATINGS,
        choices="quantus_concepts.datasets.ratings.explanations:MODALITIES",
    )
    drawings: bool = option(
        True,
        "Show maps by the pictures people rated, or draw them anew from their values.",
        panel=RATINGS,
        flag="--drawings/--redraw",
    )
    labels: str = option(
        "predicted",
        "predicted: the class predicted. image-name: the one in the name of the image's file, as the release.",
        panel=RATINGS,
        choices="quantus_concepts.datasets.ratings.annotations:LABELS",
    )
    votes: str = option(
        "mode",
        "How the votes on one explanation are joined: mode, mean, median.",
        panel=RATINGS,
        choices="quantus_concepts.functional.votes:JOINS",
    )
    sparseness: bool = option(
        False, "Also correlate the votes with the sparseness of the maps (Table 9).", panel=RATINGS, shown=False
    )


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions(EncoderOptions):
    """Representation of an explanation."""

    saliency: str = option(
        "overlay",
        "overlay: the map laid over the image. masked: image times map.",
        panel=EMBEDDING,
        choices=("overlay", "masked"),
    )
    n_top: int = option(15, "Concepts named in the sentence.", panel=EMBEDDING, bounds=(1, MANY))
    template: str = option("", "A sentence with {} where the names of the concepts go.", panel=EMBEDDING)
    concepts: str = option(
        "sentence",
        "sentence: of the top concepts. weighted: mean of all concepts' embeddings.",
        panel=EMBEDDING,
        choices=("sentence", "weighted"),
    )
    sentence: str = option(
        "ours",
        "Sentence of the concepts: ours, or release for exactly that of the released code.",
        panel=EMBEDDING,
        choices="quantus_concepts.pasta.presentation:SENTENCES",
    )


@dataclass(frozen=True, kw_only=True)
class TrainOptions(EmbeddingOptions, TrainingOptions, FolderOptions):
    """Train a scorer that predicts how people rate explanations, and test it on images and explainers it never saw.

    Writes the scorers, a table in the form of the paper's Table 1 with its figures next to ours, and learning curves.
    """

    examples = (
        "pasta train --data PASTA --encoder clip",
        "pasta train --data PASTA --question Q1 --out scorer",
    )

    # As in the paper.
    epochs: int = redeclared(TrainingOptions, "epochs", 600)
    learning_rate: float = redeclared(TrainingOptions, "learning_rate", 2e-6)
    batch_size: int = redeclared(DeviceOptions, "batch_size", 16)
    loss: str = option(
        "paper",
        "As in the paper, or as in its release.",
        panel=TRAINING,
        choices="quantus_concepts.functional.rating_losses:LOSS_WEIGHTS",
    )
    labelled: bool = option(True, "Whether the scorer sees the class.", panel=TRAINING)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_annotations(self.data)
