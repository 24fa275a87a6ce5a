"""Post-hoc concept models of a backbone, trained on CUB-200-2011, and what they say of the images of SUB."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import torch

from captum_concepts.backbones import Backbone
from captum_concepts.bottleneck import BottleneckCBM
from captum_concepts.cbm import PostHocCBM
from captum_concepts.embedding import embed
from captum_concepts.heads import fit_logistic
from captum_concepts.reading import shortened
from quantus_concepts.datasets import CUB200, SUB
from quantus_concepts.datasets.base import ConceptDataset
from quantus_concepts.datasets.transforms import default_transform
from quantus_concepts.metrics.protocols import ConceptModel
from quantus_concepts.pasta.encoder import Encoder
from quantus_concepts.studies.concepts.evaluation import random_models
from quantus_concepts.studies.loading import sample_loader
from quantus_concepts.studies.networks import RESNET18_CUB, Network, cut_network, load_network
from quantus_concepts.studies.run import Run
from quantus_concepts.studies.substitution.concept_models import Recital
from quantus_concepts.studies.substitution.evaluation import ask, post_hoc, thresholds
from quantus_concepts.studies.substitution.names import (
    CLASS_HARD,
    IMAGE_HARD,
    RECITER,
    SAVED,
)
from quantus_concepts.studies.substitution.options import SubstitutionOptions
from quantus_concepts.studies.substitution.score_ranges import in_order, scored

#: Of a network that does not say.
IMAGE_SIZE = 224


def score_sub(run: Run[SubstitutionOptions], encoders: Mapping[str, Encoder]) -> pd.DataFrame:
    """Fit post-hoc models on the training images of CUB, and score them on SUB; T_A and T on CUB's test images."""
    options, bars = run.options, run.progress
    network = load_network(options.backbone or RESNET18_CUB, options.weights, **options.normalisation)
    network.module.to(options.torch_device())
    size = options.image_size or network.image_size or IMAGE_SIZE
    transform = default_transform(size, network.mode, network.mean, network.std)
    train, test = (
        CUB200(options.cub_root or "", split, transform=transform, class_concepts="majority")
        for split in ("train", "test")
    )
    sub = SUB(options.root or "", cub=train, transform=transform, per_pair=options.per_pair)
    backbone, run.settings["maps"] = cut_network(network, options.layer, sub[0].image[None].to(options.torch_device()))
    run.settings |= {"data": repr(sub), "backbone": network.source, "images": f"{size} px, {network.mode}"}
    # Before anything is fitted: a file that cannot be used is told at once.
    saved = {} if options.cbm is None else {SAVED: saved_model(options.cbm, backbone, network, train)}
    embedded = embed(backbone, sample_loader(train, options.batch_size), display_progressbar=bars)
    n_classes, device = len(train.class_names), embedded.features.device
    models: dict[str, ConceptModel] = {**saved}
    for labels, targets in (
        (CLASS_HARD, (train.class_concepts >= 0.5).float()[train.labels]),
        (IMAGE_HARD, train.concept_labels),
    ):
        labelled = embedded._replace(concept_labels=targets)
        models |= post_hoc(run, SUB.__name__, backbone, labelled, labels, train, options.seed)
    recital = Recital(fit_logistic(embedded.features, train.labels, n_classes), (train.class_concepts >= 0.5).float())
    models[RECITER] = BottleneckCBM(backbone, recital, recital.head(), activation=None).eval().to(device)
    random = random_models(
        backbone, embedded, train.concept_names, n_classes, "margin", options.random_banks, options.seed
    )
    seen = sample_loader(test, options.batch_size)
    scores = scored(run, SUB.__name__, models, random, sub, seen, thresholds(models))
    if not encoders:
        return scores
    # As they are: encoders bring their own preparation.
    plain = SUB(options.root or "", cub=train, per_pair=options.per_pair)
    asked = ask(encoders, in_order(plain, options.batch_size), show=bars)
    return pd.concat([scores, *asked], ignore_index=True)


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
        told = f", {shortened(', '.join(unknown))} among them" if unknown else " in another"
        raise ValueError(
            f"Expected argument `--cbm` to have the {len(train.concept_names)} concepts of CUB200 in their order but "
            f"it has {len(model.bank)}{told}. Fit it with `concept_names` of CUB200."
        )
    with torch.no_grad():
        n_classes = model.head(model.bank.cavs.new_zeros(1, len(model.bank))).shape[1]
    if n_classes != len(train.class_names):
        raise ValueError(
            f"Expected argument `--cbm` to have a head of the {len(train.class_names)} classes of CUB200 but its head "
            f"gives {n_classes}."
        )
    if model.values != "margin":
        raise ValueError(
            f"Expected argument `--cbm` to have margins for values, which are above 0 where a concept is present, but "
            f"it has {model.values} ones. Save it with `values='margin'`."
        )
    own = None if network.mean is None or network.std is None else (network.mean, network.std)
    if model.normalisation not in (None, own):
        raise ValueError(
            f"Expected argument `--cbm` to take images as the backbone does, {own} for mean and deviation, but it was "
            f"saved with {model.normalisation}. Give those with --mean and --std."
        )
    return model
