"""The published ratings of explanations by people, and one's own in the same format."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

import numpy as np

from captum_concepts.support.checks import check_choice, check_path
from quantus_concepts.datasets.folders import list_some
from quantus_concepts.datasets.ratings.annotations import LABELS, PREDICTED, Record, read_records
from quantus_concepts.datasets.ratings.explanations import (
    MODALITIES,
    QUESTIONS,
    Explanation,
    LazyExplanations,
)
from quantus_concepts.datasets.ratings.files import (
    CONCEPT_EXPLAINERS,
    CONCEPT_SUFFIX,
    COUNTERFACTUAL_EXPLAINERS,
    MAP_SUFFIX,
    MODALITY_OF_SUFFIX,
    FileName,
    attribution_path,
    load_explanation,
)
from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.table import TableEntry, read_table

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

    Ratings may also be one CSV file with a row for each explanation and rater: the columns ``image``, ``explainer``,
    ``rater``, some of ``Q1`` to ``Q6`` and, where known, ``label`` (the class predicted). The files lie beside it or in
    folders ``images`` and ``explanations``: the explanation of ``cat.jpg`` by LIME is ``LIME/cat`` with ``.npy``,
    ``.json`` or ``.png``, or what a column ``explanation`` names.

    Files are read on access; their existence is checked immediately. How a label is spelled (a scorer knows the
    release's variants) is left alone.

    A question missing in some records is normal: its votes are NaN. A record that is there twice counts once; where an
    explanation has two records with other votes, their annotators are put side by side. For Q3 to Q6 the paper
    (appendix D.1) excludes a part of the votes on COCO as outliers but does not say which; none are excluded here.

    Parameters
    ----------
    root : str or Path
        The folder, or the CSV file. Folders at the start of the paths that are not in it, such as ``result_dataset``,
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
        "image-name": the one in the name of the image file, as in the released training. A table has it in ``label``.
    annotations : str
        Name of the JSON file.
    concept_explainers : str or collection of str
        Ids of the explainers whose attributions are concepts; the release's by default. Where an explanation has no
        file of the kind its explainer should have, but one of the other, that is taken.
    counterfactual_explainers : str or collection of str
        Ids of the explainers for which small values mean important; CLIP-QDA-sample of the release by default.
    name : str, optional
        Name of the ratings in tables; by default "PASTA", or the name of the CSV file.

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
        annotations: str = ANNOTATIONS,
        concept_explainers: str | Collection[str] = CONCEPT_EXPLAINERS,
        counterfactual_explainers: str | Collection[str] = COUNTERFACTUAL_EXPLAINERS,
        name: str | None = None,
    ) -> None:
        if modality is not None:
            check_choice("modality", modality, MODALITIES)
        check_choice("labels", labels, LABELS)
        folder, drawings = check_path("root", root), drawings and modality != "map"
        ascending, duplicates = _ids(counterfactual_explainers), ""
        if folder.is_file() and folder.suffix != ".json":
            entries = read_table(folder, drawings=drawings, labels=labels)
            records = _select_datasets([entry.record for entry in entries], datasets)
            files = [_File.of_table(entry, ascending) for entry in entries]
        else:
            records, duplicates = read_records(_find(folder, annotations), labels)
            records = _select_datasets(records, datasets)
            finder = _Finder(folder, drawings, _ids(concept_explainers))
            files = [finder.locate(record, record.file.explainer in ascending) for record in records]
        indices = [i for i, file in enumerate(files) if modality in (None, file.modality)]
        if not indices:
            raise ValueError(
                f"Expected explanations of modality {modality!r} in {folder} but all {len(files)} are of another one."
            )
        records, files = [records[i] for i in indices], [files[i] for i in indices]
        _check_there(files, folder)
        votes = _join_annotators(records)
        super().__init__(
            explanations=LazyExplanations(_File.load, files),
            votes=votes,
            image_ids=np.array([record.file.image_id for record in records]),
            explainer_ids=np.array([record.file.explainer for record in records]),
            labels=np.array([record.label for record in records]),
            datasets=np.array([record.file.dataset for record in records]),
            modalities=np.array([file.modality for file in files]),
            name=name or (folder.name if folder.is_file() else "PASTA"),
            notes=_notes(records, votes, duplicates, sum(file.modality == "map" for file in files)),
        )


@dataclass(frozen=True)
class _File:
    image: Path
    explanation: Path
    name: FileName
    ascending: bool
    missing: tuple[str, ...]

    @classmethod
    def of_table(cls, entry: TableEntry, ascending: Collection[str]) -> _File:
        """Return the files of an explanation in a table; how the release scales its explainers does not apply."""
        name = entry.record.file
        return cls(entry.image, entry.explanation, replace(name, explainer=None), name.explainer in ascending, ())

    @property
    def modality(self) -> str:
        return MODALITY_OF_SUFFIX.get(self.explanation.suffix, "drawing")

    def load(self) -> Explanation:
        return load_explanation(self.explanation, self.image, self.name, ascending=self.ascending)


def _find(folder: Path, annotations: str) -> Path:
    path = folder / annotations
    if not path.is_file():
        what = f"file {annotations} in {folder}" if folder.is_dir() else f"folder {folder}"
        tables = sorted(folder.glob("*.csv"))
        advice = (
            f"For ratings in a table name its file: {tables[0]}."
            if tables
            else "Those of the paper are published as ENSTA-U2IS/PASTA on the Hugging Face hub."
        )
        raise FileNotFoundError(
            "Expected argument `root` to be a folder of ratings, with `annotations` in it, or a CSV file, but there is "
            f"no {what}. {advice}"
        )
    return path


def _select_datasets(records: list[Record], datasets: str | Collection[str] | None) -> list[Record]:
    if datasets is None:
        return records
    names = _ids(datasets)
    if not names:
        raise ValueError("Expected argument `datasets` to name at least one data set, or None for all, but got none.")
    there = sorted({record.file.dataset for record in records})
    for dataset in sorted(names):
        check_choice("datasets", dataset, there)
    return [record for record in records if record.file.dataset in names]


def _ids(ids: str | Collection[str]) -> frozenset[str]:
    return frozenset([ids] if isinstance(ids, str) else map(str, ids))


class _Finder:
    """Finds the files of records, looking into each folder once: there are 40,000 files in the release."""

    def __init__(self, root: Path, drawings: bool, concept_explainers: Collection[str]) -> None:
        self._root = root
        self._drawings = drawings
        self._concept_explainers = concept_explainers
        self._folders: dict[str, tuple[Path, frozenset[str]]] = {}

    def locate(self, record: Record, ascending: bool) -> _File:
        """Find the files of a record; where there are none, return where they should be."""
        suffixes = [MAP_SUFFIX, CONCEPT_SUFFIX]
        if record.file.explainer in self._concept_explainers:
            suffixes.reverse()
        paths = [attribution_path(record.explication, suffix) for suffix in suffixes]
        explanation = next((place for place in map(self.find, paths) if place), None)
        # The drawing of concepts is a chart; what is embedded of them is a text.
        if self._drawings and suffixes[0] == MAP_SUFFIX and (explanation is None or explanation.suffix == MAP_SUFFIX):
            explanation = self.find(record.explication) or explanation
        image = self.find(record.image)
        missing = tuple(path for path, place in ((record.image, image), (paths[0], explanation)) if place is None)
        return _File(
            image or self._root / record.image, explanation or self._root / paths[0], record.file, ascending, missing
        )

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


def _check_there(files: Sequence[_File], folder: Path) -> None:
    missing = list(dict.fromkeys(path for file in files for path in file.missing))
    if missing:
        all_paths = {path for file in files for path in (file.image, file.explanation)}
        raise FileNotFoundError(
            f"Expected the images and attributions of {len(files)} explanations in {folder} but {len(missing)} of "
            f"{len(all_paths)} files are missing: {list_some(missing, 10)}."
        )


def _join_annotators(records: Sequence[Record]) -> np.ndarray:
    """Return (N, A, 6), with NaN where an item has fewer annotators than another."""
    votes = np.full((len(records), max(1, *(len(record.votes) for record in records)), len(QUESTIONS)), np.nan)
    for row, record in zip(votes, records, strict=True):
        row[: len(record.votes)] = record.votes
    return votes


def _notes(records: Sequence[Record], votes: np.ndarray, duplicates: str, n_redrawn: int) -> tuple[str, ...]:
    images = {record.file.image_id for record in records}
    explainers = {record.file.explainer for record in records}
    counts = sorted({len(record.votes) for record in records})
    span = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    notes = [
        f"{len(records)} explanations of {len(images)} images by {len(explainers)} explainers, "
        f"{span} annotator{'' if counts[-1] == 1 else 's'} each."
    ]
    unasked = np.isnan(votes).all(1).sum(0)
    gaps = [np.isnan(record.votes) for record in records]
    partly = np.array([gap.any(0) & ~gap.all(0) for gap in gaps]).sum(0)
    parts = [
        f"{question} in {none}" + (f" (and in part in {some})" if some else "")
        for question, none, some in zip(QUESTIONS, unasked.tolist(), partly.tolist(), strict=True)
        if none or some
    ]
    if parts:
        notes.append(f"Votes are missing: {', '.join(parts)} of {len(records)} explanations.")
    if not any(record.label for record in records):
        notes.append("No explanation has a label: a scorer cannot see the class.")
    if counts[-1] == 1:
        notes.append("One annotator only: how well people agree is not known.")
    if duplicates:
        notes.append(duplicates)
    if any(record.file.dataset == "coco" for record in records):
        notes.append(
            "The paper leaves out some votes on COCO for Q3 to Q6 as outliers but does not say which; none are here."
        )
    if n_redrawn:
        notes.append(
            f"Drawn anew from their values, not as people saw them: {n_redrawn} of {len(records)} explanations."
        )
    return tuple(notes)
