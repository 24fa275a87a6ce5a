"""The work of `substitute generate`: a folder of images for each pair of bird and attribute."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import torch

from captum_concepts._support.progress import progress
from quantus_concepts.pasta.encoders.downloads import first_line
from quantus_concepts.studies.substitute.image_set import ImageSet
from quantus_concepts.studies.substitute.pairs import PAIR, Pair

SETTINGS = "generation.json"
GUIDES = "guides"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How images are generated."""

    model: str
    device: torch.device
    dtype: torch.dtype
    steps: int | None
    guidance: float
    image_size: int | None
    #: Arguments of `TieSchedule`.
    tie: tuple[float, float, float]
    quantile: Literal["element", "pixel"]
    seed: int
    batch_size: int
    keep_guides: bool
    progress: bool


def generate_images(images: ImageSet, pairs: Sequence[Pair], n_per_pair: int, settings: Settings) -> int:
    """Generate the missing images, and return how many there were."""
    missing = {}
    for pair in pairs:
        images.names(f"{pair.name}/{GUIDES}")
        there = images.names(pair.name)
        missing[pair] = [number for number in range(n_per_pair) if _image_name(number) not in there]
    n_missing = sum(map(len, missing.values()))
    if not n_missing:
        return 0
    pipeline = load_pipeline(settings.model, settings.dtype, settings.device)
    with progress(total=n_missing, description="generating", unit="image", show=settings.progress) as bar:
        for pair, numbers in missing.items():
            for start in range(0, len(numbers), settings.batch_size):
                chosen = numbers[start : start + settings.batch_size]
                _generate(images, pipeline, pair, chosen, settings)
                bar.update(len(chosen))
    return n_missing


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
            f"Expected `--model` to be a pipeline of diffusers but {model} cannot be loaded ({first_line(error)}). "
            "Fetch it into a folder and name that."
        ) from None
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device)


def _generate(images: ImageSet, pipeline: Any, pair: Pair, numbers: Sequence[int], settings: Settings) -> None:
    """Generate some images of a pair."""
    from quantus_concepts.diffusion import TieSchedule, tied_pair

    more: dict[str, Any] = {"guidance_scale": settings.guidance, "output_type": "pil"}
    if settings.steps is not None:
        more["num_inference_steps"] = settings.steps
    if settings.image_size is not None:
        more |= {"height": settings.image_size, "width": settings.image_size}
    seeds = [image_seed(settings.seed, pair, number) for number in numbers]
    made = tied_pair(
        pipeline,
        [pair.prompt] * len(numbers),
        [pair.guidance_prompt] * len(numbers),
        TieSchedule(*settings.tie),
        quantile=settings.quantile,
        generator=[torch.Generator().manual_seed(seed) for seed in seeds],
        **more,
    )
    images.write(f"{pair.name}/{PAIR}", json.dumps(asdict(pair), indent=1).encode())
    for place, number in enumerate(numbers):
        # The guide first: an image that exists has its guide.
        if settings.keep_guides:
            images.write(f"{pair.name}/{GUIDES}/{_image_name(number)}", _png(made.guide[place]))
        images.write(f"{pair.name}/{_image_name(number)}", _png(made.reference[place]))


def _image_name(number: int) -> str:
    return f"{number:05d}.png"


def _png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
