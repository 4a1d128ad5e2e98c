"""Spot requests in ``gpu-spot status``: which are a group's, which are shown, and how."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from rich.console import Console

from gpu_spot.status import report
from gpu_spot.status.snapshot import DeclaredEntries, GroupSnapshot, StackSnapshot
from gpu_spot.status.spot_requests import RECENT_SECONDS, SpotRequestCount, count_requests, read_requests
from gpu_spot.status.text import view
from lambdas.core.spot_request_status import STATUS_CODES

NOW: Final = 1_767_571_200.0
PROFILE: Final = "arn:aws:iam::123456789012:instance-profile/gpu-spot-dev-inference-instance-0a1b2c3"


def request(
    code: str = "fulfilled",
    state: str = "active",
    age: float = 60.0,
    profile: dict[str, str] | None = None,
    instance: str = "",
) -> dict[str, Any]:
    return {
        "SpotInstanceRequestId": "sir-1",
        "State": state,
        "CreateTime": datetime.fromtimestamp(NOW - 7200, UTC),
        "Status": {"Code": code, "UpdateTime": datetime.fromtimestamp(NOW - age, UTC)},
        "LaunchSpecification": {"IamInstanceProfile": {"Arn": PROFILE} if profile is None else profile},
        **({"InstanceId": instance} if instance else {}),
    }


def counted(*requests: Any, instances: tuple[str, ...] = ()) -> list[tuple[str, str, int]]:
    counts = count_requests(requests, "dev", "inference", instances, NOW)
    return [(count.code, count.state, count.count) for count in counts]


@pytest.mark.parametrize(
    "own",
    [
        request(),
        request(profile={"Name": "gpu-spot-dev-inference-instance-0a1b2c3"}),
        request(profile={"Arn": PROFILE.removesuffix("-0a1b2c3")}),
        request(profile={}, instance="i-1"),
        # Nothing was launched: only the profile says whose it is.
        request("capacity-not-available", "open"),
    ],
)
def test_a_groups_request_has_its_profile_or_launched_its_instance(own: Any) -> None:
    assert counted(own, instances=("i-1",)) == [(own["Status"]["Code"], own["State"], 1)]


@pytest.mark.parametrize(
    "profile",
    [
        {},
        {"Name": "gpu-spot-dev-inference-2-instance-0a1b2c3"},
        {"Name": "gpu-spot-dev-2-inference-instance-0a1b2c3"},
        {"Arn": PROFILE.replace("-dev-", "-prod-")},
        {"Arn": PROFILE.replace("0a1b2c3", "function")},
        {"Name": "my-gpu-spot-dev-inference-instance-0a1b2c3"},
    ],
)
def test_a_request_of_others_is_not_counted(profile: dict[str, str]) -> None:
    assert counted(request(profile=profile, instance="i-9"), instances=("i-1",)) == []


@pytest.mark.parametrize(
    ("state", "age", "is_counted"),
    [
        ("closed", RECENT_SECONDS, True),
        ("closed", RECENT_SECONDS + 1, False),
        ("failed", RECENT_SECONDS + 1, False),
        ("cancelled", RECENT_SECONDS + 1, False),
        ("active", 10 * RECENT_SECONDS, True),
        ("open", 10 * RECENT_SECONDS, True),
        ("disabled", 10 * RECENT_SECONDS, True),
    ],
)
def test_current_requests_and_those_that_ended_in_the_last_hour_are_counted(
    state: str, age: float, is_counted: bool
) -> None:
    assert bool(counted(request(state=state, age=age))) is is_counted


def test_requests_are_counted_by_code_and_state_the_newest_first() -> None:
    requests = [
        request(age=900),
        request("instance-terminated-no-capacity", "closed", age=300),
        request("instance-terminated-no-capacity", "open", age=200),
        request("instance-terminated-no-capacity", "closed", age=100),
    ]
    assert count_requests(requests, "dev", "inference", (), NOW) == (
        SpotRequestCount("closed", "instance-terminated-no-capacity", 2, NOW - 100),
        SpotRequestCount("open", "instance-terminated-no-capacity", 1, NOW - 200),
        SpotRequestCount("active", "fulfilled", 1, NOW - 900),
    )


def test_all_pages_are_read() -> None:
    class Client:
        def get_paginator(self, operation: str) -> Client:
            assert operation == "describe_spot_instance_requests"
            return self

        def paginate(self, PaginationConfig: dict[str, int]) -> list[Any]:  # noqa: N803 - boto3's name
            assert PaginationConfig == {"PageSize": 1000}
            return [{"SpotInstanceRequests": [request()] * size} for size in (1000, 1000, 7)]

    assert len(list(read_requests(Client()))) == 2007


@pytest.mark.parametrize("code", [*STATUS_CODES, "a-new-code"])
def test_every_code_has_a_meaning(code: str) -> None:
    count = SpotRequestCount("open", code, 1, NOW)
    meanings = {
        "capacity": "no capacity",
        "price": "over maxPrice",
        "limit": "account limit",
        "configuration": "invalid request",
        "transient": "interruption" if code.startswith("marked-for-") else "temporary",
        "not a failure": "no failure",
        None: "unknown code",
    }
    assert count.meaning == meanings[count.status_class]


GROUPS: Final = (
    GroupSnapshot(
        "inference",
        8,
        spot_requests=(
            SpotRequestCount("open", "capacity-not-available", 2, NOW - 20),
            SpotRequestCount("closed", "instance-terminated-no-capacity", 3, NOW - 64),
            SpotRequestCount("active", "marked-for-termination", 1, NOW - 90),
            SpotRequestCount("open", "placement-group-constraint", 1, NOW - 1200),
            SpotRequestCount("cancelled", "a-new-code", 1, NOW - 2500),
            SpotRequestCount("active", "fulfilled", 5, NOW - 187_387),
        ),
    ),
    GroupSnapshot("resnet50-cifar10", 1, spot_requests=()),
    GroupSnapshot("search", 2),
)
SNAPSHOT: Final = StackSnapshot("prod", "us-west-2", NOW, (), GROUPS, (), (), DeclaredEntries({}), 12)
GOLDEN: Final = """\
Spot requests

 group, code                       state      count  age       meaning
 ───────────────────────────────────────────────────────────────────────────
 inference
  capacity-not-available           open       2      0:20      no capacity
  instance-terminated-no-capacity  closed     3      1:04      no capacity
  marked-for-termination           active     1      1:30      interruption
  placement-group-constraint       open       1      20:00     temporary
  a-new-code                       cancelled  1      41:40     unknown code
  fulfilled                        active     5      52:03:07  no failure
 resnet50-cifar10                  none
 search                            unknown                     not readable
"""


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_text_is_the_same_from_80_columns_on(width: int) -> None:
    output = io.StringIO()
    Console(file=output, width=width).print(view(SNAPSHOT))
    lines = [line.rstrip() for line in output.getvalue().splitlines()]
    start = lines.index("Spot requests")
    assert "\n".join(lines[start : start + GOLDEN.count("\n")]) + "\n" == GOLDEN


def test_json_has_classes_and_null_for_what_is_unknown() -> None:
    inference, resnet, search = report.to_json(SNAPSHOT)["groups"]
    assert (resnet["spot_requests"], search["spot_requests"]) == ([], None)
    assert [(one["code"], one["class"]) for one in inference["spot_requests"]] == [
        ("capacity-not-available", "capacity"),
        ("instance-terminated-no-capacity", "capacity"),
        ("marked-for-termination", "transient"),
        ("placement-group-constraint", "transient"),
        ("a-new-code", None),
        ("fulfilled", "not a failure"),
    ]
    assert inference["spot_requests"][1] == {
        "state": "closed",
        "code": "instance-terminated-no-capacity",
        "class": "capacity",
        "count": 3,
        "updated": NOW - 64,
    }
