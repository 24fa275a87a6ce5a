"""The study `pasta ablate`: scorers trained for each choice of the paper's Tables 15 to 20, and of the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.findings import Finding, said, three, with_intervals, with_noun
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import PAPER, names, pick
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.evaluation import (
    Plan,
    embed_ratings,
    over_splits,
    splits_of,
    variant_figures,
)
from quantus_concepts.studies.pasta.findings import compared_with_zero, in_cells, paper_table, stack, study_page
from quantus_concepts.studies.pasta.options import (
    ABLATIONS,
    DRAWING,
    KINDS,
    MEASURES,
    PAPER_MEASURES,
    SCORER,
    SHUFFLED,
    AblateOptions,
)
from quantus_concepts.studies.pasta.preparing import study_embedder, study_plan, study_ratings

#: Columns that identify a number of one split.
KEYS = ("ablation", "variant", "model", "question", "modality", "measure")
KEY = (
    "Small numbers are 95 % intervals over splits (of QWK and SCC on Fisher's z, none below 3 splits), else the "
    "deviation. Differences are taken split by split. Splits share explanations: intervals show how much the choice of "
    "images and explainers matters. undefined: splits in which all scores are alike; they are left out. "
    f"{SHUFFLED}: trained on the votes of other explanations. Nothing is corrected for "
    "the number of comparisons."
)


@named_as_typed(AblateOptions, weights="--encoder-weights", tokenizer="--encoder-tokenizer")
def collect(options: AblateOptions, run: Run[AblateOptions]) -> pd.DataFrame:
    """Train and test every variant; the paper's numbers are rows of the model "paper"."""
    embedder = study_embedder(options, options.encoder, options.encoder_weights, options.encoder_tokenizer)
    ratings = study_ratings(options)
    run.note(*ratings.notes)
    run.settings["encoder"] = embedder.name
    run.facts["simulated"] = ratings.simulated
    run.say(f"Embedding {len(ratings)} explanations with {embedder.name}")
    maps = None
    if options.data is not None and DRAWING in ratings.modalities:
        maps = PastaRatings(options.data, drawings=False)
    plan = study_plan(options, ratings, options.encoder)
    # Too few images raise before the expensive training.
    splits_of(ratings, plan)
    splits = run.frames["splits"] = train_variants(run, ratings, embedder, plan, maps)
    means = over_splits(splits, KEYS)
    printed = [
        paper_table(table).rename(columns={"row": "variant"}).assign(ablation=name, modality="all", splits=5)
        for name in options.ablations
        if (table := ABLATIONS[name].table) is not None
    ]
    return pd.concat([means, *printed], ignore_index=True)[[*means.columns]]


def train_variants(
    run: Run[AblateOptions],
    ratings: RatedExplanations,
    embedder: Embedder,
    plan: Plan,
    maps: RatedExplanations | None = None,
) -> pd.DataFrame:
    """Train and test every variant of the ablations on the same splits; equal variants are trained once.

    `maps` are the same ratings without the drawings people saw, where `ratings` has them.
    """
    base = embed_ratings(run, embedder, ratings)
    embeddings: dict[Any, Tensor] = {}
    figures: dict[Any, pd.DataFrame] = {}
    frames = []
    for name in run.options.ablations:
        ablation = ABLATIONS[name]
        for variant in ablation.variants:
            if variant.name == DRAWING and maps is None:
                continue
            source = ratings if maps is None or variant.drawn else maps
            changes = tuple(pair for pair in variant.embedding if embedder.settings[pair[0]] != pair[1])
            embedding = (source is ratings, changes)
            run.say(f"{ablation.title}: {variant.name}")
            if embedding not in embeddings:
                changed = changes or source is not ratings
                embeddings[embedding] = (
                    _embed_modality(run, source, embedder, base, ablation.modality, changes) if changed else base
                )
            content = (embedding, replace(variant, name="", embedding=(), drawn=True))
            if content not in figures:
                figures[content] = variant_figures(ratings, embeddings[embedding], variant, plan, run.kept)
            frames.append(figures[content].assign(ablation=name, variant=variant.name))
    return pd.concat(frames, ignore_index=True)


