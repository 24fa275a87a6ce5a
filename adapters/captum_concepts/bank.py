"""A bank of concepts: one direction in feature space for each, with its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.bank_value import BankValue, check_names
from captum_concepts.captum_cavs import read_cavs
from captum_concepts.checks import as_list, check_callable, check_finite, check_seed, check_shape, check_whole, to_array
from captum_concepts.directions import HOLD_BACK, as_embeddings, fit_directions
from captum_concepts.running import device_of, evaluation_mode


class ConceptBank(BankValue):
    """Concept activation vectors (CAVs), one for each concept.

    A bank is a plain value: all methods that change something return a new one.

    Parameters
    ----------
    cavs : Tensor or array
        (L, d), the vectors c_j; copied. Integers become float32, floating-point types stay.
    intercepts : Tensor or array, optional
        (L,), the offsets b_j; zeros by default.
    names : sequence of str, optional
        L different names; "concept 0", "concept 1", ... by default.
    train_accuracy : Tensor or array, optional
        (L,), balanced accuracy (mean of the shares of samples with and without the concept that are on the right
        side of its boundary) among those it was fitted on; NaN where unknown.
    test_accuracy : Tensor or array, optional
        The same among samples held back.
    settings : mapping, optional
        How the bank was made; kept with it in files.

    Attributes
    ----------
    cavs : Tensor
        (L, d).
    intercepts : Tensor
        (L,).
    names : list of str
        L names.
    train_accuracy : Tensor
        (L,), NaN where unknown.
    test_accuracy : Tensor
        (L,), NaN where unknown.
    settings : dict
        Of str, float and int.
    weak : list of str
        Names of concepts whose `test_accuracy` is below .6, chance being .5: their directions say little.

    Raises
    ------
    TypeError
        If an array is masked or complex.
    ValueError
        If a shape differs, an entry of `cavs` or `intercepts` is not finite, or a name occurs twice.

    Examples
    --------
    >>> bank = ConceptBank([[1.0, 0.0], [0.0, 2.0]], names=["red wing", "long tail"])
    >>> bank.select(["long tail"]).cavs
    tensor([[0., 2.]])
    """

    @classmethod
    def fit(
        cls,
        features: Any,
        labels: Any,
        names: Sequence[str] | None = None,
        method: str = "svm",
        n_pos: int = 100,
        n_neg: int = 100,
        C: float = 1.0,
        seed: int = 0,
        display_progressbar: bool = False,
        hold_back: float = HOLD_BACK,
    ) -> Self:
        r"""Learn one direction for each concept from images with and without it.

        For each concept `n_pos` images that show it and `n_neg` that do not are drawn without replacement; at
        least a share `hold_back` of the images of either side, and at least one, is held back to test it on (a
        side's only image is drawn). Of those drawn,

        - "svm" takes the normal and the intercept of a linear SVM, as post-hoc CBM does;
        - "mean" takes the mean of the positives less the mean of all drawn (FastCAV, whose global mean is
          that of concept and random images together), with no solver and all concepts in one product. The
          intercept puts the boundary midway between the two class means along the direction; FastCAV puts
          it through the global mean, which is the same where as many of either kind were drawn.

        Either way images with the concept score positive. One warning each names concepts with fewer images
        than asked for, concepts with the same labels on all images, whose directions are the same, and concepts
        that are hardly recognised on the images held back (`weak`).

        Parameters
        ----------
        features : Tensor or array
            (N, d), the embeddings. "mean" computes on their device, "svm" on the CPU in float64.
        labels : Tensor or array
            (N, L) of 0 and 1: which concepts each image shows.
        names : sequence of str, optional
            L names.
        method : str
            "svm" or "mean".
        n_pos : int
            Images with the concept; where there are fewer, what there is without the share held back.
        n_neg : int
            Images without it, likewise.
        C : float
            Inverse of the SVM's regularisation strength; the paper tries 0.001 to 10.
        seed : int
            Of the draw.
        display_progressbar : bool
            Whether to show progress over the SVMs.
        hold_back : float
            Share of the images of either side to hold back at least, in [0, 1). With 0 all asked for are drawn.

        Returns
        -------
        ConceptBank
            On the device of the features, in their type (half precision becomes float32). Accuracies are
            balanced, of all images drawn and of all images left; NaN where a side has none left.

        Raises
        ------
        TypeError
            If an array is masked or complex.
        ValueError
            If a shape, a setting or an entry is wrong, or a concept has no image on one of the sides.
        """
        if names is not None:
            shape = to_array("labels", labels).shape
            names = check_names(names, shape[-1] if shape else 0)
        fitted = fit_directions(features, labels, names, method, n_pos, n_neg, C, seed, display_progressbar, hold_back)
        settings: dict[str, str | float | int] = {
            "method": method,
            "n_pos": int(n_pos),
            "n_neg": int(n_neg),
            "seed": int(seed),
            "hold_back": float(hold_back),
            "accuracy": "balanced",
        }
        if method == "svm":
            settings["C"] = float(C)
        return cls(
            fitted.cavs,
            fitted.intercepts,
            names,
            train_accuracy=fitted.train_accuracy,
            test_accuracy=fitted.test_accuracy,
            settings=settings,
        )

    @classmethod
    def from_text(
        cls,
        model: Any,
        tokenizer: Callable[[list[str]], Tensor],
        prompts: Sequence[str],
        names: Sequence[str] | None = None,
        batch_size: int = 256,
    ) -> Self:
        """Take the text embeddings of a CLIP-like model as directions.

        Parameters
        ----------
        model : nn.Module
            With ``encode_text(tokens)`` giving (n, d), as the models of open_clip. It runs in eval mode and
            without gradient, and is left as it was.
        tokenizer : callable
            List of texts to tokens (n, length), as ``open_clip.get_tokenizer`` gives it.
        prompts : sequence of str
            L texts.
        names : sequence of str, optional
            L names; the prompts by default.
        batch_size : int
            Prompts encoded at once.

        Returns
        -------
        ConceptBank
            Rows of length 1, no intercepts, on the device of the model (half precision becomes float32).

        Raises
        ------
        ValueError
            If there are no prompts, or names and prompts differ in number.
        TypeError
            If `model` has no ``encode_text``, or `prompts` is one string.
        """
        if isinstance(model, type) or not callable(getattr(model, "encode_text", None)):
            raise TypeError(
                f"Expected argument `model` to have a method `encode_text`, as models of open_clip have, but "
                f"got {type(model).__name__}."
            )
        if isinstance(prompts, str):
            raise TypeError(f"Expected argument `prompts` to be a sequence of texts but got one: {prompts!r}.")
        texts = as_list("prompts", prompts, "texts")
        if not all(isinstance(text, str) for text in texts):
            raise TypeError(f"Expected argument `prompts` to hold texts but got {texts[:3]}.")
        if not texts:
            raise ValueError("Expected argument `prompts` to hold at least one text but it is empty.")
        names = check_names(texts if names is None else names, len(texts))
        batch_size = check_whole("batch_size", batch_size, 1)
        check_callable("tokenizer", tokenizer)
        device = device_of(model)

        def encoded(some: list[str]) -> Tensor:
            tokens = tokenizer(some)
            if not callable(getattr(tokens, "to", None)):
                raise TypeError(f"Expected argument `tokenizer` to return a tensor but got {type(tokens).__name__}.")
            rows = model.encode_text(tokens.to(device))
            if not isinstance(rows, Tensor) or rows.ndim != 2 or len(rows) != len(some):
                got = tuple(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__
                raise ValueError(
                    f"Expected argument `model` to encode texts as (n, d) = ({len(some)}, *) but got {got}."
                )
            return rows

        with evaluation_mode(model), torch.no_grad():
            rows = [encoded(texts[start : start + batch_size]) for start in range(0, len(texts), batch_size)]
        return cls(
            nn.functional.normalize(as_embeddings(torch.cat(rows)), dim=1), names=names, settings={"method": "text"}
        )

    @classmethod
    def from_captum(
        cls, cavs: Any, names: Sequence[str] | None = None, *, concept: int | str = 0, layer: str | None = None
    ) -> Self:
        """Take the concept activation vectors that Captum has trained.

        Captum keeps one row of weights for each concept of an experiment, in the order of
        ``stats["classes"]`` (concept ids) and pointing towards that concept, also where there are only two.
        The row of the chosen concept is taken. Captum keeps no intercept: it is 0 here, so that margins are
        those of a boundary through the origin.

        Parameters
        ----------
        cavs : CAV, sequence of CAV, or mapping
            `captum.concept` objects, or a TCAV's ``cavs`` (experiment to layer to CAV).
        names : sequence of str, optional
            L names; those of the chosen concepts by default.
        concept : int or str
            Which concept of each experiment: its position in ``cav.concepts`` (the first by default) or its
            name.
        layer : str, optional
            Which layer, where the mapping holds several.

        Returns
        -------
        ConceptBank
            One concept for each experiment. Accuracies are unknown (NaN): with two concepts,
            ``stats["accs"]`` of Captum 0.9.0 is only the share of the one with the lower id.

        Raises
        ------
        ValueError
            If a CAV is not trained, lacks the concept, or the CAVs are of different layers or widths.
        TypeError
            If an object is not a CAV.
        """
        found_layer, own_names, rows = read_cavs(cavs, concept, layer)
        settings = {"method": "captum", "layer": found_layer}
        return cls(rows, names=own_names if names is None else names, settings=settings)

    @classmethod
    def random(
        cls,
        n_concepts: int,
        n_features: int,
        names: Sequence[str] | None = None,
        seed: int = 0,
        *,
        mean: Tensor | None = None,
    ) -> Self:
        """Draw directions that know nothing: the control that a bank of concepts has to beat.

        One draw is one observation of chance; compare with many seeds.

        Parameters
        ----------
        n_concepts : int
            L.
        n_features : int
            d, the width of the embeddings.
        names : sequence of str, optional
            L names, those of the concepts whose place the directions take; numbered by default.
        seed : int
            Of the draw; the global generators are left alone.
        mean : Tensor, optional
            (d,), the mean embedding: each boundary goes through it, so that about half of all images are on
            either side. Device and type are those of the bank. By default boundaries go through the origin.

        Returns
        -------
        ConceptBank
            L directions, evenly spread over the sphere, of length 1.

        Raises
        ------
        TypeError
            If a number is not whole.
        ValueError
            If a number is too small, or `names` or `mean` do not fit.
        """
        check_whole("n_concepts", n_concepts, 1)
        check_whole("n_features", n_features, 1)
        check_seed(seed)
        centre = torch.zeros(n_features) if mean is None else as_embeddings(mean, "mean")
        check_shape("mean", centre, ("d",), (n_features,))
        check_finite("mean", centre)
        drawn = np.random.default_rng(seed).standard_normal((n_concepts, n_features))
        cavs = nn.functional.normalize(torch.as_tensor(drawn).to(centre), dim=1)
        return cls(cavs, -cavs @ centre, names, settings={"method": "random", "seed": int(seed)})
