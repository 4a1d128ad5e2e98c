from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from rehearsal.report import series
from rehearsal.report.picture import LIMIT, write_plot
from rehearsal.report.summary import headline
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise
from tests.report.rehearsal import rehearse

SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_is_svg_that_shows_the_run_and_loads_nothing(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "plot.svg"
    write_plot(run, target)
    text = target.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    paths = {path.get("class"): path.get("d", "") for path in root.iter(f"{SVG}path")}
    assert headline(summarise(run)) in {element.text for element in root.iter(f"{SVG}text")}
    assert paths["lost"].count("M") == len(series.shortages(run))
    for name in ("spot", "on-demand", "ready"):
        assert paths[name].count("H") == len(series.steps(run)) - 1
    assert text.count("http") == 1  # the name of the format


@pytest.mark.soak
def test_the_picture_of_a_long_run_stays_small(tmp_path: Path) -> None:
    long = rehearse(8 * 24, flips=0.3)
    assert series.stretch(long, LIMIT) > 1
    write_plot(long, tmp_path / "plot.svg")
    assert (tmp_path / "plot.svg").stat().st_size < 150_000
