"""How fast and how large the PASTA-score and what belongs to it are, as ratios within one run.

    python speed/pasta.py                       # all sections, a table; about three quarters of an hour
    python speed/pasta.py scoring               # one section: scoring, cache, training, faithfulness or road
    python speed/pasta.py scoring --encoder=ViT-L-16-SigLIP-384    # another encoder of open_clip for scoring
    python speed/pasta.py --tiny                # sizes that show only whether it runs

Calls are taken in turn, forwards and backwards; ratios are formed repeat by repeat, and of them the median is judged.
Two threads. Each section runs in a process of its own. Encoders have random weights, which are as fast as any.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import numpy as np
import torch
import torchvision
from measuring import DEVICE, SEED, Row, Spread, alternate, peak_mib, ratios, row, spread
from torch import Tensor, nn

from quantus_concepts import Faithfulness, PASTAScore
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, MapExplanation
from quantus_concepts.functional.attribution.faithfulness import percentages
from quantus_concepts.metrics.faithfulness import THRESHOLDS
from quantus_concepts.painted.networks import SmallResNet
from quantus_concepts.pasta.embedder import Embedder
from quantus_concepts.pasta.encoders.open_clip_encoder import OpenClipEncoder
from quantus_concepts.pasta.labels import RELEASED_LABELS
from quantus_concepts.pasta.scorer import Scorer
from quantus_concepts.pasta.training import TrainingSettings, train_scorer

N_CLASSES = 10
# Not what an encoder wants, so that resizing is part of what is timed.
IMAGE_SIZE = 256
# In MiB.
GIGABYTE = 1e9 / 2**20

TINY_ENCODER = {
    "embed_dim": 64,
    "vision_cfg": {"image_size": 64, "layers": 2, "width": 64, "patch_size": 16, "head_width": 32},
    "text_cfg": {"context_length": 16, "vocab_size": 64, "width": 32, "heads": 2, "layers": 1},
}


@dataclass(frozen=True)
class Case:
    """A network, and on how many images of which size `Faithfulness` is timed with it."""

    name: str
    n_images: int
    image_size: int
    repeats: int
    thresholds: tuple[int, ...] = THRESHOLDS


@dataclass(frozen=True)
class Sizes:
    """How large everything is; an encoder is a name of open_clip, or None for a tiny one."""

    encoder: str | None = "ViT-B-16"
    n_maps: int = 256
    scoring_repeats: int = 2
    large_encoder: str | None = "ViT-L-16-SigLIP-384"
    n_cached: int = 16
    n_first: int = 2
    n_second: int = 5
    n_items: int = 10_000
    n_validation: int = 1_500
    dim: int = 1024
    # So many that what is done once, before and after, counts little, as with the paper's 600; six questions take
    # six times as long.
    epochs: tuple[int, int] = (48, 8)
    training_repeats: int = 3
    faithfulness: tuple[Case, ...] = (Case("ResNet-18", 2, 224, 2), Case("SmallResNet", 64, 64, 7))
    road: tuple[Case, ...] = (Case("ResNet-18", 4, 224, 7, (10,)), Case("SmallResNet", 8, 64, 3))


TINY = Sizes(
    encoder=None,
    n_maps=20,
    scoring_repeats=1,
    large_encoder=None,
    n_cached=4,
    n_first=1,
    n_second=1,
    n_items=600,
    n_validation=100,
    dim=32,
    epochs=(2, 1),
    training_repeats=1,
    faithfulness=(Case("ResNet-18", 2, 64, 1, (10,)), Case("SmallResNet", 4, 32, 1)),
    road=(Case("SmallResNet", 1, 32, 1, (10,)),),
)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(SEED)


def encoder_of(name: str | None) -> OpenClipEncoder:
    if name is None:
        return OpenClipEncoder("tiny", None, seed=SEED, model_config=TINY_ENCODER)
    return OpenClipEncoder(name, None, seed=SEED)


def scorer_for(encoder: OpenClipEncoder) -> Scorer:
    return Scorer(encoder.dim, tuple(QUESTIONS), RELEASED_LABELS, seed=SEED).to(DEVICE)


class Explained(NamedTuple):
    """Images (n, 3, H, W) and maps (n, 1, H, W) of float32, and the labels (n,) they are of."""

    images: np.ndarray
    maps: np.ndarray
    labels: np.ndarray


def explained(n: int, size: int, n_labels: int = len(RELEASED_LABELS)) -> Explained:
    random = generator()
    images, maps = (torch.rand(n, channels, size, size, generator=random) for channels in (3, 1))
    return Explained(images.numpy(), maps.numpy(), torch.randint(n_labels, (n,), generator=random).numpy())


def record_inputs(module: nn.Module, call: Callable[[], object]) -> list[Tensor]:
    """Return what a module is given in the course of a call."""
    inputs_seen: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, inputs: inputs_seen.append(inputs[0].clone()))
    try:
        call()
    finally:
        hook.remove()
    return inputs_seen


class Stopwatch:
    """Adds up the seconds a module takes, call by call of something that uses it."""

    def __init__(self, module: nn.Module, call: Callable[[], object]) -> None:
        self.module, self.call = module, call
        self.shares: list[float] = []
        self._inside = self._start = 0.0

    def __call__(self) -> None:
        """Do the call, and note how many times the module's own time it takes."""

        def enter(*_: Any) -> None:
            measuring.wait()
            self._start = time.perf_counter()

        def leave(*_: Any) -> None:
            measuring.wait()
            self._inside += time.perf_counter() - self._start

        hooks = [self.module.register_forward_pre_hook(enter), self.module.register_forward_hook(leave)]
        self._inside, start = 0.0, time.perf_counter()
        try:
            self.call()
        finally:
            for hook in hooks:
                hook.remove()
        self.shares.append((time.perf_counter() - start) / self._inside)

    @property
    def share(self) -> Spread:
        """Time of a call over that of the module in the same call; the first call is not counted."""
        return spread(self.shares[1:])


