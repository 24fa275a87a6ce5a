"""The options of `quantus-concepts benchmark attribution`."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from quantus_concepts.studies._kit.command import MANY, RunOptions, option, share
from quantus_concepts.studies._models.options import PAINTED, Belongs, COCOOptions, DataOptions, SmallNetworkOptions

if TYPE_CHECKING:
    from quantus_concepts.metrics import Limits

COCO, FOLDERS, BAM = "coco-miniplaces", "folders", "bam"
DATA = (PAINTED, COCO, FOLDERS, BAM)
#: The small network's logits change so little with a pixel that the usual weight of the patch's size would outdo them.
SMALL_STEP_SIZE, SMALL_ETA1 = 5000.0, 0.001
#: Panels of the help.
_DATA, _MODELS, _METHODS, _METRICS = "Data", "Models", "Methods", "Metrics"
_PREMISES = "When the ground truth counts as verified"
_COUNT, _SHARE = (1, MANY), (0, 1)
_above_zero = partial(option, bounds=(0, MANY), open_low=True)


@dataclass(frozen=True, kw_only=True)
class AttributionOptions(COCOOptions, SmallNetworkOptions, DataOptions, RunOptions):
    """Ask attribution methods for the importance of what provably does not matter: MCS, IDR, IIR.

    With no option: objects are painted on scenes, small networks are trained on the objects and on the scenes, it is
    verified that each ignores the other, and eight methods of Captum, two controls and TCAV are compared. Prints the
    main table; the last line is the folder with report.html, results.csv, the figures and the trained models.
    """

    examples = (
        "benchmark attribution --methods grad-cam,my_file.py:my_method",
        "benchmark attribution --data bam --root composed --backbone resnet18",
    )
    quick = (
        "--n-train 4 --n-test 4 --test-share 0.25 --image-size 16 --epochs 2 --batch-size 16 --train-batch-size 16 "
        "--n-images 12 --n-patches 4 --patch-steps 5 --n-samples 2 --n-steps 3"
    )

    needs: ClassVar[Belongs] = {
        PAINTED: (),
        COCO: ("objects", "annotations", "scenes"),
        FOLDERS: ("objects", "scenes"),
        BAM: ("root",),
    }
    takes: ClassVar[Belongs] = {COCO: ("object_classes", "min_photographs")}
    not_small = ("weights", "mean", "std", "unnormalised")

    data: str = option(PAINTED, f"Which images: {', '.join(DATA)}.", panel=_DATA, choices=DATA)
    objects: Path | None = option(
        None,
        "folders: RGBA cut-outs, a folder for each class. coco-miniplaces: the photographs of COCO.",
        panel=_DATA,
        path="folder",
    )
    annotations: Path | None = option(None, "coco-miniplaces: instances_*.json.", panel=_DATA, path="file")
    scenes: Path | None = option(None, "Scenes, a folder for each class.", panel=_DATA, path="folder")
    root: Path | None = option(None, "bam: folder in the layout of the paper's release.", panel=_DATA, path="folder")
    image_size: int | None = option(
        None,
        "Height and width in pixels; by default 64, and 224 with another backbone.",
        panel=_DATA,
        bounds=(16, 4096),
    )
    n_train: int = option(60, "Training images of each pair of object and scene.", panel=_DATA, bounds=_COUNT)
    n_test: int = option(8, "Test images of each pair.", panel=_DATA, bounds=_COUNT)
    test_share: float = share(0.1, "Share of cut-outs and scenes that only tests see.", panel=_DATA)
    epochs: int = option(6, "Passes over the training images.", panel=_MODELS, bounds=_COUNT)
    # Batch norm cannot learn from a single image.
    train_batch_size: int = option(64, "Batch size of the training.", panel=_MODELS, bounds=(2, MANY))
    learning_rate: float | None = _above_zero(None, "By default the choice that suits the backbone.", panel=_MODELS)
    augment: bool = option(False, "Mirror and shift training images.", panel=_MODELS)
    models: Path | None = option(
        None,
        "Folder of trained models: saved models are reused, and an interrupted training resumes. By "
        "default a new one in --out.",
        panel=_MODELS,
        path="new folder",
        shown=False,
        matters=False,
    )
    methods: str | None = option(
        None,
        "Names with commas: of the paper (grad-cam), one smoothed (grad-cam + smoothgrad), any Captum class "
        "(Occlusion), or your own, module:function or path.py:function. By default the paper's eight; random and "
        "Sobel edges are always there.",
        panel=_METHODS,
    )
    n_samples: int = option(8, "Noisy copies of SmoothGrad.", panel=_METHODS, bounds=_COUNT)
    n_steps: int = option(16, "Steps of integrated gradients.", panel=_METHODS, bounds=_COUNT)
    noise: float = option(0.15, "Noise of SmoothGrad, as a share of the image's range.", panel=_METHODS, bounds=(0, 10))
    n_images: int = option(200, "Images explained for MCS and IDR.", panel=_METRICS, bounds=_COUNT)
    n_patches: int = option(100, "Images for IIR.", panel=_METRICS, bounds=_COUNT)
    patch_steps: int = option(300, "Steps of a patch's optimisation.", panel=_METRICS, bounds=_COUNT)
    step_size: float | None = _above_zero(
        None, "On pixels of 0 to 255; by default 500, and 5000 for the small network.", panel=_METRICS
    )
    eta1: float | None = option(
        None,
        "Weight of the patch's size; by default 0.01, and 0.001 for the small network.",
        panel=_METRICS,
        bounds=(0, MANY),
    )
    threshold: float = _above_zero(0.1, "Relative change that counts in IIR.", panel=_METRICS)
    tolerance: float = _above_zero(0.05, "Logit distance up to which a patch counts.", panel=_METRICS)
    relative: bool = option(False, "Train ten more models, for the relative contrast.", panel=_METRICS)
    common_object: str | None = option(None, "The common feature.", panel=_METRICS)
    target_scene: str | None = option(None, "The scene that always has it.", panel=_METRICS)
    n_relative: int = option(100, "Images of that scene explained.", panel=_METRICS, bounds=(2, MANY))
    robustness: bool = option(
        False,
        "Also compute MCS with objects of other sizes and at other places (Figure 5 of the paper).",
        panel=_METRICS,
    )
    tcav: bool = option(True, "Also score TCAV.", panel=_METRICS)
    max_drop: float = option(
        0.02, "Accuracy that removing the common feature may cost.", panel=_PREMISES, bounds=_SHARE
    )
    min_remain: float = option(0.95, "Share of correct answers that must stay.", panel=_PREMISES, bounds=_SHARE)
    max_above_chance: float = option(
        0.05, "Accuracy above chance that the feature alone may have.", panel=_PREMISES, bounds=_SHARE
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, needed in (
            ("relative", "images with the common feature in a share of the classes"),
            ("robustness", "images composed with objects of other sizes and at other places"),
        ):
            if getattr(self, name) and self.data == BAM:
                raise ValueError(
                    f"Argument `--{name}` needs {needed}, which the BAM layout does not hold. Compose them: --data "
                    f"{COCO} or --data {FOLDERS}."
                )
        _ = self.method_names

    @property
    def limits(self) -> Limits:
        """When the ground truth counts as verified."""
        from quantus_concepts.metrics import Limits

        return Limits(self.max_drop, self.min_remain, self.max_above_chance)

    @property
    def patch_settings(self) -> dict[str, Any]:
        """Step size of the patches, on pixels of 0 to 255, and the weight of their size."""
        from quantus_concepts.metrics.contrast.patch_optimisation import ETA1, STEP_SIZE

        step_size, eta1 = (SMALL_STEP_SIZE, SMALL_ETA1) if self.trains else (STEP_SIZE, ETA1)
        return {
            "step_size": step_size if self.step_size is None else self.step_size,
            "eta1": eta1 if self.eta1 is None else self.eta1,
        }

    @property
    def method_names(self) -> list[str] | None:
        """The requested methods; None for those of the paper and the baselines."""
        if self.methods is None:
            return None
        names = [name.strip() for name in self.methods.split(",")]
        if not all(names):
            raise ValueError(
                f"Expected argument `--methods` to hold names with commas between them but got {self.methods!r}."
            )
        return names
