"""A bank of concepts: one direction in feature space for each, with its name."""

from __future__ import annotations

import difflib
import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from captum_concepts._support.checks import (
    as_list,
    check_axes,
    check_binary,
    check_finite_tensor,
    check_folder,
    check_names,
    check_range,
    check_whole,
    find_names,
    to_array,
    to_tensor,
)
from captum_concepts._support.files import shorten
from captum_concepts._support.running import warn_user
from captum_concepts._support.shown import bank_html, describe, show_value
from captum_concepts.backbones.embedding import embed_batches
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.activations import activations, factorise
from captum_concepts.bank.directions import (
    HOLD_BACK,
    WEAK,
    Fitting,
    as_embeddings,
    fit_directions,
    list_first,
    weak_concepts,
)
from captum_concepts.bank.files import P_VALUES, TENSORS, BankContents, read_bank, write_bank
from captum_concepts.bank.folders import find_concept_folders, fit_folders, image_loader, warn_without_transform
from captum_concepts.bank.learnable import MIN_IMAGES, Learnable, find_learnable
from captum_concepts.bank.texts import embed_texts

if TYPE_CHECKING:
    from captum.concept import CAV

    from captum_concepts.backbones.backbone import Backbone


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
        (L,), balanced accuracy (mean of the shares of samples with and without the concept that are on the right
        side of its boundary) among those it was fitted on; NaN where unknown.
    test_accuracy : Tensor or array, optional
        The same among samples held back.
    p_values : Tensor or array, optional
        (L,), those of `from_folders`; NaN where unknown.
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
    p_values : Tensor
        (L,), how likely random images were to be separated from others as well as the concept is; NaN where unknown.
        `PostHocCBM` does not keep them.
    settings : dict
        What JSON can hold.
    weak : list of str
        Names of concepts whose `test_accuracy` is below .6, chance being .5: their directions say little.

    Raises
    ------
    TypeError
        If `cavs` is a mask (bool).
    ValueError
        If a shape differs, an entry of `cavs` or `intercepts` is not finite, an accuracy or p-value is not in [0, 1],
        or a name occurs twice.

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
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        rows = to_tensor("cavs", cavs)
        if rows.dtype == torch.bool:
            raise TypeError("Expected argument `cavs` to hold numbers but got torch.bool. Is it a mask?")
        check_axes(cavs=(rows, "L d"))
        if not rows.numel():
            raise ValueError(f"Expected argument `cavs` to hold at least one number but got {tuple(rows.shape)}.")
        self.cavs = rows.clone() if rows.is_floating_point() else rows.float()
        self.intercepts = self._per_concept("intercepts", intercepts, 0.0)
        check_finite_tensor("cavs", self.cavs)
        check_finite_tensor("intercepts", self.intercepts)
        self.train_accuracy = self._per_concept("train_accuracy", train_accuracy, math.nan)
        self.test_accuracy = self._per_concept("test_accuracy", test_accuracy, math.nan)
        self.p_values = self._per_concept("p_values", p_values, math.nan)
        self.names = check_names(names, len(self.cavs))
        self.settings = dict(settings or {})

    def _per_concept(self, name: str, value: Tensor | ArrayLike | None, default: float) -> Tensor:
        if value is None:
            return self.cavs.new_full((len(self.cavs),), default)
        tensor = to_tensor(name, value)
        check_axes(cavs=(self.cavs, "L d"), **{name: (tensor, "L")})
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

        For each concept `n_pos` images that show it and `n_neg` that do not are drawn without replacement; at
        least a share `hold_back` of the images of either side, and at least one, is held back to test it on (a
        side's only image is drawn). Of those drawn,

        - "svm" takes the normal and the intercept of a linear SVM, as post-hoc CBM does;
        - "mean" is FastCAV: the mean of the positives less the mean of all drawn (its global mean is that of concept
          and random images together), with no solver and all concepts in one product. The
          intercept puts the boundary midway between the two class means along the direction; FastCAV puts
          it through the global mean, which is the same where as many of either kind were drawn.

        Either way images with the concept score positive. A concept with fewer than `min_images` images with it, or
        without it, cannot be learned and is left out. One warning each names concepts left out, concepts with fewer
        images than requested, concepts with the same labels on all images, whose directions are the same, and concepts
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
            On the device of the features, in their type (half precision becomes float32). Accuracies are
            balanced, of all images drawn and of all images left; NaN where a side has none left. Its
            ``settings["left_out"]`` names the concepts left out, where there are any.

        Raises
        ------
        ValueError
            If shapes do not fit each other, an embedding is not finite, a label is not 0 or 1, a setting is out of
            range, no concept is named so, or none can be learned.
        """
        x, present = as_embeddings(features), to_array("labels", labels)
        check_axes(features=(x, "N d"), labels=(present, "N L"))
        check_finite_tensor("features", x)
        check_binary("labels", present)
        fitting = Fitting(method, n_pos, n_neg, C, seed, hold_back).check()
        learnable = find_learnable(present, names, concepts, min_images)
        learnable.warn()
        return cls.fit_learnable(x, present.astype(bool), learnable, fitting, display_progressbar)

    @classmethod
    def fit_learnable(
        cls, features: Tensor, present: np.ndarray, learnable: Learnable, fitting: Fitting, display_progressbar: bool
    ) -> Self:
        """Fit the concepts found, of samples and with settings that are checked."""
        fitted = fit_directions(
            features, present[:, learnable.positions], learnable.names, fitting, display_progressbar
        )
        settings = fitting.settings()
        if learnable.left_out:
            settings["left_out"] = learnable.left_out
        return cls(**fitted._asdict(), names=learnable.names, settings=settings)

    @classmethod
    def from_folders(
        cls,
        backbone: nn.Module | Backbone,
        root: str | os.PathLike[str],
        *,
        transform: Callable[[Any], Any] | None = None,
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

        A concept is fitted as by `ConceptBank.fit` on its images and those without it, never on other concepts'. Of
        several random sets, images are drawn from all together.

        With five random sets or more, `p_values` say whether a concept is separated from random images better
        than random images are from each other: the mean held-out accuracy of the concept against each set, among the
        same mean of each random set in its place against the others. The test is a one-sided t-test of one more value,
        not Captum's and TCAV's practice of Welch's test over repetitions: those all share the concept's images, so that
        any set of images comes out as significant if only there are random sets enough. With many concepts some have
        small p-values by chance. What a class makes of a concept is another question: `tcav_folders`.

        Parameters
        ----------
        backbone : nn.Module or Backbone
            As `features` in `PostHocCBM`; run in eval mode and without gradient, and left as it was.
        root : path
            The folder. Other files than images, and hidden ones, are ignored.
        transform : callable, optional
            From an upright RGB image of Pillow to a tensor (C, H, W) as the backbone expects it: the
            preprocessing of torchvision's weights, of timm or open_clip. By default images are (3, H, W) in [0, 1]
            and of one size, of which a warning reminds.
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
            On the device of the backbone, named after the folders. Its `settings` tell the folder, the number of
            random sets and, as "random_accuracy", how well those are separated from each other.

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
        >>> significant = bank.p_values < 0.05  # bank.select(significant) keeps these
        >>> significant.shape
        torch.Size([2])
        """
        root = check_folder("root", root, "a folder with one folder of images for each concept")
        fitting = Fitting(method, n_pos, n_neg, C, seed, hold_back).check()
        module, pooling = resolve_stages(backbone, pool, maps, "backbone")
        folders = find_concept_folders(root, random)
        if transform is None:
            warn_without_transform(backbone)
        paths = folders.paths()
        loader = image_loader(paths, transform, batch_size, num_workers)
        features = as_embeddings(embed_batches(module, pooling, loader, 1, display_progressbar).features)
        bad = [path for path, row in zip(paths, features.isfinite().all(1).tolist(), strict=True) if not row]
        if bad:
            raise ValueError(
                f"Expected argument `backbone` to give finite embeddings but it gives NaN or infinity for {len(bad)} "
                f"of {len(paths)} images, {bad[0]} for one. Is `transform` the one that it was trained with?"
            )
        fitted = fit_folders(folders, dict(zip(paths, features, strict=True)), fitting, display_progressbar)
        settings = fitting.settings() | {"folder": root.resolve().name, "random": random}
        settings["random_sets"] = len(folders.random_sets)
        if not math.isnan(fitted.random_accuracy):
            settings["random_accuracy"] = fitted.random_accuracy
        names = [concept.name for concept in folders.concepts]
        return cls(**fitted.directions._asdict(), names=names, p_values=fitted.p_values, settings=settings)

    @classmethod
    def from_text(
        cls,
        model: nn.Module,
        tokenizer: Callable[..., Any],
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
            List of texts to tokens (n, length), as ``open_clip.get_tokenizer`` gives it; for a model of transformers
            its tokenizer or processor (texts are cut, and for SigLIP filled up, to the length of the model), or what
            gives tokens or a mapping of arguments.
        prompts : sequence of str
            L texts.
        names : sequence of str, optional
            L names; the prompts by default.
        batch_size : int
            Batch size of texts.
        templates : sequence of str, optional
            Texts with ``{}``, "a photo of a {}." for instance. Each prompt is put into each; their embeddings are
            brought to length 1, averaged, and brought to length 1 again, as in CLIP's zero-shot classification.

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
        prompts = as_list("prompts", prompts, "texts")
        templates = None if templates is None else as_list("templates", templates, "texts")
        if not prompts or templates == []:
            raise ValueError("Expected arguments `prompts` and `templates` to hold at least one text but one is empty.")
        names = check_names(prompts if names is None else names, len(prompts))
        rows = embed_texts(model, tokenizer, prompts, templates, batch_size)
        settings: dict[str, Any] = {"method": "text"}
        if templates is not None:
            settings["templates"] = templates
        return cls(rows, names=names, settings=settings)

    @classmethod
    def from_captum(
        cls,
        cavs: CAV | Sequence[CAV] | Mapping[str, Any],
        names: Sequence[str] | None = None,
        *,
        concept: int | str = 0,
        layer: str | None = None,
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
        from captum_concepts.bank.cavs import read_cavs

        found_layer, own_names, rows = read_cavs(cavs, concept, layer)
        settings = {"method": "captum", "layer": found_layer}
        return cls(rows, names=own_names if names is None else names, settings=settings)

    @classmethod
    def from_activations(
        cls,
        backbone: nn.Module | Backbone,
        images: Tensor | ArrayLike | Iterable[Any],
        n_concepts: int,
        *,
        pool: Pool = "mean",
        maps: Maps | None = None,
        batch_size: int = 64,
        seed: int = 0,
    ) -> Self:
        """Find concepts without labels: directions that the activations of images are made of.

        The non-negative matrix factorisation (NMF) of CRAFT (Fel et al. 2023), over all places of the maps, by
        scikit-learn; activations must be at least 0. Concepts have no names: `show_top_images` shows what each
        detects. Boundaries go through the mean embedding, so that about half of the images are on either side. `CLM`,
        `MCS` and `Faithfulness` need no labels.

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
            Random seed of the factorisation.

        Returns
        -------
        ConceptBank
            "concept 1", "concept 2", ...: rows of length 1, on the CPU.

        Raises
        ------
        ValueError
            If there are no images, activations are negative or not finite, or there are fewer places or dimensions than
            concepts.

        Examples
        --------
        >>> import torch
        >>> from torch import nn
        >>> from captum_concepts import ConceptBank, show_top_images
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())
        >>> images = torch.rand(6, 3, 16, 16)
        >>> bank = ConceptBank.from_activations(model, images, 3)
        >>> bank.names
        ['concept 1', 'concept 2', 'concept 3']
        >>> figure, axes = show_top_images(model, images, "concept 3", layer="1", bank=bank)
        """
        check_whole("n_concepts", n_concepts, 1)
        features, pooling = resolve_stages(backbone, pool, maps, "backbone")
        places, embeddings, _ = activations(features, pooling, images, batch_size)
        check_finite_tensor("images", places)
        cavs = nn.functional.normalize(factorise(places, n_concepts, seed), dim=1)
        names = [f"concept {number}" for number in range(1, n_concepts + 1)]
        settings = {"method": "nmf", "seed": int(seed), "places": len(places)}
        return cls(cavs, -cavs @ embeddings.mean(0), names, settings=settings)

    def to_captum(self, layer: str) -> list[CAV]:
        """Return the concepts as Captum's objects, the reverse of `from_captum`.

        Parameters
        ----------
        layer : str
            Name of the layer that the concepts are of, which Captum keeps with them.

        Returns
        -------
        list of captum.concept.CAV
            One for each concept, on the CPU: an experiment of the concept, whose row is the direction, and of "not" it,
            whose row is the opposite. Captum keeps no intercepts, and of accuracies nothing is written.

        Examples
        --------
        >>> from captum_concepts import ConceptBank
        >>> bank = ConceptBank([[1.0, 0.0]], names=["striped"])
        >>> bank.to_captum("layer4")[0].concepts[0].name
        'striped'
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
        """Draw random directions: the baseline that a bank of concepts has to beat.

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
            Random seed of the draw; the global generators are not used.
        mean : Tensor, optional
            (d,), the mean embedding: each boundary goes through it, so that about half of all images are on
            either side. Device and type are those of the bank. By default boundaries go through the origin.

        Returns
        -------
        ConceptBank
            L directions, evenly spread over the sphere, of length 1.

        Raises
        ------
        ValueError
            If a number is too small, or `names` or `mean` do not fit.
        """
        check_whole("n_concepts", n_concepts, 1)
        check_whole("n_features", n_features, 1)
        centre = torch.zeros(n_features) if mean is None else as_embeddings(mean, "mean")
        check_axes(mean=(centre, f"{n_features}"))
        check_finite_tensor("mean", centre)
        directions = np.random.default_rng(seed).standard_normal((n_concepts, n_features))
        cavs = nn.functional.normalize(torch.as_tensor(directions).to(centre), dim=1)
        return cls(cavs, -cavs @ centre, names, settings={"method": "random", "seed": int(seed)})

    @classmethod
    def join(cls, banks: Iterable[ConceptBank], names: Sequence[str] | None = None) -> Self:
        """Put the concepts of several banks into one.

        Parameters
        ----------
        banks : sequence of ConceptBank
            Banks of one width, fitted on the embeddings of one backbone.
        names : sequence of str, optional
            Names of all concepts in the order of the banks; by default they keep theirs.

        Returns
        -------
        ConceptBank
            On the device of the first, with the accuracies and p-values of all. Settings that are the same in all
            stay as they are; else "method" is "joined" and "banks" has those of each.

        Raises
        ------
        ValueError
            If there are none, they differ in width, or a name occurs twice.

        Examples
        --------
        >>> from captum_concepts import ConceptBank
        >>> colours = ConceptBank([[1.0, 0.0]], names=["red"])
        >>> shapes = ConceptBank([[0.0, 2.0]], names=["long"])
        >>> ConceptBank.join([colours, shapes]).names
        ['red', 'long']
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
        all_names = [name for part in parts for name in part.names]
        twice = sorted(name for name, count in Counter(all_names).items() if count > 1)
        if names is None and twice:
            raise ValueError(
                f"Expected argument `banks` to have concepts of different names but "
                f"{list_first([*map(repr, twice)])} occur more than once. Rename them first "
                "(`bank.rename({'old': 'new'})`), or pass `names`."
            )
        tensors = {
            name: torch.cat([getattr(part, name).to(parts[0].device) for part in parts])
            for name in (*TENSORS, P_VALUES)
        }
        settings = [part.settings for part in parts]
        same = all(part.settings == settings[0] for part in parts)
        joined = settings[0] if same else {"method": "joined", "banks": settings}
        return cls(**tensors, names=all_names if names is None else names, settings=joined)

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
        if name not in self.names:
            raise self._unknown_name("argument `name` to be that of a concept", name)
        return self.names.index(name)

    def _unknown_name(self, expected: str, name: Any) -> ValueError:
        near = difflib.get_close_matches(str(name), self.names, n=3, cutoff=0.4) or self.names[:3]
        return ValueError(f"Expected {expected} but none is named {name!r}. The nearest of the {len(self)} are {near}.")

    def select(self, concepts: str | int | Sequence[str | int | bool] | np.ndarray | Tensor) -> Self:
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
            check_axes(cavs=(self.cavs, "L d"), concepts=(np.asarray(values), "L"))
            return [j for j, value in enumerate(values) if value]
        return [place for value in values for place in find_names("concepts", self.names, [value])]

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
        ValueError
            If `minimum` is not in [0, 1], or no concept would stay.
        """
        check_range("minimum", minimum, 0, 1)
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
        """
        if dtype is not None and not dtype.is_floating_point:
            raise TypeError(f"Expected argument `dtype` to be a floating-point type of torch but got {dtype!r}.")
        cavs = self.cavs.to(device=device or self.device, dtype=dtype or self.dtype)
        return type(self)(**self._tensors() | {"cavs": cavs}, names=self.names, settings=self.settings)

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
            If the settings hold what JSON cannot.
        FileNotFoundError
            If its folder does not exist.
        IsADirectoryError
            If it is a folder.
        """
        write_bank(Path(path).expanduser(), BankContents(self._tensors(), self.names, self.settings))

    @classmethod
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
        tensors, names, settings = read_bank(Path(path).expanduser(), str(device))
        try:
            return cls(names=names, settings=settings, **tensors)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{path} is a damaged concept bank: {shorten(error)}") from error
