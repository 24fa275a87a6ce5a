"""The commands `substitute generate` and `substitute filter`, on tiny models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

pytest.importorskip("diffusers")
pytest.importorskip("transformers")

from fixtures_commands import ATTRIBUTES, BIRDS, write_generated
from quantus_concepts.diffusion import TieSchedule, tied_pair
from quantus_concepts.studies._kit import image_set
from quantus_concepts.studies.app import main
from quantus_concepts.studies.substitute import filtering
from quantus_concepts.studies.substitute.filtering import Answer, question_about
from quantus_concepts.studies.substitute.generation import image_seed
from quantus_concepts.studies.substitute.pairs import Pair, choose_pairs, options_of, paper_texts, read_pairs
from tiny_pipelines import tiny_stable_diffusion, write_letter_model

JAY, BLACK = "Blue_Jay", "has_crown_color--black"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_stable_diffusion().save_pretrained(folder)
    return folder


def generate_command(model: Path, out: Path, *more: str) -> list[str]:
    few = ["--birds", JAY, "--attributes", BLACK, "--steps", "2", "--image-size", "16", "--n-per-pair", "3"]
    command = ["substitute", "generate", "--model", str(model), "--out", str(out)]
    return [*command, *few, "--device", "cpu", "--no-progress", *more]


def pixels(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path))


def test_the_papers_pairs() -> None:
    pairs = choose_pairs()
    assert (len(paper_texts()["birds"]), len(paper_texts()["attributes"]), len(pairs)) == (33, 33, 33 * 33)
    assert len({pair.name for pair in pairs}) == len(pairs)
    assert len({pair.group for pair in pairs}) == 16
    assert all(pair.option in options_of(pair.group) for pair in pairs)
    # As Appendix D has them.
    by_name = {(pair.bird, pair.attribute): pair for pair in pairs}
    assert by_name["European_Goldfinch", BLACK].prompt == (
        "A photo of a European Goldfinch with black colored feathers on the crown of its head"
    )
    solid = by_name["Western_Grebe", "has_tail_pattern--solid"]
    assert solid.prompt == "A photo of a Western Grebe with a solid tail like a Gray Catbird"
    assert solid.guidance_prompt == "A photo of a Gray Catbird with a solid tail"
    needle = by_name[JAY, "has_bill_shape--needle"]
    assert needle.prompt == "A photo of a Blue Jay with the body of a Blue Jay and a beak like a Hummingbird"
    assert needle.guidance_prompt == "A photo of a Hummingbird"


def test_what_is_generated_is_the_reference_of_a_tied_pair(model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert main(generate_command(model, out, "--keep-guides", "--batch-size", "2", "--t-1", "0.5", "--rate", "1")) == 0
    folder = out / f"{JAY}--{BLACK}"
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    images = [f"{number:05d}.png" for number in range(3)]
    assert names == [*images, *(f"guides/{name}" for name in images), "pair.json"]
    (pair,) = choose_pairs([JAY], [BLACK])
    assert Pair(**json.loads((folder / "pair.json").read_text())) == pair
    images_of_pair = tied_pair(
        tiny_stable_diffusion(),
        pair.prompt,
        pair.guidance_prompt,
        TieSchedule(0.5, 0.8, 1.0),
        generator=image_seed(0, pair, 2),
        guidance_scale=3.5,
        num_inference_steps=2,
        height=16,
        width=16,
    )
    np.testing.assert_array_equal(pixels(folder / images[2]), np.asarray(images_of_pair.reference[0]))
    np.testing.assert_array_equal(pixels(folder / "guides" / images[2]), np.asarray(images_of_pair.guide[0]))


def test_an_interrupted_generation_goes_on(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    uninterrupted, out = tmp_path / "whole", tmp_path / "out"
    assert main(generate_command(model, uninterrupted)) == 0
    folder = f"{JAY}--{BLACK}"
    write, count = image_set.write_atomically, iter(range(9))

    def killed(path: Path) -> Any:
        if path.suffix == ".png" and next(count) == 1:
            raise KeyboardInterrupt
        return write(path)

    with monkeypatch.context() as patch:
        patch.setattr(image_set, "write_atomically", killed)
        assert main(generate_command(model, out)) == 130
    assert [path.name for path in (out / folder).glob("*.png")] == ["00000.png"]
    first = (out / folder / "00000.png").stat()
    assert main(generate_command(model, out, "--batch-size", "1")) == 0
    assert "1 were there already" in capsys.readouterr().out
    assert (out / folder / "00000.png").stat() == first
    for number in range(3):
        name = f"{number:05d}.png"
        np.testing.assert_array_equal(pixels(out / folder / name), pixels(uninterrupted / folder / name))
    assert main(generate_command(model, out, "--seed", "1")) == 2
    assert "--seed: 0 there, 1 here" in capsys.readouterr().err


def filter_command(generated: Path, model: Path, out: Path, *more: str) -> list[str]:
    command = ["substitute", "filter", "--generated", str(generated), "--model", str(model), "--out", str(out)]
    return [*command, "--device", "cpu", "--no-progress", *more]


def test_letters_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated, out = write_generated(tmp_path / "generated"), tmp_path / "out"
    # "needle" is the fourth of the bills, and "purple" of the colours.
    model = write_letter_model(tmp_path / "model", "D")
    assert main(filter_command(generated, model, out, "--keep-share", "0.6", "--batch-size", "2")) == 0
    table = pd.read_csv(out / "manifest.csv", keep_default_na=False)
    assert len(table) == 12
    crown = table["attribute"] == BLACK
    assert set(table["answer"][crown]) == {"purple"}
    assert set(table["answer"][~crown]) == {"needle"}
    assert table.groupby(crown)["kept"].sum().tolist() == [4, 0]
    assert set(table["decision"][~crown]) == {"kept", "dropped: others are surer"}
    assert ((table["probability"] > 1 / 40) & (table["probability"] <= 1)).all()
    assert "2 of 4 pairs are left, 4 images" in capsys.readouterr().out


def test_the_batch_changes_no_answer(tmp_path: Path) -> None:
    from quantus_concepts.studies.substitute.filtering import load_letter_model

    model = load_letter_model(str(write_letter_model(tmp_path / "model")), torch.float32, torch.device("cpu"))
    images = [Image.new("RGB", (20 + 9 * k, 16), (200 * k, 90, 10)) for k in range(2)]
    together = model.answer(images, "has_eye_color")
    one_by_one = [model.answer([image], "has_eye_color")[0] for image in images]
    assert [answer.text for answer in together] == [answer.text for answer in one_by_one]
    assert [answer.probability for answer in together] == pytest.approx([answer.probability for answer in one_by_one])


def test_the_question_is_the_papers() -> None:
    text, choices = question_about("has_breast_pattern")
    assert choices == ["solid", "spotted", "striped", "multi-colored", "Other"]
    assert text.startswith("What type of breast pattern does this bird have? Please pick between\nA) solid\n")
    assert "\nE) Other\n" in text


def test_a_model_without_letters_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated, model = write_generated(tmp_path / "generated"), write_letter_model(tmp_path / "model", "", "BCD")
    assert main(filter_command(generated, model, tmp_path / "out")) == 2
    assert "no token 'A'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_what_cannot_filter_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"`--model` to be a model of transformers .* cannot be loaded"):
        filtering.load_letter_model(str(tmp_path), torch.float32, torch.device("cpu"))
    table = pd.DataFrame([("a.png", "Sure!", 0.5, False)], columns=filtering.ANSWERS)
    with pytest.raises(ValueError, match="letter of a choice but it did on none of 2 images, on the last with 'Sure!'"):
        filtering._check_letters([table, table])
    file = write_generated(tmp_path / "generated") / f"{JAY}--{BLACK}" / "pair.json"
    file.write_text('{"bird": "Blue_Jay"}')
    with pytest.raises(ValueError, match=r"pair\.json is not what `substitute generate` writes"):
        read_pairs(tmp_path / "generated")


def test_an_interrupted_filter_asks_nothing_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generated, out = write_generated(tmp_path / "generated"), tmp_path / "out"
    groups: list[str] = []

    class Model:
        def answer(self, images: list[Any], group: str) -> list[Answer]:
            groups.append(group)
            if len(groups) == 3:
                raise KeyboardInterrupt
            return [Answer(options_of(group)[3], 0.9 - k / 10, True) for k in range(len(images))]

    monkeypatch.setattr(filtering, "load_letter_model", lambda *_: Model())
    command = filter_command(generated, tmp_path, out)
    assert main(command) == 130
    assert not (out / "manifest.csv").exists()
    assert main(command) == 0
    # Two pairs were kept each time.
    assert len(groups) == 2 + 1 + 2
    table = pd.read_csv(out / "manifest.csv")
    needles = table[table["attribute"] == ATTRIBUTES[1]]
    assert needles["image"][needles["kept"]].tolist() == [f"{bird}--{ATTRIBUTES[1]}/00000.png" for bird in BIRDS]


def test_what_is_decided() -> None:
    pair = choose_pairs([JAY], [BLACK])[0]
    answers = pd.DataFrame(
        {
            "image": [f"{k}.png" for k in range(6)],
            "answer": ["black", "black", "white", "black", "Other", "zzz"],
            "probability": [0.5, 0.9, 0.99, 0.9, 0.8, 0.7],
            "is_choice": [True] * 5 + [False],
        }
    )
    table = filtering.decide(pair, answers, 0.34)
    assert table["kept"].tolist() == [False, True, False, True, False, False]
    assert [None if pd.isna(rank) else rank for rank in table["rank"]] == [3, 1, None, 2, None, None]
    assert table["decision"].tolist() == [
        "dropped: others are surer",
        "kept",
        "dropped: answered otherwise",
        "kept",
        "dropped: answered otherwise",
        "dropped: answered with no letter",
    ]
    few = filtering.decide(pair, answers, 0.7)
    assert not few["kept"].any()
    assert (few["decision"] == "dropped: its pair has too few").sum() == 3
