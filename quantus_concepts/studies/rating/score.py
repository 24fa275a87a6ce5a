"""The work of the command `pasta score`: explanations on disk to scores, a table and a sheet."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import typer

from captum_concepts.checks import check_whole
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation
from quantus_concepts.pasta.embedder import Embedder, embedder_for
from quantus_concepts.pasta.labels import label_index
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies.option_values import AUTO, torch_device
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.label_file import FROM_FILE_NAME, FROM_IMAGE_NAME
from quantus_concepts.studies.pasta.options import ALL, question_names
from quantus_concepts.studies.pasta.preparing import load_encoder
from quantus_concepts.studies.rating.explanation_files import (
    ExplanationFile,
    FileExplanations,
    check_explanations,
    find_explanations,
    problems,
    usable,
)
from quantus_concepts.studies.rating.score_report import write_scores
from quantus_concepts.studies.rating.score_table import Scores, terminal_table
from quantus_concepts.studies.rating.sheet import words
from quantus_concepts.studies.report_tables import terminal
from quantus_concepts.studies.run import warnings_as_notes

COMMAND = "pasta-score"
SHOWN_PROBLEMS = 10
#: How the reason begins where the scorer does not know a label.
UNKNOWN_LABEL = "No label of the scorer"


@dataclass(frozen=True)
class ScoreOptions:
    """What the command is given."""

    images: Path
    explanations: Path
    scorer: Path | None = None
    question: str = ALL
    encoder: str | None = None
    encoder_weights: Path | None = None
    encoder_tokenizer: Path | None = None
    labels_from: str | None = None
    clip: bool = True
    ascending: str | None = None
    n_shown: int = 12
    cache: Path | None = None
    device: str = AUTO
    batch_size: int = 16
    out: Path | None = None
    overwrite: bool = False
    progress: bool = True


def run_scoring(options: ScoreOptions) -> Path:
    """Score explanations, print the table and write the folder of results."""
    check_whole("--n-shown", options.n_shown, 0)
    check_whole("--batch-size", options.batch_size, 1)
    scorer = _scorer(options)
    embedder = _embedder(scorer, options)
    if options.labels_from is None:
        by_image = scorer.labelled_by == FROM_IMAGE_NAME
        options = replace(options, labels_from=FROM_IMAGE_NAME if by_image else FROM_FILE_NAME)
    with OutputFolder(COMMAND, options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as notes:
            found = find_explanations(
                options.images,
                options.explanations,
                labels_from=options.labels_from or FROM_FILE_NAME,
                ascending=words(options.ascending),
            )
            files = _with_known_labels(check_explanations(found, display_progressbar=options.progress), scorer)
            good = _usable(files)
            embeddings = embedder.embed(FileExplanations(good))
            votes = scorer.score(embeddings.to(scorer.device), _indices(good, scorer), clip=options.clip).cpu().numpy()
        frame = _frame(files, good, pd.DataFrame(votes, columns=list(scorer.questions)))
        notes = [*_remarks(files, good, scorer, options), *notes]
        scores = Scores(frame, scorer.questions, files)
        write_scores(folder, scores, _about(scorer, embedder, options), notes, options.n_shown)
    console = terminal()
    console.print(terminal_table(scores))
    for note in notes:
        typer.echo(note)
    return folder.path


def _scorer(options: ScoreOptions) -> Scorer:
    if options.scorer is None:
        raise ValueError(
            "A scorer is needed: --scorer FILE. There are three ways to one: PASTA_Q1.pth to PASTA_Q6.pth of "
            "ENSTA-U2IS/PASTA_weights on the Hugging Face hub, trained on people's ratings; one that `quantus-concepts "
            "pasta train` trained on ratings of your own; scorer.safetensors of `quantus-concepts benchmark pasta`, "
            "which is a demonstration, for its raters are simulated."
        )
    scorer = load_scorer(options.scorer)
    if options.question.strip().lower() == ALL:
        return scorer
    wanted = [name for name in words(options.question) if name in question_names(options.question)]
    return scorer.select(wanted).eval()


def _embedder(scorer: Scorer, options: ScoreOptions) -> Embedder:
    return embedder_for(
        scorer,
        load_encoder(
            options.encoder,
            options.encoder_weights,
            options.encoder_tokenizer,
            device=torch_device(options.device),
            scorer=scorer,
        ),
        cache=options.cache,
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )


def _with_known_labels(files: Sequence[ExplanationFile], scorer: Scorer) -> list[ExplanationFile]:
    """Note the labels that the scorer does not know; the rest are spelled as it does."""
    if scorer.labels is None:
        return list(files)
    found = []
    for file in files:
        if file.label and not file.note:
            try:
                file = replace(file, label=_known(scorer.labels, file.label))
            except ValueError as error:
                # How the function is told to do without a label is of no use on the command line.
                file = replace(file, note=str(error).partition(". Give one")[0])
        found.append(file)
    return found


def _usable(files: Sequence[ExplanationFile]) -> list[ExplanationFile]:
    try:
        return usable(files)
    except ValueError as error:
        raise ValueError(f"{error}{_advice(files)}") from error


def _advice(files: Sequence[ExplanationFile]) -> str:
    if not any(file.note.startswith(UNKNOWN_LABEL) for file in files):
        return ""
    return " Name labels as the scorer does with --labels-from FILE.csv, or score without them: --labels-from none."


def _known(labels: Sequence[str], label: str) -> str:
    # Of a long label the release keeps the last word.
    for name in (label, label.rpartition("_")[2]):
        with suppress(ValueError):
            return labels[label_index(labels, name)]
    return labels[label_index(labels, label)]


def _indices(files: Sequence[ExplanationFile], scorer: Scorer) -> list[str | None] | None:
    return None if scorer.labels is None else [file.label or None for file in files]


def _frame(files: Sequence[ExplanationFile], good: Sequence[ExplanationFile], votes: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each explanation, the best first."""
    rows = pd.DataFrame(
        {
            "explainer": [file.explainer for file in files],
            "explanation": [file.path.name for file in files],
            "image": [file.image.name if file.image else "" for file in files],
            "dataset": [file.name.dataset for file in files],
            "image_id": [file.name.image for file in files],
            "label": [file.label for file in files],
            "modality": [file.modality for file in files],
        }
    )
    places = {file.path: row for row, file in enumerate(files)}
    votes.index = pd.Index([places[file.path] for file in good])
    rows = rows.join(votes)
    rows["note"] = [file.note for file in files]
    return rows


