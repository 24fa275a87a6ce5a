"""One run of `benchmark concepts`: data, models, evaluation, report."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
import typer
from matplotlib.figure import Figure
from torch import nn
from torch.utils.data import DataLoader

from captum_concepts.backbones import Backbone
from captum_concepts.cbm import ConceptLayer
from captum_concepts.embedding import Embeddings, embed
from captum_concepts.heads import fit_logistic
from captum_concepts.running import device_of
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.metrics import score_concepts
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.studies.backbone_option import Network, cut_network, load_network
from quantus_concepts.studies.charts import save_figures
from quantus_concepts.studies.concepts.data_option import BenchmarkData, labels_by_class, load_data
from quantus_concepts.studies.concepts.gallery import draw_gallery
from quantus_concepts.studies.concepts.models import (
    bank_model,
    fit_bank,
    oracle_model,
    predicted_classes,
    random_models,
    traditional_model,
)
from quantus_concepts.studies.concepts.options import CUB, Options
from quantus_concepts.studies.concepts.plot import default_figures
from quantus_concepts.studies.concepts.records import accuracy_record, as_record
from quantus_concepts.studies.concepts.report import write_report
from quantus_concepts.studies.concepts.results import (
    ORACLE,
    PLAIN,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    Record,
    item_records,
    setting_name,
)
from quantus_concepts.studies.concepts.tables import paper_tables
from quantus_concepts.studies.concepts.terminal import main_table
from quantus_concepts.studies.loading import KeptImages, sample_loader
from quantus_concepts.studies.output import OutputFolder
from quantus_concepts.studies.page import versions
from quantus_concepts.studies.records import to_frame
from quantus_concepts.studies.report_tables import terminal
from quantus_concepts.studies.run import warnings_as_notes
from quantus_concepts.studies.training import SmallResNet, train_together
from quantus_concepts.studies.usual_means import better_normalised

TOPS = (1, 3, 5)
ALPHAS = (1.0, 3.0, 6.0)
#: Images on which the maps of one random bank are scored, at least.
RANDOM_MAPS = 200
#: The paper's Table 3.
SWEEP_C = (0.001, 0.01, 0.1, 1.0, 10.0)
SWEEP_N = (50, 100)


@dataclass
class Outcome:
    """What a run has found, before it is written down."""

    records: list[Record] = field(default_factory=list)
    settings: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    gallery: Figure | None = None
    linear_pool: bool = True
    by_class: bool = False


def run(options: Options) -> Path:
    """Run the benchmark, print the main table, and write the folder of results."""
    started = time.monotonic()
    with OutputFolder("concepts", options.out, overwrite=options.overwrite) as folder:
        with warnings_as_notes() as warned:
            outcome = evaluate(options)
        outcome.notes += [note for note in warned if note not in outcome.notes]
        outcome.settings["time"] = f"{time.monotonic() - started:.0f} s"
        paper = options.data == CUB
        figures = default_figures(outcome.records, outcome.by_class)
        if outcome.gallery is not None:
            figures["gallery"] = outcome.gallery
        with folder.file("results.csv") as path:
            to_frame(outcome.records, Record).to_csv(path, index=False)
        drawn = [path.read_bytes() for path in save_figures(folder, figures)]
        with folder.file("report.html") as path:
            write_report(
                path,
                title=f"Concept benchmark: {outcome.settings['data']}",
                records=outcome.records,
                tables=paper_tables(outcome.records, paper, outcome.by_class),
                figures=dict(zip(figures, drawn, strict=True)),
                settings=outcome.settings,
                notes=outcome.notes,
                versions=versions(),
                paper=paper,
                linear_pool=outcome.linear_pool,
                by_class=outcome.by_class,
            )
        for note in outcome.notes:
            typer.echo(f"Note: {note}", err=True)
        console = terminal()
        console.print(main_table(outcome.records, console.width))
    return folder.path


def evaluate(options: Options) -> Outcome:
    """Build the models of every seed and score them; nothing is written.

    Parameters
    ----------
    options : Options
        What is asked for.

    Returns
    -------
    Outcome
        Records, settings and notes.
    """
    outcome = Outcome(settings=_settings(options))
    network = None if options.trains else _user_network(options)
    for number, data in enumerate(load_data(options, network)):
        seed = options.seed + number
        _say(options, f"Seed {seed} ({number + 1} of {options.n_seeds})")
        outcome.settings |= data.settings
        outcome.notes += [note for note in data.notes if note not in outcome.notes]
        _run_seed(options, outcome, network, data, seed, first=number == 0)
    return outcome


def _run_seed(
    options: Options,
    outcome: Outcome,
    network: Network | None,
    data: BenchmarkData,
    seed: int,
    *,
    first: bool,
) -> None:
    bars = options.progress
    train_loader = sample_loader(data.train, options.batch_size, options.workers)
    test_loader = sample_loader(data.test, options.batch_size, options.workers)
    models: dict[str, tuple[ConceptModel, float | None]] = {}
    if network is None:
        small, trained_on_concepts = _small_networks(options, data, seed)
        backbone = Backbone(small.features, "mean", None, small.channels)
        description = "stride 8, before the average pool of the small network"
        traditional = traditional_model(trained_on_concepts, data.train, data.n_classes, options.batch_size)
        models[TRADITIONAL] = (traditional, 0.5)
        module: nn.Module = small
    else:
        module = network.module
        backbone, description = cut_network(network, options.layer, data.test[0].image[None].to(options.torch_device()))
    outcome.settings["maps"] = description

    train_set = embed(backbone, train_loader, display_progressbar=bars)
    threshold = options.bank.threshold
    bank = fit_bank(train_set, data.concept_names, options.bank, seed)
    post_hoc = bank_model(backbone, bank, train_set, data.n_classes, options.values)
    models[POST_HOC] = (post_hoc, threshold)
    if data.has_oracle:
        models[ORACLE] = (oracle_model(data.train, data.test, data.n_classes).to(options.torch_device()), 0.5)
    random = random_models(
        backbone, train_set, data.concept_names, data.n_classes, options.values, options.random_banks, seed
    )

    needed = network is None or options.sweep or first
    test_set = embed(backbone, test_loader, display_progressbar=bars) if needed else None
    if network is None and test_set is not None:
        guessed = predicted_classes(small.classifier, test_set.features)
        outcome.records.append(accuracy_record(data.test.labels.numpy(), guessed, PLAIN, seed))
    else:
        outcome.records += _plain_accuracy(module, test_loader, data, seed, outcome)
    if first and network is not None:
        outcome.notes += better_normalised(module, data.test, data.mean, data.std)
    # Which images they are counts for little beside which bank it is, and maps take most of the time.
    every = max(1, len(data.test) // RANDOM_MAPS)
    table = score_concepts(
        {name: model for name, (model, _) in models.items()},
        test_loader,
        part_of_concept=data.part_of_concept,
        class_concepts=data.class_concepts,
        top_l=tuple(top for top in TOPS if top <= len(data.concept_names)),
        alphas=ALPHAS,
        value_threshold={name: limit for name, (_, limit) in models.items()} | {RANDOM: threshold},
        controls={RANDOM: random},
        control_stride=every,
        concept_names=data.concept_names,
        class_names=data.class_names,
        seed=seed,
        display_progressbar=bars,
    )
    outcome.records += [as_record(row, seed) for row in table.to_dict("records")]
    outcome.records += item_records(
        bank.test_accuracy.double(),
        data.concept_names,
        model=POST_HOC,
        metric="CAV accuracy",
        item_kind="concept",
        seed=seed,
    )
    if options.sweep and options.method == "svm" and test_set is not None:
        outcome.records += _sweep(options, train_set, test_set, data, seed)
    if first and test_set is not None:
        outcome.linear_pool, outcome.by_class = post_hoc.linear_pool, labels_by_class(data.train)
        outcome.settings["concept bank"] = repr(bank)
        predicted = predicted_classes(post_hoc.head, post_hoc.concept_layer(test_set.features))
        outcome.gallery = draw_gallery(post_hoc, data.test, predicted, mean=data.mean, std=data.std, seed=seed)


def _user_network(options: Options) -> Network:
    network = load_network(options.backbone_name, options.weights, **options.normalisation)
    network.module.to(options.torch_device())
    return network


def _small_networks(options: Options, data: BenchmarkData, seed: int) -> tuple[SmallResNet, SmallResNet]:
    """Return a network trained on the classes and one trained on the concepts."""
    if not isinstance(data.train, KeptImages):
        raise TypeError(f"Expected the training images to be kept in memory but got {type(data.train).__name__}.")
    plain, concepts = (
        SmallResNet(count, seed=seed).to(options.torch_device()) for count in (data.n_classes, len(data.concept_names))
    )
    train_together(
        {
            "training the backbone": (plain, data.train.labels),
            "training the traditional CBM": (concepts, data.train.concept_labels),
        },
        data.train.images,
        epochs=options.epochs,
        seed=seed,
        display_progressbar=options.progress,
    )
    return plain, concepts


def _plain_accuracy(
    module: nn.Module, loader: DataLoader[ConceptSample], data: BenchmarkData, seed: int, outcome: Outcome
) -> list[Record]:
    """Return the accuracy of the network's own classifier, where it has one for these classes."""
    predicted = []
    device = device_of(module)
    with torch.no_grad():
        for batch in loader:
            logits = module(batch.image.to(device))
            if not isinstance(logits, torch.Tensor) or logits.shape != (len(batch.image), data.n_classes):
                note = (
                    f"The network has no output for each of the {data.n_classes} classes, so it has no accuracy "
                    "of its own."
                )
                if note not in outcome.notes:
                    outcome.notes.append(note)
                return []
            predicted.append(logits.argmax(1).cpu().numpy())
    return [accuracy_record(data.test.labels.numpy(), np.concatenate(predicted), PLAIN, seed)]


