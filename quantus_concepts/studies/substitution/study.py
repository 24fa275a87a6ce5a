"""The study of substitutions: from its options to one tidy frame, a row a number."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from captum_concepts._support.files import shorten
from captum_concepts._support.progress import whole_run
from captum_concepts.backbones import Backbone
from captum_concepts.models.cbm import PostHocCBM
from quantus_concepts.datasets import CUB200, SUB
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.pasta.encoders.encoder import Encoder
from quantus_concepts.pasta.encoders.object_encoder import as_encoder
from quantus_concepts.studies._kit.command import named_as_typed
from quantus_concepts.studies._kit.run import Run, Study
from quantus_concepts.studies._models.concept_models import Recital
from quantus_concepts.studies._models.loading import KeptImages, sample_loader
from quantus_concepts.studies._models.networks import SMALL_NETWORK, Network, cut_network, load_network
from quantus_concepts.studies._models.subjects import BACKBONE, small_backbone
from quantus_concepts.studies._models.training import one_thread
from quantus_concepts.studies.substitution.evaluation import (
    DRAWING,
    SCORING,
    TRAINING,
    Models,
    Training,
    concept_models,
    pair_loader,
    score_encoders,
    score_models,
    score_point,
    train_networks,
)
from quantus_concepts.studies.substitution.options import CURVE, OF, POST_HOC, ROWS, SAVED, SubstitutionOptions
from quantus_concepts.studies.substitution.options import SUB as PUBLISHED
from quantus_concepts.studies.substitution.report import main_table, page

#: Default of networks without a size.
IMAGE_SIZE = 224


def score_sub(run: Run[SubstitutionOptions], encoders: Mapping[str, Encoder]) -> pd.DataFrame:
    """Make models of the training images of CUB, and score them on SUB; T_A and T on CUB's test images."""
    options = run.options
    small = options.trains
    network = SMALL_NETWORK if small else load_network(options.backbone_name, options.weights, **options.normalisation)
    size = options.image_size or network.image_size or IMAGE_SIZE
    transform = default_transform(size, network.mode, network.mean, network.std)
    train, test = (
        CUB200(options.cub_root or "", split, transform=transform, class_concepts="majority")
        for split in ("train", "test")
    )
    sub = SUB(options.root or "", cub=train, transform=transform, per_pair=options.per_pair)
    run.settings |= {"data": repr(sub), "backbone": network.source, "images": f"{size} px, {network.mode}"}
    n_threads = torch.get_num_threads()
    # As with painted birds, no number depends on how many cores there are.
    with one_thread() if small else nullcontext():
        if small:
            models, random = cub_models(run, train, n_threads)
        else:
            models, random = models_of_network(run, network, train, sub[0].image)
        seen = sample_loader(test, options.batch_size)
        scores = score_models(run, models, random, pair_loader(sub, options.batch_size), seen)
    if not encoders:
        return scores
    # Without the transform: encoders prepare images themselves.
    plain = SUB(options.root or "", cub=train, per_pair=options.per_pair)
    tables = score_encoders(encoders, pair_loader(plain, options.batch_size), show=run.progress)
    return pd.concat([scores, *tables], ignore_index=True)


def cub_models(run: Run[SubstitutionOptions], train: CUB200, n_threads: int) -> Models:
    """Train the networks of painted birds on the images of CUB, kept in memory, and make the same models of them."""
    # Six thousand small images of 8 bits fit into memory.
    training, seed = class_training(train, KeptImages(train)), run.options.seed
    networks = train_networks(run, training, ROWS, seed, n_threads)
    small: Any = networks[BACKBONE, ""]
    recital = Recital(small.classifier, training.class_concepts)
    return concept_models(run, SUB.__name__, training, small_backbone(small), recital, ROWS, networks, seed)


def models_of_network(run: Run[SubstitutionOptions], network: Network, train: CUB200, image: Tensor) -> Models:
    """Fit post-hoc models of a network that is used as it is, and read the one that was saved."""
    options = run.options
    network.module.to(options.torch_device())
    backbone, run.settings["maps"] = cut_network(network, options.layer, image[None].to(options.torch_device()))
    # Before anything is fitted: a file that cannot be used raises now.
    saved = {} if options.cbm is None else {SAVED: saved_model(options.cbm, backbone, network, train)}
    training, rows = class_training(train, train), {POST_HOC: ROWS[POST_HOC]}
    models, random = concept_models(run, SUB.__name__, training, backbone, None, rows, {}, options.seed)
    return models | saved, random


