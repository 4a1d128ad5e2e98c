from __future__ import annotations

import inspect
import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest

from contracts import names
from tests.node import configs, gpu_check
from tests.node.configs import FakeClock
from tests.node.fake_nvml import FakeGpu, FakeNvml
from userdata.agent.machine import log
from userdata.agent.machine.background import at_once
from userdata.agent.machine.host import SystemHost
from userdata.agent.metrics import emf
from userdata.agent.metrics.collect import Collector, free_percent
from userdata.agent.metrics.emf import Sink
from userdata.agent.metrics.gpus import Gpus, count_on_bus
from userdata.agent.metrics.owner import UNKNOWN_SLOT, Owners
from userdata.agent.work.worker_report_file import (
    FRESH_SECONDS,
    WorkerReportReader,
    create_worker_directory,
    report_path,
)

MIB = 2**20
CONTAINER = "ab" * 32


def test_the_double_has_pynvmls_functions_with_their_parameters() -> None:
    own = [n for n in vars(FakeNvml) if n.startswith("nvml")]
    assert len(own) >= 10
    for name in own:
        mine = list(inspect.signature(getattr(FakeNvml, name)).parameters)[1:]
        theirs = inspect.signature(getattr(pynvml, name)).parameters
        required = [p for p, v in theirs.items() if v.default is inspect.Parameter.empty]
        assert mine == required, name


def test_processes_with_their_memory_and_their_average_utilisation_since_the_last_look() -> None:
    gpu = FakeGpu("GPU-1", {10: 512 * MIB, 11: None}, [(10, 1, 40), (10, 2, 60), (11, 2, 5)])
    gpus = Gpus(FakeNvml([gpu]), 1)
    [seen] = gpus.sample().gpus
    assert [(p.pid, p.memory_mib, p.utilization) for p in seen.processes] == [
        (10, 512.0, 50.0),
        (11, None, 5.0),
    ]
    assert [p.utilization for p in gpus.sample().gpus[0].processes] == [0.0, 0.0]


def test_a_gpu_off_the_bus_is_counted_and_not_asked_again() -> None:
    first, second = FakeGpu("GPU-1"), FakeGpu("GPU-2")
    nvml = FakeNvml([first, second])
    gpus = Gpus(nvml, 2)
    assert gpus.sample().lost == 0
    second.error = pynvml.NVML_ERROR_GPU_IS_LOST
    look = gpus.sample()
    assert (look.lost, [g.uuid for g in look.gpus]) == (1, ["GPU-1"])
    asked = nvml.calls.count("GPU-2")
    assert gpus.sample().lost == 1
    assert nvml.calls.count("GPU-2") == asked


def test_a_gpu_that_does_not_answer_once_is_not_lost_three_times_is() -> None:
    gpu = FakeGpu("GPU-1")
    gpus = Gpus(FakeNvml([gpu]), 1)
    gpus.sample()
    gpu.error = pynvml.NVML_ERROR_UNKNOWN
    assert [gpus.sample().lost for _ in range(3)] == [0, 0, 1]
    gpu.error = 0
    assert gpus.sample().lost == 0


def test_a_gpu_that_was_lost_before_the_start_is_counted() -> None:
    assert Gpus(FakeNvml([FakeGpu("GPU-1")]), 2).sample().lost == 1
    lost = FakeGpu("GPU-2", error=pynvml.NVML_ERROR_GPU_IS_LOST)
    assert Gpus(FakeNvml([FakeGpu("GPU-1"), lost])).sample().lost == 1


def test_a_driver_that_does_not_answer_is_all_gpus_lost_until_it_does() -> None:
    nvml = FakeNvml([FakeGpu("GPU-1")], init_error=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    gpus = Gpus(nvml, 1)
    assert gpus.sample().lost == 1
    nvml.init_error = 0
    assert gpus.sample().lost == 0


def test_xids_are_read_once() -> None:
    gpu = FakeGpu("GPU-1")
    nvml = FakeNvml([gpu])
    gpus = Gpus(nvml, 1)
    gpus.sample()
    nvml.xids = [(gpu, 79), (gpu, 48)]
    assert gpus.sample().xids == (("GPU-1", 79), ("GPU-1", 48))
    assert gpus.sample().xids == ()


def test_gpus_on_the_bus_are_counted(tmp_path: Path) -> None:
    for name, vendor, kind in [
        ("a", "0x10de", "0x030200"),
        ("b", "0x10de", "0x040300"),
        ("c", "0x8086", "0x030000"),
    ]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "vendor").write_text(f"{vendor}\n")
        (tmp_path / name / "class").write_text(f"{kind}\n")
    assert count_on_bus(tmp_path) == 1


