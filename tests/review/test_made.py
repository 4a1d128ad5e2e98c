"""Golden comments on pull requests whose previews are built from what the program declares."""

from __future__ import annotations

import pytest

from gpu_spot.review.comment import MARKER
from tests.review.making import GOLDEN, REQUESTS, render_comment
from tests.soak import sample


@pytest.mark.parametrize("request_name", sample(REQUESTS, 2))
def test_the_comment_on_a_pull_request_is_golden(request_name: str) -> None:
    text = render_comment(request_name)
    assert text == (GOLDEN / f"{request_name}.md").read_text("utf-8")
    assert text.startswith(MARKER)
    assert len(text) <= 65_536
