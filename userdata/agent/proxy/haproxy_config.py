"""HAProxy's configuration, rendered from the settings of a service's proxies; pure.

Only options of HAProxy 2.6 (Debian 12) to 2.8 (Amazon Linux 2023). Facts that this file relies on were tried
with 2.6 (``tests/real/test_http.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpProxy
from contracts.names import PROXY_HEALTH_PATH

BACKEND: Final = "workers"
RETRY_AFTER_KEY: Final = "seconds"
"""Key in the map file whose value is the header ``Retry-After`` of a 503."""
BUFFER_BYTES: Final = 65_536
"""A request is repeated only if it fits into a buffer. Source: HAProxy's configuration manual,
``retry-on``."""
MAX_SERVERS: Final = 4000
"""Bound of HAProxy's server table, about 10 KiB each."""
MIN_CONNECTIONS: Final = 4000
"""Bound of connections; each that waits or is served holds up to two buffers, 512 MiB in all."""
_SAFE_METHODS: Final = "GET HEAD OPTIONS TRACE"
"""Source: RFC 9110, section 9.2.1."""
_KEEP_ALIVE_RESERVE_SECONDS: Final = 25
"""An idle connection outlives the load balancer's timeout, which is twice ours and ten seconds, so that no
request meets a closing one. Source: Application Load Balancer guide, "Connection idle timeout"."""


@dataclass(frozen=True)
class Paths:
    """Files of an instance's HAProxy: its runtime socket and the map with `RETRY_AFTER_KEY`."""

    socket: Path
    retry_after: Path


def rows(proxy: HttpProxy) -> int:
    """Return how many hosts the server table has room for: twice the workers, as old and new ones overlap."""
    return max(min(2 * proxy.max_workers, MAX_SERVERS // proxy.max_slots), 1)


def server_name(slot: int, row: int) -> str:
    """Return the name of the server for the worker in ``slot`` of the host in ``row`` (from 1)."""
    return f"s{slot}-{row}"


def concurrency(proxy: HttpProxy) -> int:
    """Return how many requests this proxy sends to one worker at once."""
    return math.ceil(proxy.concurrency / proxy.proxies)


def render(proxy: HttpProxy, paths: Paths, *, user: str = "", chroot: str = "", address: str = "") -> str:
    """Return the configuration file.

    Args:
        proxy: the settings.
        paths: the files that HAProxy and the agent share.
        user: user and group that HAProxy runs as after its start; empty: the user that starts it.
        chroot: directory that HAProxy changes its root to; empty: none.
        address: address to listen on and to connect from; empty: all.
    """
    sections = (
        _global(proxy, paths, user, chroot),
        _defaults(proxy),
        _frontend(proxy, paths, address),
        _backend(proxy, address),
    )
    return "".join(f"{line}\n" for section in sections for line in section)


def _global(proxy: HttpProxy, paths: Paths, user: str, chroot: str) -> list[str]:
    connections = max(MIN_CONNECTIONS, 2 * concurrency(proxy) * proxy.max_workers)
    identity = [f"  user {user}", f"  group {user}"] if user else []
    return [
        "# Written by gpu-spot's agent at its start.",
        "global",
        "  log stderr format short daemon notice",
        f"  stats socket {paths.socket} mode 600 level admin",
        f"  maxconn {connections}",
        f"  tune.bufsize {BUFFER_BYTES}",
        *identity,
        *([f"  chroot {chroot}"] if chroot else []),
    ]


def _defaults(proxy: HttpProxy) -> list[str]:
    idle = proxy.idle_timeout_seconds
    return [
        "defaults",
        "  mode http",
        "  log global",
        "  option httplog",
        # Failed requests only, at a level that the log takes.
        "  option dontlog-normal",
        "  option log-separate-errors",
        # Tokens of a stream go out at once.
        "  option http-no-delay",
        "  option forwardfor if-none",
        # A new connection for each request: none meets a worker that closes an idle one, so a lost request is
        # one that the worker may have begun.
        "  option http-server-close",
        "  http-reuse never",
        # With HTTP/2 HAProxy would else keep it for the caller's next request: no worker would be drained.
        "  max-session-srv-conns 0",
        # A host that vanishes closes no connection; keep-alive finds that within 20 seconds.
        "  option srvtcpka",
        "  srvtcpka-idle 5s",
        "  srvtcpka-intvl 5s",
        "  srvtcpka-cnt 3",
        "  timeout connect 1s",
        "  timeout check 5s",
        "  timeout http-request 30s",
        f"  timeout http-keep-alive {2 * idle + _KEEP_ALIVE_RESERVE_SECONDS}s",
        f"  timeout client {idle}s",
        f"  timeout server {idle}s",
        f"  timeout tunnel {idle}s",
        f"  timeout queue {idle}s",
        # One more: HAProxy does not take the worker of an empty response out, and sends the repetition there,
        # too, while the others are full. A refused connection counts as a repetition.
        f"  retries {proxy.retries + bool(proxy.retries)}",
        "  option redispatch 1",
        "  retry-on conn-failure empty-response",
    ]


def _frontend(proxy: HttpProxy, paths: Paths, address: str) -> list[str]:
    is_h2 = " proto h2" if proxy.is_grpc else ""
    retry_after = f"str({RETRY_AFTER_KEY}),map({paths.retry_after},{proxy.retry_after_seconds})"
    return [
        "frontend requests",
        f"  bind {address}:{proxy.listen_port}{is_h2}",
        "  http-request return status 200 content-type text/plain string ok "
        f"if {{ path {PROXY_HEALTH_PATH} }}",
        f"  acl is_repeatable method {_SAFE_METHODS}",
        "  acl is_repeatable req.hdr(Idempotency-Key) -m found",
        *(f"  acl is_repeatable path_beg {path}" for path in proxy.retry_paths),
        # HAProxy repeats a request only if all of it was there when it was sent the first time.
        "  http-request wait-for-body time 30s if is_repeatable",
        "  http-request disable-l7-retry unless is_repeatable",
        f"  http-after-response set-header Retry-After %[{retry_after}] if {{ status 503 }}",
        f"  default_backend {BACKEND}",
    ]


def _backend(proxy: HttpProxy, address: str) -> list[str]:
    workers, is_h2 = proxy.workers, proxy.is_grpc
    checks = [
        "  option httpchk",
        f"  http-check send meth GET uri {workers.readiness} ver HTTP/1.1 "
        "hdr Host gpu-spot hdr Connection close",
        "  http-check expect status 200-299",
    ]

    def send(slot: int) -> str:
        return "" if proxy.pods else f'agent-send "{slot}\\n" '

    options = [
        # A slow check alone takes no worker out for long: a dead one refuses a connection, see below.
        "check inter 1s rise 1 fall 3",
        # Of pods the cluster's API says that they drain (`servers.plan`).
        *([] if proxy.pods else [f"agent-check agent-port {workers.check_port} agent-inter 1s"]),
        f"maxconn {concurrency(proxy)}",
        # A worker that refuses a connection takes no further request before a check succeeds. Otherwise it is
        # the least loaded one: while the others are full, HAProxy sends it each retry, too.
        "observe layer4 error-limit 1 on-error mark-down",
        *(["proto h2"] if is_h2 else []),
    ]
    return [
        f"backend {BACKEND}",
        "  balance leastconn",
        *([f"  source {address}"] if address else []),
        *([] if is_h2 else checks),
        f"  default-server {' '.join(options)}",
        *(
            f"  server-template s{slot}- 1-{rows(proxy)} 127.0.0.1:{workers.port + slot} {send(slot)}disabled"
            for slot in range(proxy.max_slots)
        ),
    ]
