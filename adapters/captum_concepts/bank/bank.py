"""A bank of concepts: one direction in feature space for each, with its name."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts.backbones.pooling import Maps, Pool
from captum_concepts.bank.activations import fit_activations
from captum_concepts.bank.directions import (
    HOLD_BACK,
    WEAK,
    Fitting,
    as_embeddings,
    list_first,
    random_directions,
    weak_concepts,
)
from captum_concepts.bank.files import ALL_TENSORS, BANK, TENSORS, pack, read_file, write_file
from captum_concepts.bank.folders import Transform, fit_folders
from captum_concepts.bank.learnable import MIN_IMAGES, find_learnable, fit_learnable
from captum_concepts.bank.texts import Tokenizer, fit_texts
from captum_concepts.support import checks
from captum_concepts.support.running import warn_user
from captum_concepts.texts import describe, show_value

if TYPE_CHECKING:
    from captum.concept import CAV

    from captum_concepts.backbones.backbone import Backbone


class ConceptBank:
    """Concept activation vectors (CAVs), one for each concept.

    A bank is a plain value: all methods that change something return a new one. Its attributes have the names below.

    Parameters
    ----------
    cavs : Tensor or array
        (L, d), the vectors c_j; copied. Integers become float32, floating-point types stay.
    intercepts : Tensor or array, optional
        (L,), the offsets b_j; zeros by default.
    names : sequence of str, optional
        L different names; "concept 0", "concept 1", ... by default.
    train_accuracy : Tensor or array, optional
        (L,), balanced accuracy (chance is .5) among the samples that it was fitted on; NaN where unknown.
    test_accuracy : Tensor or array, optional
        The same among samples held back.
    p_values : Tensor or array, optional
        (L,), how likely random images were to be separated from others as well as the concept is (`from_folders`); NaN
        where unknown.
    settings : mapping, optional
        How the bank was made, as JSON can hold it; kept with it in files.

    Raises
    ------
    TypeError
        If `cavs` is a mask (bool).
    ValueError
        If a shape differs, an entry of `cavs` or `intercepts` is not finite, a row of `cavs` is zero, an accuracy
        or p-value is not in [0, 1], or a name occurs twice.

    Examples
    --------
    >>> from captum_concepts import ConceptBank
    >>> bank = ConceptBank([[1.0, 0.0], [0.0, 2.0]], names=["red wing", "long tail"])
    >>> bank.select(["long tail"]).cavs
    tensor([[0., 2.]])
    """

    def __init__(
        self,
        cavs: Tensor | ArrayLike,
        intercepts: Tensor | ArrayLike | None = None,
        names: Sequence[str] | None = None,
        *,
        train_accuracy: Tensor | ArrayLike | None = None,
        test_accuracy: Tensor | ArrayLike | None = None,
        p_values: Tensor | ArrayLike | None = None,
        settings: Mapping[str, object] | None = None,
    ) -> None:
        rows = checks.to_tensor("cavs", cavs)
        if rows.dtype == torch.bool:
            raise TypeError("Expected argument `cavs` to hold numbers but got torch.bool. Is it a mask?")
        checks.check_axes(cavs=(rows, "L d"))
        if not rows.numel():
            raise ValueError(f"Expected argument `cavs` to hold at least one number but got {tuple(rows.shape)}.")
        self.cavs = rows.clone() if rows.is_floating_point() else rows.float()
        self.intercepts = self._per_concept("intercepts", intercepts, 0.0)
        checks.check_finite("cavs", self.cavs)
        checks.check_finite("intercepts", self.intercepts)
        self.train_accuracy = self._per_concept("train_accuracy", train_accuracy, math.nan)
        self.test_accuracy = self._per_concept("test_accuracy", test_accuracy, math.nan)
        self.p_values = self._per_concept("p_values", p_values, math.nan)
        self.names = checks.check_names(names, len(self.cavs))
        if zero := [self.names[j] for j in torch.nonzero(self.norms == 0).flatten().tolist()]:
            raise ValueError(
                "Expected argument `cavs` to hold no vector of length 0, which is no direction, but those of "
                f"{zero[:3]} ({len(zero)} in all) are. Leave these concepts out."
            )
        self.settings = dict(settings or {})

    def _per_concept(self, name: str, value: Tensor | ArrayLike | None, default: float) -> Tensor:
        if value is None:
            return self.cavs.new_full((len(self.cavs),), default)
        tensor = checks.to_tensor(name, value)
        checks.check_axes(cavs=(self.cavs, "L d"), **{name: (tensor, "L")})
        if math.isnan(default) and ((tensor < 0) | (tensor > 1)).any():
            raise ValueError(f"Expected argument `{name}` to lie in [0, 1], with NaN where unknown, but got {tensor}.")
        return tensor.to(self.cavs, copy=True)

    @classmethod
    def fit(
        cls,
        features: Tensor | ArrayLike,
        labels: Tensor | ArrayLike,
        names: Sequence[str] | None = None,
        method: str = "svm",
        n_pos: int = 100,
        n_neg: int = 100,
        C: float = 1.0,
        seed: int = 0,
        display_progressbar: bool = False,
        hold_back: float = HOLD_BACK,
        *,
        concepts: str | Sequence[str | int] | None = None,
        min_images: int = MIN_IMAGES,
    ) -> Self:
        r"""Learn one direction for each concept from images with and without it.

        For each concept `n_pos` images that show it and `n_neg` that do not are drawn without replacement; at least a
        share `hold_back` of the images of either side, and at least one, is held back to test it on.

        - "svm" takes the normal and the intercept of a linear SVM, as post-hoc CBM does;
        - "mean" is FastCAV: the mean of the positives less the mean of all drawn, with no solver and all concepts in
          one product. The intercept puts the boundary midway between the two class means along the direction; FastCAV
          puts it through the global mean, which is the same where as many of either kind were drawn.

        Images with the concept score positive. One warning each names concepts left out (`min_images`), with fewer
        images than requested, with the same labels on all images, and hardly recognised on images held back (`weak`).

        Parameters
        ----------
        features : Tensor or array
            (N, d), the embeddings. "mean" computes on their device, "svm" on the CPU in float64.
        labels : Tensor or array
            (N, L) of 0 and 1: which concepts each image shows.
        names : sequence of str, optional
            L names.
        method : str
            "svm", or "mean" (FastCAV).
        n_pos : int
            Images with the concept; where there are fewer, what there is without the share held back.
        n_neg : int
            Images without it, likewise.
        C : float
            Inverse of the SVM's regularisation strength; the paper tries 0.001 to 10.
        seed : int
            Random seed of the draw.
        display_progressbar : bool
            Whether to show progress over the SVMs.
        hold_back : float
            Share of the images of either side to hold back at least, in [0, 1). With 0 none is reserved.
        concepts : str or sequence, optional
            Which concepts to learn: names, patterns such as ``"has_wing_*"``, or indices; all by default.
        min_images : int
            Least number of images with a concept, and without it; concepts with fewer are left out.

        Returns
        -------
        ConceptBank
            On the device of the features, in their type (half precision becomes float32). Accuracies are balanced;
            ``settings["left_out"]`` names the concepts left out, where there are any.

        Raises
        ------
        ValueError
            If shapes do not fit each other, an embedding is not finite, a label is not 0 or 1, a setting is out of
            range, no concept is named so, or none can be learned.
        """
        fitting = Fitting(method, n_pos, n_neg, C, seed, hold_back).check()
        rows, present = as_embeddings(features), checks.to_array("labels", labels)
        checks.check_axes(features=(rows, "N d"), labels=(present, "N L"))
        checks.check_finite("features", rows)
        learnable = find_learnable(present, names, concepts, min_images)
        learnable.warn()
        return cls(**fit_learnable(rows, present.astype(bool), learnable, fitting, display_progressbar))

    @classmethod
    def from_folders(
        cls,
        backbone: nn.Module | Backbone,
        root: str | os.PathLike[str],
        *,
        transform: Transform | None = None,
        pool: Pool = "mean",
        maps: Maps | None = None,
        random: str = "random",
        method: str = "svm",
        n_pos: int | None = None,
        n_neg: int | None = None,
        C: float = 1.0,
        hold_back: float = HOLD_BACK,
        seed: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        display_progressbar: bool = False,
    ) -> Self:
        r"""Learn one direction for each folder of example images, in one pass of the backbone over all of them.

        The concepts are the folders in `root`, in the order of their names. Each holds images with the concept; those
        without it are its own, or random images that concepts share, as in TCAV, or both kinds in one `root`::

            root/striped/positive/*.jpg    root/striped/*.jpg    root/striped/*.jpg
            root/striped/negative/*.jpg    root/dotted/*.jpg     root/random_0/*.jpg    or root/random/0/*.jpg
            root/dotted/positive/*.jpg     root/random/*.jpg     root/random_1/*.jpg       root/random/1/*.jpg

        A concept is fitted as by `ConceptBank.fit` on its images and those without it, never on other concepts'.
        With five random sets or more, `p_values` say whether a concept is separated from random images better than
        random images are from each other: the mean held-out accuracy of the concept against each set, among the same
        mean of each random set in its place against the others, by a one-sided t-test of one more value. What a class
        makes of a concept is another question: `tcav_folders`.

        Parameters
        ----------
        backbone : nn.Module or Backbone
            As `features` in `PostHocCBM`; run in eval mode and without gradient, and left as it was.
        root : path
            The folder. Other files than images, and hidden ones, are ignored.
        transform : callable, optional
            From an upright RGB image of Pillow to a tensor (C, H, W). By default images are (3, H, W) in [0, 1] and of
            one size, of which a warning reminds.
        pool : "mean" or callable
            As in `PostHocCBM`.
        maps : callable, optional
            As in `PostHocCBM`.
        random : str
            Name of the folder of random images, also with a number after it (random_0, random500_1).
        method : str
            "svm" or "mean" (FastCAV), as in `fit`, like `C`, `hold_back` and `seed`.
        n_pos : int, optional
            Images drawn with each concept; all but those held back by default.
        n_neg : int, optional
            Images drawn without it; as many as with it by default.
        C : float
            Regularisation of the SVM.
        hold_back : float
            Share of the images of either side to test on.
        seed : int
            Random seed of the draw.
        batch_size : int
            Batch size.
        num_workers : int
            Processes that read images.
        display_progressbar : bool
            Whether to show progress.

        Returns
        -------
        ConceptBank
            On the device of the backbone, named after the folders; `settings` tell how well random sets are separated.

        Raises
        ------
        FileNotFoundError
            If there is no folder `root`.
        ValueError
            If the layout of folders differs, one holds no images or fewer than two, names differ only in case, or
            an image cannot be read or is of another size than the others, or an embedding is not finite.

        Examples
        --------
        >>> from torch import nn
        >>> from torchvision.transforms.functional import to_tensor
        >>> from captum_concepts import ConceptBank
        >>> backbone = nn.Conv2d(3, 4, 3)
        >>> bank = ConceptBank.from_folders(backbone, "concepts", transform=to_tensor)
        >>> bank.names  # the folders in "concepts", without those of random images
        ['dotted', 'striped']
        """
        fitting = Fitting(method, n_pos, n_neg, C, seed, hold_back).check()
        reading = (random, batch_size, num_workers, display_progressbar)
        return cls(**fit_folders(backbone, root, fitting, transform, pool, maps, *reading))

    @classmethod
    def from_text(
        cls,
        model: nn.Module,
        tokenizer: Tokenizer,
        prompts: Sequence[str],
        names: Sequence[str] | None = None,
        batch_size: int = 256,
        *,
        templates: Sequence[str] | None = None,
    ) -> Self:
        """Take the text embeddings of a CLIP-like model as directions.

        Parameters
        ----------
        model : nn.Module
            With ``encode_text(tokens)`` giving (n, d), as the models of open_clip, or ``get_text_features``, as
            CLIP and SigLIP of transformers. It runs in eval mode and without gradient, and is left as it was.
        tokenizer : callable
            List of texts to tokens (n, length), as ``open_clip.get_tokenizer`` gives it, or a tokenizer or processor of
            transformers, which cuts texts to the length of the model.
        prompts : sequence of str
            L texts.
        names : sequence of str, optional
            L names; the prompts by default.
        batch_size : int
            Batch size of texts.
        templates : sequence of str, optional
            Texts with ``{}`` where the prompt goes; the embeddings are averaged, as in CLIP's zero-shot classification.

        Returns
        -------
        ConceptBank
            Rows of length 1, no intercepts, on the device of the model (half precision becomes float32).

        Raises
        ------
        ValueError
            If there are no prompts, names and prompts differ in number, or a template has no ``{}``.
        TypeError
            If `model` has neither method, or `prompts` or `templates` is one text.
        """
        return cls(**fit_texts(model, tokenizer, prompts, names, batch_size, templates))

    @classmethod
    def from_captum(
        cls,
        cavs: CAV | Sequence[CAV] | Mapping[str, CAV | Mapping[str, CAV]],
        names: Sequence[str] | None = None,
        *,
        concept: int | str = 0,
        layer: str | None = None,
    ) -> Self:
        """Take the concept activation vectors (`captum.concept.CAV`) that Captum has trained, one of each experiment.

        `cavs` is one, a sequence, or a TCAV's ``cavs`` (experiment to layer to CAV), of which `layer` chooses a layer.
        Captum keeps one row of weights for each concept of an experiment; that of `concept` is taken, by its position
        in ``cav.concepts`` or its name. Captum keeps no intercept: it is 0 here, so that margins are those of a
        boundary through the origin. Accuracies are unknown (NaN). A ValueError is raised if a CAV is not trained, lacks
        the concept, or the CAVs are of different layers or widths, and a TypeError if one is no CAV.
        """
        from captum_concepts.bank.cavs import read_cavs  # it loads Captum

        return cls(**read_cavs(cavs, concept, layer) | ({} if names is None else {"names": names}))

    @classmethod
    def from_activations(
        cls,
        backbone: nn.Module | Backbone,
        images: Tensor | np.ndarray | Iterable[Any],
        n_concepts: int,
        *,
        pool: Pool = "mean",
        maps: Maps | None = None,
        batch_size: int = 64,
        seed: int = 0,
    ) -> Self:
        """Find concepts without labels: directions that the activations of images are made of.

        The non-negative matrix factorisation (NMF) of CRAFT (Fel et al. 2023), over all places of the maps, by
        scikit-learn. If activations are below 0, as those of ViT, ConvNeXt or EfficientNet, which have no ReLU before
        their classes, the directions lead from the mean to the centres of clusters (K-means, as in ACE, Ghorbani et al.
        2019); a warning says so, and ``bank.settings["method"]``. `show_top_images` shows what each detects. Boundaries
        go through the mean embedding.

        Parameters
        ----------
        backbone : nn.Module or Backbone
            As `features` of `PostHocCBM`; it runs in eval mode and without gradient, and is left as it was.
        images : Tensor, array or iterable
            (N, C, H, W), as the backbone takes them, or a loader as of `embed`.
        n_concepts : int
            L.
        pool : "mean" or callable
            As in `PostHocCBM`.
        maps : callable, optional
            As in `PostHocCBM`.
        batch_size : int
            Batch size.
        seed : int
            Random seed of the factorisation or of the clusters.

        Returns
        -------
        ConceptBank
            "concept 1", "concept 2", ...: rows of length 1, on the CPU.

        Raises
        ------
        ValueError
            If there are no images, activations are not finite, or there are fewer dimensions than concepts.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> from captum_concepts import ConceptBank
        >>> backbone = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        >>> ConceptBank.from_activations(backbone, torch.rand(6, 3, 16, 16), 3).names
        ['concept 1', 'concept 2', 'concept 3']
        """
        return cls(**fit_activations(backbone, images, n_concepts, pool, maps, batch_size, seed))

    def to_captum(self, layer: str) -> list[CAV]:
        """Return the concepts as Captum's `CAV` objects at a layer of this name, the reverse of `from_captum`.

        Each is of an experiment of the concept, whose row is the direction, and of "not" it, whose row is the opposite.
        They are on the CPU, without intercepts and accuracies.
        """
        from captum_concepts.bank.cavs import write_cavs

        return write_cavs(self.cavs.detach().cpu(), self.names, layer)

    @classmethod
    def random(
        cls,
        n_concepts: int,
        n_features: int,
        names: Sequence[str] | None = None,
        seed: int = 0,
        *,
        mean: Tensor | ArrayLike | None = None,
    ) -> Self:
        """Draw L random directions of d dimensions and length 1: the baseline that a bank of concepts has to beat.

        One draw is one observation of chance; compare with many seeds. Each boundary goes through the `mean` embedding
        (d,), whose device and type the bank has, so that half of all images are on either side, or the origin.
        """
        drawn, settings = random_directions(n_concepts, n_features, seed, mean), {"method": "random", "seed": int(seed)}
        return cls(*drawn, names, settings=settings)

    @classmethod
    def join(cls, banks: Iterable[ConceptBank], names: Sequence[str] | None = None) -> Self:
        """Put the concepts of several banks, fitted on the embeddings of one backbone, into one.

        It is on the device of the first, with the accuracies and p-values of all; `names` replaces those of all
        concepts. Settings that are the same in all stay as they are; else "method" is "joined" and "banks" has those of
        each. A ValueError is raised if there are no banks, they differ in width, or a name occurs twice.
        """
        parts = [*banks]
        if not parts:
            raise ValueError("Expected argument `banks` to hold at least one bank but it is empty.")
        widths = [part.cavs.shape[1] for part in parts]
        if len(set(widths)) > 1:
            raise ValueError(
                f"Expected argument `banks` to hold banks of one width, that of the embeddings of one backbone, but "
                f"got {widths}."
            )
        tensors = {name: torch.cat([getattr(part, name).to(parts[0].device) for part in parts]) for name in ALL_TENSORS}
        settings = [part.settings for part in parts]
        same = all(part.settings == settings[0] for part in parts)
        joined = settings[0] if same else {"method": "joined", "banks": settings}
        own_names = [name for part in parts for name in part.names]
        return cls(**tensors, names=own_names if names is None else names, settings=joined)

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

    def index(self, name: str) -> int:
        """Return the position of a concept, from 0; a ValueError names the nearest if there is none of this name."""
        if name not in self.names:
            near = difflib.get_close_matches(name, self.names, n=3, cutoff=0.4) or self.names[:3]
            raise ValueError(
                f"Expected the name of a concept but none is named {name!r}. The nearest of the {len(self)} are {near}."
            )
        return self.names.index(name)

    def select(self, concepts: str | int | Sequence[str | int | bool] | np.ndarray | Tensor) -> Self:
        """Return a bank of some of the concepts, in the order given, with the settings of this one.

        Concepts are chosen by names, patterns such as ``"has_wing_*"``, indices, or a mask (L,) of bool. A ValueError
        is raised if a name or index is not there or occurs twice, or nothing is selected.
        """
        items = concepts.tolist() if isinstance(concepts, Tensor | np.ndarray) else concepts
        values = (
            [items]
            if isinstance(items, str | int | np.integer)
            else checks.as_list("concepts", items, "names or indices")
        )
        if values and all(isinstance(value, bool | np.bool_) for value in values):
            checks.check_axes(cavs=(self.cavs, "L d"), concepts=(np.asarray(values), "L"))
            values = [int(place) for place in np.flatnonzero(np.asarray(values))]
        chosen = [place for value in values for place in checks.find_names("concepts", self.names, [value])]
        if not chosen:
            raise ValueError("Expected argument `concepts` to select at least one concept but it selects none.")
        rows = torch.tensor(chosen, device=self.device)
        some = {name: tensor[rows] for name, tensor in self._tensors().items()}
        return type(self)(**some, names=[self.names[j] for j in chosen], settings=self.settings)

    def _tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in ALL_TENSORS}

    def rename(self, mapping: Mapping[str, str]) -> Self:
        """Return a bank with other names: `mapping` from old names to new ones; the other concepts keep theirs.

        A ValueError is raised if an old name is not there, or two concepts would have one name.
        """
        new_names = {self.index(old): new for old, new in mapping.items()}
        names = [new_names.get(j, name) for j, name in enumerate(self.names)]
        return type(self)(**self._tensors(), names=names, settings=self.settings)

    def cleaned(self, minimum: float = WEAK) -> Self:
        """Return a bank without the concepts of a `test_accuracy` below a minimum; one warning names them.

        Concepts whose accuracy is unknown (NaN, as in banks from texts) stay; `settings` keep the minimum as "cleaned".
        A ValueError is raised if `minimum` is not in [0, 1], or no concept would stay.
        """
        checks.check_range("minimum", minimum, 0, 1)
        drop = (self.test_accuracy < minimum).tolist()
        if all(drop):
            raise ValueError(
                f"Expected argument `minimum` to leave at least one concept but got {minimum}, and the highest "
                f"balanced accuracy is {self.test_accuracy.max().item():.3g}. Add images, or lower it."
            )
        accuracies = zip(self.names, self.test_accuracy.tolist(), strict=True)
        if dropped := [f"{name!r} ({accuracy:.2f})" for name, accuracy in accuracies if accuracy < minimum]:
            warn_user(
                f"{len(dropped)} of {len(self)} concepts have a balanced accuracy below {minimum:g} on images held "
                f"back and were left out: {list_first(dropped)}."
            )
        bank = self.select([not gone for gone in drop])
        bank.settings["cleaned"] = float(minimum)
        return bank

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Self:
        """Return a copy on another device or in another floating-point type; by default those of this bank."""
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"Expected argument `dtype` to be a floating-point type of torch but got {dtype!r}.")
        cavs = self.cavs.to(device=device or self.device, dtype=dtype or self.dtype)
        return type(self)(**self._tensors() | {"cavs": cavs}, names=self.names, settings=self.settings)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the bank as one safetensors file, names and settings as its metadata.

        It appears under its name only when it is complete; a file already there is replaced. A TypeError is raised if
        the settings hold what JSON cannot, a FileNotFoundError without its folder, an IsADirectoryError for a folder.
        """
        write_file(Path(path).expanduser(), "concept bank", *pack(BANK, *self.parts()))

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: torch.device | str = "cpu") -> Self:
        """Read a bank that `save` has written; nothing in the file is executed.

        A FileNotFoundError is raised without such a file, and a ValueError if it is damaged or of another kind.
        """
        source = Path(path).expanduser()
        return read_file(source, "concept bank", BANK, cls.from_parts, str(device))

    def parts(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Return what files hold of the bank: the facts, and the tensors by name."""
        tensors = {name: each for name, each in self._tensors().items() if name in TENSORS or not each.isnan().all()}
        return {"names": self.names, "settings": self.settings}, tensors

    @classmethod
    def from_parts(cls, facts: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """Return the bank of what a file holds, or of a file that holds more."""
        known = {name: tensors[name] for name in ALL_TENSORS if name in tensors}
        return cls(**known, names=facts["names"], settings=facts["settings"])