class Proc:
    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, cgroup: str, parent: int = 1) -> None:
        (self.root / str(pid)).mkdir(parents=True)
        (self.root / str(pid) / "cgroup").write_text(f"{cgroup}\n")
        (self.root / str(pid) / "stat").write_text(f"{pid} (a (b) c) S {parent} 0 0\n")


@pytest.fixture
def owners(tmp_path: Path) -> tuple[Owners, Proc]:
    workers = tmp_path / "workers"
    workers.mkdir()
    (workers / "1.json").write_text('{"slot": 1, "gpu": 0, "pid": 50}')
    (workers / "1.cid").write_text(CONTAINER)
    (workers / "2.json").write_text('{"slot": 2, "gpu": 0, "pid": 60}')
    return Owners(tmp_path, tmp_path / "proc"), Proc(tmp_path / "proc")


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/system.slice/docker-{CONTAINER}.scope",
        f"0::/docker/{CONTAINER}",
        f"5:memory:/docker/{CONTAINER}",
    ],
)
def test_a_process_in_a_container_belongs_to_its_slot(owners: tuple[Owners, Proc], cgroup: str) -> None:
    owners[1].add(100, cgroup)
    assert owners[0].slot_of(100) == "1"


def test_other_processes(owners: tuple[Owners, Proc]) -> None:
    resolver, proc = owners
    proc.add(60, "0::/system.slice/gpu-spot-work.service")
    proc.add(61, "0::/system.slice/gpu-spot-work.service", parent=60)
    proc.add(70, "0::/system.slice/gpu-spot-run.service")
    proc.add(80, f"0::/system.slice/docker-{'cd' * 32}.scope")
    assert [resolver.slot_of(p) for p in (60, 61, 70, 80, 99)] == ["2", "2", "0", UNKNOWN_SLOT, UNKNOWN_SLOT]


def test_processes_in_a_jobs_container_are_its_worker(tmp_path: Path) -> None:
    resolver, proc = Owners(tmp_path, tmp_path, has_job=True), Proc(tmp_path)
    proc.add(80, f"0::/system.slice/docker-{CONTAINER}.scope")
    proc.add(90, "0::/user.slice")
    assert [resolver.slot_of(pid) for pid in (80, 90)] == ["0", UNKNOWN_SLOT]


