"""A study on played machines, lost at any call and replaced: the shipped loop, lease and comparison.

Only the training itself is played: steps of a known loss curve, on a file system that every machine sees. It
reports by the shipped library. A machine lost without a notice leaves its lease to expire; one with a notice
saves, releases and is replaced. What a machine saves and what it reports is as a script does it.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from contracts.agent.study import Pruning, Study, StudyParameter, trial_names
from contracts.jobs import item as job_item
from spot_training import report
from tests.node import configs
from tests.node.sharing import Instance, World, go
from tests.node.world import KilledError
from userdata.agent.lease.renewal import LeaseRenewer
from userdata.agent.lease.store import LEASE_SECONDS
from userdata.agent.machine.errors import LeaseLostError
from userdata.agent.study import history
from userdata.agent.study.history import TrialOutcome
from userdata.agent.study.leases import trial_rows
from userdata.agent.tasks import holding
from userdata.agent.tasks import job as job_tasks
from userdata.agent.tasks.groups import studies
from userdata.agent.tasks.node import Node, Stop
from userdata.agent.work.failures.fault_handler import RunEnd
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.training.environment import HostEnvironment

STEPS: Final = 30
STEP_SECONDS: Final = 60.0
SAVE_STEPS: Final = 2
"""Steps between two checkpoints."""
BOOT_SECONDS: Final = 180.0
SPACE: Final = {
    "LR": StudyParameter(min=1e-5, max=1.0, log=True),
    "LAYERS": StudyParameter(min=2, max=8, step=1),
    "OPTIMIZER": StudyParameter(choices=("sgd", "adam")),
}


def study(trials: int, machines: int, **changes: Any) -> Study:
    return replace(Study(trials, machines, SPACE, prune=Pruning(), seed=3), **changes)


def loss(parameters: Mapping[str, str], step: int) -> float:
    """Return the loss after a step: bad settings stay high, good ones fall slowly; with noise."""
    rate = abs(math.log10(float(parameters["LR"])) + 2.5) / 2.5
    floor = 0.1 + rate**2 + 0.03 * abs(int(parameters["LAYERS"]) - 5)
    floor += 0.05 * (parameters["OPTIMIZER"] == "sgd")
    settings = [parameters[name] for name in SPACE]
    noise = hashlib.sha256(f"{settings} {step}".encode()).digest()[0] / 255
    return floor + 2.0 / (1 + step) + 0.02 * noise


@dataclass
class Losses:
    """How often machines are lost: probabilities of a point (a call, a step) of any machine."""

    silent: float = 0.0
    announced: float = 0.0
    pause: float = 0.0
    """To stand still for longer than a lease, as a machine without network."""


@dataclass
class StudyWorld(World):
    """``saved``: step of the newest checkpoint by trial. ``busy``: seconds with a trial, of all machines."""

    study: Study = field(default_factory=lambda: study(4, 2))
    saved: dict[str, int] = field(default_factory=dict)
    busy: float = 0.0
    lost: int = 0
    fails: frozenset[str] = frozenset()

    def outcomes(self) -> list[TrialOutcome]:
        """Return the history as `gpu-spot jobs study` reads it."""
        rows = trial_rows([job_item.parse(self.items.get(name, {})) for name in self.names], configs.REVISION)
        return history.outcomes(self.study, rows)

    def parameters(self) -> list[dict[str, str]]:
        rows = trial_rows([job_item.parse(self.items.get(name, {})) for name in self.names], configs.REVISION)
        return [dict(row.result.parameters) for row in rows]


class Machine(Instance):
    """An instance of a study's group."""

    world: StudyWorld

    def __init__(
        self,
        world: StudyWorld,
        me: str,
        folder: Path,
        chance: random.Random,
        losses: Losses,
        run: Callable[..., str] | None = None,
    ) -> None:
        super().__init__(world, me, folder / me)
        self._losses, self._random = losses, chance
        training = {**configs.training()["training"]}
        efs = [{"fileSystem": "fs-1", "accessPoint": "fsap-1", "path": "/dltraining/checkpoints"}]
        config = configs.load(configs.training(volume=None, efs=efs, training=training))
        assert config.training is not None
        self.node.config = replace(config, training=replace(config.training, study=world.study))
        self.node.data = folder / "efs"
        if run is not None:
            self.node.host.run = run  # type: ignore[method-assign]
        self._is_noticed = False
        self._is_training = False

    def point(self, operation: str) -> None:
        drawn = self._random.random()
        if drawn < self._losses.silent:
            self.world.lost += 1
            raise KilledError(self.me)
        if drawn < self._losses.silent + self._losses.announced:
            self._is_noticed = True
        elif drawn < self._losses.silent + self._losses.announced + self._losses.pause:
            self.line.pause(self.world.clock.monotonic() + self._random.uniform(100, 400))

    def _train(self, one: Node, stop: Stop, heartbeats: HeartbeatSender) -> RunEnd:
        began = self.world.clock.monotonic()
        try:
            return self._train_to_end(one)
        finally:
            self.world.busy += self.world.clock.monotonic() - began

    def _train_to_end(self, one: Node) -> RunEnd:
        world, name = self.world, job_tasks.training(one).job
        held = job_tasks.lease_and_volume(one)
        assert held is not None
        jobs, clock = job_tasks.jobs(one), world.clock
        trial = studies.trial(one, jobs)
        renewer = LeaseRenewer(partial(job_tasks.leases(one).renew, held[0]), clock, LEASE_SECONDS)
        jobs.mark("running")
        renewer.renew_if_due()
        directory = job_tasks.checkpoints(one)
        directory.mkdir(parents=True, exist_ok=True)
        world.begin(name, self.me, lambda: renewer.fence_at)
        try:
            variables = trial.variables(HostEnvironment(""), directory)
            step = world.saved.get(name, 0)
            while step < STEPS and not trial.is_pruned:
                one.clock.sleep(STEP_SECONDS)
                self.point("step")
                if clock.monotonic() >= renewer.fence_at:  # the fence has struck meanwhile
                    raise LeaseLostError(name)
                renewer.renew_if_due()
                step += 1
                report(loss(variables, step), step, environment=variables)
                if step % SAVE_STEPS == 0 or self._is_noticed:
                    world.saved[name] = step
                if self._is_noticed:
                    break
                trial.poll()
            if trial.is_pruned:
                state = trial.end()
            elif step == STEPS:
                state = "failed" if name in world.fails else "done"
                jobs.mark(state)
            else:
                state = "stopped"
        finally:
            world.leave(name, self.me)
        holding.release(one)
        if self._is_noticed:
            world.lost += 1
            raise KilledError(self.me)
        return state


def play(
    studied: Study,
    machines: int,
    folder: Path,
    losses: Losses | None = None,
    *,
    seed: int = 0,
    run: Callable[..., str] | None = None,
    fails: Sequence[int] = (),
) -> StudyWorld:
    """Run a study to its end; a lost machine is replaced after its boot."""
    chance, names = random.Random(seed), trial_names("resnet", studied)
    world = StudyWorld(names=tuple(names), study=studied, fails=frozenset(names[number] for number in fails))
    started = 0
    alive: list[Machine] = []

    def launch(wait: float) -> None:
        nonlocal started
        machine = Machine(world, f"i-{started}", folder, chance, losses or Losses(), run)
        machine.line.wake = world.clock.monotonic() + wait
        started += 1
        alive.append(machine)

    for _ in range(machines):
        launch(chance.uniform(0, 60) if losses else 0.0)
    while not world.finished:
        ended = [one for one in alive if one.line.done]
        for one in ended:
            if one.error is not None:
                raise one.error
            alive.remove(one)
            launch(BOOT_SECONDS)
        go([*alive], lambda: bool(world.finished) or any(one.line.done for one in alive))
    for one in alive:
        if not one.line.done:
            one._losses = Losses()
            one.line.end()
    return world
