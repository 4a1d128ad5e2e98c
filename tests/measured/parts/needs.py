"""Checks of what a script needs besides Python, before it starts.

A missing requirement ends the script with code 2; a missing optional one is reported, and its part is
skipped.
"""

from __future__ import annotations

from packages import rabbitmq as broker
from pulumi_on_moto.errors import LocalCloudError
from research.parts.needs import refuse, say
from tests.real import containers
from tests.real.http_play import proxies


def rabbitmq() -> None:
    try:
        broker.installed()
    except broker.BrokerError as error:
        refuse(error)


def haproxy() -> None:
    try:
        proxies.installed()
    except LocalCloudError as error:
        refuse(error)


def containers_or_none(*programs: str) -> None:
    """Print a message if this machine cannot run containers with these programs."""
    try:
        containers.needed(*programs)
    except containers.LackingError as error:
        say(f"containers are left out: {error}")
