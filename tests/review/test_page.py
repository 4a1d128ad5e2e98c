"""The comment in a real browser: effects, cost and violations are visible without scrolling."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest
from markdown_it import MarkdownIt

from tests.report.browser import Browser
from tests.review.making import GOLDEN

_STYLE: Final = """
body { font: 14px/1.5 sans-serif; color: #1f2328; width: 860px; margin: 16px auto; }
table { border-collapse: collapse; }
th, td { border: 1px solid #d1d9e0; padding: 4px 10px; text-align: left; }
code { background: #eff1f3; padding: 1px 4px; border-radius: 4px; font-size: 12px; overflow-wrap: anywhere; }
pre { background: #f6f8fa; padding: 12px; overflow: auto; } pre code { padding: 0; }
blockquote { margin: 0 0 12px; padding: 0 12px; border-left: 4px solid; }
.caution { border-color: #cf222e; } .warning { border-color: #9a6700; } .note { border-color: #0969da; }
.title { text-transform: capitalize; font-weight: bold; }
.caution .title { color: #cf222e; } .warning .title { color: #9a6700; } .note .title { color: #0969da; }
"""
_ALERT: Final = re.compile(r"<blockquote>\s*<p>\[!(CAUTION|WARNING|NOTE)\]\s*")


def page(text: str, script: str = "") -> str:
    body = MarkdownIt("commonmark").enable("table").render(text)

    def alert(match: re.Match[str]) -> str:
        kind = match[1].lower()
        return f'<blockquote class="{kind}"><p class="title">{kind}</p><p>'

    head = f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>"
    return f"{head}{_ALERT.sub(alert, body)}<script>{script}</script>"


PROBE = """
const seen = (text) => {
  const found = [...document.querySelectorAll("p, li, td, th, summary")]
    .filter((one) => one.textContent.includes(text) && one.getBoundingClientRect().height > 0);
  return found.length ? Math.min(...found.map((one) => one.getBoundingClientRect().bottom)) : -1;
};
const root = document.documentElement;
document.body.dataset.measured = JSON.stringify({
  seen: Object.fromEntries(WORDS.map((one) => [one, seen(one)])),
  overflow: root.scrollWidth - root.clientWidth,
  folded: [...document.querySelectorAll("details")].filter((one) => !one.open).length,
});
"""
VISIBLE_TEXTS = {
    "other-types-of-a-fleet": [
        "8 workers end in fleet (inference).",
        "+$412 a month",
        "8 workers of the fleet are terminated",
    ],
    "one-pool-without-budget": ["is violated in prod", "2 violated", "Budget budget is deleted"],
    "keep-logs-longer": ["No running worker stops.", "+$412 a month", "3 update"],
    "own-key": ["Data is lost in prod.", "its files are lost"],
}


@pytest.mark.parametrize("request_name", VISIBLE_TEXTS)
def test_important_facts_are_visible_without_scrolling(
    request_name: str, tmp_path: Path, require_program: Callable[..., str]
) -> None:
    program = require_program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    text = (GOLDEN / f"{request_name}.md").read_text("utf-8")
    file = tmp_path / "comment.html"
    file.write_text(page(text, f"const WORDS = {json.dumps(VISIBLE_TEXTS[request_name])};{PROBE}"), "utf-8")
    dom = Browser(program, tmp_path / "profile").dom(file, 960, 720)
    match = re.search(r'data-measured="([^"]*)"', dom)
    assert match
    measured: dict[str, Any] = json.loads(unescape(match[1]))
    assert all(0 < bottom <= 720 for bottom in measured["seen"].values()), measured
    assert measured["overflow"] <= 0
    assert measured["folded"] == text.count("<details>")
