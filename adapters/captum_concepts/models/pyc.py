"""Concept bottleneck models of PyC (pytorch-concepts 1.0) as chains of three models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from captum_concepts._support.checks import check_choice
from captum_concepts._support.constraints import POOL, Function, Module, check_arguments
from captum_concepts._support.running import evaluation_mode, to_model
from captum_concepts.backbones.backbone import unwrap
from captum_concepts.backbones.pooling import Maps, Pool, Pooling, check_concepts, resolve_stages
from captum_concepts.models.bottleneck import BottleneckCBM

_BUILD = (
    "Build the chain of its parts yourself: BottleneckCBM(features, concept_layer, head), with `features` the "
    "backbone, `concept_layer` from the latent (N, d) to the concepts' logits (N, L), and `head` from concept values "
    "(N, L) to class logits (N, K)."
)

_EMBEDDINGS = (
    "Its tasks read embeddings of the image besides the concept values, so no head reads the values alone. What each "
    "concept contributes is its value times the gradient of model(query=[task], evidence={'input': images, 'concepts': "
    "values}) by it: give that to quantus.evaluate as an explanation of `x_batch=values`, or to "
    "quantus_concepts.functional.cem and cgim."
)


@check_arguments(model=Module(), pool=POOL, maps=Function())
def from_pyc(
    model: nn.Module, features: Any = None, pool: Pool = "mean", maps: Maps | None = None, *, task: str | None = None
) -> BottleneckCBM:
    """Present a PyC concept bottleneck model as images, or rows of a table, to concept values to classes.

    Concept values are the probabilities of its binary concepts, and those of every state of its categorical ones (a
    shape of three states is three values), in the order of ``model.intermediate_concept_names``; interventions know
    them by name, "red" and "shape::0". The classes are those of one task. Both are taken from the model by its own
    queries, so that training it changes the chain. Maps are Eq. 2 of Aysel et al. 2025 with the weights of the model's
    linear encoder.

    Parameters
    ----------
    model : nn.Module
        A ``torch_concepts.nn.ConceptBottleneckModel`` that infers by its ``DeterministicInference``.
    features : nn.Module or Backbone, optional
        Its backbone cut before the pooling, of which the embedding is the model's latent: needed for maps only. By
        default ``model.backbone``, whose latent has no places.
    pool : "mean" or callable
        As in `PostHocCBM`.
    maps : callable, optional
        As in `PostHocCBM`.
    task : str, optional
        Which task, where the model has several. A binary one becomes two classes, of logits 0 and its own.

    Returns
    -------
    BottleneckCBM
        Sharing the modules of `model`; its state dict names them several times, so save that of `model`.

    Raises
    ------
    TypeError
        If a stage is not a module.
    ValueError
        If the model is of another kind (those of embeddings or graphs have no head that reads values alone), has a
        continuous concept, infers in another way, or has several tasks and none is chosen; or if `features`, run
        on two made inputs, do not give its latent.

    Examples
    --------
    >>> import quantus, quantus_concepts  # doctest: +SKIP
    >>> chain = from_pyc(model)  # doctest: +SKIP
    >>> metrics = {"CGIM": quantus_concepts.CGIM(class_concepts)}  # doctest: +SKIP
    """
    network: Any = unwrap(model, lightning=False)
    _check_kind(network)
    concepts = list(network.intermediate_concept_names)
    annotations = network.concept_annotations
    states = {name: _states(annotations.concept(name)) for name in concepts}
    other = [name for name, state_names in states.items() if not state_names]
    if other:
        raise ValueError(
            f"Expected argument `model` to have binary or categorical concepts but {other[:3]} ({len(other)} in all) "
            f"are of another type ({annotations.concept(other[0]).type!r} for one). {_BUILD}"
        )
    if task is None and len(network.task_names) > 1:
        raise ValueError(
            f"Expected argument `task` to name one of the tasks of the model, {list(network.task_names)}, but got None."
        )
    task = network.task_names[0] if task is None else task
    check_choice("task", task, network.task_names)
    if features is None:
        features = network.backbone
    else:
        _check_latent(network, *resolve_stages(features, pool, maps))
    layer = PycConcepts(network, concepts, sum(map(len, states.values())))
    head = PycHead(network, states, task)
    chain = BottleneckCBM(features, layer, head, pool, maps, PycProbabilities(list(map(len, states.values()))))
    named: Any = chain.concept_layer
    named.names = [name for state_names in states.values() for name in state_names]
    pooling = chain.pooling

    def project(features: Tensor, indices: Any) -> Tensor:
        return layer.maps(pooling.feature_maps(features), indices)

    chain.project = project
    return chain


class PycConcepts(nn.Module):
    """The latent (N, d) to the logits of the concepts (N, L)."""

    def __init__(self, model: Any, concepts: list[str], width: int) -> None:
        super().__init__()
        self.model = model
        self.concepts = concepts
        self.out_features = width
        self.training = model.training

    def forward(self, latent: Tensor) -> Tensor:
        """Return the logits, as the model's encoder computes them."""
        output = self.model(query=self.concepts, evidence={"latent": latent})
        return torch.cat([_as_tensor(output.logits[name]) for name in self.concepts], dim=1)

    def maps(self, maps: Tensor, indices: Any) -> Tensor:
        """Return what each place alone would add to each logit, over d: Eq. 2 with the encoder's weights."""
        n, d, h, w = maps.shape
        places = torch.cat([maps.movedim(1, -1).reshape(-1, d), maps.new_zeros(1, d)])
        logits = self(places)
        concept_maps = ((logits[:-1] - logits[-1]) / d).reshape(n, h, w, -1).movedim(-1, 1)
        if indices is None:
            return concept_maps
        rows = check_concepts(indices, n, self.out_features).to(concept_maps.device)
        rows = rows.expand(n, -1) if rows.ndim == 1 else rows
        return concept_maps.gather(1, rows[:, :, None, None].expand(-1, -1, h, w))


