"""`pasta score`: how people would rate explanations on disk."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
import typer
from markupsafe import Markup

from captum_concepts.support.files import printable
from captum_concepts.support.images import load_image
from quantus_concepts.datasets.folders import list_some
from quantus_concepts.datasets.ratings.explanation_files import (
    FROM_FILE_NAME,
    FROM_IMAGE_NAME,
    SHOWN,
    ExplanationFile,
    check_explanations,
    find_explanations,
    problems,
    usable_files,
)
from quantus_concepts.datasets.ratings.explanations import ConceptExplanation, LazyExplanations, Question
from quantus_concepts.pasta.applications.mixture import Mixture, best_explainer, plot_mixture
from quantus_concepts.pasta.embedder import Embedder, embedder_for
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.labels import label_place
from quantus_concepts.pasta.scorer import Scorer, question_of
from quantus_concepts.pasta.scorer_files import load_scorer
from quantus_concepts.studies._kit.comparisons import READING as DIFFERENCES
from quantus_concepts.studies._kit.comparisons import adjusted, comparison_table
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.plots import dots
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, render, write_report
from quantus_concepts.studies._kit.results import pick
from quantus_concepts.studies.pasta.cards import data_url, listed_concepts, resize_image, shown_picture
from quantus_concepts.studies.pasta.material import (
    ALL,
    encoder_trained_on,
    for_spreadsheets,
    load_encoder,
    words,
)
from quantus_concepts.studies.pasta.report import paired_numbers
from quantus_concepts.studies.pasta.scorers import embed_ratings
from quantus_concepts.studies.pasta.settings import Score
from quantus_concepts.studies.pasta.votes import IMAGE, explainer_means, ranks_as_people

#: Measures of the explainers beside their means: the number of scores, and how often they are best.
COUNT, WINS = "n", "wins"
#: Pixels of a card's pictures, concepts of its list, and explainers in the picture.
PICTURE, CONCEPTS_SHOWN, EXPLAINERS_SHOWN = 240, 8, 20


def run_score(settings: Score, folder: RunFolder) -> None:
    """Score explanations, and write scores and means by explainer."""
    if settings.scorer is None:
        raise ValueError(
            "A scorer is needed: --scorer FILE. There are three ways to one: PASTA_Q1.pth to PASTA_Q6.pth of "
            "ENSTA-U2IS/PASTA_weights on the Hugging Face hub, trained on people's ratings; one that `quantus-concepts "
            "pasta train` trained on ratings of your own; scorer.safetensors of `quantus-concepts benchmark pasta`, "
            "which is a demonstration, for its raters are simulated."
        )
    scorer = read_scorer(settings.scorer, settings.question)
    by_image = scorer.labelled_by == FROM_IMAGE_NAME
    labels_from = settings.labels_from or (FROM_IMAGE_NAME if by_image else FROM_FILE_NAME)
    embedder = make_embedder(settings, scorer)
    with folder:
        explanations = find_explanations(
            settings.images, settings.explanations, labels_from=labels_from, ascending=words(settings.ascending)
        )
        with warnings_as_notes(folder):
            files = _with_known_labels(check_explanations(explanations, display_progressbar=settings.progress), scorer)
            usable = usable_files(files)
            embeddings = embed_ratings(folder, embedder, LazyExplanations(ExplanationFile.read, usable))
            labels = None if scorer.labels is None else [file.label or None for file in usable]
            votes = scorer.score(embeddings.to(scorer.device), labels, clip=settings.clip).cpu().numpy()
            frame = pd.DataFrame(votes, columns=list(scorer.questions))
            asked = {name: question_of(scorer, name) for name in scorer.questions}
            scores = sort_explanations(_score_frame(files, frame), asked[scorer.questions[0]])
            mixture = mixture_of(scores.sort_index(), asked[scorer.questions[0]])
            texts = {name: scores[name].map("{:.4f}".format, na_action="ignore") for name in scorer.questions}
            folder.write("scores.csv", for_spreadsheets(scores.assign(**texts)).to_csv(index=False))
            for remark in _remarks(files, usable, scorer):
                folder.note(remark)
                typer.echo(f"Note: {printable(remark)}", err=True)
            means = by_explainer(scores.sort_index(), asked, mixture)
        of_embedder = embedder.settings.items()
        shown = {name.replace("_", " "): str(value) for name, value in of_embedder if value not in ("", None)}
        more = {"labels": "none, as trained" if scorer.labels is None else labels_from}
        reason = withheld(scorer, embedder.encoder, scorer.questions[0])
        report = score_report(means, scores, files, scorer, mixture, settings.n_shown, reason)
        write_report(folder, for_spreadsheets(means), report, {**more, "encoder": embedder.name, **shown})


def read_scorer(path: Path, question: str) -> Scorer:
    """Read a scorer, with the questions named."""
    try:
        scorer = load_scorer(path)
    except (ValueError, OSError) as error:
        raise ValueError(f"Argument `--scorer` names what cannot be used. {error}") from error
    return scorer if question.strip().lower() == ALL else scorer.select(words(question)).eval()


def make_embedder(settings: Score, scorer: Scorer) -> Embedder:
    """Return the embedder that a scorer was trained with, or with another encoder."""
    weights = settings.encoder_weights
    name = settings.encoder or encoder_trained_on(scorer, weights)
    loaded = None if name is None else load_encoder(name, weights, settings.encoder_tokenizer, device=settings.place)
    return embedder_for(
        scorer,
        loaded,
        cache=settings.cache,
        batch_size=settings.batch_size,
        display_progressbar=settings.progress,
    )


def sort_explanations(frame: pd.DataFrame, question: Question) -> pd.DataFrame:
    """Sort explanations: the best first, those without a score last; the index is that of the file."""
    return frame.sort_values(question.name, ascending=question.low_is_good, kind="stable", na_position="last")


def mixture_of(scores: pd.DataFrame, question: Question) -> Mixture | None:
    """Return the best explainer of each image; None with a single explainer."""
    explainers = list(dict.fromkeys(scores["explainer"]))
    if len(explainers) < 2:
        return None
    table = by_image(scores, question.name)
    return best_explainer({name: table[name].to_numpy() for name in explainers}, question)


def by_image(scores: pd.DataFrame, question: str) -> pd.DataFrame:
    """Return the mean score of each image (row) by explainer (column)."""
    return scores.assign(image=_images(scores)).pivot_table(
        index="image", columns="explainer", values=question, dropna=False
    )


def _images(scores: pd.DataFrame) -> pd.Series:
    return scores["dataset"] + "_" + scores["image_id"]


def by_explainer(scores: pd.DataFrame, asked: Mapping[str, Question], mixture: Mixture | None) -> pd.DataFrame:
    """Return for each explainer, the best mean first, its number of scores, means and deviations, wins and ties."""
    questions = list(asked)
    means = explainer_means(scores.assign(**{IMAGE: _images(scores)}), questions)
    first = pick(means, measure=questions[0])
    ascending = asked[questions[0]].low_is_good
    order = first.sort_values("value", ascending=ascending, na_position="last")["explainer"].tolist()
    parts = [first[["explainer", "n"]].rename(columns={"n": "value"}).assign(measure=COUNT), means.drop(columns="n")]
    if mixture is not None:
        wins = pd.DataFrame({"value": pd.Series(mixture.wins), "ties": pd.Series(mixture.ties)})
        parts.append(wins.rename_axis("explainer").reset_index().assign(measure=f"{WINS} ({questions[0]})"))
    columns = ["explainer", "measure", "value", "low", "high", "random_low", "random_high", "deviation", "ties"]
    joined = [
        part.set_index("explainer").loc[order].reset_index()
        for _, part in pd.concat(parts).groupby("measure", sort=False)
    ]
    return pd.concat(joined, ignore_index=True).reindex(columns=columns)


def withheld(scorer: Scorer, encoder: Encoder, question: str) -> str:
    """Return why scores support no verdict on explainers; "" if they do.

    The released scorers, whose training is the paper's, say nothing of themselves.
    """
    if scorer.metadata.get("untrained_encoder") or getattr(encoder, "untrained", False):
        return "its encoder is untrained"
    if scorer.metadata.get("simulated"):
        return "it learned from simulated raters, not from people"
    if scorer.metadata.get("released"):
        return ""
    if (found := scorer.metadata.get("ranking", {}).get(question)) is None:
        return "it does not say whether it ranks the explainers that it learned from as people did; train it anew"
    return ranks_as_people(found)


def _with_known_labels(files: Sequence[ExplanationFile], scorer: Scorer) -> list[ExplanationFile]:
    """Return the files with labels as the scorer spells them; the note of all others counts the labels it lacks."""
    if scorer.labels is None:
        return list(files)
    given = {file.label for file in files if file.label and not file.note}
    names = {label: _scorer_label(scorer.labels, label) for label in given}
    lacking = sorted(label for label, name in names.items() if name is None)
    note = (
        f"the scorer has no label {list_some(map(repr, lacking))} ({len(lacking)} of {len(given)} labels), only "
        f"{list_some(map(repr, scorer.labels), SHOWN)}; name labels as it does with --labels-from FILE.csv, or leave "
        "them out with --labels-from none"
    )
    return [
        file
        if file.label not in given or file.note
        else replace(file, label=names[file.label] or file.label, note="" if names[file.label] else note)
        for file in files
    ]


def _scorer_label(labels: Sequence[str], label: str) -> str | None:
    # The release shortens long labels to their last word.
    places = (label_place(labels, name) for name in (label, label.rpartition("_")[2]))
    return next((labels[place] for place in places if place is not None), None)


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
    bad = [file for file in files if file.note]
    if bad:
        remarks.append(f"Not scored, {len(bad)} of {len(files)}: {problems(bad, SHOWN)}.")
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


@dataclass(frozen=True)
class Cards(Table):
    """A table that a page shows as cards, with image and explanation beside the scores."""

    cards: Sequence[Card] = ()

    @property
    def html(self) -> Markup:
        """The cards."""
        return Markup(render("pasta/score.html.j2", cards=self.cards))


def score_report(
    means: pd.DataFrame,
    scores: pd.DataFrame,
    files: Sequence[ExplanationFile],
    scorer: Scorer,
    mixture: Mixture | None,
    n_shown: int,
    reason: str = "",
) -> Report:
    """Declare the report; with a `reason` it gives no verdict."""
    questions = scorer.questions
    asked = {name: question_of(scorer, name) for name in questions}
    first, ranked = questions[0], scores[scores[questions[0]].notna()]
    rated = pick(means, measure=first)
    rated = rated[rated["value"].notna()]
    ends = rated if len(rated) <= 8 else pd.concat([rated.head(4), rated.tail(4)])
    # Without a range a number has no verdict.
    shown = ends.drop(columns=["random_low", "random_high"]) if reason else ends
    verdicts = [
        Verdict.of(f"How is {row['explainer']} rated? (mean {first}, 1 to 5)", row, write=number)
        for row in shown.to_dict("records")
    ]
    low = "low" if asked[first].low_is_good else "high"
    drawn = rated.head(EXPLAINERS_SHOWN)
    drawn = drawn.drop(columns=["random_low", "random_high"]) if reason else drawn
    picture = dots(drawn, "explainer", label=f"mean predicted {first} ({low} is good)", percent=False)
    n_best = min(n_shown, (len(ranked) + 1) // 2)
    n_worst = min(n_shown, len(ranked) - n_best)
    worst = ranked.iloc[len(ranked) - n_worst :][::-1]
    tied = int((ranked[first] == ranked[first].iloc[-1]).sum())
    caption = (
        f"{tied} explanations share the worst score; these are some of them, in no order." if tied > n_worst else ""
    )
    cards = [
        _cards("best", f"Best, by {first}", ranked.iloc[:n_best], files, questions),
        _cards("worst", "Worst, the worst first", worst, files, questions, caption),
    ]
    wins = []
    if mixture is not None:
        wins.append(
            Picture("mixture", plot_mixture(mixture)[0], "How often each explainer has the best score (Figure 7).")
        )
    compared = [] if reason else _differences(scores, rated, first)
    banner = (
        f"No verdict on explainers by this scorer: {reason}. Its scores only show how this works." if reason else ""
    )
    return Report(
        "How would people rate these explanations?",
        verdicts,
        Picture("explainers", picture[0], "Mean predicted rating of each explainer, the best first."),
        [
            Section("Explainers", [_table_of_explainers(means, asked), *compared, *wins]),
            Section("Best and worst", [part for part in cards if part.cards]),
        ],
        lead=f"{len(ranked):,} explanations of {ranked['image_id'].nunique():,} images; {first}: median "
        f"{number(ranked[first].median())}, from {number(ranked[first].min())} to {number(ranked[first].max())}.",
        reading={
            **{name: question.reading for name, question in asked.items()},
            "Intervals": "95 % intervals of the mean over images. ± is the deviation over explanations.",
            "Random range": "Where 95 % of an explainer's means lie with the explanations of each image shuffled among "
            "the explainers: within it an explainer is rated as any other.",
            **DIFFERENCES,
            "Wins": "For how many images an explainer alone has the best score; ties are counted for none.",
        },
        banner=banner,
        links={"scores.csv": "scores.csv"},
    )


def compare_explainers(scores: pd.DataFrame, question: str, best: str) -> pd.DataFrame:
    """Compare the best-rated explainer with each other one on the images of both; corrected for all (Holm)."""
    wide = by_image(scores, question)
    rows = [
        {"metric": question, "what": question, "a": best, "b": name} | paired_numbers(wide[best], wide[name])
        for name in wide
        if name != best
    ]
    return adjusted([pd.DataFrame(rows)])


def _differences(scores: pd.DataFrame, rated: pd.DataFrame, question: str) -> list[Table]:
    compared = compare_explainers(scores, question, rated["explainer"].iloc[0]) if len(rated) else adjusted([])
    caption = "On the images of both; p-values are corrected for the rows of the table (Holm)."
    title = "Best-rated explainer less each other one"
    return [comparison_table("from-best", title, compared, number, caption)] if len(compared) else []


def _table_of_explainers(means: pd.DataFrame, asked: Mapping[str, Question]) -> Table:
    texts = []
    for row in means.to_dict("records"):
        if row["measure"] in asked:
            deviation = "" if math.isnan(row["deviation"]) else f" ± {number(row['deviation'])}"
            texts.append(f"{number(row['value'])}{deviation}")
        else:
            texts.append(f"{row['value']:.0f}" + (f" + {row['ties']:.0f} tied" if row["ties"] > 0 else ""))
    arrows = {name: f"{name} {'↓' if question.low_is_good else '↑'}" for name, question in asked.items()}
    shown = means.assign(text=texts, measure=means["measure"].replace(arrows))
    title = "Predicted ratings, 1 to 5: mean ± deviation"
    return Table("by-explainer", title, shown, ["explainer"], ["measure"], number, "↑ high is good, ↓ low is good.")


def _cards(
    name: str,
    title: str,
    rows: pd.DataFrame,
    files: Sequence[ExplanationFile],
    questions: Sequence[str],
    caption: str = "",
) -> Cards:
    frame = rows.melt(["explainer", "explanation"], list(questions), "question", "value")
    cards = [_card(row, files, questions) for _, row in rows.iterrows()]
    return Cards(name, title, frame, ["explainer", "explanation"], ["question"], number, caption, cards=cards)


def _card(row: pd.Series, files: Sequence[ExplanationFile], questions: Sequence[str]) -> Card:
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