@torch.no_grad()
def replay(function: Callable[[Tensor], object], batches: Sequence[Tensor]) -> None:
    for batch in batches:
        function(batch)


def measure_scoring(sizes: Sizes) -> list[Row]:
    """Scores of all questions, against the encoder's forward pass on images already prepared."""
    encoder = encoder_of(sizes.encoder)
    scorer = scorer_for(encoder)
    embedder = Embedder(encoder)
    data = explained(sizes.n_maps, IMAGE_SIZE)
    explanations = [
        MapExplanation(torch.as_tensor(image), torch.as_tensor(heat[0]))
        for image, heat in zip(data.images, data.maps, strict=True)
    ]
    labels = torch.as_tensor(data.labels)
    metric = PASTAScore(scorer, embedder, labels=data.labels)

    def with_metric() -> None:
        metric(None, data.images, np.zeros_like(data.labels), a_batch=data.maps)
        if len(metric.question_scores) != len(QUESTIONS) or metric.undefined:
            raise RuntimeError("Not every question has its scores: this is not what is to be timed.")

    def with_embedder() -> None:
        scorer.score(embedder.embed(explanations), labels)

    # The same object that the encoder uses, built by the first picture.
    encoder.encode_images(torch.zeros(1, 3, IMAGE_SIZE, IMAGE_SIZE, device=DEVICE))
    model = encoder._model(DEVICE).model
    batches = record_inputs(model.visual, with_metric)
    ours = {"metric": Stopwatch(model.visual, with_metric), "embedder": Stopwatch(model.visual, with_embedder)}
    times = alternate({"bare": partial(replay, model.encode_image, batches), **ours}, sizes.scoring_repeats)
    rows = []
    for name, what in (("metric", "`PASTAScore`"), ("embedder", "`Embedder.embed` and `Scorer.score`")):
        ratio = ratios(times[name], times["bare"])
        rows.append(
            row(
                f"{what}, {sizes.n_maps} maps on images of {IMAGE_SIZE} px, all six questions, {encoder.name}, against "
                f"the encoder on images already prepared, in the same {len(batches)} batches; "
                f"{ours[name].share:.3f} x of the encoder's time in the same calls",
                f"{spread(times[name]).median:.2f} s",
                f"{spread(times['bare']).median:.2f} s",
                f"{ratio:.3f} x",
                "at most 1.05 x",
                ratio.median <= 1.05,
            )
        )
    return rows


def score_cached(folder: str, encoder_name: str | None, n: int) -> dict[str, Any]:
    """Score explanations with a cache, as a user's script does, and tell what it took."""
    data = explained(n, IMAGE_SIZE)
    start = time.perf_counter()
    encoder = encoder_of(encoder_name)
    metric = PASTAScore(scorer_for(encoder), encoder, labels=data.labels, cache=folder)
    metric(None, data.images, np.zeros_like(data.labels), a_batch=data.maps)
    seconds = time.perf_counter() - start
    scores = np.stack([metric.question_scores[name] for name in QUESTIONS])
    if not np.isfinite(scores).all():
        raise RuntimeError("Not every explanation has a score: this is not what is to be timed.")
    return {
        "seconds": seconds,
        "scores": hashlib.sha256(scores.tobytes()).hexdigest(),
        # An encoder that was not told where to compute knows once it is built.
        "built": encoder.device is not None or "open_clip" in sys.modules,
        "peak": peak_mib(),
    }


