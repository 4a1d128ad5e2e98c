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
from contracts.registry import worker_report as pulses
from contracts.registry.item import Worker
from tests.node.clocks import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from tests.waiting import PATIENCE
from userdata.agent.machine.background import Aside, Beside
from userdata.agent.machine.errors import AgentError
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.work import worker_report_file as tell
from userdata.agent.work.service.pulses import Pulses, RequestRate, version


def inline(work: Callable[[], None]) -> None:
    work()


class Bench:
    def __init__(self, tmp: Path, clock: FakeClock) -> None:
        self.tmp, self.clock = tmp, clock
        self.nvml = FakeNvml([FakeGpu("GPU-a"), FakeGpu("GPU-b")])
        self.pulses = self.make(inline)
        tell.make_place(tmp, 0)
        tell.make_place(tmp, 2)

    def make(self, aside: Aside) -> Pulses:
        looks = Beside(Gpus(self.nvml, 2).look, aside)
        return Pulses({0: 0, 1: 0, 2: 1}, looks, self.clock, self.tmp)

    def tell(self, told: Any, slot: int = 0, at: float | None = None) -> None:
        file = tell.tell_file(self.tmp, slot)
        file.write_text(told if isinstance(told, str) else json.dumps(told))
        os.utime(file, (at or self.clock.wall(),) * 2)

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1)
            self.pulses.look()


@pytest.fixture
def bench(tmp_path: Path, clock: FakeClock) -> Bench:
    return Bench(tmp_path, clock)


def test_a_worker_tells_what_it_has_done_and_how_fast(bench: Bench) -> None:
    bench.pulses.started(0, "v1")
    rates = []
    for minute in range(12):
        bench.tell({"done": 120 * minute, "failed": minute})
        rates.append(bench.pulses.of(0).rate)
        bench.clock.advance(60)
    told = bench.pulses.of(0)
    assert (told.done, told.failed, told.at) == (1320, 11, bench.clock.wall() - 60)
    assert rates == [0.0, *[2.0] * 11]


def test_the_rate_is_that_of_the_last_minutes() -> None:
    rate = RequestRate()
    for minute in range(30):
        rate.see(600 * minute, 60.0 * minute)
    rates = [rate.see(600 * 29, 60.0 * minute)[0] for minute in range(30, 36)]
    assert rates == pytest.approx([8.0, 6.0, 4.0, 2.0, 0.0, 0.0])


def test_a_worker_that_tells_seldom_has_a_rate_too() -> None:
    rate = RequestRate()
    assert [rate.see(n * 600, n * 600.0)[0] for n in range(4)] == [0.0, 1.0, 1.0, 1.0]


def test_who_says_for_how_long_it_had_work_is_known_by_its_pace(bench: Bench) -> None:
    bench.pulses.started(0, "v1")
    shares = []
    for minute in range(8):
        bench.tell({"done": 60 * minute, "busy": 15.0 * min(minute, 4)})
        shares.append(bench.pulses.of(0).busy)
        bench.clock.advance(60)
    assert shares[:5] == [None, *[0.25] * 4]  # a rate of 1 in a quarter of the time: four a second
    assert shares[-1] == pytest.approx(30 / 300)
    bench.tell({"done": 480})
    assert (bench.pulses.of(0).busy, bench.pulses.of(0).rate) == (None, 0.0)  # another process counts


def test_nobody_works_for_more_than_all_of_the_time() -> None:
    rate = RequestRate()
    rate.see(0, 0.0, 0.0)
    assert rate.see(60, 60.0, 240.0) == (1.0, 1.0)


def test_another_start_counts_anew(bench: Bench) -> None:
    bench.pulses.started(0, "v1")
    bench.tell({"done": 900})
    bench.pulses.of(0)
    bench.clock.advance(60)
    bench.pulses.started(0, "v1")
    bench.tell({"done": 30})
    told = bench.pulses.of(0)
    assert (told.done, told.rate, told.starts) == (30, 0.0, 2)


