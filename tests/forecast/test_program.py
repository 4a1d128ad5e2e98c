"""What is counted from one entry of each kind is what the program declares for all of them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from gpu_spot.forecast import standing
from gpu_spot.forecast.running import declared_quietly
from gpu_spot.preflight.stack import declare
from infra.settings import load_settings
from pulumi_on_moto import StackConfig
from tests.apart import apart
from tests.forecast.conftest import job, service, stack_file

REPOSITORY = Path(__file__).parents[2]
MANY = stack_file(
    [service("first"), service("first-two", target=3)], [job("one", volumeGiB=100), job("two", volumeGiB=200)]
)


def priced(values: dict[str, Any], *, whole: bool) -> tuple[list[standing.Line], dict[str, int]]:
    config = StackConfig("gpu-spot", "x", REPOSITORY / "infra", values)
    few, times = standing.reduced(config)
    if whole:
        return list(standing.lines(declare(config), 0.0)), {}
    told = standing.multiplied(declare(few), times, load_settings(values))
    return list(standing.lines(told, 0.0)), times


def test_one_entry_of_each_kind_stands_for_all() -> None:
    found, times = apart(priced, MANY, whole=False)
    assert times == {"first": 2, "one": 2}
    assert found == apart(priced, MANY, whole=True)[0]
    counted = {what: count for what, count, _ in found}
    assert counted["alarms"] > 30
    assert counted["NAT gateways"] == 1
    assert counted["function requests"] == 2 * 730 * 60


def remarked(values: dict[str, Any], *, quietly: bool) -> list[str]:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger().addHandler(handler)
    config = StackConfig("gpu-spot", "x", REPOSITORY / "infra", values)
    (declared_quietly if quietly else declare)(config)
    return heard


def test_the_program_remarks_once_and_where_others_do_never() -> None:
    values = stack_file([], [job("one", deadline="2026-01-01T00:00:00Z")])
    [remark] = [one for one in apart(remarked, values, quietly=False) if "training[0].deadline" in one]
    assert "has passed" in remark
    assert apart(remarked, values, quietly=True) == []


def test_two_versions_share_a_run_where_only_what_does_not_decide_what_is_declared_differs() -> None:
    def likeness(*services: dict[str, Any], **more: Any) -> str:
        values = stack_file(list(services), []) | more
        return standing.likeness(
            standing.reduced(StackConfig("gpu-spot", "x", REPOSITORY / "infra", values))[0]
        )

    before = likeness(service("first", target=3))
    assert likeness(service("first", target=2)) == before
    assert likeness(service("first", target=3), service("second", target=5)) == before  # one more of a kind
    for other in (
        likeness(service("other", target=3)),
        likeness(service("first", target=0)),
        likeness(service("first", target=3), **{"aws:region": "us-east-2"}),
    ):
        assert other != before
