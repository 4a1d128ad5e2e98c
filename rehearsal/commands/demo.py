"""Implementation of ``gpu-spot demo``: deploy, simulate a Spot market, write a report."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from gpu_spot.commands import files, project
from gpu_spot.commands.market import traces
from gpu_spot.commands.rehearsed.defaults import (
    HOURS,
    LOAD_HOURS,
    NOTICE_SHARE,
    SERVICE_HOURS,
    SERVICE_NOTICE_SHARE,
    SHARED_HOURS,
)
from gpu_spot.jobs import report
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.text import job_card
from pulumi_declared.errors import UserError
from pulumi_declared.stackfile import StackConfig, load
from pulumi_on_moto import outline, sandbox
from pulumi_on_moto.running import server
from pulumi_on_moto.running.clock import simulated
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands import stacks
from rehearsal.commands.deployed import START, deployed
from rehearsal.commands.progress import TerminalProgress
from rehearsal.loaded_fleet import QUEUE_KIND
from rehearsal.machines.real import broker
from rehearsal.real_job import Script
from rehearsal.rehearse import RehearsalOptions, is_shared, rehearse
from rehearsal.report.page import render
from rehearsal.report.picture import write_plot
from rehearsal.report.summary import render_summary
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise
from rehearsal.services.rehearse import rehearse_services


def run(args: argparse.Namespace) -> int:
    """Deploy, rehearse and report; return 1 if real workers lost a request or repeated one unmarked.

    Raises ``UserError``, ``TraceError`` or ``ValueError``, one line each.
    """
    console = Console(stderr=args.json)
    files.check_directory_writable("--out", args.out)
    config = _config(args)
    options = _options(args)
    if options.workers is not None:
        broker.installed()
    with simulated(START) as clock, sandbox(config.region, args.seed) as clients:
        started = time.perf_counter()
        deployment = deployed(clients, config)
        console.print(outline(deployment))
        console.print(
            f"all resources and outputs: gpu-spot deploy --local --stack {config.stack}", style="dim"
        )
        cloud = LocalCloud(clients, deployment, clock)
        if args.hours is None and is_shared(cloud, options.group):
            options = replace(options, hours=SHARED_HOURS)
            console.print(f"shared host: {SHARED_HOURS:g} hours by default, change with --hours", style="dim")
        with contextlib.closing(TerminalProgress(console)) as progress:
            play = rehearse if options.workers is None else rehearse_services
            finished = play(options, cloud, progress, started)
        summary = _report(args.out, finished, console)
        if args.json:
            sys.stdout.write(summary)
            sys.stdout.flush()
        if args.keep:
            _keep(console, config.region, config.stack, finished.job)
    return 0 if finished.served is None or finished.served.is_whole else 1


def _config(args: argparse.Namespace) -> StackConfig:
    """Return the stack's configuration; ``--job`` and ``--service`` also set the group."""
    if args.python is not None and args.job is None:
        raise UserError(f"--python is {args.python}, allowed only with --job")
    if args.job is not None:
        _alone("--job", args, {"--service": args.service, "--target": args.target})
        config, args.group = stacks.of_job(args.job, args.stack)
        return config
    if args.service is not None:
        _alone("--service", args, {})
        config, args.workers = stacks.of_service(args.service, args.stack)
        args.group = args.service
        return config if args.target is None else load(project.find(), config.stack, _overrides(config, args))
    config = load(project.find(), args.stack or "dev")
    overrides = {} if args.target is None else _overrides(config, args)
    if args.load:
        overrides |= _scaled(config, args)
    return load(project.find(), config.stack, overrides) if overrides else config


def _alone(option: str, args: argparse.Namespace, more: Mapping[str, object]) -> None:
    conflicting = {"--group": args.group, "--trace": args.trace, "--load": args.load or None, **more}
    if names := [name for name, value in conflicting.items() if value is not None]:
        raise UserError(f"{option} with {names[0]}, allowed: {option} without it (its market is scripted)")


