"""Implementation of ``gpu-spot drill --rehearse``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpu_spot.drill.experiment import DrillError
from gpu_spot.drill.progress import DrillProgress
from gpu_spot.drill.watching import Drill
from gpu_spot.preflight.stack import settings_of
from infra.schema.jobs.experiments import experiments
from infra.schema.jobs.training import Training
from infra.schema.work import Work
from pulumi_declared.stackfile import StackConfig, load
from pulumi_on_moto import sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import START, deployed
from rehearsal.drilling import rehearse_drill


def rehearse(group: str, project: Path, config: StackConfig, drill_of: Callable[..., Drill]) -> DrillProgress:
    """Deploy into the local cloud and run the drill; a group without a drill loses one instance.

    ``drill_of`` creates the drill from clients, a configuration and a clock.
    """
    config = load(project, config.stack, overrides(group, config))
    with simulated(START) as clock, sandbox(config.region) as clients:
        cloud = LocalCloud(clients, deployed(clients, config), clock)
        return rehearse_drill(cloud, group, drill_of(clients, config, lambda: clock.now))


def overrides(group: str, config: StackConfig) -> dict[str, Any]:
    """Return stack-file overrides: a drill if there is none; no image for jobs.

    Raises ``DrillError`` for a group that cannot be rehearsed.
    """
    declared = settings_of(config)
    entries: dict[str, tuple[str, Work]] = {}
    for number, service in enumerate(declared.services):
        entries[service.name] = (f"services[{number}]", service)
    for number, entry in enumerate(declared.training):
        entries |= {job.name: (f"training[{number}]", entry) for job in experiments(entry)}
    names = [name for name, (_, entry) in entries.items() if entry.runs_on == "instances"]
    if group not in names:
        raise DrillError(
            f"--group is {group!r}, allowed with --rehearse: a service or a training job on instances "
            f"({', '.join(names) or 'none'})"
        )
    path, work = entries[group]
    changes: dict[str, Any] = {} if work.capacity.drill else {f"{path}.capacity.drill": 1}
    if isinstance(work, Training) and work.image is not None:
        changes[f"{path}.image"] = None
    return changes
