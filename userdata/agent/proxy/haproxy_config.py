"""HAProxy's configuration, rendered from the settings of a service's proxies; pure.

Only options of HAProxy 2.6 (Debian 12) to 3.0 (Amazon Linux 2023). Facts that this file relies on were tried
with 2.6 (``tests/real/test_http.py``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from contracts.agent.config import HttpProxy
from contracts.limits import MAX_PROXY_SERVERS, READINESS_SECONDS
from contracts.names import PROXY_HEALTH_PATH

BACKEND: Final = "workers"
RETRY_AFTER_KEY: Final = "seconds"
FILLED_KEY: Final = "filled"
"""1 once the table has the discovered workers: until then the proxy is not healthy."""
"""Key in the map file whose value is the header ``Retry-After`` of a 503."""
BUFFER_BYTES: Final = 65_536
"""A request is repeated only if it fits into a buffer. Source: HAProxy's configuration manual,
``retry-on``."""
MIN_CONNECTIONS: Final = 4000
"""Least bound of connections; each that waits or is served holds up to two buffers, 512 MiB in all."""
MAX_CONNECTIONS: Final = 16_000
"""Largest bound: 2 GiB in all, half of a ``c7g.large``'s memory."""
CONNECT_SECONDS: Final = 4
_CHECK_CONNECTIONS: Final = 100
_SAFE_METHODS: Final = "GET HEAD OPTIONS TRACE"
"""Source: RFC 9110, section 9.2.1."""
_KEEP_ALIVE_RESERVE_SECONDS: Final = 25
"""An idle connection outlives the load balancer's timeout, which is twice ours and ten seconds, so that no
request meets a closing one. Source: Application Load Balancer guide, "Connection idle timeout"."""


@dataclass(frozen=True)
class Paths:
    """Files of an instance's HAProxy: its runtime socket and the map with the values that change."""

    socket: Path
    values: Path


def first_values(proxy: HttpProxy) -> str:
    """Return the map's text at HAProxy's start."""
    return f"{RETRY_AFTER_KEY} {proxy.retry_after_seconds}\n{FILLED_KEY} 0\n"


def rows(proxy: HttpProxy) -> int:
    """Return how many hosts the server table has room for: twice the workers, as old and new ones overlap."""
    return max(min(2 * proxy.max_workers, MAX_PROXY_SERVERS // proxy.max_slots), 1)


def server_name(slot: int, row: int) -> str:
    """Return the name of the server for the worker in ``slot`` of the host in ``row`` (from 1)."""
    return f"s{slot}-{row}"


def concurrency(proxy: HttpProxy) -> int:
    """Return how many requests this proxy sends to one worker at once."""
    return math.ceil(proxy.concurrency / proxy.proxies)


def connections(proxy: HttpProxy) -> int:
    """Return how many callers' connections this proxy has at once; more wait to be accepted."""
    return min(MAX_CONNECTIONS, max(MIN_CONNECTIONS, 2 * concurrency(proxy) * proxy.max_workers))


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
        _checks(proxy, paths, address),
        _backend(proxy, address),
    )
    return "".join(f"{line}\n" for section in sections for line in section)


def _global(proxy: HttpProxy, paths: Paths, user: str, chroot: str) -> list[str]:
    identity = [f"  user {user}", f"  group {user}"] if user else []
    return [
        "# Written by gpu-spot's agent at its start.",
        "global",
        "  log stderr format short daemon notice",
        f"  stats socket {paths.socket} mode 600 level admin",
        f"  maxconn {connections(proxy) + _CHECK_CONNECTIONS}",
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
        # The request of a caller that has gone ends, waiting or at a worker: its GPU is for those who wait.
        "  option abortonclose",
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
        # A server whose backlog is full drops a connection; Linux tries again after one second and three.
        f"  timeout connect {CONNECT_SECONDS}s",
        f"  timeout check {READINESS_SECONDS}s",
        "  timeout http-request 30s",
        f"  timeout http-keep-alive {2 * idle + _KEEP_ALIVE_RESERVE_SECONDS}s",
        f"  timeout client {idle}s",
        f"  timeout server {idle}s",
        f"  timeout tunnel {idle}s",
        f"  timeout queue {idle}s",
        # An input that ends its worker reaches no more than one and these.
        f"  retries {proxy.retries}",
        "  option redispatch 1",
        "  retry-on conn-failure empty-response",
    ]


def _frontend(proxy: HttpProxy, paths: Paths, address: str) -> list[str]:
    is_h2 = " proto h2" if proxy.is_grpc else ""
    retry_after = f"str({RETRY_AFTER_KEY}),map({paths.values},{proxy.retry_after_seconds})"
    return [
        "frontend requests",
        f"  bind {address}:{proxy.listen_port}{is_h2}",
        f"  maxconn {connections(proxy)}",
        f"  acl is_repeatable method {_SAFE_METHODS}",
        "  acl is_repeatable req.hdr(Idempotency-Key) -m found",
        *(f"  acl is_repeatable path_beg {path}" for path in proxy.retry_paths),
        # HAProxy repeats a request only if all of it was there when it was sent the first time.
        f"  http-request wait-for-body time {proxy.idle_timeout_seconds}s if is_repeatable",
        "  http-request disable-l7-retry unless is_repeatable",
        f"  http-after-response set-header Retry-After %[{retry_after}] if {{ status 503 }} "
        "!{ res.hdr(Retry-After) -m found }",
        f"  default_backend {BACKEND}",
    ]


def _checks(proxy: HttpProxy, paths: Paths, address: str) -> list[str]:
    """Return the answer to the load balancer: healthy once the table is filled, with workers or none."""
    return [
        "frontend checks",
        f"  bind {address}:{proxy.health_port}{' proto h2' if proxy.is_grpc else ''}",
        "  no log",
        f"  acl is_filled str({FILLED_KEY}),map_str_int({paths.values},0) -m int 1",
        f"  http-request return status 200 if {{ path {PROXY_HEALTH_PATH} }} is_filled",
        "  http-request return status 503",
    ]


def _backend(proxy: HttpProxy, address: str) -> list[str]:
    workers, is_h2 = proxy.workers, proxy.is_grpc
    checks = [
        "  option httpchk",
        f"  http-check send meth GET uri {workers.readiness} ver HTTP/1.1 "
        "hdr Host gpu-spot hdr Connection close",
        "  http-check expect status 200-299",
    ]
    options = [
        # A check that is not answered takes no worker out that works: `ProxySupervisor._keep_busy`.
        "check inter 1s rise 1 fall 3",
        f"agent-check agent-port {workers.check_port} agent-inter 1s",
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
            f"  server-template s{slot}- 1-{rows(proxy)} 127.0.0.1:{workers.port + slot} "
            f'agent-send "{slot}\\n" disabled'
            for slot in range(proxy.max_slots)
        ),
    ]
