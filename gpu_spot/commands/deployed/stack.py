"""Options that select a deployed stack, and the clients for its account."""

from __future__ import annotations

import argparse
from typing import Final

from gpu_spot.preflight.account import ClientOf, connect
from pulumi_declared.stackfile import StackConfig

_PROFILE_KEY: Final = "aws:profile"


def add_stack_options(
    parser: argparse.ArgumentParser, stack: str = "dev", profile: str | None = None
) -> None:
    """Add ``--stack`` and ``--profile``."""
    parser.add_argument("--stack", default=stack, help="stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument(
        "--profile",
        default=profile,
        help="AWS profile (default: the stack's aws:profile, or the AWS credential chain)",
    )


def clients_for(args: argparse.Namespace, config: StackConfig) -> ClientOf:
    """Return a function that returns cached clients of the stack's account. Raises ``UserError``."""
    clients = connect(config.region, args.profile or config.values.get(_PROFILE_KEY)).clients
    cache: dict[str, object] = {}

    def client(service: str) -> object:
        if service not in cache:
            cache[service] = clients(service)
        return cache[service]

    return client
