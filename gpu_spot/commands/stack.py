"""Options that select a deployed stack, the clients for its account, and the question before a change."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpu_spot.declared.stackfile import StackConfig
    from gpu_spot.preflight.account import ClientOf


def add_stack_options(
    parser: argparse.ArgumentParser, stack: str = "dev", profile: str | None = None
) -> None:
    """Add ``--stack`` and ``--profile``."""
    parser.add_argument("--stack", default=stack, help="stack file Pulumi.<STACK>.yaml (default: dev)")
    add_profile(parser, profile)


def add_profile(parser: argparse.ArgumentParser, profile: str | None = None) -> None:
    """Add ``--profile``."""
    text = "AWS profile (default: the stack's aws:profile, or the AWS credential chain)"
    parser.add_argument("--profile", default=profile, help=text)


def profile_of(args: argparse.Namespace, config: StackConfig) -> str | None:
    """Return the AWS profile that was typed, else the stack's."""
    return args.profile or config.values.get("aws:profile")


def clients_for(args: argparse.Namespace, config: StackConfig) -> ClientOf:
    """Return a function that returns cached clients of the stack's account. Raises ``UserError``."""
    from gpu_spot.preflight.account import connect

    clients = connect(config.region, profile_of(args, config)).clients
    cache: dict[str, object] = {}

    def client(service: str) -> object:
        if service not in cache:
            cache[service] = clients(service)
        return cache[service]

    return client


def name_in_aws(config: StackConfig) -> str:
    """Return the stack's name in AWS: its own, or the old one of a renamed stack."""
    return str(config.values.get("gpu-spot:stackName") or config.stack)


def confirm(question: str, cancelled: str, error: type[ValueError]) -> None:
    """Ask ``question`` on stderr. Raises ``error`` without a terminal, or with ``cancelled`` unless yes."""
    if not sys.stdin.isatty():
        raise error("standard input is not a terminal, so confirmation is impossible; use --yes")
    sys.stderr.write(f"{question} [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise error(cancelled)
