"""The published format of ratings, written by the test."""

import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from fixtures_pasta import CONCEPTS, EXPLAINERS, quality, read_records, write_pasta_release, write_records
from quantus_concepts.datasets.ratings.released import PastaRatings

BASE = "result_dataset"


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    return write_pasta_release(tmp_path_factory.mktemp("pasta"))


@pytest.fixture
def copy(release, tmp_path):
    return shutil.copytree(release, tmp_path / "copy")


def _edit(folder, change):
    records = read_records(folder)
    change(records)
    write_records(folder, records)
    return folder


def test_everything_is_read(release):
    rated = PastaRatings(release)
    records = read_records(release)
    assert len(rated) == len(records) == 2 * 3 * len(EXPLAINERS)
    assert rated.votes.shape == (36, 5, 6)
    assert rated.image_ids[:7].tolist() == ["coco_0"] * 6 + ["coco_1"]
    assert rated.explainer_ids[:6].tolist() == list(EXPLAINERS)
    assert rated.modalities[:6].tolist() == ["drawing", "drawing", "drawing", "concepts", "concepts", "drawing"]
    assert set(rated.datasets) == {"coco", "monumai"}
    assert not rated.simulated
    # Drawings are the pictures people saw.
    picture = np.array(Image.open(release / BASE / "expl" / "coco_0_0_shopping_and_dining.png"))
    np.testing.assert_allclose(rated.explanations[0].picture.permute(1, 2, 0) * 255, picture, atol=1e-4)
    assert rated.notes[0] == "36 explanations of 6 images by 6 explainers, 5 annotators each."
    for i, record in enumerate(records):
        votes_in_file = [[votes[question] for question in rated.questions] for votes in record["Annotation"]]
        assert rated.votes[i].tolist() == votes_in_file
        assert rated.labels[i] == record["predictedclass"]
        level = quality(int(record["ID"]), rated.explainer_ids[i])
        assert abs(rated.targets("median")[i] - level).max() <= 1


def test_maps_and_images_are_those_of_the_files(release):
    rated = PastaRatings(release, drawings=False)
    assert rated.modalities[:6].tolist() == ["map", "map", "map", "concepts", "concepts", "map"]
    assert "Drawn anew from their values, not as people saw them: 24 of 36 explanations." in rated.notes
    explanation = rated.explanations[0]
    image = np.array(Image.open(release / BASE / "imgs" / "coco_0_shopping_and_dining.png"))
    np.testing.assert_allclose(explanation.image.permute(1, 2, 0) * 255, image, atol=1e-4)
    array = np.load(release / BASE / "activations" / "coco_0_0_shopping_and_dining.npy")
    assert explanation.map.tolist() == array.tolist()
    opacity = np.load(release / BASE / "activations" / "coco_0_46_shopping_and_dining.npy")[..., 3]
    assert rated.explanations[5].map.tolist() == opacity.tolist()
    # Redrawn as the release draws them: LIME (3) as it is, SHAP (6) by its largest magnitude.
    assert [rated.explanations[i].normalise for i in (0, 1, 2, 5)] == [None, "none", "shap", None]


def test_maps_without_a_drawing_and_drawings_without_a_map(copy):
    (copy / BASE / "expl" / "coco_0_0_shopping_and_dining.png").unlink()
    (copy / BASE / "activations" / "coco_0_3_shopping_and_dining.npy").unlink()
    rated = PastaRatings(copy)
    assert rated.modalities[:3].tolist() == ["map", "drawing", "drawing"]
    assert any(note.startswith("Drawn anew") and ": 1 of 36" in note for note in rated.notes)
    with pytest.raises(FileNotFoundError, match=r"1 of 30 files are missing: .*coco_0_3_shopping_and_dining\.npy"):
        PastaRatings(copy, modality="map")
    for path in sorted((copy / BASE / "activations").iterdir())[:11]:
        path.unlink()
        (copy / BASE / "expl" / path.with_suffix(".png").name).unlink(missing_ok=True)
    (copy / BASE / "imgs" / "coco_0_shopping_and_dining.png").unlink()
    with pytest.raises(FileNotFoundError, match=r"of 42 files are missing: .*, and \d more"):
        PastaRatings(copy)
    assert len(PastaRatings(copy, datasets="monumai")) == 18


def test_concepts_are_those_of_the_files(release):
    rated = PastaRatings(release)
    counterfactual, lime = rated.explanations[3], rated.explanations[4]
    assert tuple(counterfactual.values) == tuple(lime.values) == CONCEPTS
    assert (counterfactual.ascending, lime.ascending) == (True, False)
    assert (len(counterfactual.vocabulary), len(counterfactual.written)) == (80, 2 * len(CONCEPTS) + 1)
    content = json.loads((release / BASE / "activations" / "coco_0_41_shopping_and_dining.json").read_text())
    assert list(lime.values.values()) == list(content.values())
    stated = PastaRatings(release, counterfactual_explainers=["39", 41])
    assert (stated.explanations[3].ascending, stated.explanations[4].ascending) == (True, True)
    with pytest.raises(ValueError, match="of a counterfactual explainer"):
        PastaRatings(release, counterfactual_explainers="41").explanations[3]


def test_labels_of_the_prediction_or_of_the_image(release):
    predicted, image = PastaRatings(release), PastaRatings(release, labels="image-name")
    records = read_records(release)
    assert predicted.labels.tolist() == [record["predictedclass"] for record in records]
    assert image.labels.tolist() == [record["GTclass"] for record in records]


