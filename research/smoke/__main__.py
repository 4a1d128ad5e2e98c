"""``python -m research.smoke``: boot an instance on AWS and try the beliefs. ``make aws-smoke`` calls it."""

from __future__ import annotations

import argparse
import secrets
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from botocore.exceptions import BotoCoreError, ClientError

from gpu_spot.declared.stackfile import find_project
from gpu_spot.preflight.account import ClientOf, connect
from research.smoke import controlling, launching
from research.smoke.bed import Bed, Belief, Falsified, RunRecord
from research.smoke.cleaning import clean_up
from research.smoke.stack import SmokeStack, wait_for_heartbeat

REGION: Final = "us-west-2"
"""That of the stack file."""
BELIEFS: Final = tuple(
    value
    for module in (launching, controlling)
    for value in vars(module).values()
    if isinstance(value, Belief)
)


def _stack_belief(stack: SmokeStack) -> Belief:
    def trial(bed: Bed) -> str:
        stack.up()
        return wait_for_heartbeat(bed)

    sentence = "The program deploys, and an instance of it boots, starts the agent and reports a worker."
    return Belief("an-instance-boots", sentence, "infra/, userdata/boot.sh, userdata/agent/", trial)


def try_beliefs(bed: Bed, beliefs: Iterable[Belief], results: RunRecord) -> int:
    """Try the beliefs one after the other, write each result as it comes; return how many did not hold.

    Another error than ``Falsified``, such as a missing permission, is a belief that was not tried.
    """
    failed = 0
    for belief in beliefs:
        try:
            verdict, result = "held", belief.trial(bed)
        except Falsified as falsified:
            verdict, result = "falsified", str(falsified)
        except (BotoCoreError, ClientError, OSError, subprocess.SubprocessError) as error:
            verdict, result = "not tried", " ".join(f"{type(error).__name__}: {error}".split())
        results.add(
            belief=belief.name, verdict=verdict, seen=result, says=belief.sentence, rests=belief.rests
        )
        sys.stdout.write(f"{verdict:10}{belief.name}: {result}\n")
        if verdict != "held":
            failed += 1
            sys.stdout.write(f"          {belief.rests} rests on: {belief.sentence}\n")
        sys.stdout.flush()
    return failed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m research.smoke", description=__doc__)
    modes = parser.add_mutually_exclusive_group(required=True)
    modes.add_argument("--yes-spend-money", action="store_true", help="run; the account is charged")
    modes.add_argument("--list", action="store_true", help="list the beliefs; makes no call")
    modes.add_argument("--clean-up", metavar="RUN", help="delete what a run left, by its record")
    parser.add_argument("--without-stack", action="store_true", help="only try the beliefs, for some cents")
    parser.add_argument("--profile", help="AWS profile (default: the AWS credential chain)")
    parser.add_argument("--out", type=Path, default=Path("out/smoke"), help="folder of results and records")
    return parser


def main(
    arguments: Sequence[str] | None = None,
    clients_of: Callable[[str | None], ClientOf] = lambda profile: connect(REGION, profile).clients,
) -> int:
    """Run. Returns 1 if a belief did not hold or something is left over."""
    args = _parser().parse_args(arguments)
    if args.list:
        sys.stdout.writelines(f"{belief.name} ({belief.rests}): {belief.sentence}\n" for belief in BELIEFS)
        return 0
    run = args.clean_up or secrets.token_hex(4)
    folder: Path = args.out / run
    bed = Bed(clients_of(args.profile), run, RunRecord(folder / "made.jsonl"))
    stack = SmokeStack(find_project(), folder)
    failed = 0
    try:
        if not args.clean_up:
            sys.stdout.write(f"run {run}, results in {folder}/results.jsonl\n")
            beliefs = [*BELIEFS, *(() if args.without_stack else (_stack_belief(stack),))]
            failed = try_beliefs(bed, beliefs, RunRecord(folder / "results.jsonl"))
    finally:
        leftovers = clean_up(bed)
        try:
            stack.destroy()
        except (OSError, subprocess.SubprocessError) as error:
            leftovers.append(f"stack in {folder}/state: {error}")
        again = f"; again: python -m research.smoke --clean-up {run}" if leftovers else ""
        sys.stdout.write(f"left over: {', '.join(leftovers) or 'nothing'}{again}\n")
    return int(bool(failed or leftovers))


if __name__ == "__main__":
    sys.exit(main())
