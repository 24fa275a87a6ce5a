"""Small networks that paint and read painted birds, and what they are trained on."""

from __future__ import annotations

import math
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from diffusers import UNet2DModel
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, cross_entropy, mse_loss, pixel_shuffle, pixel_unshuffle

from quantus_concepts.datasets import PaintedBirds
from quantus_concepts.painted.training import processor_has_bfloat16

N_CONCEPTS, PAINTED_AT_ONCE = 52, 500
#: Of the held-out real birds' attributes, so many must be read rightly for a group to count.
READABLE = 0.9
#: Of attributes that say nothing of the class, each of four options is as frequent.
INDEPENDENT = 0.75


@dataclass(frozen=True)
class Sizes:
    """How much of everything; birds are painted 2.5 times as large, cut to 2 times around the bird, and averaged."""

    size: int = 24
    patch: int = 3
    widths: tuple[int, ...] = (64, 96)
    layers: int = 1
    n_classes: int = 8
    n_images: int = 4000
    n_free: int = 6000
    steps: int = 1200
    seconds: float = math.inf
    batch: int = 32
    rate: float = 2e-3
    read_epochs: int = 10
    n_held_out: int = 600
    per_pair: int = 4
    n_pairs: int = 36
    denoising_steps: int = 12
    guidance: float = 2.0


SIZES = {
    "cpu": Sizes(),
    "cuda": Sizes(
        size=48,
        patch=2,
        widths=(96, 192, 288),
        layers=2,
        n_classes=16,
        n_images=24000,
        n_free=24000,
        steps=20000,
        seconds=150.0,
        batch=128,
        rate=1e-3,
        n_held_out=3000,
        per_pair=8,
        n_pairs=96,
        denoising_steps=25,
    ),
}
TINY = Sizes(n_images=64, n_free=64, steps=2, batch=8, read_epochs=1, n_held_out=32, per_pair=1, n_pairs=4)


