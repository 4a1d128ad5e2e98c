"""Which nodes train together: the document's rules, heartbeats, and the lock of a lost node."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot_training.errors import InUseError, SpotTrainingError
from spot_training.interval import Interval
from spot_training.nodes import heartbeat
from spot_training.nodes.heartbeat import LOST_SECONDS, HeartbeatObserver
from spot_training.nodes.membership import (
    Membership,
    NodeLimits,
    TrainingNode,
    end,
    enter,
    finish,
    form,
    from_document,
    is_join_due,
    limits_of,
    remove,
)
from spot_training.nodes.registry import GATHER_SECONDS, NodeRegistry
from spot_training.storage.calls import RetryPolicy
from spot_training.storage.files import Files
from spot_training.storage.lock import WORLD_VARIABLE, FolderLock, check_lease

LIMITS = NodeLimits(2, 4)


def node(name: str, token: str = "") -> TrainingNode:
    return TrainingNode(name, token or f"{name}-1", "10.0.0.1", 29500, 1)


def world_of(*names: str) -> Membership:
    membership = Membership()
    for name in names:
        membership = enter(membership, node(name))
    return form(membership, LIMITS, is_overdue=True)


def names_in(membership: Membership) -> list[str]:
    return [member.name for member in membership.world.nodes] if membership.world else []


def formed(membership: Membership, *, is_overdue: bool = False) -> list[str]:
    return names_in(form(membership, LIMITS, is_overdue=is_overdue))


def test_the_first_world_waits_for_all_and_then_for_enough() -> None:
    membership = enter(enter(enter(Membership(), node("a")), node("b")), node("c"))
    assert formed(membership) == []
    assert formed(membership, is_overdue=True) == ["a", "b", "c"]
    assert formed(enter(membership, node("d"))) == ["a", "b", "c", "d"]
    assert formed(enter(Membership(), node("a")), is_overdue=True) == []


def test_survivors_go_on_as_soon_as_all_of_them_are_there() -> None:
    lost = remove(world_of("a", "b", "c", "d"), "a-1", "lost")
    assert lost.world is None
    assert formed(enter(enter(lost, node("d")), node("c"))) == []
    back = enter(enter(enter(lost, node("d")), node("c")), node("b"))
    assert formed(back) == ["b", "c", "d"], "in the order of before"


def test_a_survivor_that_never_comes_back_is_waited_for_as_long_as_new_nodes_are() -> None:
    back = enter(enter(remove(world_of("a", "b", "c"), "a-1", "lost"), node("b")), node("x"))
    assert formed(back) == []
    assert formed(back, is_overdue=True) == ["b", "x"]


def test_too_few_survivors_wait_for_others() -> None:
    alone = enter(remove(world_of("a", "b"), "a-1", "lost"), node("b"))
    assert formed(alone, is_overdue=True) == []
    assert formed(enter(alone, node("c"))) == ["b", "c"]


def test_a_node_that_comes_joins_when_the_world_ends() -> None:
    membership = enter(world_of("a", "b"), node("c"))
    assert membership.wants_change
    assert names_in(membership) == ["a", "b"]
    membership = end(membership, membership.number, "saved")
    for name in "ba":
        membership = enter(membership, node(name))
    assert formed(membership) == ["a", "b", "c"]


def test_nodes_join_once_they_have_waited_as_long_as_a_save_costs_the_others() -> None:
    assert not is_join_due(7.9, 4, save_seconds=0.0)
    assert is_join_due(8.0, 4, save_seconds=0.0), "where writes are free"
    # 2.4 GB on EFS for four instances of $0.35 an hour: a save costs as much as all of them in 6 minutes.
    interval = Interval(dollars_per_gb=0.06, dollars_per_hour=4 * 0.35, environment={})
    assert interval.price_seconds == 0
    interval.wrote(2_400_000_000)
    assert interval.price_seconds == pytest.approx(3600 * 2.4 * 0.06 / 1.4)
    assert not is_join_due(1400.0, 4, save_seconds=interval.price_seconds)
    assert is_join_due(1500.0, 4, save_seconds=interval.price_seconds)


def test_a_node_that_starts_again_ends_the_world_it_was_in() -> None:
    membership = enter(world_of("a", "b", "c"), node("a", "a-2"))
    assert membership.world is None
    membership = remove(membership, "a-1", "its first process has ended")
    assert [waiting.token for waiting in membership.waiting] == ["a-2"]


def test_the_end_of_an_earlier_world_changes_nothing() -> None:
    membership = world_of("a", "b")
    assert end(membership, membership.number - 1, "late") is membership


def test_after_the_training_one_node_is_enough_to_export_again() -> None:
    membership = finish(world_of("a", "b"), 1)
    for token in ("a-1", "b-1"):
        membership = remove(membership, token, "ended")
    assert formed(enter(membership, node("a", "a-2"))) == ["a"]


EVENTS = st.lists(
    st.tuples(st.sampled_from(["enter", "lose", "save"]), st.sampled_from("abcdef")), max_size=60
)


@given(EVENTS)
def test_no_order_of_events_leaves_a_world_with_a_lost_node_or_survivors_without_one(
    events: list[tuple[str, str]],
) -> None:
    membership, alive, starts, number = Membership(), dict[str, str](), 0, 0
    for event, name in events:
        if event == "enter" and name not in alive:
            starts += 1
            alive[name] = f"{name}-{starts}"
            membership = enter(membership, node(name, alive[name]))
        elif event == "lose" and name in alive:
            membership = remove(membership, alive.pop(name), "lost")
        elif event == "save":
            membership = end(membership, membership.number, "saved")
        for member in membership.expected:  # those that live see it and come back
            membership = enter(membership, member)
        membership = from_document(asdict(form(membership, LIMITS, is_overdue=True)))
        tokens = [member.token for member in membership.world.nodes] if membership.world else []
        assert set(tokens) <= set(alive.values())
        assert len(tokens) == len(set(tokens)) <= LIMITS.maximum
        assert bool(tokens) == (len(alive) >= LIMITS.minimum)
        assert membership.number >= number
        number = membership.number


@pytest.mark.parametrize("nodes", ["2:4", (2, 4)])
def test_limits_are_a_number_or_two(nodes: str | tuple[int, int]) -> None:
    assert limits_of(nodes) == LIMITS
    assert limits_of("3") == limits_of(3) == NodeLimits(3, 3)
    assert limits_of("") is None


@pytest.mark.parametrize("nodes", ["4:2", "0", "many", "1:2:3"])
def test_other_limits_are_refused(nodes: str) -> None:
    with pytest.raises(SpotTrainingError, match="must be a number, or the least and the most"):
        limits_of(nodes)


def test_a_node_is_lost_without_a_new_heartbeat() -> None:
    observer = HeartbeatObserver()
    for second in range(int(LOST_SECONDS) + 1):
        assert observer.lost({"a": "7", "b": str(second)}, float(second)) == []
    assert observer.lost({"a": "7", "b": "9"}, LOST_SECONDS + 1) == ["a"]


def test_an_observer_that_was_stopped_itself_takes_none_for_lost() -> None:
    observer = HeartbeatObserver()
    for second in (0.0, 1.0, 60.0, 61.0, 62.0):
        assert observer.lost({"a": "7"}, second) == []


class Time:
    """A clock that its sleeps move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        assert self.now < 1000, "it waits for ever"


