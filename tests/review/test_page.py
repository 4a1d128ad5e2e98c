"""The comment in a real browser: what ends, costs and is forbidden is seen without scrolling."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tests.report.browser import Browser
from tests.review.making import GOLDEN
from tests.review.rendering import page

PROBE = """
const seen = (text) => {
  const found = [...document.querySelectorAll("p, li, td, th, summary")]
    .filter((one) => one.textContent.includes(text) && one.getBoundingClientRect().height > 0);
  return found.length ? Math.min(...found.map((one) => one.getBoundingClientRect().bottom)) : -1;
};
const root = document.documentElement;
document.body.dataset.told = JSON.stringify({
  seen: Object.fromEntries(WORDS.map((one) => [one, seen(one)])),
  overflow: root.scrollWidth - root.clientWidth,
  folded: [...document.querySelectorAll("details")].filter((one) => !one.open).length,
});
"""
SEEN = {
    "other-types-of-a-fleet": ["Workers end in fleet", "+$412 a month", "8 workers of the fleet end"],
    "one-pool-without-budget": ["forbids this in prod", "2 violated", "GPUs without a budget"],
    "keep-logs-longer": ["All workers stay.", "+$412 a month", "3 update"],
    "own-key": ["Something is lost in prod", "its files are lost"],
}


@pytest.mark.parametrize("request_name", SEEN)
def test_what_matters_is_seen_without_scrolling(
    request_name: str, tmp_path: Path, require_program: Callable[..., str]
) -> None:
    program = require_program("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    text = (GOLDEN / f"{request_name}.md").read_text("utf-8")
    file = tmp_path / "comment.html"
    file.write_text(page(text, f"const WORDS = {json.dumps(SEEN[request_name])};{PROBE}"), "utf-8")
    dom = Browser(program, tmp_path / "profile").dom(file, 960, 720)
    match = re.search(r'data-told="([^"]*)"', dom)
    assert match
    told: dict[str, Any] = json.loads(unescape(match[1]))
    assert all(0 < bottom <= 720 for bottom in told["seen"].values()), told
    assert told["overflow"] <= 0
    assert told["folded"] == text.count("<details>")
