"""The explorer in a browser: its numbers are PyTorch's, it asks for nothing, and hostile names do nothing."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from captum_concepts import BottleneckCBM, ConceptBank, PostHocCBM, ResidualCBM, show_concepts
from captum_concepts.pictures.views import concept_views
from chromium import Visit, visit_all
from quantus_concepts import CEM, explore
from quantus_concepts.explorer.explore import clear_image, map_uri
from quantus_concepts.explorer.policy import content_policy
from tiny_models import TinyConceptModel, seeded

DRAWN = torch.Generator().manual_seed(1)
N, L, K = 12, 5, 4
IMAGES = torch.rand(N, 3, 24, 18, generator=DRAWN)
LABELS = torch.arange(N) % K
PRESENT = torch.randint(0, 2, (N, L), generator=DRAWN)
HOSTILE = [
    "</script><script>window.bad=1</script>",
    "<img src=x onerror=window.bad=1>",
    "a'\"&amp;b",
    "{{ 7 * 7 }}",
    "ünïcode",
]
CLASSES = ["<b>wren</b>", "</title>", "javascript:window.bad=1", "finch"]


def network() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Conv2d(3, 6, 4, stride=4), nn.ReLU()).eval())


def linear(*sizes: int) -> nn.Linear:
    return seeded(nn.Linear(*sizes).eval(), sum(sizes))


BANK = ConceptBank.random(L, 6, HOSTILE, seed=2, mean=torch.full((6,), 0.2))
CBM = PostHocCBM.fit(network(), [(IMAGES, LABELS)], bank=BANK, random_banks=5, class_names=CLASSES)
MODELS: dict[str, Any] = {
    "pcbm": CBM,
    "residual": ResidualCBM(CBM, linear(6, K)),
    "bottleneck": BottleneckCBM(network(), linear(6, L), linear(L, K)),
    "any": TinyConceptModel(),
}
#: What is on the page, and whether anything was loaded or refused.
BEFORE = """
  window.refused = [];
  document.addEventListener("securitypolicyviolation", (event) => window.refused.push(event.blockedURI));
"""
READ = """
    const frames = () => new Promise((done) => setTimeout(done, 60));
    const classes = () => Object.fromEntries([...document.querySelectorAll("#classes li")].map((row) =>
      [row.dataset.class, row.querySelector(".number").textContent]));
    const requests = () => performance.getEntriesByType("resource").map((each) => each.name)
      .filter((each) => !each.startsWith("data:"));
    const row = (j) => document.querySelector(`#concepts tr[data-concept="${j}"]`);
    const slide = (j, value) => {
      const slider = row(j).querySelector("input[type=range]");
      slider.value = value;
      slider.dispatchEvent(new Event("input", { bubbles: true }));
    };
"""
CORRECT = (
    READ
    + """
    const seen = [];
    for (const hash of HASHES) {
      location.hash = hash;
      await frames();
      seen.push({ classes: classes(), logits: window.currentLogits() });
    }
    tell({ seen, requests: requests(), refused: window.refused, bad: window.bad ?? 0 });
