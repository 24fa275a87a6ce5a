"""The command `pasta score`: how people would rate explanations on disk, and its page."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pandas as pd

from captum_concepts._support.fingerprints import file_state
from captum_concepts._support.images import load_image
from quantus_concepts.datasets.ratings.explanation_files import (
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)
from quantus_concepts.datasets.ratings.explanations import (
    QUESTIONS,
    ConceptExplanation,
    LazyExplanations,
    question_named,
)
from quantus_concepts.pasta.applications.mixture import Mixture, best_explainer, plot_mixture
from quantus_concepts.pasta.embedder import Embedder, embedder_for
from quantus_concepts.pasta.labels import label_index
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies._kit.charts import Chart
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.findings import Finding, join_words, number, said, with_noun
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.pictures import data_url, listed_concepts, resize_image, shown_picture
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._kit.tables import Table
from quantus_concepts.studies.pasta.evaluation import embed_by_ranges, identity_of
from quantus_concepts.studies.pasta.options import ALL
from quantus_concepts.studies.pasta.preparing import load_encoder
from quantus_concepts.studies.rating.options import FROM_FILE_NAME, FROM_IMAGE_NAME, ScoreOptions, words

#: The best scorer in a folder of `pasta train`.
BEST_SCORER = "scorer.safetensors"
#: How the reason begins where the scorer does not know a label.
UNKNOWN_LABEL = "No label of the scorer"
#: Measures of the explainers beside their means: the number of scores, and how often they are best.
COUNT, WINS = "n", "wins"


@named_as_typed(ScoreOptions, weights="--encoder-weights", tokenizer="--encoder-tokenizer")
def collect(options: ScoreOptions, run: Run[ScoreOptions]) -> pd.DataFrame:
    """Score explanations: means by explainer; the scores themselves become scores.csv."""
    scorer = _scorer(options)
    embedder = _embedder(scorer, options)
    by_image = scorer.labelled_by == FROM_IMAGE_NAME
    labels_from = options.labels_from or (FROM_IMAGE_NAME if by_image else FROM_FILE_NAME)
    explanations = find_explanations(
        options.images, options.explanations, labels_from=labels_from, ascending=words(options.ascending)
    )
    files = _with_known_labels(check_explanations(explanations, display_progressbar=options.progress), scorer)
    usable = _usable(files)
    embeddings = embed_by_ranges(
        run,
        partial(_embedder, scorer, options),
        LazyExplanations(ExplanationFile.read, usable),
        modalities=[file.modality for file in usable],
        names=[f"{file.explainer}/{file.path.name}" for file in usable],
        fingerprint={"files": [_states(file) for file in usable]} | identity_of(embedder),
    )
    labels = None if scorer.labels is None else [file.label or None for file in usable]
    votes = scorer.score(embeddings.to(scorer.device), labels, clip=options.clip).cpu().numpy()
    scores = best_first(_score_frame(files, pd.DataFrame(votes, columns=list(scorer.questions))), scorer.questions[0])
    mixture = mixture_of(scores.sort_index(), scorer.questions[0])
    run.facts = {"scores": scores, "questions": scorer.questions, "files": files, "mixture": mixture}
    texts = {name: scores[name].map("{:.4f}".format, na_action="ignore") for name in scorer.questions}
    run.frames["scores"] = scores.assign(**texts)
    run.note(*_remarks(files, usable, scorer))
    run.settings |= {
        "encoder": embedder.name,
        "labels": "none, as trained" if scorer.labels is None else labels_from,
        "scores above 5": "set to 5" if options.clip else "left as they are",
    } | {name.replace("_", " "): str(value) for name, value in embedder.settings.items() if value not in ("", None)}
    return by_explainer(scores.sort_index(), scorer.questions, mixture)


def best_first(frame: pd.DataFrame, question: str) -> pd.DataFrame:
    """Sort explanations: the best first, those without a score last; the index is that of the file."""
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
    # A folder of `pasta train` holds a scorer of every split as well.
    best = options.scorer / BEST_SCORER
    try:
        scorer = load_scorer(best if best.is_file() else options.scorer)
    except (ValueError, OSError) as error:
        raise ValueError(f"Argument `--scorer` names what cannot be used. {error}") from error
    if options.question.strip().lower() == ALL:
        return scorer
    return scorer.select(words(options.question)).eval()


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
    """Return the files with labels as the scorer spells them; the notes of others say that it has no such label."""
    if scorer.labels is None:
        return list(files)
    labelled = []
    for file in files:
        if file.label and not file.note:
            try:
                file = replace(file, label=_scorer_label(scorer.labels, file.label))
            except ValueError as error:
                # The rest of the message is about the function's arguments.
                file = replace(file, note=str(error).partition(". Give one")[0])
        labelled.append(file)
    return labelled


def _scorer_label(labels: Sequence[str], label: str) -> str:
    # The release shortens long labels to their last word.
    for name in (label, label.rpartition("_")[2]):
        with suppress(ValueError):
            return labels[label_index(labels, name)]
    return labels[label_index(labels, label)]


def _usable(files: Sequence[ExplanationFile]) -> list[ExplanationFile]:
    try:
        return usable_files(files)
    except ValueError as error:
        raise ValueError(f"{error}{_advice(files)}") from error


def _advice(files: Sequence[ExplanationFile]) -> str:
    if not any(file.note.startswith(UNKNOWN_LABEL) for file in files):
        return ""
    return " Name labels as the scorer does with --labels-from FILE.csv, or score without them: --labels-from none."


def _score_frame(files: Sequence[ExplanationFile], votes: pd.DataFrame) -> pd.DataFrame:
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


def _remarks(files: Sequence[ExplanationFile], usable: Sequence[ExplanationFile], scorer: Scorer) -> list[str]:
    remarks = []
    if scorer.metadata.get("simulated"):
        remarks.append(
            "The scorer learned from simulated raters, not from people: its scores only show how this works."
        )
    bad = [file for file in files if file.note]
    if bad:
        remarks.append(f"Not scored, {len(bad)} of {len(files)}: {problems(bad, SHOWN)}.{_advice(bad)}")
    unlabelled = sum(not file.label for file in usable)
    if unlabelled and scorer.labels is not None:
        remarks.append(f"{unlabelled} of {len(usable)} explanations have no label, which the scorer was trained with.")
    trained_on = set(scorer.metadata.get("concept_names") or ())
    lists = (file.read() for file in usable if trained_on and file.modality == "concepts")
    names = {name for concepts in lists if isinstance(concepts, ConceptExplanation) for name in concepts.values}
    new = sorted(names - trained_on)
    if new:
        examples = ", ".join(new[:SHOWN]) + (", ..." if len(new) > SHOWN else "")
        remarks.append(
            f"{len(new)} of {len(names)} concepts were in none of the ratings the scorer learned from: {examples}. "
            "Their lists are scored all the same."
        )
    return remarks


PICTURE = 240
CONCEPTS_SHOWN = 8
#: More explainers fold their table.
EXPLAINERS_SHOWN = 20
#: Rows of the page's table; the CSV has all.
ROWS_SHOWN = 1000


@dataclass(frozen=True)
class Card:
    """An explanation next to its image."""

    title: str
    below: str
    scores: list[str]
    image: str
    map: str
    concepts: list[tuple[str, str, float]]
    drawn: bool = False


def page(frame: pd.DataFrame, run: Run[ScoreOptions]) -> Page:
    """Declare the page."""
    scores: pd.DataFrame = run.facts["scores"]
    questions: list[str] = list(run.facts["questions"])
    mixture: Mixture | None = run.facts["mixture"]
    first = questions[0]
    ranked = scores[scores[first].notna()]
    explainers = _table_of_explainers(frame, questions)
    tables, folded = ([explainers], []) if frame["explainer"].nunique() <= EXPLAINERS_SHOWN else ([], [explainers])
    charts = []
    if mixture is not None:
        caption = "For how many images each explainer has the best score, as in the paper's Figure 7."
        charts.append(Chart("mixture", caption, plot_mixture(mixture)[0]))
    n_shown, n = run.options.n_shown, len(ranked)
    n_best = min(n_shown, (n + 1) // 2)
    n_worst = min(n_shown, n - n_best)
    cards = {
        "best": [_card(row, run.facts["files"], questions) for _, row in ranked.iloc[:n_best].iterrows()],
        "worst": [_card(row, run.facts["files"], questions) for _, row in ranked.iloc[n - n_worst :][::-1].iterrows()],
        "n_tied": int((ranked[first] == ranked[first].iloc[-1]).sum()),
        "question": first,
    }
    return Page(
        "Scores of explanations",
        said(_range_finding(ranked, first), None if mixture is None else _winner_finding(mixture)),
        [
            # Fold long tables so that the cards stay visible.
            Section("Explainers", tables=tables, charts=charts, folded=folded),
            Section("All explanations", folded=[_table_of_all(scores.head(ROWS_SHOWN), questions, len(scores))]),
        ],
        main=[explainers],
        answers=answers(frame, ranked, first, mixture),
        metrics={"PASTA-score": "pasta_score"},
        template="rating/score.html.j2",
        content=cards,
    )


def answers(frame: pd.DataFrame, ranked: pd.DataFrame, question: str, mixture: Mixture | None) -> list[Finding]:
    """Return which explainer is rated best on average and most often, and how all explanations are rated."""
    means = frame[(frame["measure"] == question) & frame["value"].notna()]
    (best, high), (worst, low) = (means[["explainer", "value"]].iloc[end] for end in (0, -1))
    average = f"{best} ({number(high)})" + (f"; worst {worst} ({number(low)})" if len(means) > 1 else "")
    values = ranked[question]
    ends = f"median {number(values.median())} of 1 to 5, from {number(values.min())} to {number(values.max())}"
    findings = [Finding(average, "Best on average"), Finding(ends, "All explanations")]
    if mixture is not None and (names := most_frequent(mixture)):
        text = f"{join_words(names)} (alone, {_count_text(mixture, names)})"
        findings.insert(1, Finding(text, "Best most often"))
    return findings


def most_frequent(mixture: Mixture) -> list[str]:
    """Return the explainers that alone are best most often; none where no explainer is best alone."""
    most = max(mixture.wins.values())
    return [name for name, wins in mixture.wins.items() if wins == most > 0]


def _count_text(mixture: Mixture, names: Sequence[str]) -> str:
    return f"{mixture.wins[names[0]]} of {len(mixture.choice) - mixture.undefined} images"


def _range_finding(ranked: pd.DataFrame, question: str) -> str:
    values, details = ranked[question], question_named(question)
    low, middle, high = (number(value) for value in (values.min(), values.median(), values.max()))
    return (
        f"{with_noun(len(ranked), 'explanation')} of {with_noun(ranked['image_id'].nunique(), 'image')}. {question}, "
        f"“{details.text}”: from {low} to {high}, median {middle}, of 1 to 5{'; low is good' * details.low_is_good}."
    )


def _winner_finding(mixture: Mixture) -> str:
    text = "No explainer alone is rated best of any image."
    if names := most_frequent(mixture):
        text = f"Alone rated best most often: {', '.join(names)} ({_count_text(mixture, names)})."
    if mixture.tied:
        have = "have" if mixture.tied != 1 else "has"
        text += (
            f" {with_noun(mixture.tied, 'image')} {have} several explainers with the same best score, counted for none "
            "of them."
        )
    return text


def arrow(question: str) -> str:
    """Return ↓ where a low score is good, else ↑."""
    return "↓" if question_named(question).low_is_good else "↑"


def _table_of_explainers(frame: pd.DataFrame, questions: list[str]) -> Table:
    rows = frame.to_dict("records")
    frame = frame.assign(text=[_cell_text(row) for row in rows], small=[_deviation_text(row) for row in rows])
    texts = " ".join(f"{name}: {question_named(name).text}" for name in questions)
    return Table(
        "Predicted ratings, 1 to 5: means over explanations",
        "",
        frame,
        ["explainer"],
        ["measure"],
        labels={name: f"{name} {arrow(name)}" for name in questions},
        key=f"{texts} ↑ high is good, ↓ low is good. ± is the deviation over explanations.",
    )


def _cell_text(row: dict[str, Any]) -> str:
    """Write a mean; or, of a count, the whole number and how many are shared with others."""
    if row["measure"] in QUESTIONS:
        return number(row["value"])
    return f"{row['value']:.0f}" + (f" + {row['ties']:.0f} tied" if row["ties"] > 0 else "")


def _deviation_text(row: dict[str, Any]) -> str:
    return f"± {number(row['deviation'])}" if row["measure"] in QUESTIONS else ""


def _table_of_all(scores: pd.DataFrame, questions: list[str], n_rows: int) -> Table:
    cells = []
    for place, row in scores.iterrows():
        names = {"label": row["label"], **{name: number(row[name]) for name in questions}, "note": row["note"]}
        for column, text in names.items():
            style = "" if column in questions else "name"
            cells.append({"place": place, "column": column, "text": text, "small": "", "style": style})
    return Table(
        f"{len(scores)} of {n_rows}, the best first; all are in scores.csv",
        "",
        pd.DataFrame(cells),
        ["place"],
        ["column"],
        labels={place: f"{row['explainer']}/{row['explanation']}" for place, row in scores.iterrows()},
    )


def _card(row: pd.Series, files: list[ExplanationFile], questions: list[str]) -> Card:
    file = files[int(row.name)]
    explanation = file.read()
    picture, concepts = "", []
    if isinstance(explanation, ConceptExplanation):
        concepts = listed_concepts(explanation, CONCEPTS_SHOWN)
    else:
        picture = data_url(shown_picture(explanation, PICTURE))
    named = not file.label or file.path.stem.endswith(file.label)
    return Card(
        file.explainer,
        file.path.stem if named else f"{file.path.stem}: {file.label}",
        [f"{name} {number(row[name])}" for name in questions],
        "" if file.image is None else data_url(resize_image(load_image(file.image), PICTURE)),
        picture,
        concepts,
        file.modality == "drawing",
    )


STUDY = Study("pasta-score", collect, page)
