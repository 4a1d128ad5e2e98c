"""What a drill came to, from looks at a group."""

from __future__ import annotations

from dataclasses import replace

from gpu_spot.drill.course import NOTICE_WITHIN, OVER_WITHIN, DrillCourse
from gpu_spot.drill.text import lines
from gpu_spot.status.seen import GroupSeen
from lambdas.core.model import Instance, Market, Pool, Side

START = 1000.0
POOL = Pool("g6.xlarge", "us-west-2a")


def instance(name: str, *, ready: bool = True, deadline: float | None = None) -> Instance:
    return Instance(name, POOL, Market.SPOT, Side.PRIMARY, 0.0, 10.0 if ready else None, deadline)


def group(*instances: Instance) -> GroupSeen:
    return GroupSeen("inference", target=2, instances=instances, drain_seconds=30.0)


WHOLE = group(instance("a"), instance("b"))


def played(*looks: tuple[float, GroupSeen]) -> DrillCourse:
    course = DrillCourse("inference", START)
    course.see(WHOLE, START)
    for after, seen in looks:
        assert not course.is_over
        course.see(seen, START + after)
    return course


def test_a_loss_is_told_from_its_notice_to_its_replacement() -> None:
    doomed = instance("a", deadline=START + 130)
    course = played(
        (10, group(doomed, instance("b"))),
        (110, group(doomed, instance("b"), instance("c", ready=False))),  # drains: 30 s before its end
        (140, group(instance("b"), instance("c", ready=False))),
        (200, group(instance("b"), instance("c"))),
    )
    told = course.to_json()
    assert course.is_over
    assert told["lost"] == [
        {
            "instance": "a",
            "type": "g6.xlarge",
            "zone": "us-west-2a",
            "noticed_after": 10.0,
            "gone_after": 140.0,
        }
    ]
    assert (told["made_good_after"], told["least_serving"], told["missing_seconds"]) == (200.0, 1, 90.0)
    assert told["served"] == 1 - 90 / 400
    assert list(lines(course))[1] == "made good after 3:20"


def test_a_successor_that_is_lost_too_puts_the_end_off() -> None:
    doomed, again = instance("a", deadline=START + 130), instance("c", deadline=START + 300)
    course = played(
        (10, group(doomed, instance("b"), instance("c"))),
        (150, group(again, instance("b"))),
    )
    assert course.made_good is None
    assert set(course.losses) == {"a", "c"}


def test_a_sudden_loss_of_somebody_who_was_noticed_is_no_second_one() -> None:
    course = played((10, group(instance("a", deadline=START + 130), instance("b"))))
    course.see(group(instance("b")), START + 40)
    assert [loss.gone for loss in course.losses.values()] == [START + 40]


def test_a_drill_that_takes_nobody_and_one_that_is_not_made_good_end_by_the_clock() -> None:
    nobody = played((10, WHOLE), (NOTICE_WITHIN, WHOLE))
    assert nobody.is_over
    assert list(lines(nobody)) == ["nobody was taken from inference within 10:00"]
    short = replace(WHOLE, instances=(instance("b"),))
    course = played((10, group(instance("a", deadline=START + 130), instance("b"))), (NOTICE_WITHIN, short))
    assert not course.is_over
    course.see(short, START + OVER_WITHIN)
    assert course.is_over
    assert "not made good within 1:00:00" in list(lines(course))[1]