def test_a_worker_that_tells_nothing_is_not_asked_for_it(bench: Bench) -> None:
    bench.pulses.started(1, "v1")
    told = bench.pulses.of(1)
    assert (told.version, told.at, told.done, told.rate) == ("v1", 0.0, 0, 0.0)
    bench.tell({"queueDepth": 3})
    assert bench.pulses.of(0).at == 0.0


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
    ],
)
def test_nonsense_is_left_out_and_complained_of_once(
    nonsense: Any, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.tell(nonsense)
    for _ in range(3):
        told = bench.pulses.of(0)
        assert (told.done, told.failed, told.at, told.rate) == (0, 0, 0.0, 0.0)
    assert [record.message for record in caplog.records] == ["what a worker has done cannot be read"]
    bench.tell({"done": 5}, slot=2)
    assert bench.pulses.of(2).done == 5


def test_no_link_pipe_or_time_of_its_own_choice_is_believed(bench: Bench) -> None:
    bench.tell({"done": 5}, at=bench.clock.wall() + 3600)
    assert bench.pulses.of(0).at == 0.0
    bench.tell({"done": 5}, at=bench.clock.wall() + 30)
    assert bench.pulses.of(0).at == bench.clock.wall()
    file = tell.tell_file(bench.tmp, 0)
    file.unlink()
    os.mkfifo(file)
    assert bench.pulses.of(0).at == 0.0
    file.unlink()
    (bench.tmp / "secret").write_text('{"done": 9}')
    file.symlink_to(bench.tmp / "secret")
    assert bench.pulses.of(0).done == 0


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
def test_whatever_a_worker_tells_a_pulse_comes_of_it(
    tmp_path_factory: pytest.TempPathFactory, told: list[tuple[Any, Any, float]]
) -> None:
    bench = Bench(tmp_path_factory.mktemp("told"), FakeClock())
    for done, failed, at in told:
        bench.tell(json.dumps({"done": done, "failed": failed}), at=at)
        said = bench.pulses.of(0)
        item = registry_item.dump(Worker("ocr", "i-1", 0, 1.0, 2.0, "ready", pulse=said))
        assert registry_item.parse(item).pulse == said
        bench.clock.advance(10)


def test_a_gpu_is_busy_as_it_was_in_the_last_minute(bench: Bench) -> None:
    first, second = bench.nvml.gpus
    first.busy, second.busy = 80, None
    bench.pass_time(60)
    assert (bench.pulses.of(0).gpu, bench.pulses.of(2).gpu) == ("GPU-a", "GPU-b")
    assert (bench.pulses.of(0).gpu_use, bench.pulses.of(1).gpu_use) == (80.0, 80.0)
    assert bench.pulses.of(2).gpu_use is None  # the driver does not say, which is not 0
    gpus = Gpus(bench.nvml, 2)
    assert [gpus.look().lost for _ in range(5)] == [0] * 5  # and is no fault
    first.busy = 0
    bench.pass_time(30)
    assert 30 < (bench.pulses.of(0).gpu_use or 0.0) < 50
    bench.pass_time(40)
    assert bench.pulses.of(0).gpu_use == 0.0


def test_a_lost_gpu_keeps_its_name_and_the_other_its_place(bench: Bench) -> None:
    first, second = bench.nvml.gpus
    second.busy = 50
    bench.pass_time(10)
    first.error = pynvml.NVML_ERROR_GPU_IS_LOST
    bench.nvml.xids.append((first, 79))
    bench.pass_time(70)
    assert (bench.pulses.of(0).gpu, bench.pulses.of(0).gpu_use, bench.pulses.of(0).xid) == ("GPU-a", None, 79)
    assert (bench.pulses.of(2).gpu_use, bench.pulses.of(2).xid) == (50.0, 0)


def test_a_programs_own_xid_is_none_of_the_gpus(bench: Bench) -> None:
    bench.nvml.xids += [(bench.nvml.gpus[0], 31), (bench.nvml.gpus[0], 43)]
    bench.pass_time(20)
    assert bench.pulses.of(0).xid == 0


def test_a_driver_that_hangs_keeps_nobody_waiting(bench: Bench) -> None:
    bench.nvml.gpus[0].busy = 70
    hangs, threads = threading.Event(), list[threading.Thread]()
    looks = Gpus(bench.nvml, 2).look

    def look() -> Any:
        hangs.wait(PATIENCE)
        return looks()

    def aside(work: Callable[[], None]) -> None:
        threads.append(threading.Thread(target=work))
        threads[-1].start()

    hung = Pulses({0: 0}, Beside(look, aside), bench.clock, bench.tmp)
    for _ in range(100):
        bench.clock.advance(1)
        hung.look()
        assert hung.of(0).gpu_use is None
    assert len(threads) == 1
    hangs.set()
    threads[0].join()
    hung.look()
    assert hung.of(0).gpu_use == 70.0


def test_what_is_asked_beside_raises_where_it_is_waited_for() -> None:
    def ask() -> int:
        raise AgentError("away")

    question = Beside(ask, inline)
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
    assert all(len(version(one)) <= pulses.MOST_VERSION for one in plain)
