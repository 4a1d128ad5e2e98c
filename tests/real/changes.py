"""How soon a changed list of tenants runs: from the object in S3, by moto, to the container."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import boto3

from contracts.agent import config
from tests import models
from tests.real import containers as real
from tests.real.tenants import ADDRESS, SharedHost, tenant, until
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.host.listing import TenantListReader
from userdata.agent.tenants.host.supervisor import POLL_INTERVAL_SECONDS
from userdata.agent.tenants.model import Tenant

LIMIT_SECONDS = 30.0
_IMAGE = f"registry.example/shell@sha256:{'0' * 64}"
"""A list names images by their digests; the image of this machine has none."""
_STACK: Final = config.SharedHost("agents", "jobs")
_AS_AN_INSTANCE: Final = (_STACK.list_interval_seconds, POLL_INTERVAL_SECONDS)


def list_changes(host: SharedHost, changes: int, *, quick: bool = False) -> list[float]:
    """Return the seconds from each changed list to the running container.

    First a tenant with a new volume is added, then its environment changes, which replaces its container.
    Each change follows the one before, and so a poll of the list: it waits nearly a whole interval.
    ``quick``: the host looks more often than an instance does, and what an instance waits longer is added.
    """
    others = host.tenants
    reads = (host.list_interval_seconds, host.poll_interval_seconds) if quick else _AS_AN_INSTANCE
    with _in_s3(host, *reads) as put:
        new = tenant("dee", 2004)
        put((*others, new))
        taken = [until(lambda: host.answers(ADDRESS, 8004), "dee serves")]
        for number in range(1, changes):
            put((*others, replace(new, environment={"NUMBER": str(number)})))
            taken.append(until(lambda number=number: _has(number), f"change {number} runs"))  # type: ignore[misc]
        put(others)
        until(lambda: "dee" not in host.inspected() and "dee" not in host.disks.here, "dee is gone")
    # A change waits for a read of the list, and for a look at the containers before and after each work.
    later = sum(
        times * (most - read) for times, most, read in zip((1, 3), _AS_AN_INSTANCE, reads, strict=True)
    )
    return [seconds + later for seconds in taken]


def _has(number: int) -> bool:
    argv = ["docker", "exec", name_of("dee"), "sh", "-c", f'test "$NUMBER" = {number}']
    return subprocess.run(argv, capture_output=True).returncode == 0


@contextlib.contextmanager
def _in_s3(
    host: SharedHost, list_seconds: float, poll_seconds: float
) -> Iterator[Callable[[tuple[Tenant, ...]], None]]:
    """Let a host read its list from a bucket, and look at its containers; yield how to replace the list."""
    before = host.fetch, host.list_interval_seconds, host.poll_interval_seconds
    with models.moto():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=_STACK.bucket)

        def put(tenants: tuple[Tenant, ...]) -> None:
            text = codec.encode([replace(one, image=_IMAGE) for one in tenants])
            client.put_object(Bucket=_STACK.bucket, Key=codec.key_of("lab"), Body=text.encode())

        reader = TenantListReader(client, _STACK.bucket, "lab", host.place.run / "list.json")

        def fetched() -> tuple[Tenant, ...] | None:
            tenants = reader.fetch()
            return tenants and tuple(replace(one, image=real.IMAGE) for one in tenants)

        put(host.tenants)
        host.stop()
        host.fetch, host.list_interval_seconds, host.poll_interval_seconds = (
            fetched,
            list_seconds,
            poll_seconds,
        )
        host.begin()
        try:
            yield put
        finally:
            host.stop()
            host.fetch, host.list_interval_seconds, host.poll_interval_seconds = before
            host.begin()