"""
)


def page_data(html: str) -> dict[str, Any]:
    match = re.search(r'<script type="application/json" id="data">(.*?)</script>', html, re.DOTALL)
    assert match
    return json.loads(match[1])


def numbers(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return {
        name: explore(model, IMAGES, labels=LABELS, concept_labels=PRESENT, class_names=CLASSES).html
        for name, model in MODELS.items()
    }


def test_a_bottleneck_model_has_its_names() -> None:
    names = ["has_wing_color::red", *(f"concept {j}" for j in range(1, L))]
    named = BottleneckCBM(network(), linear(6, L), linear(L, K), names, [f"bird {k}" for k in range(K)])
    data = page_data(explore(named, IMAGES).html)
    assert data["concepts"][0] == "wing color: red"
    assert data["classes"] == [f"bird {k}" for k in range(K)]


CORRECTIONS = {0: {}, 3: {1: 1.5}, 7: {0: -0.75, 2: 0.25, 4: 2.0}}


def corrected(model: Any, image: int, fixed: dict[int, float]) -> Tensor:
    """What PyTorch gives."""
    images = IMAGES[image : image + 1]
    with torch.no_grad():
        values = model.concept_predictor(images)
        before = model.head(values)
        values[0, list(fixed)] = torch.tensor([*fixed.values()])
        # What a residual adds stays.
        return (model(images) - before + model.head(values))[0]


@pytest.fixture(scope="module")
def visited(pages: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    hashes = [
        f"image={i}&set={','.join(f'{j}:{value}' for j, value in fixed.items())}" for i, fixed in CORRECTIONS.items()
    ]
    visits = {}
    for name, page in pages.items():
        # The logits before they are rounded for the eye.
        opened = page.replace(
            "  recall();\n  show();\n})();",
            "  window.currentLogits = () => [...logitsOf(state.image)];\n  recall();\n  show();\n})();",
        )
        assert opened != page
        # With another hash, the script needs the test's leave.
        opened = opened.replace("\n<script>", '\n<script nonce="driver">')
        visits[name] = Visit(opened, CORRECT.replace("HASHES", json.dumps(hashes)), BEFORE)
    use = (
        READ
        + """
      await frames();
      const first = { hash: location.hash, title: byId("title").textContent };
      const ranges = [...document.querySelectorAll("#concepts tr")].map((each) =>
        [each.dataset.concept, each.querySelector(".range").firstChild.textContent]);
      location.hash = "image=0";
      await frames();
      key("ArrowRight");
      slide(2, 0.03125);
      const moved = { hash: location.hash, title: byId("title").textContent, row: row(2).className };
      row(2).querySelector("button").click();
      row(2).querySelector("button").click();
      const flipped = row(2).querySelector(".value").textContent;
      byId("reset").click();
      row(4).querySelector("input[type=checkbox]").click();
      const shown = new URLSearchParams(location.hash.slice(1)).get("concept");
      byId("sort").value = [...byId("sort").options].map((each) => each.value).find((each) => each.startsWith("CEM"));
      byId("sort").dispatchEvent(new Event("change"));
      const sorted = [...document.querySelectorAll("#strip button")].map((each) => +each.dataset.image);
      const worst = byId("worst").textContent;
      byId("has").value = "differs:1";
      byId("has").dispatchEvent(new Event("change"));
      const differing = [...document.querySelectorAll("#strip button")].map((each) => +each.dataset.image);
      const options = [...byId("class").options].map((each) => each.textContent);
      location.hash = "image=99&concept=77,x&set=1:abc,99:1&opacity=1e9&sort=<b>&class=9";
      await frames();
      const broken = { title: byId("title").textContent, hash: location.hash };
      location.hash = "BRIGHTEST";
      await new Promise((done) => setTimeout(done, 400));
      const canvas = document.querySelector("#tiles canvas");
      const pixels = [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data];
      const painted = pixels.some((each, k) => k % 4 === 3 && each > 0);
      tell({ first, ranges, moved, flipped, shown, sorted, worst, differing, options, broken, painted,
        bad: window.bad ?? 0, refused: window.refused, requests: requests() });
    """
    )
    image, concept = divmod(int(concept_views(CBM, IMAGES).maps.amax((2, 3)).argmax()), L)
    use = use.replace("BRIGHTEST", f"image={image}&concept={concept}")
    visits["use"] = Visit(pages["pcbm"], use, BEFORE)
    return visit_all(visits, tmp_path_factory.mktemp("pages"))


@pytest.mark.parametrize("name", ["pcbm", "residual", "bottleneck", "any"])
def test_corrected_logits_are_those_of_pytorch(name: str, visited: dict[str, Any]) -> None:
    visit = visited[name]
    assert "error" not in visit, visit
    for (image, fixed), view in zip(CORRECTIONS.items(), visit["seen"], strict=True):
        expected = corrected(MODELS[name], image, fixed)
        assert np.abs(np.array(view["logits"]) - expected.numpy()).max() < 1e-5
        shares = expected.softmax(0)
        for k, text in view["classes"].items():
            assert abs(float(text.partition(" ")[0]) / 100 - shares[int(k)].item()) < 0.006


@pytest.mark.parametrize("name", [*MODELS, "use"])
def test_nothing_is_asked_for_and_hostile_names_do_nothing(name: str, visited: dict[str, Any]) -> None:
    visit = visited[name]
    assert visit["requests"] == []
    assert visit["refused"] == []
    assert visit["bad"] == 0


def test_the_page_is_used_with_keys_sliders_and_the_address(visited: dict[str, Any], pages: dict[str, str]) -> None:
    visit = visited["use"]
    assert "error" not in visit, visit
    views = concept_views(CBM, IMAGES)
    start = page_data(pages["pcbm"])["start"]
    assert visit["first"]["title"] == f"Image {start}: {CLASSES[views.predicted[start]]}"
    strongest = views.parts[start].abs().argsort(descending=True)[:3].tolist()
    assert visit["first"]["hash"] == f"#image={start}&concept={'%2C'.join(map(str, strongest))}"
    assert visit["moved"]["title"].startswith("Image 1:")
    assert "set=2%3A0.03125" in visit["moved"]["hash"]
    assert visit["moved"]["row"] == "fixed"
    low, high = views.random_values[start].tolist()
    for j, place in visit["ranges"]:
        value = views.values[start, int(j)].item()
        assert place == ("above" if value > high else "below" if value < low else "within")
    # A switch takes a value to the far end of what the images have.
    value, (lows, highs) = views.values[1, 2], page_data(pages["pcbm"])["ends"]
    end = lows[2] if value >= 0 else highs[2]
    assert f"{end:+.2f}".replace("-", "−") in visit["flipped"]
    # The second image's strongest three, of which a box adds the fifth concept or takes it away.
    second = views.parts[1].abs().argsort(descending=True)[:3].tolist()
    expected = [j for j in second if j != 4] if 4 in second else [*second, 4]
    assert visit["shown"] == ",".join(map(str, expected))
    assert visit["options"][1:] == CLASSES
    assert visit["broken"]["title"].startswith(f"Image {start}:")
    assert visit["painted"]


def test_images_are_sorted_by_the_metric(visited: dict[str, Any]) -> None:
    visit = visited["use"]
    metric = CEM(concept_labels=PRESENT.numpy(), top_l=3)
    predicted = concept_views(CBM, IMAGES).predicted
    scores = np.array(metric(CBM, IMAGES.numpy(), predicted.numpy(), device="cpu"))
    assert visit["sorted"] == np.argsort(scores, kind="stable").tolist()
    assert visit["worst"].startswith("Worst by CEM of the first 3: image")
    present = concept_views(CBM, IMAGES).values[:, 1] >= 0
    expected = np.flatnonzero(present.numpy() != PRESENT[:, 1].numpy())
    assert sorted(visit["differing"]) == expected.tolist()


def test_numbers_and_maps_are_on_the_page(pages: dict[str, str]) -> None:
    data, views = page_data(pages["pcbm"]), concept_views(CBM, IMAGES)
    assert np.array_equal(numbers(data["values"]), views.values.numpy().ravel())
    assert np.array_equal(numbers(data["weight"]), CBM.head.weight.detach().numpy().ravel())
    assert "residual" not in data
    assert "residual" in page_data(pages["residual"])
    assert np.allclose(data["random_values"], views.random_values, rtol=1e-4)
    assert "random_values" not in page_data(pages["bottleneck"])
    # A slider reaches as far to either side of the threshold, beyond what images and random directions have.
    lows, highs = map(np.array, data["ends"])
    assert np.allclose(lows, -highs)
    assert (highs >= views.values.abs().amax(0).numpy() - 1e-4).all()
    # Its bank was given: of its values only the mean is known.
    assert np.array_equal(numbers(data["absent"]), CBM.mean_values.numpy())
    assert (data["kind"], data["level"]) == ("effect", "training mean")
    # Without a linear head the page has the parts themselves: effects of probabilities, which are absent at 0.
    curved = BottleneckCBM(network(), linear(6, L), nn.Sequential(linear(L, 3), nn.Tanh(), linear(3, K)))
    effects = concept_views(curved, IMAGES).effects.numpy()
    assert np.allclose(numbers(page_data(explore(curved, IMAGES).html)["parts"]), effects.ravel(), rtol=1e-4)
    # Without a level it says that these are contributions.
    unknown = page_data(explore(PostHocCBM(network(), CBM.bank, CBM.head), IMAGES).html)
    assert (unknown["kind"], unknown["level"]) == ("contribution", "")
    assert "absent" not in unknown
    assert page_data(pages["bottleneck"])["ends"] == [[0.0] * L, [1.0] * L]
    # Of 256 levels between the ends.
    low, high = data["map"]["low"], data["map"]["high"]
    assert data["sheets"][2] == map_uri(views.maps[2], low, high)
    assert (low, high) == pytest.approx((views.maps.min().item(), views.maps.max().item()))


def test_the_page_begins_with_a_clear_image() -> None:
    zeros = torch.zeros(4, 2)
    values = torch.tensor([[9.0, 0.0], [0.5, 0.0], [3.0, 0.0], [-9.0, 0.0]])
    logits = torch.tensor([[1.0, 0.0], [3.0, 0.0], [2.0, 0.0], [4.0, 0.0]])
    numbers_of_it = {"values": values, "logits": logits, "weights": torch.ones(4, 2), "threshold": 0.0}
    views = replace(concept_views(CBM, IMAGES[:4]), **numbers_of_it, residual=zeros, random_values=None, effects=None)
    random = replace(views, random_values=torch.tensor([[-1.0, 1.0]] * 4))
    # The most confident; of those with a concept above the random range; and with a right answer.
    assert clear_image(views, None) == 3
    assert clear_image(random, None) == 2
    assert clear_image(random, torch.tensor([0, 0, 1, 0])) == 0


def test_a_loader_a_file_and_a_notebook(tmp_path: Path) -> None:
    points = torch.rand(N, 2, 2, generator=DRAWN) * 18
    whole = {"pixel_values": IMAGES, "label": LABELS, "concept_labels": PRESENT, "points": points}
    batches = [{name: rows[start : start + 5] for name, rows in whole.items()} for start in (0, 5, 10)]
    page = explore(CBM, batches, tmp_path / "page.html", part_of_concept=[0, 1, -1, 0, 1], n_images=7)
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    data = page_data(page.html)
    assert len(data["pictures"]) == 7
    names = ["confidence when wrong", "confidence", "CEM of the first 3", "disagreement with the labels"]
    assert [*data["scores"]] == [*names, "CLM of the first located"]
    framed = page._repr_html_()
    assert escape(page.html, quote=True) in framed
    assert 'sandbox="allow-scripts"' in framed


def test_a_weak_direction_is_named_and_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bank = ConceptBank(CBM.bank.cavs, CBM.bank.intercepts, CBM.bank.names, p_values=[0.01, 0.873] + [0.02] * (L - 2))
    page = explore(PostHocCBM(network(), bank, linear(L, K)).eval(), IMAGES[:1]).html
    assert page_data(page)["weak"] == ["", "weak direction (p = 0.87)", *[""] * (L - 2)]
    with pytest.raises(TypeError, match="concept model"):
        explore(network(), IMAGES)
    with pytest.raises(ValueError, match=r"\(N,\) = \(12,\)"):
        explore(CBM, IMAGES, labels=LABELS[:3])
    with pytest.raises(ValueError, match="`concept_labels` to have shape"):
        explore(CBM, IMAGES, concept_labels=np.zeros((3, L)))
    with pytest.raises(ValueError, match="`images` to give at least one batch"):
        explore(CBM, [])
    monkeypatch.setattr("quantus_concepts.explorer.explore.MAX_MEGABYTES", 0.01)
    with pytest.raises(ValueError, match="n_images"):
        explore(CBM, IMAGES)


def test_channels_last_is_said():
    cbm = PostHocCBM(nn.Conv2d(3, 4, 3), ConceptBank(torch.eye(4)), nn.Linear(4, 5)).eval()
    images = np.random.default_rng(0).random((2, 32, 32, 3)).astype("float32")
    for call in (
        lambda: explore(cbm, images),
        lambda: explore(cbm, images[0]),
        lambda: explore(cbm, [torch.tensor(images)]),
        lambda: explore(cbm, images.transpose(0, 3, 1, 2), pictures=images),
        lambda: show_concepts(cbm, (images * 255).astype(np.uint8)),
    ):
        with pytest.raises(ValueError, match=r"channels first, but got \(\d, 32, 32, 3\). Move the channels"):
            call()


def test_no_script_but_the_pages_own_is_executed(tmp_path: Path) -> None:
    model, images = MODELS["pcbm"], IMAGES[:2]
    page = explore(model, images).html
    foreign = page.replace("<body>", "<body><script>window.bad = 1</script>")
    result = visit_all(
        {"page": Visit(foreign, "tell({ bad: window.bad ?? 0, shown: byId('classes').children.length })")}, tmp_path
    )
    assert result["page"] == {"bad": 0, "shown": 4}


@pytest.mark.parametrize(
    ("script", "allowed"),
    [("", "'none'"), ("alert('ä')", "'sha256-Bq0SJacR32R/fflyfNBQJPaGq8BTVqZrCE7kaxj3SYE='")],
)
def test_a_page_loads_nothing_and_runs_its_own_script_alone(script: str, allowed: str) -> None:
    assert content_policy(script) == (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; "
        "form-action 'none'"
    )
