"""Does Tied Diffusion Guidance keep the other attributes of a bird? Looked at where nothing need be downloaded.

    python speed/tied_birds.py                    # trains, generates, reads and prints a table; some ten minutes
    python speed/tied_birds.py --weights FOLDER   # keeps the two networks there, or takes them from there
    python speed/tied_birds.py --picture FILE     # and draws some of the images
    python speed/tied_birds.py --tiny             # sizes that show only whether it runs

A small UNet learns to paint painted birds of 24 pixels from a class, one attribute, both or neither (rectified flow,
classifier-free guidance). Few birds of a class have an attribute that is not the class's, so that "class c with
attribute a" is asked for beyond what was learned, as "a Blue Jay with a yellow crown" is. It paints

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
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from diffusers import FlowMatchEulerDiscreteScheduler, UNet2DModel
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy, mse_loss, pixel_shuffle, pixel_unshuffle

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.diffusion import TiedScheduler, TieSchedule
from quantus_concepts.studies.training import processor_has_bfloat16

#: Painted at 60 pixels, cut to 48 around the bird, and averaged to 24.
PAINTED, CUT, SIZE, PATCH, N_CLASSES, N_CONCEPTS = 60, 48, 24, 3, 8, 52
PROMPT = "prompt"
#: Of the held-out real birds' attributes, so many must be read rightly for a group to count.
READABLE = 0.9
SCHEDULES = {
    "tied, .1 .3 rate 5": TieSchedule(0.1, 0.3, 5.0),
    "tied, .1 .5 rate 5": TieSchedule(0.1, 0.5, 5.0),
    "tied, .2 .6 rate 3": TieSchedule(0.2, 0.6, 3.0),
    "tied, .3 .8 rate 3": TieSchedule(0.3, 0.8, 3.0),
    "tied, .5 .95 rate 1": TieSchedule(0.5, 0.95, 1.0),
}


@dataclass(frozen=True)
class Sizes:
    n_images: int = 4000
    n_steps: int = 1200
    batch: int = 32
    n_read: int = 6000
    read_epochs: int = 10
    n_held_out: int = 600
    per_pair: int = 4
    n_pairs: int = 36
    denoising_steps: int = 12
    guidance: float = 2.0


TINY = Sizes(64, 2, 8, 64, 1, 32, 1, 4, 4)


class Painter(nn.Module):
    """Predicts the flow of a noisy bird, given class, attribute, both or neither."""

    def __init__(self) -> None:
        super().__init__()
        # Of patches of pixels, for speed.
        self.unet = UNet2DModel(
            sample_size=SIZE // PATCH,
            in_channels=3 * PATCH**2,
            out_channels=3 * PATCH**2,
            layers_per_block=1,
            block_out_channels=(64, 96),
            down_block_types=("DownBlock2D", "DownBlock2D"),
            up_block_types=("UpBlock2D", "UpBlock2D"),
            attention_head_dim=16,
            norm_num_groups=8,
            class_embed_type="identity",
        )
        # The last of each stands for none.
        self.of_class = nn.Embedding(N_CLASSES + 1, 256)
        self.of_concept = nn.Embedding(N_CONCEPTS + 1, 256)

    def forward(self, images: Tensor, noise: Tensor, classes: Tensor, concepts: Tensor) -> Tensor:
        told = self.of_class(classes) + self.of_concept(concepts)
        found: Tensor = self.unet(pixel_unshuffle(images, PATCH), noise * 1000, class_labels=told).sample
        return pixel_shuffle(found, PATCH)


class Reader(nn.Module):
    """Reads which option of each group a bird has."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, width in ((3, 32), (32, 64), (64, 96)):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        self.net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(96 * 9, 256), nn.ReLU(), nn.Linear(256, N_CONCEPTS))

    def forward(self, images: Tensor) -> Tensor:
        found: Tensor = self.net(images)
        return found