def test_filters(release):
    coco = PastaRatings(release, datasets="coco")
    assert (set(coco.datasets), len(coco)) == ({"coco"}, 18)
    assert len(PastaRatings(release, datasets=("monumai", "coco"))) == 36
    for modality, count in (("map", 12), ("drawing", 12), ("concepts", 6)):
        some = PastaRatings(release, modality=modality, datasets=["monumai"])
        assert (len(some), {e.modality for e in some.explanations}) == (count, {modality})
        assert not any("COCO" in note for note in some.notes)
    assert any("COCO" in note for note in coco.notes)


def test_leading_folders_may_be_missing(tmp_path):
    folder = write_pasta_release(tmp_path, prefix="a/b", n_images=1, datasets=("coco",))
    first = PastaRatings(folder).explanations[0]
    shutil.move(folder / "human_annotations.json", folder / "a" / "b")
    assert torch.equal(PastaRatings(folder / "a" / "b").explanations[0].picture, first.picture)


def test_the_label_falls_back(copy):
    def change(records):
        records[0] |= {"predictedclass": "", "GTclass": "cultural"}
        del records[1]["predictedclass"], records[1]["GTclass"]
        records[2] |= {"predictedclass": None, "GTclass": None}

    labels = PastaRatings(_edit(copy, change)).labels
    assert labels[:3].tolist() == ["cultural", "shopping_and_dining", "shopping_and_dining"]


def test_votes_may_be_strings_and_missing(copy):
    def change(records):
        votes = records[0]["Annotation"]
        votes[0] = {"Q1": "3", "Q2": 4.0, "Q3": " 5 ", "Q4": "2.0", "Q5": None, "Q6": "", "name": "somebody"}
        for votes in records[1]["Annotation"]:
            del votes["Q6"]
        del records[2]["Annotation"][1:]
        records[3]["Annotation"] = []

    rated = PastaRatings(_edit(copy, change))
    np.testing.assert_array_equal(rated.votes[0, 0], [3, 4, 5, 2, np.nan, np.nan])
    assert np.isnan(rated.votes[1, :, 5]).all()
    assert np.isnan(rated.votes[2, 1:]).all()
    missing = np.argwhere(np.isnan(rated.targets()))
    assert missing.tolist() == [[1, 5], *([3, question] for question in range(6))]
    assert rated.notes[0].endswith("0 to 5 annotators each.")
    assert rated.notes[1].startswith("Votes are missing: Q1 in 1, Q2 in 1, Q3 in 1, Q4 in 1, Q5 in 1 (and in part ")


def test_a_single_annotator_is_normal(tmp_path):
    rated = PastaRatings(write_pasta_release(tmp_path, n_annotators=1, n_images=1))
    assert np.array_equal(rated.targets(), rated.votes[:, 0])
    assert rated.notes[1] == "One annotator only: how well people agree is not known."


def test_records_that_are_there_twice(copy):
    def change(records):
        again = json.loads(json.dumps(records[1]))
        again["Annotation"] = [{"Q1": 5}, {"Q1": 4}]
        records += [records[0], again, again]

    before = PastaRatings(copy)
    rated = PastaRatings(_edit(copy, change))
    assert np.array_equal(rated.votes[:, :5], before.votes)
    assert rated.votes[1, 5:, 0].tolist() == [5, 4]
    assert np.isnan(rated.votes[1, 5:, 1:]).all()
    assert np.isnan(rated.votes[0, 5:]).all()
    assert any("left out: 2. " in note and "side by side: 1." in note for note in rated.notes)


def _vote(value):
    return lambda records: records[4]["Annotation"][2].update(Q3=value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        *(
            (_vote(vote), r"1 faulty records: record 4: .* is no vote \(annotator 2, Q3\)")
            for vote in (0, 6, "2.5", True)
        ),
        (
            lambda records: records.append(records[0] | {"predictedclass": "cultural"}),
            r"records of .*coco_0_0_.* agree",
        ),
        (lambda records: records.insert(0, 3), "record 0: a int and not an object"),
        (lambda records: records[0].update(explication=3), "1 faulty records: record 0: 'explication' is no path"),
        (lambda records: records[0].update(Annotation=[3]), "record 0: 'Annotation' is no list of objects"),
        (lambda records: records[0].update(Annotation=[{"Q7": 3}]), "has the key 'Q7', where questions"),
        (lambda records: records[0].update(GTclass=float("nan")), "record 0: the class nan is neither a name"),
        (lambda records: [record.update(Annotation=[{"Q1": None}]) for record in records], "it has none"),
    ],
)
def test_bad_records_are_named(copy, change, message):
    with pytest.raises(ValueError, match=message):
        PastaRatings(_edit(copy, change))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"modality": "maps"}, "`modality`"),
        ({"labels": "true"}, "`labels`"),
        ({"datasets": ()}, "`datasets`"),
        ({"datasets": "cocoa"}, "Did you mean 'coco'"),
    ],
)
def test_unknown_choices_are_refused(release, changes, message):
    with pytest.raises(ValueError, match=message):
        PastaRatings(release, **changes)


def test_nothing_of_a_modality_and_no_ratings_are_named(tmp_path):
    folder = write_pasta_release(tmp_path, explainers=("0", "1"), n_images=1)
    with pytest.raises(ValueError, match=r"of modality 'concepts' in .* all 4 are of another one"):
        PastaRatings(folder, modality="concepts")
    (folder / "human_annotations.json").write_text('{"records": []}')
    with pytest.raises(ValueError, match="to be a list of records"):
        PastaRatings(folder)
    (folder / "human_annotations.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"human_annotations\.json"):
        PastaRatings(folder)


def test_what_nobody_was_asked_is_not_missing(tmp_path):
    folder = write_pasta_release(tmp_path)
    records = read_records(folder)
    for record in records:
        record["Annotation"] = [{name: answers[name] for name in ("Q1", "Q2")} for answers in record["Annotation"]]
    write_records(folder, records)
    assert not any("missing" in note for note in PastaRatings(folder).notes)
