"""The page in a real browser without network: every figure is drawn and visible."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from html import unescape
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import pytest

from rehearsal.report.page import render
from rehearsal.results.run import Run
from tests.report.browser import Browser
from tests.soak import sample

Colour = tuple[int, int, int]


@dataclass(frozen=True)
class Png:
    """A decoded picture: ``rows[y]`` holds ``channels`` bytes a pixel."""

    width: int
    channels: int
    rows: list[bytes]

    def colours(self, left: float, top: float, right: float, bottom: float) -> Counter[Colour]:
        """Count the colours of a box, in pixels of the picture."""
        found: Counter[Colour] = Counter()
        for row in self.rows[int(top) : int(bottom)]:
            part = row[int(left) * self.channels : int(right) * self.channels]
            found.update(zip(*(part[c :: self.channels] for c in range(3)), strict=True))
        return found


def read(path: Path) -> Png:
    """Decode a PNG; raise ``ValueError`` for a kind that Chromium does not write."""
    data = path.read_bytes()
    width, height, depth, kind, _, _, interlaced = struct.unpack(">IIBBBBB", data[16:29])
    if depth != 8 or kind not in (2, 6) or interlaced:
        raise ValueError(
            f"{path}: depth {depth}, colour type {kind}, interlace {interlaced} is not read here"
        )
    packed, at = b"", 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] == b"IDAT":
            packed += data[at + 8 : at + 8 + length]
        at += 12 + length
    channels = 3 if kind == 2 else 4
    raw, stride = zlib.decompress(packed), width * channels
    rows, above = [], bytes(stride)
    for y in range(height):
        line = raw[y * (stride + 1) : (y + 1) * (stride + 1)]
        above = _unfiltered(line[0], line[1:], above, channels)
        rows.append(above)
    return Png(width, channels, rows)


def _unfiltered(kind: int, line: bytes, above: bytes, channels: int) -> bytes:
    if kind == 0 or (not any(line) and kind == 2):
        return line if kind == 0 else above
    row = bytearray(line)
    for i, value in enumerate(row):
        left = row[i - channels] if i >= channels else 0
        corner = above[i - channels] if i >= channels else 0
        guess = (0, left, above[i], (left + above[i]) // 2, 0)[kind]
        if kind == 4:
            distances = (abs(above[i] - corner), abs(left - corner), abs(left + above[i] - 2 * corner))
            guess = (left, above[i], corner)[distances.index(min(distances))]
        row[i] = (value + guess) & 255
    return bytes(row)


WIDTH, HEIGHT = 1400, 2500
CSS: Final = (files("rehearsal.report") / "page.css").read_text(encoding="utf-8")

# What must be seen of each picture, by the names of its colours.
SEEN: Final = {"capacity": ("spot", "on-demand", "lost", "announced"), "ready": ("ready-fill", "lost")}

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
  for (const figure of document.querySelectorAll("figure")) {
    const { left, top, right, bottom } = figure.querySelector(".plot").getBoundingClientRect();
    found.figures[figure.id] = {
      box: [left, top, right, bottom],
      pictures: figure.querySelectorAll("svg.main-svg").length,
      drawn: figure.querySelectorAll(".trace, .hm image").length,
    };
  }
  const ranges = () => [...document.querySelectorAll(".plot")].map((plot) => plot.layout.xaxis)
    .filter((axis) => axis.type === "date").map((axis) => axis.range.map(Number));
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


def probed(browser: Browser, page: Path, width: int) -> dict[str, Any]:
    copy = page.with_name(f"probed-{width}.html")
    copy.write_text(
        page.read_text(encoding="utf-8").replace("<title>", f"{PROBE}<title>", 1), encoding="utf-8"
    )
    found = re.search(r'<pre id="found">(.*?)</pre>', browser.dom(copy, width, HEIGHT), re.DOTALL)
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


@pytest.mark.parametrize("dark", sample([False, True], 2), ids=["light", "dark"])
def test_every_plot_is_seen_in_the_picture_of_the_page(
    dark: bool, browser: Browser, page: Path, found: dict[str, Any]
) -> None:
    taken = browser.picture(page, WIDTH, HEIGHT, page.with_name(f"{dark}.png"), dark=dark)
    picture, colours = read(taken), palette(int(dark))
    for name, wanted in SEEN.items():
        seen = picture.colours(*(edge / 2 for edge in found["figures"][name]["box"]))
        assert seen.most_common(1)[0][0] in (colours["card"], colours["spot"]), name
        for colour in wanted:
            assert sum(n for c, n in seen.items() if near(c, colours[colour])) >= 4, (name, colour)


def near(one: Colour, other: Colour) -> bool:
    return all(abs(a - b) <= 6 for a, b in zip(one, other, strict=True))


@pytest.mark.soak
def test_on_a_telephone_nothing_is_wider_than_the_screen(browser: Browser, page: Path) -> None:
    narrow = probed(browser, page, 500)  # the narrowest window that headless Chromium opens
    assert narrow["overflow"] <= 0
    assert all(figure["drawn"] >= 2 for figure in narrow["figures"].values())
