"""A job with a Capacity Block in the whole local cloud: the controller hears from EC2 when it begins."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.fixes.ec2.placement import reserve
from tests.apart import apart
from tests.e2e.world import START, World, living, load

BLOCK = {"reservation": "cr-0123456789abcdef0", "instanceType": "g6e.12xlarge", "zone": "us-west-2a"}
JOB = {"training[0].capacityBlock": BLOCK}


def looked(world: World, minute: int) -> tuple[int, int]:
    """Let the controller look; return what it then wants of primary and fallback."""
    world.cloud.set_time(START + 60 * minute)
    world.cloud.tick_schedule()
    assert [run.error for run in world.cloud.run_functions() if run.error] == []
    return world.cloud.desired(world.view.name)


def through_a_block() -> list[tuple[int, int]]:
    with living(load("research", JOB)) as world:
        block: dict[str, Any] = {
            "CapacityReservationId": BLOCK["reservation"],
            "State": "scheduled",
            "EndDate": datetime.fromtimestamp(START + 24 * 3600, UTC),
        }
        ec2 = world.cloud._instances.ec2
        reserve(ec2, block)
        wanted = [looked(world, 1)]
        reserve(ec2, {**block, "State": "active"})
        wanted.append(looked(world, 2))
        world.cloud.launch(
            world.view.name,
            GroupRole.FALLBACK,
            BLOCK["instanceType"],
            BLOCK["zone"],
            PurchaseOption.ON_DEMAND,
        )
        wanted.append(looked(world, 3))
        wanted.append(looked(world, 23 * 60))
        return wanted


def test_the_job_is_on_spot_before_it_and_in_it_as_long_as_it_lasts() -> None:
    before, during, there, ending = apart(through_a_block)
    assert tuple(before) == (1, 0)
    assert tuple(during) == (1, 1)
    assert tuple(there) == (0, 1)
    assert ending[0] == 1