def _options(args: argparse.Namespace) -> RehearsalOptions:
    hours, notice = (HOURS, NOTICE_SHARE) if args.service is None else (SERVICE_HOURS, SERVICE_NOTICE_SHARE)
    return RehearsalOptions(
        group=args.group,
        hours=args.hours or (LOAD_HOURS if args.load else hours),
        files=tuple(args.trace or ()),
        traces=traces.load(args.trace) if args.trace else None,
        pool_size=args.pool_size,
        notice=notice if args.notice_share is None else args.notice_share,
        seed=args.seed,
        script=Script(project.find(), args.python) if args.job else None,
        workers=args.workers,
        load=args.load,
    )


def _overrides(config: StackConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Return the overrides of ``--target``: target, maximum and warm instances."""
    services = [service.get("name") for service in config.values.get(f"{config.project}:services") or ()]
    chosen = args.group or next(iter(services), None)
    if chosen not in services:
        raise UserError(
            f"target is {args.target} for {chosen or 'no group'}, allowed only for a service; "
            f"services: {', '.join(map(str, services)) or 'none'}"
        )
    capacity = f"services[{services.index(chosen)}].capacity"
    return {
        f"{capacity}.target": args.target,
        f"{capacity}.max": 2 * args.target,
        f"{capacity}.fallback.warmInstances": args.target,
    }


def _scaled(config: StackConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Return the override that lets the scaler set the target under a load (no dry run)."""
    services = config.values.get(f"{config.project}:services") or ()
    for index, service in enumerate(services):
        if service.get("name") != args.group and args.group is not None:
            continue
        args.group, kind = service.get("name"), (service.get("queue") or {}).get("kind")
        if "scaling" not in service:
            break
        if kind != QUEUE_KIND:
            raise UserError(f"queue of {args.group} is {kind}, allowed with --load: {QUEUE_KIND}")
        return {f"services[{index}].scaling.dryRun": False}
    group = args.group or "the first group"
    raise UserError(
        f"{group} of stack {config.stack} has no scaling, allowed with --load: a service with scaling"
    )


def _report(out: Path, finished: Run, console: Console) -> str:
    """Write and print the report; return the summary as JSON text."""
    summary = summarise(finished)
    out.mkdir(parents=True, exist_ok=True)
    text_summary = json.dumps(summary, indent=2) + "\n"
    (out / "summary.json").write_text(text_summary, encoding="utf-8")
    (out / "report.html").write_text(render(finished), encoding="utf-8")
    console.print(render_summary(summary))
    written = ["summary.json", "report.html"]
    if finished.load is None and finished.served is None:  # the picture shows a fixed target
        write_plot(finished, out / "plot.svg")
        written.append("plot.svg")
    if finished.job is not None:
        text = json.dumps(report.to_json(finished.job), indent=2)
        (out / "job.json").write_text(text + "\n", encoding="utf-8")
        console.print(job_card(finished.job))
        written.append("job.json")
    for name in written:
        console.print(str(out / name), soft_wrap=True)
    return text_summary


def _jobs_line(endpoint: str, stack: str) -> str:
    """Return a shell command that shows the job in the served local cloud."""
    return (
        f"AWS_ENDPOINT_URL={endpoint} AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local "
        f"gpu-spot jobs --stack {stack}"
    )


def _keep(console: Console, region: str, stack: str, job: JobReport | None) -> None:
    """Serve the local cloud until Ctrl-C; a rehearsed ``job`` can be shown there."""
    with server.serve() as endpoint:
        console.print("\nThe local cloud keeps running. Inspect it with the AWS CLI; stop it with Ctrl-C:")
        console.print(server.command_line(endpoint, region), soft_wrap=True, markup=False)
        if job is not None:
            console.print(_jobs_line(endpoint, stack), soft_wrap=True, markup=False)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            console.print("stopped")
