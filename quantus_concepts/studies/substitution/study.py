"""The study of substitutions: from its options to one tidy frame, a row a number."""

from __future__ import annotations

from functools import partial

import pandas as pd

from captum_concepts._support.progress import whole_run
from quantus_concepts.pasta.encoders.by_name import as_encoder
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies.substitution.evaluation import DRAWING, SCORING, TRAINING, score_point
from quantus_concepts.studies.substitution.names import CURVE, OF, ROWS
from quantus_concepts.studies.substitution.options import SUB, SubstitutionOptions
from quantus_concepts.studies.substitution.report import main_table, page
from quantus_concepts.studies.substitution.sub_evaluation import score_sub

COLUMNS = ["model", "labels", "correlation", "metric", "item_kind", "item"]
COLUMNS += ["value", "low", "high", "n", "undefined", "chance", "seed"]


@named_as_typed(SubstitutionOptions, encoder="--encoders", features="--backbone")
def collect(options: SubstitutionOptions, run: Run[SubstitutionOptions]) -> pd.DataFrame:
    """Train and score the models of every seed and correlation, those of the main table first."""
    correlations = sorted(options.curve or (options.correlation,), key=lambda each: each != options.correlation)
    points = [(options.seed + number, each) for number in range(options.seeds) for each in correlations]
    # First: an unknown name raises before any work.
    asked = [] if options.encoders is None else [name.strip() for name in options.encoders.split(",")]
    encoders = {name: as_encoder(name, device=options.torch_device()) for name in asked}
    frames: list[pd.DataFrame] = []
    share = DRAWING + TRAINING + SCORING
    with whole_run(len(points) * share, show=run.progress) as whole:
        for number, (seed, correlation) in enumerate(points):
            run.say(f"Seed {seed}, correlation {correlation:g} ({number + 1} of {len(points)})")
            main = correlation == options.correlation
            if options.data == SUB:
                score = partial(score_sub, run, encoders)
            else:
                rows = ROWS if main else CURVE
                score = partial(score_point, run, encoders if main else {}, seed, correlation, rows, first=number == 0)
            kept = run.kept_frame(f"scores {seed} {correlation:g}", {"seed": seed, "correlation": correlation}, score)
            parts = kept["model"].str.partition(OF)
            # Of single attributes, groups and classes what the page has.
            kept = kept[(kept["item"] == "") | kept["metric"].isin(("S+", "S-", "original"))]
            frames.append(kept.assign(model=parts[0], labels=parts[2], correlation=correlation, seed=seed)[COLUMNS])
            whole.reach((number + 1) * share)
            if main and number + 1 < len(points):
                run.show(main_table(pd.concat(frames, ignore_index=True), options))
    return pd.concat(frames, ignore_index=True)


STUDY = Study("substitution", collect, page)
