"""The page in a real browser without network: every figure is drawn and visible."""

from __future__ import annotations

import json
import re
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest

from rehearsal.report.page import render
from rehearsal.results.run import Run
from tests.report.browser import Browser

Colour = tuple[int, int, int]
WIDTH, HEIGHT = 1400, 2500
CSS: Final = (files("rehearsal.report") / "page.css").read_text(encoding="utf-8")

# What must be seen of each picture, by the names of its colours.
SEEN: Final = {
    "capacity": ("spot", "on-demand", "lost", "announced"),
    "ready": ("ready-fill", "lost"),
    "interruption": ("spot", "on-demand", "ready"),
}

# Put before all else on a copy of the page: notes what goes wrong and, once all is drawn, what is there.
PROBE: Final = """
<script>
const problems = [];
addEventListener("error", (event) => problems.push(String(event.message)));
addEventListener("unhandledrejection", (event) => problems.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => problems.push(`policy: ${event.blockedURI}`));
addEventListener("load", async () => {
  const root = document.documentElement;
  const pause = () => new Promise((done) => setTimeout(done, 50));
  while (!root.dataset.drawn) await pause();
  const found = { figures: {}, overflow: root.scrollWidth - root.clientWidth };
  const numbers = (colour) => colour.match(/\\d+/g)?.map(Number);
  const painted = (node) => ["fill", "stroke"].map((name) => numbers(getComputedStyle(node)[name]));
  const isSeen = (node) => node.getBoundingClientRect().width > 0;
  for (const figure of document.querySelectorAll("figure")) {
    const seen = [...figure.querySelectorAll(".plot svg path")].filter(isSeen);
    found.figures[figure.id] = {
      colours: seen.flatMap(painted).filter(Boolean),
      pictures: figure.querySelectorAll(".plot svg").length,
      drawn: figure.querySelectorAll(".trace").length,
    };
  }
  const ranges = () => [...document.querySelectorAll(".plot")]
    .filter((plot) => plot.figure.axis === "time").map((plot) => plot.range);
  found.whole = ranges();
  document.querySelector("#decisions button.time").click();
  for (let i = 0; i < 20; i++) await pause();
  found.ranges = ranges();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape", bubbles: true }));
  for (let i = 0; i < 20; i++) await pause();
  found.returned = ranges();
  found.clicked = Number(document.querySelector("#decisions button.time").value);
  const search = document.getElementById("search");
  search.value = "RELEASE";
  search.dispatchEvent(new Event("input"));
  const rows = [...document.querySelectorAll("#decisions tbody tr")];
  found.matching = rows.filter((row) => row.textContent.includes("release")).length;
  found.visible = rows.filter((row) => row.offsetParent).length;
  found.requests = performance.getEntriesByType("resource").map((entry) => entry.name)
    .filter((name) => !/^(data|blob):/.test(name));
  found.problems = problems;
  const out = document.createElement("pre");
  out.id = "found";
  out.textContent = JSON.stringify(found);
  document.body.append(out);
});
</script>
"""


@pytest.fixture(scope="module")
def page(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(render(run), encoding="utf-8")
    return path


def probed(browser: Browser, page: Path, width: int, *, dark: bool = False) -> dict[str, Any]:
    copy = page.with_name(f"probed-{width}-{dark}.html")
    copy.write_text(
        page.read_text(encoding="utf-8").replace("<title>", f"{PROBE}<title>", 1), encoding="utf-8"
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', browser.dom(copy, width, HEIGHT, dark=dark), re.DOTALL)
    assert found, "the page did not finish drawing"
    result: dict[str, Any] = json.loads(unescape(found[1]))
    return result


@pytest.fixture(scope="module")
def found(browser: Browser, page: Path) -> dict[str, Any]:
    return probed(browser, page, WIDTH)


def test_every_plot_is_drawn_without_an_error_or_a_request(found: dict[str, Any]) -> None:
    assert found["problems"] == []
    assert found["requests"] == []
    assert list(found["figures"]) == list(SEEN)
    for name, figure in found["figures"].items():
        assert figure["pictures"] >= 1, name
        assert figure["drawn"] >= 2, name


def test_a_click_on_a_decision_zooms_every_timeline_to_it(found: dict[str, Any]) -> None:
    hour = 3_600_000
    assert found["ranges"] == [[found["clicked"] - hour, found["clicked"] + hour]] * 2


def test_the_keyboard_returns_from_a_zoom(found: dict[str, Any]) -> None:
    assert found["returned"] == found["whole"] != found["ranges"]


def test_the_search_leaves_the_matching_decisions(found: dict[str, Any]) -> None:
    assert 0 < found["visible"] == found["matching"]


def palette(scheme: int) -> dict[str, Colour]:
    root = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)[scheme]
    named = re.findall(r"--([\w-]+): #(\w\w)(\w\w)(\w\w);", root)
    return {name: (int(r, 16), int(g, 16), int(b, 16)) for name, r, g, b in named}


def test_every_plot_shows_its_colours_in_either_scheme(browser: Browser, page: Path) -> None:
    for dark in (False, True):
        drawn, colours = probed(browser, page, WIDTH, dark=dark)["figures"], palette(int(dark))
        for name, wanted in SEEN.items():
            assert {tuple(colour) for colour in drawn[name]["colours"]} >= {colours[one] for one in wanted}, (
                name
            )


@pytest.mark.soak
def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, page: Path) -> None:
    narrow = probed(browser, page, 500)  # the narrowest window that headless Chromium opens
    assert narrow["overflow"] <= 0
    assert all(figure["drawn"] >= 2 for figure in narrow["figures"].values())
