"""Which deployed stack a command is about, and with whose credentials it asks."""

from __future__ import annotations

import argparse
from typing import Final

from gpu_spot.preflight.account import ClientOf, connect
from pulumi_declared.stackfile import StackConfig

_PROFILE_KEY: Final = "aws:profile"


def of_stack(parser: argparse.ArgumentParser, stack: str = "dev", profile: str | None = None) -> None:
    """Add the options that say which."""
    parser.add_argument("--stack", default=stack, help="the stack file Pulumi.<STACK>.yaml (default: dev)")
    parser.add_argument(
        "--profile",
        default=profile,
        help="the AWS profile (default: the stack's aws:profile, or AWS's own order)",
    )


def clients_of(args: argparse.Namespace, config: StackConfig) -> ClientOf:
    """Return the clients of the caller's account, the same each time; raise ``UserError``."""
    clients = connect(config.region, args.profile or config.values.get(_PROFILE_KEY)).clients
    kept: dict[str, object] = {}

    def client(service: str) -> object:
        if service not in kept:
            kept[service] = clients(service)
        return kept[service]

    return client
