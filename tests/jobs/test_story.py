"""A run's story: from what instances wrote down to interruptions, moves, lost seconds and money."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.jobs.attempt import ATTEMPTS_RETAINED, JobAttempt
from gpu_spot.jobs.money import PriceBook
from gpu_spot.jobs.timeline import Ending, tell
from tests.jobs.seen import NOW, RUN, job, row, stint

PRICES = PriceBook(lambda kind: {"g6.xlarge": 0.8}.get(kind), {("g6.xlarge", "us-west-2a"): [(0.0, 0.36)]})


def test_a_run_through_every_ending() -> None:
    announced = stint(1, "i-1", 5000, 4000, told=NOW - 4010, cause="spot", ended=NOW - 3995, end="stopped")
    handed = stint(
        2, "i-2", 3800, 3000, zone="us-west-2b", told=NOW - 3010, cause="lifecycle", ended=NOW - 2999,
        end="stopped", resumed=NOW - 4000,
    )  # fmt: skip
    lost = stint(3, "i-3", 2900, 2000, stopped=0.0, zone="us-west-2b", resumed=NOW - 3000)
    broken = stint(4, "i-4", 1500, 1000, ended=NOW - 999, end="host", resumed=NOW - 2300)
    here = stint(5, "i-5", 600, 5, stopped=0.0, resumed=NOW - 1200)
    story = tell(job(row=row(token=5), stints=(here, lost, announced, broken, handed)), PRICES)
    assert [one.ending for one in story.chapters] == ["notice", "hand-over", "loss", "host fault", "goes on"]
    # Nothing where it was saved, 300 s without notice, 200 s of the host that broke.
    assert [one.lost_seconds for one in story.chapters] == [0, 0, 300, 200, 0]
    assert [one.away_seconds for one in story.chapters] == [200, 100, 500, 400, None]
    assert (story.interruptions, story.moves) == (3, 2)
    assert story.worked_seconds == 1000 + 800 + 900 + 500 + 595
    assert (story.lost_seconds, story.away_seconds, story.is_cut) == (500, 1200, False)


def test_without_a_checkpoint_all_of_it_is_lost() -> None:
    first = stint(1, "i-1", 1000, 400, stopped=0.0, checkpoint=0.0)
    second = stint(2, "i-2", 100, 5, stopped=0.0)
    assert tell(job(stints=(first, second)), PRICES).chapters[0].lost_seconds == 600


def test_one_that_came_in_between_and_never_started_hides_no_loss() -> None:
    first = stint(1, "i-1", 1000, 500, stopped=0.0)
    between = stint(2, "i-2", 400, 350, started=0.0, starts=0, stopped=0.0)
    third = stint(3, "i-3", 200, 5, stopped=0.0, resumed=NOW - 620)
    chapters = tell(job(stints=(first, between, third)), PRICES).chapters
    assert [(one.lost_seconds, one.away_seconds) for one in chapters] == [(120, 300), (0, None), (0, None)]
    assert (chapters[1].ending, chapters[1].worked_seconds) == ("loss", 0.0)


def test_what_one_instance_began_twice_is_one_stay() -> None:
    nothing_yet = stint(1, "i-1", 1000, 950, started=0.0, starts=0, stopped=0.0)
    first = stint(2, "i-1", 900, 600, lost=7.0)
    again = stint(3, "i-1", 500, 5, stopped=0.0, starts=2, resumed=NOW - 650, lost=5.0)
    [one] = tell(job(stints=(nothing_yet, first, again)), PRICES).chapters
    assert (one.started, one.until, one.stint.starts) == (NOW - 900, NOW - 5, 3)
    assert one.lost_seconds == 7 + 50 + 5
    assert one.launched == nothing_yet.launched


@pytest.mark.parametrize(
    ("part", "finished", "ending"),
    [
        (stint(1, "i-1", 900, 300, ended=NOW - 299, end="done"), RUN, "done"),
        (stint(1, "i-1", 900, 300, ended=NOW - 299, end="failed"), RUN, "failed"),
        (stint(1, "i-1", 900, 300, ended=NOW - 299, told=NOW - 310, cause="lifecycle"), RUN, "stopped"),
        (stint(1, "i-1", 900, 300, ended=NOW - 299, end="stopped"), "none", "hand-over"),
        (stint(1, "i-1", 900, 100, stopped=0.0), "none", "goes on"),
        (stint(1, "i-1", 900, 300, stopped=0.0), "none", "loss"),
    ],
)  # fmt: skip
def test_how_the_last_one_ended(part: JobAttempt, finished: str, ending: Ending) -> None:
    [one] = tell(job(finished=finished, stints=(part,)), PRICES).chapters
    assert one.ending == ending


def test_other_revisions_are_other_stories_and_a_ring_that_is_full_is_said_to_be_cut() -> None:
    old = stint(1, "i-1", 900, 800, revision="b" * 40)
    new = stint(2, "i-2", 700, 5, stopped=0.0)
    story = tell(job(row=row(token=2), stints=(old, new)), PRICES)
    assert ([one.stint.instance for one in story.chapters], story.is_cut) == (["i-2"], False)
    many = [replace(new, token=token) for token in range(6, 6 + ATTEMPTS_RETAINED)]
    assert tell(job(row=row(token=5 + ATTEMPTS_RETAINED), stints=tuple(many)), PRICES).is_cut
    assert not tell(job(row=row(token=5 + ATTEMPTS_RETAINED), stints=tuple(many[1:])), PRICES).is_cut


def test_money_follows_the_price_and_what_has_none_is_not_free() -> None:
    begin, end = NOW - 7200, NOW
    spot = replace(stint(1, "i-1", 7000, 0), market="spot")
    book = PriceBook(
        lambda kind: {"g6.xlarge": 0.8}.get(kind),
        {("g6.xlarge", "us-west-2a"): [(NOW - 3600, 0.5), (NOW - 9000, 0.2), (NOW - 1800, 1.0)]},
    )
    assert book.cost(spot, begin, end) == pytest.approx(0.2 * 1 + 0.5 * 0.5 + 1.0 * 0.5)
    assert book.cost(spot, NOW - 20000, NOW - 16400) == pytest.approx(0.2)  # before the first that is known
    assert book.cost(replace(spot, market="on-demand"), begin, end) == pytest.approx(1.6)
    assert book.cost(spot, end, begin) == 0.0
    assert book.cost(replace(spot, zone="us-west-2b"), begin, end) is None
    assert book.cost(replace(spot, market="on-demand", instance_type="p9"), begin, end) is None
    dear = stint(1, "i-1", 1000, 0, zone="us-west-2b")
    story = tell(job(stints=(dear,)), book)
    assert (story.cost, story.unpriced_seconds) == (0.0, 1200.0)