def _remarks(
    files: Sequence[ExplanationFile], good: Sequence[ExplanationFile], scorer: Scorer, options: ScoreOptions
) -> list[str]:
    remarks = []
    if scorer.metadata.get("simulated"):
        remarks.append(
            "The scorer learned from simulated raters, not from people: its scores only show how this works."
        )
    bad = [file for file in files if file.note]
    if bad:
        remarks.append(f"Not scored, {len(bad)} of {len(files)}: {problems(bad, SHOWN_PROBLEMS)}.{_advice(bad)}")
    unlabelled = sum(not file.label for file in good)
    if unlabelled and scorer.labels is not None:
        remarks.append(f"{unlabelled} of {len(good)} explanations have no label, which the scorer was trained with.")
    known = set(scorer.metadata.get("concept_names") or ())
    named = {name for file in good if file.modality == "concepts" for name in _names_of(file)} if known else set()
    new = sorted(named - known)
    if new:
        shown = ", ".join(new[:SHOWN_PROBLEMS]) + (", ..." if len(new) > SHOWN_PROBLEMS else "")
        remarks.append(
            f"{len(new)} of {len(named)} concepts were in none of the ratings the scorer learned from: {shown}. Their "
            "lists are scored all the same."
        )
    return remarks


def _names_of(file: ExplanationFile) -> list[str]:
    explanation = file.read()
    return list(explanation.values) if isinstance(explanation, ConceptExplanation) else []


def _about(scorer: Scorer, embedder: Embedder, options: ScoreOptions) -> dict[str, str]:
    return {
        "scorer": str(options.scorer),
        "encoder": embedder.name,
        "labels": "none, as trained" if scorer.labels is None else str(options.labels_from),
        "scores above 5": "set to 5" if options.clip else "left as they are",
        "images": str(options.images),
        "explanations": str(options.explanations),
    } | {name.replace("_", " "): str(value) for name, value in embedder.settings.items() if value not in ("", None)}
