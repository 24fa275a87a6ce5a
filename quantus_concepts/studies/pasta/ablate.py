"""`pasta ablate`: scorers trained for each choice of the paper's Tables 15 to 20, and of the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
from torch import Tensor

from quantus_concepts.datasets.ratings.rated import RatedExplanations
from quantus_concepts.functional import adjust_p_values
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.results.verdicts import difference_verdict
from quantus_concepts.studies._kit.folder import RunFolder, warnings_as_notes
from quantus_concepts.studies._kit.plots import dots
from quantus_concepts.studies._kit.report import Picture, Report, Section, Table, Verdict, number, three, write_report
from quantus_concepts.studies._kit.results import PAPER, names, one, over_seeds, pick, with_random_range
from quantus_concepts.studies.pasta.material import ALL, HowToEmbed, load_embedder, load_ratings, words
from quantus_concepts.studies.pasta.report import (
    KINDS,
    READING,
    TRAINED_RANGE,
    banner_of,
    paired_splits,
    paper_table,
    table,
)
from quantus_concepts.studies.pasta.scorers import (
    PAPER_MEASURES,
    REGRESSORS,
    SCORER,
    SHUFFLED,
    Plan,
    agreement,
    embed_ratings,
    plan_of,
    score_splits,
    splits_interval,
)
from quantus_concepts.studies.pasta.settings import EMBEDDED, Ablate

#: The kind of maps in ratings with the pictures that people saw.
DRAWING = "drawing"
#: Columns that identify a number of one split.
KEYS = ("ablation", "variant", "model", "question", "modality", "measure")


@dataclass(frozen=True)
class Variant:
    """One choice: settings of the embedder, of the plan and of its training that differ from the default."""

    name: str
    embedding: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)
    drawn: bool = True
    encoder: str = ""


@dataclass(frozen=True)
class Ablation:
    """Choices to compare: the first one is the default."""

    title: str
    about: str
    variants: tuple[Variant, ...]
    table: int | None = None
    #: The kind of explanation that the choice concerns; "" for all.
    modality: str = ""


_REGRESSED = tuple(Variant(name, plan={"only": kind}) for kind, name in REGRESSORS.items())
_WEIGHTS = {"cosine": (0.0, 0.001, 0.01), "squared": (1.0, 0.0, 0.01), "ranking": (1.0, 0.001, 0.0)}
_LOSSES = tuple(Variant(f"without {name}", training={"weights": weights}) for name, weights in _WEIGHTS.items())
_MAPS = tuple(Variant(name, {"saliency": name}, drawn=False) for name in ("overlay", "masked"))
_TEMPLATE = Variant("sentence with template", {"template": "Concepts in explanation: {}"})
#: By the name that `--tables` takes; numbers are the paper's.
ABLATIONS = {
    "votes": Ablation(
        "How votes are joined",
        "Each is tested against votes joined its own way, as in the paper: the target changes as well as the training.",
        (Variant("mode"), *(Variant(votes, plan={"votes": votes}) for votes in ("mean", "median"))),
        15,
    ),
    "labels": Ablation(
        "Whether the scorer sees the class",
        "The class, one-hot, before the embedding, or the embedding alone.",
        (Variant("embedding and label"), Variant("embedding alone", plan={"label_names": None})),
        16,
    ),
    "scorers": Ablation(
        "Scoring functions", "The network and three regressors on the same inputs.", (Variant(SCORER), *_REGRESSED), 17
    ),
    "saliency": Ablation(
        "How maps are shown",
        "Laid over the image (Eq. 1), the image times the map (Eq. 14) or, where there are some, the drawings that "
        "people saw. The embedded encoder is scaled to the first: the others fall outside of what it tells apart.",
        (*_MAPS, Variant(DRAWING)),
        18,
        "map",
    ),
    "n-top": Ablation(
        "How many concepts are named",
        "In the text of an explanation; one with fewer concepts names all it has.",
        tuple(Variant(str(count), {"n_top": count}) for count in (15, 5, 10, 20)),
        19,
        "concepts",
    ),
    "concepts": Ablation(
        "How concepts are embedded",
        "The names of the first concepts as one text, with or without a template; or the mean of all embeddings, "
        "each name's times its value (Eq. 15).",
        (
            Variant("sentence"),
            Variant("weighted", {"concepts": "weighted"}),
            _TEMPLATE,
        ),
        20,
        "concepts",
    ),
    "losses": Ablation(
        "The loss",
        "The paper's sum of three losses, the release's weights and losses, and the paper's without one of the three.",
        # The default weights belong to the default loss.
        (Variant("paper"), Variant("release", training={"loss": "release", "weights": None}), *_LOSSES),
    ),
}


#: The ablation whose variants are encoders, other ones than the run's.
ENCODERS = "encoders"
#: Widths of the embedded encoder, beside its own of 128.
WIDTHS = (8, 32, 512)


def encoder_ablation(default: str, others: Sequence[str]) -> Ablation:
    """Return the ablation of encoders: the run's, and others by name."""
    return Ablation(
        "Encoders",
        "The same scorer on other encoders; the embedded one is untrained at every width.",
        (Variant(default), *(Variant(name, encoder=name) for name in others)),
    )