class PycProbabilities(nn.Sigmoid):
    """The logits (N, L) of concepts to probabilities: one for a binary concept, one of each state for another."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.widths = widths

    def forward(self, logits: Tensor) -> Tensor:
        """Return the probabilities, as the model's inference has them."""
        parts = logits.split(self.widths, 1)
        return torch.cat([part.sigmoid() if part.shape[1] == 1 else part.softmax(1) for part in parts], 1)


class PycHead(nn.Module):
    """Concept values (N, L) to the class logits (N, K) of a task."""

    def __init__(self, model: Any, states: dict[str, list[str]], task: str) -> None:
        super().__init__()
        self.model = model
        self.task = task
        self.training = model.training
        # Concepts of a kind are one variable, whose members are columns, as many as they have states.
        names = [name for name, state_names in states.items() for _ in state_names]
        variables = (variable for variable in model.pgm.variables.values() if variable.variable_type == "concept")
        self.columns = {
            variable.name: [column for name in variable.members for column, of in enumerate(names) if of == name]
            for variable in variables
            if {*variable.members} <= {*states}
        }

    def forward(self, values: Tensor) -> Tensor:
        """Return the logits, as the model's predictor computes them."""
        evidence = {name: values[:, columns] for name, columns in self.columns.items()}
        logits = _as_tensor(self.model(query=[self.task], evidence=evidence).logits[self.task])
        return torch.cat([torch.zeros_like(logits), logits], 1) if logits.shape[1] == 1 else logits


def _check_latent(model: Any, features: nn.Module, pooling: Pooling) -> None:
    """Raise where features, pooled, are not the latent of the model: a wrong cut gives numbers that look right."""
    size = model.input_size if isinstance(model.input_size, Sequence) else (model.input_size,)
    if features is model:
        raise ValueError("Expected argument `features` to be the backbone of the model, cut, but got the whole model.")
    inputs = torch.rand(2, *size, generator=torch.Generator().manual_seed(0))
    with evaluation_mode(model), evaluation_mode(features), torch.no_grad():
        latent = model.backbone(to_model(model, inputs))
        embedding = pooling(features(to_model(features, inputs)))
    scale = float(latent.abs().max())
    if embedding.shape != latent.shape or not torch.allclose(embedding, latent, rtol=1e-2, atol=1e-3 * scale):
        raise ValueError(
            f"Expected argument `features`, pooled, to give the latent (N, {latent.shape[1]}) of `model.backbone` but "
            f"got something else, of width {embedding.shape[1]}. Cut the backbone right before its pooling, "
            "`model.backbone[:-2]` for instance, and where that is no mean pass it as `pool`."
        )


def _states(concept: Any) -> list[str]:
    """Return the names of the values of a concept; none where they are no probabilities."""
    if concept.is_binary:
        return [concept.name]
    states = (concept.states or range(concept.cardinality)) if concept.is_categorical else ()
    return [f"{concept.name}::{state}" for state in states]


def _as_tensor(output: Any) -> Tensor:
    return output.tensor if hasattr(output, "tensor") else output


def _check_kind(model: Any) -> None:
    kinds = {kind.__name__ for kind in type(model).__mro__ if kind.__module__.startswith("torch_concepts.")}
    if "ConceptBottleneckModel" not in kinds:
        raise ValueError(
            f"Expected argument `model` to be a torch_concepts.nn.ConceptBottleneckModel but got "
            f"{type(model).__name__}. {_EMBEDDINGS if 'ConceptEmbeddingModel' in kinds else _BUILD}"
        )
    engine = type(model.eval_inference).__name__
    if engine != "DeterministicInference":
        raise ValueError(
            f"Expected argument `model` to infer by DeterministicInference, in which tasks read the probabilities of "
            f"concepts, but it infers by {engine}. Call `model.setup_inference(DeterministicInference)`."
        )
