"""What the commands `substitute generate` and `substitute filter` run; loaded when they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from quantus_concepts.studies._kit import options as kit

if TYPE_CHECKING:
    import torch

    from quantus_concepts.studies._kit.folder import RunFolder
    from quantus_concepts.studies.substitute.settings import Filter, Generate

#: Options of `generate` about which and how many images are made, and where; others are the same for a whole folder.
_FREE = ("birds", "attributes", "n per pair", "keep guides", "device", "batch size")


def generate(settings: Generate, folder: RunFolder) -> Path:
    """Write into a folder that is new, empty, or has images of the same settings."""
    from captum_concepts.support.running import progress as show_progress
    from quantus_concepts.studies._kit.image_set import ImageSet
    from quantus_concepts.studies.substitute import generation
    from quantus_concepts.studies.substitute.pairs import choose_pairs

    pairs = choose_pairs(_words("--birds", settings.birds), _words("--attributes", settings.attributes))
    schedule = settings.t_1, settings.t_2, settings.rate
    call: dict[str, Any] = {"guidance_scale": settings.guidance, "quantile": settings.quantile, "schedule": schedule}
    call |= {} if settings.steps is None else {"num_inference_steps": settings.steps}
    call |= {} if settings.image_size is None else {"height": settings.image_size, "width": settings.image_size}
    call["keep_guides"] = settings.keep_guides
    # Named as they are typed.
    same = {f"--{name.replace(' ', '-')}": text for name, text in folder.settings.items() if name not in _FREE}
    images = ImageSet(settings.out, same, generation.SETTINGS)
    missing = generation.missing_numbers(images, pairs, settings.n_per_pair)
    if n_new := sum(map(len, missing.values())):
        pipeline = generation.load_pipeline(settings.model, _dtype(settings.precision, settings.place), settings.place)
        with show_progress(total=n_new, description="generating", unit="image", show=settings.progress) as bar:
            for pair, numbers in missing.items():
                for start in range(0, len(numbers), settings.batch_size):
                    chosen = numbers[start : start + settings.batch_size]
                    generation.generate_images(images, pipeline, pair, chosen, settings.seed, **call)
                    bar.update(len(chosen))
    total = len(pairs) * settings.n_per_pair
    typer.echo(f"{total} images of {len(pairs)} pairs; {total - n_new} were there already.")
    return settings.out


def keep_surest(settings: Filter, folder: RunFolder) -> None:
    """Ask of every image, and write what becomes of it."""
    from quantus_concepts.studies.substitute import filtering
    from quantus_concepts.studies.substitute.pairs import read_pairs

    pairs, dtype = read_pairs(settings.generated), _dtype(settings.precision, settings.place)
    with folder:
        manifest = filtering.filter_pairs(
            folder,
            settings.generated,
            pairs,
            lambda: filtering.load_letter_model(settings.model, dtype, settings.place),
            keep_share=settings.keep_share,
            batch_size=settings.batch_size,
            progress=settings.progress,
        )
        folder.write(filtering.MANIFEST, manifest.to_csv(index=False))
        counts = manifest.groupby("pair")["kept"].sum()
        reasons = ", ".join(f"{count} {reason}" for reason, count in manifest["decision"].value_counts().items())
        typer.echo(f"{(counts > 0).sum()} of {len(pairs)} pairs are left, {counts.sum()} images: {reasons}.")


def _words(option: str, text: str | None) -> list[str] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise ValueError(f"Expected `{option}` to name some but got {text!r}.")
    return words


def _dtype(precision: str, place: torch.device) -> torch.dtype:
    """Return the type of a model's numbers."""
    import torch

    automatic = "bfloat16" if place.type == "cuda" else "float32"
    dtype: torch.dtype = getattr(torch, automatic if precision == kit.AUTO else precision)
    return dtype