class Birds:
    """Painted birds of which nothing is hidden, in the middle, facing one way; images in [-1, 1]."""

    def __init__(self, n_images: int, deviation: float, split: str = "train", seed: int = 0) -> None:
        made = PaintedBirds(n_images, split, PAINTED, N_CLASSES, N_CONCEPTS, deviation=deviation, seed=seed, keep=True)
        whole = (~made.points.isnan().flatten(1).any(1)).nonzero()[:, 0]
        places = made.points[whole, :, 0]
        corners = (places.mean(1) - CUT / 2).round().long().clamp(0, PAINTED - CUT).tolist()
        cut = [
            image[:, top : top + CUT, left : left + CUT]
            for image, (left, top) in zip(made.images(whole.tolist()), corners, strict=True)
        ]
        beak, tail = (places[:, made.part_names.index(name), 0] for name in ("beak", "tail"))
        images = torch.stack(cut)
        images = torch.where((beak < tail)[:, None, None, None], images, images.flip(3))
        self.images = avg_pool2d(images, CUT // SIZE) * 2 - 1
        self.labels, self.concepts = made.labels[whole], made.concept_labels[whole]
        self.class_names, self.concept_names = made.class_names, made.concept_names
        self.group_names = [group.name for group in made.groups]
        starts = torch.searchsorted(made.group_of_concept, torch.arange(len(made.groups)))
        ends = [*starts[1:].tolist(), N_CONCEPTS]
        #: The places of each group's concepts.
        self.parts = [slice(start, end) for start, end in zip(starts.tolist(), ends, strict=True)]
        #: Which concepts define each class, (K, G).
        self.class_options = made.class_options + starts

    @property
    def truth(self) -> Tensor:
        """Which concept of each group a bird has, (N, G)."""
        return torch.stack([self.concepts[:, part].argmax(1) + part.start for part in self.parts], dim=1)


def batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    while True:
        yield from torch.randperm(count, generator=generator).split(size)


def train_painter(sizes: Sizes, told: Sequence[int]) -> Painter:
    """Train on birds of which one in twenty attributes is not its class's; groups not `told` are never a condition."""
    data = Birds(sizes.n_images, 0.05)
    generator = torch.Generator().manual_seed(0)
    painter, mean = (Painter().to(memory_format=torch.channels_last) for _ in range(2))
    mean.requires_grad_(False).load_state_dict(painter.state_dict())
    optimiser = torch.optim.AdamW(painter.parameters(), 2e-3)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, sizes.n_steps, pct_start=0.1)
    truth, start = data.truth[:, list(told)], time.perf_counter()
    print(f"painter: {len(truth)} birds", flush=True)
    for step, rows in enumerate(batches(len(truth), sizes.batch, generator)):
        if step == sizes.n_steps:
            break
        clean, classes = data.images[rows], data.labels[rows].clone()
        concepts = truth[rows, torch.randint(len(told), (len(rows),), generator=generator)]
        classes[torch.rand(len(rows), generator=generator) < 0.35] = N_CLASSES
        concepts[torch.rand(len(rows), generator=generator) < 0.35] = N_CONCEPTS
        noise = torch.randn(clean.shape, generator=generator)
        level = torch.sigmoid(torch.randn(len(rows), generator=generator))
        mixed = clean + level[:, None, None, None] * (noise - clean)
        with torch.autocast("cpu", torch.bfloat16, enabled=processor_has_bfloat16()):
            flow = painter(mixed, level, classes, concepts)
        loss = mse_loss(flow.float(), noise - clean)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
        with torch.no_grad():
            for own, average in zip(painter.parameters(), mean.parameters(), strict=True):
                average.lerp_(own, max(0.005, 1 / (step + 1)))
        if step % 100 == 0:
            passed = time.perf_counter() - start
            print(f"painter: step {step}, loss {float(loss.detach()):.3f}, {passed:.0f} s", flush=True)
    return mean.eval()


