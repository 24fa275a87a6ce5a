"""One run of `benchmark pasta`: simulated ratings, scorers, what they are used for, report."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import typer

from quantus_concepts.datasets.ratings.raters import simulated_ratings
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.pasta.embedded import EMBEDDED_SETTINGS, embedded_embedder
from quantus_concepts.studies.pasta.options import Options
from quantus_concepts.studies.pasta.report import write_report
from quantus_concepts.studies.pasta.seeds import Plan, train_seeds
from quantus_concepts.studies.pasta.uses import gather_uses
from quantus_concepts.studies.pasta.uses_results import Uses
from quantus_concepts.studies.rating.train_run import save_scorers
from quantus_concepts.studies.run import warnings_as_notes

COMMAND = "pasta"


def run(options: Options) -> Path:
    """Run the benchmark, print the main table, and write the folder of results."""
    started = time.monotonic()
    with OutputFolder(COMMAND, options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as notes:
            _say(options, f"Drawing explanations of {options.n_images} painted birds; five simulated raters vote")
            ratings = simulated_ratings(
                n_images=options.n_images,
                n_per_image=options.n_per_image,
                image_size=options.image_size,
                seed=options.seed,
            )
            embedder = embedded_embedder(
                device=options.torch_device(), batch_size=options.batch_size, display_progressbar=options.progress
            )
            _say(options, f"Embedding {len(ratings)} explanations with {embedder.name}")
            embeddings = embedder.embed(ratings.explanations).cpu()
            plan = _plan(options, tuple(sorted(set(ratings.labels.tolist()))))
            outcome = train_seeds(
                ratings, embeddings, plan, expected=ratings.expected, say=lambda text: _say(options, text)
            )
            uses = Uses()
            if options.uses:
                _say(options, "Choosing, steering, perturbing")
                uses = gather_uses(options, outcome.best, ratings, embedder)
        save_scorers(folder, outcome, embedder, ratings)
        write_report(
            folder,
            title="PASTA-score: simulated raters of painted birds",
            outcome=outcome,
            ratings=ratings,
            plan=plan,
            encoder=None,
            settings=_settings(options, embedder.name, f"{time.monotonic() - started:.0f} s"),
            notes=[*ratings.notes, *notes],
            uses=uses,
        )
    return folder.path


def _plan(options: Options, label_names: tuple[str, ...]) -> Plan:
    return Plan(
        questions=options.questions,
        label_names=label_names,
        settings=replace(EMBEDDED_SETTINGS, epochs=options.epochs, learning_rate=options.learning_rate),
        train_share=options.train_share,
        seed=options.seed,
        n_seeds=options.seeds,
        regressors=options.regressors,
        device=options.torch_device(),
        progress=options.progress,
    )


def _settings(options: Options, encoder: str, time_taken: str) -> dict[str, str]:
    shown = ("n_images", "n_per_image", "image_size", "seeds", "epochs", "learning_rate", "train_share", "seed")
    chosen = {name.replace("_", " "): str(getattr(options, name)) for name in shown}
    return {"encoder": encoder} | chosen | {"device": str(options.torch_device()), "time": time_taken}


def _say(options: Options, text: str) -> None:
    if options.progress:
        typer.echo(text, err=True)
