"""The study of concept models: from its options to one tidy frame, a row a number; its models, scores and gallery."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.utils.data import DataLoader

from captum_concepts._support.progress import part, progress, whole_run
from captum_concepts._support.running import alone_with, device_of, to_model
from captum_concepts._support.visualise import gallery
from captum_concepts.backbones import Backbone
from captum_concepts.backbones.embedding import Embeddings, embed
from captum_concepts.backbones.layers import find_layer
from captum_concepts.bank.bank import ConceptBank
from captum_concepts.models.cbm import PostHocCBM
from captum_concepts.models.chain import ConceptLayer
from captum_concepts.models.heads import fit_logistic
from captum_concepts.models.random_banks import RandomBank
from quantus_concepts.datasets.base import ConceptSample
from quantus_concepts.explorer.explore import explore
from quantus_concepts.functional import intervention_counts, rank_concepts
from quantus_concepts.metrics import ConceptRanges, score_concepts
from quantus_concepts.metrics.host.model import ConceptModel, concept_importances, concept_outputs
from quantus_concepts.metrics.ray_workers import RAY
from quantus_concepts.metrics.streaming.rows import item_rows, mean_row, score_table
from quantus_concepts.studies._kit.charts import png
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.run import Run, Study, score_by_ranges
from quantus_concepts.studies._models.loading import batch_labels, better_normalised, collate, sample_loader
from quantus_concepts.studies._models.networks import Network, cut_network, load_network
from quantus_concepts.studies._models.subjects import (
    BACKBONE,
    ORACLE,
    POST_HOC,
    RANDOM,
    TRADITIONAL,
    bank_model,
    folded_batches,
    kept_images,
    oracle_model,
    random_models,
    small_backbone,
    traditional_model,
    train_networks,
    untrained_networks,
)
from quantus_concepts.studies._models.training import SmallResNet, load_trained, one_thread, quiet_fits
from quantus_concepts.studies.concepts.data_option import (
    DRAWING,
    SCORING,
    TRAINING,
    BenchmarkData,
    labels_by_class,
    load_data,
)
from quantus_concepts.studies.concepts.findings import PLAIN, SETTINGS, baseline_name, setting_name
from quantus_concepts.studies.concepts.options import ConceptOptions
from quantus_concepts.studies.concepts.report import page, summary_so_far


def draw_gallery(
    model: PostHocCBM, data: BenchmarkData, predicted: np.ndarray, seed: int, *, n_images: int = 5, n_wrong: int = 2
) -> Figure:
    """Draw some images with the concepts of the largest contributions to the predicted class."""
    labels = data.test.labels.numpy()
    right, wrong = (np.flatnonzero(chosen) for chosen in (labels == predicted, labels != predicted))
    rows = _different_classes(labels, right, n_images, seed)
    rows += _different_classes(labels, wrong, n_wrong + n_images - len(rows), seed)
    batch = collate([data.test[index] for index in rows])
    outputs = concept_outputs(model, batch.image)
    guessed = outputs.logits.argmax(1)
    weight = concept_importances(model, outputs.values, guessed, ("weight",))["weight"]
    ranked = rank_concepts(weight * outputs.values, min(4, len(data.concept_names)))
    with torch.no_grad(), alone_with(model):
        features = model.features(to_model(model, batch.image))
        maps = model.maps_from_features(features, ranked)
        # The class's evidence is the weighted sum of the concepts', in the scale the values have.
        scale = model.bank.norms if model.values == "margin" else torch.ones_like(model.bank.norms)
        class_maps = torch.einsum("nl,nlhw->nhw", weight / scale, model.maps_from_features(features))
    chosen = ranked.cpu()
    names = [[data.concept_names[j].removeprefix("has_").replace("::", ": ") for j in row] for row in chosen.tolist()]
    titles = [
        f"{'' if guess == label else 'WRONG '}true: {data.class_names[label]}\npredicted: {data.class_names[guess]}"
        for label, guess in zip(batch_labels(batch).tolist(), guessed.tolist(), strict=True)
    ]
    figure, _ = gallery(
        # A float image may be a hair outside [0, 1] after the normalisation is undone.
        _undo(batch.image, data.mean, data.std).clamp(0, 1),
        maps.cpu(),
        names,
        batch.concepts.gather(1, chosen) > 0.5,
        class_maps.cpu(),
        titles,
        absent=outputs.values.gather(1, ranked) < 0,
        contributions=(weight * outputs.values).gather(1, ranked),
    )
    return figure


def draw_explorer(model: PostHocCBM, controls: Sequence[PostHocCBM], data: BenchmarkData, n_images: int = 100) -> str:
    """Return the page that shows test images of all classes and on which their concepts can be corrected."""
    rows = np.linspace(0, len(data.test) - 1, min(n_images, len(data.test))).astype(int)
    batch = collate([data.test[int(row)] for row in rows])
    with_banks = model.with_head(model.head)
    heads: list[Any] = [control.head for control in controls]
    with_banks.random_banks = tuple(
        RandomBank(control.bank.cavs, control.bank.intercepts, head)
        for control, head in zip(controls, heads, strict=True)
    )
    return explore(
        with_banks,
        batch.image,
        labels=batch_labels(batch),
        concept_labels=batch.concepts > 0.5,
        points=batch.points if batch.points.numel() else None,
        part_of_concept=data.part_of_concept,
        class_names=data.class_names,
        pictures=_undo(batch.image, data.mean, data.std).clamp(0, 1),
        title="Concepts of the test images",
    ).html


def _different_classes(labels: np.ndarray, images: np.ndarray, count: int, seed: int) -> list[int]:
    order = np.random.default_rng(seed).permutation(images)
    by_class: dict[int, list[int]] = {}
    for index in order.tolist():
        by_class.setdefault(int(labels[index]), []).append(index)
    # First one image of each class, then the second ones, and so on.
    turns = itertools.zip_longest(*by_class.values())
    return [index for turn in turns for index in turn if index is not None][:count]


def _undo(images: Tensor, mean: Sequence[float] | None, std: Sequence[float] | None) -> Tensor:
    if mean is None or std is None:
        return images
    shape = (1, -1, 1, 1)
    return images * torch.tensor(std).view(shape) + torch.tensor(mean).view(shape)


def small_networks(run: Run[ConceptOptions], data: BenchmarkData, seed: int) -> tuple[SmallResNet, SmallResNet]:
    """Return a network trained on the classes and one trained on the concepts."""
    train, device = kept_images(data.train), run.options.torch_device()
    settings: dict[str, Any] = {"epochs": run.options.epochs, "bfloat16": run.options.in_bfloat16}
    networks = untrained_networks(train, seed, device)

    def train_both(_: object) -> dict[str, Tensor]:
        train_networks(networks, train, seed=seed, display_progressbar=run.progress, **settings)
        return nn.ModuleDict(networks).state_dict()

    parts = [train.images, train.labels, train.concept_labels]
    state = run.kept(f"networks {seed}", {"data": parts, "seed": seed, "device": str(device), **settings}, train_both)
    for name, network in networks.items():
        prefix = f"{name}."
        load_trained(network, {key.removeprefix(prefix): state[key] for key in state if key.startswith(prefix)})
    return networks[BACKBONE], networks[TRADITIONAL]


def scored_by_ranges(
    run: Run[ConceptOptions],
    models: Mapping[str, ConceptModel],
    data: BenchmarkData,
    seed: int,
    settings: Mapping[str, Any],
) -> pd.DataFrame:
    """Return what `score_concepts` does with these arguments, to the bit; ranges are of whole batches."""
    size, n_images = run.options.batch_size, len(data.test)
    names: dict[str, Any] = {"class_names": data.class_names, "concept_names": data.concept_names}
    ranges = ConceptRanges(models, data.test, batch_size=size, seed=seed, **settings, **names)
    scorers = [*models.values(), *itertools.chain(*settings["controls"].values())]
    starts = range(0, n_images, size)
    rows = score_by_ranges(
        run,
        f"concepts {seed}",
        lambda: lambda start, stop: ranges.rows(start * size, min(stop * size, n_images)),
        len(starts),
        fingerprint=run.options.identity() | {"seed": seed, "data": data.fingerprint, "models": scorers},
        shard_size=BATCHES,
        names=[f"image {start} ... {min(start + size, n_images) - 1}" for start in starts],
    )
    return ranges.table(rows)


#: Batches of a range, which are lost if a worker dies.
BATCHES = 2
TOPS = (1, 3, 5)
#: Images on which the maps of one random bank are scored, at least.
RANDOM_MAPS = 200


@dataclass(frozen=True)
class SeedModels:
    """The models of one seed, and what they were fitted to."""

    models: dict[str, ConceptModel]
    controls: list[PostHocCBM]
    post_hoc: PostHocCBM
    bank: ConceptBank
    backbone: Backbone
    train_set: Embeddings
    #: The classifier of the small network, where it is trained here.
    classifier: nn.Module | None


def score_seed(
    run: Run[ConceptOptions],
    network: Network | None,
    data: BenchmarkData,
    seed: int,
    *,
    first: bool,
    show_scores: Callable[[pd.DataFrame], object],
) -> pd.DataFrame:
    """Build the models of one seed and score them on the test images; show the scores before the sweep."""
    options = run.options
    # As training: what is done on each core, and so every number, does not depend on how many there are.
    n_cores = torch.get_num_threads() if network is None else 1
    with one_thread() if network is None else nullcontext(), quiet_fits():
        fitted = fit_models(run, network, data, seed)
        scores, test_features = score_images(run, network, data, seed, fitted, n_cores, first=first)
        show_scores(scores)
        if first:
            post_hoc = fitted.post_hoc
            predicted = predicted_classes(post_hoc.head, post_hoc.concept_layer(test_features))
            run.facts["gallery"] = png(draw_gallery(post_hoc, data, predicted, seed))
            if options.explore:
                run.facts["explorer"] = draw_explorer(post_hoc, fitted.controls, data).encode()
            run.facts |= {"linear pool": post_hoc.linear_pool, "by class": labels_by_class(data.train)}
            run.settings["concept bank"] = repr(fitted.bank)
        # The first table comes before what is not in it.
        with _step(seed, "trying other settings"):
            if options.sweep and options.method == "svm":
                scores = pd.concat([scores, sweep(run, data, seed, fitted, test_features)], ignore_index=True)
    return scores


def fit_models(run: Run[ConceptOptions], network: Network | None, data: BenchmarkData, seed: int) -> SeedModels:
    """Train the small networks, where no other is given, and fit the concept models and their random baselines."""
    options, device = run.options, run.options.torch_device()
    models: dict[str, ConceptModel] = {}
    if network is None:
        with part(f"seed {seed}: training", TRAINING):
            small, of_concepts = small_networks(run, data, seed)
        backbone = small_backbone(small)
        train_loader: Iterable[Any] = folded_batches(data.train, options.batch_size)
        run.settings["maps"] = "stride 8, before the average pool of the small network"
    else:
        train_loader = sample_loader(data.train, options.batch_size, options.readers)
        backbone, run.settings["maps"] = cut_network(network, options.layer, data.test[0].image[None].to(device))
    with _step(seed, "reading training images"):
        if network is None:
            models[TRADITIONAL] = traditional_model(of_concepts, train_loader, data.n_classes)
        train_set = embed(backbone, train_loader, display_progressbar=run.progress)
    with _step(seed, "fitting concepts"):
        banks = data.concept_names, data.n_classes, options.values
        controls = random_models(backbone, train_set, *banks, options.random_banks, seed)
        bank = fit_bank(train_set, data.concept_names, options, seed)
    if bank.weak:
        run.note(
            f"Seed {seed}: the directions of {len(bank.weak)} of {len(bank)} concepts are hardly distinguishable from "
            "chance on images held back, and say little."
        )
    models[POST_HOC] = post_hoc = bank_model(backbone, bank, train_set, data.n_classes, options.values)
    if data.has_oracle:
        models[ORACLE] = oracle_model(data.train, data.test, data.n_classes).to(device)
    classifier = small.classifier if network is None else None
    return SeedModels(models, controls, post_hoc, bank, backbone, train_set, classifier)


def score_images(
    run: Run[ConceptOptions],
    network: Network | None,
    data: BenchmarkData,
    seed: int,
    fitted: SeedModels,
    n_cores: int,
    *,
    first: bool,
) -> tuple[pd.DataFrame, Tensor]:
    """Return the scores of all models on the test images, and the images as the backbone embeds them."""
    options, n_concepts = run.options, len(data.concept_names)
    loader = sample_loader(data.test, options.batch_size, options.readers)
    settings: dict[str, Any] = {
        "part_of_concept": data.part_of_concept,
        "class_concepts": data.class_concepts,
        "top_l": tuple(top for top in TOPS if top <= n_concepts),
        "value_threshold": {TRADITIONAL: 0.5, POST_HOC: options.threshold, ORACLE: 0.5, RANDOM: options.threshold},
        "controls": {RANDOM: fitted.controls},
        # Which images they are counts for little compared with which bank it is, and maps take most of the time.
        "control_stride": max(1, len(data.test) // RANDOM_MAPS),
        "interventions": intervention_counts(n_concepts) if options.interventions else (),
        # Values of the other models lie between 0 and 1.
        "levels": {
            POST_HOC: fitted.post_hoc.value_levels(fitted.train_set),
            RANDOM: [control.value_levels(fitted.train_set) for control in fitted.controls],
        },
    }
    # Images are read once: what else is computed of them is recorded while they are scored.
    images = loader if network is None else _ClassifiedImages(loader, network.module, data.n_classes)
    with _step(seed, "scoring test images"):
        if options.engine == RAY:
            scores = scored_by_ranges(run, fitted.models, data, seed, settings)
            features = embed(fitted.backbone, images, display_progressbar=run.progress).features
        else:
            settings |= {"concept_names": data.concept_names, "class_names": data.class_names, "seed": seed}
            with _recorded(fitted.post_hoc.concept_layer) as embeddings:
                scores = score_concepts(
                    fitted.models, images, **settings, n_threads=n_cores, display_progressbar=run.progress
                )
            features = torch.cat(embeddings)
    plain: list[dict[str, Any]] = []
    if isinstance(images, _ClassifiedImages):
        plain = _plain_accuracy(run, images, data)
        if first and plain:
            run.note(*better_normalised(images.network, data.test, data.mean, data.std))
    elif fitted.classifier is not None:
        plain = accuracy_rows(data, predicted_classes(fitted.classifier, features), PLAIN)
    accuracy = fitted.bank.test_accuracy.double()
    directions = item_rows(accuracy, data.concept_names, model=POST_HOC, metric="CAV accuracy", item_kind="concept")
    scores = _with_undefined(pd.concat([scores, score_table(directions)], ignore_index=True), data.left_out)
    return pd.concat([score_table(plain), scores], ignore_index=True), features


#: Shares of the time of scoring a seed.
STEPS = {"reading training images": 5, "fitting concepts": 2, "scoring test images": 8, "trying other settings": 5}


def _step(seed: int, name: str) -> AbstractContextManager[None]:
    """Give one step of scoring its share of the bar."""
    return part(f"seed {seed}: {name}", SCORING * STEPS[name] / sum(STEPS.values()))


@contextmanager
def _recorded(module: nn.Module) -> Iterator[list[Tensor]]:
    """Record what a module is given, batch by batch."""
    batches: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: batches.append(inputs[0].detach().clone()))
    try:
        yield batches
    finally:
        hook.remove()


class _ClassifiedImages:
    """The batches of a loader, which a network's own classifier sees too, if it has the classes of the data."""

    def __init__(self, loader: DataLoader[ConceptSample], network: nn.Module, n_classes: int) -> None:
        self.loader, self.dataset, self.network, self.n_classes = loader, loader.dataset, network, n_classes
        self.predicted: list[np.ndarray] = []
        #: The network's output, where it is not one number for each class.
        self.other_output = ""

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[ConceptSample]:
        for batch in self.loader:
            if not self.other_output:
                self._classify(batch.image)
            yield batch

    @torch.no_grad()
    def _classify(self, images: Tensor) -> None:
        logits = self.network(images.to(device_of(self.network)))
        if isinstance(logits, Tensor) and logits.shape == (len(images), self.n_classes):
            self.predicted.append(logits.argmax(1).cpu().numpy())
        else:
            self.other_output = f"{logits.shape[-1]} outputs" if isinstance(logits, Tensor) else "output"


