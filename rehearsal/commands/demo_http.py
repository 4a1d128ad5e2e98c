"""Implementation of ``gpu-spot demo --http``: an HTTP service in a market, in real time, and its page."""

from __future__ import annotations

import argparse
import json
import sys

from rich.console import Console

from gpu_spot.commands import files
from gpu_spot.commands.rehearsed.defaults import HTTP_HOURS, SERVICE_NOTICE_SHARE
from pulumi_declared.errors import UserError
from rehearsal.http import page, proxies
from rehearsal.http.play import HttpOutcome, HttpScript
from rehearsal.http.play import run as play

_NOT_USED = ("stack", "group", "trace", "job", "service", "load", "pool_size", "python", "keep")


def run(args: argparse.Namespace) -> int:
    """Play, report; return 1 if a request failed that must not. Raises ``UserError``, one line."""
    for name in _NOT_USED:
        if getattr(args, name):
            raise UserError(f"--http with --{name.replace('_', '-')}, allowed: --http without it")
    files.check_directory_writable("--out", args.out)
    proxies.installed()
    console = Console(stderr=args.json)
    script = HttpScript(
        hosts=args.target or HttpScript.hosts,
        seconds=(args.hours or HTTP_HOURS) * 3600,
        notice_share=SERVICE_NOTICE_SHARE if args.notice_share is None else args.notice_share,
        seed=args.seed,
    )
    reported: list[int] = []

    def on_progress(outcome: HttpOutcome) -> None:
        if len(outcome.interruptions) > len(reported):
            reported.append(1)
            last = outcome.interruptions[-1]
            kind = "a notice" if last.has_notice else "no notice"
            ready = outcome.ready[-1][1]
            console.print(f"{last.at - outcome.began:6.1f} s: a host gets {kind}; {ready} workers are ready")

    outcome = play(script, on_progress)
    summary = page.summarise(outcome)
    args.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary, indent=2) + "\n"
    (args.out / "summary.json").write_text(text, encoding="utf-8")
    (args.out / "report.html").write_text(page.render(outcome), encoding="utf-8")
    console.print(page.headline(summary))
    for name in ("summary.json", "report.html"):
        console.print(str(args.out / name), soft_wrap=True)
    if args.json:
        sys.stdout.write(text)
        sys.stdout.flush()
    return int(bool(summary["failed_with_notice"] or summary["failed_repeatable"]))
