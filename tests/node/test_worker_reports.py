"""What goes with a worker's heartbeat: its own words are not trusted, its GPU's are measured."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.agent.config import Service
from contracts.registry import item as registry_item
from contracts.registry import worker_report
from contracts.registry.batches import BatchRow
from contracts.registry.item import Worker
from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.waiting import TIMEOUT_SECONDS
from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.work import worker_report_file
from userdata.agent.work.service.worker_reports import RequestRate, WorkerReports, gpu_poller, version


def inline(work: Callable[[], None]) -> None:
    work()


class Bench:
    def __init__(self, tmp: Path, clock: FakeClock) -> None:
        self.tmp, self.clock = tmp, clock
        self.nvml = FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b")])
        self.worker_reports = self.make(inline)
        worker_report_file.create_worker_directory(tmp, 0)
        worker_report_file.create_worker_directory(tmp, 2)

    def make(self, run_in_background: BackgroundRunner) -> WorkerReports:
        looks = gpu_poller(Gpus(self.nvml, 2).sample, run_in_background, self.clock)
        return WorkerReports({0: [0], 1: [0], 2: [1]}, looks, self.clock, self.tmp)

    def write_report(self, content: Any, slot: int = 0, at: float | None = None) -> None:
        file = worker_report_file.report_path(self.tmp, slot)
        file.write_text(content if isinstance(content, str) else json.dumps(content))
        os.utime(file, (at or self.clock.wall(),) * 2)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.worker_reports.poll()


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock) -> Bench:
    return Bench(tmp_path, clock)


def test_a_report_has_the_counts_and_the_rate(bench: Bench) -> None:
    bench.worker_reports.record_start(0, "v1")
    rates = []
    for minute in range(12):
        bench.write_report({"done": 120 * minute, "failed": minute})
        rates.append(bench.worker_reports.build(0).rate)
        bench.clock.advance(60)
    report = bench.worker_reports.build(0)
    assert (report.done, report.failed, report.reported_at) == (1320, 11, bench.clock.wall() - 60)
    assert rates == [0.0, *[2.0] * 11]


def test_the_rate_is_that_of_the_last_minutes() -> None:
    rate = RequestRate()
    for minute in range(30):
        rate.update(600 * minute, 60.0 * minute)
    rates = [rate.update(600 * 29, 60.0 * minute)[0] for minute in range(30, 36)]
    assert rates == pytest.approx([8.0, 6.0, 4.0, 2.0, 0.0, 0.0])


def test_rare_reports_give_a_rate() -> None:
    rate = RequestRate()
    assert [rate.update(n * 600, n * 600.0)[0] for n in range(4)] == [0.0, 1.0, 1.0, 1.0]


def test_busy_seconds_give_the_busy_share(bench: Bench) -> None:
    bench.worker_reports.record_start(0, "v1")
    shares = []
    for minute in range(8):
        bench.write_report({"done": 60 * minute, "busy": 15.0 * min(minute, 4)})
        shares.append(bench.worker_reports.build(0).busy)
        bench.clock.advance(60)
    assert shares[:5] == [None, *[0.25] * 4]  # a rate of 1 in a quarter of the time: four a second
    assert shares[-1] == pytest.approx(30 / 300)
    bench.write_report({"done": 480})
    assert (bench.worker_reports.build(0).busy, bench.worker_reports.build(0).rate) == (
        None,
        0.0,
    )  # another process counts


def test_batches_are_those_of_the_last_minutes(bench: Bench) -> None:
    bench.worker_reports.record_start(0, "v1")
    reports = []
    for minute in range(12):
        rows = [[1, 9, 9, 4.5, 0]] + ([[4, 2 * minute, 7 * minute, 3.25 * minute, minute]] if minute else [])
        bench.write_report({"done": 9 + 7 * minute, "batches": rows, "batchSize": 8})
        reports.append(bench.worker_reports.build(0))
        bench.clock.advance(60)
    assert reports[0].batches == ()  # what was before is not of these minutes
    assert (reports[2].batches, reports[2].batch_size) == ((BatchRow(4, 4, 14, 6.5, 2),), 8)
    assert reports[-1].batches == (BatchRow(4, 10, 35, 16.25, 5),)
    bench.worker_reports.record_start(0, "v1")
    bench.write_report({"done": 5, "batches": [[1, 5, 5, 2.5, 0]], "batchSize": 8})
    assert bench.worker_reports.build(0).batches == ()


def test_refused_requests_have_a_rate_of_their_own(bench: Bench) -> None:
    bench.worker_reports.record_start(0, "v1")
    for minute in range(4):
        bench.write_report({"done": 120 * minute, "refused": 30 * minute})
        report = bench.worker_reports.build(0)
        bench.clock.advance(60)
    assert (report.rate, report.failed, report.refused) == (2.0, 0, 0.5)
    for wrong in (-1, "many", 1.5, True):
        bench.write_report({"done": 1, "refused": wrong})
        assert bench.worker_reports.build(0).done == 0


def test_why_a_worker_takes_no_requests_is_one_bounded_line(bench: Bench) -> None:
    bench.write_report({"done": 1, "stopped": "1000 replies wait for the broker:\nlow on memory"})
    report = bench.worker_reports.build(0)
    assert report.stopped == "1000 replies wait for the broker: low on memory"
    stored = registry_item.dump(Worker("ocr", "i-1", 0, 1.0, 2.0, "ready", report=report))
    assert registry_item.parse(stored).report == report
    for untrusted in ("x" * 4000, ["x"] * 500, {"a": 1}):
        bench.write_report({"done": 1, "stopped": untrusted})
        assert 0 < len(bench.worker_reports.build(0).stopped) <= worker_report.MAX_STOPPED_LENGTH
    bench.write_report({"done": 2, "stopped": None})
    assert bench.worker_reports.build(0).stopped == ""


def test_workers_of_the_earlier_version_report_no_batches(bench: Bench) -> None:
    bench.write_report({"done": 5, "busy": 2.5})
    report = bench.worker_reports.build(0)
    assert (report.done, report.batches, report.batch_size) == (5, None, None)
    stored = registry_item.dump(Worker("ocr", "i-1", 0, 1.0, 2.0, "ready", report=report))
    assert not {"batches", "batchSize", "refused"} & stored["pulse"]["M"].keys()
    assert registry_item.parse(stored).report == report


def test_a_busy_share_is_at_most_one() -> None:
    rate = RequestRate()
    rate.update(0, 0.0, 0.0)
    assert rate.update(60, 60.0, 240.0) == (1.0, 1.0)


def test_a_restart_resets_the_counts(bench: Bench) -> None:
    bench.worker_reports.record_start(0, "v1")
    bench.write_report({"done": 900})
    bench.worker_reports.build(0)
    bench.clock.advance(60)
    bench.worker_reports.record_start(0, "v1")
    bench.write_report({"done": 30})
    report = bench.worker_reports.build(0)
    assert (report.done, report.rate, report.starts) == (30, 0.0, 2)


def test_a_worker_without_a_report_has_zero_counts(bench: Bench) -> None:
    bench.worker_reports.record_start(1, "v1")
    report = bench.worker_reports.build(1)
    assert (report.version, report.reported_at, report.done, report.rate) == ("v1", 0.0, 0, 0.0)
    bench.write_report({"queueDepth": 3})
    assert bench.worker_reports.build(0).reported_at == 0.0


@pytest.mark.parametrize(
    "nonsense",
    [
        *("", "{", "[" * 4000, '"done"', "[1]", " " * 5000, '{"done": NaN}', '{"done": 1e999}'),
        *({"done": -1}, {"done": 1, "failed": 2}, {"done": True}, {"done": "7"}, {"done": 2**53 + 1}),
        {"done": 1, "failed": None},
        *(
            {"done": 1, "busy": -1},
            {"done": 1, "busy": "7"},
            {"done": 1, "busy": True},
            '{"done":1,"busy":1e999}',
        ),
        *(
            {"done": 1, "batches": [], "batchSize": 0},
            {"done": 1, "batches": {}, "batchSize": 1},
            {"done": 1, "batches": [[1, 1, 1]], "batchSize": 1},
            {"done": 1, "batches": [[1, 2, 1, 1.0, 0]], "batchSize": 1},
            {"done": 1, "batches": [[1, 1, 1, -1.0, 0]], "batchSize": 1},
            {"done": 1, "batches": [[1, 1, 2**60, 1.0, 0]], "batchSize": 1},
            {"done": 1, "batches": [[1, 1, 1, 1.0, 0]] * 14, "batchSize": 1},
            '{"done":1,"batches":[[1,1,1,1e999,0]],"batchSize":1}',
        ),
    ],
)
def test_nonsense_is_left_out_and_complained_of_once(
    nonsense: Any, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.write_report(nonsense)
    for _ in range(3):
        report = bench.worker_reports.build(0)
        assert (report.done, report.failed, report.reported_at, report.rate) == (0, 0, 0.0, 0.0)
    assert [record.message for record in caplog.records] == ["request counts not readable"]
    bench.write_report({"done": 5}, slot=2)
    assert bench.worker_reports.build(2).done == 5


def test_no_link_pipe_or_time_of_its_own_choice_is_believed(bench: Bench) -> None:
    bench.write_report({"done": 5}, at=bench.clock.wall() + 3600)
    assert bench.worker_reports.build(0).reported_at == 0.0
    bench.write_report({"done": 5}, at=bench.clock.wall() + 30)
    assert bench.worker_reports.build(0).reported_at == bench.clock.wall()
    file = worker_report_file.report_path(bench.tmp, 0)
    file.unlink()
    os.mkfifo(file)
    assert bench.worker_reports.build(0).reported_at == 0.0
    file.unlink()
    (bench.tmp / "secret").write_text('{"done": 9}')
    file.symlink_to(bench.tmp / "secret")
    assert bench.worker_reports.build(0).done == 0


@given(
    st.lists(
        st.tuples(
            st.integers(-(2**60), 2**60) | st.floats() | st.text(max_size=5),
            st.integers(-5, 2**60) | st.none(),
            st.integers(0, 2**31) | st.floats(0, 1e9),
        ),
        max_size=8,
    )
)
def test_any_report_file_gives_a_worker_report(
    tmp_path_factory: pytest.TempPathFactory, content: list[tuple[Any, Any, float]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("told"), FakeClock())
    for done, failed, at in content:
        bench.write_report(json.dumps({"done": done, "failed": failed}), at=at)
        said = bench.worker_reports.build(0)
        item = registry_item.dump(Worker("ocr", "i-1", 0, 1.0, 2.0, "ready", report=said))
        assert registry_item.parse(item).report == said
        bench.clock.advance(10)


def test_a_gpu_is_busy_as_it_was_in_the_last_minute(bench: Bench) -> None:
    first, second = bench.nvml.gpus
    first.busy, second.busy = 80, None
    bench.pass_time(60)
    assert (bench.worker_reports.build(0).gpu, bench.worker_reports.build(2).gpu) == ("GPU-a", "GPU-b")
    assert (bench.worker_reports.build(0).gpu_use, bench.worker_reports.build(1).gpu_use) == (80.0, 80.0)
    assert bench.worker_reports.build(2).gpu_use is None  # the driver does not say, which is not 0
    gpus = Gpus(bench.nvml, 2)
    assert [gpus.sample().lost for _ in range(5)] == [0] * 5  # and is not a fault
    first.busy = 0
    bench.pass_time(30)
    assert 30 < (bench.worker_reports.build(0).gpu_use or 0.0) < 50
    bench.pass_time(40)
    assert bench.worker_reports.build(0).gpu_use == 0.0


def test_a_lost_gpu_keeps_its_name_and_the_other_its_place(bench: Bench) -> None:
    first, second = bench.nvml.gpus
    second.busy = 50
    bench.pass_time(10)
    first.error = pynvml.NVML_ERROR_GPU_IS_LOST
    bench.nvml.xids.append((first, 79))
    bench.pass_time(70)
    assert (
        bench.worker_reports.build(0).gpu,
        bench.worker_reports.build(0).gpu_use,
        bench.worker_reports.build(0).xid,
    ) == ("GPU-a", None, 79)
    assert (bench.worker_reports.build(2).gpu_use, bench.worker_reports.build(2).xid) == (50.0, 0)


def test_a_programs_own_xid_is_none_of_the_gpus(bench: Bench) -> None:
    bench.nvml.xids += [(bench.nvml.gpus[0], 31), (bench.nvml.gpus[0], 43)]
    bench.pass_time(20)
    assert bench.worker_reports.build(0).xid == 0


def test_a_hanging_driver_delays_nothing(bench: Bench) -> None:
    bench.nvml.gpus[0].busy = 70
    hangs, threads = threading.Event(), list[threading.Thread]()
    looks = Gpus(bench.nvml, 2).sample

    def look() -> Any:
        hangs.wait(TIMEOUT_SECONDS)
        return looks()

    def run_in_background(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    hung = WorkerReports({0: [0]}, gpu_poller(look, run_in_background, bench.clock), bench.clock, bench.tmp)
    for _ in range(100):
        bench.clock.advance(1)
        hung.poll()
        assert hung.build(0).gpu_use is None
    assert len(threads) == 1
    hangs.set()
    threads[0].join()
    hung.poll()
    assert hung.build(0).gpu_use == 70.0


def test_a_background_query_raises_where_it_is_polled(clock: FakeClock) -> None:
    def ask() -> int:
        raise AgentError("away")

    question = BackgroundPoller("it", ask, inline, clock, 60)
    for _ in range(2):
        with pytest.raises(AgentError, match="away"):
            question.poll()


def test_a_version_is_the_images_digest_or_says_what_command_runs() -> None:
    digest = "sha256:" + "0a" * 32
    assert version(Service(image=f"1.dkr.ecr.us-west-2.amazonaws.com/ocr:v1@{digest}")) == digest
    plain = [
        Service(command=("serve", "a b")),
        Service(command=("serve", "a", "b")),
        Service(command=("serve", "a b"), environment={"A": "1"}),
        Service(command=("serve", "a b"), environment={"A": "2"}),
    ]
    assert len({version(one) for one in plain}) == 4
    same = Service(command=("serve",), environment={"B": "2", "A": "1"})
    assert version(same) == version(Service(command=("serve",), environment={"A": "1", "B": "2"}))
    assert all(len(version(one)) <= worker_report.MAX_VERSION_LENGTH for one in plain)
