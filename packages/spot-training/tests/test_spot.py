"""The checkpoint interval, progress reports, the training log, and the loop that combines them."""

from __future__ import annotations

import csv
import errno
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spot_training import Checkpointer, Interval, Progress, SaveError, Spot, SpotTrainingError
from spot_training.log import TrainingLog
from support.disk import Clock, Disk, FakeNotice, content, let_go, refusing


@given(cost=st.floats(0.001, 1000), rate=st.floats(0.001, 60))
def test_the_interval_keeps_its_bounds_and_is_the_optimum_within_them(cost: float, rate: float) -> None:
    interval = Interval(per_hour=rate)
    interval.saved(cost)
    seconds, between = interval.seconds, 3600 / rate
    assert seconds <= 600
    if seconds < 600:
        assert cost / (seconds + cost) <= 0.035 + 1e-9
        optimum = math.sqrt(2 * cost * between) - cost if cost < between / 2 else between
        assert seconds == pytest.approx(max(optimum, cost * (1 / 0.035 - 1)))


def test_where_bound_and_ten_minutes_conflict_the_ten_minutes_win_and_both_are_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    interval = Interval(per_hour=0.5)
    interval.saved(30.0)
    assert (interval.seconds, interval.seconds) == (600.0, 600.0)
    [line] = [one.getMessage() for one in caplog.records]
    assert line == (
        "a save takes 30 s: every 600 s that is 4.8 % of the time, above the limit of 3.5 %; "
        "still saving every 600 s (max_seconds=600)"
    )


PRICES = {"GPU_SPOT_INSTANCE_DOLLARS_AN_HOUR": "0.35", "GPU_SPOT_STORAGE_DOLLARS_A_GIB": "0.06"}


@pytest.mark.parametrize("is_passed", [True, False])
def test_writing_costs_at_most_a_twentieth_of_the_instance(
    is_passed: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    passed = {"dollars_per_gb": 0.06 * 1e9 / 2**30, "dollars_per_hour": 0.35} if is_passed else {}
    environment = {} if is_passed else PRICES
    paid = Interval(per_hour=0.5, environment=environment, **passed)
    free = Interval(per_hour=0.5, environment={})
    for interval in (paid, free):
        interval.saved(0.3)
        interval.wrote(600 << 20)
    assert free.seconds < 70  # on EFS more than the instance
    an_hour = 600 / 1024 * 0.06 * 3600 / paid.seconds
    assert an_hour == pytest.approx(0.05 * 0.35)
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        "spot_training: a save writes 0.629 GB for $0.0352: every 7232 s that is 5.0 % of the instance's "
        "$0.35 an hour"
    )
    small = Interval(per_hour=0.5, environment=environment, **passed)
    small.saved(0.3)
    small.wrote(1_000)
    assert small.seconds == free.seconds
    with pytest.raises(SpotTrainingError, match=r"must be 0 or more; they are -2 and 0\.0$"):
        Interval(dollars_per_gb=-2, environment={})


