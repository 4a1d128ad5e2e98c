"""The subcommands of every instance: watch, hooks, file systems, metrics, doctor."""

from __future__ import annotations

import sys
from functools import partial

from userdata.agent.aws import hooks
from userdata.agent.machine import log
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node


def watch(node: Node) -> int:
    """Watch for notices until stopped."""
    from userdata.agent.work.notice_watcher import Watcher

    config = node.config
    name = config.hooks.terminate if config.hooks else ""
    hook = partial(node.complete, name, "CONTINUE") if name else None
    Watcher(config, node.metadata, node.host, node.clock, node.directory, hook).run()
    return 0


def hook(node: Node, which: str, result: hooks.Result) -> int:
    """Complete the launching or terminating lifecycle hook; an inactive hook is not an error."""
    configured = node.config.hooks
    name = "" if configured is None else configured.launch if which == "launch" else configured.terminate
    if not name:
        log.info("hook not configured", which=which)
    elif not node.complete(name, result):
        log.info("hook not active", hook=name)
    return 0


def efs(node: Node) -> int:
    """Mount the EFS file systems, except those below the job's data directory, which `run` mounts.

    If they were mounted before the data volume, the volume would hide them and the job would write to it
    instead. Also, only the holder of the job's lease may access its checkpoints.
    """
    from userdata.agent.storage.efs import mount_all

    deferred = node.job_mounts if node.config.training else ()
    if deferred and node.config.volume and node.host.mounted(node.data) is not None:
        deferred = ()
    mount_all(node.host, [mount for mount in node.config.efs if mount not in deferred])
    if deferred:
        log.info("mounts deferred to the job", mounts=len(deferred))
    return 0


def metrics(node: Node) -> int:
    """Send GPU metrics until stopped."""
    from userdata.agent.metrics.collect import Collector, free_percent
    from userdata.agent.metrics.emf import Sink
    from userdata.agent.metrics.owner import Owners
    from userdata.agent.work.training.checkpoint_files import newest_checkpoint
    from userdata.agent.work.worker_report_file import WorkerReportReader

    training = node.config.training

    def age() -> float | None:
        if training is None:
            return None
        newest = newest_checkpoint(job.progress_directory(job.current_job(node)))
        return max(node.clock.wall() - newest, 0.0) if newest else None

    sink = Sink(node.config.metrics.emf_port)
    owners, reports = Owners(node.directory, has_job=training is not None), WorkerReportReader(node.directory)

    def depths() -> tuple[float, ...]:
        return reports.queue_depths(node.clock.wall())

    def free() -> float | None:
        return free_percent(node.host, node.data) if node.config.volume else None

    sources = (age, depths, free, node.run_in_background)
    Collector(node.config, node.instance(), node.gpus, owners, sink, node.clock, *sources).run()
    return 0


def doctor(node: Node) -> int:
    """Print a line per check; return 1 if a check failed."""
    from userdata.agent.tasks.diagnosis import diagnose

    failed = False
    for finding in diagnose(node.config, node.metadata, node.host, node.gpus):
        sys.stdout.write(f"{finding.level:8} {finding.check}: {finding.text}\n")
        failed |= finding.level == "failure"
    return int(failed)
