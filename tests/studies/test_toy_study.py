"""A fourth study, to show what one takes: a metric, a table, a chart, findings and a page over the shared floor."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import typer
from typer.testing import CliRunner

from captum_concepts._support.whole_folder import WORK
from html_pages import HTMLPage
from kills import contents
from quantus_concepts.functional.intervals import distribution, interval
from quantus_concepts.studies._kit.charts import Bars, Chart
from quantus_concepts.studies._kit.command import RunOptions, command, option
from quantus_concepts.studies._kit.findings import said, with_interval
from quantus_concepts.studies._kit.page import Page, Section
from quantus_concepts.studies._kit.results import against_control, one, over_seeds, pick
from quantus_concepts.studies._kit.run import Study
from quantus_concepts.studies._kit.tables import Table

RANDOM = "random"


# The study itself, some forty lines.
@dataclass(frozen=True, kw_only=True)
class ToyOptions(RunOptions):
    """Ask whether a coin that is said to be biased falls on its head more often than fair ones."""

    coins: str = option("biased", "Which coins.", panel="Data", choices=("biased", "fair"))
    n_throws: int = option(60, "Throws of each coin.", panel="Data", bounds=(2, 1000))
    seeds: int = option(2, "How many seeds.", panel="Run", bounds=(1, 9))


def collect(options, run):
    rows = []
    for seed in range(options.seed, options.seed + options.seeds):
        run.say(f"Seed {seed}")
        threshold = {"biased": 0.8, "fair": 0.5}[options.coins]

        def throw(_, seed=seed, threshold=threshold):
            random = torch.Generator().manual_seed(seed)
            ours = torch.rand(2, options.n_throws, generator=random) < threshold
            return {
                "ours": ours.double(),
                "fair": (torch.rand(30, 2, options.n_throws, generator=random) < 0.5).double(),
            }

        thrown = run.kept(f"coins {seed}", {"seed": seed, "n": options.n_throws, "coins": options.coins}, throw)
        for place, coin in enumerate(("penny", "dime")):
            scores = thrown["ours"][place].numpy()
            ends = dict(zip(("low", "high"), interval(scores), strict=True))
            rows.append({"model": "ours", "coin": coin, "value": scores.mean(), "n": scores.size, "seed": seed} | ends)
            ends = dict(zip(("value", "low", "high"), distribution(thrown["fair"][:, place].mean(1)), strict=True))
            rows.append({"model": RANDOM, "coin": coin, "n": 30, "seed": seed} | ends)
    return pd.DataFrame(rows)[["model", "coin", "value", "low", "high", "n", "seed"]]


def page(frame, run):
    joined = over_seeds(frame, lambda _: (0, 1), controls=[RANDOM])
    joined["mark"] = against_control(joined, RANDOM)
    table = Table("Heads", "Share of throws.", joined, ["coin"], ["model"], key="Small numbers are 95 % intervals.")
    chart = Chart("heads", "Heads by coin.", Bars(frame=joined, groups="coin", series="model", band=RANDOM, scale=100))
    penny = one(joined, model="ours", coin="penny")
    findings = said(f"The penny falls on its head in {with_interval(penny)} of the throws.")
    return Page("Coins", findings, [Section("Heads", "Do they?", [table], [chart])], main=[table])


TOY = Study("toy", collect, page)


@pytest.fixture
def app():
    typer_app = typer.Typer()
    typer_app.command()(command(ToyOptions, TOY))
    return typer_app


def test_options_are_declared_once(app):
    help_text = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100", "TERM": "dumb"}).output
    for said_there in (
        "--coins",
        "--n-throws",
        "--device",
        "--overwrite",
        "--no-progress",
        "Which coins.",
        "Ask whether",
    ):
        assert said_there in help_text
    assert "--no-overwrite" not in help_text


@pytest.mark.parametrize(
    ("options", "message"),
    [({"n_throws": 1}, "--n-throws"), ({"coins": "bent"}, "--coins"), ({"seed": -1}, "--seed")],
)
def test_bounds_hold_for_a_command_and_for_a_call(options, message):
    with pytest.raises(ValueError, match=message):
        ToyOptions(**options)


def test_from_options_to_a_page(app, tmp_path):
    out = tmp_path / "toy"
    result = CliRunner().invoke(app, ["--out", str(out), "--no-progress"])
    assert result.exit_code == 0, result.output
    assert result.output.strip().endswith(str(out))
    assert "Heads" in result.output
    frame = pd.read_csv(out / "results.csv")
    assert len(frame) == 8
    assert pick(frame, model="ours")["value"].between(0.6, 1).all()
    text = (out / "report.html").read_text()
    assert {"table", "figure", "dl"} <= set(HTMLPage(text).tags)
    assert "The penny falls on its head in" in text
    assert (out / "figures" / "heads.png").stat().st_size > 1000


def test_an_interrupted_run_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    options = ToyOptions(out=tmp_path / "toy", progress=False)
    calls = []

    def interrupted(options, run):
        calls.append(run.kept("expensive", {"seed": 0}, lambda _: {"x": torch.arange(3)})["x"].tolist())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Study("toy", interrupted, page)(options)
    assert f"--out {options.out}" in capsys.readouterr().err

    def goes_on(options, run):
        tensors = run.kept("expensive", {"seed": 0}, lambda _: pytest.fail("made again"))
        assert tensors["x"].tolist() == calls[0]
        return collect(options, run)

    Study("toy", goes_on, page)(options)
    uninterrupted = pd.read_csv(options.out / "results.csv")
    pd.testing.assert_frame_equal(
        uninterrupted, pd.read_csv(TOY(ToyOptions(out=tmp_path / "b", progress=False)) / "results.csv")
    )
    with pytest.raises(ValueError, match="--overwrite"):
        TOY(options)
    assert np.isfinite(uninterrupted["value"]).all()


def test_another_command_does_not_go_on_in_an_interrupted_folder(tmp_path):
    def interrupted(options, run):
        run.kept("expensive", {}, lambda _: {"x": torch.zeros(1)})
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Study("other", interrupted, page)(ToyOptions(out=tmp_path / "toy", progress=False))
    with pytest.raises(ValueError, match=r"interrupted run with other settings .*other there, toy here"):
        TOY(ToyOptions(out=tmp_path / "toy", progress=False))


def test_the_table_is_on_the_screen_and_the_numbers_are_there_where_a_figure_cannot_be_written(
    tmp_path, capsys, monkeypatch
):

    options = ToyOptions(out=tmp_path / "run", progress=False)
    write_bytes = Path.write_bytes

    def full(self, data):
        if "figures" in self.parts:
            raise OSError(28, "No space left on device")
        return write_bytes(self, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match=r"figures/heads.png cannot be written \(No space.*new: results.csv"):
            TOY(options)
    assert "Heads" in capsys.readouterr().out
    assert (options.out / WORK / "new" / "results.csv").stat().st_size > 100
    TOY(options)
    assert "Going on with the run" in capsys.readouterr().err
    undisturbed = TOY(ToyOptions(out=tmp_path / "other", progress=False))
    broken, complete = (contents(folder) for folder in (options.out, undisturbed))
    del broken["report.html"], complete["report.html"]  # the time stands in it
    assert broken == complete
