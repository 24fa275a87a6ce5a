"""The BAM data set in a folder: images, boxes and masks."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from captum_concepts.support.checks import check_choice, check_path
from captum_concepts.support.files import check_plain_file, image_files, reason_of, shorten, subfolders
from captum_concepts.support.images import image_size as size_of_image
from captum_concepts.support.images import load_pixels
from quantus_concepts.datasets.base import SPLITS, check_side
from quantus_concepts.datasets.folders import ANNOTATED_SUFFIXES, bad_line, check_there, list_some, text_lines
from quantus_concepts.datasets.scenes.composed import GREY, NO_BOX, VIEWS, Box, ComposedDataset
from quantus_concepts.datasets.scenes.sources import plain_mask

#: From which grey on a pixel of a mask is set.
_SET = 128
# In one line, since the command prints an error in one line.
_CONVERSION = (
    "import numpy as np; masks = np.load({source!r}, allow_pickle=True); "
    "np.savez_compressed({target!r}, **{{str(i): np.asarray(mask, dtype=bool) for i, mask in enumerate(masks)}})"
)
OBJ, SCENE, SCENE_ONLY = "obj", "scene", "scene_only"
FOLDERS = (OBJ, SCENE, SCENE_ONLY)
#: What the release calls the two splits.
SPLIT_FOLDERS = {"train": "train", "test": "val"}
#: Written next to the folders: with what the images were composed, which determines the names of all files.
SETTINGS = "compose.json"
#: Lies in a folder that is being written.
UNFINISHED = "unfinished"
#: Masks of the release, by object and the last two digits of the name.
MASKS_PER_OBJECT = 100
# Of at most five digits: a label counts class names, and a list as long as the largest is made.
_LABEL = re.compile(r"(.*\S)\s+([0-9]{1,5})")
_BOX = re.compile(rf"(.*\S)\s+([0-9]{{1,5}}{',([0-9]{1,5})' * 3})")
_NAME = re.compile(r"([^-]+)-([^-]+)-(\d+)")


class PNGMasks:
    """A folder of masks ``NAME.png`` of the size of the images, white where the object is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, object_label: int, box: Box, size: int, stored: tuple[int, int]) -> np.ndarray:
        """Return the mask of an image that is stored with (H, W) pixels."""
        path = self.folder / f"{Path(name).stem}.png"
        pixels = load_pixels(path, "L", "Mask")
        if pixels.shape != stored or pixels.max() < _SET:
            raise ValueError(
                f"Expected mask {path} to be of (H, W) = {stored}, as its image, and to mark pixels but got "
                f"{pixels.shape}, at most {pixels.max()} bright."
            )
        mask = Image.fromarray(pixels)
        return np.asarray(mask.resize((size, size), Image.Resampling.NEAREST)) >= _SET


class NumberedMasks:
    """The masks of the release, converted: number ``100 * object + last two digits of the name`` of an .npz file."""

    # They are in the resolution of the photograph and are brought to the size of the box, without blending, as the
    # release does before it averages over them.

    def __init__(self, path: Path) -> None:
        self.path = path
        self._arrays: dict[str, np.ndarray] | None = None

    def read(self, name: str, object_label: int, box: Box, size: int, stored: tuple[int, int]) -> np.ndarray:
        """Return the mask of an image; these are in the resolution of the photographs."""
        number = MASKS_PER_OBJECT * object_label + int(parse_name(name)[2][-2:])
        array = self._load().get(str(number))
        if array is None or not array.any():
            problem = "there is none" if array is None else "it is empty"
            raise ValueError(f"Expected mask {number} in {self.path}, for {name}, to mark pixels but {problem}.")
        row0, col0, row1, col1 = box
        shape = Image.fromarray(array.astype(np.uint8)).resize((col1 - col0, row1 - row0), Image.Resampling.NEAREST)
        mask = np.zeros((size, size), dtype=bool)
        mask[row0:row1, col0:col1] = np.asarray(shape) > 0
        return mask

    def _load(self) -> dict[str, np.ndarray]:
        if self._arrays is None:
            check_plain_file(self.path, "Archive of masks")
            try:
                with np.load(self.path, allow_pickle=False) as file:
                    self._arrays = {key: plain_mask(f"mask {key}", file[key]) for key in file.files}
            except Exception as error:  # a damaged archive fails in any way
                raise ValueError(f"Masks {self.path} cannot be read ({reason_of(error)}).") from error
        return self._arrays


