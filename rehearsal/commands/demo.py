"""Implementation of ``gpu-spot demo``: deploy, simulate a Spot market, write a report."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from gpu_spot.commands import files, traces
from gpu_spot.declared.stackfile import StackConfig, find_project, load
from gpu_spot.errors import UserError
from gpu_spot.jobs import report
from gpu_spot.jobs.report import JobReport
from gpu_spot.jobs.text import job_card
from gpu_spot.progress import TimesColumn
from market.replay.ledger import Span
from pulumi_on_moto import outline, sandbox
from pulumi_on_moto.running import server
from pulumi_on_moto.running.clock import simulated
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import START, deployed
from rehearsal.commands.parsers import HOURS, SHARED_HOURS
from rehearsal.rehearse import ProgressListener, RehearsalOptions, RehearsalSetup, is_shared, rehearse
from rehearsal.report.page import render
from rehearsal.report.summary import render_summary
from rehearsal.results.run import Run
from rehearsal.results.summary import summarise

_KEYS: Final = "AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local"


def run(args: argparse.Namespace) -> int:
    """Deploy, rehearse and report.

    Raises ``UserError``, ``TraceError`` or ``ValueError``, one line each.
    """
    console = Console(stderr=args.json)
    files.check_directory_writable("--out", args.out)
    config = load(find_project(), args.stack)
    if args.target is not None:
        config = load(find_project(), args.stack, _overrides(config, args))
    market = traces.load(args.trace) if args.trace else None
    with simulated(START) as clock, sandbox(config.region, args.seed) as clients:
        deployment = deployed(clients, config)
        console.print(outline(deployment))
        console.print(
            f"all resources and outputs: gpu-spot deploy --local --stack {config.stack}", style="dim"
        )
        cloud = LocalCloud(clients, deployment, clock)
        hours = args.hours or HOURS
        if args.hours is None and is_shared(cloud, args.group):
            hours = SHARED_HOURS
            console.print(f"shared host: {hours:g} hours by default, change with --hours", style="dim")
        options = RehearsalOptions(
            group=args.group,
            hours=hours,
            files=tuple(args.trace or ()),
            traces=market,
            pool_size=args.pool_size,
            notice=args.notice_share,
            seed=args.seed,
        )
        with contextlib.closing(TerminalProgress(console)) as progress:
            finished = rehearse(options, cloud, progress)
        summary = _report(args.out, finished, console)
        if args.json:
            sys.stdout.write(summary)
            sys.stdout.flush()
        if args.keep:
            _keep(console, config.region, config.stack, finished.job)
    return 0


def _overrides(config: StackConfig, args: argparse.Namespace) -> dict[str, Any]:
    """Return the overrides of ``--target``: target, maximum and warm instances."""
    services = [service.get("name") for service in config.values.get(f"{config.project}:services") or ()]
    chosen = args.group or next(iter(services), None)
    if chosen not in services:
        raise UserError(
            f"--target needs a service, not {chosen or 'a stack without one'}; "
            f"services: {', '.join(map(str, services)) or 'none'}"
        )
    capacity = f"services[{services.index(chosen)}].capacity"
    return {
        f"{capacity}.target": args.target,
        f"{capacity}.max": 2 * args.target,
        f"{capacity}.fallback.warmInstances": args.target,
    }


def _report(out: Path, finished: Run, console: Console) -> str:
    """Write and print the report; return the summary as JSON text."""
    summary = summarise(finished)
    out.mkdir(parents=True, exist_ok=True)
    text_summary = json.dumps(summary, indent=2) + "\n"
    (out / "summary.json").write_text(text_summary, encoding="utf-8")
    (out / "report.html").write_text(render(finished), encoding="utf-8")
    console.print(render_summary(summary))
    written = ["summary.json", "report.html"]
    if finished.job is not None:
        text = json.dumps(report.to_json(finished.job), indent=2)
        (out / "job.json").write_text(text + "\n", encoding="utf-8")
        console.print(job_card(finished.job))
        written.append("job.json")
    for name in written:
        console.print(str(out / name), soft_wrap=True)
    return text_summary


def _keep(console: Console, region: str, stack: str, job: JobReport | None) -> None:
    """Serve the local cloud until Ctrl-C; a rehearsed ``job`` can be shown there."""
    with server.serve() as endpoint:
        console.print("\nThe local cloud keeps running. Inspect it with the AWS CLI; stop it with Ctrl-C:")
        console.print(server.command_line(endpoint, region), soft_wrap=True, markup=False)
        if job is not None:
            command = f"AWS_ENDPOINT_URL={endpoint} {_KEYS} gpu-spot jobs --stack {stack}"
            console.print(command, soft_wrap=True, markup=False)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            while True:
                signal.pause()
        except KeyboardInterrupt:
            console.print("stopped")


class TerminalProgress(ProgressListener):
    """See ``ProgressListener``; call ``close`` at the end of the rehearsal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.fields[day]}"),
            BarColumn(),
            TextColumn("[green]{task.fields[ready]}[/]/{task.fields[target]} ready"),
            TimesColumn(),
            console=console,
        )

    def begin(self, setup: RehearsalSetup) -> None:
        """See ``ProgressListener``."""
        self._console.print(f"\n[bold]Market[/]: {_market_text(setup)}; rehearsing {setup.ticks / 60:g} h\n")
        self._progress.start()
        self._task = self._progress.add_task(
            "", total=setup.ticks, day="day 1 00:00", ready=0, target=setup.target
        )

    def on_tick(self, tick: int, span: Span) -> None:
        """See ``ProgressListener``."""
        minutes = tick % 1440
        self._progress.update(
            self._task,
            completed=tick + span.ticks,
            day=f"day {tick // 1440 + 1} {minutes // 60:02}:{minutes % 60:02}",
            ready=span.ready,
        )

    def close(self) -> None:
        """Stop the progress bar."""
        self._progress.stop()


def _market_text(setup: RehearsalSetup) -> str:
    market = setup.market
    pools = ", ".join(f"{n} → {p}" for n, p in zip(market.names, setup.shape.pools, strict=True))
    kind = "drawn from the fitted model (no trace given)" if setup.source == "model" else "real traces"
    return f"{kind}: {pools}; {market.pool_size} instances per sample"
