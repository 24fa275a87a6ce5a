"""Banks of texts: from models of transformers and others, and in templates."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from captum_concepts import ConceptBank
from tiny_pipelines import WORDS, tokenizer
from untouched import untouched

TEXT = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": len(WORDS),
    "max_position_embeddings": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
VISION = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION |= {"image_size": 8, "patch_size": 4}
PROMPTS = ["bird </s>", "red bird with blue crown </s>"]


@pytest.fixture(scope="module", params=["CLIP", "Siglip"])
def model(request: pytest.FixtureRequest) -> Any:
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, f"{request.param}Config")
    size = {"projection_dim": 12} if request.param == "CLIP" else {}
    network = getattr(transformers, f"{request.param}Model")
    return network(config(text_config=dict(TEXT), vision_config=dict(VISION), **size))


def expected(model: Any, texts: list[str]) -> Tensor:
    """Each text alone, its tokens counted out by hand, filled up to the model's length for SigLIP."""
    rows = []
    for text in texts:
        ids = [WORDS.index(word) for word in text.split()]
        full = 8 - len(ids) if model.config.model_type == "siglip" else 0
        mask = torch.tensor([[1] * len(ids) + [0] * full])
        with torch.no_grad():
            output = model.eval().get_text_features(torch.tensor([ids + [0] * full]), attention_mask=mask)
        rows.append(getattr(output, "pooler_output", output)[0])
    return nn.functional.normalize(torch.stack(rows), dim=1)


def test_models_of_transformers_give_the_embeddings_of_their_texts(model: Any) -> None:
    model.train()
    with untouched(model):
        bank = ConceptBank.from_text(model, tokenizer(), PROMPTS, batch_size=2)
    assert bank.names == PROMPTS
    torch.testing.assert_close(bank.cavs, expected(model, PROMPTS), rtol=0, atol=1e-5)
    assert (bank.cavs[0] - bank.cavs[1]).norm() > 0.1


def test_texts_too_long_are_cut(model: Any) -> None:
    long = " ".join(["bird"] * 20)
    bank = ConceptBank.from_text(model, tokenizer(), [long])
    torch.testing.assert_close(bank.cavs, expected(model, [" ".join(["bird"] * 8)]), rtol=0, atol=1e-5)


class Letters(nn.Module):
    """A text's embedding is how often it has each letter, through a dropout that tells the mode."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.batches: list[int] = []

    def encode_text(self, tokens: Tensor) -> Tensor:
        self.batches.append(len(tokens))
        return self.drop(tokens.float())


def letters(texts: list[str]) -> Tensor:
    return torch.tensor([[text.count(letter) for letter in "ab"] for text in texts])


def test_templates_are_averaged_over_the_sphere_by_hand() -> None:
    # "a": (1, 0) and, in the second template, (3, 4) / 5: mean (0.8, 0.4), of length sqrt(0.8).
    # "bb": (0, 1) and (2, 6) / sqrt(40).
    bank = ConceptBank.from_text(Letters(), letters, ["a", "bb"], templates=["{}", "aa {} bbbb"], batch_size=3)
    other = (torch.tensor([0.0, 1.0]) + torch.tensor([2.0, 6.0]) / 40**0.5) / 2
    by_hand = torch.stack([torch.tensor([0.8, 0.4]) / 0.8**0.5, other / other.norm()])
    torch.testing.assert_close(bank.cavs, by_hand)
    assert bank.names == ["a", "bb"]
    assert bank.settings == {"method": "text", "templates": ["{}", "aa {} bbbb"]}


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="`names` to hold one name for each of 2"):
        ConceptBank.from_text(Letters(), letters, ["a", "b"], names=["a"])
    with pytest.raises(ValueError, match=r"with \{\} where the prompt goes but got 'a photo'"):
        ConceptBank.from_text(Letters(), letters, ["a"], templates=["a photo"])
    with pytest.raises(ValueError, match="`prompts` and `templates` to hold at least one text"):
        ConceptBank.from_text(Letters(), letters, [])
    with pytest.raises(TypeError, match="`prompts` to be a sequence of texts"):
        ConceptBank.from_text(Letters(), letters, "bird")
    with pytest.raises(TypeError, match="`encode_text`, as models of open_clip have"):
        ConceptBank.from_text(nn.Linear(1, 1), letters, ["a"])
