"""Banks learnt from images with and without each concept, or from folders of them."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor, nn

from captum_concepts._support.constraints import POOL, Arrays, Flag, Function, Location, Names, Whole, check_arguments
from captum_concepts.backbones.embedding import embed_batches
from captum_concepts.backbones.pooling import Maps, Pool, resolve_stages
from captum_concepts.bank.directions import FITTING, HOLD_BACK, Fitting, as_embeddings, fit_directions
from captum_concepts.bank.folders import find_concept_folders, fit_folders, image_loader, warn_without_transform
from captum_concepts.bank.learnable import MIN_IMAGES, Learnable, find_learnable
from captum_concepts.bank.value import BankValue


class FittedBank(BankValue):
    """Base of `ConceptBank`: the ways to make one of images."""

    @classmethod
    @check_arguments(
        features=Arrays("N, d", kind="tensor", finite=True, filled=True),
        labels=Arrays("N, L", binary=True, filled=True),
        names=Names("L"),
        **FITTING,
        min_images=Whole(1),
        display_progressbar=Flag(),
    )
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
        *,
        concepts: Any = None,
        min_images: int = MIN_IMAGES,
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
            "svm" or "mean".
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
        TypeError
            If an array is masked or complex.
        ValueError
            If a shape, a setting or an entry is wrong, no concept is named so, or none can be learned.
        """
        x, present = as_embeddings(features), labels.astype(bool)
        learnable = find_learnable(present, names, concepts, min_images)
        learnable.warn()
        fitting = Fitting(method, n_pos, n_neg, C, seed, hold_back)
        return cls._fit_learnable(x, present, learnable, fitting, display_progressbar)

    @classmethod
    def _fit_learnable(
        cls, features: Tensor, present: np.ndarray, learnable: Learnable, fitting: Fitting, display_progressbar: bool
    ) -> Self:
        """Fit the concepts found, of samples and with settings that are checked."""
        fitted = fit_directions(
            features, present[:, learnable.positions], learnable.names, fitting, display_progressbar
        )
        settings = fitting_settings(fitting)
        if learnable.left_out:
            settings["left_out"] = learnable.left_out
        return cls(**fitted._asdict(), names=learnable.names, settings=settings)

    @classmethod
    @check_arguments(
        root=Location("folder", "a folder with one folder of images for each concept"),
        transform=Function(),
        pool=POOL,
        maps=Function(),
        **FITTING,
        batch_size=Whole(1),
        num_workers=Whole(),
        display_progressbar=Flag(),
    )
    def from_folders(
        cls,
        backbone: Any,
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
            "svm" or "mean", as in `fit`, like `C`, `hold_back` and `seed`.
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
            an image cannot be read or is of another size than the others.
        TypeError
            If `transform` cannot be called.

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
        fitting = Fitting(method, n_pos, n_neg, C, seed, hold_back)
        fitted = fit_folders(folders, dict(zip(paths, features, strict=True)), fitting, display_progressbar)
        settings = fitting_settings(fitting) | {"folder": Path(root).resolve().name, "random": random}
        settings["random_sets"] = len(folders.random_sets)
        if not math.isnan(fitted.random_accuracy):
            settings["random_accuracy"] = fitted.random_accuracy
        names = [concept.name for concept in folders.concepts]
        return cls(**fitted.directions._asdict(), names=names, p_values=fitted.p_values, settings=settings)


def fitting_settings(fitting: Fitting) -> dict[str, Any]:
    """Return how a bank was fitted, as its settings hold it."""
    settings: dict[str, Any] = {
        "method": fitting.method,
        "n_pos": "all" if fitting.n_pos is None else int(fitting.n_pos),
        "n_neg": "as many" if fitting.n_neg is None else int(fitting.n_neg),
        "seed": int(fitting.seed),
        "hold_back": float(fitting.hold_back),
        "accuracy": "balanced",
    }
    return settings | ({"C": float(fitting.C)} if fitting.method == "svm" else {})


#: What a bank that is given takes the place of, with the defaults of `PostHocCBM.fit`.
_REPLACED: dict[str, Any] = {"concept_labels": None, "names": None, "method": "svm", "n_pos": 100, "n_neg": 100, "C": 1}
_REPLACED |= {"concepts": None, "min_images": MIN_IMAGES}


def check_given(backbone: Any, bank: Any, **replaced: Any) -> int:
    """Validate a user-supplied bank and return its width."""
    surplus = [
        name
        for name, value in replaced.items()
        if value is not _REPLACED[name] and not (isinstance(value, str | int | float) and value == _REPLACED[name])
    ]
    if surplus:
        raise ValueError(
            f"Expected argument `bank`, which is fitted already, alone but got `{'`, `'.join(surplus)}` with it. "
            "Leave one or the other out; `bank.rename` gives other names."
        )
    width = None if isinstance(backbone, nn.Module) else getattr(backbone, "channels", None)
    if width not in (None, bank.cavs.shape[1]):
        raise ValueError(
            f"Expected argument `bank` to have the width of the embeddings, (L, d) = (*, {width}), but got "
            f"{tuple(bank.cavs.shape)}. It is of another backbone, or another layer."
        )
    return int(bank.cavs.shape[1])
