"""The subcommands of every instance: watch, hooks, file systems, metrics, doctor."""

from __future__ import annotations

import sys
from functools import partial

from userdata.agent.aws import hooks
from userdata.agent.machine import log
from userdata.agent.tasks import job
from userdata.agent.tasks.node import Node


def watch(node: Node) -> int:
    """Watch for the notice until told to stop."""
    from userdata.agent.work.notice_watcher import Watcher

    config = node.config
    name = config.hooks.terminate if config.hooks else ""
    hook = partial(node.complete, name, "CONTINUE") if name else None
    Watcher(config, node.metadata, node.host, node.clock, node.directory, hook).run()
    return 0


def hook(node: Node, which: str, result: hooks.Result) -> int:
    """Complete the launching or the terminating hook; a hook that is not active is no error."""
    wanted = node.config.hooks
    name = "" if wanted is None else wanted.launch if which == "launch" else wanted.terminate
    if not name:
        log.info("no such hook", which=which)
    elif not node.complete(name, result):
        log.info("hook not active", hook=name)
    return 0


def efs(node: Node) -> int:
    """Mount the file systems but those in a job's own place, which are left to `run`.

    Before the data volume is here they would be covered by it, and the work would write to it in their place;
    and only who holds the job's lease is to see its checkpoints.
    """
    from userdata.agent.storage.efs import mount_all

    left = node.own_mounts if node.config.training else ()
    if left and node.config.volume and node.host.mounted(node.data) is not None:
        left = ()
    mount_all(node.host, [one for one in node.config.efs if one not in left])
    if left:
        log.info("left to the job", mounts=len(left))
    return 0


def metrics(node: Node) -> int:
    """Send GPU metrics until told to stop."""
    from userdata.agent.metrics.collect import Collector
    from userdata.agent.metrics.emf import Sink
    from userdata.agent.metrics.owner import Owners
    from userdata.agent.metrics.space import free_percent
    from userdata.agent.work.training.train import newest_checkpoint
    from userdata.agent.work.worker_report_file import Tales

    training = node.config.training

    def age() -> float | None:
        if training is None:
            return None
        newest = newest_checkpoint(job.checkpoints(job.at_hand(node)))
        return max(node.clock.wall() - newest, 0.0) if newest else None

    sink = Sink(node.config.metrics.emf_port)
    owners, tales = Owners(node.directory), Tales(node.directory)

    def depths() -> tuple[float, ...]:
        return tales.queue_depths(node.clock.wall())

    def free() -> float | None:
        return free_percent(node.host, node.data) if node.config.volume else None

    Collector(node.config, node.instance(), node.gpus, owners, sink, node.clock, age, depths, free).run()
    return 0


def doctor(node: Node) -> int:
    """Print a line for each check; 1 if one of them failed."""
    from userdata.agent.tasks.examination import examine

    failed = False
    for finding in examine(node.config, node.metadata, node.host, node.gpus):
        sys.stdout.write(f"{finding.level:8} {finding.check}: {finding.text}\n")
        failed |= finding.level == "failure"
    return int(failed)
