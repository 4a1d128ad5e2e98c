"""Run the workers of a service: one process or container for each slot, kept running, drained on SIGTERM."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from contracts.agent.config import Service
from contracts.agent.names import RUN_DIR, WORKERS_DIR
from userdata.agent.machine import files, log
from userdata.agent.machine.background import Aside, Beside
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import Host
from userdata.agent.work import containers, notice, process
from userdata.agent.work import worker_report_file as tell
from userdata.agent.work.heartbeat import Heart
from userdata.agent.work.process import JobProcess
from userdata.agent.work.service.pulses import Pulses, version
from userdata.agent.work.service.renewal import Renewal

_GPUS: Final = Path("/proc/driver/nvidia/gpus")
_FIRST_BACKOFF: Final = 2.0
_LONGEST_BACKOFF: Final = 300.0
_LOOK_EVERY: Final = 0.5
_LOOK_UNREADY: Final = 60.0
"""So often the registry is read for a worker that does not come to be ready."""


def gpu_count(directory: Path = _GPUS) -> int:
    """Count the GPUs that the NVIDIA driver shows; raises `AgentError` when there is none."""
    count = sum(1 for _ in directory.glob("*")) if directory.is_dir() else 0
    if not count:
        raise AgentError(f"{directory}: no GPU; is the NVIDIA driver loaded?")
    return count


@dataclass(frozen=True)
class Slot:
    """One worker's place: its number and the index of its GPU, in PCI order."""

    number: int
    gpu: int


