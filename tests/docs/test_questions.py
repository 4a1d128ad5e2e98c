"""Twelve questions of a new user: a page two clicks from the README has a heading that answers each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_repository import ROOT

QUESTIONS = {
    "What does it cost without any work?": ("docs/forecast.md", "What a change will cost"),
    "Has it run on AWS?": ("docs/verified.md", "What only AWS can tell"),
    "Why not Karpenter, SkyPilot or SageMaker?": ("docs/compared.md", "When to take something else"),
    "How do I try it without an account?": ("docs/quick-start.md", "1. See it work"),
    "How do I serve a model with vLLM?": ("docs/guides.md", "vLLM on one GPU or several"),
    "How do workers read my queue?": ("docs/guides.md", "Workers behind an existing queue"),
    "How does a job run each night?": ("docs/guides.md", "A fine-tune every night"),
    "What must my training script do?": ("docs/contract.md", "Saving"),
    "How does a container get a secret?": ("docs/stack-file.md", "What a container gets"),
    "Does it use my VPC and key?": ("docs/operations.md", "Network and key"),
    "Why is no worker ready?": ("docs/troubleshooting.md", "Capacity"),
    "How do I take it down?": ("docs/guides.md", "Taking everything down"),
}


def linked(page: Path) -> set[Path]:
    """Return the pages to which a page links."""
    links = re.findall(r"\]\(([^)#: ]+\.md)[^)]*\)", page.read_text("utf-8"))
    return {(page.parent / link).resolve() for link in links}


@pytest.mark.parametrize(("name", "heading"), QUESTIONS.values(), ids=QUESTIONS)
def test_a_question_of_a_new_user_is_answered_two_clicks_from_the_readme(name: str, heading: str) -> None:
    first = linked(ROOT / "README.md")
    assert ROOT / name in first | {page for one in first if one.is_file() for page in linked(one)}
    assert re.search(rf"^#+ {re.escape(heading)}$", (ROOT / name).read_text("utf-8"), re.M)


def test_a_how_to_has_at_most_700_words() -> None:
    guides = (ROOT / "docs" / "guides.md").read_text("utf-8").split("\n## ")[1:]
    assert [guide.splitlines()[0] for guide in guides if len(guide.split()) > 700] == []
