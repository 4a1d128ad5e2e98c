"""A simulated instance that runs the agent's subcommands as systemd units would."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from signal import SIGKILL
from typing import Any, Final

from contracts.agent.config import Config
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from rehearsal.machines.boot import boot
from rehearsal.machines.journal import Entry
from rehearsal.machines.machine import RUN_PID, InstanceMetadata, NodeContext, SimulatedHost
from rehearsal.machines.process import TrainingProcess
from rehearsal.machines.scheduler import SimulatedClock, SimulatedTask
from userdata.agent import tasks
from userdata.agent.aws.imds import DEFAULT_URL
from userdata.agent.machine.background import at_once
from userdata.agent.machine.errors import AgentError, ConfigError, RefusedError
from userdata.agent.storage.datasets import describe_attached

RESTART_SECONDS: Final = 10.0
"""``RestartSec`` of the units."""

_FOR_PEOPLE: Final = (RefusedError.exit_code, ConfigError.exit_code)
"""``RestartPreventExitStatus`` of the units."""


class SandboxClients:
    """Sandbox clients as the agent's clients (``userdata.agent.aws.clients.AwsClients``)."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients

    def __getattr__(self, service: str) -> Callable[[str], Any]:
        return lambda region: self._clients(service)


class SimulatedNode:
    """An instance from launch to termination; its agent starts ``boots`` seconds from now.

    Files outside of its volume are in ``folder``.
    """

    host_type: type[SimulatedHost] = SimulatedHost

    def __init__(self, instance_id: str, boots: float, folder: Path, context: NodeContext) -> None:
        self.id = instance_id
        self._data = folder / "dltraining"
        self._run_directory = folder / "run"
        self._clients = context.clients
        self._scheduler = context.scheduler
        self._journal = context.journal
        self._profile = context.profile
        self._pids: Iterator[int] = itertools.count(RUN_PID + 1)
        self._host = self.host_type(instance_id, self._data, context)
        self._disk = folder
        self._clock = SimulatedClock(context.scheduler)
        self._is_released = False
        self._metadata = InstanceMetadata(self._clock, self._clients, instance_id)
        self._tasks: list[SimulatedTask] = [self._start("boot", self._boot, boots)]

    def notice(self, deadline: float) -> None:
        """Give the interruption notice, visible in the metadata service from now on."""
        self._metadata.deadline = deadline
        self._journal.note(Entry(self._scheduler.now, "notice", self.id))

    def release(self) -> None:
        """Terminate it by its group, visible in the metadata; without a group systemd stops the units."""
        self._is_released = True
        self._journal.note(Entry(self._scheduler.now, "released", self.id))
        if self._run_directory.exists() and self._metadata.auto_scaling_group():  # it has booted
            self._metadata.is_released = True
        elif self._host.on_sigterm is not None:
            self._host.on_sigterm()

    def end(self) -> None:
        """Terminate the instance: processes are killed and nothing is unmounted cleanly."""
        if self._host.process is not None:
            self._host.process.signal(SIGKILL)
        self._scheduler.end(self._tasks)
        self._host.unmount_all()
        self._journal.note(Entry(self._scheduler.now, "gone", self.id))

    def _start(self, unit: str, body: Callable[[], object], delay: float = 0.0) -> SimulatedTask:
        name = f"{unit} of {self.id}"
        at = self._scheduler.now + delay
        return self._scheduler.start(name, body, at, self._quiet_until, self._unnoticed_until)

    def _quiet_until(self) -> float:
        """Return until when only time passes: training without checkpoints or notice."""
        process = self._host.process
        return 0.0 if process is None or self.ends else min(process.next_checkpoint, process.quiet_until)

    def _unnoticed_until(self) -> float:
        """Return until when nothing is visible outside the node."""
        process = self._host.process
        return 0.0 if process is None or self.ends else process.quiet_until

    @property
    def ends(self) -> bool:
        """Whether it has a notice or is terminated by its group."""
        return self._is_released or self._metadata.deadline is not None

    def _boot(self) -> None:
        config = self._simulated_config(boot(self._clients, self.id))
        self._run_directory.mkdir(parents=True)
        agent = tasks.Node(config, self._run_directory, DEFAULT_URL)
        agent.data, agent.root = self._data, self._run_directory
        agent.clock, agent.host, agent.metadata = self._clock, self._host, self._metadata
        agent.clients = SandboxClients(self._clients)
        agent.on_sigterm = partial(setattr, self._host, "on_sigterm")
        agent.spawn = self._spawn
        agent.run_in_background = at_once
        agent.fenced = lambda dead_at: nullcontext()  # nothing hangs in a simulation
        self._host.restart_volume = partial(tasks.volume, agent, "up")
        # Groups and fleets terminate and replace an instance that does not run.
        off = partial(self._clients("ec2").terminate_instances, InstanceIds=[self.id])
        self._host.power_off = lambda seconds: self._tasks.append(self._start("shutdown", off, seconds))
        self._tasks.append(self._start("watch", partial(tasks.watch, agent)))
        if config.hooks and config.hooks.launch:
            self._tasks.append(self._start("prepare", partial(self._unit, partial(tasks.prepare, agent))))
        self._work(agent)

    def _work(self, agent: tasks.Node) -> None:
        self._unit(partial(tasks.volume, agent, "up"))
        if not self._is_released:  # systemd starts nothing while it stops
            self._unit(partial(self._train, agent))

    def _simulated_config(self, config: Config) -> Config:
        """Return the configuration without GPUs and with local paths.

        EFS and shared datasets are simulated only for jobs without a volume.
        """
        if config.training is not None:
            # A real job's Python environment is built once before, a simulated job has none.
            config = replace(config, training=replace(config.training, python=None))
        if config.volume is not None:
            return replace(config, efs=(), datasets=(), nvidia=False)
        self._host.zone = self._metadata.identity().zone
        if config.datasets:
            attached = describe_attached(self._clients("ec2"), self.id)
            self._host.launched = frozenset(attached[dataset.device].volume for dataset in config.datasets)
        efs = tuple(replace(mount, path=self._on_disk(mount.path)) for mount in config.efs)
        datasets = tuple(replace(dataset, path=self._on_disk(dataset.path)) for dataset in config.datasets)
        return replace(config, efs=efs, datasets=datasets, nvidia=False)

    def _on_disk(self, path: str) -> str:
        return str(self._disk / path.lstrip("/"))

    def _unit(self, start: Callable[[], int]) -> None:
        """Run a unit with ``Restart=on-failure``; permanent errors end the rehearsal."""
        while True:
            try:
                start()
                return
            except AgentError as error:
                if error.exit_code in _FOR_PEOPLE:
                    raise LocalCloudError(f"the agent of {self.id} stopped permanently: {error}") from error
            self._clock.sleep(RESTART_SECONDS)

    def _train(self, agent: tasks.Node) -> int:
        try:
            return tasks.run(agent)
        finally:
            self._host.on_sigterm = None
            process, self._host.process = self._host.process, None
            if process is not None:
                self._journal.note(Entry(self._scheduler.now, "stopped", self.id, step=process.step))

    def _spawn(self, argv: list[str], environment: dict[str, str], cwd: Path) -> TrainingProcess:
        process = self._started(argv, environment, cwd)
        self._host.process = process
        self._journal.note(
            Entry(self._clock.wall(), "running", self.id, step=process.first_step, loads=process.loads)
        )
        return process

    def _started(self, argv: list[str], environment: dict[str, str], cwd: Path) -> TrainingProcess:
        return TrainingProcess(self._profile, environment, self._clock.wall, next(self._pids), self._host)