def other_encoders(default: str, text: str | None) -> tuple[str, ...]:
    """Read the encoders that an option names; by default widths of the embedded encoder, if that is the run's."""
    if text is not None:
        return tuple(name for name in words(text) if name != default)
    return tuple(f"{EMBEDDED}/{width}" for width in WIDTHS) if default == EMBEDDED else ()


def table_names(text: str) -> tuple[str, ...]:
    """Read which ablations an option names, or numbers as the paper does."""
    numbers = {str(ablation.table): name for name, ablation in ABLATIONS.items() if ablation.table}
    known = [*ABLATIONS, ENCODERS]
    chosen = known if words(text) == [ALL] else [numbers.get(word, word) for word in words(text)]
    unknown = [name for name in chosen if name not in known]
    if unknown or not chosen:
        raise ValueError(
            f"Expected `--tables` to be {ALL}, or some of {', '.join(known)} or the paper's numbers "
            f"{', '.join(numbers)} with commas between them, but got {text!r}."
        )
    return tuple(dict.fromkeys(chosen))


def run_ablations(settings: Ablate, folder: RunFolder) -> None:
    """Train and test every variant, and write all of it; the paper's numbers are rows of the model "paper"."""
    chosen, ratings = table_names(settings.tables), load_ratings(settings.data, settings.n_images, settings.seed)
    # The maps of what people saw as drawings.
    has_drawings = settings.data is not None and DRAWING in ratings.modalities
    maps = load_ratings(settings.data, drawings=False) if has_drawings else None
    plan = plan_of(settings, ratings)
    how = HowToEmbed(cache=settings.cache, batch_size=settings.batch_size, display_progressbar=settings.progress)
    files = settings.encoder_weights, settings.encoder_tokenizer
    embedder = load_embedder(settings.encoder, *files, device=settings.place, **how)
    others = other_encoders(settings.encoder, settings.encoders)
    encoders = {name: load_embedder(name, device=settings.place, **how) for name in others}
    ablations = {name: ABLATIONS[name] for name in chosen if name != ENCODERS}
    if ENCODERS in chosen and encoders:
        ablations[ENCODERS] = encoder_ablation(embedder.encoder.name, list(encoders))
    with folder:
        with warnings_as_notes(folder):
            folder.note(*ratings.notes)
            # Too few images raise before the expensive training.
            plan.splits(ratings)
            splits = train_variants(folder, ablations, ratings, embedder, plan, maps, encoders)
            means = over_seeds(splits, KEYS, interval=splits_interval)
            printed = [
                paper_table(of.table).rename(columns={"row": "variant"}).assign(ablation=name, modality="all", seeds=5)
                for name, of in ablations.items()
                if of.table is not None
            ]
            frame = pd.concat([means, *printed], ignore_index=True)[[*means.columns]]
            folder.write("splits.csv", splits.to_csv(index=False))
        more = {"encoder": embedder.name, "device": str(plan.device), "explanations": str(len(ratings))}
        report = ablation_report(frame, splits, banner_of(ratings, embedder.encoder), ablations)
        write_report(folder, frame, report, more)


