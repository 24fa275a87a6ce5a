"""The page on which people rate explanations, in a browser; and back to ratings."""

import csv
import io
import json
import shutil

import numpy as np
import pytest

from chromium import Visit, visit_all
from explanation_folders import write_folders
from quantus_concepts.datasets.ratings.explanations import QUESTIONS, Question
from quantus_concepts.datasets.ratings.released import PastaRatings
from quantus_concepts.studies.pasta import COMMANDS

N_ITEMS = 9
#: Answer k of an annotator is a function of k: known for every explanation through the order in which they are shown.
ANSWER_ALL = """
    begin("{name}");
    const places = [];
    for (let k = 0; k < 18; k++) {{
      if (k % 2 === 0) places.push(byId("place").textContent);
      key(String({vote}));
    }}
    const title = byId("done-title").textContent;
    tell({{ places, title, file: await saved() }});
"""
ORDERS = """
    localStorage.clear();
    const orders = {};
    for (const name of ["Cy", "Di"]) {
      begin(name);
      orders[name] = [];
      for (let i = 0; i < 9; i++) {
        const pictures = [...byId("sections").querySelectorAll("img")].map((image) => image.src.slice(-80));
        orders[name].push(pictures.join() + byId("sections").textContent);
        key("ArrowRight");
        key("ArrowRight");
      }
      byId("start").hidden = false;
    }
    tell(orders);
"""
KEYS = """
    begin("Eve");
    const at = () => [byId("place").textContent, document.querySelector("fieldset.now").id, byId("given").textContent];
    const steps = [];
    const press = (...names) => { names.forEach((name) => key(name)); steps.push(at()); };
    press("4");                  // answered: on to the second question
    press("ArrowRight");         // skipped: on to the second explanation
    press("ArrowLeft");          // back
    press("Backspace");          // back to the answer
    press("2");                  // another answer
    press("6", "0", "x");        // none of the keys
    key("3", { ctrlKey: true }); // the browser's own
    steps.push(at());
    press("ArrowDown");          // chosen, without going on
    press("ArrowDown", "ArrowDown", "ArrowUp");
    press("Enter");
    byId("leave").click();
    const title = byId("done-title").textContent, tally = byId("tally").textContent;
    const file = await saved();
    byId("missing").click();
    tell({ steps, title, tally, file: file.text, missing: at() });
"""
MOUSE = """
    begin("=Finn");
    const click = (element) => {
      element.focus();
      element.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, detail: 1 }));
    };
    const points = (question) => document.querySelectorAll(`input[name=question-${question}]`);
    click(points(1)[4]);  // the second question first: goes on to the next explanation
    const after = byId("place").textContent;
    const clean = document.querySelectorAll("input:checked").length;
    byId("back").click();
    byId("back").click();
    click(points(0)[1]);
    const checked = [...document.querySelectorAll("input:checked")].map((input) => input.name + input.value);
    byId("leave").click();
    tell({ after, clean, checked, file: (await saved()).text });
"""
RELOADED = """
    if (!sessionStorage.getItem("again")) {
      begin("Gus");
      key("5"); key("4"); key("3");
      sessionStorage.setItem("again", "1");
      location.reload();
    } else if (!byId("annotator").value && Number(sessionStorage.getItem("again")) < 50) {
      // The browser writes storage when it finds time: load the page again until the answers are there.
      sessionStorage.setItem("again", String(Number(sessionStorage.getItem("again")) + 1));
      await new Promise((resolve) => setTimeout(resolve, 200));
      location.reload();
    } else {
      const resume = byId("resume").textContent, name = byId("annotator").value, button = byId("begin").textContent;
      byId("begin").click();
      const place = byId("place").textContent, now = document.querySelector("fieldset.now").id;
      byId("leave").click();
      const mine = await saved();
      byId("start").hidden = false;
      begin("Hal");
      tell({ resume, name, button, place, now, file: mine.text, other: byId("given").textContent });
    }
"""
UNNAMED = """
    begin("Jo");
    const all = [...document.querySelectorAll("#rate button, #rate input, #rate img, #rate progress")];
    tell(all.filter((element) => !(element.textContent || element.ariaLabel || element.alt)).length);
"""
PERTURBED = """
    begin("Kim");
    const seen = [];
    while (!byId("says").textContent.includes("dog")) for (let i = 0; i < 6; i++) key("3");
    for (let k = 0; k < 6; k++) {
      seen.push([...document.querySelectorAll("#sections h2")].map((heading) => heading.textContent));
      key("1");
    }
    tell(seen);
"""
#: Questions of a study, in its order; some are called as the browser calls something of its own.
OWN = {
    "length": {"text": "How long did you look?", "low_is_good": True, "ends": ["a moment", "long"]},
    "constructor": "Do you trust <it>?",
    "Q5": "Is it clear?",
    "__proto__": 'Would you, say, "buy" it?',
}
ANSWER_OWN = """
    begin("Lea");
    const asked = [...document.querySelectorAll("legend")].map((legend) => legend.textContent);
    const texts = (element) => [...element.children].map((child) => child.textContent);
    const ends = [...document.querySelectorAll(".ends")].map(texts);
    const headings = document.querySelectorAll("#sections h2").length;
    for (const vote of "2451") key(vote);
    byId("leave").click();
    byId("missing").click();
    const missing = byId("place").textContent;
    byId("leave").click();
    tell({ asked, ends, headings, missing, file: await saved() });
"""


