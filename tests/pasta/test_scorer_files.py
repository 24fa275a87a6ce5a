import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from quantus_concepts.pasta.labels import RELEASED_LABELS
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.scorer_files import load_scorer, save_scorer, scorer_from
from reference import ratings as reference


def released(seed=0, n_inputs=1050):
    generator = torch.Generator().manual_seed(seed)
    state = {}
    for i, shape in ((0, (512, n_inputs)), (2, (64, 512)), (4, (1, 64))):
        state[f"net.{i}.weight"] = 0.05 * torch.randn(shape, generator=generator)
        state[f"net.{i}.bias"] = 0.05 * torch.randn(shape[0], generator=generator)
    return state | {"net.4.bias": torch.tensor([0.5])}


def test_released_checkpoint(tmp_path):
    state = released()
    path = tmp_path / "PASTA_Q1.pth"
    torch.save({"state_dict": state, "epoch": 3}, path)
    scorer = load_scorer(path)
    assert (scorer.questions, scorer.dim, scorer.encoder) == (("Q1",), 1024, "siglip")
    assert scorer.labels == list(RELEASED_LABELS)
    embeddings = torch.randn(6, 1024, generator=torch.Generator().manual_seed(1))
    names = ["shopping_and_dining", "cats", "tvmonitor", "Baroque", None, "leisure"]
    layers = [(state[f"net.{i}.weight"].numpy(), state[f"net.{i}.bias"].numpy()) for i in (0, 2, 4)]
    expected = reference.forward(embeddings, [0, 16, 25, 6, -1, 4], 26, layers)
    np.testing.assert_allclose(scorer.score(embeddings, names)[:, 0], expected, atol=1e-4)
    assert 1 < expected.min() < expected.max() < 5


def test_folder_and_mapping_join_the_questions(tmp_path):
    for q in (1, 2, 6):
        torch.save(released(q), tmp_path / f"PASTA_Q{q}.pth")
    torch.save({"anything": 1}, tmp_path / "notes.pth")
    scorer = load_scorer(tmp_path)
    assert scorer.questions == ("Q1", "Q2", "Q6")
    embeddings = torch.randn(3, 1024, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        scorer.score(embeddings)[:, 2], load_scorer(tmp_path / "PASTA_Q6.pth").score(embeddings)[:, 0]
    )
    renamed = load_scorer({"Q3": tmp_path / "PASTA_Q2.pth", "Q1": tmp_path / "PASTA_Q1.pth"})
    assert renamed.questions == ("Q3", "Q1")
    torch.testing.assert_close(renamed.score(embeddings), scorer.score(embeddings)[:, [1, 0]])
    torch.save(released(2), tmp_path / "old_Q2.pth")
    with pytest.raises(ValueError, match=r"Both PASTA_Q2.pth and old_Q2.pth in .* answer Q2"):
        load_scorer(tmp_path)


def test_sizes_of_other_encoders(tmp_path):
    torch.save(released(n_inputs=794), tmp_path / "PASTA_Q1.pth")
    scorer = load_scorer(tmp_path / "PASTA_Q1.pth", encoder="clip")
    assert (scorer.dim, scorer.encoder, len(scorer.labels)) == (768, "clip", 26)
    torch.save(released(n_inputs=1024), tmp_path / "PASTA_Q2.pth")
    assert load_scorer(tmp_path / "PASTA_Q2.pth").labels is None
    torch.save(released(n_inputs=538), tmp_path / "PASTA_Q3.pth")
    scorer = load_scorer(tmp_path / "PASTA_Q3.pth")
    assert (scorer.dim, scorer.encoder, len(scorer.labels)) == (512, None, 26)
    torch.save(released(n_inputs=26), tmp_path / "PASTA_Q4.pth")
    with pytest.raises(ValueError, match=r"26 inputs, not the 26 labels and an embedding"):
        load_scorer(tmp_path / "PASTA_Q4.pth")


def test_round_trip(tmp_path):
    scorer = Scorer(6, ("Q2", "Q5"), ("a", "b"), (5, 3), encoder="small", settings={"size": 32}, seed=2)
    scorer.metadata = {"split": np.array([1, 2]), "qwk": np.float64(0.25), "mse": float("nan")}
    path = tmp_path / "scorer.safetensors"
    save_scorer(scorer, path)
    loaded = load_scorer(path)
    for name in ("dim", "questions", "labels", "hidden", "encoder", "settings"):
        assert getattr(loaded, name) == getattr(scorer, name), name
    np.testing.assert_equal(loaded.metadata, {"split": [1, 2], "qwk": 0.25, "mse": np.nan})
    for name, value in scorer.state_dict().items():
        assert torch.equal(value, loaded.state_dict()[name])
    assert load_scorer({"Q5": path}).questions == ("Q5",)
    assert load_scorer(tmp_path).questions == ("Q2", "Q5")


@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        (
            "PASTA_Q1.pth",
            lambda p: torch.save(released() | {"net.4.bias": torch.zeros(5)}, p),
            "size mismatch for net.4.bias",
        ),
        ("PASTA_Q1.pth", lambda p: torch.save(released() | {"net.4.bias": torch.ones(1) * torch.nan}, p), "hold NaN"),
        (
            "Q1.safetensors",
            lambda p: save_file({"weight": torch.ones(2)}, p),
            "Missing key.*net.0.weight.*Unexpected key.*weight",
        ),
        ("weights.pth", lambda p: torch.save(released(), p), "does not say which question it answers"),
    ],
)
def test_files_that_are_something_else(tmp_path, name, write, message):
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        load_scorer(tmp_path / name)


def test_places(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"a.pth, .*b.pth"):
        load_scorer({"Q1": tmp_path / "a.pth", "Q2": tmp_path / "b.pth"})
    with pytest.raises(FileNotFoundError, match=r"Expected PASTA_Q1\.pth"):
        load_scorer(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no scorer at"):
        load_scorer(tmp_path / "no.pth")
    with pytest.raises(ValueError, match="`path` to end in"):
        save_scorer(Scorer(4), tmp_path / "a.pth")
    with pytest.raises(TypeError, match="`scorer` to be a Scorer, or the file of one"):
        scorer_from(3)
    with pytest.raises(ValueError, match="`metadata` of the scorer to hold what JSON can"):
        save_scorer(Scorer(4, metadata={"x": object()}), tmp_path / "a.safetensors")
    assert not list(tmp_path.iterdir())