def train_reader(sizes: Sizes) -> Reader:
    """Train on birds whose attributes say nothing of each other."""
    data = Birds(sizes.n_read, 0.75, seed=1)
    generator = torch.Generator().manual_seed(1)
    reader = Reader()
    optimiser = torch.optim.AdamW(reader.parameters(), 2e-3, weight_decay=0.01)
    truth, n_steps = data.truth, sizes.read_epochs * -(-len(data.images) // 64)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, n_steps)
    for step, rows in enumerate(batches(len(data.images), 64, generator)):
        if step == n_steps:
            break
        shown = data.images[rows]
        # Painted birds are noisier than the painter's: what is read must not hang on the grain.
        shown = shown + 0.15 * torch.rand(1, generator=generator) * torch.randn(shown.shape, generator=generator)
        logits, said = reader(shown), truth[rows]
        loss = sum(cross_entropy(logits[:, part], said[:, g] - part.start) for g, part in enumerate(data.parts))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
    return reader.eval()


@torch.no_grad()
def read(reader: Reader, images: Tensor, parts: list[slice]) -> Tensor:
    """Return the concept read of each group, (N, G)."""
    logits = torch.cat([reader(some) for some in images.split(256)])
    return torch.stack([logits[:, part].argmax(1) + part.start for part in parts], dim=1)


def readable_groups(reader: Reader, held: Birds) -> list[int]:
    """Return which groups the reader reads rightly on birds it has not seen."""
    accuracy = (read(reader, held.images, held.parts) == held.truth).double().mean(0)
    told = {name: round(float(right), 3) for name, right in zip(held.group_names, accuracy, strict=True)}
    readable = (accuracy >= READABLE).nonzero()[:, 0].tolist() or accuracy.topk(2).indices.tolist()
    print(f"read rightly, of {len(held.images)} held-out real birds:", told)
    print("groups that count:", [held.group_names[g] for g in readable], flush=True)
    return readable


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
    if eta is not None:
        scheduler = TiedScheduler(scheduler, eta)
        classes, concepts = torch.cat([classes, torch.full_like(classes, N_CLASSES)]), torch.cat([concepts, concepts])
        noise = torch.cat([noise, noise])
    scheduler.set_timesteps(sizes.denoising_steps)
    images, nothing = noise, (torch.full_like(classes, N_CLASSES), torch.full_like(concepts, N_CONCEPTS))
    for timestep in scheduler.timesteps:
        level = (timestep / 1000).expand(len(images))
        bare = painter(images, level, *nothing)
        flow = bare + sizes.guidance * (painter(images, level, classes, concepts) - bare)
        images = scheduler.step(flow, timestep, images).prev_sample
    return images.clamp(-1, 1)[: len(noise) // (1 if eta is None else 2)]


def look(
    painter: Painter, reader: Reader, held: Birds, readable: list[int], sizes: Sizes
) -> tuple[pd.DataFrame, dict[str, Tensor], list[str]]:
    """Paint every kind and read what is there."""
    own = Birds(N_CLASSES * 4, 0.0)
    options, parts = own.class_options, own.parts
    asked = [
        (k, g, concept)
        for k in range(N_CLASSES)
        for g in readable
        for concept in range(parts[g].start, parts[g].stop)
        if concept != options[k, g]
    ]
    chosen = np.random.default_rng(0).permutation(len(asked))[: sizes.n_pairs]
    pairs = torch.tensor([asked[i] for i in chosen]).repeat_interleave(sizes.per_pair, 0)
    classes, groups, concepts = pairs.T
    noise, other = (
        torch.randn(len(pairs), 3, SIZE, SIZE, generator=torch.Generator().manual_seed(seed)) for seed in (2, 3)
    )
    no_class, no_concept = torch.full_like(classes, N_CLASSES), torch.full_like(concepts, N_CONCEPTS)
    kinds: dict[str, tuple[Tensor, Tensor, Tensor, TieSchedule | None]] = {
        "class alone": (noise, classes, no_concept, None),
        "attribute alone": (noise, no_class, concepts, None),
        PROMPT: (noise, classes, concepts, None),
        f"{PROMPT}, other noise": (other, classes, concepts, None),
    } | {name: (noise, classes, concepts, eta) for name, eta in SCHEDULES.items()}
    rows, images = [], {}
    others = torch.zeros(len(pairs), len(parts), dtype=torch.bool)
    others[:, readable] = True
    others[torch.arange(len(pairs)), groups] = False
    for name, (*told, eta) in kinds.items():
        several = zip(*(each.split(64) for each in told), strict=True)
        images[name] = torch.cat([paint(painter, *some, sizes, eta) for some in several])
        said = read(reader, images[name], parts)
        found = (said == concepts[:, None]).any(1)
        same = (said == options[classes]) & others
        rows.append(
            pd.DataFrame(
                {
                    "painted from": name,
                    "pair": np.arange(len(pairs)) // sizes.per_pair,
                    "found": found.double(),
                    "kept": same.sum(1) / others.sum(1),
                    "both": (found & (same == others).all(1)).double(),
                }
            )
        )
        means = rows[-1][["found", "kept", "both"]].mean().round(3).to_dict()
        print(f"painted: {name}, {means}", flush=True)
    names = [f"{own.class_names[k]}, {held.concept_names[c]}" for k, _, c in pairs.tolist()]
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


def draw(images: dict[str, Tensor], told: list[str], file: Path, step: int) -> None:
    import matplotlib.pyplot as plt

    shown = list(range(0, len(told), step))[:8]
    figure, axes = plt.subplots(len(images), len(shown), figsize=(1.7 * len(shown), 1.8 * len(images)), squeeze=False)
    for row, (name, made) in zip(axes, images.items(), strict=True):
        for axis, k in zip(row, shown, strict=True):
            axis.imshow((made[k].permute(1, 2, 0) + 1) / 2, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
        row[0].set_ylabel(name, fontsize=7)
    for axis, k in zip(axes[0], shown, strict=True):
        axis.set_title(told[k].replace(", ", "\n"), fontsize=6)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def trained(name: str, make: Any, network: nn.Module, folder: Path | None) -> Any:
    """Take a network from the folder, or train it and keep it there."""
    file = None if folder is None else folder / f"{name}.safetensors"
    if file is not None and file.is_file():
        load_model(network, file)
        return network.eval()
    made = make()
    if file is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        save_model(made, str(file))
    return made


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args(arguments)
    sizes = TINY if given.tiny else Sizes()
    torch.manual_seed(0)
    reader = trained("reader", lambda: train_reader(sizes), Reader(), given.weights)
    held = Birds(sizes.n_held_out, 0.75, "test", seed=1)
    readable = readable_groups(reader, held)
    painter = trained("painter", lambda: train_painter(sizes, readable), Painter(), given.weights)
    rows, images, told = look(painter, reader, held, readable, sizes)
    print(summary(rows).to_string())
    if given.picture:
        draw(images, told, given.picture, sizes.per_pair)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
