"""The command `pasta score`: how people would rate explanations on disk."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import pandas as pd

from captum_concepts._support.fingerprints import file_state
from quantus_concepts.datasets.ratings.explanation_files import (
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable,
)
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, LazyExplanations
from quantus_concepts.datasets.ratings.questions import question_named
from quantus_concepts.pasta.applications.mixture import Mixture, best_explainer
from quantus_concepts.pasta.embedder import Embedder, embedder_for
from quantus_concepts.pasta.labels import label_index
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies.pasta.evaluation import embedded_by_ranges, identity_of
from quantus_concepts.studies.pasta.options import question_names
from quantus_concepts.studies.pasta.preparing import load_encoder
from quantus_concepts.studies.rating.options import ALL, FROM_FILE_NAME, FROM_IMAGE_NAME, ScoreOptions, words
from quantus_concepts.studies.rating.score_page import score_page

#: Of the scorers in a folder that `pasta train` wrote, the one that did best.
BEST_SCORER = "scorer.safetensors"
#: How the reason begins where the scorer does not know a label.
UNKNOWN_LABEL = "No label of the scorer"
#: What the page and the table say of the votes, beside the explainer: how many there are, and who is best how often.
COUNT, WINS = "n", "wins"


@named_as_typed(ScoreOptions, weights="--encoder-weights", tokenizer="--encoder-tokenizer")
def collect(options: ScoreOptions, run: Run[ScoreOptions]) -> pd.DataFrame:
    """Score explanations: means by explainer; the scores themselves become scores.csv."""
    scorer = _scorer(options)
    embedder = _embedder(scorer, options)
    by_image = scorer.labelled_by == FROM_IMAGE_NAME
    labels_from = options.labels_from or (FROM_IMAGE_NAME if by_image else FROM_FILE_NAME)
    found = find_explanations(
        options.images, options.explanations, labels_from=labels_from, ascending=words(options.ascending)
    )
    files = _with_known_labels(check_explanations(found, display_progressbar=options.progress), scorer)
    good = _usable(files)
    embeddings = embedded_by_ranges(
        run,
        partial(_embedder, scorer, options),
        LazyExplanations(ExplanationFile.read, good),
        modalities=[file.modality for file in good],
        names=[f"{file.explainer}/{file.path.name}" for file in good],
        fingerprint={"files": [_states(file) for file in good]} | identity_of(embedder),
    )
    labels = None if scorer.labels is None else [file.label or None for file in good]
    votes = scorer.score(embeddings.to(scorer.device), labels, clip=options.clip).cpu().numpy()
    scores = best_first(_frame(files, pd.DataFrame(votes, columns=list(scorer.questions))), scorer.questions[0])
    mixture = mixture_of(scores.sort_index(), scorer.questions[0])
    run.facts = {"scores": scores, "questions": scorer.questions, "files": files, "mixture": mixture}
    written = {name: scores[name].map("{:.4f}".format, na_action="ignore") for name in scorer.questions}
    run.frames["scores"] = scores.assign(**written)
    run.note(*_remarks(files, good, scorer))
    run.settings |= {
        "encoder": embedder.name,
        "labels": "none, as trained" if scorer.labels is None else labels_from,
        "scores above 5": "set to 5" if options.clip else "left as they are",
    } | {name.replace("_", " "): str(value) for name, value in embedder.settings.items() if value not in ("", None)}
    return by_explainer(scores.sort_index(), scorer.questions, mixture)


STUDY = Study("pasta-score", collect, score_page)


def best_first(frame: pd.DataFrame, question: str) -> pd.DataFrame:
    """Return the best explanation first and those without a score last; the index still tells the file."""
    low_is_good = question_named(question).low_is_good
    return frame.sort_values(question, ascending=low_is_good, kind="stable", na_position="last")


def mixture_of(scores: pd.DataFrame, question: str) -> Mixture | None:
    """Return the best explainer of each image; None with a single explainer."""
    explainers = list(dict.fromkeys(scores["explainer"]))
    if len(explainers) < 2:
        return None
    image = scores["dataset"] + "_" + scores["image_id"]
    table = scores.assign(image=image).pivot_table(
        index="image", columns="explainer", values=question, dropna=False, aggfunc="first"
    )
    return best_explainer({name: table[name].to_numpy() for name in explainers}, question)


def by_explainer(scores: pd.DataFrame, questions: Sequence[str], mixture: Mixture | None) -> pd.DataFrame:
    """Return for each explainer, the best mean first, how many it has, their means and deviations, wins and ties."""
    groups = scores.groupby("explainer", sort=False)
    counts = groups[questions[0]].count()
    means = groups[questions[0]].mean()
    order = means.sort_values(ascending=question_named(questions[0]).low_is_good, na_position="last").index
    parts = [pd.DataFrame({"value": counts}).assign(measure=COUNT)]
    for name in questions:
        parts.append(pd.DataFrame({"value": groups[name].mean(), "deviation": groups[name].std()}).assign(measure=name))
    if mixture is not None:
        wins = {"value": pd.Series(mixture.wins), "ties": pd.Series(mixture.ties)}
        parts.append(pd.DataFrame(wins).assign(measure=f"{WINS} ({questions[0]})"))
    rows = pd.concat([part.loc[order].rename_axis("explainer").reset_index() for part in parts])
    columns = ["explainer", "measure", "value", "deviation", "ties"]
    return rows.reindex(columns=columns).reset_index(drop=True)


def _scorer(options: ScoreOptions) -> Scorer:
    if options.scorer is None:
        raise ValueError(
            "A scorer is needed: --scorer FILE. There are three ways to one: PASTA_Q1.pth to PASTA_Q6.pth of "
            "ENSTA-U2IS/PASTA_weights on the Hugging Face hub, trained on people's ratings; one that `quantus-concepts "
            "pasta train` trained on ratings of your own; scorer.safetensors of `quantus-concepts benchmark pasta`, "
            "which is a demonstration, for its raters are simulated."
        )
    # What `pasta train` writes holds a scorer of every split as well.
    best = options.scorer / BEST_SCORER
    try:
        scorer = load_scorer(best if best.is_file() else options.scorer)
    except (ValueError, OSError) as error:
        raise ValueError(f"Argument `--scorer` names what cannot be used. {error}") from error
    if options.question.strip().lower() == ALL:
        return scorer
    wanted = [name for name in words(options.question) if name in question_names(options.question)]
    return scorer.select(wanted).eval()


def _embedder(scorer: Scorer, options: ScoreOptions) -> Embedder:
    device = options.torch_device()
    return embedder_for(
        scorer,
        load_encoder(options.encoder, options.encoder_weights, options.encoder_tokenizer, device=device, scorer=scorer),
        cache=options.cache,
        batch_size=options.batch_size,
        display_progressbar=options.progress,
    )


def _states(file: ExplanationFile) -> list[Any]:
    """Return what an embedding of a file depends on: its content and that of its image, by size and time."""
    paths = [path for path in (file.path, file.image) if path is not None]
    return [file.ascending, *([path.name, *file_state(path)] for path in paths)]


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
                # How the function does without a label is of no use on the command line.
                file = replace(file, note=str(error).partition(". Give one")[0])
        found.append(file)
    return found


def _known(labels: Sequence[str], label: str) -> str:
    # Of a long label the release keeps the last word.
    for name in (label, label.rpartition("_")[2]):
        with suppress(ValueError):
            return labels[label_index(labels, name)]
    return labels[label_index(labels, label)]


def _usable(files: Sequence[ExplanationFile]) -> list[ExplanationFile]:
    try:
        return usable(files)
    except ValueError as error:
        raise ValueError(f"{error}{_advice(files)}") from error


def _advice(files: Sequence[ExplanationFile]) -> str:
    if not any(file.note.startswith(UNKNOWN_LABEL) for file in files):
        return ""
    return " Name labels as the scorer does with --labels-from FILE.csv, or score without them: --labels-from none."


def _frame(files: Sequence[ExplanationFile], votes: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each explanation; those that cannot be used have no votes, but a note."""
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
    votes.index = pd.Index([place for place, file in enumerate(files) if not file.note])
    return rows.join(votes).assign(note=[file.note for file in files])


