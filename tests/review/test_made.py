"""The made digests are what the program of today declares: a sample is made anew."""

from __future__ import annotations

import json

from gpu_spot.review import preview
from tests.review.making import MADE, declared, digest
from tests.review.requests import REQUESTS


def told(found: preview.Preview) -> list[tuple[object, ...]]:
    return sorted((one.op, one.type, one.name, one.changed, one.forcing) for one in found.changes)


def test_a_digest_made_anew_has_the_same_steps_and_differences() -> None:
    edit = REQUESTS["other-types-of-a-fleet"]["fleet"]
    anew = preview.read(
        "fleet", json.dumps(digest("fleet", declared("fleet", None), declared("fleet", edit)))
    )
    kept = preview.read("fleet", (MADE / "other-types-of-a-fleet" / "fleet.json").read_text("utf-8"))
    # The program registers side by side, so the order of steps is nobody's.
    assert told(anew) == told(kept)
