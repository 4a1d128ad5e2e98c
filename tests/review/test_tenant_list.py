"""What a changed list of tenants means: removed, changed, and what one takes from another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_spot.review.effects.tenant_list import list_effects
from gpu_spot.review.preview import EngineStep
from tests.tenants.hosts import tenant
from userdata.agent.tenants import codec
from userdata.agent.tenants.model import Tenant

TYPE = "aws:s3/bucketObjectv2:BucketObjectv2"
A, B, C = (
    tenant(name, uid=2001 + n, host_port=8001 + n, container_port=80, gpu_ids=(n,))
    for n, name in enumerate("abc")
)


def words(old: list[Tenant], new: list[Tenant]) -> list[str]:
    inputs: list[dict[str, Any]] = [{"content": codec.encode(tenants)} for tenants in (old, new)]
    step = EngineStep("update", TYPE, "gpu-spot-dev-lab-tenants", *inputs, ("content",))
    return [effect.words for effect in list_effects(step, "lab")]


def changed(one: Tenant, other: Tenant, *keys: str) -> Tenant:
    return replace(one, **{key: getattr(other, key) for key in keys})


@pytest.mark.parametrize(
    ("keys", "what"),
    [
        (("uid",), "uid 2001, uid 2002"),
        (("host_port",), "hostPort 8001, hostPort 8002"),
        (("gpu_ids",), "GPU 0, GPU 1"),
    ],
)
def test_tenants_that_exchange_something_are_named_with_the_first_to_be_stopped(
    keys: tuple[str, ...], what: str
) -> None:
    said = words([A, B, C], [changed(A, B, *keys), changed(B, A, *keys), C])
    assert said[1:] == [
        f"tenants `a, b` exchange {what}: `a` is stopped first, and starts when the others are replaced"
    ]


def test_a_circle_of_three_is_one_exchange() -> None:
    said = words([A, B, C], [changed(A, B, "uid"), changed(B, C, "uid"), changed(C, A, "uid")])
    assert len(said) == 2
    assert said[1].startswith("tenants `a, b, c` exchange uid 2001, uid 2002, uid 2003: `a` is stopped first")


def test_what_is_handed_on_without_a_circle_stops_none_early() -> None:
    free = tenant("b", uid=2002, host_port=8009, container_port=80, gpu_ids=(1,))
    said = words([A, B], [changed(A, B, "host_port"), free])
    assert said[1:] == ["tenant `a` takes hostPort 8002 of `b`, and is replaced when that tenant has moved"]
    # Who is no longer there has nothing that could be waited for.
    assert len(words([A, B], [changed(A, B, "host_port")])) == 2
    assert words([A, B], [A, B]) == []
