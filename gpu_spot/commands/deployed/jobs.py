"""``gpu-spot jobs``: observe and control the training jobs of a deployed stack."""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError
from rich.console import Console, Group, RenderableType
from rich.live import Live

from gpu_spot.commands import files, project
from gpu_spot.commands.deployed.confirmation import confirm
from gpu_spot.commands.deployed.stack import add_stack_options, clients_for
from gpu_spot.jobs import curves, report, study
from gpu_spot.jobs.adoption import VolumeAdoption, VolumeRules
from gpu_spot.jobs.cluster import ClusterReader, cluster_table
from gpu_spot.jobs.logs import JobLog
from gpu_spot.jobs.reader import JobError, JobReader
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.status import job_status
from gpu_spot.jobs.steering import JobControl
from gpu_spot.jobs.text import job_card, jobs_table
from gpu_spot.preflight.account import ClientOf
from gpu_spot.preflight.stack import settings_of
from infra.schema import Settings
from pulumi_declared.stackfile import load

POLL_SECONDS: Final = 5.0
"""Poll interval of ``--watch`` and ``logs --follow``."""

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_JOB: Final = "name of the job"
_ADOPT: Final = "adopt-volume"
_STUDY: Final = "study"
_STEERING: Final = {
    "stop": "stop a run: it saves a checkpoint, keeps its volume and releases its capacity",
    "resume": "resume a stopped run",
    "retry": "restart a failed run and reset its failure counters",
}


def add_parser(commands: Any) -> None:
    """Add the sub-command to an ``argparse`` sub-parsers object."""
    parser = commands.add_parser("jobs", help="observe and control the training jobs of a deployed stack")
    parser.set_defaults(run=run, action="list", json=False, watch=False)
    add_stack_options(parser)
    actions = parser.add_subparsers(dest="action", metavar="ACTION")
    actions.required = False
    _watching(actions, "list", "list all jobs with their state and host (the default)")
    _watching(actions, "show", "show a job: its state and the timeline of its run").add_argument(
        "job", help=_JOB
    )
    trials = _watching(actions, _STUDY, "show a study: its trials, best first")
    trials.add_argument("job", help=_JOB)
    trials.add_argument("--curves", type=Path, metavar="FILE", help="draw the metric of each trial: .svg")
    logs = _action(actions, "logs", "print the logs of a job's instances")
    logs.add_argument("job", help=_JOB)
    form = logs.add_mutually_exclusive_group()
    form.add_argument("-f", "--follow", action="store_true", help="print new lines until Ctrl-C")
    form.add_argument("--json", action="store_true", help="print JSON")
    logs.add_argument(
        "--since",
        type=_duration,
        default=3600.0,
        metavar="TIME",
        help="start this long ago, such as 90s, 10m, 2h, 1d (default: 1h)",
    )
    for name, text in _STEERING.items():
        action = _action(actions, name, text)
        action.add_argument("job", help=_JOB)
        action.add_argument("--json", action="store_true", help="print JSON")
        if name == "resume":
            action.add_argument("--budget", type=_dollars, metavar="USD", help="new total budget of the run")
    adopt = _action(
        actions,
        _ADOPT,
        "give a job without a data volume an existing one, such as that of an earlier training",
    )
    adopt.add_argument("job", help=_JOB)
    which = adopt.add_mutually_exclusive_group()
    which.add_argument(
        "volume",
        nargs="?",
        default="",
        help="ID of the volume or snapshot (default: the only one that has the name of jobs' volumes and "
        "belongs to no job)",
    )
    which.add_argument(
        "--blank",
        action="store_true",
        help="adopt none: mark those that belong to no job as unused, so that new jobs of the region start "
        "with blank volumes",
    )
    adopt.add_argument("--yes", action="store_true", help="do not ask for confirmation")
    adopt.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Run an action with the caller's credentials. Raises ``UserError`` or ``JobError``."""
    if getattr(args, "curves", None) is not None:
        curves.check(args.curves)
        files.check_writable("--curves", args.curves)
    config = load(project.find(), args.stack)
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
        if args.action in _STEERING:
            _steer(args, clients, reader)
        elif args.action == _ADOPT:
            assert settings is not None
            _adopt(args, settings(), VolumeAdoption(clients, args.stack, reader), reader)
        elif args.action == "logs":
            _logs(args, clients, reader, wait or _wait)
        else:
            on_cluster = None if settings is None else partial(_on_cluster, args, clients, region, settings)
            _show(args, reader, wait or _wait, on_cluster)
    except (BotoCoreError, ClientError) as error:
        raise JobError(f"stack {args.stack!r} in {region}: {error}") from None
    return 0


def print_line(text: str) -> None:
    """Print one line unchanged and flush."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _on_cluster(
    args: argparse.Namespace, clients: ClientOf, region: str, settings: Callable[[], Settings]
) -> RenderableType | None:
    """Return the table of jobs on Kubernetes; None without any."""
    read = settings().on_kubernetes
    if read.kubernetes is None or not read.training:
        return None
    cluster = read.kubernetes.cluster
    reader = ClusterReader(clients("eks"), cluster, region)
    names = [job.name for job in read.training]
    return cluster_table(reader.read(names, read.kubernetes.namespace_of(args.stack)), cluster)


def _show(
    args: argparse.Namespace,
    reader: JobReader,
    wait: Callable[[], bool],
    on_cluster: Callable[[], RenderableType | None] | None,
) -> None:
    if getattr(args, "curves", None) is not None:
        files.write("--curves", args.curves, curves.svg(study.read_study(reader, args.job)))
    if args.json:
        document: Any
        if args.action == "show":
            document = report.to_json(reader.report(args.job))
        elif args.action == _STUDY:
            document = study.to_json(study.read_study(reader, args.job))
        else:
            document = [report.to_json(job) for job in reader.reports()]
        print_line(json.dumps(document, indent=2))
        return

    def render() -> RenderableType:
        if args.action == "show":
            return job_card(reader.report(args.job))
        if args.action == _STUDY:
            return study.study_table(study.read_study(reader, args.job))
        table, more = jobs_table(reader.reports(), args.stack), on_cluster and on_cluster()
        return Group(table, more) if more else table

    console = Console()
    if not args.watch:
        console.print(render())
        return
    with Live(render(), console=console, auto_refresh=False) as live:
        while wait():
            live.update(render(), refresh=True)


def _steer(args: argparse.Namespace, clients: ClientOf, reader: JobReader) -> None:
    steering = JobControl(clients, args.stack, reader)
    more = {"budget": args.budget} if args.action == "resume" else {}
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
        raise JobError(f"job {args.job!r} has volumeGiB 0, allowed: a job with a data volume")
    if job.prepare is not None:
        raise JobError(f"job {args.job!r} starts from its prepared dataset, allowed: a job without prepare")
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


def _action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text)
    # An option before the action applies unless it is repeated after it.
    add_stack_options(parser, stack=argparse.SUPPRESS, profile=argparse.SUPPRESS)
    return parser


def _watching(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = _action(actions, name, text)
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--watch", action="store_true", help="refresh until Ctrl-C")
    return parser


def _dollars(text: str) -> float:
    try:
        dollars = float(text)
    except ValueError:
        dollars = 0.0
    if not 0 < dollars < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of US dollars above 0, such as 250")
    return dollars


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d{1,6})([smhd])", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90s, 10m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]
