"""A sample of the changes that ``make bench-review`` judges: the verdict is never better than the truth."""

from __future__ import annotations

import pytest

from tests.review.changes import Change, changes
from tests.review.measuring import judge
from tests.review.oracle import is_false_alarm, is_reassuring

SAMPLE = (
    "dev network.zones = ['us-west-2b', 'us-west-2c']",
    "dev services[].capacity.target = 6",
    "eks training[].revision = " + "b" * 40,
    "eks kubernetes.nodeImage = al2023@v20261115",
    "fleet services[].capacity.rootVolumeGiB = 156",
    "ocr services[].queue.deployment = cluster",
)


def by_title() -> dict[str, Change]:
    return {change.title: change for change in changes()}


def test_there_are_enough_changes() -> None:
    assert len(changes()) >= 200


@pytest.mark.parametrize("title", SAMPLE)
def test_the_verdict_is_never_better_than_the_truth(title: str) -> None:
    judged = judge(by_title()[title])
    assert judged is not None
    assert not is_reassuring(judged.verdict, judged.fact)
    assert not is_reassuring(judged.verdict_without_values, judged.fact)
    assert not is_false_alarm(judged.verdict, judged.fact)
