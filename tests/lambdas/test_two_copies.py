"""Two concurrent executions for a group: whichever saves first, notices are handled and actions done once."""

from __future__ import annotations

import pytest

from lambdas.core.capacity import memory as codec
from tests.fakes.faults import BOOT_SECONDS
from tests.lambdas import walk


def serving(seed: int) -> walk.Walk:
    """Return a walk whose groups have booted, without faults so far."""
    world = walk.world(seed)
    for _ in range(4):
        world.controller.run()
        world.aws.pass_time(2 * BOOT_SECONDS)
    return world


@pytest.mark.parametrize("seed", range(8))
def test_a_notice_is_handled_even_if_another_execution_always_saves_first(seed: int) -> None:
    world = serving(seed)
    for name in walk.GROUPS:
        for box in world.aws.pools[f"{name}-primary"].boxes[:1]:
            world.aws.notice(box)
    world.aws.rivalry = 1.0
    outcomes = {outcome.group: outcome for outcome in world.controller.run()}
    for name in walk.GROUPS:
        noticed = {b.id for b in world.aws.pools[f"{name}-primary"].boxes if b.notice is not None}
        assert noticed <= codec.parse(world.aws.memory[name]["memory"]["S"]).termination_deadlines.keys()
        assert outcomes[name].decision is not None
    assert world.aws.violations == []


def test_two_executions_request_capacity_once() -> None:
    """The second finds what the first saved, and observes again."""
    alone, concurrent = serving(3), serving(3)
    concurrent.aws.rivalry = 1.0
    for world in (alone, concurrent):
        for pool in world.aws.pools.values():
            pool.has_capacity = False
            for box in pool.boxes:
                world.aws.notice(box)
        world.controller.run()
    asked = [{name: pool.desired for name, pool in world.aws.pools.items()} for world in (alone, concurrent)]
    assert asked[0] == asked[1]
    assert concurrent.aws.violations == []
