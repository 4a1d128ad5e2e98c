"""The progress of a drill, from snapshots of a group."""

from __future__ import annotations

from dataclasses import replace

from gpu_spot.drill.progress import DRILL_TIMEOUT_SECONDS, NOTICE_TIMEOUT_SECONDS, DrillProgress
from gpu_spot.drill.text import lines
from gpu_spot.status.snapshot import GroupSnapshot
from lambdas.core.model import GroupRole, Instance, Pool, PurchaseOption

START = 1000.0
POOL = Pool("g6.xlarge", "us-west-2a")


def instance(name: str, *, ready: bool = True, deadline: float | None = None) -> Instance:
    return Instance(
        name, POOL, PurchaseOption.SPOT, GroupRole.PRIMARY, 0.0, 10.0 if ready else None, deadline
    )


def group(*instances: Instance) -> GroupSnapshot:
    return GroupSnapshot("inference", target=2, instances=instances, drain_seconds=30.0)


WHOLE = group(instance("a"), instance("b"))


def observe(*snapshots: tuple[float, GroupSnapshot]) -> DrillProgress:
    progress = DrillProgress("inference", START)
    progress.update(WHOLE, START)
    for after, snapshot in snapshots:
        assert not progress.is_finished
        progress.update(snapshot, START + after)
    return progress


def test_a_loss_has_its_notice_and_its_replacement() -> None:
    interrupted = instance("a", deadline=START + 130)
    progress = observe(
        (10, group(interrupted, instance("b"))),
        (
            110,
            group(interrupted, instance("b"), instance("c", ready=False)),
        ),  # draining: less than 30 s before its deadline
        (140, group(instance("b"), instance("c", ready=False))),
        (200, group(instance("b"), instance("c"))),
    )
    result = progress.to_json()
    assert progress.is_finished
    assert result["lost"] == [
        {
            "instance": "a",
            "type": "g6.xlarge",
            "zone": "us-west-2a",
            "noticed_after": 10.0,
            "gone_after": 140.0,
        }
    ]
    assert (result["made_good_after"], result["least_serving"], result["missing_seconds"]) == (200.0, 1, 90.0)
    assert result["served"] == 1 - 90 / 400
    assert list(lines(progress))[1] == "recovered after 3:20"


def test_an_interrupted_successor_delays_the_recovery() -> None:
    interrupted, again = instance("a", deadline=START + 130), instance("c", deadline=START + 300)
    progress = observe(
        (10, group(interrupted, instance("b"), instance("c"))),
        (150, group(again, instance("b"))),
    )
    assert progress.recovered_at is None
    assert set(progress.losses) == {"a", "c"}


def test_an_early_end_after_a_notice_is_one_loss() -> None:
    progress = observe((10, group(instance("a", deadline=START + 130), instance("b"))))
    progress.update(group(instance("b")), START + 40)
    assert [loss.terminated_at for loss in progress.losses.values()] == [START + 40]


def test_a_drill_without_interruption_or_recovery_ends_at_its_timeout() -> None:
    uninterrupted = observe((10, WHOLE), (NOTICE_TIMEOUT_SECONDS, WHOLE))
    assert uninterrupted.is_finished
    assert list(lines(uninterrupted)) == ["no instance of inference was interrupted within 10:00"]
    short = replace(WHOLE, instances=(instance("b"),))
    progress = observe(
        (10, group(instance("a", deadline=START + 130), instance("b"))), (NOTICE_TIMEOUT_SECONDS, short)
    )
    assert not progress.is_finished
    progress.update(short, START + DRILL_TIMEOUT_SECONDS)
    assert progress.is_finished
    assert "not recovered within 1:00:00" in list(lines(progress))[1]
