"""Plays of an HTTP service with callers of other libraries, for tests and ``make bench-http``."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import time
from pathlib import Path
from typing import Any, Final

from packages import environments
from pulumi_on_moto.errors import LocalCloudError
from tests.real.http_play import play
from tests.real.http_play.hosts import HttpHosts
from tests.real.http_play.play import HttpScript

_HERE: Final = Path(__file__).parent
_SERVERS: Final = {
    "openai": None,
    "triton": play.SERVER.with_name("triton_server.py"),
    "websocket": _HERE / "websocket_worker.py",
}
"""The worker that each kind of caller calls; None: that of all plays."""
CLIENTS: Final = tuple(_SERVERS)
_SCRIPT: Final = HttpScript(hosts=2, token_seconds=0.02, concurrency=4)
_CALLERS_PER_PROXY: Final = 2
_NOTICE_SECONDS: Final = 30.0


def clients(kind: str) -> list[dict[str, Any]]:
    """Return what each caller counted while both hosts got a notice, one after the other."""
    python = str(environments.environment("http") / "python")
    script = _SCRIPT
    if (server := _SERVERS[kind]) is not None:
        script = dataclasses.replace(script, command=(python, str(server)), is_grpc=kind == "triton")
    with play.world(script) as (running, _):
        callers = [
            subprocess.Popen(
                [python, str(_HERE / "http_callers.py"), kind, "{}:{}".format(*proxy.address)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for proxy in running.proxies
            for _ in range(_CALLERS_PER_PROXY)
        ]
        try:
            for caller in callers:
                assert caller.stdout is not None
                caller.stdout.readline()  # it has begun
            first = running.hosts.names()
            running.hosts.launch(script.release)
            running.wait_ready(len(first) + 1)
            for name in first:
                _drain(running.hosts, name)
            return [json.loads(caller.communicate()[0]) for caller in callers]
        finally:
            for caller in callers:
                caller.kill()
                caller.communicate()


def _drain(hosts: HttpHosts, name: str) -> None:
    """Give a host a notice and wait until it has ended by itself, before its time is up."""
    hosts.notice(name, _NOTICE_SECONDS)
    end = time.monotonic() + _NOTICE_SECONDS / 2
    while not hosts.has_drained(name):
        if time.monotonic() > end:
            raise LocalCloudError(f"{name} has not drained after {_NOTICE_SECONDS / 2:g} s")
        time.sleep(0.05)
