"""Checks of everything that the agent depends on, for the subcommand ``doctor``."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from contracts.agent.config import Config, Dataset
from contracts.agent.names import DATA_DIR, UNIT_METRICS, UNIT_WATCH
from userdata.agent.aws.imds import Metadata, is_warmed
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import QUICK, Host
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.work import containers

Level = Literal["ok", "warning", "failure"]
CheckOutcome = tuple[Level, str]
"""Level and text: the result and, unless it is ok, what to do."""


@dataclass(frozen=True)
class Finding:
    """One check's result."""

    level: Level
    check: str
    text: str


def diagnose(
    config: Config, metadata: Metadata, host: Host, gpus: Gpus | None, data: Path = DATA_DIR
) -> Iterator[Finding]:
    """Yield a finding for each check; a check that raises is a failure, and the next ones still run."""
    checks: list[tuple[str, Callable[[], CheckOutcome]]] = [
        ("clock", lambda: _clock(host)),
        ("units", lambda: _units(config, host)),
    ]
    if not config.on_premises:
        checks.insert(0, ("metadata", lambda: _metadata(metadata)))
        checks.append(("cloudwatch agent", lambda: _cloudwatch(config)))
    if gpus is not None:
        checks.append(("gpus", partial(_gpus, gpus)))
        if (work := config.service or config.training) and work.image:  # a shared host has neither
            checks.append(("containers", partial(_containers, host, work.image, gpus.expected)))
    if config.volume:
        checks.append(("data volume", lambda: _volume(host, data)))
    checks += [(f"efs {m.path}", lambda path=m.path: _efs(host, path)) for m in config.efs]  # type: ignore[misc]
    checks += [(f"dataset {d.path}", lambda it=d: _dataset(config, host, it)) for d in config.datasets]  # type: ignore[misc]
    for name, check in checks:
        try:
            level, text = check()
            yield Finding(level, name, text)
        except (AgentError, OSError) as error:
            yield Finding("failure", name, str(error))


def _metadata(metadata: Metadata) -> CheckOutcome:
    identity, state = metadata.identity(), metadata.lifecycle_state()
    text = f"{identity.instance}, {identity.instance_type}, {identity.zone}, target state {state or 'none'}"
    if is_warmed(state):
        return "warning", f"{text}: in the warm pool, so no work runs or registers"
    return "ok", text


def _clock(host: Host) -> CheckOutcome:
    synchronised = host.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"], QUICK).strip()
    if synchronised == "yes":
        return "ok", "synchronised"
    return "failure", "not synchronised, which leases and heartbeats need; see `chronyc sources`"


def _containers(host: Host, image: str, expected: int) -> CheckOutcome:
    visible = containers.check_gpus(host, image, expected)
    return "ok", f"started a container of {image.partition('@')[0]} with {visible} GPUs"


def _gpus(gpus: Gpus) -> CheckOutcome:
    sample = gpus.sample()
    if sample.lost:
        total = max(gpus.expected, sample.lost + len(sample.gpus))
        text = f"{sample.lost} of {total} lost; see `dmesg` for Xid, then replace the instance"
        return "failure", text
    return "ok", ", ".join(g.uuid for g in sample.gpus)


def _units(config: Config, host: Host) -> CheckOutcome:
    base_units = () if config.on_premises or config.proxy else (UNIT_WATCH, UNIT_METRICS)
    units = (*base_units, config.work_unit)
    down = [unit for unit in units if not host.main_pid(unit)]
    if down:
        return "failure", f"{', '.join(down)} not running; see `journalctl --unit {down[0]}`"
    return "ok", ", ".join(units)


def _cloudwatch(config: Config) -> CheckOutcome:
    port = config.metrics.emf_port
    try:
        socket.create_connection(("127.0.0.1", port), 2.0).close()
    except OSError as error:
        return "failure", f"port {port}: {error}; metrics are buffered, then dropped"
    return "ok", f"listens on port {port}"


def _volume(host: Host, data: Path) -> CheckOutcome:
    device = host.mounted(data)
    if device is None:
        return "failure", f"nothing is mounted at {data}; see `journalctl --unit gpu-spot-volume`"
    usage = shutil.disk_usage(data)
    share = usage.used / usage.total
    text = f"{device}, {share:.0%} of {usage.total / 2**30:.0f} GiB used"
    return "warning" if share > 0.9 else "ok", text


def _efs(host: Host, path: str) -> CheckOutcome:
    source = host.mounted(Path(path))
    if source is None:
        return "failure", "not mounted; see `journalctl --unit gpu-spot-efs`"
    return "ok", source


def _dataset(config: Config, host: Host, dataset: Dataset) -> CheckOutcome:
    source = host.mounted(Path(dataset.path))
    if source is None:
        unit = config.work_unit.removesuffix(".service")
        return "failure", f"not mounted; see `journalctl --unit {unit}`"
    if not os.statvfs(dataset.path).f_flag & os.ST_RDONLY:
        return "failure", f"{source} is writable, so not the dataset; unmount it"
    return "ok", f"{source}, from {dataset.snapshot}, read-only"