@pytest.fixture(scope="module")
def sheet(tmp_path_factory):
    root = write_folders(tmp_path_factory.mktemp("sheet"))
    folders = {"images": root / "images", "explanations": root / "explanations"}
    options = {**folders, "questions": "Q3,Q1", "picture_size": 48, "out": root / "out", "progress": False}
    COMMANDS["pasta sheet"](**options)
    return options


@pytest.fixture(scope="module")
def own_sheet(sheet, tmp_path_factory):
    root = tmp_path_factory.mktemp("own")
    (root / "asked.json").write_text(json.dumps(OWN))
    COMMANDS["pasta sheet"](**sheet | {"questions": str(root / "asked.json"), "out": root / "out"})
    return root / "out"


@pytest.fixture(scope="module")
def page(sheet):
    return (sheet["out"] / "rate.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def perturbed_page(sheet, tmp_path_factory):
    root = tmp_path_factory.mktemp("perturbed")
    for name in ("light", "strong"):
        shutil.copytree(sheet["images"], root / name / "images")
        shutil.copytree(sheet["explanations"], root / name / "explanations")
    for file in [*(root / "strong").rglob("pets_001_dog.*")]:
        file.rename(file.with_name(f"pets_001_big_goat{file.suffix}"))
    changed = {"questions": None, "light": root / "light", "strong": root / "strong", "out": root / "out"}
    COMMANDS["pasta sheet"](**sheet | changed)
    return (root / "out" / "rate.html").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def answers(page, perturbed_page, own_sheet, tmp_path_factory):
    visits = {
        "Anna": Visit(page, ANSWER_ALL.format(name="Anna", vote="1 + k % 5")),
        "7": Visit(page, ANSWER_ALL.format(name="7", vote="5 - k % 5")),
        "orders": Visit(page, ORDERS),
        "orders again": Visit(page, ORDERS),
        "keys": Visit(page, KEYS),
        "unnamed": Visit(page, UNNAMED),
        "mouse": Visit(page, MOUSE),
        "reloaded": Visit(page, RELOADED),
        "perturbed": Visit(perturbed_page, PERTURBED),
        "own": Visit((own_sheet / "rate.html").read_text(encoding="utf-8"), ANSWER_OWN),
    }
    results = visit_all(visits, tmp_path_factory.mktemp("browser"))
    for name, result in results.items():
        assert not (isinstance(result, dict) and "error" in result), f"{name}: {result['error']}"
    return results


def _data(page):
    return json.loads(page.split('<script type="application/json" id="data">')[1].split("</script>")[0])


def test_page_needs_no_network_and_names_no_explainer(page):
    for word in ("http://", "https://", "src=", "@import", "url("):
        assert word not in page
    data = _data(page)
    assert [question["name"] for question in data["questions"]] == ["Q1", "Q3"]
    assert len(data["items"]) == N_ITEMS
    # Three images, shared, and six maps.
    assert len(data["pictures"]) == 9
    visible = json.dumps([{key: value for key, value in item.items() if key != "record"} for item in data["items"]])
    for explainer in ("grad-cam", "lime", "words"):
        assert explainer not in visible
    listed = [
        item["sections"]["shown"]["concepts"] for item in data["items"] if "concepts" in item["sections"]["shown"]
    ]
    assert listed[0] == [
        ["whiskers", "−2.00", -1],
        ["part 0", "1.00", 0.5],
        ["fur", "0.500", 0.25],
        ["beak", "0.250", 0.125],
    ]


def test_text_cannot_leave_the_data(tmp_path):
    write_folders(tmp_path, 1, ("words",))
    file = next((tmp_path / "explanations" / "words").iterdir())
    file.write_text(json.dumps({"</script><script>alert(1)</script>": 1.0, "<b>": 0.5}))
    folders = {"images": tmp_path / "images", "explanations": tmp_path / "explanations"}
    COMMANDS["pasta sheet"](**folders, out=tmp_path / "out", progress=False)
    page = (tmp_path / "out" / "rate.html").read_text()
    assert "alert(1)</script>" not in page
    assert _data(page)["items"][0]["sections"]["shown"]["concepts"][0][0] == "</script><script>alert(1)</script>"


def votes_in(text):
    """Return who answered, and the answers."""
    return [{name: row[name] for name in ("rater", "Q1", "Q3") if name in row} for row in rows_in(text)]


def rows_in(text):
    """Return the rows of a file of answers, without what is not answered."""
    rows = csv.DictReader(io.StringIO(text.removeprefix("\ufeff")))
    return [{name: value for name, value in row.items() if value} for row in rows]


def test_keys_answer_and_the_file_is_read_back(sheet, answers, tmp_path):
    folder = shutil.copytree(sheet["out"], tmp_path / "sheet")
    saved = {}
    for name in ("Anna", "7"):
        assert answers[name]["places"] == [f"Explanation {i + 1} of {N_ITEMS}" for i in range(N_ITEMS)]
        assert answers[name]["title"] == "Thank you, that was all"
        assert answers[name]["file"]["name"] == f"ratings_{name}.csv"
        (folder / answers[name]["file"]["name"]).write_text(answers[name]["file"]["text"], encoding="utf-8")
        saved[name] = rows_in(answers[name]["file"]["text"])
    first = saved["Anna"][0]
    assert {key: first[key] for key in ("image", "explainer", "label", "explanation", "rater")} == {
        "image": "pets_000_cat.png",
        "explainer": "grad-cam",
        "label": "cat",
        "explanation": "grad-cam/pets_000_cat",
        "rater": "Anna",
    }
    ratings = PastaRatings(folder)
    assert ratings.votes.shape == (N_ITEMS, 2, 2)
    assert ratings.asked == {name: QUESTIONS[name] for name in ("Q1", "Q3")}
    for name in ("Anna", "7"):
        of_rater = ratings.votes[:, ratings.raters.index(name)]
        by_name = {(row["explainer"], row["image"]): [int(row["Q1"]), int(row["Q3"])] for row in saved[name]}
        keys = zip(
            ratings.explainer_ids, (name.removeprefix("sheet_images/") for name in ratings.image_ids), strict=True
        )
        expected = [by_name[key] for key in keys]
        np.testing.assert_array_equal(of_rater, expected)
        # Every explanation was shown once: the votes are those of k = 0, 1, ..., 17.
        pressed = [1 + k % 5 if name == "Anna" else 5 - k % 5 for k in range(2 * N_ITEMS)]
        assert sorted(np.ravel(expected)) == sorted(pressed)
    of_dog = ratings.image_ids == "sheet_images/pets_001_dog.png"
    concepts = ratings.explanations[int(np.flatnonzero((ratings.explainer_ids == "words") & of_dog)[0])]
    assert concepts.values["whiskers"] == -2.0
    # People saw the picture of a map; drawn anew it comes from the map.
    row = int(np.flatnonzero((ratings.explainer_ids == "lime_2") & of_dog)[0])
    assert ratings.modalities[row] == "drawing"
    redrawn = PastaRatings(folder, drawings=False).explanations[row]
    np.testing.assert_array_equal(redrawn.map, np.load(sheet["explanations"] / "lime_2" / "pets_001_dog.npy"))


def test_own_questions_are_asked_and_read_back(own_sheet, answers, tmp_path):
    own, usual = answers["own"], ["not at all", "fully"]
    texts = [field if isinstance(field, str) else field["text"] for field in OWN.values()]
    assert own["asked"] == [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    assert own["ends"] == [["a moment", "long"], usual, usual, usual]
    # Nobody changed an image for a question called Q5.
    assert own["headings"] == 0
    assert own["missing"] == f"Explanation 2 of {N_ITEMS}"
    folder = shutil.copytree(own_sheet, tmp_path / "sheet")
    (folder / own["file"]["name"]).write_text(own["file"]["text"], encoding="utf-8")
    ratings = PastaRatings(folder)
    assert list(ratings.asked.items()) == [
        (name, Question(name, text, low_is_good=name == "length")) for name, text in zip(OWN, texts, strict=True)
    ]
    assert ratings.asked["length"].ends == ("a moment", "long")
    np.testing.assert_array_equal(ratings.votes, [[[2, 4, 5, 1]]])


def test_order_differs_between_annotators_and_is_the_same_again(answers):
    orders = answers["orders"]
    assert answers["orders again"] == orders
    assert orders["Cy"] != orders["Di"]
    assert sorted(orders["Cy"]) == sorted(orders["Di"])
    assert len(set(orders["Cy"])) == N_ITEMS


def test_back_skip_change_and_other_keys(answers):
    first, second, tally = "Explanation 1 of 9", "Explanation 2 of 9", "of 18 answers"
    assert answers["keys"]["steps"] == [
        [first, "field-1", f"1 {tally}"],
        [second, "field-0", f"1 {tally}"],
        [first, "field-1", f"1 {tally}"],
        [first, "field-0", f"1 {tally}"],
        [first, "field-1", f"1 {tally}"],
        [first, "field-1", f"1 {tally}"],
        [first, "field-1", f"1 {tally}"],
        [first, "field-1", f"2 {tally}"],
        [first, "field-1", f"2 {tally}"],
        [second, "field-0", f"2 {tally}"],
    ]
    assert answers["keys"]["title"] == "Not finished yet"
    assert answers["keys"]["tally"].startswith("You gave 2 of 18 answers")
    assert votes_in(answers["keys"]["file"]) == [{"rater": "Eve", "Q1": "2", "Q3": "2"}]
    assert answers["keys"]["missing"] == [second, "field-0", f"2 {tally}"]


def test_page_can_be_used_without_seeing_it(answers):
    assert answers["unnamed"] == 0


def test_mouse_answers(answers):
    assert answers["mouse"]["after"] == "Explanation 2 of 9"
    assert answers["mouse"]["clean"] == 0
    assert answers["mouse"]["checked"] == ["question-02", "question-15"]
    assert votes_in(answers["mouse"]["file"]) == [{"rater": "'=Finn", "Q1": "2", "Q3": "5"}]


def test_reloaded_page_goes_on(answers):
    again = answers["reloaded"]
    assert again["resume"].startswith("3 of 18 answers are kept")
    assert (again["name"], again["button"]) == ("Gus", "Continue")
    assert (again["place"], again["now"]) == ("Explanation 2 of 9", "field-1")
    pairs = [pair for votes in votes_in(again["file"]) for pair in votes.items()]
    assert sorted(vote for name, vote in pairs if name != "rater") == ["3", "4", "5"]
    assert again["other"] == "0 of 18 answers"


def test_perturbed_images_are_shown_with_their_questions(perturbed_page, answers):
    names = [question["name"] for question in _data(perturbed_page)["questions"]]
    assert names == ["Q1", "Q2", "Q3", "Q4", "Q5", "Q6"]
    assert answers["perturbed"][:4] == [[], [], [], []]
    assert answers["perturbed"][4:] == [
        ["Before", "After: lightly changed"],
        ["Before", "After: strongly changed: the program now sees big goat"],
    ]
