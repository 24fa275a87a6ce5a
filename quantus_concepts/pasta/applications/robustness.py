"""Pairs of explanations before and after a perturbation, as people were shown for questions Q5 and Q6."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
    search = _Search(
        model, images, question == "Q5", as_perturbations(perturbations), magnitude, seed, denormalise, batch_size
    )
    with evaluation_mode(model):
        predictions = search.predict_all()
        eligible = np.arange(n) if truth is None else np.flatnonzero(predictions == truth.numpy())
        pairs = search.run(eligible, predictions, display_progressbar)
        if not len(pairs.rows):
            warn_user(
                f"No image has a perturbation that suits {question}: {n - len(eligible)} of {n} are misclassified, and "
                f"no perturbation {'keeps' if search.keep else 'changes'} the prediction of the others. Try "
                f"{'a smaller' if search.keep else 'a larger'} `magnitude` or more `perturbations`."
            )
        explanations, perturbed_explanations = (
            _explain(explain_func, model, inputs, targets, batch_size)
            for inputs, targets in (
                (images[pairs.rows], predictions[pairs.rows]),
                (search.as_input(pairs.perturbed), pairs.predictions),
            )
        )
    return RobustnessPairs(
        question=question,
        images=denormalise(images[pairs.rows], "images").cpu() if len(pairs.rows) else pairs.perturbed,
        perturbed=pairs.perturbed,
        explanations=explanations,
        perturbed_explanations=perturbed_explanations,
        predictions=predictions[pairs.rows],
        perturbed_predictions=pairs.predictions,
        names=tuple(search.perturbations[k].name for k in pairs.which),
        magnitudes=search.magnitudes[pairs.which],
        indices=pairs.rows,
        n_wrong=n - len(eligible),
        n_unmatched=len(eligible) - len(pairs.rows),
    )


class _Matches(NamedTuple):
    """The images (rows) with a suitable perturbation, which one it is, and the perturbed images."""

    rows: np.ndarray
    which: np.ndarray
    perturbed: Tensor
    predictions: np.ndarray


@dataclass
class _Search:
    """The search for a perturbation of each image that keeps, or changes, the prediction."""

    model: nn.Module
    images: Tensor
    keep: bool
    perturbations: tuple[Perturbation, ...]
    magnitude: float | None
    seed: int
    denormalise: Denormalisation
    batch_size: int

    def __post_init__(self) -> None:
        defaults = [change.light if self.keep else change.strong for change in self.perturbations]
        magnitudes = defaults if self.magnitude is None else [self.magnitude] * len(defaults)
        self.magnitudes = np.array(magnitudes, dtype=np.float64)
        generator = np.random.default_rng([self.seed, 0])
        # Row by row, so that the order of an image does not depend on how many follow it.
        self.order = generator.random((len(self.images), len(defaults))).argsort(1)
        self.draws = [change.draws(len(self.images), self.seed) for change in self.perturbations]

    def predict_all(self) -> np.ndarray:
        """Return the predictions (N,) for the images as they are."""
        batches = _batches(np.arange(len(self.images)), self.batch_size)
        predictions = [self._predict(self.images[rows]) for rows in batches]
        return np.concatenate([np.zeros(0, dtype=np.int64), *predictions])

    def run(self, eligible: np.ndarray, predictions: np.ndarray, display_progressbar: bool) -> _Matches:
        """Try the perturbations of each image in its order until one suits."""
        which = np.full(len(self.images), -1)
        after = np.zeros(len(self.images), dtype=np.int64)
        matches: list[tuple[np.ndarray, Tensor]] = [(eligible[:0], torch.zeros(0, *self.images.shape[1:]))]
        remaining = eligible
        with progress(description="Perturbations", total=len(eligible), show=display_progressbar, leave=True) as bar:
            for turn in range(len(self.perturbations)):
                for rows in _batches(remaining, self.batch_size):
                    changed = self._perturb(rows, self.order[rows, turn])
                    now = self._predict(self.as_input(changed))
                    suits = (now == predictions[rows]) == self.keep
                    which[rows[suits]] = self.order[rows[suits], turn]
                    after[rows] = now
                    matches.append((rows[suits], changed[torch.as_tensor(suits)].cpu()))
                    bar.update(int(suits.sum()))
                remaining = remaining[which[remaining] < 0]
        rows = np.concatenate([batch for batch, _ in matches])
        order = rows.argsort()
        perturbed = torch.cat([images for _, images in matches])[torch.as_tensor(order)]
        rows = rows[order]
        return _Matches(rows, which[rows], perturbed, after[rows])

    def as_input(self, pixels: Tensor) -> Tensor:
        """Return images in [0, 1] as the model takes them."""
        return self.denormalise.renormalise(pixels).to(self.images.dtype)

    def _perturb(self, rows: np.ndarray, which: np.ndarray) -> Tensor:
        """Return images (n, 3, H, W) in [0, 1], each perturbed in its own way, on the model's device."""
        pixels = self.denormalise(to_model(self.model, self.images[rows]), "images")
        changed = torch.empty_like(pixels)
        for k in np.unique(which):
            part = torch.as_tensor(np.flatnonzero(which == k))
            draws = self.draws[k][rows[which == k]]
            changed[part] = self.perturbations[k](pixels[part], float(self.magnitudes[k]), draws=draws)
        return changed

    def _predict(self, inputs: Tensor) -> np.ndarray:
        outputs = predict_logits(self.model, inputs)
        if outputs.ndim != 2 or len(outputs) != len(inputs):
            shape = tuple(outputs.shape)
            raise ValueError(
                f"Expected argument `model` to return shape (N, K) with N = {len(inputs)} but got {shape}."
            )
        return outputs.argmax(1).cpu().numpy()


def _explain(
    explain_func: Callable[..., Any], model: nn.Module, inputs: Tensor, targets: np.ndarray, batch_size: int
) -> np.ndarray:
    """Return the explanations (n, ...) of inputs, batch by batch; (0,) where there are none."""
    parts = [np.zeros(0, dtype=np.float32)]
    array = to_numpy(inputs)
    for rows in _batches(np.arange(len(array)), batch_size):
        part = to_numpy(explain_func(model=model, inputs=array[rows], targets=targets[rows]))
        if part.ndim == 0 or len(part) != len(rows):
            raise ValueError(
                f"Expected argument `explain_func` to return an explanation for each of {len(rows)} images but got an "
                f"array of shape {part.shape}."
            )
        parts.append(part)
    return np.concatenate(parts[1:]) if len(parts) > 1 else parts[0]


def _batches(rows: np.ndarray, batch_size: int) -> list[np.ndarray]:
    return [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]
