import pytest

from quantus_concepts.pasta.sentences import concept_sentence


def test_as_the_release_writes_it():
    values = {"wing": 0.2, "beak": -0.9, "tail": 0.5, "crown": 0.5, "leg": 0.0}
    # descending magnitude, of equal ones the later name first
    assert concept_sentence(values) == "beak, tail, crown, wing, leg, "
    assert concept_sentence(values, n_top=3) == "beak, tail, crown, "
    assert concept_sentence(values, n_top=2, trailing_comma=False) == "beak, tail"
    assert concept_sentence(values, ascending=True, n_top=4) == "leg, wing, crown, tail, "


def test_fifteen_by_default_and_no_more_than_there_are():
    values = {f"c{i:02}": float(i) for i in range(40)}
    assert concept_sentence(values) == "".join(f"c{i:02}, " for i in range(39, 24, -1))
    assert concept_sentence({"a": 1.0}) == "a, "


def test_scale_sign_and_order_of_the_mapping_do_not_matter():
    values = {"a": 0.1, "b": -3.0, "c": 2.0}
    other = {"c": -20.0, "a": 1.0, "b": 30.0}
    assert concept_sentence(values) == concept_sentence(other)


def test_template():
    values = {"a": 1.0, "b {}": 2.0}
    sentence = concept_sentence(values, template="A picture of {}because.", trailing_comma=False)
    assert sentence == "A picture of b {}, abecause."


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        ({}, {}, "at least one concept"),
        ({"a": float("nan"), "b": 1.0}, {}, "`values` to be finite but 1 are NaN or infinite, the first of 'a'"),
        ({"a": float("inf")}, {}, "finite"),
        ({"a": 1.0}, {"n_top": 0}, "`n_top` to be at least 1"),
        ({"a": 1.0}, {"template": "a picture"}, "`template` to have {} where the names"),
    ],
)
def test_bad_input(values, options, message):
    with pytest.raises(ValueError, match=message):
        concept_sentence(values, **options)
