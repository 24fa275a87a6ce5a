"""Whether an explanation method gives again what it gave: metrics that explain twice need the same method."""

from __future__ import annotations

import numpy as np

from quantus_concepts.metrics.host.explanations import Explanations

N_CHECKED = 2
#: Least correlation with the given explanations of a deterministic method; rounding differs with the batch.
SAME = 0.99
#: Correlation of two calls from which on a method counts as deterministic.
REPEATED = 0.9999
#: Part of Quantus's error for a method that it does not have.
UNKNOWN_TO_QUANTUS = "XAI method is not in the list"


def disagreement(explain: Explanations, least: float) -> str:
    """Explain two of the given samples again; return why the method is another one, "" where it is not."""
    rows = sample_indices(explain.given) if explain.given is not None and least > -1 else np.empty(0, int)
    if explain.given is None or not rows.size:
        return ""
    given = explain.given[rows]
    again, failure = explain.compute(explain.call.model, explain.x_batch[rows], explain.y_batch[rows])
    if not failure and again.size != given.size:
        failure = f"it gave attributions of shape {again.shape[1:]} in place of {given.shape[1:]}"
    measured = mean_pixel_correlation(given, again)
    if least <= measured < SAME:
        # A method that gives the same in another order is deterministic: it has to repeat the given explanations.
        mirrored, _ = explain.compute(explain.call.model, explain.x_batch[rows[::-1]], explain.y_batch[rows[::-1]])
        if mean_pixel_correlation(again, mirrored[::-1]) > REPEATED:
            least = SAME
    if not failure and measured >= least:
        return ""
    other = f"it gave other attributions than before (correlation {measured:.2f}, at least {least:g} wanted)"
    answer = failure or other
    what_to_do = (
        "`quantus.evaluate` asks again under the key of `xai_methods`, so that key and method have to be alike: "
        'write {"Saliency": {"method": "Saliency"}}; give a callable in place of an array'
    )
    if UNKNOWN_TO_QUANTUS in failure:
        answer = f"it was unknown: Quantus has no method {explain.call.explain_func_kwargs.get('method')!r}"
        what_to_do += ", and for a key of your own, as `captum_concepts.explain_func` makes one"
    else:
        what_to_do += "; seed a method that draws at random, or lower `agreement`"
    return f"called again for {len(rows)} samples, {answer}. {what_to_do}"


def sample_indices(a_batch: np.ndarray) -> np.ndarray:
    """Choose the samples that show whether a method repeats itself: finite ones, and not constant if there are any."""
    finite, telling = [], []
    for row, values in enumerate(a_batch.reshape(len(a_batch), -1)):
        if values.size and np.isfinite(values).all():
            finite.append(row)
            if (values != values[0]).any():
                telling.append(row)
        if len(telling) == N_CHECKED:
            break
    return np.array((telling or finite)[:N_CHECKED], dtype=int)


def mean_pixel_correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Mean Pearson correlation of the attributions of the same samples; NaN where some are not finite."""
    first, second = (value.reshape(len(value), -1).astype(float) for value in (first, second))
    if not second.size or not (np.isfinite(first).all() and np.isfinite(second).all()):
        return float("nan")
    if first.shape != second.shape:
        return 0.0
    correlations = []
    for a, b in zip(first, second, strict=True):
        constant = a.std() == 0 or b.std() == 0
        correlations.append(float(np.allclose(a, b)) if constant else float(np.corrcoef(a, b)[0, 1]))
    return float(np.mean(correlations))
