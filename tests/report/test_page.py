from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from importlib.resources import files
from typing import Any

import pytest

from gpu_spot.status.decisions import DecisionLine
from gpu_spot.text import number, percent
from rehearsal.report.figures import figures, interruption
from rehearsal.report.page import DECISIONS, noteworthy, render
from rehearsal.report.series import typical_interruption
from rehearsal.report.summary import dollars
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise
from tests.report.rehearsal import rehearse

CSS = (files("rehearsal.report") / "page.css").read_text(encoding="utf-8")


class Page(HTMLParser):
    """The elements of a page, and the text of those with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, str] = {}
        self._inside: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = dict(attrs).get("id")

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.texts[self._inside] = self.texts.get(self._inside, "") + data

    def handle_endtag(self, tag: str) -> None:
        self._inside = None


@pytest.fixture(scope="module")
def page(run: Run) -> Page:
    return Page(render(run))


def test_the_numbers_of_the_page_are_those_of_the_summary(page: Page, run: Run) -> None:
    summary = summarise(run)
    values = {str(a["id"]).removeprefix("total-"): a["value"] for tag, a in page.elements if tag == "data"}
    assert values == {key: repr(summary[key]) for key in values}
    assert set(values) >= {"availability", "cost_vs_on_demand", "interruptions", "on_demand_starts"}
    assert page.texts["total-availability"] == percent(summary["availability"], 2)
    assert page.texts["total-cost_vs_on_demand"] == percent(summary["cost_vs_on_demand"])
    assert page.texts["total-interruptions"] == number(summary["interruptions"])
    assert json.loads(page.texts["summary"]) == summary


def test_the_page_names_no_resource_outside_itself(page: Page) -> None:
    assert not [a for tag, a in page.elements if tag in {"link", "iframe", "img", "object"}]
    assert not [a for _, a in page.elements if {"src", "href"} & set(a)]
    policy = next(a for tag, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert str(policy["content"]).startswith("default-src 'none';")


def test_every_picture_stands_in_a_figure_with_words_for_it(page: Page, run: Run) -> None:
    drawn = figures(run)
    assert [a["id"] for tag, a in page.elements if tag == "figure"] == [figure.id for figure in drawn]
    spoken = [a["aria-label"] for tag, a in page.elements if a.get("class") == "plot"]
    assert spoken == [figure.alt for figure in drawn]


def test_no_two_elements_share_an_id(page: Page) -> None:
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert sorted(ids) == sorted(set(ids))


def test_names_from_outside_cannot_break_out_of_the_page(run: Run) -> None:
    hostile = "</script><script>alert(1)</script>"
    decision = DecisionLine(run.start, hostile, (hostile,), hostile)
    pools = dict.fromkeys(run.pools, hostile)
    text = render(replace(run, group=hostile, stack=hostile, decisions=(decision,), pools=pools))
    assert "alert(1)</script>" not in text
    assert hostile in json.loads(Page(text).texts["summary"])["group"]


def test_the_table_holds_a_bounded_number_of_decisions_and_those_around_shortages(run: Run) -> None:
    acting = [d for d in run.decisions if d.actions]
    assert noteworthy(run) == acting[-DECISIONS:] or len(acting) > DECISIONS
    first = min(acting, key=lambda d: d.at)
    many = tuple(
        DecisionLine(run.at(run.ticks) + index, "g", ("late and calm",), "") for index in range(2 * DECISIONS)
    )
    shown = noteworthy(replace(run, decisions=(*acting, *many)))
    assert len(shown) == DECISIONS
    assert shown == sorted(shown, key=lambda d: d.at)
    pressing = [d for d in shown if d.actions != ("late and calm",)]
    assert pressing
    assert first not in shown or first in pressing


def colours(value: Any) -> set[str]:
    return set(re.findall(r"--[\w-]+", json.dumps(value)))


def test_a_page_without_its_data_is_small(run: Run) -> None:
    assert len(render(run).encode()) < 200_000


def test_a_run_without_an_interruption_draws_none() -> None:
    assert [figure.id for figure in figures(rehearse(2, flips=0.0, notice=1.0))] == ["capacity", "ready"]


def test_the_interruption_is_drawn_from_the_replays_own_events(run: Run) -> None:
    shown = typical_interruption(run)
    assert shown is not None
    happened = {(h.kind, h.tick) for h in run.ledger.happenings}
    assert happened >= {
        ("notice", shown.notice),
        ("interruption", shown.ended),
        ("ready-on-demand", shown.on_demand_ready),
        ("ready-spot", shown.spot_ready),
    }
    times = next(layer["x"] for layer in interruption(run, shown).layers if layer["kind"] == "moments")
    assert times[0] == 0 < times[1] <= times[-1] == 60 * (shown.spot_ready - shown.notice)


def test_dollars_are_shares_at_the_list_price_and_absent_without_one(run: Run) -> None:
    hours = run.target * run.ledger.counted / 60
    assert f"${0.8 * hours * run.ledger.cost:,.2f} instead of ${0.8 * hours:,.2f}" in render(run)
    assert "$" not in dollars(summarise(replace(run, hour_price=None)))


def test_every_colour_is_defined_in_light_and_in_dark(run: Run) -> None:
    light, dark, *_ = re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    used = set().union(*(colours(f.layers) for f in figures(run)))
    for scheme in (light, dark):
        assert used <= set(re.findall(r"(--[\w-]+):", scheme))
