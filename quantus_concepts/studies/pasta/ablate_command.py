"""The command `quantus-concepts pasta ablate`: the paper's Tables 15 to 20."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.functional.agreement import LEAST_SPLITS
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.ablations import ABLATIONS, DRAWING, ablated
from quantus_concepts.studies.pasta.paper import PAPER, paper_table
from quantus_concepts.studies.pasta.plot import KIND_NAMES
from quantus_concepts.studies.pasta.results import MEASURES, SCORER, SHUFFLED
from quantus_concepts.studies.pasta.study import (
    Section,
    Study,
    cell,
    number,
    one,
    over_splits,
    write_study,
)
from quantus_concepts.studies.pasta.study_options import (
    CacheOption,
    DataOption,
    EpochsOption,
    LearningRateOption,
    NImagesOption,
    QuestionOption,
    SplitsOption,
    StudyOptions,
)
from quantus_concepts.studies.pasta.tables import ARROWS, SHOWN, SIMULATED
from quantus_concepts.studies.report_tables import ReportTable, Row
from quantus_concepts.studies.run import warnings_as_notes
from quantus_concepts.studies.run_options import (
    BatchSizeOption,
    DeviceOption,
    OutOption,
    OverwriteOption,
    ProgressOption,
    SeedOption,
)

COMMAND = "pasta-ablate"
ALL = "all"
#: Rows of the frame that name one number of one split.
KEYS = ("ablation", "variant", "model", "question", "modality", "measure")
KEY = (
    "Small numbers are 95 % intervals over splits (of QWK and SCC on Fisher's z, none below 3 splits), else the "
    "deviation. Differences are taken split by split. Splits share explanations: intervals show how much the choice of "
    "images and explainers matters. undefined: splits in which all scores are alike; they are left out. "
    f"{SHUFFLED}: trained on the votes of other explanations. Nothing is corrected for "
    "the number of comparisons."
)


def ablate(
    data: DataOption = None,
    tables: Annotated[str, typer.Option(help=f"{ALL}, or some of {', '.join(ABLATIONS)}, with commas.")] = ALL,
    encoder: Annotated[
        str, typer.Option(help="siglip, clip, eva02, embedded (untrained), or MODEL/TAG of open_clip.")
    ] = StudyOptions.encoder,
    encoder_weights: Annotated[Path | None, typer.Option(help="File of the encoder's weights.")] = None,
    encoder_tokenizer: Annotated[Path | None, typer.Option(help="Folder of the encoder's tokenizer.")] = None,
    n_images: NImagesOption = StudyOptions.n_images,
    question: QuestionOption = StudyOptions.question,
    seeds: SplitsOption = StudyOptions.seeds,
    epochs: EpochsOption = None,
    learning_rate: LearningRateOption = None,
    cache: CacheOption = None,
    device: DeviceOption = StudyOptions.device,
    batch_size: BatchSizeOption = StudyOptions.batch_size,
    seed: SeedOption = StudyOptions.seed,
    out: OutOption = None,
    overwrite: OverwriteOption = False,
    progress: ProgressOption = True,
) -> None:
    """Which choices of the PASTA-score matter: votes, labels, scoring function, embedding, loss (Tables 15 to 20).

    Every choice is trained and tested on the same splits, with the votes and with shuffled votes. The paper's figures
    stand beside ours; they are of its own data and encoder. Without --data simulated raters of painted birds vote.
    """
    chosen = table_names(tables)
    options = StudyOptions(
        data=data,
        n_images=n_images,
        question=question,
        encoder=encoder,
        encoder_weights=encoder_weights,
        encoder_tokenizer=encoder_tokenizer,
        seeds=seeds,
        epochs=epochs,
        learning_rate=learning_rate,
        cache=cache,
        device=device,
        batch_size=batch_size,
        seed=seed,
        out=out,
        overwrite=overwrite,
        progress=progress,
    )
    typer.echo(run_ablations(options, chosen))


def table_names(text: str) -> tuple[str, ...]:
    """Read which ablations an option names, or numbers as the paper does."""
    numbers = {str(ablation.table): name for name, ablation in ABLATIONS.items() if ablation.table}
    names = (
        list(ABLATIONS)
        if text.strip() == ALL
        else [numbers.get(each.strip(), each.strip()) for each in text.split(",")]
    )
    unknown = [name for name in names if name not in ABLATIONS]
    if unknown:
        raise ValueError(
            f"Expected argument `--tables` to be {ALL}, or some of {', '.join(ABLATIONS)} or the paper's numbers "
            f"{', '.join(numbers)} with commas between them, but got {unknown[0]!r}."
        )
    return tuple(dict.fromkeys(names))


def run_ablations(options: StudyOptions, names: Sequence[str]) -> Path:
    """Run the ablations, print their tables, and return the folder written."""
    started = time.monotonic()
    with OutputFolder(COMMAND, options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as notes:
            embedder = options.embedder()
            ratings = options.ratings()
            options.say(f"Embedding {len(ratings)} explanations with {embedder.name}")
            maps = None
            if options.data is not None and DRAWING in ratings.modalities:
                maps = PastaRatings(options.data, drawings=False)
            splits = ablated(ratings, embedder, names, options.plan(ratings), maps, options.say)
        settings = options.shown(encoder=embedder.name, time=f"{time.monotonic() - started:.0f} s")
        write_study(folder, ablation_study(splits, ratings, names, settings, [*ratings.notes, *notes]))
    return folder.path


def ablation_study(
    splits: pd.DataFrame, ratings: RatedExplanations, names: Sequence[str], settings: dict[str, str], notes: list[str]
) -> Study:
    """Return what the page, the files and the terminal show of the ablations."""
    means = over_splits(splits, KEYS)
    printed = [
        paper_table(number).rename(columns={"row": "variant"}).assign(ablation=name, modality="all", splits=5)
        for name in names
        if (number := ABLATIONS[name].table) is not None
    ]
    frame = pd.concat([means, *printed], ignore_index=True)[[*means.columns]]
    tables: dict[str, ReportTable] = {}
    sections = []
    for name in names:
        made = [ablation_table(name, frame, splits, question, ratings.simulated) for question in _questions(splits)]
        tables |= {table.name: table for table in made}
        sections.append(Section(ABLATIONS[name].title, ABLATIONS[name].about, tuple(table.name for table in made)))
    return Study(
        title="PASTA-score: which choices matter" + (f" ({SIMULATED})" if ratings.simulated else ""),
        simulated=ratings.simulated,
        verdicts=[verdict(name, splits, question) for name in names for question in _questions(splits)],
        sections=sections,
        tables=tables,
        frames={"results": frame, "splits": splits},
        settings=settings,
        notes=notes,
    )


def differences(splits: pd.DataFrame, name: str, question: str) -> pd.DataFrame:
    """Return how far each variant (row) of an ablation is above its default in SCC: mean, interval, splits."""
    wanted = {"ablation": name, "model": SCORER, "question": question, "modality": "all", "measure": "SCC"}
    chosen = splits[(splits[list(wanted)] == list(wanted.values())).all(axis=1)]
    table = chosen.pivot(index="seed", columns="variant", values="value")
    default, *others = (variant.name for variant in ABLATIONS[name].variants if variant.name in table)
    away = table[others].sub(table[default], axis=0).melt(var_name="variant")
    # A difference of two correlations is not one: Student's interval.
    return over_splits(away.assign(measure="difference"), ("variant",))


def ablation_table(name: str, frame: pd.DataFrame, splits: pd.DataFrame, question: str, simulated: bool) -> ReportTable:
    """Return one ablation as a table: ours, how far from the default, the control, the paper's."""
    ablation = ABLATIONS[name]
    found = frame[(frame["ablation"] == name) & (frame["question"] == question)]
    columns = [(SCORER, measure, "all", f"{measure} {ARROWS[MEASURES[measure]]}", "") for measure in SHOWN]
    if ablation.modality in set(found["modality"]):
        columns.append((SCORER, "SCC", ablation.modality, "SCC ↑", KIND_NAMES[ablation.modality]))
    n_ours = len(columns)
    columns.append((SHUFFLED, "SCC", "all", "SCC", SHUFFLED))
    beside = (found["model"] == PAPER).any()
    columns += [(PAPER, measure, "all", PAPER, measure) for measure in SHOWN if beside]
    away = differences(splits, name, question)
    rows = []
    for variant in ablation.variants:
        if variant.name not in set(splits["variant"]):
            continue
        cells = [
            cell(
                one(found, variant=variant.name, model=model, measure=measure, modality=modality),
                style=PAPER if model == PAPER else "",
            )
            for model, measure, modality, *_ in columns
        ]
        cells.insert(n_ours, cell(one(away, variant=variant.name)))
        rows.append(Row(variant.name, tuple(cells)))
    heads = [(head, below) for *_, head, below in columns]
    heads.insert(n_ours, ("SCC", "less first row's"))
    n_splits = splits["seed"].nunique()
    return ReportTable(
        f"{ablation.title}, {question}",
        f"Mean over {n_splits} split{'' if n_splits == 1 else 's'}, "
        + (f"as the paper's Table {ablation.table}." if ablation.table else "of which the paper has no table.")
        + (" The columns of the paper are of its own data and encoder." if beside else ""),
        tuple(heads),
        tuple(rows),
        KEY,
        SIMULATED if simulated else "",
    )


def verdict(name: str, splits: pd.DataFrame, question: str) -> str:
    """Say which choices of an ablation change the SCC by more than the splits explain."""
    away = differences(splits, name, question)
    head = f"{ABLATIONS[name].title} ({question}): "
    if away["low"].isna().all():
        return f"{head}fewer than {LEAST_SPLITS} splits, so nothing is said."
    default = ABLATIONS[name].variants[0].name
    surely = away[(away["low"] > 0) | (away["high"] < 0)]
    said = [
        f"{row.variant} {'raises' if row.value > 0 else 'lowers'} SCC by {abs(row.value):.3f} "
        f"({number(row.low)} to {number(row.high)})"
        for row in surely.itertuples()
    ]
    return f"{head}against {default}, {'; '.join(said) or 'no choice changes SCC by more than the splits explain'}."


def _questions(splits: pd.DataFrame) -> list[str]:
    return list(splits["question"].unique())