def _embed_modality(
    run: Run[AblateOptions],
    source: RatedExplanations,
    embedder: Embedder,
    base: Tensor,
    modality: str,
    changes: tuple[tuple[str, Any], ...],
) -> Tensor:
    """Return the base embeddings, but those of one modality are of `source` and other settings."""
    other = Embedder.from_settings(
        embedder.encoder,
        embedder.settings | dict(changes),
        cache=embedder.cache,
        batch_size=embedder.batch_size,
        display_progressbar=embedder.display_progressbar,
    )
    rows = np.flatnonzero(source.modalities == modality)
    embeddings = base.clone()
    embeddings[rows] = embed_ratings(run, other, source.select(rows))
    return embeddings


def page(frame: pd.DataFrame, run: Run[AblateOptions]) -> Page:
    """Declare the page."""
    splits = run.frames["splits"]
    questions = names(splits, "question")
    sections = [
        Section(
            ABLATIONS[name].title,
            ABLATIONS[name].about,
            [ablation_table(name, frame, splits, question) for question in questions],
        )
        for name in run.options.ablations
    ]
    pairs = [(name, question) for name in run.options.ablations for question in questions]
    findings = [Finding(finding(splits, *pair), f"{ABLATIONS[pair[0]].title}, {pair[1]}") for pair in pairs]
    title = "PASTA-score: which choices matter"
    return study_page(title, said(*findings), sections, run.facts["simulated"], answers=answers(splits, pairs))


STUDY = Study("pasta-ablate", collect, page)


def differences(splits: pd.DataFrame, name: str, question: str) -> pd.DataFrame:
    """Return how far each variant (row) of an ablation is above its default in SCC: mean, interval, splits."""
    chosen = pick(splits, ablation=name, model=SCORER, question=question, modality="all", measure="SCC")
    table = chosen.pivot(index="seed", columns="variant", values="value")
    default, *variants = (variant.name for variant in ABLATIONS[name].variants if variant.name in table)
    change = table[variants].sub(table[default], axis=0).melt(var_name="variant")
    # A difference of two correlations is not a correlation: Student's interval.
    return over_splits(change.assign(measure="difference"), ("variant", "measure"))


def ablation_table(name: str, frame: pd.DataFrame, splits: pd.DataFrame, question: str) -> Table:
    """Return one ablation as a table: ours, how far from the default, the control, the paper's."""
    ablation = ABLATIONS[name]
    rows = pick(frame, ablation=name, question=question)
    rows = rows[rows["variant"].isin(set(splits["variant"]))]
    of_all = pick(rows, modality="all")
    parts = [
        pick(of_all, model=SCORER, measure=measure).assign(head=MEASURES[measure], below="")
        for measure in PAPER_MEASURES
    ]
    if ablation.modality:
        of_kind = pick(rows, model=SCORER, measure="SCC", modality=ablation.modality)
        parts.append(of_kind.assign(head="SCC ↑", below=KINDS[ablation.modality]))
    parts.append(differences(splits, name, question).assign(head="SCC", below="less first row's"))
    parts.append(pick(of_all, model=SHUFFLED, measure="SCC").assign(head="SCC", below=SHUFFLED))
    parts += [
        pick(of_all, model=PAPER, measure=measure).assign(head=PAPER, below=measure) for measure in PAPER_MEASURES
    ]
    note = f"Mean over {with_noun(splits['seed'].nunique(), 'split')}, "
    note += f"as the paper's Table {ablation.table}." if ablation.table else "of which the paper has no table."
    note += " The columns of the paper are of its own data and encoder." if PAPER in set(rows["model"]) else ""
    cells = in_cells(stack(parts))
    return Table(f"{ablation.title}, {question}", note, cells, ["variant"], ["head", "below"], key=KEY)


def finding(splits: pd.DataFrame, name: str, question: str) -> str:
    """Say which choices of an ablation change the SCC by more than the splits explain."""
    text = f"SCC above that of {ABLATIONS[name].variants[0].name}"
    return compared_with_zero(differences(splits, name, question), text, "variant", "difference", "splits", three)


def answers(splits: pd.DataFrame, pairs: Sequence[tuple[str, str]]) -> list[Finding]:
    """Return one short line: how many choices change the agreement with votes, and which the most."""
    changes = pd.concat([differences(splits, *pair).assign(ablation=ABLATIONS[pair[0]].title) for pair in pairs])
    changes = with_intervals(changes)
    if changes.empty:
        return []
    matters = changes[(changes["low"] > 0) | (changes["high"] < 0)]
    text = f"{len(matters)} of {len(changes)} change SCC by more than the splits explain"
    if len(matters):
        most = matters.loc[matters["value"].abs().idxmax()]
        text += f", most {most['variant']} ({most['ablation'].lower()}, {three(most['value'])})"
    return [Finding(text, "Choices that matter")]
