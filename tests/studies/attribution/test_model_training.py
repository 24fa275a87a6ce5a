from __future__ import annotations

import io
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from captum_concepts._support.disk_cache import DiskCache, bytes_tensor
from quantus_concepts.metrics import Subject
from quantus_concepts.studies._models.networks import network_builder
from quantus_concepts.studies._models.training import Augmentation, SmallResNet, with_seed
from quantus_concepts.studies.attribution.model_training import Job, train_models
from two_halves import N_CLASSES, TwoHalves

N = 36
EPOCHS, BATCH = 3, 8
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


def pair() -> list[Job]:
    data = TwoHalves()
    return [Job("f_o", data, "object", N_CLASSES), Job("f_s", data, "scene", N_CLASSES)]


def trained(jobs=None, build=small, **settings) -> dict[str, nn.Module]:
    return train_models(pair() if jobs is None else jobs, build, **{"epochs": EPOCHS, "batch_size": BATCH} | settings)


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


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_each_model_learns_its_own_labels():
    train, test = TwoHalves(20), TwoHalves(5, seed=1)
    jobs = [
        Job("f_o", train, "object", N_CLASSES),
        Job("f_s", train, "scene", N_CLASSES),
        Job("f_0", train.with_view("0s"), "scene", N_CLASSES),
    ]
    models = train_models(jobs, network_builder(image_size=16, channels=32), epochs=10, batch_size=20)
    assert list(models) == ["f_o", "f_s", "f_0"]
    assert not any(model.training for model in models.values())

    def accuracy(name: str, labels: torch.Tensor, view: str = "os") -> float:
        return Subject(models[name], test.with_view(view).images, labels).correct().double().mean().item()

    assert accuracy("f_o", test.object_labels) > 0.95
    assert accuracy("f_s", test.scene_labels) > 0.95
    assert accuracy("f_0", test.scene_labels, "0s") > 0.95
    # What is no feature of one's own is chance.
    assert accuracy("f_s", test.object_labels) < 0.6


@pytest.mark.parametrize(("build", "memory_limit"), [(small, 0), (dropping, 2**20)])
@pytest.mark.parametrize(
    ("fails_at", "seconds"), [(8, 60.0), (8, 0.0), (STEPS + 4, 60.0)], ids=["epoch", "step", "second model"]
)
def test_an_interrupted_training_goes_on_to_the_same_weights(tmp_path, steps, build, memory_limit, fails_at, seconds):
    settings = {"build": build, "memory_limit": memory_limit, "augment": Augmentation(shift=2), "learning_rate": 0.01}
    uninterrupted = trained(**settings)
    steps.update({"done": -steps["done"], "fails at": fails_at})
    with pytest.raises(KeyboardInterrupt):
        trained(folder=tmp_path, checkpoint_seconds=seconds, **settings)
    steps.update({"done": -steps["done"], "fails at": -steps["fails at"]})
    assert same_weights(trained(folder=tmp_path, checkpoint_seconds=seconds, **settings), uninterrupted)
    # Of the first model 7 steps were done: two more than the epoch, or written every time; of the second 3 of 5.
    done_before = {(8, 60.0): 5, (8, 0.0): 7, (STEPS + 4, 60.0): STEPS}[fails_at, seconds]
    assert steps["done"] == 2 * STEPS - done_before
    assert len(files(tmp_path)) == 2


def test_nothing_is_trained_twice(tmp_path, steps):
    first = trained(folder=tmp_path)
    assert steps["done"] == 2 * STEPS
    second = trained(folder=tmp_path)
    assert steps["done"] == 2 * STEPS
    assert same_weights(first, second)
    images = TwoHalves(seed=3).images().float() / 255
    for name, model in first.items():
        assert not second[name].training
        # The same memory format, so the same bits.
        assert torch.equal(second[name](images), model(images))
    # One more model: only that is trained.
    trained([*pair(), Job("f_0", TwoHalves(view="0s"), "scene", N_CLASSES)], folder=tmp_path)
    assert steps["done"] == 3 * STEPS


