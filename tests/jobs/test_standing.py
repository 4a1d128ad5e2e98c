"""How a job stands: a table of what is observed, and the word for it."""

from __future__ import annotations

import pytest

from gpu_spot.jobs.observed import JobObserved
from gpu_spot.jobs.status import Phase, standing
from tests.jobs.seen import NOW, RUN, holding, host, job, row, stint, worker

AT_WORK = stint(3, "i-1", 600, 5, stopped=0.0)
GONE = stint(2, "i-0", 3000, 700, ended=NOW - 690, end="stopped")

TABLE: list[tuple[str, JobObserved, Phase, str]] = [
    ("nothing has happened", job(), "pending", "spot and on-demand are asked for"),
    ("its first instance boots", job(hosts=(host("i-1"),)), "pending", "i-1 boots"),
    ("people hold the controller", job(mode="paused"), "pending", "the controller is paused"),
    (
        "its dataset is made by another group",
        job(waits_for="imagenet@2", prepared_by="imagenet-data"),
        "preparing",
        "imagenet-data prepares imagenet@2",
    ),
    (
        "its first volume is filled",
        job(row=holding("i-1", state=""), workers=(worker("i-1", "waiting"),), hosts=(host("i-1"),)),
        "preparing",
        "i-1 brings its volume",
    ),
    (
        "it trains",
        job(row=holding("i-1"), workers=(worker("i-1"),), hosts=(host("i-1"),), stints=(AT_WORK,)),
        "running",
        "",
    ),
    (
        "it trains, and its successor stands by",
        job(
            row=holding("i-1"),
            workers=(worker("i-1"), worker("i-2", "waiting")),
            hosts=(host("i-1"), host("i-2")),
            stints=(AT_WORK,),
        ),
        "running",
        "",
    ),
    (
        "it has a notice",
        job(row=holding("i-1"), workers=(worker("i-1", deadline=NOW + 90),), hosts=(host("i-1"),)),
        "interrupted",
        "i-1 goes in 90 s",
    ),
    (
        "it saves",
        job(
            row=holding("i-1"), workers=(worker("i-1", "draining", deadline=NOW + 60),), hosts=(host("i-1"),)
        ),
        "interrupted",
        "i-1 goes in 60 s",
    ),
    (
        "its instance is silent",
        job(row=holding("i-1"), workers=(worker("i-1", ago=120),), hosts=(host("i-1"),), stints=(AT_WORK,)),
        "interrupted",
        "no sign of life from i-1 for 5 s",
    ),
    (
        "another instance brings its volume",
        job(
            row=holding("i-2"),
            workers=(worker("i-2", "waiting"),),
            hosts=(host("i-0", is_live=False), host("i-2")),
            stints=(GONE,),
        ),
        "moving",
        "i-2 brings its volume",
    ),
    (
        "another instance boots",
        job(row=row(), hosts=(host("i-0", is_live=False), host("i-2")), stints=(GONE,)),
        "moving",
        "i-2 boots",
    ),
    (
        "the one that let it go is still there",
        job(row=row(), hosts=(host("i-0"), host("i-2")), stints=(GONE,)),
        "moving",
        "i-2 boots",
    ),
    (
        "another waits until the lease has run out",
        job(
            row=holding("i-0"),
            workers=(worker("i-2", "waiting"),),
            hosts=(host("i-2"),),
            stints=(stint(2, "i-0", 3000, 200, stopped=0.0),),
        ),
        "moving",
        "i-2 waits for i-0 to give it back",
    ),
    (
        "who brings it has let its lease run out",
        job(
            row=row(holder="i-2", lease_until=NOW - 1),
            workers=(worker("i-2", "waiting"),),
            hosts=(host("i-2"),),
            stints=(GONE,),
        ),
        "moving",
        "i-2 waits for the lease",
    ),
    (
        "the next one is taken before it has the job",
        job(
            row=row(),
            workers=(worker("i-2", "waiting", deadline=NOW + 50),),
            hosts=(host("i-2"),),
            stints=(GONE,),
        ),
        "waiting for a host",
        "spot and on-demand are asked for",
    ),
    ("nobody is there any more", job(row=row(), stints=(GONE,)), "waiting for a host", ""),
    ("an agent that wrote no history has run it", job(row=row()), "waiting for a host", ""),
    ("people have stopped it", job(row=row(), finished=RUN), "stopped", "its volume stays"),
    (
        "people have stopped it, and it saves",
        job(row=holding("i-1"), finished=RUN, workers=(worker("i-1", "draining", deadline=NOW + 60),)),
        "stopped",
        "i-1 saves and gives it back",
    ),
    ("the stack wants none", job(target=0), "stopped", "its target is 0"),
    ("it is done", job(row=row(state="done"), finished=RUN), "done", ""),
    ("it is done, and nobody has said so yet", job(row=row(state="done")), "done", ""),
    (
        "it has failed",
        job(row=row(state="failed", reason="exit code 3"), finished=RUN),
        "failed",
        "exit code 3",
    ),
    (
        "an earlier revision was done",
        job(row=row(state="done", revision="b" * 40), finished="b" * 40),
        "pending",
        "",
    ),
    (
        "an earlier revision is stopped, this one runs",
        job(row=holding("i-1"), finished="b" * 40, workers=(worker("i-1"),), hosts=(host("i-1"),)),
        "running",
        "",
    ),
]


@pytest.mark.parametrize(("seen", "phase", "why"), [one[1:] for one in TABLE], ids=[one[0] for one in TABLE])
def test_what_is_observed_has_a_word(seen: JobObserved, phase: Phase, why: str) -> None:
    found = standing(seen)
    assert found.phase == phase, found
    assert found.why.startswith(why), found


def test_it_is_about_the_instance_that_has_the_lease() -> None:
    both = (worker("i-1", deadline=NOW + 9), worker("i-2"))
    hosts = (host("i-1"), host("i-2"))
    assert standing(job(row=holding("i-2"), workers=both, hosts=hosts)).host == hosts[1]
    assert standing(job(row=holding("i-1"), workers=both, hosts=hosts)).host == hosts[0]
