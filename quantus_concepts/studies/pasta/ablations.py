"""The paper's ablations (Tables 15 to 20), and of the loss, as declarations; and scorers trained for each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.split import leak_free_split
from quantus_concepts.functional.agreement import figures
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.regressors import fit_regressor
from quantus_concepts.pasta.training import train_scorer
from quantus_concepts.studies.pasta.results import SCORER, SHUFFLED
from quantus_concepts.studies.pasta.seeds import Plan, label_places, predicted_votes, shuffled_votes

#: Both are rows of every table: the scorer, and the same told other explanations' votes.
MODELS = (SCORER, SHUFFLED)


#: A variant that only ratings with drawings have.
DRAWING = "drawing"


@dataclass(frozen=True)
class Variant:
    """One choice; all it does not name is as by default."""

    name: str
    embedding: tuple[tuple[str, Any], ...] = ()
    votes: str = "mode"
    labelled: bool = True
    training: tuple[tuple[str, Any], ...] = ()
    regressor: str = ""
    drawn: bool = True


@dataclass(frozen=True)
class Ablation:
    """Choices held against each other: the first one is the default, which the others differ from."""

    title: str
    about: str
    variants: tuple[Variant, ...]
    table: int | None = None
    #: The kind of explanation that the choice concerns; "" for all.
    modality: str = ""


def _each(argument: str, *values: Any, drawn: bool = True) -> tuple[Variant, ...]:
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
        "Whether the scorer is told the class",
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
        (*_each("saliency", "overlay", "masked", drawn=False), Variant(DRAWING)),
        18,
        "map",
    ),
    "n-top": Ablation(
        "How many concepts are named",
        "Of the text of an explanation by concepts; one with fewer concepts names all it has.",
        _each("n_top", 15, 5, 10, 20),
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


def ablated(
    ratings: RatedExplanations,
    embedder: Embedder,
    names: Sequence[str],
    plan: Plan,
    maps: RatedExplanations | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> pd.DataFrame:
    """Train and test every variant of some ablations on the same splits."""
    # Returns one row for each ablation, variant, model, question, modality, measure and seed. What two variants
    # share is computed once. `maps` are the same ratings without the drawings people saw, where `ratings` has them.
    base = embedder.embed(ratings.explanations).cpu()
    embeddings: dict[Any, Tensor] = {}
    trained: dict[Any, pd.DataFrame] = {}
    frames = []
    for name in names:
        ablation = ABLATIONS[name]
        for variant in ablation.variants:
            if variant.name == DRAWING and maps is None:
                continue
            source = ratings if maps is None or variant.drawn else maps
            # What is as the embedder has it anyway is no change.
            changes = tuple(pair for pair in variant.embedding if embedder.settings[pair[0]] != pair[1])
            embedding = (source is ratings, changes)
            if embedding not in embeddings:
                say(f"Embedding: {ablation.title.lower()}, {variant.name}")
                anew = changes or source is not ratings
                embeddings[embedding] = (
                    _embedded_anew(source, embedder, base, ablation.modality, changes) if anew else base
                )
            content = (embedding, replace(variant, name="", embedding=(), drawn=True))
            if content not in trained:
                say(f"{ablation.title}: {variant.name}")
                trained[content] = variant_figures(ratings, embeddings[embedding], variant, plan)
            frames.append(trained[content].assign(ablation=name, variant=variant.name))
    return pd.concat(frames, ignore_index=True)


def _embedded_anew(
    source: RatedExplanations, embedder: Embedder, known: Tensor, modality: str, changes: tuple[tuple[str, Any], ...]
) -> Tensor:
    """Return embeddings in which those of one modality are made with other settings."""
    other = Embedder.from_settings(
        embedder.encoder,
        embedder.settings | dict(changes),
        cache=embedder.cache,
        batch_size=embedder.batch_size,
        display_progressbar=embedder.display_progressbar,
    )
    rows = np.flatnonzero(source.modalities == modality)
    found = known.clone()
    found[rows] = other.embed(source.select(rows).explanations).cpu()
    return found


def variant_figures(ratings: RatedExplanations, embeddings: Tensor, variant: Variant, plan: Plan) -> pd.DataFrame:
    """Train one variant on every split, with the votes and with shuffled votes, and compare it with the test votes."""
    plan = replace(plan, votes=variant.votes, label_names=plan.label_names if variant.labelled else None)
    # The weights of another loss are none that were asked for.
    settings = replace(plan.settings, **{"weights": None, **dict(variant.training)}) if variant.training else None
    labels = label_places(ratings, plan)
    targets = ratings.targets(plan.votes)[:, plan.columns]
    # A drawing is of a map.
    modalities = np.where(ratings.modalities == DRAWING, "map", ratings.modalities)
    kinds = sorted(set(modalities.tolist()))
    rows = []
    for seed in range(plan.seed, plan.seed + plan.n_seeds):
        split = leak_free_split(ratings.image_ids, ratings.explainer_ids, train_share=plan.train_share, seed=seed)
        for model, goal in zip(MODELS, (targets, shuffled_votes(targets, split, seed)), strict=True):
            told = None if labels is None else labels[split.test]
            scorer: Any
            if variant.regressor:
                scorer = fit_regressor(
                    variant.regressor,
                    embeddings[split.train],
                    goal[split.train],
                    None if labels is None else labels[split.train],
                    questions=plan.questions,
                    label_names=plan.label_names,
                )
            else:
                scorer = train_scorer(
                    embeddings,
                    goal,
                    labels,
                    train=split.train,
                    validation=split.validation,
                    questions=plan.questions,
                    label_names=plan.label_names,
                    settings=settings or plan.settings,
                    seed=seed,
                    device=plan.device,
                    display_progressbar=plan.progress,
                ).scorer
            scores = predicted_votes(scorer, embeddings[split.test], told)
            for kind in ("all", *(kinds if len(kinds) > 1 else ())):
                of_kind = (modalities[split.test] == kind) | (kind == "all")
                for column, question in enumerate(plan.questions):
                    found = figures(scores[of_kind, column], targets[split.test][of_kind, column])
                    rows += [
                        (model, question, kind, measure, value, found.n, seed)
                        for measure, value in (("MSE", found.mse), ("QWK", found.qwk), ("SCC", found.spearman))
                    ]
    return pd.DataFrame(rows, columns=["model", "question", "modality", "measure", "value", "n", "seed"])
