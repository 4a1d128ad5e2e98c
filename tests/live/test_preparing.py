"""A dataset is prepared once on a CPU instance, before any GPU instance, and not copied again."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import apart
from tests.live.preparing import played

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return apart(played)


def test_no_gpu_is_asked_for_while_the_dataset_is_made(seen: dict[str, Any]) -> None:
    assert [desired for said, desired in seen["asked"] if said == "none"] == [(0, 0)]
    assert ("imagenet@1", (1, 0)) in seen["asked"]  # and at once when it is there


def test_the_job_starts_with_the_prepared_dataset_and_reads_nothing_from_s3(seen: dict[str, Any]) -> None:
    [snapshot, tag] = seen["snapshots"][0]
    assert tag == "imagenet@1"
    assert seen["bucket"] == 24  # all of them were deleted before the first GPU came
    blank, *copies = seen["made_from"]
    assert blank[0] == ""
    assert {made_from for made_from, _ in copies} == {snapshot}
    assert {seen["items"][job]["state"] for job in ("resnet", "vit")} == {"done"}


def test_the_second_job_has_the_same_without_another_preparation(seen: dict[str, Any]) -> None:
    assert len(seen["snapshots"]) == len(seen["prepared_on"]) == 1
    first, second = (seen["contents"][volume] for made_from, volume in seen["made_from"] if made_from)
    assert first == second


def test_temporary_resources_are_deleted_and_the_result_is_recorded(seen: dict[str, Any]) -> None:
    assert seen["volumes"] == []
    prepared = seen["items"]["imagenet-data"]
    assert prepared["imagenet@1"] == seen["snapshots"][0][0]
    assert prepared["state"] == "done"
    assert not {"volume", "holder"} & prepared.keys()
