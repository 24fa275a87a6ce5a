"""A bank of concepts: one direction in feature space for each, with its name."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from captum_concepts.bank_file import TENSORS, BankContents, read_bank, write_bank
from captum_concepts.captum_cavs import read_cavs
from captum_concepts.checks import check_finite, check_shape, check_whole
from captum_concepts.directions import as_embeddings, fit_directions
from captum_concepts.running import evaluation_mode, first_floating


class ConceptBank:
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
        (L,), share of samples on the right side of each boundary, among those it was fitted on; NaN where
        unknown.
    test_accuracy : Tensor or array, optional
        The same among other samples.
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

    Raises
    ------
    ValueError
        If a shape differs, an entry of `cavs` or `intercepts` is not finite, or a name occurs twice.

    Examples
    --------
    >>> bank = ConceptBank([[1.0, 0.0], [0.0, 2.0]], names=["red wing", "long tail"])
    >>> bank.select(["long tail"]).cavs
    tensor([[0., 2.]])
    """

    def __init__(
        self,
        cavs: Any,
        intercepts: Any = None,
        names: Sequence[str] | None = None,
        *,
        train_accuracy: Any = None,
        test_accuracy: Any = None,
        settings: Mapping[str, str | float | int] | None = None,
    ) -> None:
        values = torch.as_tensor(cavs).detach()
        self.cavs = values.clone() if values.is_floating_point() else values.float()
        check_shape("cavs", self.cavs, ("L", "d"), (None, None))
        if self.cavs.numel() == 0:
            raise ValueError(
                f"Expected argument `cavs` to hold at least one concept of at least one dimension but got "
                f"shape {tuple(self.cavs.shape)}."
            )
        check_finite("cavs", self.cavs)
        self.intercepts = self._per_concept("intercepts", intercepts, 0.0)
        check_finite("intercepts", self.intercepts)
        self.train_accuracy = self._per_concept("train_accuracy", train_accuracy, math.nan)
        self.test_accuracy = self._per_concept("test_accuracy", test_accuracy, math.nan)
        self.names = _check_names(names, len(self.cavs))
        self.settings = dict(settings or {})

    def _per_concept(self, name: str, value: Any, default: float) -> Tensor:
        if value is None:
            return self.cavs.new_full((len(self.cavs),), default)
        tensor = torch.as_tensor(value).detach()
        check_shape(name, tensor, ("L",), (len(self.cavs),))
        return tensor.to(self.cavs, copy=True)

    @property
    def norms(self) -> Tensor:
        """Euclidean length of each CAV, (L,)."""
        return self.cavs.norm(dim=1)

    @property
    def device(self) -> torch.device:
        """Where the bank is."""
        return self.cavs.device

    @property
    def dtype(self) -> torch.dtype:
        """Floating-point type of the bank."""
        return self.cavs.dtype

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        parts = [f"{len(self)} concept{'s' * (len(self) > 1)} x {self.cavs.shape[1]} dimensions"]
        if "method" in self.settings:
            parts.append(f"method={self.settings['method']!r}")
        for label, accuracy in (("train", self.train_accuracy), ("held-out", self.test_accuracy)):
            known = accuracy[~accuracy.isnan()]
            if len(known):
                parts.append(f"mean {label} accuracy {known.mean().item():.3f}")
        shown = ", ".join(repr(name) for name in self.names[:3]) + (", ..." if len(self) > 3 else "")
        return f"ConceptBank({', '.join(parts)}, names: {shown})"

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
    ) -> ConceptBank:
        r"""Learn one direction for each concept from images with and without it.

        For each concept `n_pos` images that show it and `n_neg` that do not are drawn without replacement.
        Of these,

        - "svm" takes the normal and the intercept of a linear SVM, as post-hoc CBM does;
        - "mean" takes the mean of the positives less the mean of all drawn (FastCAV, whose global mean is
          that of concept and random images together), with no solver and all concepts in one product. The
          intercept puts the boundary midway between the two class means along the direction; FastCAV puts
          it through the global mean, which is the same where as many of either kind were drawn.

        Either way images with the concept score positive.

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
            Images with the concept; where there are fewer, all of them, with one warning.
        n_neg : int
            Images without it, likewise.
        C : float
            Inverse of the SVM's regularisation strength; the paper tries 0.001 to 10.
        seed : int
            Of the draw.
        display_progressbar : bool
            Whether to show progress over the SVMs.

        Returns
        -------
        ConceptBank
            On the device of the features, in their type (half precision becomes float32). Accuracies are
            shares of all images drawn, and of all images left (which have the balance of the data).

        Raises
        ------
        ValueError
            If a shape, a setting or an entry is wrong, or a concept has no image on one of the sides.
        """
        if names is not None:
            names = _check_names(names, np.shape(labels)[-1])
        fitted = fit_directions(features, labels, names, method, n_pos, n_neg, C, seed, display_progressbar)
        settings: dict[str, str | float | int] = {"method": method, "n_pos": int(n_pos), "n_neg": int(n_neg)}
        settings |= {"seed": int(seed)} | ({"C": float(C)} if method == "svm" else {})
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
    ) -> ConceptBank:
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
        if not callable(getattr(model, "encode_text", None)):
            raise TypeError(
                f"Expected argument `model` to have a method `encode_text`, as models of open_clip have, but "
                f"got {type(model).__name__}."
            )
        if isinstance(prompts, str):
            raise TypeError(f"Expected argument `prompts` to be a sequence of texts but got one: {prompts!r}.")
        texts = list(prompts)
        if not texts:
            raise ValueError("Expected argument `prompts` to hold at least one text but it is empty.")
        names = _check_names(texts if names is None else names, len(texts))
        batch_size = check_whole("batch_size", batch_size, 1)
        reference = first_floating(model)
        device = torch.device("cpu") if reference is None else reference.device
        with evaluation_mode(model), torch.no_grad():
            rows = [
                model.encode_text(tokenizer(texts[start : start + batch_size]).to(device))
                for start in range(0, len(texts), batch_size)
            ]
        return cls(
            nn.functional.normalize(as_embeddings(torch.cat(rows)), dim=1),
            names=names,
            settings={"method": "text"},
        )

    @classmethod
    def from_captum(
        cls,
        cavs: Any,
        names: Sequence[str] | None = None,
        *,
        concept: int | str = 0,
        layer: str | None = None,
    ) -> ConceptBank:
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
        found_layer, found = read_cavs(cavs, concept, layer)
        return cls(
            torch.stack([each.weights for each in found]),
            names=[each.name for each in found] if names is None else names,
            settings={"method": "captum", "layer": found_layer},
        )

    def index(self, name: str) -> int:
        """Return the position of a concept, by name.

        Parameters
        ----------
        name : str
            Of the concept.

        Returns
        -------
        int
            From 0.

        Raises
        ------
        ValueError
            If there is no such concept; the message lists the nearest names.
        """
        if name not in self.names:
            near = difflib.get_close_matches(str(name), self.names, n=3, cutoff=0.4) or self.names[:3]
            raise ValueError(f"No concept is named {name!r}. The nearest of the {len(self)} are {near}.")
        return self.names.index(name)

    def select(self, concepts: Any) -> ConceptBank:
        """Return a bank of some of the concepts, in the order given.

        Parameters
        ----------
        concepts : str, int, sequence, array or tensor
            Names, indices, or a mask (L,) of bool.

        Returns
        -------
        ConceptBank
            With the settings of this one.

        Raises
        ------
        ValueError
            If a name or index is not there, occurs twice, or nothing is selected.
        """
        chosen = self._positions(concepts)
        if not chosen:
            raise ValueError("Expected argument `concepts` to select at least one concept but it selects none.")
        rows = torch.tensor(chosen, device=self.device)
        return ConceptBank(
            self.cavs[rows],
            self.intercepts[rows],
            [self.names[j] for j in chosen],
            train_accuracy=self.train_accuracy[rows],
            test_accuracy=self.test_accuracy[rows],
            settings=self.settings,
        )

    def _positions(self, concepts: Any) -> list[int]:
        if isinstance(concepts, str | int | np.integer) and not isinstance(concepts, bool):
            concepts = [concepts]
        values = concepts.tolist() if isinstance(concepts, Tensor | np.ndarray) else list(concepts)
        if values and all(isinstance(value, bool | np.bool_) for value in values):
            check_shape("concepts", np.asarray(values), ("L",), (len(self),))
            return [j for j, value in enumerate(values) if value]
        chosen = []
        for value in values:
            if isinstance(value, str):
                chosen.append(self.index(value))
            elif isinstance(value, int | np.integer) and not isinstance(value, bool):
                if not 0 <= value < len(self):
                    raise ValueError(
                        f"Expected argument `concepts` to hold indices in 0..{len(self) - 1} but got {value}."
                    )
                chosen.append(int(value))
            else:
                raise ValueError(
                    f"Expected argument `concepts` to hold names, indices, or one bool for each concept "
                    f"but got {value!r}."
                )
        return chosen

    def rename(self, mapping: Mapping[str, str]) -> ConceptBank:
        """Return a bank with other names.

        Parameters
        ----------
        mapping : mapping of str to str
            Old names to new ones; concepts not in it keep theirs.

        Returns
        -------
        ConceptBank
            Otherwise as this one.

        Raises
        ------
        ValueError
            If an old name is not there, or two concepts would have one name.
        """
        for old in mapping:
            self.index(old)
        return self._with(names=[mapping.get(name, name) for name in self.names])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ConceptBank:
        """Return a bank on another device or in another floating-point type.

        Parameters
        ----------
        device : torch.device or str, optional
            Where; as it is by default.
        dtype : torch.dtype, optional
            Which type; as it is by default.

        Returns
        -------
        ConceptBank
            A copy.
        """
        return self._with(cavs=self.cavs.to(device=device or self.device, dtype=dtype or self.dtype))

    def _with(self, cavs: Tensor | None = None, names: list[str] | None = None) -> ConceptBank:
        return ConceptBank(
            self.cavs if cavs is None else cavs,
            self.intercepts,
            self.names if names is None else names,
            train_accuracy=self.train_accuracy,
            test_accuracy=self.test_accuracy,
            settings=self.settings,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank as one safetensors file, names and settings as its metadata.

        The file appears under its name only when it is complete; one already there is replaced.

        Parameters
        ----------
        path : path
            Of the file.

        Raises
        ------
        FileNotFoundError
            If its folder does not exist.
        IsADirectoryError
            If it is a folder.
        """
        tensors = {name: getattr(self, name) for name in TENSORS}
        write_bank(path, BankContents(tensors, self.names, self.settings))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: torch.device | str = "cpu") -> ConceptBank:
        """Read a bank that `save` has written; nothing in the file is executed.

        Parameters
        ----------
        path : path
            Of the file.
        device : torch.device or str
            Where to put the bank.

        Returns
        -------
        ConceptBank
            As it was saved.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is no safetensors file, is cut short, or holds something else.
        """
        tensors, names, settings = read_bank(path, str(device))
        try:
            return cls(names=names, settings=settings, **tensors)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is a damaged concept bank: {error}") from error


def _check_names(names: Sequence[str] | None, n_concepts: int) -> list[str]:
    if names is None:
        return [f"concept {j}" for j in range(n_concepts)]
    if isinstance(names, str):
        raise ValueError(f"Expected argument `names` to be a sequence of {n_concepts} names but got one: {names!r}.")
    listed = [str(name) for name in names]
    if len(listed) != n_concepts:
        raise ValueError(
            f"Expected argument `names` to hold one name for each of {n_concepts} concepts but got {len(listed)}."
        )
    twice = sorted({name for name in listed if listed.count(name) > 1}) if len(set(listed)) < n_concepts else []
    if twice:
        raise ValueError(f"Expected argument `names` to hold different names but {twice[:3]} occur more than once.")
    return listed