class Painter(nn.Module):
    """Predicts the flow of a noisy bird, given class, attribute, both or neither."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.patch, deeper = sizes.patch, len(sizes.widths) - 1
        attends = sizes.layers > 1
        # Of patches of pixels, for speed.
        self.unet = UNet2DModel(
            sample_size=sizes.size // sizes.patch,
            in_channels=3 * sizes.patch**2,
            out_channels=3 * sizes.patch**2,
            layers_per_block=sizes.layers,
            block_out_channels=sizes.widths,
            down_block_types=("DownBlock2D", *["AttnDownBlock2D" if attends else "DownBlock2D"] * deeper),
            up_block_types=(*["AttnUpBlock2D" if attends else "UpBlock2D"] * deeper, "UpBlock2D"),
            attention_head_dim=16,
            norm_num_groups=8,
            class_embed_type="identity",
        )
        # The last of each stands for none.
        self.of_class = nn.Embedding(sizes.n_classes + 1, 4 * sizes.widths[0])
        self.of_concept = nn.Embedding(N_CONCEPTS + 1, 4 * sizes.widths[0])

    def forward(self, images: Tensor, noise: Tensor, classes: Tensor, concepts: Tensor) -> Tensor:
        condition = self.of_class(classes) + self.of_concept(concepts)
        flow: Tensor = self.unet(pixel_unshuffle(images, self.patch), noise * 1000, class_labels=condition).sample
        return pixel_shuffle(flow, self.patch).float()


class Reader(nn.Module):
    """Reads which option of each group a bird has."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels, width in ((3, 32), (32, 64), (64, 96)):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(2)]
        head = nn.Linear(96 * (sizes.size // 8) ** 2, 256)
        self.net = nn.Sequential(*layers, nn.Flatten(), head, nn.ReLU(), nn.Linear(256, N_CONCEPTS))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits


@dataclass
class Birds:
    """Painted birds of which nothing is hidden, in the middle, facing one way."""

    images: Tensor  # of 8 bits
    labels: Tensor
    truth: Tensor  # the concept of each group, (N, G)

    def scaled_images(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """Return images in [-1, 1]."""
        return self.images[rows].float() / 127.5 - 1

    def only(self, rows: Tensor) -> Birds:
        return Birds(self.images[rows], self.labels[rows], self.truth[rows])

    @staticmethod
    def joined(parts: Sequence[Birds]) -> Birds:
        columns = zip(*((part.images, part.labels, part.truth) for part in parts), strict=True)
        return Birds(*map(torch.cat, columns))


class World:
    """The classes and attributes there are."""

    def __init__(self, sizes: Sizes) -> None:
        painted = PaintedBirds(sizes.n_classes, "train", 32, sizes.n_classes, N_CONCEPTS)
        self.class_names, self.concept_names = painted.class_names, painted.concept_names
        self.group_names = [group.name for group in painted.groups]
        starts = torch.searchsorted(painted.group_of_concept, torch.arange(len(painted.groups)))
        #: The places of each group's concepts.
        self.parts = [slice(*ends) for ends in zip(starts.tolist(), [*starts[1:].tolist(), N_CONCEPTS], strict=True)]
        #: Which concepts define each class, (K, G).
        self.options = painted.class_options + starts


def paint_some(settings: dict[str, Any]) -> list[np.ndarray]:
    """Paint birds and cut them out; arrays, for tensors would pass between processes through shared memory."""
    torch.set_num_threads(1)
    painted = PaintedBirds(n_concepts=N_CONCEPTS, keep=True, **settings)
    cut = painted.image_size * 4 // 5
    uncovered = (~painted.points.isnan().flatten(1).any(1)).nonzero()[:, 0]
    places = painted.points[uncovered, :, 0]
    corners = (places.mean(1) - cut / 2).round().long().clamp(0, painted.image_size - cut).tolist()
    images = torch.stack(
        [
            image[:, top : top + cut, left : left + cut]
            for image, (left, top) in zip(painted.images(uncovered.tolist()), corners, strict=True)
        ]
    )
    beak, tail = (places[:, painted.part_names.index(name), 0] for name in ("beak", "tail"))
    images = torch.where((beak < tail)[:, None, None, None], images, images.flip(3))
    starts = torch.searchsorted(painted.group_of_concept, torch.arange(len(painted.groups)))
    averaged = (avg_pool2d(images, 2) * 255).round().to(torch.uint8)
    return [array.numpy() for array in (averaged, painted.labels[uncovered], painted.options[uncovered] + starts)]


def birds(sizes: Sizes, count: int, deviation: float, split: str = "train", seed: int = 0) -> Birds:
    """Paint birds, each processor some."""
    settings = {
        "split": split,
        "image_size": sizes.size * 5 // 2,
        "n_classes": sizes.n_classes,
        "deviation": deviation,
        "seed": seed,
    }
    parts = [
        settings | {"first": first, "n_images": max(min(PAINTED_AT_ONCE, count - first), sizes.n_classes)}
        for first in range(0, count, PAINTED_AT_ONCE)
    ]
    if len(parts) == 1:
        painted = [paint_some(parts[0])]
    else:
        workers = min(len(parts), len(os.sched_getaffinity(0)))
        with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
            painted = list(pool.map(paint_some, parts))
    return Birds(*(torch.from_numpy(np.concatenate(column)) for column in zip(*painted, strict=True)))


def labelled_birds(sizes: Sizes) -> Birds:
    """Paint birds of the first half of the classes as these are, and of the others with some other attributes."""
    pure, mixed = (birds(sizes, sizes.n_images, deviation) for deviation in (0.0, 0.1))
    half = sizes.n_classes // 2
    return Birds.joined([pure.only(pure.labels < half), mixed.only(mixed.labels >= half)])


def batches(count: int, size: int, generator: torch.Generator) -> Iterator[Tensor]:
    while True:
        yield from torch.randperm(count, generator=generator, device=generator.device).split(size)


def half_precision(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda" or processor_has_bfloat16())


def train_painter(sizes: Sizes, world: World, free: Birds, conditions: Sequence[int], device: torch.device) -> Painter:
    """Train on birds of classes and `free` ones without a class; groups not `told` are never a condition."""
    of_classes = labelled_birds(sizes)
    n_free = min(len(free.labels), len(of_classes.labels) // 2)
    data = Birds.joined([of_classes, free.only(torch.arange(n_free))])
    class_concepts = world.options[data.labels]
    images, truth = data.images.to(device), data.truth[:, list(conditions)].to(device)
    strange = truth != class_concepts[:, list(conditions)].to(device)
    labels = data.labels.clone()
    labels[len(of_classes.labels) :] = sizes.n_classes
    labels = labels.to(device)
    generator = torch.Generator(device).manual_seed(0)
    painter, mean = (Painter(sizes).to(device, memory_format=torch.channels_last) for _ in range(2))
    mean.requires_grad_(False).load_state_dict(painter.state_dict())
    optimiser = torch.optim.AdamW(painter.parameters(), sizes.rate, fused=device.type == "cuda")
    n_weights = sum(parameter.numel() for parameter in painter.parameters())
    print(f"painter: {len(labels)} birds, {n_free} without a class; {n_weights / 1e6:.1f} million weights", flush=True)
    averages, weights = list(mean.parameters()), [parameter.detach() for parameter in painter.parameters()]
    start = time.perf_counter()

    def chance(count: int) -> Tensor:
        return torch.rand(count, generator=generator, device=device)

    for step, rows in enumerate(batches(len(labels), sizes.batch, generator)):
        passed = time.perf_counter() - start
        done = max(step / sizes.steps, passed / sizes.seconds)
        if done >= 1:
            break
        for group in optimiser.param_groups:
            group["lr"] = sizes.rate * min(1.0, done / 0.05) * math.cos(done * math.pi / 2)
        clean, classes = images[rows].float() / 127.5 - 1, labels[rows].clone()
        # Any attribute, or as often one that is not the class's, where there is one.
        likely = torch.where((chance(len(rows)) < 0.5)[:, None], strange[rows].float(), 0) + 1e-4
        which = torch.multinomial(likely, 1, generator=generator)
        concepts = truth[rows].gather(1, which)[:, 0]
        classes[chance(len(rows)) < 0.1] = sizes.n_classes
        concepts[chance(len(rows)) < 0.35] = N_CONCEPTS
        noise = torch.randn(clean.shape, generator=generator, device=device)
        level = torch.sigmoid(torch.randn(len(rows), generator=generator, device=device))
        mixed = clean + level[:, None, None, None] * (noise - clean)
        with half_precision(device):
            flow = painter(mixed, level, classes, concepts)
        loss = mse_loss(flow, noise - clean)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        # All together: on a GPU a step of small kernels takes as long as these take to launch.
        torch._foreach_lerp_(averages, weights, max(0.005, 1 / (step + 1)))
        if step % 200 == 0:
            print(f"painter: step {step}, loss {float(loss.detach()):.3f}, {passed:.0f} s", flush=True)
    return mean.eval()


def train_reader(sizes: Sizes, world: World, data: Birds, device: torch.device) -> Reader:
    """Train on birds whose attributes say nothing of each other."""
    generator = torch.Generator(device).manual_seed(1)
    reader = Reader(sizes).to(device)
    data = Birds(*(column.to(device) for column in vars(data).values()))
    n_steps = sizes.read_epochs * -(-len(data.labels) // 64)
    optimiser = torch.optim.AdamW(reader.parameters(), 2e-3, weight_decay=0.01, fused=device.type == "cuda")
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, n_steps)
    for step, rows in enumerate(batches(len(data.labels), 64, generator)):
        if step == n_steps:
            break
        images = data.scaled_images(rows)
        # Painted birds are noisier than the painter's: what is read must not hang on the grain.
        grain = torch.randn(images.shape, generator=generator, device=device)
        logits = reader(images + 0.15 * torch.rand(1, generator=generator, device=device) * grain)
        truth = data.truth[rows]
        loss = sum(cross_entropy(logits[:, part], truth[:, g] - part.start) for g, part in enumerate(world.parts))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        rates.step()
    return reader.eval()


@torch.no_grad()
def read_concepts(reader: Reader, images: Tensor, world: World, device: torch.device) -> Tensor:
    """Return the concept read of each group, (N, G)."""
    logits = torch.cat([reader(some.to(device)).cpu() for some in images.split(256)])
    return torch.stack([logits[:, part].argmax(1) + part.start for part in world.parts], dim=1)


def readable_groups(reader: Reader, held_out: Birds, world: World, device: torch.device) -> list[int]:
    """Return which groups the reader reads rightly on birds it has not seen."""
    accuracy = (read_concepts(reader, held_out.scaled_images(), world, device) == held_out.truth).double().mean(0)
    shares = {name: round(float(right), 3) for name, right in zip(world.group_names, accuracy, strict=True)}
    readable = (accuracy >= READABLE).nonzero()[:, 0].tolist() or accuracy.topk(2).indices.tolist()
    print(f"read rightly, of {len(held_out.labels)} held-out real birds:", shares)
    print("groups that count:", [world.group_names[g] for g in readable], flush=True)
    return readable
