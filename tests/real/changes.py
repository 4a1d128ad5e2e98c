"""How soon a changed list of tenants runs: from the object in S3, by moto, to the container."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace

import boto3

from contracts.agent import config
from tests import models
from tests.real import containers as real
from tests.real.tenants import ADDRESS, SharedHost, tenant, until
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.container import name_of
from userdata.agent.tenants.host.listing import TenantListReader
from userdata.agent.tenants.model import Tenant

LIMIT_SECONDS = 30.0
_IMAGE = f"registry.example/shell@sha256:{'0' * 64}"
"""A list names images by their digests; the image of this machine has none."""


def list_changes(host: SharedHost, changes: int) -> list[float]:
    """Return the seconds from each changed list to the running container.

    First a tenant with a new volume is added, then its environment changes, which replaces its container.
    Each change follows the one before, and so a poll of the list: it waits nearly a whole interval.
    """
    others = host.tenants
    with _in_s3(host) as put:
        new = tenant("dee", 2004)
        put((*others, new))
        taken = [until(lambda: host.answers(ADDRESS, 8004), "dee serves")]
        for number in range(1, changes):
            put((*others, replace(new, environment={"NUMBER": str(number)})))
            taken.append(until(lambda number=number: _has(number), f"change {number} runs"))  # type: ignore[misc]
        put(others)
        until(lambda: "dee" not in host.inspected() and "dee" not in host.disks.here, "dee is gone")
    return taken


def _has(number: int) -> bool:
    argv = ["docker", "exec", name_of("dee"), "sh", "-c", f'test "$NUMBER" = {number}']
    return subprocess.run(argv, capture_output=True).returncode == 0


@contextlib.contextmanager
def _in_s3(host: SharedHost) -> Iterator[Callable[[tuple[Tenant, ...]], None]]:
    """Let a host read its list from a bucket, as often as an instance does; yield how to replace the list."""
    defaults = config.SharedHost("agents", "jobs")
    fetch, interval = host.fetch, host.list_interval_seconds
    with models.moto():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=defaults.bucket)

        def put(tenants: tuple[Tenant, ...]) -> None:
            text = codec.encode([replace(one, image=_IMAGE) for one in tenants])
            client.put_object(Bucket=defaults.bucket, Key=codec.key_of("lab"), Body=text.encode())

        reader = TenantListReader(client, defaults.bucket, "lab", host.place.run / "list.json")

        def fetched() -> tuple[Tenant, ...] | None:
            tenants = reader.fetch()
            return tenants and tuple(replace(one, image=real.IMAGE) for one in tenants)

        put(host.tenants)
        host.stop()
        host.fetch = fetched
        host.list_interval_seconds = defaults.list_interval_seconds
        host.begin()
        try:
            yield put
        finally:
            host.stop()
            host.fetch, host.list_interval_seconds = fetch, interval
            host.begin()
