"""Runs the actions of ``gpu-spot jobs``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console, Group, RenderableType
from rich.live import Live

from gpu_spot.commands.jobs import ADOPT, POLL_SECONDS, STEERING
from gpu_spot.commands.stack import clients_for, confirm, name_in_aws
from gpu_spot.declared.stackfile import find_project, load
from gpu_spot.errors import aws_error
from gpu_spot.jobs import report
from gpu_spot.jobs.adoption import VolumeAdoption, VolumeRules
from gpu_spot.jobs.cluster import ClusterJob, ClusterReader, cluster_json, cluster_table
from gpu_spot.jobs.logs import JobLog
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import job_status
from gpu_spot.jobs.steering import JobControl
from gpu_spot.jobs.text import job_card, jobs_table
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from infra.schema import Settings


def run(args: argparse.Namespace) -> int:
    """Run an action with the caller's credentials. Raises ``UserError`` or ``JobError``."""
    config = load(find_project(), args.stack)
    args.stack = name_in_aws(config)
    return act(args, clients_for(args, config), config.region, settings=partial(settings_of, config))


def act(
    args: argparse.Namespace,
    clients: ClientOf,
    region: str,
    wait: Callable[[], bool] | None = None,
    settings: Callable[[], Settings] | None = None,
) -> int:
    """Run an action through ``clients``.

    ``wait`` is as in `JobLog.follow`; by default it waits until Ctrl-C. ``settings`` returns those of the
    stack file; ``adopt-volume`` needs them, and the list shows their jobs on Kubernetes.
    """
    reader = JobReader(clients, args.stack, region)
    try:
        if args.action in STEERING:
            _steer(args, clients, reader)
        elif args.action == ADOPT:
            assert settings is not None
            _adopt(args, settings(), VolumeAdoption(clients, args.stack, reader), reader)
        elif args.action == "logs":
            _logs(args, clients, reader, wait or _wait)
        else:
            on_cluster = partial(_on_cluster, args, clients, region, settings)
            _show(args, reader, wait or _wait, on_cluster)
    except (BotoCoreError, ClientError) as error:
        raise aws_error(f"stack {args.stack!r} in {region}", error) from None
    return 0


def print_line(text: str) -> None:
    """Print one line unchanged and flush."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _on_cluster(
    args: argparse.Namespace, clients: ClientOf, region: str, settings: Callable[[], Settings] | None
) -> tuple[str, list[ClusterJob]]:
    """Return the name of the cluster, and the jobs on Kubernetes."""
    read = None if settings is None else settings().on_kubernetes
    if read is None or read.kubernetes is None or not read.training:
        return "", []
    cluster, names = read.kubernetes.cluster, [job.name for job in read.training]
    reader = ClusterReader(clients("eks"), cluster, region)
    return cluster, reader.read(names, read.kubernetes.namespace_of(args.stack))


def _show(
    args: argparse.Namespace,
    reader: JobReader,
    wait: Callable[[], bool],
    on_cluster: Callable[[], tuple[str, list[ClusterJob]]],
) -> None:
    if args.json:
        document = (
            report.to_json(reader.report(args.job))
            if args.action == "show"
            else [*map(report.to_json, reader.reports()), *map(cluster_json, on_cluster()[1])]
        )
        print_line(json.dumps(document, indent=2))
        return

    def render() -> RenderableType:
        if args.action == "show":
            return job_card(reader.report(args.job))
        table, (cluster, more) = jobs_table(reader.reports(), args.stack), on_cluster()
        return Group(table, cluster_table(more, cluster)) if more else table

    console = Console(markup=False, emoji=False)
    if not args.watch:
        console.print(render())
        return
    with Live(render(), console=console, auto_refresh=False) as live:
        while wait():
            live.update(render(), refresh=True)


def _steer(args: argparse.Namespace, clients: ClientOf, reader: JobReader) -> None:
    steering = JobControl(clients, args.stack, reader)
    options = {"resume": ("budget",), "run": ("changes",)}.get(args.action, ())
    more = {key: getattr(args, key) for key in options}
    message = getattr(steering, args.action)(args.job, **more)
    _print_change(args, message, reader)


def _print_change(args: argparse.Namespace, message: str, reader: JobReader) -> None:
    if not args.json:
        print_line(message)
        return
    snapshot = reader.find(args.job)
    job = None if snapshot is None else report.to_json(JobReport(snapshot, job_status(snapshot)))
    print_line(json.dumps({"action": args.action, "said": message, "job": job}, indent=2))


def _adopt(args: argparse.Namespace, settings: Settings, adoption: VolumeAdoption, reader: JobReader) -> None:
    rules = _volume_rules(args, settings)
    if args.blank:
        message = adoption.decline()
    else:
        checked = adoption.check(rules, args.volume)
        if not args.yes and not checked.is_done:
            for effect in checked.effects:
                sys.stderr.write(f"{effect}\n")
            question = f"Give {checked.source} to {args.job} in stack {args.stack}?"
            confirm(question, "adoption cancelled: nothing was changed", JobError)
        message = "; ".join([adoption.adopt(checked), *(() if checked.is_done else checked.effects)])
    snapshot = reader.find(args.job)
    if snapshot is not None and snapshot.outcome == "failed":
        message += f"; then run `gpu-spot jobs retry {args.job} --stack {args.stack}`"
    _print_change(args, message, reader)


def _volume_rules(args: argparse.Namespace, settings: Settings) -> VolumeRules:
    """Return what the stack file says about the job's volume. Raises ``JobError``: it can adopt none."""
    jobs = {job.name: job for job in settings.on_instances.jobs}
    if args.job not in jobs:
        listed = ", ".join(sorted(jobs)) or "none"
        raise JobError(f"job {args.job!r} does not exist; jobs on instances in the stack file: {listed}")
    job = jobs[args.job]
    if not job.has_volume:
        raise JobError(f"job {args.job!r} has volumeGiB 0; name a job with a data volume")
    if job.prepare is not None:
        raise JobError(f"job {args.job!r} starts from its prepared dataset; name a job without prepare")
    return VolumeRules(args.job, job.volume_gib, settings.network.zones, settings.kms_key_arn or "")


def _logs(args: argparse.Namespace, clients: ClientOf, reader: JobReader, wait: Callable[[], bool]) -> None:
    snapshot = reader.read(args.job)
    since = snapshot.now - args.since
    log = JobLog(clients("logs"), args.stack, snapshot.group or args.job)
    if args.json:
        lines = [asdict(line) for line in log.read(since)]
        print_line(json.dumps({"job": args.job, "since": since, "lines": lines}, indent=2))
        return
    for line in log.follow(since, wait) if args.follow else log.read(since):
        at = datetime.fromtimestamp(line.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
        print_line(f"{at} {line.instance} {line.text}")


def _wait() -> bool:
    time.sleep(POLL_SECONDS)
    return True
