"""Value object for concept vectors: lookup, selection, device moves, saving."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from captum_concepts._support.checks import as_list, check_names, check_shape, find_names
from captum_concepts._support.constraints import (
    SHARE,
    Arrays,
    Device,
    Dictionary,
    Instance,
    Location,
    Names,
    check_arguments,
)
from captum_concepts._support.files import shorten
from captum_concepts._support.running import warn_user
from captum_concepts._support.shown import bank_html, describe, show_value
from captum_concepts.bank.directions import WEAK, list_first, weak_concepts
from captum_concepts.bank.files import P_VALUES, TENSORS, BankContents, read_bank, write_bank

#: Constraint of a share of each concept, NaN where unknown.
_SHARES = Arrays("L", low=0, high=1, kind="tensor")


class BankValue:
    """Base of `ConceptBank`: all but the ways to make one of data."""

    @check_arguments(
        cavs=Arrays("L, d", kind="tensor", finite=True, filled=True),
        intercepts=Arrays("L", kind="tensor", finite=True),
        names=Names("L"),
        train_accuracy=_SHARES,
        test_accuracy=_SHARES,
        p_values=_SHARES,
        settings=Dictionary(),
    )
    def __init__(
        self,
        cavs: Any,
        intercepts: Any = None,
        names: Sequence[str] | None = None,
        *,
        train_accuracy: Any = None,
        test_accuracy: Any = None,
        p_values: Any = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if cavs.dtype == torch.bool:
            raise TypeError("Expected argument `cavs` to hold numbers but got torch.bool. Is it a mask?")
        self.cavs = cavs.clone() if cavs.is_floating_point() else cavs.float()
        self.intercepts = self._per_concept(intercepts, 0.0)
        self.train_accuracy = self._per_concept(train_accuracy, math.nan)
        self.test_accuracy = self._per_concept(test_accuracy, math.nan)
        self.p_values = self._per_concept(p_values, math.nan)
        self.names = check_names(None, len(self.cavs)) if names is None else list(names)
        self.settings = dict(settings or {})

    def _per_concept(self, value: Any, default: float) -> Tensor:
        if value is None:
            return self.cavs.new_full((len(self.cavs),), default)
        return value.to(self.cavs, copy=True)

    @property
    def norms(self) -> Tensor:
        """Euclidean length of each CAV, (L,)."""
        return self.cavs.norm(dim=1)

    @property
    def weak(self) -> list[str]:
        """Names of concepts whose balanced accuracy on images held back is below .6, chance being .5."""
        return weak_concepts(self.test_accuracy, self.names)

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
            known_accuracy = accuracy[~accuracy.isnan()]
            if len(known_accuracy):
                parts.append(f"mean {label} accuracy {known_accuracy.mean().item():.3f}")
        first_names = ", ".join(show_value(name) for name in self.names[:3]) + (", ..." if len(self) > 3 else "")
        return describe(self, *parts, f"names: {first_names}")

    def _repr_html_(self) -> str:
        return bank_html(self)

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
        if not isinstance(name, str) or name not in self.names:
            raise self._unknown_name("argument `name` to be that of a concept", name)
        return self.names.index(name)

    def _unknown_name(self, expected: str, name: Any) -> ValueError:
        near = difflib.get_close_matches(str(name), self.names, n=3, cutoff=0.4) or self.names[:3]
        return ValueError(f"Expected {expected} but none is named {name!r}. The nearest of the {len(self)} are {near}.")

    def select(self, concepts: Any) -> Self:
        """Return a bank of some of the concepts, in the order given.

        Parameters
        ----------
        concepts : str, int, sequence, array or tensor
            Names, patterns such as ``"has_wing_*"``, indices, or a mask (L,) of bool.

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
        some = {name: tensor[rows] for name, tensor in self._tensors().items()}
        return type(self)(**some, names=[self.names[j] for j in chosen], settings=self.settings)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in (*TENSORS, P_VALUES)}

    def _positions(self, concepts: Any) -> list[int]:
        if isinstance(concepts, str | int | np.integer) and not isinstance(concepts, bool):
            concepts = [concepts]
        items = concepts.tolist() if isinstance(concepts, Tensor | np.ndarray) else concepts
        values = as_list("concepts", items, "names, indices, or one bool for each concept")
        if values and all(isinstance(value, bool | np.bool_) for value in values):
            check_shape("concepts", np.asarray(values), ("L",), (len(self),))
            return [j for j, value in enumerate(values) if value]
        return [place for value in values for place in find_names("concepts", self.names, [value])]

    @check_arguments(mapping=Dictionary())
    def rename(self, mapping: Mapping[str, str]) -> Self:
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
            if old not in self.names:
                raise self._unknown_name("the keys of argument `mapping` to be names of concepts", old)
        names = [mapping.get(name, name) for name in self.names]
        if len(set(names)) < len(names):
            raise ValueError("Expected argument `mapping` to leave different names but some occur more than once.")
        return type(self)(**self._tensors(), names=names, settings=self.settings)

    @check_arguments(minimum=SHARE)
    def cleaned(self, minimum: float = WEAK) -> Self:
        """Return a bank without the concepts that are hardly recognised; one warning names them.

        Parameters
        ----------
        minimum : float
            The least `test_accuracy` of a concept that stays, in [0, 1]. Concepts whose accuracy is unknown (NaN, as
            in banks from texts) stay.

        Returns
        -------
        ConceptBank
            In the same order; `settings` keep the minimum as "cleaned".

        Raises
        ------
        TypeError
            If `minimum` is no number.
        ValueError
            If it is not in [0, 1], or no concept would stay.
        """
        drop = (self.test_accuracy < minimum).tolist()
        dropped = [
            f"{name!r} ({accuracy:.2f})"
            for name, accuracy, gone in zip(self.names, self.test_accuracy.tolist(), drop, strict=True)
            if gone
        ]
        if all(drop):
            raise ValueError(
                f"Expected argument `minimum` to leave at least one concept but got {minimum}, and the highest "
                f"balanced accuracy is {self.test_accuracy.max().item():.3g}. Add images, or lower it."
            )
        if dropped:
            warn_user(
                f"{len(dropped)} of {len(self)} concepts have a balanced accuracy below {minimum:g} on images held "
                f"back and were left out: {list_first(dropped)}."
            )
        bank = self.select([not gone for gone in drop])
        bank.settings["cleaned"] = float(minimum)
        return bank

    @check_arguments(device=Device(), dtype=Instance(torch.dtype, "a floating-point type of torch"))
    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
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

        Raises
        ------
        TypeError
            If `dtype` is no floating-point type.
        ValueError
            If there is no such device.
        """
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"Expected argument `dtype` to be a floating-point type of torch but got {dtype!r}.")
        cavs = self.cavs.to(device=device or self.device, dtype=dtype or self.dtype)
        return type(self)(**self._tensors() | {"cavs": cavs}, names=self.names, settings=self.settings)

    @check_arguments(path=Location())
    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank as one safetensors file, names and settings as its metadata.

        The file appears under its name only when it is complete; one already there is replaced.

        Parameters
        ----------
        path : path
            Of the file.

        Raises
        ------
        TypeError
            If `path` is none, or the settings hold what JSON cannot.
        FileNotFoundError
            If its folder does not exist.
        IsADirectoryError
            If it is a folder.
        """
        write_bank(Path(path), BankContents(self._tensors(), self.names, self.settings))

    @classmethod
    @check_arguments(path=Location(), device=Device())
    def load(cls, path: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
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
            If it is no safetensors file, is cut short, holds something else, or is not what was written.
        """
        tensors, names, settings = read_bank(Path(path), str(device))
        try:
            return cls(names=names, settings=settings, **tensors)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is a damaged concept bank: {shorten(error)}") from error