def test_a_heartbeat_removes_lost_nodes_and_its_own_at_its_parents_end(tmp_path: Path) -> None:
    registry, clock = NodeRegistry(tmp_path), Time()
    for name in "abc":
        registry.update(partial(enter, node=node(name)))
    registry.update(partial(form, limits=LIMITS, is_overdue=True))
    lease = registry.lease(1)
    registry.send_heartbeat("b-1", 1)

    def is_parent_alive() -> bool:
        registry.send_heartbeat("c-1", int(clock()))
        return clock() < LOST_SECONDS + 3

    assert lease.exists()
    heartbeat.run(registry, "a", "a-1", is_parent_alive, clock=clock, sleep=clock.sleep)
    membership = registry.read()
    assert not lease.exists()
    assert membership.reason == "node b is lost"
    assert [member.name for member in membership.expected] == ["c"]
    assert (registry.last_heartbeat("a-1"), registry.last_heartbeat("b-1")) == ("", "")


def test_sigterm_between_two_children_ends_the_process(tmp_path: Path) -> None:
    script = """if True:
        import os, pathlib, signal
        from spot_training.nodes import process
        children = iter([lambda: None, lambda: os.kill(os.getpid(), signal.SIGTERM)])
        process.run_children(lambda: next(children)())
        pathlib.Path("child").write_text(pathlib.Path("child").exists() and "second" or "first")
        process.go_on()"""
    subprocess.run([sys.executable, "-c", script], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "child").read_text() == "first"


def test_a_node_that_was_taken_for_lost_waits_again(tmp_path: Path) -> None:
    registry, clock = NodeRegistry(tmp_path), Time()

    def sleep(seconds: float) -> None:
        clock.sleep(seconds)
        if clock() == 1.0:
            registry.update(partial(remove, token="a-1", reason="lost"))
        if clock() == 2.0:
            registry.update(partial(enter, node=node("b")))

    world = registry.join(LIMITS, node("a"), clock=clock, sleep=sleep)
    assert sorted(member.name for member in world.nodes) == ["a", "b"]
    assert 2 + GATHER_SECONDS <= clock() < 3 + GATHER_SECONDS


def test_another_rank_of_a_node_follows_it_into_the_next_world(tmp_path: Path) -> None:
    registry = NodeRegistry(tmp_path)
    for name in "ab":
        registry.update(partial(enter, node=replace(node(name), ranks=2)))
    registry.update(partial(form, limits=LIMITS, is_overdue=True))
    world = registry.follow("b", 0)
    assert (world.size, world.first_rank("a"), world.first_rank("b")) == (4, 0, 2)


@pytest.fixture
def in_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeRegistry:
    registry = NodeRegistry(tmp_path)
    for name in "ab":
        registry.update(partial(enter, node=node(name)))
    registry.update(partial(form, limits=LIMITS, is_overdue=True))
    monkeypatch.setenv(WORLD_VARIABLE, str(registry.lease(1)))
    return registry


def test_a_world_that_is_over_commits_nothing(in_world: NodeRegistry) -> None:
    check_lease()
    in_world.update(partial(remove, token="b-1", reason="lost"))
    with pytest.raises(InUseError, match="world-1 must be held, but is not there"):
        check_lease()


def test_the_lock_of_a_node_of_an_earlier_world_is_not_waited_for(
    in_world: NodeRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = RetryPolicy(seconds=0.0)
    lost = FolderLock(tmp_path, Files(), policy)
    lost.take()
    frozen = os.open(tmp_path / ".lock", os.O_RDWR)
    lost.release()
    fcntl.flock(frozen, fcntl.LOCK_EX)  # as of a machine that the file server still waits for
    try:
        with pytest.raises(InUseError, match="is in use by process"):
            FolderLock(tmp_path, Files(), policy).take()
        monkeypatch.setenv(WORLD_VARIABLE, str(in_world.lease(2)))
        FolderLock(tmp_path, Files(), policy).take()
    finally:
        os.close(frozen)
