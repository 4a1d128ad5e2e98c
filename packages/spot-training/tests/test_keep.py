"""The best checkpoint, pinned ones and one in so many steps, of the history that survives interruptions."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spot_training import Checkpointer, Interval, Keep, Progress, SaveError, Spot, SpotTrainingError
from spot_training.storage.manifest import FILE, name_of, parse, step_of
from spot_training.storage.retention import BestCheckpoint, Retained, parse_retained
from support.checkpoints import verified
from support.disk import STALE, Clock, Disk, FakeNotice, Gone, content, dying_at, let_go, refusing
from support.small_disk import small_disk

LAST = 9
KEEP, EVERY = 2, 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


def steps(folder: Path) -> list[int]:
    found = (step_of(path.name) for path in folder.iterdir())
    return sorted(step for step in found if step is not None)


def retained(folder: Path, step: int) -> Retained:
    parsed = parse_retained(parse((folder / name_of(step) / FILE).read_text()).retained)
    assert parsed is not None
    return parsed


def save(folder: Path, *saves: tuple[int, Keep | None], **options: Any) -> Checkpointer:
    one = Checkpointer(folder, retry_policy=Clock().retry_policy(), **options)
    one.restore()
    for step, keep in saves:
        one.save(step, content(f"at {step}"), keep=keep)
    let_go(one)
    return one


class History:
    """What a training did, by its own account: each attempt gets other metrics, so a lost step is noticed."""

    def __init__(self, metric: Callable[[int, int], float]) -> None:
        self.metric = metric
        self.attempt = 0
        self.lived: dict[int, tuple[int, float | None]] = {}
        """Per step of the surviving history: the attempt that took it, and its metric if it was evaluated."""
        self.pinned: dict[str, int] = {}

    def best(self) -> tuple[int, float] | None:
        """The first of the lowest finite metrics."""
        finite = [(m, s) for s, (_, m) in sorted(self.lived.items()) if m is not None and math.isfinite(m)]
        return (min(finite)[1], min(finite)[0]) if finite else None

    def resume(self, step: int) -> None:
        self.lived = {s: value for s, value in self.lived.items() if s <= step}
        self.pinned = {name: s for name, s in self.pinned.items() if s <= step}
        self.attempt += 1


def train(folder: Path, history: History, disk: Disk) -> int:
    """One process: resume, take steps to the end; evaluate each second step, pin each fifth."""
    clock = Clock()
    spot = Spot(
        checkpointer=Checkpointer(
            folder, files=disk, retry_policy=clock.retry_policy(), keep=KEEP, keep_every=EVERY
        ),
        notice=FakeNotice(),
        interval=Interval(per_hour=0.5, max_seconds=2, environment={}),
        progress=Progress(environment={}),
        clock=clock,
        steps=LAST,
    )
    try:
        saved = spot.restore()
        first = saved.step if saved else 0
        history.resume(first)
        check(folder, history, first)
        for step in range(first + 1, LAST + 1):
            clock.sleep(1)
            attempt, metric = history.attempt, None
            if not step % 2:
                metric = history.metric(attempt, step)
                spot.keep(metric=metric)
            if not step % 5:
                spot.keep(pin=f"five-{step}")
                history.pinned[f"five-{step}"] = step
            history.lived[step] = attempt, metric
            spot.after(step, content(f"{attempt} {step}"))
        spot.save(LAST, content(f"{history.attempt} {LAST}"), last=True)
        check(folder, history, LAST)
    finally:
        let_go(spot.checkpointer)
    return first


def check(folder: Path, history: History, step: int) -> None:
    """Compare what a restored or last checkpoint stores, and the files of it, with the history."""
    if not step:
        return
    stored, best = retained(folder, step), history.best()
    assert (stored.best and (stored.best.step, stored.best.metric)) == best
    assert stored.pins == history.pinned
    assert [mark // EVERY for mark in stored.every] == list(range(1, step // EVERY + 1))
    for stays in stored.steps:
        verified(folder / name_of(stays))
        state = (folder / name_of(stays) / "rank-00000" / "state").read_text()
        assert state == f"{history.lived[stays][0]} {stays}"


def kill(folder: Path, history: History, number: int, *, keeps_renames: bool = True) -> bool:
    """Stop the machine at a touch of the disk; return whether it came so far."""
    disk = Disk(dying_at(number))
    try:
        train(folder, history, disk)
    except Gone:
        disk.lose_power(keeps_renames=keeps_renames)
        return True
    return False


@pytest.mark.parametrize("keeps_renames", [pytest.param(True, marks=pytest.mark.soak), False])
def test_after_a_kill_at_any_touch_the_best_is_that_of_the_surviving_history(
    folder: Path, keeps_renames: bool
) -> None:
    number = 0
    while True:
        number += 1 if keeps_renames else 3
        shutil.rmtree(folder, ignore_errors=True)
        history = History(lambda attempt, step: float((step * 7 + attempt * 5) % 11))
        if not kill(folder, history, number, keeps_renames=keeps_renames):
            break
        if train(folder, history, Disk()) == LAST:
            continue  # killed in its last deletion, which the next save would repeat
        names = steps(folder)
        stays = retained(folder, LAST).steps
        assert set(names) == {*names[-KEEP:], *stays, *retained(folder, names[-2]).steps}
    assert number > 100


@settings(deadline=None)
@given(
    metrics=st.lists(
        st.one_of(st.integers(0, 4).map(float), st.sampled_from([math.nan, math.inf, -math.inf])),
        min_size=5,
        max_size=5,
    ),
    kills=st.lists(st.tuples(st.integers(1, 150), st.booleans()), max_size=5),
    damages=st.sets(st.integers(0, 4)),
)
def test_whatever_the_metrics_and_kills_nothing_of_a_lost_future_stays(
    tmp_path_factory: pytest.TempPathFactory,
    metrics: list[float],
    kills: list[tuple[int, bool]],
    damages: set[int],
) -> None:
    folder = tmp_path_factory.mktemp("kept") / "c"
    history = History(lambda attempt, step: metrics[(step * 3 + attempt) % len(metrics)])
    for count, (number, keeps_renames) in enumerate(kills):
        kill(folder, history, number, keeps_renames=keeps_renames)
        # A kill at the first call leaves no folder. With two checkpoints the one before is restored.
        if count in damages and folder.exists() and len(steps(folder)) > 1:
            (folder / name_of(steps(folder)[-1]) / "rank-00000" / "state").write_text("?")
    train(folder, history, Disk())
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("mode", "metrics", "best"),
    [
        ("min", [0.5, 0.3, 0.3, 0.4], 20),  # of two equal ones the earlier
        ("max", [0.5, 0.3, 0.5, 0.4], 10),
        ("min", [math.nan, 0.7, math.nan, -math.inf], 20),
        ("max", [math.inf, math.nan, math.inf, 2], 40),
        ("min", [math.nan] * 4, None),
    ],
)
def test_ties_and_numbers_that_are_none(
    folder: Path, mode: str, metrics: list[float], best: int | None
) -> None:
    saves = [(10 * n + 10, Keep(metric, mode)) for n, metric in enumerate(metrics)]
    one = save(folder, *saves, keep=1)
    stored = one.retained.best
    assert (stored.step if stored else None) == best
    assert steps(folder) == sorted({40, *([best] if best else [])})


def test_the_best_before_stays_for_the_day_the_newest_is_damaged(folder: Path) -> None:
    save(folder, (10, Keep(0.5)), (20, None), (30, None), (40, Keep(0.1)), keep=2)
    assert steps(folder) == [10, 30, 40]
    (folder / name_of(40) / "rank-00000" / "state").write_text("?")
    assert save(folder, keep=2).retained.best == BestCheckpoint(10, 0.5, "min")
    assert steps(folder) == [10, 30]


def test_another_mode_is_another_metric() -> None:
    best = BestCheckpoint(10, 0.9, "max")
    assert Keep(1.0, "min").is_better(best)
    assert not Keep(0.5, "max").is_better(best)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"mode": "lowest"}, "mode must be min or max, not 'lowest'"),
        ({"pins": ("a b",)}, "a pin must have 1 to 64 letters"),
        ({"pins": ("",)}, r"a pin must have 1 to 64 letters, digits and _\.-, not ''"),
    ],
)
def test_what_is_no_request_is_refused(arguments: Mapping[str, Any], text: str) -> None:
    with pytest.raises(SpotTrainingError, match=text):
        Keep(**arguments)


def test_keep_every_is_at_least_a_step(folder: Path) -> None:
    with pytest.raises(SpotTrainingError, match="keep_every must be 1 step or more, not 0"):
        Checkpointer(folder, keep_every=0)


def test_a_name_moves_to_the_newest_that_gets_it(folder: Path) -> None:
    one = save(folder, (10, Keep(pins=("a", "b"))), (20, None), (30, Keep(pins=("a",))), (40, None), keep=1)
    assert one.retained.pins == {"a": 30, "b": 10}
    assert steps(folder) == [10, 30, 40]


def test_a_request_for_a_step_that_is_saved_is_stored_without_another_write(folder: Path) -> None:
    one = Checkpointer(folder, files=(disk := Disk()), keep=1)
    one.save(10, content("at 10"))
    writes: list[str] = []
    disk.at = lambda count, kind, path: writes.append(path.name) if kind == "write" else None
    one.save(10, content("again"), keep=Keep(0.5, pins=("a",)))
    assert [name.split(".")[1] for name in writes] == ["manifest"]
    assert retained(folder, 10).reasons(10) == ["best, min 0.5", "pin a"]
    assert (folder / name_of(10) / "rank-00000" / "state").read_text() == "at 10"
    let_go(one)
    again = save(folder, (20, None), keep=1)
    assert again.retained.best == BestCheckpoint(10, 0.5, "min")


def test_a_save_that_fails_is_not_the_best(folder: Path) -> None:
    clock, disk = Clock(), Disk()
    spot = Spot(
        checkpointer=Checkpointer(folder, files=disk, retry_policy=clock.retry_policy()),
        notice=FakeNotice(),
        interval=Interval(environment={}),
        progress=Progress(environment={}),
        clock=clock,
    )
    spot.restore()
    assert spot.keep(metric=0.5)
    assert not spot.keep(metric=0.6), "the request before is better, although it is not saved yet"
    disk.at = refusing(28, "write")
    spot.after(10, content("x"))
    disk.at = Disk().at
    assert spot.keep(metric=0.6)
    spot.after(20, content("x"))
    assert spot.checkpointer.retained.best == BestCheckpoint(20, 0.6, "min")
    assert not spot.keep(metric=0.6)
    assert spot.keep(metric=0.1, pin="end")
    spot.save(30, content("x"))
    assert spot.checkpointer.retained.reasons(30) == ["best, min 0.1", "pin end"]
    let_go(spot.checkpointer)


def test_what_cannot_be_read_is_not_deleted_and_keeps_what_it_may_refer_to(folder: Path) -> None:
    save(folder, (10, Keep(0.5)), (20, None), (30, None), keep=3)
    for step in (20,):
        body = json.loads((folder / name_of(step) / FILE).read_text())
        (folder / name_of(step) / FILE).write_text(json.dumps({**body, "version": 2}))
    save(folder, (40, Keep(0.4)), keep=2)
    assert steps(folder) == [20, 30, 40] or steps(folder) == [10, 20, 30, 40]
    save(folder, (50, None), (60, None), (70, None), keep=2)
    assert steps(folder) == [20, 40, 60, 70]  # of a newer format: it stays

    disk = Disk()
    one = Checkpointer(folder, files=disk, retry_policy=Clock().retry_policy(), keep=1)
    disk.at = lambda count, kind, path: (
        refusing(STALE, "read")(count, kind, path) if name_of(70) in str(path) else None
    )
    one.save(65, content("x"), keep=Keep(0.1))  # without a restore
    assert steps(folder) == [20, 40, 60, 65, 70], "what 70 refers to is not known"
    let_go(one)


def test_what_a_newer_version_keeps_is_ignored() -> None:
    assert parse_retained([1]) is parse_retained({"best": 3}) is None
    assert parse_retained({"best": None, "later": 1}) == Retained()


def block(megabytes: float) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        (path / "weights").write_bytes(os.urandom(int(megabytes * (1 << 20))))

    return write


def test_on_a_full_disk_pins_go_last_and_only_with_a_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "small", 6 * 1024 - 100) as small:
        folder = small / "c"
        one = Checkpointer(folder, retry_policy=Clock().retry_policy(), keep=1, keep_every=20)
        one.restore()
        one.save(10, block(1), keep=Keep(pins=("first",)))
        one.save(20, block(1))
        one.save(30, block(1), keep=Keep(0.5))
        one.save(33, block(1))
        assert steps(folder) == [10, 20, 30, 33]
        assert not [line for line in caplog.messages if "is full" in line]
        for step in (35, 36):
            one.save(step, block(2.5))
        lines = [line.split(" is full: ")[1] for line in caplog.messages if "is full" in line]
        assert [line.split(" is removed")[0] for line in lines] == [
            f"{name_of(20)} (every so many steps)",
            f"{name_of(30)} (best, min 0.5)",
            f"{name_of(10)} (pin first)",
        ]
        assert steps(folder) == [36]
        assert one.retained == Retained(), "the next metric is the best again"
        with pytest.raises(SaveError):
            one.save(37, block(5))
        assert steps(folder) == [36]
        let_go(one)


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "spot_training.command", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_lists_why_and_exports_the_best_and_a_named_one(folder: Path, tmp_path: Path) -> None:
    save(folder, (10, Keep(pins=("warm",))), (20, Keep(0.25)), (30, Keep(0.5)), (40, None), keep=1)
    lines = {line.split()[0]: line for line in run("ls", folder).stdout.splitlines()}
    assert lines[name_of(20)].endswith("whole  [best, min 0.25]")
    assert lines[name_of(10)].endswith("whole  [pin warm]")
    assert lines[name_of(40)].endswith("whole")
    for option, state in ((["--best"], "at 20"), (["--pin", "warm"], "at 10"), ([], "at 40")):
        destination = tmp_path / state.replace(" ", "-")
        assert run("export", folder, destination, *option).returncode == 0
        assert (destination / "rank-00000" / "state").read_text() == state
    refused = run("export", folder, tmp_path / "x", "--pin", "cold")
    assert refused.stderr == f"spot-training: {folder} has no pin 'cold'; its pins are: warm\n"
    (folder / name_of(20) / "rank-00000" / "state").write_text("?")
    refused = run("export", folder, tmp_path / "x", "--best")
    assert (refused.returncode, refused.stderr.count("has 1 of 5 bytes")) == (1, 1)
    save(tmp_path / "bare", (10, None))
    refused = run("export", tmp_path / "bare", tmp_path / "x", "--best")
    assert "no checkpoint has a metric" in refused.stderr
