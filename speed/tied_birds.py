"""Does Tied Diffusion Guidance keep the other attributes of a bird? Looked at where nothing need be downloaded.

    python speed/tied_birds.py                    # trains, generates, reads, prints a table; six minutes on two cores
    python speed/tied_birds.py --device cuda      # larger birds and networks; six minutes on an H100 and 16 cores
    python speed/tied_birds.py --weights FOLDER   # keeps the two networks there, or takes them from there
    python speed/tied_birds.py --picture FILE     # and draws some of the images
    python speed/tied_birds.py --tiny             # sizes that show only whether it runs

A UNet learns to paint painted birds from a class, one attribute, both or neither (rectified flow, classifier-free
guidance). It sees birds of the first half of the classes with the attributes of their class alone, as there are Blue
Jays; of the other half every tenth attribute is another one, and it is told so; and birds without a class whose
attributes say nothing of each other. So it can learn what an attribute is and that prompts combine, and "class c with
attribute a", asked for of the first half only, is beyond what was learned, as "a Blue Jay with a yellow crown" is. It
paints

    class alone           the reference without the attribute: how often the rest can be kept at all
    attribute alone       the guide: how often the rest is the class's by chance
    prompt                class and attribute, without a tie
    prompt, other noise   the same once more: what another start makes of it
    tied                  the same beside "attribute alone", tied; the guide is thrown away

all but the fourth from the same noise. What a picture shows is read by a second network, trained on real painted birds
whose attributes are independent of their class; only groups count that it reads rightly on held-out ones. Found: the
attribute asked for is read; kept: the class's own option is read, of the other groups; both: it is found and all others
are kept. Birds face one way, stand in the middle, and nothing of them is hidden.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from bird_painter import (
    INDEPENDENT,
    N_CONCEPTS,
    SIZES,
    TINY,
    Painter,
    Reader,
    Sizes,
    World,
    birds,
    read_concepts,
    readable_groups,
    train_painter,
    train_reader,
)
from diffusers import FlowMatchEulerDiscreteScheduler
from safetensors.torch import load_model, save_model
from torch import Tensor, nn

from quantus_concepts.diffusion import TiedScheduler, TieSchedule

PROMPT = "prompt"
SCHEDULES = {
    "tied, .1 .3 rate 5": TieSchedule(0.1, 0.3, 5.0),
    "tied, .1 .5 rate 5": TieSchedule(0.1, 0.5, 5.0),
    "tied, .2 .6 rate 3": TieSchedule(0.2, 0.6, 3.0),
    "tied, .3 .8 rate 3": TieSchedule(0.3, 0.8, 3.0),
    "tied, .5 .95 rate 1": TieSchedule(0.5, 0.95, 1.0),
}


@torch.no_grad()
def paint(
    painter: Painter,
    noise: Tensor,
    classes: Tensor,
    concepts: Tensor,
    sizes: Sizes,
    eta: TieSchedule | float | None = None,
) -> Tensor:
    """Paint birds; with `eta` beside guides of the same noise, which have the attribute alone."""
    scheduler: Any = FlowMatchEulerDiscreteScheduler()
    no_class = torch.full_like(classes, sizes.n_classes)
    if eta is not None:
        scheduler = TiedScheduler(scheduler, eta)
        classes, concepts = torch.cat([classes, no_class]), torch.cat([concepts, concepts])
        noise = torch.cat([noise, noise])
    scheduler.set_timesteps(sizes.denoising_steps)
    images, nothing = noise, (torch.full_like(classes, sizes.n_classes), torch.full_like(concepts, N_CONCEPTS))
    for timestep in scheduler.timesteps:
        level = (timestep / 1000).expand(len(images)).to(images.device)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.is_cuda):
            bare = painter(images, level, *nothing)
            flow = bare + sizes.guidance * (painter(images, level, classes, concepts) - bare)
        images = scheduler.step(flow, timestep, images).prev_sample
    return images.clamp(-1, 1)[: len(noise) // (1 if eta is None else 2)]


def look(
    painter: Painter, reader: Reader, world: World, readable: list[int], sizes: Sizes, device: torch.device
) -> tuple[pd.DataFrame, dict[str, Tensor], list[str]]:
    """Paint every kind and read what is there."""
    options, parts = world.options, world.parts
    candidates = [
        (k, g, concept)
        for k in range(sizes.n_classes // 2)
        for g in readable
        for concept in range(parts[g].start, parts[g].stop)
        if concept != options[k, g]
    ]
    chosen = np.random.default_rng(0).permutation(len(candidates))[: sizes.n_pairs]
    pairs = torch.tensor([candidates[i] for i in chosen]).repeat_interleave(sizes.per_pair, 0)
    classes, groups, concepts = pairs.T
    noise, other = (
        torch.randn(len(pairs), 3, sizes.size, sizes.size, generator=torch.Generator().manual_seed(seed))
        for seed in (2, 3)
    )
    no_class, no_concept = torch.full_like(classes, sizes.n_classes), torch.full_like(concepts, N_CONCEPTS)
    kinds: dict[str, tuple[Tensor, Tensor, Tensor, TieSchedule | None]] = {
        "class alone": (noise, classes, no_concept, None),
        "attribute alone": (noise, no_class, concepts, None),
        PROMPT: (noise, classes, concepts, None),
        f"{PROMPT}, other noise": (other, classes, concepts, None),
    } | {name: (noise, classes, concepts, eta) for name, eta in SCHEDULES.items()}
    rows, images = [], {}
    other_groups = torch.zeros(len(pairs), len(parts), dtype=torch.bool)
    other_groups[:, readable] = True
    other_groups[torch.arange(len(pairs)), groups] = False
    for name, (*condition, eta) in kinds.items():
        several = zip(
            *(tensor.to(device).split(256 if device.type == "cuda" else 64) for tensor in condition), strict=True
        )
        images[name] = torch.cat([paint(painter, *some, sizes, eta).cpu() for some in several])
        read_options = read_concepts(reader, images[name], world, device)
        has_attribute = (read_options == concepts[:, None]).any(1)
        same = (read_options == options[classes]) & other_groups
        rows.append(
            pd.DataFrame(
                {
                    "painted from": name,
                    "pair": np.arange(len(pairs)) // sizes.per_pair,
                    "found": has_attribute.double(),
                    "kept": same.sum(1) / other_groups.sum(1),
                    "both": (has_attribute & (same == other_groups).all(1)).double(),
                }
            )
        )
        means = rows[-1][["found", "kept", "both"]].mean().round(3).to_dict()
        print(f"painted: {name}, {means}", flush=True)
    names = [f"{world.class_names[k]}, {world.concept_names[c]}" for k, _, c in pairs.tolist()]
    return pd.concat(rows), images, names


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means with intervals over pairs, and the differences from the prompt, pair by pair."""
    means = rows.groupby(["painted from", "pair"], sort=False).mean()
    lines = {}
    for name in rows["painted from"].unique():
        part = means.loc[name]
        gain = part - means.loc[PROMPT]
        lines[name] = {column: interval(part[column]) for column in part} | {
            f"{column}, against prompt": interval(gain[column]) for column in part
        }
    return pd.DataFrame(lines).T


