"""Names, maps and concepts of the release."""

import json
import pickle

import numpy as np
import pytest

from quantus_concepts.datasets.ratings.files import (
    attribution_path,
    load_concepts,
    load_map,
    parse_rated_name,
    parse_scored_name,
)


def test_names():
    rated = parse_rated_name("result_dataset/expl/coco_325_41_shopping_and_dining.png")
    assert (rated.dataset, rated.image, rated.explainer) == ("coco", "325", "41")
    assert (rated.label, rated.image_id) == ("shopping_and_dining", "coco_325")
    assert parse_rated_name("birds_7_gradcam.png").label == ""
    scored = parse_scored_name("x/monumai_6_Hispanic-Muslim.npy")
    assert (scored.dataset, scored.image, scored.explainer) == ("monumai", "6", None)
    assert (scored.label, scored.image_id) == ("Hispanic-Muslim", "monumai_6")
    assert [parse_scored_name(f"coco_1{label}.json").label for label in ("", "_a.b", "_a_or_b")] == [
        "",
        "a.b",
        "a_or_b",
    ]
    assert attribution_path("a/expl/coco_1_2_x.y.png", ".npy") == "a/activations/coco_1_2_x.y.npy"
    assert attribution_path("explained/coco_1_41_x.png", ".json") == "explained/coco_1_41_x.json"


@pytest.mark.parametrize(
    ("shape", "pick"),
    [
        ((6, 5), lambda a: a),
        ((1, 1, 6, 5), lambda a: a[0, 0]),
        ((6, 5, 4), lambda a: a[..., 3]),
        ((6, 5, 3), lambda a: a.mean(-1)),
        ((3, 6, 5), lambda a: a.mean(0)),
        ((1, 4, 6, 5), lambda a: a[0, 3]),
        ((1, 5), lambda a: a),
    ],
)
def test_channels_of_maps(tmp_path, shape, pick):
    array = np.random.default_rng(0).random(shape)
    array.flat[0] = np.nan
    np.save(tmp_path / "m.npy", array.astype(">f8"))
    np.testing.assert_allclose(load_map(tmp_path / "m.npy"), pick(array), rtol=1e-6)


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path: path.write_bytes(pickle.dumps([1])), "cannot be read"),
        (lambda path: np.save(path, np.array([{}], dtype=object), allow_pickle=True), "cannot be read"),
        (lambda path: np.savez(path.open("wb"), a=np.ones(2)), "it is an archive"),
        (lambda path: np.save(path, np.array([["a"]])), "it holds <U1"),
        (lambda path: np.save(path, np.ones((7, 6, 5))), r"its shape is \(7, 6, 5\), .* at most 4 channels"),
    ],
)
def test_bad_maps_are_named(tmp_path, write, message):
    path = tmp_path / "m.npy"
    write(path)
    with pytest.raises(ValueError, match=f"m.npy.*{message}"):
        load_map(path)


def test_concepts(tmp_path):
    path = tmp_path / "c.json"
    path.write_text(
        json.dumps({"0.10 < arm <= 0.25": 0.5, "eye > -1e-3": 1, "leg <= 0.00": -2.5, "crane (bird)": 0, "T-shirt": 3})
    )
    expected = {"arm": 0.5, "eye": 1.0, "leg": -2.5, "crane (bird)": 0.0, "T-shirt": 3.0}
    assert load_concepts(path).values == expected
    # Nothing tells that this is the release's counterfactual explainer: a bracket may belong to a name.
    explanation = load_concepts(path, ascending=True)
    assert (explanation.values, explanation.ascending, explanation.vocabulary) == (expected, True, ())
    assert next(iter(explanation.written)) == "0.10 < arm <= 0.25"
    # Names that would become one stay.
    path.write_text(json.dumps({"arm > 0.5": 0.5, "arm <= 0.5": 1}))
    assert load_concepts(path).values == {"arm > 0.5": 0.5, "arm <= 0.5": 1.0}


COUNTERFACTUAL = """{"hair (Target = cat) ": -3.0, "No counterfactual": Infinity, "hair (Target = dog) ": 0.5,
"arm (Target = dog) ": -0.25, "tail (Target = cat) ": Infinity, "leg (Target = cat) ": 7, "leg (Target = dog) ": -7}"""


def test_counterfactuals_of_the_release(tmp_path):
    path = tmp_path / "pascalpart_3_39_cat.json"
    path.write_text(COUNTERFACTUAL)
    explanation = load_concepts(path, ascending=True, dataset="pascalpart")
    # Of two directions the smaller magnitude, of equal ones the first; what has no counterfactual is not there.
    assert explanation.values == {"hair": 0.5, "arm": -0.25, "leg": 7.0}
    assert explanation.written["No counterfactual"] == float("inf")
    assert next(iter(explanation.written)) == "hair (Target = cat) "
    assert len(explanation.vocabulary) == 39
    with pytest.raises(ValueError, match=r"2 of 7 are not: 'No counterfactual': inf.*of a counterfactual explainer"):
        load_concepts(path)
    path.write_text('{"No counterfactual": Infinity}')
    assert load_concepts(path, ascending=True).values == {"No counterfactual": 0.0}
    path.write_text('{"hair (Target = cat) ": NaN}')
    with pytest.raises(ValueError, match="1 of 1 are not"):
        load_concepts(path, ascending=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('["a"]', "object of names and numbers but got a list"),
        ("{}", "got an empty one"),
        ('{"a": "much", "b": 1, "c": null, "d": true, "e": NaN, "f": [1]}', "5 of 6 are not: 'a': 'much'"),
        ('{"a": 1' + "0" * 400 + "}", "1 of 1 are not"),
    ],
)
def test_bad_concepts_are_named(tmp_path, text, message):
    path = tmp_path / "c.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"c.json.*{message}"):
        load_concepts(path)