@pytest.mark.parametrize(
    ("missing", "name"),
    [
        ("GPU_SPOT_INSTANCE_DOLLARS_AN_HOUR", "the price of the instance"),
        ("GPU_SPOT_STORAGE_DOLLARS_A_GIB", "the price of writing"),
    ],
)
def test_without_one_of_the_prices_it_saves_seldom_and_says_so(
    missing: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    interval = Interval(environment={name: text for name, text in PRICES.items() if name != missing})
    local = interval.unpaid()
    for one in (interval, local):
        one.saved(0.3)
    assert interval.seconds < 70  # until it is known what a save writes
    for one in (interval, local):
        one.wrote(600 << 20)
    assert interval.seconds == 600
    assert local.seconds < 70
    assert capsys.readouterr().err == f"spot_training: {name} is unknown: saves every 600 s\n"


def test_storage_that_is_free_needs_no_price_of_the_instance(capsys: pytest.CaptureFixture[str]) -> None:
    interval = Interval(environment={"GPU_SPOT_STORAGE_DOLLARS_A_GIB": "0"})
    interval.saved(0.3)
    interval.wrote(600 << 20)
    assert interval.seconds < 70
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", PRICES)
def test_a_price_that_is_none_is_refused(name: str) -> None:
    for text in ("x", "-1", "nan", "inf"):
        with pytest.raises(SpotTrainingError, match=f"{name} must be a number"):
            Interval(environment={name: text})


def test_one_slow_save_changes_nothing_for_long() -> None:
    interval = Interval(per_hour=1)
    for cost in (1, 1, 50, 1, 1):
        interval.saved(cost)
    assert interval.cost == 1


def test_the_rate_comes_from_the_environment_or_is_refused() -> None:
    often = Interval(environment={"GPU_SPOT_INTERRUPTIONS_PER_HOUR": "8"})
    seldom = Interval(environment={})
    for one, first in ((often, 45.0), (seldom, 60.0)):
        assert one.seconds == first
        one.saved(1.0)
    assert often.seconds == pytest.approx(math.sqrt(2 * 450) - 1)
    assert seldom.seconds == pytest.approx(math.sqrt(2 * 7200) - 1)
    for wrong in ("often", "0", "-1", "nan", "inf"):
        with pytest.raises(SpotTrainingError, match=f"must be a number above 0, not '{wrong}'"):
            Interval(environment={"GPU_SPOT_INTERRUPTIONS_PER_HOUR": wrong})


def test_progress_is_reported_at_most_every_ten_seconds(tmp_path: Path) -> None:
    report, done, clock = tmp_path / "tell.json", tmp_path / "done", Clock()
    environment = {"GPU_SPOT_TELL": str(report), "GPU_SPOT_DONE": str(done)}
    progress = Progress(environment=environment, clock=clock)
    progress.report(1, 50)
    assert json.loads(report.read_text()) == {"step": 1, "steps": 50}
    progress.report(2, 50)
    assert json.loads(report.read_text())["step"] == 1
    clock.sleep(10)
    progress.report(3, None)
    assert json.loads(report.read_text()) == {"step": 3}
    progress.report(4, 50, now=True)
    assert json.loads(report.read_text())["step"] == 4
    assert not done.exists()
    progress.done()
    assert done.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["done", "tell.json"]


EXPORTS = """
import json, os, pathlib, sys
from spot_training.progress import Progress

progress = Progress()
progress.report(50, 50, now=True)
progress.finished()
print(pathlib.Path(os.environ["GPU_SPOT_TELL"]).read_text(), flush=True)
"""


@pytest.mark.parametrize(
    ("end", "rank", "expected"),
    [
        ("", "0", {"step": 50, "steps": 50, "finished": True}),
        ("", "1", {"step": 50, "steps": 50}),
        ("", "node", {"step": 50, "steps": 50, "finished": True}),
        ("os._exit(0)", "0", {"step": 50, "steps": 50}),
        (
            "open('missing/model')",
            "0",
            {
                **{"step": 50, "steps": 50, "error_type": "FileNotFoundError"},
                "error": "FileNotFoundError: [Errno 2] No such file or directory: 'missing/model'",
            },
        ),
        (  # the second training of the script is interrupted
            "later = Progress(); later.report(3, 50, now=True); later.is_interrupted = lambda: True",
            "0",
            {"step": 3, "steps": 50},
        ),
    ],
)
def test_a_training_is_finished_when_its_script_is(
    tmp_path: Path, end: str, rank: str, expected: dict[str, object]
) -> None:
    report = tmp_path / "tell.json"
    # A node of several, whose first process has rank 3 of all: the agent waits for the end of rank 0.
    expected = {**expected, "rank": 3} if rank == "node" else expected
    ranks = {"LOCAL_RANK": "0", "RANK": "3"} if rank == "node" else {"LOCAL_RANK": rank}
    environment = {**os.environ, "GPU_SPOT_TELL": str(report), **ranks}
    done = subprocess.run(
        [sys.executable, "-c", EXPORTS + end], env=environment, capture_output=True, text=True, check=False
    )
    assert json.loads(done.stdout) == {"step": 50, "steps": 50}  # during its export
    assert json.loads(report.read_text()) == expected


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("progress.report(3, 50, now=True)", "UnfinishedError"),
        ("progress.report(3, None, now=True)", "UnfinishedError"),
        ("progress.report(3, 50, now=True); sys.exit(3)", "UnfinishedError"),
        ("", "UnfinishedError"),
        ("progress.report(50, 50, now=True)", None),
        ("progress.report(3, 50, now=True); progress.finished()", None),
        ("progress.report(3, 50, now=True); progress.failed(ValueError('bad'))", "ValueError"),
        ("progress.failed(ValueError('bad')); progress.report(50, 50, now=True); progress.finished()", None),
        ("try: Spot('/proc/none').restore()\nexcept Exception: pass", "SaveError"),
    ],
)
def test_an_end_that_is_not_said_is_a_failure(tmp_path: Path, body: str, kind: str | None) -> None:
    report = tmp_path / "tell.json"
    script = f"import sys\nfrom spot_training import Progress, Spot\nprogress = Progress()\n{body}"
    environment = {**os.environ, "GPU_SPOT_TELL": str(report)}
    subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, check=False)
    written = json.loads(report.read_text())
    assert (written.get("error_type"), written.get("finished", False)) == (kind, kind is None)


def test_a_progress_file_that_cannot_be_written_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    progress = Progress(environment={"GPU_SPOT_TELL": str(tmp_path / "no" / "tell")})
    progress.report(1, 2, now=True)
    progress.report(2, 2, now=True)
    assert len(caplog.records) == 1
    Progress(environment={}).report(1, 2, now=True)