def interval(values: pd.Series) -> str:
    half = 1.96 * values.std() / len(values) ** 0.5
    return f"{values.mean():.3f} ± {half:.3f}"


def draw(images: dict[str, Tensor], titles: list[str], file: Path, step: int) -> None:
    import matplotlib.pyplot as plt

    columns = list(range(0, len(titles), step))[:8]
    figure, axes = plt.subplots(
        len(images), len(columns), figsize=(1.7 * len(columns), 1.8 * len(images)), squeeze=False
    )
    for row, (name, painted) in zip(axes, images.items(), strict=True):
        for axis, k in zip(row, columns, strict=True):
            axis.imshow((painted[k].permute(1, 2, 0) + 1) / 2, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, fontsize=7)
    for axis, k in zip(axes[0], columns, strict=True):
        axis.set_title(titles[k].replace(", ", "\n"), fontsize=6)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def load_or_train(name: str, make: Any, network: nn.Module, folder: Path | None, device: torch.device) -> Any:
    """Take a network from the folder, or train it and keep it there."""
    file = None if folder is None else folder / f"{name}.safetensors"
    if file is not None and file.is_file():
        load_model(network, file)
        return network.eval().to(device)
    trained_network = make()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_model(trained_network, str(file))
    return trained_network


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=tuple(SIZES), default="cpu")
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, help="of training the painter")
    parser.add_argument("--seconds", type=float, help="in which this training ends, however many steps are made")
    parser.add_argument("--guidance", type=float, help="weight of the prompt")
    parser.add_argument("--width", type=int, help="channels of the painter at its first level, in eights")
    options = parser.parse_args(arguments)
    sizes = TINY if options.tiny else SIZES[options.device]
    named = {name: getattr(options, name) for name in ("steps", "seconds", "guidance") if getattr(options, name)}
    if options.width:
        scale = options.width / sizes.widths[0]
        named["widths"] = tuple(round(width * scale / 16) * 16 for width in sizes.widths)
    sizes, device, start = dataclasses.replace(sizes, **named), torch.device(options.device), time.perf_counter()
    print(sizes, flush=True)
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True
    world = World(sizes)
    free = birds(sizes, sizes.n_free, INDEPENDENT, seed=1)
    held_out = birds(sizes, sizes.n_held_out, INDEPENDENT, "test", seed=1)
    print(f"painted {len(free.labels) + len(held_out.labels)} birds, {time.perf_counter() - start:.0f} s", flush=True)
    reader = load_or_train(
        "reader", lambda: train_reader(sizes, world, free, device), Reader(sizes), options.weights, device
    )
    readable = readable_groups(reader, held_out, world, device)
    painter = load_or_train(
        "painter", lambda: train_painter(sizes, world, free, readable, device), Painter(sizes), options.weights, device
    )
    rows, images, titles = look(painter, reader, world, readable, sizes, device)
    print(summary(rows).to_string())
    if options.picture:
        draw(images, titles, options.picture, sizes.per_pair)
    print(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