def _with_undefined(scores: pd.DataFrame, left_out: Sequence[str]) -> pd.DataFrame:
    """Return scores with an undefined one for each concept left out, where there is one for each concept."""
    by_concept = scores[(scores["item_kind"] == "concept") & (scores["item"] == "")]
    if not left_out or by_concept.empty:
        return scores
    undefined = by_concept.assign(value=np.nan, low=np.nan, high=np.nan, chance=np.nan, n=0, undefined=1)
    means = scores.index.isin(by_concept.index)
    scores = scores.assign(undefined=scores["undefined"] + len(left_out) * means)
    return pd.concat([scores, *(undefined.assign(item=name) for name in left_out)])


def fit_bank(
    train: Embeddings, names: Sequence[str], options: ConceptOptions, seed: int, **changed: Any
) -> ConceptBank:
    """Fit a concept bank to embeddings as the options say, but for what is changed."""
    settings: dict[str, Any] = {
        name: getattr(options, name) for name in ("method", "n_pos", "n_neg", "C", "min_images")
    }
    return ConceptBank.fit(train.features, train.concept_labels, names, seed=seed, **settings | changed)


@torch.no_grad()
def predicted_classes(head: nn.Module, inputs: Tensor) -> np.ndarray:
    """Return the classes (N,) that a head predicts for its inputs (N, L)."""
    return head(inputs).argmax(1).cpu().numpy()


