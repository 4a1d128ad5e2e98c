"""A shared host is lost and replaced; its tenants' volumes keep their content."""

from __future__ import annotations

from typing import Any

import pytest

from tests.apart import made_once
from tests.live.hosts import played

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return made_once(played)


def test_each_tenant_returns_with_the_content_of_its_volume(seen: dict[str, Any]) -> None:
    assert {one["tenant"] for one in seen["returns"]} == {"vision", "speech", "notes"}
    assert all(one["intact"] and one["after"]["files"] for one in seen["returns"])
    assert not seen["summary"]["away"]


def test_losses_with_and_without_a_notice_are_survived_and_zones_are_left(seen: dict[str, Any]) -> None:
    assert {*seen["causes"]} >= {"notice", "loss"}
    assert any(one["from_zone"] != one["to_zone"] for one in seen["returns"])


def test_a_list_that_changed_while_there_was_no_host_is_honoured(seen: dict[str, Any]) -> None:
    assert seen["serving"] == ["newcomer", "notes", "vision"]
    assert seen["abandoned"] == ["available", True]


def test_the_report_says_when_each_served_again(seen: dict[str, Any]) -> None:
    account, page = seen["summary"], seen["page"]
    assert account["intact"]
    assert {one["tenant"] for one in account["returns"]} == {"vision", "speech", "notes"}
    for name, one in account["tenants"].items():
        assert one["seconds_without"] >= 0
        assert f"{name} {one['cpus']} CPUs" in seen["terminal"]
        assert f"<td>{name}</td>" in page
    assert "same content each time" in seen["terminal"]
    assert "equal, 3 volumes" in page
    assert "DIFFER" not in page + seen["terminal"]
