"""A model of transformers from image and text to text, of some thousand weights, that answers what it is told to."""

from __future__ import annotations

import string
from pathlib import Path

import torch

SPECIAL = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>"}
TEMPLATE = (
    "{% for message in messages %}{% for part in message['content'] %}{% if part['type'] == 'image' %}<IMG_CONTEXT> "
    "{% else %}{{ part['text'] }} {% endif %}{% endfor %}{% endfor %}<s>"
)


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
    known = Tokenizer(models.WordLevel({token: place for place, token in enumerate(tokens)}, unk_token="<unk>"))
    known.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=known,
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