def train_variants(
    folder: RunFolder,
    ablations: Mapping[str, Ablation],
    ratings: RatedExplanations,
    embedder: Embedder,
    plan: Plan,
    maps: RatedExplanations | None = None,
    encoders: Mapping[str, Embedder] = MappingProxyType({}),
) -> pd.DataFrame:
    """Train and test every variant of the ablations on the same splits; what is equal comes from the folder's cache.

    `maps` are the same ratings without the drawings people saw, where `ratings` has them.
    """
    base = embed_ratings(folder, embedder, ratings.explanations)
    frames = []
    for name, ablation in ablations.items():
        for variant in ablation.variants:
            if variant.name == DRAWING and maps is None:
                continue
            source = ratings if maps is None or variant.drawn else maps
            embeddings = base
            if variant.encoder:
                embeddings = embed_ratings(folder, encoders[variant.encoder], ratings.explanations)
            elif variant.embedding or source is not ratings:
                other = Embedder.from_settings(
                    embedder.encoder,
                    {**embedder.settings, **variant.embedding},
                    cache=embedder.cache,
                    batch_size=embedder.batch_size,
                )
                rows = np.flatnonzero(source.modalities == ablation.modality)
                embeddings = base.clone()
                embeddings[rows] = embed_ratings(folder, other, source.select(rows).explanations)
            figures = variant_figures(folder, ratings, embeddings, variant, plan)
            frames.append(figures.assign(ablation=name, variant=variant.name))
    return pd.concat(frames, ignore_index=True)


def variant_figures(
    folder: RunFolder, ratings: RatedExplanations, embeddings: Tensor, variant: Variant, plan: Plan
) -> pd.DataFrame:
    """Train one variant on every split, with the votes and with shuffled votes, and compare it with the test votes."""
    plan = replace(plan, settings=replace(plan.settings, **variant.training), **variant.plan)
    scores, _ = score_splits(folder, ratings, embeddings, plan)
    # A drawing is of a map.
    frame = agreement(scores.replace({"modality": {DRAWING: "map"}}))
    return frame[frame["measure"].isin(PAPER_MEASURES)].reset_index(drop=True)


def differences(splits: pd.DataFrame, name: str, ablation: Ablation, question: str) -> pd.DataFrame:
    """Return how far each variant (row) of an ablation is above its default in SCC: mean, interval, splits."""
    chosen = pick(splits, ablation=name, model=SCORER, question=question, modality="all", measure="SCC")
    wide = chosen.pivot(index="seed", columns="variant", values="value")
    default, *variants = (variant.name for variant in ablation.variants if variant.name in wide)
    change = wide[variants].sub(wide[default], axis=0).melt(var_name="variant")
    # A difference of two correlations is not a correlation: Student's interval.
    means = over_seeds(change.assign(measure="difference"), ["variant", "measure"], interval=splits_interval)
    results = {variant: paired_splits(wide[variant], wide[default]) for variant in variants}
    p = [results[variant]["p"] for variant in means["variant"]]
    means = means.assign(difference=means["value"], p_adjusted=adjust_p_values(np.array(p), "holm"))
    return means.assign(verdict=[difference_verdict(row) for row in means.to_dict("records")])


