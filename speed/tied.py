"""What tying costs: time and memory of a tied pair against the same two images without a tie, as ratios.

    python speed/tied.py             # both sections, a table; some minutes
    python speed/tied.py time        # one section: time or memory
    python speed/tied.py --write     # and keep each section's table in speed/RESULTS.md
    python speed/tied.py --tiny      # sizes that show only whether it runs

Pipelines of random weights, which are as fast as any: a FLUX of 1,024 tokens of 64 numbers (an image of 512 px), and a
Stable Diffusion on latents of 4 x 64 x 64 (512 px), both far smaller than the released ones, whose own part of the time
is larger still. Calls are taken in turn; ratios are formed repeat by repeat, of processor time; the median is judged.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import measuring
import torch
from measuring import Row, peak_mib, row, spread

from quantus_concepts.diffusion import TieSchedule, tied_pair

TITLE = "Time and memory of a tied pair"
GOAL = 1.02
N_STEPS, REPEATS = 4, 7
#: Ties a part of the elements at every step but the first: what costs most.
SCHEDULE = TieSchedule(0.1, 2.0, 1.0)


def flux(tiny: bool) -> tuple[Any, dict[str, Any]]:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel

    transformer = FluxTransformer2DModel(
        in_channels=64,
        num_layers=1 if tiny else 2,
        num_single_layers=1 if tiny else 4,
        attention_head_dim=16 if tiny else 64,
        num_attention_heads=2 if tiny else 8,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=[4, 4, 8] if tiny else [16, 24, 24],
        guidance_embeds=True,
    ).eval()
    nothing = dict.fromkeys(("vae", "text_encoder", "text_encoder_2", "tokenizer", "tokenizer_2"))
    pipeline = FluxPipeline(scheduler=FlowMatchEulerDiscreteScheduler(), transformer=transformer, **nothing)
    texts = {"prompt_embeds": torch.randn(2, 64, 32), "pooled_prompt_embeds": torch.randn(2, 32)}
    return pipeline, texts | {"height": 64 if tiny else 512, "width": 64 if tiny else 512}


def stable_diffusion(tiny: bool) -> tuple[Any, dict[str, Any]]:
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    unet = UNet2DConditionModel(
        sample_size=8 if tiny else 64,
        layers_per_block=1,
        block_out_channels=(8, 16) if tiny else (64, 128, 128),
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D")[: 2 if tiny else 3],
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")[1 if tiny else 0 :],
        cross_attention_dim=32,
        attention_head_dim=8,
        norm_num_groups=8,
    ).eval()
    nothing = dict.fromkeys(("vae", "text_encoder", "tokenizer", "safety_checker", "feature_extractor"))
    scheduler = DDIMScheduler(steps_offset=1, clip_sample=False)
    pipeline = StableDiffusionPipeline(unet=unet, scheduler=scheduler, requires_safety_checker=False, **nothing)
    texts = {"prompt_embeds": torch.randn(2, 16, 32), "negative_prompt_embeds": torch.randn(2, 16, 32)}
    size = 64 if tiny else 512
    return pipeline, texts | {"height": size, "width": size}


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


def calls(name: str, tiny: bool) -> dict[str, Callable[[], object]]:
    pipeline = OfEmbeddings(*MADE[name](tiny))
    return {
        "tied": lambda: tied_pair(pipeline, "", "", SCHEDULE),
        "untied": lambda: pipeline("", [torch.Generator().manual_seed(0) for _ in range(2)]),
    }


def measure_time(tiny: bool) -> list[Row]:
    torch.set_num_threads(1)
    rows = []
    for name in MADE:
        both = calls(name, tiny)
        taken: dict[str, list[float]] = {which: [] for which in both}
        for repeat in range(2 if tiny else REPEATS + 1):
            for which in list(both)[:: -1 if repeat % 2 else 1]:
                start = time.process_time()
                both[which]()
                taken[which].append(time.process_time() - start)
        ratios = [tied / untied for tied, untied in zip(taken["tied"][1:], taken["untied"][1:], strict=True)]
        ratio = statistics.median(ratios)
        figures = [f"{spread(taken[which][1:]):.2f} s" for which in ("tied", "untied")]
        rows.append(
            row(f"{name}, {N_STEPS} steps, one thread", *figures, f"{spread(ratios):.3f}", f"<= {GOAL}", ratio <= GOAL)
        )
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
        rows.append(row(f"{name}, peak of the process", *figures, f"{ratio:.3f}", f"<= {GOAL}", ratio <= GOAL))
    return rows


MEASURES: dict[str, Callable[[bool], list[Row]]] = {"time": measure_time, "memory": measure_memory}


def main(arguments: list[str]) -> int:
    if "--one" in arguments:
        torch.set_num_threads(1)
        calls(arguments[1], "--tiny" in arguments)[arguments[2]]()
        print(peak_mib())
        return 0
    about = "`python speed/tied.py --write`. Networks have random weights."
    machine = f"torch {torch.__version__}"
    return measuring.main_of_sizes(__file__, TITLE, about, MEASURES, (False, True), arguments, machine=machine)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
