"""The study of concept models: from its options to one tidy frame, a row a number."""

from __future__ import annotations

from functools import partial

import pandas as pd

from captum_concepts._support.progress import whole_run
from captum_concepts.backbones.layers import find_layer
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._models.networks import Network, load_network
from quantus_concepts.studies.concepts.data_option import DRAWING, SCORING, TRAINING, load_data
from quantus_concepts.studies.concepts.evaluation import score_seed
from quantus_concepts.studies.concepts.names import baseline_name
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.concepts.report import page, summary_so_far

#: The page on which concepts are corrected.
EXPLORER = "explore.html"
COLUMNS = ["model", "metric", "explanation", "set", "l", "alpha", "item_kind", "item"]
COLUMNS += ["value", "n", "undefined", "chance", "low", "high", "seed"]


@named_as_typed(ConceptOptions, concept_labels="--labels", pretrained="--weights")
def collect(options: ConceptOptions, run: Run[ConceptOptions]) -> pd.DataFrame:
    """Build and score the models of every seed."""
    network = None if options.trains else _user_network(options)
    frames: list[pd.DataFrame] = []
    shown_seeds: set[int] = set()

    def show(seed: int, scores: pd.DataFrame) -> None:
        shown_seeds.add(seed)
        if len(frames) + 1 < options.n_seeds:
            done = pd.concat([*frames, _named(scores.assign(seed=seed))], ignore_index=True)
            run.show(summary_so_far(done, options.n_seeds))

    share = SCORING if network is not None else DRAWING + TRAINING + SCORING
    with whole_run(options.n_seeds * share, show=run.progress) as whole:
        for number, data in enumerate(load_data(options, network)):
            seed = options.seed + number
            run.say(f"Seed {seed} ({number + 1} of {options.n_seeds})")
            run.settings |= data.settings
            run.note(*data.notes)
            score = partial(score_seed, run, network, data, seed, first=number == 0, show_scores=partial(show, seed))
            kept = run.kept_frame(f"scores {seed}", {"seed": seed, "data": data.fingerprint}, score)
            if seed not in shown_seeds:
                show(seed, kept)
            frames.append(_named(kept.assign(seed=seed)))
            whole.reach((number + 1) * share)
    if options.explore:
        run.note(f"{EXPLORER} shows test images, and their concepts can be corrected on it.")
        run.files[EXPLORER] = lambda path: path.write_bytes(run.facts["explorer"])
    frame = pd.concat(frames, ignore_index=True)
    if not run.facts["linear pool"] and (frame["metric"] == "CLM").any():
        run.note(
            "About the maps: this backbone does not pool by the plain mean. Its maps are local evidence, not a "
            "decomposition of the concept's value."
        )
    return frame


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    named = [
        baseline_name(baseline, model) if baseline else model
        for baseline, model in zip(frame["baseline"], frame["model"], strict=True)
    ]
    # Whole numbers in the file.
    return frame.assign(model=named)[COLUMNS].astype({"l": "Int64"})


def _user_network(options: ConceptOptions) -> Network:
    network = load_network(options.backbone_name, options.weights, **options.normalisation)
    if options.layer is not None:
        find_layer(network.module, options.layer)
    network.module.to(options.torch_device())
    return network


STUDY = Study("concepts", collect, page)