def run_cached(folder: str, encoder_name: str | None, n: int, first: bool) -> dict[str, Any]:
    """Be one of a user's runs: the first, which fills the cache, or a later one."""
    torch.set_num_threads(measuring.THREADS)
    imports = 0.0
    if first:
        # What the first run imports beyond the others, to tell it from its work.
        start = time.perf_counter()
        import quantus_concepts.pasta.encoders.open_clip_models  # noqa: F401

        imports = time.perf_counter() - start
    first_run = score_cached(folder, encoder_name, n)
    again = [score_cached(folder, encoder_name, n) for _ in range(3)]
    return {
        **first_run,
        "imports": imports,
        "again": spread([run["seconds"] for run in again]).median,
        "same": all(run["scores"] == first_run["scores"] for run in again),
    }


def in_new_process(function: str, *arguments: Any) -> Any:
    """Call a function of this module in a process of its own; its result also says how long imports took."""
    code = (
        "import json, sys, time; start = time.perf_counter(); sys.path.insert(0, sys.argv[1]); import pasta;"
        "imports = time.perf_counter() - start;"
        "print(json.dumps([imports, getattr(pasta, sys.argv[2])(*json.loads(sys.argv[3]))]))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), function, json.dumps(arguments)]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(output.splitlines()[-1])


def measure_cache(sizes: Sizes) -> list[Row]:
    """A second run over the same explanations against the first, each in a process of its own."""
    first, second = [], []
    with tempfile.TemporaryDirectory() as folder:
        arguments = sizes.large_encoder, sizes.n_cached
        for number in range(sizes.n_first):
            first.append(in_new_process("run_cached", f"{folder}/{number}", *arguments, True))
        for number in range(sizes.n_second):
            second.append(in_new_process("run_cached", f"{folder}/{number % sizes.n_first}", *arguments, False))

    def median(runs: list[Any], key: str) -> float:
        return spread([run[key] for _, run in runs]).median

    def imports(runs: list[Any]) -> float:
        return spread([seconds + run["imports"] for seconds, run in runs]).median

    same = len({run["scores"] for _, run in first + second}) == 1
    same &= all(run["same"] for _, run in first + second)
    built = any(run["built"] for _, run in second)
    ratio = median(first, "seconds") / median(second, "seconds")
    return [
        row(
            f"Scoring {sizes.n_cached} maps a second time, cache warm, against the first time, each in a new process; "
            f"{encoder_of(sizes.large_encoder).name}. Beside it imports: {imports(second):.1f} s, in the first run "
            f"{imports(first):.1f} s. The same bits: {'yes' if same else 'no'}; encoder built in the second run: "
            f"{'yes' if built else 'no'}",
            f"{median(second, 'seconds') * 1e3:.0f} ms",
            f"{median(first, 'seconds'):.1f} s",
            f"{ratio:.0f} x faster",
            "at least 50 x, the same bits, no encoder built",
            ratio >= 50 and same and not built,
        ),
        row(
            "The same once more in the process of the first run, with a new encoder object",
            f"{median(first, 'again') * 1e3:.0f} ms",
            f"{median(first, 'seconds'):.1f} s",
            f"{median(first, 'seconds') / median(first, 'again'):.0f} x faster",
            "",
            None,
        ),
        row(
            "Peak memory of the second run against the first",
            f"{median(second, 'peak'):.0f} MiB",
            f"{median(first, 'peak'):.0f} MiB",
            "",
            "",
            None,
        ),
    ]


class Ratings(NamedTuple):
    """Embeddings (n, d), votes (n, Q), labels (n,), and which items are to learn from and to judge by."""

    embeddings: Tensor
    votes: Tensor
    labels: Tensor
    train: Tensor
    validation: Tensor


def ratings(n_items: int, n_validation: int, dim: int, n_questions: int, missing: float = 0.0) -> Ratings:
    """Draw embeddings, and votes that have something to do with them."""
    random = generator()
    embeddings = torch.randn(n_items, dim, generator=random)
    noise = torch.randn(n_items, n_questions, generator=random)
    signal = embeddings @ torch.randn(dim, n_questions, generator=random) / dim**0.5
    votes = (3 + signal + noise).round().clamp(1, 5)
    if missing:
        votes[torch.rand(votes.shape, generator=random) < missing] = torch.nan
    labels = torch.randint(len(RELEASED_LABELS), (n_items,), generator=random)
    order = torch.randperm(n_items, generator=random)
    return Ratings(embeddings, votes, labels, order[n_validation:], order[:n_validation])


def train(rated: Ratings, epochs: int) -> None:
    train_scorer(
        rated.embeddings.to(DEVICE),
        rated.votes,
        rated.labels,
        train=rated.train,
        validation=rated.validation,
        questions=tuple(QUESTIONS)[: rated.votes.shape[1]],
        label_names=RELEASED_LABELS,
        settings=TrainingSettings(epochs=epochs),
    )


class Products:
    """The matrix products of a training, forwards and backwards, and nothing else."""

    def __init__(self, rated: Ratings, hidden: tuple[int, int] = (512, 64)) -> None:
        labels = torch.zeros(len(rated.embeddings), len(RELEASED_LABELS))
        self.inputs = torch.cat([labels, rated.embeddings], 1).to(DEVICE)
        self.n_train, self.batch_size = len(rated.train), TrainingSettings().batch_size
        self.n_questions, self.hidden = rated.votes.shape[1], hidden
        random, first = generator(), self.inputs.shape[1]
        sizes = (
            (self.n_questions * hidden[0], first),
            (self.n_questions, *hidden[::-1]),
            (self.n_questions, 1, hidden[1]),
        )
        self.weights = [torch.randn(size, generator=random).to(DEVICE) / size[-1] ** 0.5 for size in sizes]
        #: Seconds, in each call, for the products of the training items alone.
        self.of_steps: list[float] = []

    def forwards(self, rows: Tensor) -> list[Tensor]:
        """Return what each layer puts out, (n, Q * 512), (Q, n, 64) and (Q, n, 1)."""
        first = rows @ self.weights[0].T
        second = self._by_question(first) @ self.weights[1].transpose(1, 2)
        return [first, second, second @ self.weights[2].transpose(1, 2)]

    def _by_question(self, first: Tensor) -> Tensor:
        return first.view(len(first), self.n_questions, self.hidden[0]).transpose(0, 1)

    def backwards(self, rows: Tensor, outputs: list[Tensor]) -> None:
        """Multiply for the gradient of each weight, and of what each layer but the first is given."""
        first, second, third = outputs
        _ = third.transpose(1, 2) @ second
        second = third @ self.weights[2]
        _ = second.transpose(1, 2) @ self._by_question(first)
        back = (second @ self.weights[1]).transpose(0, 1).reshape(len(rows), -1)
        _ = back.T @ rows

    @torch.no_grad()
    def __call__(self, epochs: int) -> None:
        """Multiply as often as a training of so many epochs does."""
        seconds = 0.0
        for _ in range(epochs):
            start = time.perf_counter()
            for rows in self.inputs[: self.n_train].split(self.batch_size):
                self.backwards(rows, self.forwards(rows))
            measuring.wait()
            seconds += time.perf_counter() - start
            self.forwards(self.inputs[self.n_train :])
        self.of_steps.append(seconds)


def training_peak(n_items: int, n_validation: int, dim: int, n_questions: int) -> list[float]:
    """Train for two epochs and return the peak memory of this process before and after, in MiB."""
    torch.set_num_threads(measuring.THREADS)
    before = peak_mib()
    train(ratings(n_items, n_validation, dim, n_questions), 2)
    return [before, peak_mib()]


def torch_alone() -> float:
    """Return the peak memory, in MiB, of a process that imports torch and nothing else."""
    code = "import sys, torch; sys.path.insert(0, sys.argv[1]); import measuring; print(measuring.peak_mib())"
    command = [sys.executable, "-c", code, str(Path(__file__).parent)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def training_speed(sizes: Sizes, n_questions: int, missing: float) -> Row:
    epochs = sizes.epochs[n_questions > 1]
    rated = ratings(sizes.n_items, sizes.n_validation, sizes.dim, n_questions, missing)
    products = Products(rated)
    times = alternate(
        {"ours": partial(train, rated, epochs), "products": partial(products, epochs)}, sizes.training_repeats
    )
    ratio = ratios(times["ours"], times["products"])
    # The first is of the round that is not timed.
    of_steps = ratios(times["ours"], products.of_steps[1:])
    what = "one question" if n_questions == 1 else f"{n_questions} questions at once"
    if missing:
        what += f", {missing:.0%} of the votes missing"
    return row(
        f"Training, {what}: {sizes.n_items:,} embeddings of "
        f"{sizes.dim} and {len(RELEASED_LABELS)} labels, {sizes.n_validation:,} of them for validation, {epochs} "
        "epochs, against the same matrix products forwards and backwards; "
        f"{of_steps:.2f} x of those of the training items alone",
        f"{spread(times['ours']).median / epochs * 1e3:.0f} ms an epoch",
        f"{spread(times['products']).median / epochs * 1e3:.0f} ms an epoch",
        f"{ratio:.2f} x",
        "at most 1.3 x",
        ratio.median <= 1.3,
    )


def measure_training(sizes: Sizes) -> list[Row]:
    """Training of a scorer against a bare loop of the same matrix products, and its memory."""
    n_all = len(QUESTIONS)
    rows = [training_speed(sizes, *case) for case in ((1, 0.0), (n_all, 0.0), (n_all, 0.1))]
    alone = torch_alone()
    for n_questions in (1, n_all):
        arguments = sizes.n_items, sizes.n_validation, sizes.dim, n_questions
        _, (before, peak) = in_new_process("training_peak", *arguments)
        rows.append(
            row(
                f"Peak memory of the same training, {n_questions} question{'s' * (n_questions > 1)}, embeddings "
                f"included; before it, all of this benchmark imported, {before:.0f} MiB; a process that imports torch "
                f"alone {alone:.0f} MiB",
                f"{peak:.0f} MiB",
                "",
                "",
                "under 1.5 GB",
                peak < 1.5 * GIGABYTE,
            )
        )
    return rows


def network(name: str) -> nn.Module:
    torch.manual_seed(SEED)
    if name == "ResNet-18":
        resnet: nn.Module = torchvision.models.resnet18(weights=None, num_classes=N_CLASSES)
        return resnet.eval().to(DEVICE)
    return SmallResNet(N_CLASSES, seed=SEED).eval().to(DEVICE)


def faithfulness_of(case: Case, perturbation: str, target: float | None) -> Row:
    """Compare `Faithfulness` with the model calls it makes."""
    model = network(case.name)
    data = explained(case.n_images, case.image_size, N_CLASSES)
    metric = Faithfulness(perturbation, case.thresholds)

    def score() -> None:
        metric(model, data.images, data.labels, a_batch=data.maps, batch_size=case.n_images)
        if metric.undefined:
            raise RuntimeError("Not every image has a score: this is not what is to be timed.")

    batches = record_inputs(model, score)
    needed = case.n_images * (1 + 2 * len(percentages(case.thresholds)))
    n_predicted = sum(map(len, batches))
    ours = Stopwatch(model, score)
    times = alternate({"ours": ours, "calls": partial(replay, model, batches)}, case.repeats)
    ratio = ratios(times["ours"], times["calls"])
    return row(
        f"`Faithfulness`, {perturbation}, {case.n_images} image{'s' * (case.n_images > 1)} of {case.image_size} px, "
        f"{case.name}, thresholds {min(case.thresholds)} to {max(case.thresholds)} %, against the model calls it needs "
        f"in the same {len(batches)} batches; images the model sees: {n_predicted:,} ({needed:,} needed); "
        f"{ours.share:.3f} x of the model's time in the same calls",
        f"{spread(times['ours']).median:.2f} s",
        f"{spread(times['calls']).median:.2f} s",
        f"{ratio:.3f} x",
        "" if target is None else f"at most {target:g} x",
        None if target is None else ratio.median <= target and n_predicted <= needed,
    )


def measure_faithfulness(sizes: Sizes) -> list[Row]:
    """Faithfulness against the model calls it needs."""
    return [
        faithfulness_of(case, perturbation, 1.1)
        for case in sizes.faithfulness
        for perturbation in ("black", "uniform", "gaussian")
    ]


def measure_road(sizes: Sizes) -> list[Row]:
    """Faithfulness with ROAD's imputation against the model calls it needs."""
    return [faithfulness_of(case, "road", 1.2) for case in sizes.road]


MEASURES: dict[str, Callable[[Sizes], list[Row]]] = {
    "scoring": measure_scoring,
    "cache": measure_cache,
    "training": measure_training,
    "faithfulness": measure_faithfulness,
    "road": measure_road,
}


def main(arguments: list[str]) -> int:
    flags = [argument for argument in arguments if argument.startswith("--encoder=")]
    sizes, tiny = Sizes(), TINY
    for flag in flags:
        sizes, tiny = (replace(size, encoder=flag.partition("=")[2]) for size in (sizes, tiny))
    return measuring.main_of_sizes(__file__, MEASURES, (sizes, tiny), arguments, flags)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
