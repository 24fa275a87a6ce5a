"""The published ratings of explanations by people, and the entrance to all ratings on disk."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from captum_concepts.support.checks import check_choice, check_path
from captum_concepts.support.files import read_json
from quantus_concepts.datasets.folders import leads_out, list_some
from quantus_concepts.datasets.ratings.explanations import MODALITIES, QUESTIONS, LazyExplanations, Question
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_EXPLAINERS,
    CONCEPT_SUFFIX,
    COUNTERFACTUAL_EXPLAINERS,
    MAP_SUFFIX,
    FileName,
    attribution_path,
    parse_rated_name,
    parse_scored_name,
)
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.rated_file import (
    LABELS,
    PREDICTED,
    QUESTION_LIKE,
    RatedFile,
    as_vote,
)
from quantus_concepts.datasets.ratings.table import WORDINGS, read_tables
from quantus_concepts.functional.statistics.votes import MAX_VOTE, MIN_VOTE

ANNOTATIONS = "human_annotations.json"


class PastaRatings(RatedExplanations):
    """The PASTA ratings of explanations of four data sets, as published, or ratings in the same format.

    The folder holds ``human_annotations.json``, a list of records with ``img`` and ``explication`` (paths of the image
    and of the drawn explanation from that folder), ``GTclass`` and ``predictedclass`` (either may be missing), and
    ``Annotation``: a list with, for each annotator, an object of questions "Q1" to "Q6" and votes from 1 to 5. The name
    of ``explication`` is ``{dataset}_{image id}_{explainer id}_{label}.png``; the attribution lies under
    ``activations`` instead of ``expl``: a map in ``.npy``, or concepts and their values in ``.json``. Published as
    ENSTA-U2IS/PASTA on the Hugging Face hub.

    People rated the drawing of a map, so the drawing is the explanation, as in the release; concepts are a text
    there and here. Where a drawing is missing, or with `drawings=False`, the map is drawn by the `Embedder`, that of
    the released explainers SHAP and LIME scaled as the release scales them; a note counts these.

    Ratings of your own are one CSV file, or several in a folder, with a row for each explanation and rater: the
    columns ``image``, ``explainer``, ``rater``, one for each question and, where known, ``label`` (the class
    predicted; it counts more than a label in the name of a file). The files lie next to it or in folders ``images``
    and ``explanations``: the explanation of ``cat.jpg`` by LIME is ``LIME/cat`` with ``.npy``, ``.json`` or ``.png``,
    or what a column ``explanation`` names. Questions have the names of their columns; what was asked stands in
    ``questions.json`` beside the table: ``{"clarity": "Is it clear?"}``, or for each name an object with ``text`` and,
    where low is good, ``low_is_good``. The paper's wording is not assumed for a column called ``Q1``; `pasta sheet`
    writes what its page asks.

    Files are read on access; their existence is checked immediately. How a label is spelled (a scorer knows the
    release's variants) is left alone.

    A question missing in some records is normal: its votes are NaN. A record that is there twice counts once; where an
    explanation has two records with other votes, their annotators are put side by side. For Q3 to Q6 the paper
    (appendix D.1) excludes a part of the votes on COCO as outliers but does not say which; none are excluded here.

    Parameters
    ----------
    root : str or Path
        The folder, or a CSV file. Folders at the start of the paths that are not in it, such as ``result_dataset``,
        are left out. Links in it are followed, wherever they lead; a path in the JSON or CSV file that leads out of it
        is refused.
    datasets : str or collection of str, optional
        Which data sets ("coco", "pascalpart", "monumai", "catsdogscars" in the release); all by default.
    modality : str, optional
        "drawing", "concepts", or "map", which redraws all maps; drawings (or maps without one) and concepts by default.
    drawings : bool
        Whether maps are shown by their drawings, where there are some.
    labels : str
        "predicted": the class predicted where the record names it, else the true class, else that of the file name;
        "image-name": the one in the name of the image file, as in the released training. A table with a column
        ``label`` has it there.
    concept_explainers : str or collection of str
        Ids of the explainers whose attributions are concepts; the release's by default. Where an explanation has no
        file of the kind its explainer should have, but one of the other, that is taken.
    counterfactual_explainers : str or collection of str
        Ids of the explainers for which small values mean important; CLIP-QDA-sample of the release by default.
    name : str, optional
        Name of the ratings in tables; by default "PASTA", or the name of the CSV file or of its folder.

    Raises
    ------
    FileNotFoundError
        If the folder, the JSON file, images, or both drawing and attribution of an explanation are missing.
    ValueError
        If the JSON or CSV file has not this format, votes are outside 1 to 5, there is no such data set or nothing is
        left. On access to an explanation: if its files cannot be read.

    Examples
    --------
    >>> from quantus_concepts.datasets import PastaRatings
    >>> ratings = PastaRatings("PASTA", datasets="coco")
    >>> ratings.votes.shape[1:]  # annotators and questions
    (5, 6)
    >>> set(ratings.datasets.tolist()), sorted(set(ratings.modalities.tolist()))
    ({'coco'}, ['concepts', 'drawing'])
    >>> ratings.questions[0]
    'Q1'
    """

    def __init__(
        self,
        root: str | Path,
        *,
        datasets: str | Collection[str] | None = None,
        modality: str | None = None,
        drawings: bool = True,
        labels: str = PREDICTED,
        concept_explainers: str | Collection[str] = CONCEPT_EXPLAINERS,
        counterfactual_explainers: str | Collection[str] = COUNTERFACTUAL_EXPLAINERS,
        name: str | None = None,
    ) -> None:
        if modality is not None:
            check_choice("modality", modality, MODALITIES)
        check_choice("labels", labels, LABELS)
        path, drawings = check_path("root", root), drawings and modality != "map"
        ascending, duplicates = _ids(counterfactual_explainers), ""
        raters, missing, asked = list[str](), dict[Path, str](), dict(QUESTIONS)
        if tables := _tables(path):
            files, raters, asked = read_tables(tables, drawings=drawings, labels=labels, ascending=ascending)
            files = _of_datasets(files, datasets)
        else:
            records, duplicates = read_records(path / ANNOTATIONS, labels)
            finder = _Finder(path, drawings, _ids(concept_explainers))
            records = _of_datasets(records, datasets)
            files = [finder.locate(record, record.name.explainer in ascending) for record in records]
            missing = finder.missing
        n_files = len(files)
        files = [file for file in files if modality in (None, file.modality)]
        if not files:
            raise ValueError(
                f"Expected explanations of modality {modality!r} in {path} but all {n_files} are of another one."
            )
        paths = dict.fromkeys(path for file in files for path in (file.image, file.explanation))
        if lacking := [missing[path] for path in paths if path in missing]:
            raise FileNotFoundError(
                f"Expected the images and attributions of {len(files)} explanations in {path} but {len(lacking)} of "
                f"{len(paths)} files are missing: {list_some(lacking, 10)}."
            )
        votes = np.full((len(files), max(1, *(len(file.votes) for file in files)), len(asked)), np.nan)
        for row, file in zip(votes, files, strict=True):
            row[: len(file.votes)] = file.votes
        super().__init__(
            explanations=LazyExplanations(RatedFile.load, files),
            votes=votes,
            image_ids=np.array([file.name.image_id for file in files]),
            explainer_ids=np.array([file.name.explainer for file in files]),
            labels=np.array([file.label for file in files]),
            datasets=np.array([file.name.dataset for file in files]),
            modalities=np.array([file.modality for file in files]),
            name=name or (files[0].name.dataset if tables else "PASTA"),
            raters=tuple(raters),
            notes=_notes(files, votes, duplicates, asked),
            asked=asked,
        )


def _tables(path: Path) -> list[Path]:
    """Return the tables that a path names; none where it is a folder of the release."""
    if path.is_file():
        return [path]
    if (path / ANNOTATIONS).is_file():
        return []
    if tables := sorted(path.glob("*.csv")):
        return tables
    what = f"file {ANNOTATIONS} and no CSV file in {path}" if path.is_dir() else f"folder {path}"
    raise FileNotFoundError(
        f"Expected argument `root` to be a CSV file of ratings, or a folder with one or with {ANNOTATIONS}, but there "
        f"is no {what}. Those of the paper are published as ENSTA-U2IS/PASTA on the Hugging Face hub."
    )


def _of_datasets(files: list[Any], datasets: str | Collection[str] | None) -> list[Any]:
    if datasets is None:
        return files
    names = _ids(datasets)
    if not names:
        raise ValueError("Expected argument `datasets` to name at least one data set, or None for all, but got none.")
    there = sorted({file.name.dataset for file in files})
    for dataset in sorted(names):
        check_choice("datasets", dataset, there)
    return [file for file in files if file.name.dataset in names]


def _ids(ids: str | Collection[str]) -> frozenset[str]:
    return frozenset([ids] if isinstance(ids, str) else map(str, ids))


@dataclass(frozen=True)
class Record:
    """A record of the release: the paths of an image and of a drawn explanation, its label and its votes (A, 6)."""

    image: str
    explication: str
    name: FileName
    label: str
    votes: np.ndarray


def read_records(path: Path, labels: str) -> tuple[list[Record], str]:
    """Read all records of a file of ratings."""
    content = read_json(path, "File of ratings")
    if not isinstance(content, list) or not content:
        kind = "an empty one" if content == [] else f"a {type(content).__name__}"
        raise ValueError(f"Expected file of ratings {path} to be a list of records but got {kind}.")
    records, faults = [], []
    for number, entry in enumerate(content):
        try:
            records.append(_read_record(entry, labels))
        except ValueError as error:
            faults.append(f"record {number}: {error}")
    if faults:
        raise ValueError(
            f"File of ratings {path} has {len(faults)} faulty records: {list_some(faults)}. Votes are whole numbers "
            f"from {MIN_VOTE} to {MAX_VOTE}."
        )
    if all(np.isnan(record.votes).all() for record in records):
        raise ValueError(f"Expected votes on {', '.join(QUESTIONS)} in file of ratings {path} but it has none.")
    return _join_duplicates(path, records)


def _read_record(entry: Any, labels: str) -> Record:
    """Return a record, or raise for what is wrong in it."""
    if not isinstance(entry, dict):
        raise ValueError(f"a {type(entry).__name__} and not an object")
    for key in ("img", "explication"):
        value = entry.get(key)
        if not isinstance(value, str) or leads_out(value):
            raise ValueError(f"{key!r} is no path inside the folder ({value!r})")
    classes = [entry.get(key) for key in ("predictedclass", "GTclass")]
    for value in classes:
        if not isinstance(value, str | int | None) or isinstance(value, bool):
            raise ValueError(f"the class {value!r} is neither a name nor a whole number")
    annotation = entry.get("Annotation")
    if not isinstance(annotation, list) or not all(isinstance(answers, dict) for answers in annotation):
        raise ValueError("'Annotation' is no list of objects, one for each annotator")
    if strange := [key for key in chain(*annotation) if key not in QUESTIONS and QUESTION_LIKE.fullmatch(key)]:
        raise ValueError(f"'Annotation' has the key {strange[0]!r}, where questions are called 'Q1' to 'Q6'")
    file = parse_rated_name(entry["explication"])
    candidates = [*classes, file.label] if labels == PREDICTED else [parse_scored_name(entry["img"]).label]
    label = next((str(label) for label in candidates if label not in (None, "")), "")
    votes = np.full((len(annotation), len(QUESTIONS)), np.nan)
    for annotator, answers in enumerate(annotation):
        for column, question in enumerate(QUESTIONS):
            vote = as_vote(answers.get(question))
            if vote is None:
                raise ValueError(f"{answers[question]!r} is no vote (annotator {annotator}, {question})")
            votes[annotator, column] = vote
    return Record(entry["img"], entry["explication"], file, label, votes)


def _join_duplicates(path: Path, records: list[Record]) -> tuple[list[Record], str]:
    groups: dict[str, list[Record]] = {}
    n_repeated = 0
    for record in records:
        earlier = groups.setdefault(record.explication, [])
        if earlier and (earlier[0].image, earlier[0].label) != (record.image, record.label):
            raise ValueError(
                f"Expected the records of {record.explication} in {path} to agree but they name {earlier[0].image} "
                f"({earlier[0].label}) and {record.image} ({record.label})."
            )
        if any(np.array_equal(other.votes, record.votes, equal_nan=True) for other in earlier):
            n_repeated += 1
        else:
            earlier.append(record)
    parts = []
    if n_repeated:
        parts.append(f"Records that repeat another one were left out: {n_repeated}.")
    if several := sum(len(group) > 1 for group in groups.values()):
        parts.append(f"Explanations with several records, whose annotators were put side by side: {several}.")
    joined = [replace(group[0], votes=np.concatenate([record.votes for record in group])) for group in groups.values()]
    return joined, " ".join(parts)


class _Finder:
    """Finds the files of records, looking into each folder once: there are 40,000 files in the release."""

    def __init__(self, root: Path, drawings: bool, concept_explainers: Collection[str]) -> None:
        self._root = root
        self._drawings = drawings
        self._concept_explainers = concept_explainers
        self._folders: dict[str, tuple[Path, frozenset[str]]] = {}
        self.missing: dict[Path, str] = {}

    def locate(self, record: Record, ascending: bool) -> RatedFile:
        """Find the files of a record; where there are none, return where they should be."""
        suffixes = [MAP_SUFFIX, CONCEPT_SUFFIX]
        if record.name.explainer in self._concept_explainers:
            suffixes.reverse()
        paths = [attribution_path(record.explication, suffix) for suffix in suffixes]
        explanation = next((place for place in map(self.find, paths) if place), None)
        # The drawing of concepts is a chart; what is embedded of them is a text.
        if self._drawings and suffixes[0] == MAP_SUFFIX and (explanation is None or explanation.suffix == MAP_SUFFIX):
            explanation = self.find(record.explication) or explanation
        image = self.find(record.image)
        for path, place in ((record.image, image), (paths[0], explanation)):
            if place is None:
                self.missing[self._root / path] = path
        image, explanation = image or self._root / record.image, explanation or self._root / paths[0]
        return RatedFile(image, explanation, record.name, record.label, record.votes, ascending)

    def find(self, path: str) -> Path | None:
        """Return where a file is, or None."""
        parent, _, name = path.rpartition("/")
        if parent not in self._folders:
            self._folders[parent] = self._open(parent)
        folder, names = self._folders[parent]
        return folder / name if name in names else None

    def _open(self, parent: str) -> tuple[Path, frozenset[str]]:
        """Return a folder and the names in it, less as many of the first folders of its path as need be."""
        parts = PurePosixPath(parent).parts
        for first in range(len(parts) + 1):
            folder = self._root.joinpath(*parts[first:])
            if folder.is_dir():
                return folder, frozenset(entry.name for entry in folder.iterdir())
        return self._root, frozenset()


def _notes(
    files: Sequence[RatedFile], votes: np.ndarray, duplicates: str, asked: Mapping[str, Question]
) -> tuple[str, ...]:
    images = {file.name.image_id for file in files}
    explainers = {file.name.explainer for file in files}
    missing = np.isnan(votes)
    rated = ~missing.all(2)
    counts = np.unique(rated.sum(1)).tolist()
    span = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    notes = [
        f"{len(files)} explanations of {len(images)} images by {len(explainers)} explainers, "
        f"{span} annotator{'' if counts[-1] == 1 else 's'} each."
    ]
    unasked = missing.all(1).sum(0)
    n_redrawn = sum(file.modality == "map" for file in files)
    # A rater without any vote on an explanation did not rate it, and left no gap.
    partly = ((missing & rated[..., None]).any(1) & ~missing.all(1)).sum(0)
    parts = [
        f"{question} in {none}" + (f" (and in part in {some})" if some else "")
        for question, none, some in zip(asked, unasked.tolist(), partly.tolist(), strict=True)
        # What has no vote at all was not asked.
        if (none or some) and none < len(files)
    ]
    if parts:
        notes.append(f"Votes are missing: {', '.join(parts)} of {len(files)} explanations.")
    if unworded := [name for name, question in asked.items() if not question.text]:
        notes.append(
            f"The wording of {', '.join(unworded)} is not known, and high is taken as good: {WORDINGS} beside the "
            "table says what was asked, and where low is good."
        )
    if not any(file.label for file in files):
        notes.append("No explanation has a label: a scorer cannot see the class.")
    if counts[-1] == 1:
        notes.append("One annotator only: how well people agree is not known.")
    if duplicates:
        notes.append(duplicates)
    if any(file.name.dataset == "coco" for file in files):
        notes.append(
            "The paper leaves out some votes on COCO for Q3 to Q6 as outliers but does not say which; none are here."
        )
    if n_redrawn:
        notes.append(f"Drawn anew from their values, not as people saw them: {n_redrawn} of {len(files)} explanations.")
    return tuple(notes)
