"""Models of some thousand weights: FLUX and Stable Diffusion of diffusers, and an InternVL with a fixed answer."""

from __future__ import annotations

import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

WORDS = ("<pad>", "<s>", "</s>", "<unk>", "a", "photo", "of", "bird", "with", "red", "blue", "crown", "Jay", "Cardinal")
SPECIAL = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<IMG_CONTEXT> "
    "{% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}<s>"
)


def tokenizer(words: Sequence[str] = WORDS) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    word_level = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<unk>"))
    word_level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    names = ["input_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=word_level, model_max_length=16, model_input_names=names, **special)


def clip_text(**changes: Any) -> Any:
    from transformers import CLIPTextConfig, CLIPTextModel

    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    sizes |= {"vocab_size": len(WORDS), "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2}
    return CLIPTextModel(CLIPTextConfig(**sizes | changes, pad_token_id=0)).eval()


def autoencoder(channels: int) -> Any:
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        down_block_types=["DownEncoderBlock2D"] * 2,
        up_block_types=["UpDecoderBlock2D"] * 2,
        block_out_channels=[8, 8],
        layers_per_block=1,
        latent_channels=channels,
        norm_num_groups=2,
        sample_size=16,
        shift_factor=0.0,
        scaling_factor=1.0,
    ).eval()


def tiny_flux() -> Any:
    from diffusers import FlowMatchEulerDiscreteScheduler, FluxPipeline, FluxTransformer2DModel
    from transformers import T5Config, T5EncoderModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformer = FluxTransformer2DModel(
            patch_size=1,
            in_channels=16,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
            guidance_embeds=True,
        ).eval()
        t5 = T5Config(d_model=32, d_kv=8, d_ff=32, num_layers=1, num_heads=2, vocab_size=len(WORDS), pad_token_id=0)
        pipeline = FluxPipeline(
            scheduler=FlowMatchEulerDiscreteScheduler(),
            vae=autoencoder(4),
            text_encoder=clip_text(),
            tokenizer=tokenizer(),
            text_encoder_2=T5EncoderModel(t5).eval(),
            tokenizer_2=tokenizer(),
            transformer=transformer,
        )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def tiny_stable_diffusion() -> Any:
    from diffusers import DDIMScheduler, StableDiffusionPipeline, UNet2DConditionModel

    with torch.random.fork_rng():
        torch.manual_seed(0)
        unet = UNet2DConditionModel(
            sample_size=8,
            in_channels=4,
            out_channels=4,
            layers_per_block=1,
            block_out_channels=(8, 16),
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=32,
            attention_head_dim=8,
            norm_num_groups=2,
        ).eval()
        pipeline = StableDiffusionPipeline(
            vae=autoencoder(4),
            text_encoder=clip_text(),
            tokenizer=tokenizer(),
            unet=unet,
            scheduler=DDIMScheduler(steps_offset=1, clip_sample=False),
            safety_checker=None,
            feature_extractor=None,
            requires_safety_checker=False,
        )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline


def write_letter_model(folder: Path, favourite: str = "", words: str = string.ascii_uppercase) -> Path:
    """Write a model that says one word whatever it sees, or, of none, what its weights happen to."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import (
        GotOcr2ImageProcessor,
        InternVLConfig,
        InternVLForConditionalGeneration,
        InternVLProcessor,
        InternVLVideoProcessor,
        PreTrainedTokenizerFast,
    )

    tokens = ["<pad>", "<s>", "</s>", "<unk>", *SPECIAL.values(), "<video>", *words, "hello"]
    word_level = Tokenizer(models.WordLevel({token: place for place, token in enumerate(tokens)}, unk_token="<unk>"))
    word_level.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=word_level,
        pad_token="<pad>",
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<unk>",
        extra_special_tokens={**SPECIAL, "video_token": "<video>"},
        model_max_length=256,
    )
    size = {"height": 16, "width": 16}
    processor = InternVLProcessor(
        GotOcr2ImageProcessor(size=size, max_patches=1, crop_to_patches=False),
        tokenizer,
        InternVLVideoProcessor(size=size),
        image_seq_length=1,
        chat_template=TEMPLATE,
    )
    shared = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {"model_type": "qwen2", "vocab_size": len(tokens), "num_key_value_heads": 2, "tie_word_embeddings": False}
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = InternVLForConditionalGeneration(
            InternVLConfig(
                vision_config={**shared, "image_size": [16, 16], "patch_size": [8, 8]},
                text_config={**shared, **text, "max_position_embeddings": 256},
                image_token_id=tokens.index("<IMG_CONTEXT>"),
            )
        ).eval()
        if favourite:
            with torch.no_grad():
                # Weights are so small that what comes out is what went in last: the end of the question.
                weight = model.get_input_embeddings().weight
                model.lm_head.weight[tokens.index(favourite)] = 5 * weight[tokens.index("<s>")]
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
