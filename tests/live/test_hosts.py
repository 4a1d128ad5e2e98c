"""A shared host is lost and replaced; its tenants' volumes keep their content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any
from unittest import mock

import pytest

from market.replay.ledger import Span
from market.supply.trace import PoolTrace
from rehearsal import tenancy
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.cloud.views import GroupView
from rehearsal.machines import boot
from rehearsal.machines.group import Nodes
from rehearsal.machines.machine import contents
from rehearsal.rehearse import ProgressListener, RehearsalOptions, rehearse
from rehearsal.report.page import render
from rehearsal.results.summary import summarise
from rehearsal.results.tenancy import TenancyAccount
from tests.apart import made_once
from tests.e2e.world import START, World, living, load
from tests.report.rehearsal import printed
from userdata.agent.tenants import codec

ACCOUNT_OF = tenancy.tenancy_account
LOST = (30, 75)
MINUTES = 95
SEED = 5
"""Of the notices: with half of the losses announced chance chooses the first."""
ZONES = ("us-west-2a", "us-west-2b", "us-west-2c")


@dataclass
class Changing(ProgressListener):
    """Who watches the rehearsal, and changes the list of tenants with the second loss."""

    change: Callable[[], str]
    is_done: bool = False

    def on_tick(self, tick: int, span: Span) -> None:
        if tick >= LOST[1] and not self.is_done:
            self.is_done = True
            self.change()


def played() -> dict[str, Any]:
    """Lose it twice, on spot alone."""
    ends = (*LOST, MINUTES)
    options = RehearsalOptions(
        group="lab",
        hours=MINUTES / 60,
        files=(),
        traces=tuple(
            PoolTrace(zone, 60.0, tuple(int(minute < end) for minute in range(MINUTES)))
            for zone, end in zip(ZONES, ends, strict=True)
        ),
        pool_size=1,
        notice=0.5,
        seed=SEED,
    )
    seen: dict[str, Any] = {}

    def record_account(cloud: LocalCloud, view: GroupView, nodes: Nodes, *more: Any) -> TenancyAccount:
        seen.update(looked_at(cloud, nodes))
        return ACCOUNT_OF(cloud, view, nodes, *more)

    with living(load("shared", {"sharedHosts[0].capacity.fallback.enabled": False})) as world:
        changing = Changing(lambda: change_list(world))
        with mock.patch.object(tenancy, "tenancy_account", record_account):
            run = rehearse(options, world.cloud, changing)
    assert run.tenancy is not None
    return seen | {
        "returns": [asdict(one) for one in run.tenancy.returns],
        "summary": summarise(run)["shared_host"],
        "terminal": printed(summarise(run)),
        "page": render(run),
    }


def looked_at(cloud: LocalCloud, nodes: Nodes) -> dict[str, Any]:
    """Return what only the simulated machines know: who runs at the end, and what is on whose volume."""
    entries = nodes.journal.entries
    filters = [{"Name": "tag:gpu-spot:job", "Values": ["lab-speech"]}]
    [abandoned] = cloud.clients("ec2").describe_volumes(Filters=filters)["Volumes"]
    last = [entry for entry in entries if entry.volume == abandoned["VolumeId"] and entry.contents]
    after = START + 60 * LOST[1]
    return {
        "serving": sorted(
            {entry.tenant for entry in entries if entry.kind == "running" and entry.at > after}
        ),
        "causes": sorted({one.cause for one in tenancy.returns(entries)}),
        "abandoned": [
            abandoned["State"],
            last[-1].contents == contents(nodes.disks.folder(abandoned["VolumeId"])),
        ],
    }


def change_list(world: World) -> str:
    """As `up` does: ``speech`` leaves, and ``newcomer`` comes."""
    host = boot.parse(world.cloud.boot_data("lab")).agent.shared_host
    assert host is not None
    tenants = {one.name: one for one in tenancy.listed(world.cloud, "lab")}
    come = replace(tenants.pop("speech"), name="newcomer", uid=2009)
    text = codec.encode((*tenants.values(), come))
    world.clients("s3").put_object(Bucket=host.bucket, Key=codec.key_of("lab"), Body=text)
    return text


pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return made_once(played)


def test_each_tenant_returns_with_the_content_of_its_volume(seen: dict[str, Any]) -> None:
    assert {one["tenant"] for one in seen["returns"]} == {"vision", "speech", "notes"}
    assert all(one["before"] == one["after"] and one["after"]["files"] for one in seen["returns"])
    assert not seen["summary"]["away"]


def test_losses_with_and_without_a_notice_are_survived_and_zones_are_left(seen: dict[str, Any]) -> None:
    assert {*seen["causes"]} >= {"notice", "loss"}
    assert any(one["from_zone"] != one["to_zone"] for one in seen["returns"])


def test_a_list_that_changed_while_there_was_no_host_is_honoured(seen: dict[str, Any]) -> None:
    assert seen["serving"] == ["newcomer", "notes", "vision"]
    assert seen["abandoned"] == ["available", True]


def test_the_report_says_when_each_served_again(seen: dict[str, Any]) -> None:
    account, page = seen["summary"], seen["page"]
    assert {one["tenant"] for one in account["returns"]} == {"vision", "speech", "notes"}
    for name, one in account["tenants"].items():
        assert one["seconds_without"] >= 0
        assert f"{name} {one['cpus']} CPUs" in seen["terminal"]
        assert f"<td>{name}</td>" in page
    assert "same content each time" in seen["terminal"]
    assert "equal, 3 volumes" in page
    assert "DIFFER" not in page + seen["terminal"]
