"""Check everything the agent stands on and say what is wrong, in words."""

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
from userdata.agent.machine.host import Host
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.work import containers

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """One check's result; ``text`` says what was found and, unless it is ok, what to do."""

    level: Level
    check: str
    text: str


def examine(
    config: Config, metadata: Metadata, host: Host, gpus: Gpus | None, data: Path = DATA_DIR
) -> Iterator[Finding]:
    """Yield a finding for each check; a check that breaks is a failure, the others go on."""
    checks: list[tuple[str, Callable[[], Finding]]] = [
        ("clock", lambda: _clock(host)),
        ("units", lambda: _units(config, host)),
    ]
    if not config.on_premises:
        checks.insert(0, ("metadata", lambda: _metadata(metadata)))
        checks.append(("cloudwatch agent", lambda: _cloudwatch(config)))
    if gpus is not None:
        checks.append(("gpus", partial(_gpus, gpus)))
        if image := (config.service or config.training).image:  # type: ignore[union-attr]  # one is there
            checks.append(("containers", lambda: _containers(host, image, gpus.expected)))
    if config.volume:
        checks.append(("data volume", lambda: _volume(host, data)))
    checks += [(f"efs {m.path}", lambda path=m.path: _efs(host, path)) for m in config.efs]  # type: ignore[misc]
    checks += [(f"dataset {d.path}", lambda it=d: _dataset(config, host, it)) for d in config.datasets]  # type: ignore[misc]
    for name, check in checks:
        try:
            yield check()
        except (AgentError, OSError) as error:
            yield Finding("failure", name, str(error))


def _metadata(metadata: Metadata) -> Finding:
    identity, state = metadata.identity(), metadata.lifecycle_state()
    text = f"{identity.instance}, {identity.instance_type}, {identity.zone}, target state {state or 'none'}"
    if is_warmed(state):
        return Finding("warning", "metadata", f"{text}: in the warm pool, so nothing works or registers")
    return Finding("ok", "metadata", text)


def _clock(host: Host) -> Finding:
    synchronised = host.run(["timedatectl", "show", "--property=NTPSynchronized", "--value"]).strip()
    if synchronised == "yes":
        return Finding("ok", "clock", "synchronised")
    return Finding(
        "failure", "clock", "not synchronised: leases and heartbeats need it; see `chronyc sources`"
    )


def _containers(host: Host, image: str, expected: int) -> Finding:
    seen = containers.check_gpus(host, image, expected)
    return Finding(
        "ok", "containers", f"a container of {image.partition('@')[0]} was started with {seen} GPUs"
    )


def _gpus(gpus: Gpus) -> Finding:
    look = gpus.look()
    if look.lost:
        total = max(gpus.expected, look.lost + len(look.gpus))
        text = f"{look.lost} of {total} lost; see `dmesg` for Xid, then replace the instance"
        return Finding("failure", "gpus", text)
    return Finding("ok", "gpus", ", ".join(g.uuid for g in look.gpus))


def _units(config: Config, host: Host) -> Finding:
    beside = () if config.on_premises else (UNIT_WATCH, UNIT_METRICS)
    wanted = (*beside, config.work_unit)
    down = [unit for unit in wanted if host.main_pid(unit) is None]
    if down:
        return Finding(
            "failure", "units", f"{', '.join(down)} not running; see `journalctl --unit {down[0]}`"
        )
    return Finding("ok", "units", ", ".join(wanted))


def _cloudwatch(config: Config) -> Finding:
    port = config.metrics.emf_port
    try:
        socket.create_connection(("127.0.0.1", port), 2.0).close()
    except OSError as error:
        text = f"port {port}: {error}; metrics are kept for a while, then dropped"
        return Finding("failure", "cloudwatch agent", text)
    return Finding("ok", "cloudwatch agent", f"listens on port {port}")


def _volume(host: Host, data: Path) -> Finding:
    device = host.mounted(data)
    if device is None:
        text = f"nothing is mounted at {data}; see `journalctl --unit gpu-spot-volume`"
        return Finding("failure", "data volume", text)
    usage = shutil.disk_usage(data)
    share = usage.used / usage.total
    text = f"{device}, {share:.0%} of {usage.total / 2**30:.0f} GiB used"
    return Finding("warning" if share > 0.9 else "ok", "data volume", text)


def _efs(host: Host, path: str) -> Finding:
    source = host.mounted(Path(path))
    if source is None:
        return Finding("failure", f"efs {path}", "not mounted; see `journalctl --unit gpu-spot-efs`")
    return Finding("ok", f"efs {path}", source)


def _dataset(config: Config, host: Host, dataset: Dataset) -> Finding:
    check = f"dataset {dataset.path}"
    source = host.mounted(Path(dataset.path))
    if source is None:
        unit = config.work_unit.removesuffix(".service")
        return Finding("failure", check, f"not mounted; see `journalctl --unit {unit}`")
    if not os.statvfs(dataset.path).f_flag & os.ST_RDONLY:
        return Finding("failure", check, f"{source} is writable, so it is not the dataset; unmount it")
    return Finding("ok", check, f"{source}, of {dataset.snapshot}, read-only")
