"""The settings of `benchmark attribution`, which are its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from quantus_concepts.studies._kit import options as kit
from quantus_concepts.studies._kit.study import Settings

Kind = Literal["painted", "coco-miniplaces", "folders", "bam"]
#: Options that name files, by kind of data; with coco-miniplaces further two may be given.
NEEDS = {
    "painted": (),
    "coco-miniplaces": ("objects", "annotations", "scenes"),
    "folders": ("objects", "scenes"),
    "bam": ("root",),
}
#: Pixels of images, for the small network and for others.
SMALL_SIZE, LARGE_SIZE = 64, 224
#: The small network's logits change so little with a pixel that the usual weight of the patch's size would outdo them.
SMALL_STEP_SIZE, SMALL_ETA1 = 5000.0, 0.001
#: Name of a loaded network within its model.
LOADED = "network"


def _option(panel: str) -> Callable[..., Any]:
    return lambda help, **settings: typer.Option(help=help, rich_help_panel=panel, **settings)


_data, _model, _method, _metric = (_option(panel) for panel in ("Data", "Models", "Methods", "Metrics"))
_premise = _option("When the ground truth counts as verified")
FOLDER = {"exists": True, "file_okay": False}


@dataclass(frozen=True, kw_only=True)
class Attribution(Settings):
    """Ask attribution methods for the importance of what provably does not matter: MCS, IDR, IIR.

    With no option: objects are painted on scenes, small networks are trained on the objects and on the scenes, it is
    verified that each ignores the other, and eight methods of Captum, two controls and TCAV are compared. Prints the
    verdicts; the last line is the folder with report.html, results.csv and the figures. Its cache has the models.

    Example: quantus-concepts benchmark attribution --methods grad-cam,my_file.py:my_method

    Example: quantus-concepts benchmark attribution --data bam --root composed --backbone resnet18
    """

    words = "benchmark attribution"
    # What a user of own data needs.
    shown = (
        "data objects annotations scenes root image_size models methods n_images n_patches relative backbone layer "
        "weights mean std unnormalised device out overwrite"
    )

    data: Annotated[Kind, _data("Which images.")] = "painted"
    objects: Annotated[
        Path | None,
        _data("folders: RGBA cut-outs, a folder for each class. coco-miniplaces: the photographs of COCO.", **FOLDER),
    ] = None
    annotations: Annotated[Path | None, _data("coco-miniplaces: instances_*.json.", exists=True, dir_okay=False)] = None
    scenes: Annotated[Path | None, _data("Scenes, a folder for each class.", **FOLDER)] = None
    root: Annotated[Path | None, _data("bam: folder in the layout of the paper's release.", **FOLDER)] = None
    object_classes: Annotated[
        str | None, _data("Classes of COCO, with commas; by default the ten of the paper's release.")
    ] = None
    min_photographs: Annotated[
        int | None,
        _data(
            "Leave out classes of COCO with objects in fewer photographs; by default a class without any raises an "
            "error. 2 or more suits a part of COCO.",
            min=1,
        ),
    ] = None
    image_size: Annotated[
        int | None,
        _data("Height and width in pixels; by default 64, and 224 with another backbone.", min=16, max=4096),
    ] = None
    n_train: Annotated[int, _data("Training images of each pair of object and scene.", min=1)] = 60
    n_test: Annotated[int, _data("Test images of each pair.", min=1)] = 8
    test_share: Annotated[float, _data("Share of cut-outs and scenes that only tests see.", min=0, max=1)] = 0.1
    epochs: Annotated[int, _model("Passes over the training images.", min=1, max=10_000)] = 6
    train_batch_size: Annotated[int, _model("Batch size of the training.", min=2, max=1_000_000)] = 64
    learning_rate: Annotated[
        float | None, _model("By default the choice that suits the backbone.", min=0, max=1000)
    ] = None
    augment: Annotated[bool, _model("Mirror and shift training images.")] = False
    models: Annotated[
        Path | None,
        _model(
            "Folder of trained models, the cache of an earlier run: those that fit are used and not trained again.",
            **FOLDER,
        ),
    ] = None
    methods: Annotated[
        str | None,
        _method(
            "Names with commas: of the paper (grad-cam), one smoothed (grad-cam + smoothgrad), any Captum class "
            "(Occlusion), or your own, module:function or path.py:function. By default the paper's eight; random and "
            "Sobel edges are always there.",
        ),
    ] = None
    n_samples: Annotated[int, _method("Noisy copies of SmoothGrad.", min=1)] = 8
    n_steps: Annotated[int, _method("Steps of integrated gradients.", min=1)] = 16
    noise: Annotated[float, _method("Noise of SmoothGrad, as a share of the image's range.", min=0, max=10)] = 0.15
    n_images: Annotated[int, _metric("Images explained for MCS and IDR.", min=1)] = 200
    n_patches: Annotated[int, _metric("Images for IIR.", min=1)] = 100
    patch_steps: Annotated[int, _metric("Steps of a patch's optimisation.", min=1)] = 300
    step_size: Annotated[
        float | None,
        _metric("On pixels of 0 to 255; by default 500, and 5000 for the small network.", min=0),
    ] = None
    eta1: Annotated[
        float | None,
        _metric("Weight of the patch's size; by default 0.01, and 0.001 for the small network.", min=0),
    ] = None
    threshold: Annotated[float, _metric("Relative change that counts in IIR.", min=0)] = 0.1
    tolerance: Annotated[float, _metric("Logit distance up to which a patch counts.", min=0)] = 0.05
    as_printed: Annotated[bool, _metric("Maps as they come, with no scale of their own, as the paper prints.")] = False
    relative: Annotated[bool, _metric("Train ten more models, for the relative contrast.")] = False
    common_object: Annotated[str | None, _metric("The common feature.")] = None
    target_scene: Annotated[str | None, _metric("The scene that always has it.")] = None
    n_relative: Annotated[int, _metric("Images of that scene explained.", min=2)] = 100
    robustness: Annotated[
        bool,
        _metric("Also compute MCS with objects of other sizes and at other places (Figure 5 of the paper)."),
    ] = False
    tcav: Annotated[bool, _metric("Also score TCAV.")] = True
    max_drop: Annotated[float, _premise("Accuracy that removing the common feature may cost.", min=0, max=1)] = 0.02
    min_remain: Annotated[float, _premise("Share of correct answers that must stay.", min=0, max=1)] = 0.95
    max_above_chance: Annotated[
        float, _premise("Accuracy above chance that the feature alone may have.", min=0, max=1)
    ] = 0.05
    backbone: kit.Backbone = None
    layer: kit.Layer = None
    weights: kit.Weights = None
    mean: kit.Mean = None
    std: kit.Std = None
    unnormalised: kit.Unnormalised = False
    batch_size: kit.BatchSize = 64
    seed: kit.Seed = 0
    device: kit.Device = kit.AUTO
    progress: kit.Progress = True
    out: kit.Out = None
    overwrite: kit.Overwrite = False

    @property
    def small(self) -> bool:
        """Whether the small network is trained."""
        return self.backbone in (None, kit.SMALL)

    @property
    def size(self) -> int:
        """Height and width of images."""
        return self.image_size or (SMALL_SIZE if self.small else LARGE_SIZE)

    @property
    def named_layer(self) -> str | None:
        """The name of the layer within the model, of which a loaded network is a part."""
        inside = self.layer is None or self.layer.startswith(f"{LOADED}.")
        return self.layer if inside else f"{LOADED}.{self.layer}"

    @property
    def normalised(self) -> kit.Normalisation:
        """How the images of a network are normalised."""
        return kit.normalisation(self.mean, self.std, self.unnormalised)

    @property
    def method_names(self) -> list[str]:
        """The methods of `--methods`, each once, or those of the paper, and the controls."""
        return method_names(self.methods)

    @property
    def of_methods(self) -> dict[str, Any]:
        """The settings that methods are built with."""
        how = {name: getattr(self, name) for name in ("n_samples", "n_steps", "noise")}
        return how | {"layer": self.named_layer, "batch_size": self.batch_size, "seed": self.seed}

    @property
    def patch(self) -> dict[str, Any]:
        """The settings of `optimise_patch`."""
        from quantus_concepts.metrics.contrast.patch_optimisation import ETA1, STEP_SIZE

        step_size, eta1 = (SMALL_STEP_SIZE, SMALL_ETA1) if self.small else (STEP_SIZE, ETA1)
        return {
            "steps": self.patch_steps,
            "tolerance": self.tolerance,
            "step_size": self.step_size or step_size,
            "eta1": eta1 if self.eta1 is None else self.eta1,
        }

    def check(self) -> None:
        """Raise ValueError for options that do not go together."""
        files = {"objects": self.objects, "annotations": self.annotations, "scenes": self.scenes, "root": self.root}
        with_data, needed = f"with `--data {self.data}`", NEEDS[self.data]
        kit.require(with_data, **{name: value for name, value in files.items() if name in needed})
        kit.refuse_without_effect(with_data, **{name: value for name, value in files.items() if name not in needed})
        if self.data != "coco-miniplaces":
            coco = {"object_classes": self.object_classes, "min_photographs": self.min_photographs}
            kit.refuse_without_effect(with_data, **coco)
        if self.data == "bam":
            kit.refuse_without_effect(
                "with images that were composed before; compose them with --data coco-miniplaces or --data folders",
                relative=self.relative,
                robustness=self.robustness,
            )
        if self.small:
            own = {"layer": self.layer, "weights": self.weights, "mean": self.mean, "std": self.std}
            kit.refuse_without_effect(
                "on the small network, only on one that you name with --backbone",
                **own,
                unnormalised=self.unnormalised,
            )
        above_zero = {"learning_rate": self.learning_rate, "step_size": self.step_size, "threshold": self.threshold}
        for name, value in (above_zero | {"tolerance": self.tolerance}).items():
            if value is not None and not value > 0:
                raise ValueError(f"Expected `{kit.option_name(name)}` to be above 0 but got {value}.")
        _ = self.normalised, self.method_names, self.place

    def listed(self) -> dict[str, str]:
        """Return the settings, with all methods by name."""
        return super().listed() | {"methods": methods_text(self.method_names)}


def method_names(methods: str | None) -> list[str]:
    """Return the methods of `--methods`, each once, or those of the paper, and the controls."""
    from captum_concepts.attributions.methods import CONTROL_METHODS, METHOD_NAMES, PAPER_METHODS

    names = [*PAPER_METHODS] if methods is None else [name.strip() for name in methods.split(",")]
    if not all(names):
        raise ValueError(f"Expected `--methods` to be names with commas between them but got {methods!r}.")
    spelling = {name.lower(): name for name in METHOD_NAMES}
    return list(dict.fromkeys([*(spelling.get(name.lower(), name) for name in names), *CONTROL_METHODS]))


def _with_content(method: str) -> str:
    """Return the name of a method with the hash of the user's file that it names, if any."""
    from captum_concepts.fingerprints import hash_file

    file = Path(method.rpartition(":")[0]).expanduser()
    return f"{method} ({hash_file(file)[:12]})" if file.suffix == ".py" and file.is_file() else method


def methods_text(names: Iterable[str]) -> str:
    """Name methods, each of a user's file with the hash of the file."""
    return ", ".join(map(_with_content, names))
