"""Masks beside the images of the BAM layout: ours as PNG files, the release's after a conversion."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

from captum_concepts._support.files import no_file, reason_of
from captum_concepts._support.images import MAX_PIXELS, load_pixels
from quantus_concepts.datasets.scenes.bam_layout import FOLDERS, MASKS_PER_OBJECT, SPLIT_FOLDERS, parse_name
from quantus_concepts.datasets.scenes.composed import Box

#: Of all masks of an archive unpacked; those of the release take less than half a gigabyte.
_MOST_BYTES = 2 << 30
#: From which grey on a pixel of a mask is set.
_SET = 128
# In one line, since the command tells its errors in one.
_CONVERSION = (
    "import numpy as np; masks = np.load({source!r}, allow_pickle=True); "
    "np.savez_compressed({target!r}, **{{str(i): np.asarray(mask, dtype=bool) for i, mask in enumerate(masks)}})"
)


class PNGMasks:
    """A folder of masks ``NAME.png`` of the size of the images, white where the object is."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, name: str, object_label: int, box: Box, size: int, stored: tuple[int, int]) -> np.ndarray:
        """Return the mask of an image that is stored with (H, W) pixels."""
        path = self.folder / f"{Path(name).stem}.png"
        pixels = load_pixels(path, "L", "Mask")
        if pixels.shape != stored or pixels.max() < _SET:
            got = f"of (H, W) = {pixels.shape}" if pixels.shape != stored else "empty"
            raise ValueError(
                f"Expected mask {path} to be of (H, W) = {stored}, as its image, and not empty but it is {got}."
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
        number = MASKS_PER_OBJECT * object_label + int(parse_name(name).number[-2:])
        array = self._load().get(str(number))
        if array is None or array.ndim != 2 or not array.any():
            got = "there is none" if array is None else f"it has shape {array.shape}, {int(array.sum())} pixels set"
            raise ValueError(
                f"Expected mask {number} in {self.path}, for {name}, to be (h, w) and not empty but {got}."
            )
        row0, col0, row1, col1 = box
        shape = Image.fromarray(array.astype(np.uint8)).resize((col1 - col0, row1 - row0), Image.Resampling.NEAREST)
        mask = np.zeros((size, size), dtype=bool)
        mask[row0:row1, col0:col1] = np.asarray(shape) > 0
        return mask

    def _load(self) -> dict[str, np.ndarray]:
        if self._arrays is None:
            try:
                if kind := no_file(self.path):
                    raise ValueError(f"it is {kind}")
                with zipfile.ZipFile(self.path) as archive:
                    sizes = [entry.file_size for entry in archive.infolist()]
                if max(sizes, default=0) > MAX_PIXELS or sum(sizes) > _MOST_BYTES:
                    raise ValueError(
                        f"{max(sizes):,} bytes of one mask and {sum(sizes):,} of all, more than {MAX_PIXELS:,} and "
                        f"{_MOST_BYTES:,}"
                    )
                with np.load(self.path, allow_pickle=False) as file:
                    self._arrays = {key: np.asarray(file[key], dtype=bool) for key in file.files}
            except Exception as error:  # a damaged archive fails in any way
                raise ValueError(
                    f"Masks {self.path} cannot be read ({reason_of(error)}). Convert them again."
                ) from error
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
