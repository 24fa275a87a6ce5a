"""The command `substitute generate`: a folder of images for each pair of bird and attribute."""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from captum_concepts._support.files import clear_abandoned, read_json, write_atomically
from captum_concepts._support.lazy import check_extra
from captum_concepts._support.progress import progress
from quantus_concepts.pasta.encoders.downloads import first_line
from quantus_concepts.studies.substitute.options import GenerateOptions, words
from quantus_concepts.studies.substitute.pairs import Pair, choose_pairs, write_pair

SETTINGS = "generation.json"
GUIDES = "guides"


def generate(options: GenerateOptions) -> str:
    """Generate the missing images, and return a summary."""
    check_extra("diffusers", "diffusion", "Generating")
    pairs = choose_pairs(words(options.birds), words(options.attributes))
    _check_settings(options)
    missing = {pair: _missing_numbers(options.out / pair.name, options.n_per_pair) for pair in pairs}
    n_missing = sum(map(len, missing.values()))
    if n_missing:
        generator = _Generator(options)
        with progress(total=n_missing, description="generating", unit="image", show=options.progress) as bar:
            for pair, numbers in missing.items():
                for start in range(0, len(numbers), options.batch_size):
                    chosen = numbers[start : start + options.batch_size]
                    generator.write(pair, chosen)
                    bar.update(len(chosen))
    total = len(pairs) * options.n_per_pair
    return f"{total} images of {len(pairs)} pairs; {total - n_missing} were there already.\n{options.out}"


def image_seed(seed: int, pair: Pair, number: int) -> int:
    """Return the seed of an image: independent of the other images of a run."""
    return int(
        np.random.SeedSequence([seed, zlib.crc32(pair.name.encode()), number]).generate_state(1, np.uint64)[0] >> 1
    )


def load_pipeline(model: str, dtype: torch.dtype, device: torch.device) -> Any:
    """Load a pipeline of diffusers from a folder or from Hugging Face."""
    from diffusers import DiffusionPipeline

    try:
        pipeline = DiffusionPipeline.from_pretrained(model, dtype=dtype, use_safetensors=True)
    except Exception as error:  # of the libraries, for whatever is wrong
        raise ValueError(
            f"Expected argument `--model` to be a pipeline of diffusers but {model} cannot be loaded "
            f"({first_line(error)}). Fetch it into a folder and name that."
        ) from None
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device)


class _Generator:
    """A pipeline with its settings."""

    def __init__(self, options: GenerateOptions) -> None:
        self.options = options
        self.pipeline = load_pipeline(options.model, options.torch_dtype(), options.torch_device())
        self.settings: dict[str, Any] = {"guidance_scale": options.guidance, "output_type": "pil"}
        if options.steps is not None:
            self.settings["num_inference_steps"] = options.steps
        if options.image_size is not None:
            self.settings |= {"height": options.image_size, "width": options.image_size}

    def write(self, pair: Pair, numbers: Sequence[int]) -> None:
        """Generate some images of a pair."""
        from quantus_concepts.diffusion import TieSchedule, tied_pair

        options = self.options
        seeds = [image_seed(options.seed, pair, number) for number in numbers]
        images = tied_pair(
            self.pipeline,
            [pair.prompt] * len(numbers),
            [pair.guidance_prompt] * len(numbers),
            TieSchedule(options.t_1, options.t_2, options.rate),
            quantile=options.quantile,
            generator=[torch.Generator().manual_seed(seed) for seed in seeds],
            **self.settings,
        )
        folder = options.out / pair.name
        try:
            folder.mkdir(exist_ok=True)
            write_pair(folder, pair)
            for k, number in enumerate(numbers):
                # The guide first: an image that exists has its guide.
                if options.keep_guides:
                    (folder / GUIDES).mkdir(exist_ok=True)
                    _save(images.guide[k], folder / GUIDES / f"{number:05d}.png")
                _save(images.reference[k], folder / f"{number:05d}.png")
        except OSError as error:
            raise OSError(
                f"The images of {folder} cannot be written ({error.strerror or error}). Those that are complete stay; "
                "make room, and give the same command again: it goes on."
            ) from error


def _save(image: Any, path: Path) -> None:
    with write_atomically(path) as temporary:
        image.save(temporary)


def _missing_numbers(folder: Path, count: int) -> list[int]:
    clear_abandoned(folder)
    clear_abandoned(folder / GUIDES)
    names = {path.name for path in folder.glob("*.png")}
    return [number for number in range(count) if f"{number:05d}.png" not in names]


def _check_settings(options: GenerateOptions) -> None:
    """Make the folder, or raise if it holds anything but images of the same settings."""
    file, ours = options.out / SETTINGS, options.identity()
    try:
        if options.out.is_dir() and any(options.out.iterdir()):
            theirs = read_json(file, "Generation") if file.is_file() else None
            if not isinstance(theirs, dict):
                raise ValueError(f"The folder `{options.out}` holds other files. Choose another one (--out).")
            different = [key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key)]
            if different:
                text = "; ".join(
                    f"{key}: {theirs.get(key, 'none')} there, {ours.get(key, 'none')} here" for key in different
                )
                raise ValueError(
                    f"The folder `{options.out}` holds images of other settings ({text}). Give the same to go on, or "
                    "choose another folder (--out)."
                )
            return
        options.out.mkdir(parents=True, exist_ok=True)
        with write_atomically(file) as temporary:
            temporary.write_text(json.dumps(ours, indent=1), encoding="utf-8")
    except OSError as error:
        raise ValueError(
            f"The folder `{options.out}` cannot be written ({error.strerror or error}). Choose another one (--out)."
        ) from error