def accuracy_rows(data: BenchmarkData, predicted: np.ndarray, model: str, **fields: Any) -> list[dict[str, Any]]:
    """Return the row of a class accuracy on the test images."""
    return [mean_row(data.test.labels.numpy() == predicted, None, model=model, metric="accuracy", **fields)]


def _plain_accuracy(run: Run[ConceptOptions], images: _ClassifiedImages, data: BenchmarkData) -> list[dict[str, Any]]:
    """Return the accuracy of the network's own classifier, where it has one for these classes."""
    if images.other_output:
        run.note(
            f"The backbone's own accuracy: not applicable. Its {images.other_output} are not the {data.n_classes} "
            "classes of the data."
        )
        return []
    return accuracy_rows(data, np.concatenate(images.predicted), PLAIN)


def sweep(
    run: Run[ConceptOptions], data: BenchmarkData, seed: int, fitted: SeedModels, test_features: Tensor
) -> pd.DataFrame:
    """Return the class accuracy for other settings of the bank: the cells of the paper's Table 3."""
    rows, train_set, options = [], fitted.train_set, run.options
    for strength, count in progress(SETTINGS, "settings", show=run.progress):
        bank = fit_bank(train_set, data.concept_names, options, seed, C=strength, n_pos=count, n_neg=count)
        layer = ConceptLayer(bank, options.values)
        head = fit_logistic(layer(train_set.features), train_set.labels, data.n_classes)
        predicted = predicted_classes(head, layer(test_features))
        item = setting_name(strength, count)
        rows += accuracy_rows(data, predicted, POST_HOC, item_kind="setting", item=item)
    return score_table(rows)


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
    with whole_run(options.n_seeds * share, show=run.progress) as bar:
        for number, data in enumerate(load_data(options, network)):
            seed = options.seed + number
            run.say(f"Seed {seed} ({number + 1} of {options.n_seeds})")
            run.settings |= data.settings
            run.note(*data.notes)
            score = partial(score_seed, run, network, data, seed, first=number == 0, show_scores=partial(show, seed))
            scores = run.kept_frame(f"scores {seed}", {"seed": seed, "data": data.fingerprint}, score)
            if seed not in shown_seeds:
                show(seed, scores)
            frames.append(_named(scores.assign(seed=seed)))
            bar.reach((number + 1) * share)
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