def ablation_report(
    frame: pd.DataFrame, splits: pd.DataFrame, banner: str, ablations: Mapping[str, Ablation]
) -> Report:
    """Declare the report."""
    questions, first = names(splits, "question"), names(splits, "question")[0]
    ours = with_random_range(frame[frame["model"] != PAPER], SHUFFLED, [key for key in KEYS if key != "model"])
    scc = pick(ours, question=first, modality="all", measure="SCC")
    name, ablation = next(iter(ablations.items()))
    default = one(scc, ablation=name, variant=ablation.variants[0].name)
    verdicts = [Verdict.of(f"Default choices: do scores follow the votes? (SCC, {first})", default, write=number)]
    # A difference without an interval, of fewer than 3 splits, supports no conclusion.
    changes = {
        (name, question): differences(splits, name, ablation, question).dropna(subset=["low"])
        for name, ablation in ablations.items()
        for question in questions
    }
    for name, ablation in ablations.items():
        if len(found := changes[name, first]):
            # The choice that changes most, in either direction; all are in the tables.
            row = found.loc[found["value"].abs().idxmax()]
            question = f"{ablation.title}: {row['variant']}, not {ablation.variants[0].name} (SCC, difference)"
            verdicts.append(Verdict.of(question, row, write=three, text=row["verdict"]))
    # Without drawings in the ratings, the paper's number of them has nothing to stand beside.
    shown_of = frame[frame["variant"].isin(set(splits["variant"]))]
    shown = scc.assign(row=scc["ablation"] + ": " + scc["variant"])
    figure, _ = dots(shown, "row", label=f"SCC with the votes ({first})", percent=False, reference=0)
    return Report(
        "PASTA-score: which choices matter?",
        verdicts[:8],
        Picture("choices", figure, "Every choice with the same splits; the first of each group is the default."),
        [
            Section(
                f"Choices, {question}",
                [choices_table(pick(shown_of, question=question), question, ablations, changes)],
            )
            for question in questions
        ],
        lead=f"Scorers trained and tested on the same {splits['seed'].nunique()} splits with one choice changed; the "
        "one that changes most stands here.",
        reading={
            **READING,
            "Random range": TRAINED_RANGE,
            "Difference": "SCC minus that of the default, split by split, with its 95 % interval. Not shown: the "
            "p-value, corrected for the choices of a group (Holm), is above .05.",
            SHUFFLED: "The baseline of a choice: trained on the votes of other explanations.",
            **{ablation.title: ablation.about for ablation in ablations.values()},
        },
        banner=banner,
        links={"splits.csv": "splits.csv"},
    )


def choices_table(
    rows: pd.DataFrame,
    question: str,
    ablations: Mapping[str, Ablation],
    changes: Mapping[tuple[str, str], pd.DataFrame],
) -> Table:
    """Return all choices as one table: ours, how far from the default, the baseline, the paper's."""
    of_all, heads = pick(rows, modality="all"), [*PAPER_MEASURES]
    parts = [pick(of_all, model=SCORER).assign(head=lambda part: part["measure"])]
    parts += [changes[name, question].assign(ablation=name, head="SCC minus default") for name in ablations]
    for name, ablation in ablations.items():
        if ablation.modality:
            of_kind = pick(rows, ablation=name, model=SCORER, measure="SCC", modality=ablation.modality)
            parts.append(of_kind.assign(head=f"SCC, {KINDS[ablation.modality]}"))
    parts.append(pick(of_all, model=SHUFFLED, measure="SCC").assign(head=f"SCC, {SHUFFLED}"))
    parts.append(pick(of_all, model=PAPER).assign(head=lambda part: "paper, " + part["measure"]))
    cells = pd.concat([part for part in parts if len(part)], ignore_index=True)
    cells["choice"] = cells["ablation"].map({name: ablation.title for name, ablation in ablations.items()})
    return table(
        f"choices-{question}",
        f"Agreement with the votes by choice, {question}",
        cells,
        "choice variant",
        "head",
        "As the paper's Tables 15 to 20; its numbers are of its own data and encoder.",
        head=["SCC", "SCC minus default", *heads, *names(cells, "head")],
        ablation=list(ablations),
        variant=[variant.name for ablation in ablations.values() for variant in ablation.variants],
    )