def find_masks(root: Path, split: str) -> PNGMasks | NumberedMasks | None:
    """Find the masks of a split."""
    name = f"{SPLIT_FOLDERS[split]}_mask"
    for folder in FOLDERS:
        if (root / folder / name).is_dir():
            return PNGMasks(root / folder / name)
        if split == "test" and (root / folder / f"{name}.npz").exists():
            return NumberedMasks(root / folder / f"{name}.npz")
    for folder in FOLDERS:
        for path in (root / folder / name, root / folder / f"{name}.npy"):
            if path.is_file():
                code = _CONVERSION.format(source=str(path), target=str(root / folder / f"{name}.npz"))
                raise ValueError(
                    f"The masks {path} are pickled, and loading a pickle runs whatever code is in it, so they are not "
                    f"loaded. Where you trust the file (best in a container), convert it once:\n{code}"
                )
    return None


class BAMFolder(ComposedDataset):
    """Objects on scenes in the layout of the BAM release, or as `write_bam` writes them.

    The layout, FOLDER being ``obj`` (the images, with labels of objects), ``scene`` (the same images, with labels of
    scenes) and ``scene_only`` (the same scenes without the objects)::

        FOLDER/train/CLASS/OBJECT-SCENE-0000.jpg
        FOLDER/val/OBJECT-SCENE-0900.jpg
        FOLDER/val.txt          lines "OBJECT-SCENE-0900.jpg LABEL", labels counted in the order of class names
        FOLDER/val_loc.txt      lines "OBJECT-SCENE-0900.jpg row0,col0,row1,col1" in pixels, the ends exclusive
        FOLDER/loc.txt          the same for training images too
        FOLDER/val_mask         the masks of the validation images

    ``scene_only`` is needed only for the view "0s". Images are JPEG or PNG; the release's are JPEG, so that a scene
    with and without its object differs a little outside the object, too. There is no set of objects on grey in the
    layout: the view "og" is made from image and mask.

    *Masks.* The release holds them as a pickled array, which is not loaded; the error says how to convert it to
    ``val_mask.npz``, in which mask number ``100 * object + the last two digits of the name`` is brought to the size
    of the box. `write_bam` writes ``val_mask`` and ``train_mask`` as folders of PNG files. The release has no masks
    for training, and boxes for it only in ``loc.txt``: where there is none, masks are False everywhere and boxes -1.

    Parameters
    ----------
    root : str or Path
        Folder with obj, scene and scene_only.
    split : str
        "train" or "test" (the release's "val").
    view : str
        "os" for objects on scenes, "og" for objects on grey 128, "0s" for scenes alone.
    image_size : int or (int, int), optional
        Height and width H = W to which images, masks and boxes are scaled, bilinear and nearest as in the release;
        None for those of the first file, which all must then have.
    transform : callable, optional
        From image (3, H, W) to image of the same height and width.

    Attributes
    ----------
    names : list of str
        (N) Names of the image files, in alphabetical order.
    has_masks : bool
        Whether there are masks for this split.

    Raises
    ------
    FileNotFoundError
        If a folder, a list or images are missing.
    ValueError
        If a list is malformed, lists or folders contradict each other, `write_bam` has not finished, masks are
        pickled, or the view needs masks and there are none. On access to an image: if it or its mask cannot be read or
        has another size.

    Examples
    --------
    >>> from quantus_concepts.datasets import BAMFolder, CutoutFolder, SceneFolder, write_bam
    >>> sources = CutoutFolder("cutouts"), SceneFolder("scenes")
    >>> folder = write_bam(*sources, "bam", n_per_pair=4, image_size=32, test_share=0.25)
    >>> data = BAMFolder(folder, split="test", view="os")
    >>> len(data), data[0].image.shape, data.has_masks
    (4, torch.Size([3, 32, 32]), True)
    >>> data.object_names, data.scene_names
    (['leaf', 'stone'], ['beach', 'forest'])
    """

    def __init__(
        self,
        root: str | Path,
        *,
        split: str = "test",
        view: str = "os",
        image_size: int | Sequence[int] | None = None,
        transform: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        check_choice("split", split, SPLITS)
        check_choice("view", view, VIEWS)
        self.root = check_path("root", root)
        self.split = split
        self.transform = transform
        if (self.root / UNFINISHED).exists():
            raise ValueError(f"{self.root} was not written to its end. Remove it and write it again.")
        listed = {folder: self._list(folder) for folder in (OBJ, SCENE)}
        self.names = sorted(listed[OBJ])
        self._check_same(self.names, listed[SCENE], SCENE)
        self.object_names = self._class_names(OBJ, listed[OBJ])
        self.scene_names = self._class_names(SCENE, listed[SCENE])
        self.object_labels = torch.tensor([listed[OBJ][name] for name in self.names])
        self.scene_labels = torch.tensor([listed[SCENE][name] for name in self.names])
        first = self._path(OBJ, 0)
        self._stored = size_of_image(first)
        if self._stored[0] != self._stored[1]:
            raise ValueError(f"Expected square images but {first} has (H, W) = {self._stored}.")
        self.image_size = self._stored[0] if image_size is None else check_side("image_size", image_size, 1)
        self._boxes = self._read_boxes()
        self._masks = find_masks(self.root, split)
        self.view = "os"
        self.view = self.with_view(view).view

    @property
    def has_masks(self) -> bool:
        """Whether there are masks for this split."""
        return self._masks is not None

    def with_view(self, view: str) -> Self:
        """Return the same data set in another view.

        Parameters
        ----------
        view : str
            "os", "og" or "0s".

        Returns
        -------
        BAMFolder
            With the same object, scene, size and place at each index, and the same transform.

        Raises
        ------
        ValueError
            If there is no such view, "og" is requested without masks, or images of "0s" are missing.
        FileNotFoundError
            If the folder of "0s" is missing.
        """
        if view == "og" and not self.has_masks:
            raise ValueError(
                f"Expected masks in {self.root / OBJ} for the view 'og', which is made with them, but there are none "
                f"for the split {self.split!r}."
            )
        if view == "0s":
            self._check_same(self.names, self._list(SCENE_ONLY), SCENE_ONLY)
        return super().with_view(view)

    def _image(self, index: int) -> np.ndarray:
        pixels = self._read_image(SCENE_ONLY if self.view == "0s" else OBJ, index)
        if self.view != "og":
            return pixels
        return np.where(self._mask_and_box(index)[0][..., None], pixels, np.uint8(GREY))

    def _mask_and_box(self, index: int) -> tuple[np.ndarray, Box]:
        name = self.names[index]
        box = self._boxes.get(name, NO_BOX)
        if self._masks is None:
            return np.zeros((self.image_size, self.image_size), dtype=bool), box
        return self._masks.read(name, int(self.object_labels[index]), box, self.image_size, self._stored), box

    def _read_image(self, folder: str, index: int) -> np.ndarray:
        path = self._path(folder, index)
        pixels = load_pixels(path)
        if pixels.shape[:2] != self._stored:
            raise ValueError(
                f"Expected {path} to have (H, W) = {self._stored}, as the first image, but got {pixels.shape[:2]}."
            )
        if self._stored[0] == self.image_size:
            return pixels
        size = (self.image_size, self.image_size)
        return np.array(Image.fromarray(pixels).resize(size, Image.Resampling.BILINEAR))

    def _path(self, folder: str, index: int) -> Path:
        name, labels = self.names[index], {OBJ: self.object_labels, SCENE: self.scene_labels}
        base = self.root / folder / SPLIT_FOLDERS[self.split]
        if self.split == "test":
            return base / name
        names = self.object_names if folder == OBJ else self.scene_names
        return base / names[int(labels.get(folder, self.scene_labels)[index])] / name

    def _list(self, folder: str) -> dict[str, int]:
        """Return the label of each image in a folder, by name."""
        base = self.root / folder / SPLIT_FOLDERS[self.split]
        if not base.is_dir():
            raise FileNotFoundError(f"Expected argument `root` to hold the BAM layout but there is no folder {base}.")
        if self.split == "train":
            return {
                path.name: label
                for label, folder_of in enumerate(subfolders(base))
                for path in image_files(folder_of, ANNOTATED_SUFFIXES)
            }
        labels = read_scene_labels(base.with_name("val.txt"))
        there = {path.name for path in image_files(base, ANNOTATED_SUFFIXES)}
        check_there((base / name for name in labels), f"the images of {base.with_name('val.txt')} in {base}", there)
        return labels

    def _check_same(self, names: Collection[str], other_names: Collection[str], folder: str) -> None:
        if not names:
            raise ValueError(f"Expected images in {self.root / OBJ / SPLIT_FOLDERS[self.split]} but there are none.")
        different = sorted(set(names) ^ set(other_names) if folder == SCENE else set(names) - set(other_names))
        if different:
            raise ValueError(
                f"Expected the same images in {self.root / OBJ} and {self.root / folder} ({SPLIT_FOLDERS[self.split]}) "
                f"but {len(different)} are only in one of them: {list_some(different)}."
            )

    def _class_names(self, folder: str, labels: dict[str, int]) -> list[str]:
        """Return names by label: those of the training folders, else those in the names of the images."""
        train = self.root / folder / SPLIT_FOLDERS["train"]
        names = [path.name for path in subfolders(train)] if train.is_dir() else []
        parts = [(label, parse_name(name)[folder == SCENE]) for name, label in labels.items()]
        if not names:
            name_of_label = dict(parts)
            names = [name_of_label.get(label, f"class {label}") for label in range(max(name_of_label) + 1)]
        for label, name in parts:
            if label >= len(names) or names[label] != name:
                actual = repr(names[label]) if label < len(names) else f"beyond the {len(names)} classes"
                raise ValueError(
                    f"Expected label {label} in {self.root / folder} to be {name!r}, as an image is named, but by the "
                    f"alphabetical order of the classes it is {actual}."
                )
        return names

    def _read_boxes(self) -> dict[str, Box]:
        lists = ["loc.txt"] if self.split == "train" else ["val_loc.txt", "loc.txt"]
        candidates = [self.root / folder / name for name in lists for folder in FOLDERS]
        path = next((path for path in candidates if path.is_file()), None)
        if path is None:
            if self.split == "train":
                return {}
            raise FileNotFoundError(f"Expected the boxes of the objects in {candidates[0]} but there is no such file.")
        boxes = read_boxes(path)
        stored = self._stored[0]
        scaled = {}
        for name in self.names:
            if name not in boxes or max(boxes[name]) > stored:
                raise ValueError(
                    f"Expected a box in images of {stored} px for each image in {path} but {name} has "
                    f"{boxes.get(name, 'none')}."
                )
            row0, col0, row1, col1 = (value * self.image_size // stored for value in boxes[name])
            scaled[name] = row0, col0, max(row1, row0 + 1), max(col1, col0 + 1)
        return scaled


def parse_name(name: str) -> tuple[str, str, str]:
    """Return object, scene and number in the name of an image file."""
    match = _NAME.fullmatch(Path(name).stem)
    if match is None:
        raise ValueError(f"Expected an image of BAM to be named object-scene-0900.jpg but got {shorten(name)}.")
    return match[1], match[2], match[3]


def read_scene_labels(path: Path) -> dict[str, int]:
    """Read a list of labels, ``val.txt``."""
    return {name: int(value) for name, (_, value) in _read_list(path, _LABEL, "name label").items()}


def read_boxes(path: Path) -> dict[str, Box]:
    """Read a list of boxes, ``val_loc.txt``."""
    boxes: dict[str, Box] = {}
    for name, (line, value) in _read_list(path, _BOX, "name row0,col0,row1,col1").items():
        row0, col0, row1, col1 = map(int, value.split(","))
        if not (row0 < row1 and col0 < col1):
            raise bad_line(path, line, "row0,col0,row1,col1, the ends larger,", value)
        boxes[name] = row0, col0, row1, col1
    return boxes


def _read_list(path: Path, pattern: re.Pattern[str], form: str) -> dict[str, tuple[int, str]]:
    """Return line number and value by the name of the image."""
    entries: dict[str, tuple[int, str]] = {}
    for number, line in text_lines(path):
        match = pattern.fullmatch(line)
        if match is None or match[1] in entries:
            raise bad_line(path, number, f"{form!r} with whole numbers, and each image once,", line)
        entries[match[1]] = number, match[2]
    if not entries:
        raise ValueError(f"Expected images in {path} but it is empty.")
    return entries