def class_training(train: CUB200, images: ConceptDataset) -> Training:
    """Return images with the concepts of their classes: those that the majority votes for, and the shares of marks."""
    members = one_hot(train.labels, len(train.class_names)).float()
    return Training(images, train.class_concepts, (members.T @ train.concept_labels) / members.sum(0)[:, None])


def saved_model(path: Path, backbone: Backbone, network: Network, train: ConceptDataset) -> PostHocCBM:
    """Read a post-hoc model of the backbone, whose values are margins of CUB's concepts."""
    try:
        model = PostHocCBM.load(path, backbone).eval()
    except ValueError as error:
        reason, _, of_backbone = str(error).partition(" Give that one")
        remedy = " Name it with --backbone, --layer and --weights." if of_backbone else ""
        raise ValueError(f"Argument `--cbm` names what cannot be used. {reason}{remedy}") from error
    if model.bank.names != train.concept_names:
        unknown = [name for name in model.bank.names if name not in set(train.concept_names)]
        text = f", {shorten(', '.join(unknown))} among them" if unknown else " in another"
        raise ValueError(
            f"Expected argument `--cbm` to have the {len(train.concept_names)} concepts of CUB200 in their order but "
            f"it has {len(model.bank)}{text}. Fit it with `concept_names` of CUB200."
        )
    with torch.no_grad():
        n_classes = model.head(model.bank.cavs.new_zeros(1, len(model.bank))).shape[1]
    normalisation = None if network.mean is None or network.std is None else (network.mean, network.std)
    of_model = model.normalisation or normalisation
    for what, expected, actual, remedy in (
        ("classes of CUB200 in its head", len(train.class_names), n_classes, "Fit the head to CUB200."),
        ("for values, above 0 where a concept is", "margin", model.values, "Make it with `values='margin'`."),
        ("for mean and deviation of images", normalisation, of_model, "Give its own with --mean and --std."),
    ):
        if actual != expected:
            raise ValueError(f"Expected argument `--cbm` to have {expected} {what}, but it has {actual}. {remedy}")
    return model


COLUMNS = ["model", "labels", "correlation", "metric", "item_kind", "item"]
COLUMNS += ["value", "low", "high", "n", "undefined", "chance", "seed"]


@named_as_typed(SubstitutionOptions, encoder="--encoders", features="--backbone")
def collect(options: SubstitutionOptions, run: Run[SubstitutionOptions]) -> pd.DataFrame:
    """Train and score the models of every seed and correlation, those of the main table first."""
    # That of the main table first.
    correlations = dict.fromkeys((options.correlation, *options.curve))
    points = [(options.seed + number, correlation) for number in range(options.seeds) for correlation in correlations]
    # An unknown name raises before any work.
    names = [] if options.encoders is None else [name.strip() for name in options.encoders.split(",")]
    encoders = {name: as_encoder(name, device=options.torch_device()) for name in names}
    frames: list[pd.DataFrame] = []
    share = DRAWING + TRAINING + SCORING
    with whole_run(len(points) * share, show=run.progress) as bar:
        for number, (seed, correlation) in enumerate(points):
            run.say(f"Seed {seed}, correlation {correlation:g} ({number + 1} of {len(points)})")
            main = correlation == options.correlation
            if options.data == PUBLISHED:
                score = partial(score_sub, run, encoders)
            else:
                rows = ROWS if main else CURVE
                score = partial(score_point, run, encoders if main else {}, seed, correlation, rows, first=number == 0)
            scores = run.kept_frame(f"scores {seed} {correlation:g}", {"seed": seed, "correlation": correlation}, score)
            parts = scores["model"].str.partition(OF)
            # Single attributes, groups and classes only with the metrics of the page.
            scores = scores[(scores["item"] == "") | scores["metric"].isin(("S+", "S-", "original"))]
            frames.append(scores.assign(model=parts[0], labels=parts[2], correlation=correlation, seed=seed)[COLUMNS])
            bar.reach((number + 1) * share)
            if main and number + 1 < len(points):
                run.show(main_table(pd.concat(frames, ignore_index=True), options))
    return pd.concat(frames, ignore_index=True)


STUDY = Study("substitution", collect, page)
