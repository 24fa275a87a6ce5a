"""The work of `substitute generate`: a folder of images for each pair of bird and attribute."""

from __future__ import annotations

import io
import json
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from quantus_concepts.pasta.encoders.downloads import first_line
from quantus_concepts.studies._kit.image_set import ImageSet
from quantus_concepts.studies.substitute.pairs import PAIR, Pair

if TYPE_CHECKING:
    from diffusers import DiffusionPipeline

SETTINGS = "generation.json"
GUIDES = "guides"


def missing_numbers(images: ImageSet, pairs: Sequence[Pair], n_per_pair: int) -> dict[Pair, list[int]]:
    """Return the numbers of the images of each pair that are not there."""
    missing = {}
    for pair in pairs:
        images.names(f"{pair.name}/{GUIDES}")
        there = images.names(pair.name)
        missing[pair] = [number for number in range(n_per_pair) if _image_name(number) not in there]
    return missing


def image_seed(seed: int, pair: Pair, number: int) -> int:
    """Return the seed of an image: independent of the other images of a run."""
    return int(
        np.random.SeedSequence([seed, zlib.crc32(pair.name.encode()), number]).generate_state(1, np.uint64)[0] >> 1
    )


def load_pipeline(model: str, dtype: torch.dtype, device: torch.device) -> DiffusionPipeline:
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


def generate_images(
    images: ImageSet,
    pipeline: DiffusionPipeline,
    pair: Pair,
    numbers: Sequence[int],
    seed: int,
    *,
    schedule: tuple[float, float, float],
    keep_guides: bool,
    **call: Any,
) -> None:
    """Generate some images of a pair; `call` are arguments of `tied_pair` and of the pipeline."""
    from quantus_concepts.diffusion import TieSchedule, tied_pair

    made = tied_pair(
        pipeline,
        [pair.prompt] * len(numbers),
        [pair.guidance_prompt] * len(numbers),
        TieSchedule(*schedule),
        generator=[torch.Generator().manual_seed(image_seed(seed, pair, number)) for number in numbers],
        output_type="pil",
        **call,
    )
    images.write(f"{pair.name}/{PAIR}", json.dumps(asdict(pair), indent=1).encode())
    for place, number in enumerate(numbers):
        # The guide first: an image that exists has its guide.
        if keep_guides:
            images.write(f"{pair.name}/{GUIDES}/{_image_name(number)}", _png(made.guide[place]))
        images.write(f"{pair.name}/{_image_name(number)}", _png(made.reference[place]))


def _image_name(number: int) -> str:
    return f"{number:05d}.png"


def _png(image: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()