def slots(service: Service, gpus: int) -> tuple[Slot, ...]:
    """Lay out the slots: ``slotsPerGpu`` neighbours share a GPU."""
    return tuple(Slot(n, n // service.slots_per_gpu) for n in range(gpus * service.slots_per_gpu))


def environment(slot: Slot, directory: Path) -> dict[str, str]:
    """Return what every worker is told about its place, its notice and how to speak to us."""
    return {
        "GPU_SPOT_SLOT": str(slot.number),
        "GPU_SPOT_NOTICE": str(directory / "notice.json"),
        "GPU_SPOT_READY": str(ready_file(slot, directory)),
        "GPU_SPOT_TELL": str(tell.tell_file(directory, slot.number)),
    }


def ready_file(slot: Slot, directory: Path) -> Path:
    """Return the file by which a worker says that it is ready."""
    return tell.place(directory, slot.number) / "ready"


def container(slot: Slot) -> str:
    """Return the name of a worker's container."""
    return f"gpu-spot-{slot.number}"


def process_command(service: Service, slot: Slot, directory: Path) -> list[str]:
    """Return the argv of a worker that is a plain process and sees its GPU only."""
    pairs = {
        **environment(slot, directory),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": str(slot.gpu),
    }
    return ["env", *_lines({**pairs, **service.environment}), *service.command]


def container_command(
    service: Service, slot: Slot, directory: Path, datasets: Sequence[str] = ()
) -> list[str]:
    """Return the argv of a worker in a container, run in the foreground so that signals reach it.

    The host's network, because metadata with hop limit 1 do not cross a bridge: our own worker gets its
    credentials there. The GPU comes by the container toolkit's CDI device, ``datasets`` are paths that it may
    read. A worker that still loads and hears no SIGTERM would take work until it is killed.
    """
    place, ready = directory / WORKERS_DIR, ready_file(slot, directory).parent
    file = place / f"{slot.number}.env"
    read = [(path, path) for path in (str(directory), *datasets)]
    argv = containers.run(container(slot), "host", file, [slot.gpu], [(ready, ready)], read)
    argv += ["--rm", *containers.READ_ONLY, "--cidfile", str(place / f"{slot.number}.cid")]
    assert service.image is not None
    return [*argv, service.image, *service.command]


def _lines(environment: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


@dataclass
class _Worker:
    slot: Slot
    process: JobProcess | None = None
    failures: int = 0
    start_at: float = 0.0
    started: float = 0.0
    is_leaving: bool = False
    """It was told to end because somebody wishes that it be started anew."""
    service: Service | None = None
    """What it was started from."""
    looked: float = 0.0
    """When it was last asked, while it was not ready, whether it should start from something else."""


SpawnWorker = Callable[[list[str], Mapping[str, str]], subprocess.Popen[bytes]]
"""Starts a command with more variables than ours."""


def _start(user: str, argv: list[str], more: Mapping[str, str]) -> subprocess.Popen[bytes]:
    # Credentials in our environment, as on a host of one's own, are ours.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    return process.spawn(argv, user, {**inherited, **more})


class Workers:
    """Supervises all slots; `run` returns when it was told to stop and every worker has ended."""

    def __init__(
        self,
        service: Service,
        places: Sequence[Slot],
        heart: Heart,
        host: Host,
        clock: Clock,
        directory: Path = RUN_DIR,
        datasets: Sequence[str] = (),
        spawn: SpawnWorker | None = None,
        secrets: Callable[[], Mapping[str, str]] = dict,
        pulses: Pulses | None = None,
        aside: Aside = lambda work: work(),
        release: Callable[[], Service] | None = None,
    ) -> None:
        """Lay the slots out; nothing runs yet.

        ``secrets`` returns variables that no command line may show. It is asked before each start, so that a
        worker that ends because they have changed gets the new ones: by ``aside``, because it may take a
        minute, in which workers are looked after all the same. Where it fails (``AgentError``) the last ones
        serve, and without any the start is put off. ``pulses`` say what goes with the heartbeats. ``release``
        says, by ``aside`` too, from what workers start that somebody wishes to be started anew, and has
        fetched it; until then they go on.
        """
        self._service = service
        self._heart = heart
        self._host = host
        self._clock = clock
        self._directory = directory
        self._datasets = datasets
        self._spawn = spawn or partial(_start, "" if service.image else service.user)
        self._secrets = Beside(secrets, aside)
        self._pulses = pulses
        at_once: Aside = lambda work: work()  # noqa: E731
        self._renewal = Renewal(release or (lambda: self._service), aside if release else at_once)
        self._told: Mapping[str, str] | None = None
        self._workers = [_Worker(slot) for slot in places]
        self._stopping = False

    def stop(self) -> None:
        """Tell every worker to finish what it has (SIGTERM, once); safe in a signal handler."""
        if self._stopping:
            return
        self._stopping = True
        seconds = process.seconds_to_save(notice.read(self._directory), self._clock.wall())
        for worker in self._workers:
            if worker.process:
                worker.process.stop(seconds)

    def run(self) -> None:
        """Supervise until told to stop and all workers have ended."""
        while self.tick():
            self._clock.sleep(_LOOK_EVERY)

    def tick(self) -> bool:
        """Look after every worker once; tell whether there is anything left to look after."""
        for worker in self._workers:
            self._reap(worker)
        absent = [w for w in self._workers if w.process is None and self._clock.monotonic() >= w.start_at]
        if absent and not self._stopping and not self._heart.quiet():
            self._start_all(absent)
        if self._pulses:
            self._pulses.look()
        alive = [w for w in self._workers if w.process]
        ready = [w.slot.number for w in alive if not w.is_leaving and self._is_ready(w.slot)]
        pulse = self._pulses.of if self._pulses else None
        wished = self._heart.beat(ready, draining=self._stopping, pulse=pulse)
        if not self._stopping and notice.read(self._directory) is None:
            unheard = self._unheard(w for w in alive if w.slot.number not in ready)
            self._service, due_slots = self._renewal.poll({*wished, *unheard}, self._service)
            due = [w for w in alive if w.slot.number in due_slots]
            self._restart(w for w in due if w.slot.number in ready or w.service != self._service)
        return not self._stopping or bool(alive)

    def _unheard(self, workers: Iterable[_Worker]) -> set[int]:
        """Return who is not ready and has not been looked after for a while: no wish is heard without a beat.

        A release of which no worker comes to be ready is left that way once it is taken back.
        """
        now = self._clock.monotonic()
        due = [w for w in workers if not w.is_leaving and now - max(w.started, w.looked) >= _LOOK_UNREADY]
        for worker in due:
            worker.looked = now
        return {worker.slot.number for worker in due}

    def _restart(self, workers: Iterable[_Worker]) -> None:
        """Have workers finish what they have and start again; they are out of the registry until then."""
        for worker in workers:
            if worker.process is None or worker.process.told:
                continue
            log.warning("worker is started anew, as somebody wishes", slot=worker.slot.number)
            worker.is_leaving = True
            self._heart.leave(worker.slot.number)
            worker.process.stop(process.STOP_SECONDS)

    def _start_all(self, due: Sequence[_Worker]) -> None:
        if failed := {w.slot.number for w in due if w.failures}:
            # Where no heartbeat comes to be, a wish is not heard either.
            self._service, there = self._renewal.poll(failed, self._service)
            due = [w for w in due if not w.failures or w.slot.number in there]
        try:
            told = self._secrets.poll()
        except AgentError as error:
            log.error("secrets not read", reason=str(error), have_earlier=self._told is not None)
        else:
            if told is None:
                return  # still being asked
            self._told = told
        for worker in due:
            if self._told is None:
                self._put_off(worker)
            else:
                self._start(worker, self._told)

    def _put_off(self, worker: _Worker) -> float:
        """Return the seconds until it is started again: twice as long each time."""
        worker.failures += 1
        backoff: float = min(_FIRST_BACKOFF * 2 ** (worker.failures - 1), _LONGEST_BACKOFF)
        worker.start_at = self._clock.monotonic() + backoff
        return backoff

    def _start(self, worker: _Worker, secrets: Mapping[str, str]) -> None:
        slot, place = worker.slot, self._directory / WORKERS_DIR
        (place / f"{slot.number}.cid").unlink(missing_ok=True)
        tell.make_place(self._directory, slot.number)
        ready_file(slot, self._directory).unlink(missing_ok=True)
        if self._service.image:
            try:
                # One whose client was killed goes on, and holds name and GPU.
                containers.remove(self._host, container(slot))
            except AgentError as error:
                log.error("worker not started", slot=slot.number, reason=str(error))
                self._put_off(worker)
                return
            told = _lines({**environment(slot, self._directory), **self._service.environment, **secrets})
            files.write_atomic(place / f"{slot.number}.env", "\n".join(told) + "\n", 0o600)
            argv = container_command(self._service, slot, self._directory, self._datasets)
        else:
            place.mkdir(parents=True, exist_ok=True)
            argv = process_command(self._service, slot, self._directory)
        # Of a container they stand in its file, and docker needs none.
        inherited = {} if self._service.image else secrets
        worker.process = JobProcess(self._spawn(argv, inherited), self._host, self._clock)
        worker.started, worker.is_leaving, worker.service = self._clock.monotonic(), False, self._service
        if self._pulses:
            self._pulses.started(slot.number, version(self._service))
        record = {"slot": slot.number, "gpu": slot.gpu, "pid": worker.process.pid}
        files.write_json(place / f"{slot.number}.json", record)
        log.info("worker started", **record, failures=worker.failures)

    def _reap(self, worker: _Worker) -> None:
        if worker.process is None or (code := worker.process.poll()) is None:
            return
        worker.process = None
        if self._clock.monotonic() - worker.started >= _LONGEST_BACKOFF:
            worker.failures = 0
        backoff = 0.0 if worker.is_leaving else self._put_off(worker)
        (self._directory / WORKERS_DIR / f"{worker.slot.number}.json").unlink(missing_ok=True)
        if not worker.is_leaving:
            self._heart.leave(worker.slot.number)
        level = log.info if self._stopping or worker.is_leaving else log.error
        level(
            "worker ended", slot=worker.slot.number, code=code, restart_in=None if self._stopping else backoff
        )

    def _is_ready(self, slot: Slot) -> bool:
        if not self._service.says_ready:
            return True
        return ready_file(slot, self._directory).exists()