def _sweep(
    options: Options, train_set: Embeddings, test_set: Embeddings, data: BenchmarkData, seed: int
) -> list[Record]:
    """Return the class accuracy for other settings of the bank: the paper's Table 3."""
    records = []
    for count in SWEEP_N:
        for strength in SWEEP_C:
            chosen = dataclasses.replace(options.bank, C=strength, n_pos=count, n_neg=count)
            layer = ConceptLayer(fit_bank(train_set, data.concept_names, chosen, seed), options.values)
            head = fit_logistic(layer(train_set.features), train_set.labels, data.n_classes)
            predicted = predicted_classes(head, layer(test_set.features))
            records.append(
                accuracy_record(
                    data.test.labels.numpy(),
                    predicted,
                    POST_HOC,
                    seed,
                    "setting",
                    setting_name(strength, count),
                )
            )
    return records


def _settings(options: Options) -> dict[str, str]:
    chosen = {
        field.name.replace("_", " "): str(value)
        for field in dataclasses.fields(options)
        if (value := getattr(options, field.name)) is not None and field.name not in ("progress", "overwrite")
    }
    chosen |= {"backbone": options.backbone_name, "seeds": str(options.n_seeds)}
    chosen["device"] = str(options.torch_device())
    return chosen


def _say(options: Options, text: str) -> None:
    if options.progress:
        typer.echo(text, err=True)
