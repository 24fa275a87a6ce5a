"""Pairs of explanations before and after a perturbation, as people were shown for questions Q5 and Q6."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.support.checks import (
    check_axes,
    check_choice,
    check_range,
    check_whole,
    to_class_indices,
    to_numpy,
)
from captum_concepts.support.running import evaluation_mode, predict_logits, progress, to_model, warn_user
from captum_concepts.texts import in_one_line
from quantus_concepts.pasta.applications.perturbations import LARGEST, SEED, Perturbation, as_perturbations
from quantus_concepts.pasta.encoders.encoder import Denormalisation, check_image_form

#: The two questions about change.
QUESTIONS_OF_CHANGE = ("Q5", "Q6")


@in_one_line
@dataclass(frozen=True)
class RobustnessPairs:
    """Images with their explanations, before and after a perturbation; everything on the CPU.

    Attributes
    ----------
    question : str
        "Q5" or "Q6".
    images : Tensor
        (n, 3, H, W), in [0, 1], as people see them.
    perturbed : Tensor
        (n, 3, H, W), in [0, 1].
    explanations : np.ndarray
        (n, ...) of the images, as the explanation function gives them, for the predicted class.
    perturbed_explanations : np.ndarray
        (n, ...) of the perturbed images, for the class predicted there.
    predictions : np.ndarray
        (n,) of int64, predicted classes of the images.
    perturbed_predictions : np.ndarray
        (n,) of int64, of the perturbed images.
    names : tuple of str
        n names of the perturbations.
    magnitudes : np.ndarray
        (n,), how strong they are.
    indices : np.ndarray
        (n,) of int64, which of the images given these are, ascending.
    n_wrong : int
        Images left out because they were misclassified before any perturbation.
    n_unmatched : int
        Images left out because no perturbation did what the question asks.
    """

    question: str
    images: Tensor
    perturbed: Tensor
    explanations: np.ndarray
    perturbed_explanations: np.ndarray
    predictions: np.ndarray
    perturbed_predictions: np.ndarray
    names: tuple[str, ...]
    magnitudes: np.ndarray
    indices: np.ndarray
    n_wrong: int
    n_unmatched: int

    def __len__(self) -> int:
        return len(self.indices)


def robustness_pairs(
    model: nn.Module,
    images: Tensor | ArrayLike,
    labels: Tensor | ArrayLike | None,
    explain_func: Callable[..., Any],
    *,
    question: str,
    perturbations: Iterable[str | Perturbation] | None = None,
    magnitude: float | None = None,
    seed: int = SEED,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    batch_size: int = 64,
    display_progressbar: bool = False,
) -> RobustnessPairs:
    """Perturb images as the two questions about change ask, and explain them before and after.

    Kazmierczak et al., "PASTA", Appendix A.2 and Figure 15.

    - Q5: a light perturbation that leaves the prediction as it is. The explanation should stay: a low rating is good.
    - Q6: a strong perturbation that changes the prediction. The explanation should change with it.

    Both start from images that are classified correctly; the paper says "bad predictions" of Q6, which those
    of the perturbed images then are. For each image the perturbations are tried in an order drawn at random, until one
    does what the question asks; each has one strength, and what else is left to chance depends on the seed, the
    perturbation and the place of the image, and not on the batch.

    Parameters
    ----------
    model : nn.Module
        Classifier, (N, 3, H, W) to (N, K). It is in eval mode meanwhile, stays on its device, and gets its flags back.
    images : array or tensor
        (N, 3, H, W), as the model takes them.
    labels : array_like or None
        (N,) true classes, as indices or one-hot (N, K); None takes every image, whatever is predicted.
    explain_func : callable
        ``explain_func(model=, inputs=, targets=)`` with arrays, as of Quantus, to (N, ...):
        `captum_concepts.explain_func` makes one, and so does ``functools.partial(quantus.explain, method=...)``.
    question : {"Q5", "Q6"}
        Which of the two.
    perturbations : iterable of str or Perturbation, optional
        Those tried; all of `PERTURBATIONS` by default.
    magnitude : float, optional
        Magnitude of all perturbations, above 0; by default each has its own, `light` for Q5 and `strong` for Q6.
    seed : int
        Random seed of what is left to chance. No global generator is touched.
    mean : sequence of float, optional
        Mean of the normalisation of the images, a number for each channel: perturbations work on images in [0, 1].
    std : sequence of float, optional
        Likewise.
    batch_size : int
        Batch size.
    display_progressbar : bool
        Whether to show progress.

    Returns
    -------
    RobustnessPairs
        Without the images that were wrong or for which no perturbation was found, which are counted. There may be no
        pair at all, of which is warned.

    Raises
    ------
    TypeError
        If images are not floating.
    ValueError
        If an argument has a wrong shape, is out of range, images are not in [0, 1] once the normalisation is undone, or
        the explanation function does not return one explanation for each image.
    """
    images = torch.as_tensor(images if isinstance(images, Tensor) else np.ascontiguousarray(images)).detach()
    check_image_form(images)
    truth = None if labels is None else to_class_indices("labels", labels).cpu()
    check_axes(images=(images, "N ..."), labels=(truth, "N"))
    check_choice("question", question, QUESTIONS_OF_CHANGE)
    if magnitude is not None:
        check_range("magnitude", magnitude, 0, LARGEST, open_low=True)
    batch_size = check_whole("batch_size", batch_size, 1)
    n = len(images)
    denormalise = Denormalisation(mean, std)
    for rows in _batches(np.arange(n), batch_size):
        # A wrong range raises before the model runs.
        denormalise.check(images[rows], "images")
    chosen = as_perturbations(perturbations)
    keep = question == "Q5"
    magnitudes = np.array([magnitude or (change.light if keep else change.strong) for change in chosen], dtype=float)
    with evaluation_mode(model):
        predictions = np.zeros(n, dtype=np.int64)
        for rows in _batches(np.arange(n), batch_size):
            predictions[rows] = _predict(model, images[rows])
        eligible = np.arange(n) if truth is None else np.flatnonzero(predictions == truth.numpy())
        # Row by row, so that the order of an image does not depend on how many follow it.
        order = np.random.default_rng([seed, 0]).random((n, len(chosen))).argsort(1)
        draws = [perturbation.draws(n, seed) for perturbation in chosen]
        which = np.full(n, -1)
        perturbed, perturbed_predictions = torch.zeros(images.shape), predictions.copy()
        remaining = eligible
        with progress(description="Perturbations", total=len(eligible), show=display_progressbar, leave=True) as bar:
            for turn in range(len(chosen)):
                for rows in _batches(remaining, batch_size):
                    pixels = denormalise(to_model(model, images[rows]), checked=True)
                    for k in np.unique(order[rows, turn]):
                        part = order[rows, turn] == k
                        places = torch.as_tensor(part)
                        pixels[places] = chosen[k](pixels[places], float(magnitudes[k]), draws=draws[k][rows[part]])
                    now = _predict(model, denormalise.renormalise(pixels).to(images.dtype))
                    suits = (now == predictions[rows]) == keep
                    matched = rows[suits]
                    which[matched], perturbed_predictions[matched] = order[matched, turn], now[suits]
                    perturbed[matched] = pixels[torch.as_tensor(suits)].cpu()
                    bar.update(len(matched))
                remaining = remaining[which[remaining] < 0]
        indices = np.flatnonzero(which >= 0)
        if not len(indices):
            warn_user(
                f"No image has a perturbation that suits {question}: {n - len(eligible)} of {n} are misclassified, and "
                f"no perturbation {'keeps' if keep else 'changes'} the prediction of the others. Try "
                f"{'a smaller' if keep else 'a larger'} `magnitude` or more `perturbations`."
            )
        perturbed = perturbed[indices]
        inputs = denormalise.renormalise(perturbed).to(images.dtype)
        explanations, perturbed_explanations = (
            _explain(explain_func, model, explained, targets[indices], batch_size)
            for explained, targets in ((images[indices], predictions), (inputs, perturbed_predictions))
        )
    return RobustnessPairs(
        question=question,
        images=denormalise(images[indices], checked=True).cpu(),
        perturbed=perturbed,
        explanations=explanations,
        perturbed_explanations=perturbed_explanations,
        predictions=predictions[indices],
        perturbed_predictions=perturbed_predictions[indices],
        names=tuple(chosen[k].name for k in which[indices]),
        magnitudes=magnitudes[which[indices]],
        indices=indices,
        n_wrong=n - len(eligible),
        n_unmatched=len(eligible) - len(indices),
    )


def _predict(model: nn.Module, inputs: Tensor) -> np.ndarray:
    outputs = predict_logits(model, inputs)
    if outputs.ndim != 2 or len(outputs) != len(inputs):
        shape = tuple(outputs.shape)
        raise ValueError(f"Expected argument `model` to return shape (N, K) with N = {len(inputs)} but got {shape}.")
    return outputs.argmax(1).cpu().numpy()


def _explain(
    explain_func: Callable[..., Any], model: nn.Module, inputs: Tensor, targets: np.ndarray, batch_size: int
) -> np.ndarray:
    """Return the explanations (n, ...) of inputs, batch by batch; (0,) where there are none."""
    parts = []
    array = to_numpy(inputs)
    for rows in _batches(np.arange(len(array)), batch_size):
        part = to_numpy(explain_func(model=model, inputs=array[rows], targets=targets[rows]))
        if part.ndim == 0 or len(part) != len(rows):
            raise ValueError(
                f"Expected argument `explain_func` to return an explanation for each of {len(rows)} images but got an "
                f"array of shape {part.shape}."
            )
        parts.append(part)
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.float32)


def _batches(rows: np.ndarray, batch_size: int) -> list[np.ndarray]:
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
