"""Two copies of the function at the same group: whoever saves first, what both see is known and done once."""

from __future__ import annotations

import pytest

from lambdas.core.capacity import memory as codec
from tests.lambdas import walk
from tests.lambdas.hostile_aws import BOOT_SECONDS


def serving(seed: int) -> walk.Walk:
    """Return a world whose groups have booted, before anything goes wrong."""
    world = walk.world(seed)
    for _ in range(4):
        world.controller.run()
        world.aws.pass_time(2 * BOOT_SECONDS)
    return world


@pytest.mark.parametrize("seed", range(8))
def test_a_notice_is_known_after_the_pass_that_saw_it_though_another_copy_is_always_first(seed: int) -> None:
    world = serving(seed)
    for name in walk.GROUPS:
        for box in world.aws.pools[f"{name}-primary"].boxes[:1]:
            world.aws.notice(box)
    world.aws.rivalry = 1.0
    outcomes = {outcome.group: outcome for outcome in world.controller.run()}
    for name in walk.GROUPS:
        noticed = {b.id for b in world.aws.pools[f"{name}-primary"].boxes if b.notice is not None}
        assert noticed <= codec.parse(world.aws.memory[name]["memory"]["S"]).doomed.keys()
        assert outcomes[name].decision is not None
    assert world.aws.violations == []


def test_what_two_copies_want_is_asked_for_once() -> None:
    """As if there were one: the second finds the first one's claim, and looks at what came of it."""
    alone, beside = serving(3), serving(3)
    beside.aws.rivalry = 1.0
    for world in (alone, beside):
        for pool in world.aws.pools.values():
            pool.has_capacity = False
            for box in pool.boxes:
                world.aws.notice(box)
        world.controller.run()
    asked = [{name: pool.desired for name, pool in world.aws.pools.items()} for world in (alone, beside)]
    assert asked[0] == asked[1]
    assert beside.aws.violations == []
