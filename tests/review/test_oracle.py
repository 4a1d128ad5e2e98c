"""A sample of the changes that ``make bench-review`` judges: the verdict is never better than the truth."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import pytest
from pulumi import RunError

from gpu_spot.review.environments import review_environments
from gpu_spot.review.preview import read
from gpu_spot.review.verdict import verdict_of
from tests.infra.declared import Run, edited_stack, shipped
from tests.policy.forms import fingerprint
from tests.policy.test_shipped import check
from tests.review.changes import Change, changes
from tests.review.making import digest
from tests.review.oracle import Truth, is_false_alarm, is_reassuring, second_axis_truth, truth

_SENTINEL: Final = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


@dataclass(frozen=True)
class Judged:
    """A change, the truth, the verdict, and the verdict if no changed value is known at the preview."""

    change: Change
    fact: Truth
    verdict: str
    verdict_without_values: str
    second_axis: str = ""
    directions: frozenset[str] = frozenset()
    stopped_by: frozenset[str] = frozenset()
    """Mandatory policies that the stack violates after the change."""
    declares: str = ""


def declared_unless_refused(stack: str, edit: Callable[[dict[str, Any]], None]) -> Run | None:
    """Return what an edited sample stack declares; None if the schema or the program refuses it."""
    try:
        return edited_stack(edit, stack)
    except Exception as error:  # the program's own errors of many kinds
        if "SettingsError" in repr(error) or isinstance(error, (ValueError, KeyError, RunError)):
            return None
        raise


def judge(change: Change) -> Judged | None:
    """Judge one change; None if nothing changes, or the program refuses it."""
    after = declared_unless_refused(change.stack, change.apply)
    if after is None:
        return None
    before = shipped(change.stack)
    steps = digest(change.stack, before, after)
    if all(step["op"] == "same" for step in steps["steps"]):
        return None
    fact = truth(change, before, after)
    verdict, hidden = _verdict(change.stack, steps), _verdict(change.stack, _hidden(steps))
    [reviewed] = review_environments([read(change.stack, json.dumps(steps))], {})
    directions = frozenset(effect.direction for effect in reviewed.meaning.effects if effect.direction)
    stopped_by = frozenset(one.rule for one in check(after) if one.level == "mandatory")
    second_axis = second_axis_truth(change, before, after)
    return Judged(
        change, fact, verdict, hidden, second_axis, directions, stopped_by, declares=fingerprint(after)
    )


def _verdict(stack: str, steps: dict[str, Any]) -> str:
    return verdict_of(review_environments([read(stack, json.dumps(steps))], {})).outcome


def _hidden(steps: dict[str, Any]) -> dict[str, Any]:
    hidden: dict[str, Any] = json.loads(json.dumps(steps))
    for step in hidden["steps"]:
        if step["op"] in ("update", "replace"):
            for key in step.get("diffReasons", ()):
                step["newState"]["inputs"][key] = _SENTINEL
    return hidden


SAMPLE = (
    "dev network.zones = ['us-west-2b', 'us-west-2c']",
    "dev services[].capacity.target = 6",
    "eks training[].revision = " + "b" * 40,
    "eks kubernetes.nodeImage = al2023@v20261115",
    "fleet services[].capacity.rootVolumeGiB = 156",
    "ocr services[].queue.deployment = cluster",
)


def test_there_are_enough_changes() -> None:
    assert len(changes()) >= 200


@pytest.mark.parametrize("title", SAMPLE)
def test_the_verdict_is_never_better_than_the_truth(title: str) -> None:
    judged = judge({change.title: change for change in changes()}[title])
    assert judged is not None
    assert not is_reassuring(judged.verdict, judged.fact)
    assert not is_reassuring(judged.verdict_without_values, judged.fact)
    assert not is_false_alarm(judged.verdict, judged.fact)
    assert not (judged.second_axis == "nothing" and judged.directions & {"shrinks", "unknown"})
    assert not judged.stopped_by