class Listener:
    """The CloudWatch agent's TCP input."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port = self.server.getsockname()[1]

    def receive(self) -> list[dict[str, Any]]:
        connection, _ = self.server.accept()
        with connection, connection.makefile() as file:
            return [json.loads(text) for text in file]


@pytest.fixture
def listener() -> Iterator[Listener]:
    listener = Listener()
    listener.server.settimeout(10)
    yield listener
    listener.server.close()


def collector(gpus: Gpus, sink: Sink, clock: FakeClock, tmp: Path) -> Collector:
    def depths() -> tuple[float, ...]:
        return WorkerReportReader(tmp).queue_depths(clock.wall())

    config = configs.load(configs.training())
    owners = Owners(tmp)
    return Collector(config, "i-1", gpus, owners, sink, clock, lambda: 61.23, depths, lambda: 12.34, at_once)


def test_a_worker_on_several_gpus_is_as_busy_as_they_are_in_the_mean(
    listener: Listener, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "0.json").write_text(json.dumps({"slot": 0, "gpu": 0, "pid": os.getpid()}))
    me, other = os.getpid(), 2**22 + 1
    gpus = [FakeGpu(f"GPU-{n}", {me: 100 * MIB}, [(me, 1, 90 + n)]) for n in range(8)]
    gpus[7].memory, gpus[7].samples = {other: 1}, [(other, 1, 100)]  # none of its own
    # Two processes of one worker on one GPU: the samples of both may add up to more than there is.
    gpus[0].memory[other], gpus[0].samples = 1, [(me, 1, 70), (other, 1, 50)]
    collect = collector(Gpus(FakeNvml(gpus), 8), Sink(listener.port), clock, tmp_path)
    collect.tick()
    collect.send()
    instance, worker = listener.receive()
    assert worker["WorkerGpuUtilization"] == round((70 + 91 + 92 + 93 + 94 + 95 + 96) / 7, 1)
    assert worker["WorkerGpuMemory"] == 700.0
    assert instance["workers"] == {"other": [75.0, 0.0]}  # a field, no series


def test_looks_become_lines_that_cloudwatch_reads(
    listener: Listener, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "0.json").write_text(json.dumps({"slot": 0, "gpu": 0, "pid": os.getpid()}))
    gpu = FakeGpu("GPU-1", {os.getpid(): 100 * MIB}, [(os.getpid(), 1, 80)])
    nvml = FakeNvml([gpu, FakeGpu("GPU-2")])
    collect = collector(Gpus(nvml, 2), Sink(listener.port), clock, tmp_path)
    for n in range(7):
        collect.tick()
        if n == 2:
            gpu.ecc, nvml.xids = 2, [(gpu, 79)]
        clock.advance(10)
    instance, worker = listener.receive()
    assert instance["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "gpu-spot/instances"
    assert instance["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["stack", "group"]]
    assert (instance["GpusLost"], instance["XidErrors"], instance["EccUncorrectedErrors"]) == (0, 1, 2)
    assert (instance["SecondsSinceCheckpoint"], instance["xids"]) == (61.2, [["GPU-1", 79]])
    assert instance[names.METRIC_FREE_SPACE] == 12.3
    series = [metric["Name"] for metric in instance["_aws"]["CloudWatchMetrics"][0]["Metrics"]]
    assert names.METRIC_GPUS_LOST not in series  # 0: a field of the line only
    readings = {names.METRIC_GPU_UTILIZATION: 0.0, names.METRIC_GPU_MEMORY_USED: 1024.0}
    readings |= {names.METRIC_GPU_TEMPERATURE: 60.0, names.METRIC_GPU_POWER: 250.0}
    assert {metric: instance[metric] for metric in readings} == {m: [v, v] for m, v in readings.items()}
    assert readings.keys() | {names.METRIC_GPU_MEMORY_UTILIZATION, names.METRIC_XID_ERRORS} <= {*series}
    assert worker["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["stack", "group", "slot"]]
    assert (worker["slot"], worker["uuids"]) == ("0", ["GPU-1"])
    assert worker["WorkerGpuUtilization"] == [80.0, *[0.0] * 6]
    assert worker["WorkerGpuMemory"] == [100.0] * 7
    for text in (instance, worker):
        for metric in text["_aws"]["CloudWatchMetrics"][0]["Metrics"]:
            assert metric["Name"] in text
        for name in text["_aws"]["CloudWatchMetrics"][0]["Dimensions"][0]:
            assert isinstance(text[name], str)


def test_a_worker_on_the_only_gpu_has_no_series_of_its_own(
    listener: Listener, clock: FakeClock, tmp_path: Path
) -> None:
    (tmp_path / "workers").mkdir()
    (tmp_path / "workers" / "0.json").write_text(json.dumps({"slot": 0, "gpu": 0, "pid": os.getpid()}))
    gpu = FakeGpu("GPU-1", {os.getpid(): 100 * MIB}, [(os.getpid(), 1, 80)])
    collect = collector(Gpus(FakeNvml([gpu]), 1), Sink(listener.port), clock, tmp_path)
    collect.tick()
    collect.send()
    [instance] = listener.receive()
    assert instance["workers"] == {"0": [80.0, 100.0]}


def test_a_line_has_the_newest_hundred_values_of_a_metric() -> None:
    """More the format does not take: "Embedded metric format specification", Target members."""
    taken = tuple(float(n) for n in range(150))
    metrics = [emf.Metric("Use", "Percent", taken)]
    written = json.loads(emf.line(1.0, "log", "stream", {"stack": "dev"}, metrics, {}))
    assert written["Use"] == list(taken[50:])


def test_free_space_is_the_volumes_and_never_the_root_disks(tmp_path: Path) -> None:
    mounted = Path("/dev/shm")  # a file system of its own on any Linux
    assert os.path.ismount(mounted)
    found = os.statvfs(mounted)
    free = free_percent(SystemHost(), mounted)
    assert free == pytest.approx(100.0 * found.f_bavail / found.f_blocks, abs=5)
    assert free_percent(SystemHost(), tmp_path) is None


def write_report(directory: Path, clock: FakeClock, slot: int, text: str, age: float = 0.0) -> Path:
    create_worker_directory(directory, slot)
    path = report_path(directory, slot)
    path.write_text(text)
    os.utime(path, (clock.wall() - age, clock.wall() - age))
    return path


def test_reported_queue_depths_are_one_metric(listener: Listener, clock: FakeClock, tmp_path: Path) -> None:
    collect = collector(Gpus(FakeNvml([FakeGpu("GPU-1")]), 1), Sink(listener.port), clock, tmp_path)
    collect.tick()
    collect.send()
    assert "QueueDepth" not in listener.receive()[0]  # no reports
    write_report(tmp_path, clock, 0, '{"queueDepth": 17, "model": "resnet"}')
    write_report(tmp_path, clock, 10, '{"queueDepth": 2.5}')
    collect.tick()
    collect.send()
    [line] = listener.receive()
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["stack", "group"]]
    assert {"Name": "QueueDepth", "Unit": "Count"} in directive["Metrics"]
    assert line["QueueDepth"] == [17.0, 2.5]


def test_stale_reports_and_those_of_earlier_workers_are_ignored(clock: FakeClock, tmp_path: Path) -> None:
    write_report(tmp_path, clock, 0, '{"queueDepth": 1}', age=FRESH_SECONDS - 1)
    write_report(tmp_path, clock, 1, '{"queueDepth": 2}', age=FRESH_SECONDS + 1)
    write_report(tmp_path, clock, 2, '{"queueDepth": 3}', age=-FRESH_SECONDS - 1)  # the clock went back
    assert WorkerReportReader(tmp_path).queue_depths(clock.wall()) == (1.0,)
    create_worker_directory(tmp_path, 0)
    assert WorkerReportReader(tmp_path).queue_depths(clock.wall()) == ()


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"queueDepth": true}',
        '{"queueDepth": "1"}',
        '{"queueDepth": -1}',
        '{"queueDepth": NaN}',
        '{"queueDepth": 1e400}',
    ],
)
def test_nonsense_is_left_out_and_said_once(
    text: str, clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[object] = []
    monkeypatch.setattr(log, "warning", lambda event, **fields: said.append(fields["path"]))
    write_report(tmp_path, clock, 0, text)
    write_report(tmp_path, clock, 1, '{"queueDepth": 4}')
    reader = WorkerReportReader(tmp_path)
    assert [reader.queue_depths(clock.wall()) for _ in range(3)] == [(4.0,)] * 3
    assert said == [str(report_path(tmp_path, 0))]


def test_the_buffer_of_unsent_metrics_is_bounded(clock: FakeClock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    sink = Sink(port, max_lines=3)
    for n in range(5):
        sink.put(json.dumps({"n": n}))
        assert sink.flush() is False
    assert sink.dropped == 2
    server = socket.create_server(("127.0.0.1", port))
    received: list[str] = []

    def accept() -> None:
        connection, _ = server.accept()
        with connection, connection.makefile() as file:
            received.extend(file)

    thread = threading.Thread(target=accept)
    thread.start()
    assert sink.flush() is True
    thread.join()
    server.close()
    assert [json.loads(r)["n"] for r in received] == [2, 3, 4]
    assert sink.flush() is True  # nothing is sent twice


def test_a_lost_gpu_reaches_cloudwatch(listener: Listener, clock: FakeClock, tmp_path: Path) -> None:
    gpu = FakeGpu("GPU-1")
    collect = collector(Gpus(FakeNvml([gpu]), 1), Sink(listener.port), clock, tmp_path)
    collect.tick()
    gpu.error = pynvml.NVML_ERROR_GPU_IS_LOST
    for _ in range(7):
        collect.tick()
        clock.advance(10)
    assert listener.receive()[0]["GpusLost"] == 1


def test_metrics_of_a_real_gpu_are_read() -> None:
    if not gpu_check.has_gpu():
        pytest.skip("no nvidia-smi here: the checks above ran against the double only")
    gpu_check.check()