def test_a_log_goes_on_behind_the_checkpoint(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "log" / "training.jsonl"
    log = TrainingLog(path)
    log.write({"step": 1, "loss": 0.5})
    position = log.position()
    log.write({"step": 2, "loss": math.nan})
    assert json.loads(path.read_text().splitlines()[1]) == {"step": 2, "loss": None}
    log.close()
    again = TrainingLog(path)
    again.rewind(position)
    again.write({"step": 2, "loss": 0.25})
    again.close()
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == [1, 2]
    assert not caplog.records
    os.truncate(path, 5)
    last = TrainingLog(path)
    last.rewind(position)
    last.write({"step": 2})
    last.close()
    assert "earlier rows are lost" in caplog.text
    assert path.read_text().splitlines()[-1] == '{"step": 2}'


def test_a_csv_log_has_one_header_and_goes_on_behind_the_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "training_log.csv"
    log = TrainingLog(path)
    log.rewind(log.position())
    log.write({"step": 1, "loss": 0.5, "note": 'a "b", c'}, optional=["val_loss"])
    log.write({"step": 2, "val_loss": math.inf})
    position = log.position()
    log.write({"step": 3, "loss": 0.25})
    log.close()
    again = TrainingLog(path)
    again.rewind(position)
    again.write({"loss": 0.125, "step": 3, "val_loss": 2.0})
    again.write({"step": 4, "rate": 0.1})
    again.write({"step": 5, "rate": 0.1})
    again.close()
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["1", "2", "3", "4", "5"]
    assert rows[0] == {"step": "1", "loss": "0.5", "note": 'a "b", c', "val_loss": ""}
    assert [row["val_loss"] for row in rows] == ["", "", "2.0", "", ""]
    assert [record.getMessage() for record in caplog.records] == [f"{path} has no column rate: left out"]
    last = TrainingLog(path)
    last.rewind(0)
    last.write({"step": 1, "rate": 0.1})
    last.close()
    assert path.read_text() == "step,rate\n1,0.1\n"


def spot(folder: Path, disk: Disk, clock: Clock) -> Spot:
    checkpointer = Checkpointer(folder, files=disk, retry_policy=clock.retry_policy())
    return Spot(
        checkpointer=checkpointer,
        notice=FakeNotice(),
        interval=Interval(per_hour=0.5, environment={}),
        progress=Progress(environment={}),
        clock=clock,
        steps=10,
    )


def test_it_saves_by_the_interval_and_at_the_notice(tmp_path: Path) -> None:
    clock = Clock()
    one = spot(tmp_path, Disk(), clock)
    assert one.restore() is None
    for step in range(1, 300):
        clock.sleep(1)

        def write(folder: Path) -> None:
            clock.sleep(2)
            content("x")(folder)

        one.after(step, write)
        if step == 250:
            one.notice.received = True  # type: ignore[misc]
        if one.should_stop():
            one.after(step, write)
            break
    saved = sorted(int(path.name[5:]) for path in tmp_path.glob("step-*"))
    assert saved == [60, 228, 250]  # a first after a minute; then as the cost says; then the last
    assert one.interval.seconds == pytest.approx(math.sqrt(4 * 7200) - 2)
    one.finish()
    let_go(one.checkpointer)


def test_a_failed_save_is_logged_retried_and_raised_at_a_notice_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, disk = Clock(), Disk()
    one = spot(tmp_path, disk, clock)
    one.restore()
    disk.at = refusing(errno.ENOSPC, "write")
    clock.sleep(60)
    one.after(1, content("x"))
    assert "step 1 not saved, training continues" in caplog.text
    assert "No space left on device" in caplog.text
    one.finish()
    assert "last step not saved; the script continues to its end" in caplog.records[-1].getMessage()
    caplog.clear()
    with one.ending():
        one.save(1, content("x"), last=True)
    one.finish()
    assert [record.getMessage()[:19] for record in caplog.records] == ["last step not saved"]
    clock.sleep(60)
    disk.at = Disk().at
    one.after(2, content("x"))
    one.finish(2)
    disk.at = refusing(errno.ENOSPC, "write")
    one.notice.received = True  # type: ignore[misc]
    with pytest.raises(SaveError):
        one.after(3, content("x"))
    let_go(one.checkpointer)


DRAWS = """
import os, random, sys
from spot_training import Interval, Spot
random.seed(1)
spot = Spot("c", steps=9, interval=Interval(max_seconds=1e-6))
saved = spot.restore()
for step in range(saved.step if saved else 0, 9):
    print(step, random.random())
    spot.after(step + 1, lambda folder: None)
    if str(step) == os.environ["UNTIL"]:
        sys.exit()
spot.finish()
"""


def test_a_loop_of_its_own_draws_the_same_random_numbers_after_a_restart(tmp_path: Path) -> None:
    def play(folder: str, until: int) -> list[str]:
        (tmp_path / folder).mkdir(exist_ok=True)
        environment = {**os.environ, "UNTIL": str(until)}
        command = [sys.executable, "-c", DRAWS]
        return subprocess.check_output(command, cwd=tmp_path / folder, env=environment, text=True).split(
            "\n"
        )[:-1]

    rows = play("whole", 9)
    assert play("killed", 3) + play("killed", 9) == rows
