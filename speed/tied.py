"""What tying costs: time and memory of a tied pair against the same two images without a tie, as ratios.

    python speed/tied.py             # both sections, a table; two minutes
    python speed/tied.py --device=cuda   # layers as wide as the released ones', in bfloat16
    python speed/tied.py time        # one section: time or memory
    python speed/tied.py --tiny      # sizes that show only whether it runs

Pipelines of random weights, which are as fast as any: a FLUX of 256 tokens of 64 numbers (an image of 256 px), and a
Stable Diffusion on latents of 4 x 32 x 32 (256 px), both far smaller than the released ones, whose own part of the time
is larger still. Calls are taken in turn; ratios are formed repeat by repeat, of processor time. Those of whole calls
differ by more than tying costs: what it adds is told by the same calls with a network that computes nothing, and its
median is judged.
On a GPU: six layers of FLUX.1's width on 4,096 tokens (1,024 px), the whole UNet of Stable Diffusion 1 on latents of
4 x 64 x 64, times by its own events, and the most memory that its allocator held.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import measuring
import numpy as np
import torch
from measuring import DEVICE, Row, peak_mib, row, spread
from torch import Tensor

from quantus_concepts.diffusion import TieSchedule, tied_pair

GOAL = 1.02
N_STEPS, REPEATS = 4, 7
#: Ties a part of the elements at every step but the first: what costs most.
SCHEDULE = TieSchedule(0.1, 2.0, 1.0)


GPU = DEVICE.type == "cuda"
DTYPE = torch.bfloat16 if GPU else torch.float32


def texts(*shapes: Sequence[int]) -> list[Tensor]:
    return [torch.randn(*shape, dtype=DTYPE, device=DEVICE) for shape in shapes]


def in_dtype(network: Any) -> Any:
    return (network.to(DTYPE) if GPU else network).eval()


def flux(tiny: bool) -> tuple[Any, dict[str, Any]]:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    size = 64 if tiny else 1024 if GPU else 256
    with DEVICE:
        transformer = FluxTransformer2DModel(
            in_channels=64,
            num_layers=1 if tiny else 2,
            num_single_layers=1 if tiny else 4,
            attention_head_dim=16 if tiny else 128 if GPU else 64,
            num_attention_heads=2 if tiny else 24 if GPU else 8,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8] if tiny else [16, 56, 56] if GPU else [16, 24, 24],
            guidance_embeds=True,
        )
    nothing = dict.fromkeys(("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"))
    pipeline = FluxPipeline(scheduler=FlowMatchEulerDiscreteScheduler(), transformer=in_dtype(transformer), **nothing)
    prompts, pooled = texts((2, 64, 32), (2, 32))
    return pipeline, {"prompt_embeds": prompts, "pooled_prompt_embeds": pooled, "height": size, "width": size}


def stable_diffusion(tiny: bool) -> tuple[Any, dict[str, Any]]:
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    small = {
        "layers_per_block": 1,
        "block_out_channels": (8, 16) if tiny else (64, 128, 128),
        "down_block_types": ("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")[: 2 if tiny else 3],
        "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")[1 if tiny else 0 :],
        "norm_num_groups": 8,
    }
    size = 64 if tiny else 512 if GPU else 256
    with DEVICE:
        unet = UNet2DConditionModel(
            sample_size=size // 8, cross_attention_dim=32, attention_head_dim=8, **({} if GPU and not tiny else small)
        )
    nothing = dict.fromkeys(("vae", "text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    pipeline = StableDiffusionPipeline(
        unet=in_dtype(unet),
        scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
        requires_safety_checker=False,
        **nothing,
    )
    prompts, negatives = texts((2, 16, 32), (2, 16, 32))
    return pipeline, {"prompt_embeds": prompts, "negative_prompt_embeds": negatives, "height": size, "width": size}


MADE = {"FLUX": flux, "Stable Diffusion": stable_diffusion}


class OfEmbeddings:
    """A pipeline that gets its texts embedded, so that no text encoder is timed, called as one with prompts."""

    def __init__(self, pipeline: Any, settings: dict[str, Any]) -> None:
        self.pipeline, self.settings = pipeline, settings
        pipeline.set_progress_bar_config(disable=True)

    @property
    def scheduler(self) -> Any:
        return self.pipeline.scheduler

    @scheduler.setter
    def scheduler(self, scheduler: Any) -> None:
        self.pipeline.scheduler = scheduler

    def __call__(self, prompt: Any, generator: Any, **more: Any) -> Any:
        fixed = {"num_inference_steps": N_STEPS, "output_type": "latent"}
        return self.pipeline(generator=generator, **self.settings, **fixed, **more)


def calls(name: str, tiny: bool, bare: bool = False) -> dict[str, Callable[[], object]]:
    """Return a call with a tie and one without; `bare` ones run all but the network, which returns what is kept."""
    pipeline = OfEmbeddings(*MADE[name](tiny))
    if bare:
        output: list[Tensor] = []

        def forward(*inputs: Tensor, **named: Any) -> tuple[Tensor]:
            output.extend([] if output else [torch.randn_like(inputs[0] if inputs else named["hidden_states"])])
            return (output[0],)

        parts = pipeline.pipeline.components
        next(parts[part] for part in ("transformer", "unet") if part in parts).forward = forward
    return {
        "tied": lambda: tied_pair(pipeline, "", "", SCHEDULE),
        "untied": lambda: pipeline("", [torch.Generator().manual_seed(0) for _ in range(2)]),
    }


def seconds(call: Callable[[], object]) -> float:
    """Return the time of a call: of the processor, or between two events of a GPU."""
    if not GPU:
        start = time.process_time()
        call()
        return time.process_time() - start
    events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
    events[0].record()
    call()
    events[1].record()
    torch.cuda.synchronize(DEVICE)
    return events[0].elapsed_time(events[1]) / 1000


def in_turn(both: dict[str, Callable[[], object]], repeats: int) -> dict[str, np.ndarray]:
    """Return the times of two calls taken in turn, after one of each that does not count."""
    times: dict[str, list[float]] = {which: [] for which in both}
    for repeat in range(repeats + 1):
        for which in list(both)[:: -1 if repeat % 2 else 1]:
            times[which].append(seconds(both[which]))
    return {which: np.array(values[1:]) for which, values in times.items()}


def measure_time(tiny: bool) -> list[Row]:
    torch.set_num_threads(1)
    rows = []
    for name in MADE:
        full = in_turn(calls(name, tiny), 1 if tiny else REPEATS)
        bare = in_turn(calls(name, tiny, bare=True), 2 if tiny else 10 * REPEATS)
        added = bare["tied"] - bare["untied"]
        ratios = 1 + added / np.median(full["untied"])
        where = f"{name}, {N_STEPS} steps, {'bfloat16' if GPU else 'one thread'}"
        figures = [f"{spread(full[which].tolist()):.3f} s" for which in ("tied", "untied")]
        rows.append(
            row(f"{where}: whole", *figures, f"{spread((full['tied'] / full['untied']).tolist()):.3f}", "", None)
        )
        ratio = spread(ratios.tolist())
        figures = [f"{spread((1000 * added).tolist()):.2f} ms", f"{np.median(full['untied']):.3f} s"]
        met = bool(ratio.median <= GOAL)
        rows.append(row(f"{where}: what tying adds to an untied call", *figures, f"{ratio:.4f}", f"<= {GOAL}", met))
    return rows


def measure_memory(tiny: bool) -> list[Row]:
    rows = []
    for name in MADE:
        peaks = {}
        for which in ("tied", "untied"):
            command = [sys.executable, __file__, "--one", name, which, *(["--tiny"] if tiny else [])]
            peaks[which] = float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
        ratio = peaks["tied"] / peaks["untied"]
        figures = [f"{peaks[which]:.0f} MiB" for which in ("tied", "untied")]
        of = "allocated on the GPU" if GPU else "of the process"
        rows.append(row(f"{name}, most memory {of}", *figures, f"{ratio:.3f}", f"<= {GOAL}", ratio <= GOAL))
    return rows


MEASURES: dict[str, Callable[[bool], list[Row]]] = {"time": measure_time, "memory": measure_memory}


def main(arguments: list[str]) -> int:
    if "--one" in arguments:
        torch.set_num_threads(1)
        call = calls(arguments[1], "--tiny" in arguments)[arguments[2]]
        if GPU:
            torch.cuda.reset_peak_memory_stats(DEVICE)
        call()
        print(torch.cuda.max_memory_allocated(DEVICE) / 2**20 if GPU else peak_mib())
        return 0
    return measuring.main_of_sizes(__file__, MEASURES, (False, True), arguments)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