def _remarks(files: Sequence[ExplanationFile], good: Sequence[ExplanationFile], scorer: Scorer) -> list[str]:
    remarks = []
    if scorer.metadata.get("simulated"):
        remarks.append(
            "The scorer learned from simulated raters, not from people: its scores only show how this works."
        )
    bad = [file for file in files if file.note]
    if bad:
        remarks.append(f"Not scored, {len(bad)} of {len(files)}: {problems(bad, SHOWN)}.{_advice(bad)}")
    unlabelled = sum(not file.label for file in good)
    if unlabelled and scorer.labels is not None:
        remarks.append(f"{unlabelled} of {len(good)} explanations have no label, which the scorer was trained with.")
    known = set(scorer.metadata.get("concept_names") or ())
    named = {name for file in good if file.modality == "concepts" for name in _names_of(file)} if known else set()
    new = sorted(named - known)
    if new:
        shown = ", ".join(new[:SHOWN]) + (", ..." if len(new) > SHOWN else "")
        remarks.append(
            f"{len(new)} of {len(named)} concepts were in none of the ratings the scorer learned from: {shown}. Their "
            "lists are scored all the same."
        )
    return remarks


def _names_of(file: ExplanationFile) -> list[str]:
    explanation = file.read()
    return list(explanation.values) if isinstance(explanation, ConceptExplanation) else []
