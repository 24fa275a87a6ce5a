from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from torch import nn

from quantus_concepts.metrics import Subject
from quantus_concepts.painted.networks import SmallResNet, with_seed
from quantus_concepts.painted.training import Augmentation
from quantus_concepts.studies._kit.folder import RunFolder
from quantus_concepts.studies._models.networks import network_builder
from quantus_concepts.studies.attribution.model_training import Job, train_models
from two_halves import N_CLASSES, TwoHalves

EPOCHS, BATCH = 2, 8
STEPS = EPOCHS * 5  # of one model: the last batch of an epoch holds four images


def small(n_classes: int, seed: int) -> nn.Module:
    return SmallResNet(n_classes, channels=8, seed=seed)


def dropping(n_classes: int, seed: int) -> nn.Module:
    """A network of the user's own that draws random numbers in training."""
    with with_seed(seed):
        return nn.Sequential(
            nn.Conv2d(3, 8, 4, stride=4),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Flatten(),
            nn.Dropout(0.5),
            nn.Linear(128, n_classes),
        )


def job(name: str, data: TwoHalves, target: str = "object", n_classes: int = N_CLASSES) -> Job:
    return Job(name, data, torch.as_tensor(getattr(data, f"{target}_labels")).long(), n_classes)


def pair() -> list[Job]:
    data = TwoHalves()
    return [job("f_o", data), job("f_s", data, "scene")]


def trained(jobs=None, build=small, folder=None, **settings) -> dict[str, nn.Module]:
    """Train in a folder, or in one that is forgotten."""
    with TemporaryDirectory() as place, RunFolder("test", {}, folder or Path(place, "out")) as run:
        settings = {"epochs": EPOCHS, "batch_size": BATCH} | settings
        return train_models(run, pair() if jobs is None else jobs, build, **settings)


def models_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "cache").glob("f_*.safetensors")}


def same_weights(first: dict[str, nn.Module], second: dict[str, nn.Module]) -> bool:
    assert list(first) == list(second)
    return all(
        torch.equal(tensor, second[name].state_dict()[key])
        for name, network in first.items()
        for key, tensor in network.state_dict().items()
    )


@pytest.fixture
def steps(monkeypatch) -> Counter[str]:
    """Count steps of optimisers; one that reaches "fails at" fails."""
    counter: Counter[str] = Counter()
    step = torch.optim.AdamW.step

    def counted(self, *args, **kwargs):
        if counter["done"] == counter["fails at"] - 1:
            raise KeyboardInterrupt
        counter["done"] += 1
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.AdamW, "step", counted)
    return counter


def test_each_model_learns_its_own_labels():
    train, test = TwoHalves(20), TwoHalves(5, seed=1)
    jobs = [job("f_o", train), job("f_s", train, "scene"), job("f_0", train.with_view("0s"), "scene")]
    models = trained(jobs, network_builder(image_size=16, channels=32), epochs=10, batch_size=20)
    assert list(models) == ["f_o", "f_s", "f_0"]
    assert not any(model.training for model in models.values())

    def accuracy(name: str, labels: torch.Tensor, view: str = "os") -> float:
        return Subject(models[name], test.with_view(view).images, labels).correct().double().mean().item()

    assert accuracy("f_o", test.object_labels) > 0.95
    assert accuracy("f_s", test.scene_labels) > 0.95
    assert accuracy("f_0", test.scene_labels, "0s") > 0.95
    # What is no feature of one's own is chance.
    assert accuracy("f_s", test.object_labels) < 0.6


@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": EPOCHS + 1},
        {"batch_size": BATCH + 1},
        {"learning_rate": 0.01},
        {"seed": 1},
        {"augment": Augmentation()},
        {"build": dropping},
        {"jobs": [job("f_o", TwoHalves(seed=1))]},
        {"jobs": [job("f_o", TwoHalves(view="og"))]},
        {"jobs": [job("f_o", TwoHalves(), "scene")]},
        {"jobs": [job("f_o", TwoHalves(), n_classes=N_CLASSES + 1)]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_settings_are_another_model_beside_the_first(tmp_path, changed):
    jobs = [job("f_o", TwoHalves())]
    trained(jobs, folder=tmp_path)
    before = models_in(tmp_path)
    trained(**{"jobs": jobs, "folder": tmp_path} | changed)
    assert len(models_in(tmp_path)) == 2
    assert before < models_in(tmp_path)


def test_a_diverged_training_is_not_kept(tmp_path):
    def infinite(n_classes: int, seed: int) -> nn.Module:
        network = dropping(n_classes, seed)
        nn.init.constant_(network[-1].weight, torch.inf)
        return network

    with pytest.raises(ValueError, match=r"training of f_o diverged.*Lower `--learning-rate` \(0.0003\)"):
        trained(build=infinite, folder=tmp_path)
    assert not models_in(tmp_path)


@pytest.mark.parametrize(("build", "memory_limit"), [(small, 2**20), (dropping, 0)])
def test_after_an_interruption_finished_models_are_not_trained_again(tmp_path, steps, build, memory_limit):
    settings = {"build": build, "memory_limit": memory_limit, "augment": Augmentation(shift=2), "learning_rate": 0.01}
    uninterrupted = trained(**settings)
    steps.update({"done": -steps["done"], "fails at": STEPS + 3})
    with pytest.raises(KeyboardInterrupt):
        trained(folder=tmp_path, **settings)
    # The second model was in its training, which is done again.
    assert {name.partition("-")[0] for name in models_in(tmp_path)} == {"f_o"}
    steps.clear()
    again = trained(folder=tmp_path, **settings)
    assert same_weights(again, uninterrupted)
    assert steps["done"] == STEPS
    # Elsewhere models of an earlier run are used, and what is new is trained.
    jobs = [*pair(), job("f_0", TwoHalves(view="0s"), "scene")]
    more = trained(jobs, folder=tmp_path / "more", models=tmp_path / "cache", **settings)
    assert steps["done"] == 2 * STEPS
    assert same_weights({name: more[name] for name in again}, again)
    assert {name.partition("-")[0] for name in models_in(tmp_path / "more")} == {"f_0"}


@pytest.mark.parametrize("kind", ["a named pipe", "2000000000 bytes"])
def test_what_is_no_file_of_a_model_is_named_and_not_opened(tmp_path, kind):
    trained(folder=tmp_path)
    for path in (tmp_path / "cache").glob("*.safetensors"):
        path.unlink()
        if kind == "a named pipe":
            os.mkfifo(path)
        else:
            path.touch()
            os.truncate(path, 2 * 10**9)
    with pytest.raises(ValueError, match=f"Model of `--models` .*safetensors cannot be read: it .*{kind}"):
        trained(folder=tmp_path / "more", models=tmp_path / "cache")


def test_the_place_of_the_images_the_threads_and_the_other_jobs_play_no_role():
    all_models = trained()
    assert same_weights(trained(memory_limit=0), all_models)
    assert same_weights({of.name: trained([of])[of.name] for of in pair()}, all_models)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        # Side by side.
        assert same_weights(trained(), all_models)
    finally:
        torch.set_num_threads(before)


def test_large_data_is_read_in_batches():
    data = TwoHalves()
    trained([job("f_o", data)], memory_limit=len(data) * 3 * 16 * 16 - 1)
    assert len(data) not in data.asked
    trained([job("f_o", data)], memory_limit=len(data) * 3 * 16 * 16)
    assert data.asked.count(len(data)) == 1
