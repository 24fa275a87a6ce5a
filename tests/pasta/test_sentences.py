from quantus_concepts.datasets.ratings.files import RELEASE_LISTS, RELEASED_CONCEPTS, FileName, released_scale
from quantus_concepts.pasta.presentation import concept_sentence, released_sentence


def test_as_the_release_writes_it():
    values = {"wing": 0.2, "beak": -0.9, "tail": 0.5, "crown": 0.5, "leg": 0.0}
    # descending magnitude, of equal ones the later name first
    assert concept_sentence(values) == "beak, tail, crown, wing, leg, "
    assert concept_sentence(values, n_top=3) == "beak, tail, crown, "
    assert concept_sentence(values, n_top=2, trailing_comma=False) == "beak, tail"
    assert concept_sentence(values, ascending=True, n_top=4) == "leg, wing, crown, tail, "
    # Neither scale nor sign nor the order of the mapping matters.
    turned = {name: -10 * value for name, value in reversed(values.items())}
    assert concept_sentence(turned) == concept_sentence(values)


def test_fifteen_by_default_and_no_more_than_there_are():
    values = {f"c{i:02}": float(i) for i in range(40)}
    assert concept_sentence(values) == "".join(f"c{i:02}, " for i in range(39, 24, -1))
    assert concept_sentence({"a": 1.0}) == "a, "


PARTS = ("arm", "chain_wheel", "hair", "tail", "wheel")


def test_the_sentence_of_the_release_by_hand():
    # "wheel" is in both keys, and the later one stays; "ear" is of no concept; nothing names hair: 0.
    written = {"wheel": 9.0, "0.1 < chain_wheel <= 0.4": -0.5, "ear": 20.0, "tail": 0.5, "arm": -2.0}
    assert released_sentence(written, PARTS) == "arm, wheel, tail, chain_wheel, hair, "
    assert released_sentence(written, PARTS, n_top=2) == "arm, wheel, "
    # The other way round the value of the wheel itself stays.
    turned = dict(reversed(written.items()))
    assert released_sentence(turned, PARTS) == "wheel, arm, tail, chain_wheel, hair, "


def test_the_counterfactual_sentence_of_the_release_is_alphabetical():
    written = {"hair (Target = cat) ": -3.0, "No counterfactual": float("inf"), "tail (Target = arm) ": 0.1}
    assert released_sentence(written, PARTS[::-1], counterfactual=True) == "arm, chain_wheel, hair, tail, wheel, "
    # But for what is above 10000, where the search starts, which then comes last; the bracket names no concept.
    written |= {"arm (Target = dog) ": -10001.0, "hair (Target = dog) ": float("inf"), "x (arm)": float("inf")}
    assert released_sentence(written, PARTS, counterfactual=True) == "chain_wheel, tail, wheel, arm, hair, "


def test_the_lists_of_the_release():
    assert {name: len(concepts) for name, concepts in RELEASED_CONCEPTS.items()} == {
        "catsdogscars": 39,
        "pascalpart": 39,
        "monumai": 15,
        "coco": 80,
    }
    assert all(len(set(concepts)) == len(concepts) for concepts in RELEASED_CONCEPTS.values())
    names = [FileName("coco", "1", explainer, "cat") for explainer in ("0", "4", "6", "39")]
    assert [released_scale(name, 0.0) for name in names] == [None, "none", "shap", None]
    assert released_scale(FileName("coco", "1", "3", "cat"), -1.0) == "lime"
    # An explainer of other data that is called so is another one.
    assert released_scale(FileName("mine", "1", "3", "cat"), -1.0) is None


def test_the_release_writes_two_concepts_otherwise_than_its_paper():
    # Its files have these keys: with the paper's "eyebrow" the value would be 0, and the concept last.
    written = {"ebrow": -3.0, "eye": 1.0}
    for name in ("pascalpart", "catsdogscars"):
        assert released_sentence(written, RELEASE_LISTS[name], n_top=2) == "ebrow, eye, "
        assert "eyebrow" in RELEASED_CONCEPTS[name]
    assert released_sentence({"flat-arch ": 2.0}, RELEASE_LISTS["monumai"], n_top=1) == "flat-arch , "
    assert RELEASE_LISTS["coco"] == RELEASED_CONCEPTS["coco"]