@pytest.mark.parametrize(
    "changed",
    [
        {"epochs": EPOCHS + 1},
        {"batch_size": BATCH + 1},
        {"learning_rate": 0.01},
        {"seed": 1},
        {"augment": Augmentation()},
        {"build": dropping},
        {"jobs": [Job("f_o", TwoHalves(seed=1), "object", N_CLASSES)]},
        {"jobs": [Job("f_o", TwoHalves(view="og"), "object", N_CLASSES)]},
        {"jobs": [Job("f_o", TwoHalves(), "scene", N_CLASSES)]},
        {"jobs": [Job("f_o", TwoHalves(), "object", N_CLASSES + 1)]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_other_settings_are_another_model_beside_the_first(tmp_path, steps, changed):
    jobs = [Job("f_o", TwoHalves(), "object", N_CLASSES)]
    trained(jobs, folder=tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    steps.clear()
    trained(**{"jobs": jobs, "folder": tmp_path} | changed)
    assert steps["done"] > 0
    assert len(files(tmp_path)) == 2
    assert all((tmp_path / name).read_bytes() == content for name, content in before.items())


def test_the_place_of_the_images_and_the_other_jobs_play_no_role(tmp_path, steps):
    all_models = trained()
    assert same_weights(trained(memory_limit=0), all_models)
    alone = {job.name: trained([job])[job.name] for job in pair()}
    assert same_weights(alone, all_models)
    trained(folder=tmp_path)
    steps.clear()
    trained(folder=tmp_path, memory_limit=0)
    assert steps["done"] == 0


def test_models_side_by_side_are_those_trained_one_after_another():
    one_after_another = trained()
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert same_weights(trained(), one_after_another)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_images_that_jobs_share_are_read_once_and_large_data_in_batches():
    data = TwoHalves(40)
    jobs = [Job("f_o", data, "object", N_CLASSES), Job("f_s", data, "scene", N_CLASSES)]
    trained(jobs, epochs=1)
    # Besides single images, which tell the shape.
    assert sum(n for n in data.asked if n > 1) == len(data)
    data.asked.clear()
    trained(jobs, epochs=1, memory_limit=len(data) * 3 * 16 * 16 - 1)
    assert max(data.asked) == BATCH
    assert sum(n for n in data.asked if n > 1) == 2 * len(data)


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    else:
        content[-100] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["cut", "one bit"])
def test_a_damaged_model_is_trained_again(tmp_path, steps, how):
    jobs = [Job("f_o", TwoHalves(), "object", N_CLASSES)]
    first = trained(jobs, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    damage(path, how)
    with pytest.warns(UserWarning, match=r"f_o-.* cannot be used \(.+\): what it held is computed again\.$"):
        second = trained(jobs, folder=tmp_path)
    assert same_weights(first, second)
    steps.clear()
    assert same_weights(trained(jobs, folder=tmp_path), first)
    assert steps["done"] == 0


@pytest.mark.parametrize("how", ["cut", "empty"])
def test_after_a_damaged_checkpoint_training_starts_anew(tmp_path, steps, how):
    jobs = [Job("f_o", TwoHalves(), "object", N_CLASSES)]
    uninterrupted = trained(jobs)
    steps.clear()
    steps["fails at"] = 8
    with pytest.raises(KeyboardInterrupt):
        trained(jobs, folder=tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.suffixes[-2:] == [".checkpoint", ".safetensors"]
    damage(path, how)
    steps.clear()
    with pytest.warns(UserWarning, match=r"checkpoint.safetensors cannot be used \(.+\): what it held"):
        again = trained(jobs, folder=tmp_path)
    assert same_weights(again, uninterrupted)
    assert steps["done"] == STEPS


def test_a_checkpoint_is_never_unpickled(tmp_path, steps):
    jobs = [Job("f_o", TwoHalves(), "object", N_CLASSES)]
    steps["fails at"] = 8
    with pytest.raises(KeyboardInterrupt):
        trained(jobs, folder=tmp_path)
    path = next(tmp_path.iterdir())
    marker = tmp_path / "executed"

    class Evil:
        def __reduce__(self):
            return Path.touch, (marker,)

    file = io.BytesIO()
    torch.save({"step": Evil()}, file)
    DiskCache(tmp_path).put(path.stem, {"state": bytes_tensor(file.getvalue())})
    steps.clear()
    with pytest.warns(UserWarning, match="trained from the start"):
        trained(jobs, folder=tmp_path)
    assert not marker.exists()


def test_no_global_generator_is_touched_and_no_gradient_left(tmp_path):
    state, numpy_state = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    for build, memory_limit in ((small, 2**20), (dropping, 0)):
        models = trained(build=build, memory_limit=memory_limit, augment=Augmentation())
        assert all(parameter.grad is None for model in models.values() for parameter in model.parameters())
    assert torch.equal(torch.random.get_rng_state(), state)
    assert (np.random.get_state()[1] == numpy_state).all()  # noqa: NPY002


def test_a_failure_leaves_the_global_generator_as_it_was(steps):
    state = torch.random.get_rng_state()
    steps["fails at"] = 3
    with pytest.raises(KeyboardInterrupt):
        trained(build=dropping)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_a_diverged_training_is_not_kept(tmp_path):
    def infinite(n_classes: int, seed: int) -> nn.Module:
        network = dropping(n_classes, seed)
        nn.init.constant_(network[-1].weight, torch.inf)
        return network

    with pytest.raises(ValueError, match=r"training of f_o diverged.*Lower `learning_rate` \(0.0003\)"):
        trained(build=infinite, folder=tmp_path)
    assert all(name.endswith(".checkpoint.safetensors") for name in files(tmp_path))


def test_a_file_in_place_of_the_folder_is_refused(tmp_path, steps):
    path = tmp_path / "models"
    path.write_text("")
    with pytest.raises(ValueError, match=r"`folder` to be a folder but .*models is a file"):
        trained(folder=path)
    assert steps["done"] == 0
