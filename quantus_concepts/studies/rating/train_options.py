"""The options of `quantus-concepts pasta train`; no library is loaded for them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from quantus_concepts.studies._kit.command import MANY, Options, option
from quantus_concepts.studies.pasta.options import (
    RATINGS,
    TRAINING,
    SplitOptions,
    check_cache,
    check_encoder_files,
    check_folder,
)

EMBEDDING = "Embedding"


@dataclass(frozen=True, kw_only=True)
class FolderOptions(Options):
    """Which ratings of a folder a scorer learns from, and how."""

    data: Path = option(
        help="Folder with human_annotations.json, as published (ENSTA-U2IS/PASTA) or made with `pasta sheet`.",
        panel=RATINGS,
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
class EmbeddingOptions(Options):
    """Representation of an explanation."""

    encoder: str = option(
        "siglip",
        "siglip, clip, eva02, embedded (untrained, to try things), or MODEL/TAG of open_clip.",
        panel=EMBEDDING,
    )
    encoder_weights: Path | None = option(
        None, "File of the encoder's weights; by default open_clip downloads them.", panel=EMBEDDING, shown=False
    )
    encoder_tokenizer: Path | None = option(
        None, "Folder of the encoder's tokenizer, if it is from transformers.", panel=EMBEDDING, shown=False
    )
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
    cache: Path | None = option(
        None, "Folder that keeps embeddings for the next run.", panel=EMBEDDING, shown=False, matters=False
    )


@dataclass(frozen=True, kw_only=True)
class TrainOptions(EmbeddingOptions, SplitOptions, FolderOptions):
    """Train a scorer that predicts how people rate explanations, and test it on images and explainers it never saw.

    Writes the scorers, a table in the form of the paper's Table 1 with its figures next to ours, and learning curves.
    """

    examples = (
        "pasta train --data PASTA --encoder clip",
        "pasta train --data PASTA --question Q1 --out scorer",
    )

    # As in the paper.
    epochs: int = option(600, "Passes over the training explanations.", panel=TRAINING, bounds=(1, MANY))
    learning_rate: float = option(2e-6, "Learning rate (Adam).", panel=TRAINING, bounds=(0, 1000), open_low=True)
    batch_size: int = option(16, "Batch size.", panel="Run", bounds=(1, MANY))
    loss: str = option(
        "paper",
        "As in the paper, or as in its release.",
        panel=TRAINING,
        choices="quantus_concepts.functional.rating_losses:LOSS_WEIGHTS",
    )
    labelled: bool = option(True, "Whether the scorer sees the class.", panel=TRAINING)

    def __post_init__(self) -> None:
        """Raise ValueError for what lies out of bounds or is no choice."""
        check_folder(self.data)
        check_encoder_files(self)
        check_cache(self.cache)
        super().__post_init__()
