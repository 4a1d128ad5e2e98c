"""Hosts and random lists of tenants for them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from userdata.agent.tenants import mig
from userdata.agent.tenants.model import HostShape, NumaNode, Tenant

IMAGE = f"registry.example.com/team/tenant@sha256:{'0' * 64}"


def host(
    nodes: int = 2,
    cores: int = 12,
    gpus: int = 8,
    memory: int = 373,
    product: str = "A100",
    gpu_gib: int = 40,
) -> HostShape:
    """Return a host of ``nodes`` with ``cores`` each, two CPUs a core, numbered as Linux does."""
    all_cores, each = nodes * cores, -(-gpus // nodes)
    return HostShape(
        nodes=tuple(
            NumaNode(
                tuple((core, core + all_cores) for core in range(n * cores, (n + 1) * cores)),
                tuple(range(n * each, min((n + 1) * each, gpus))),
            )
            for n in range(nodes)
        ),
        memory_gib=memory,
        gpus=tuple(range(gpus)),
        mig=mig.profiles(product, gpu_gib),
    )


def tenant(name: str, **changes: Any) -> Tenant:
    """Return a tenant that fits nearly everywhere, but for ``changes``."""
    uid = 2000 + sum(ord(letter) * 31**n for n, letter in enumerate(name)) % 50_000
    return Tenant(**{"name": name, "uid": uid, "cpus": 2, "memory_gib": 4, "image": IMAGE, **changes})


NAMES = "abcdefghij"

hosts = st.builds(
    host,
    nodes=st.integers(1, 3),
    cores=st.integers(1, 24),
    gpus=st.sampled_from([0, 1, 4, 8]),
    memory=st.integers(8, 512),
    product=st.sampled_from(["A100", "A10G"]),
)

_gpus = st.one_of(
    st.just({}),
    st.builds(lambda n: {"gpus": n}, st.integers(0, 5)),
    st.builds(
        lambda ids: {"gpu_ids": tuple(ids)}, st.lists(st.integers(0, 8), min_size=1, max_size=3, unique=True)
    ),
    st.builds(
        lambda p: {"mig": p},
        st.sampled_from(["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
    ),
)


@st.composite
def tenant_lists(draw: st.DrawFn) -> list[Tenant]:
    """Draw tenants, some of which request too much or a resource of another tenant."""
    found = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=8)):
        port = draw(st.one_of(st.none(), st.integers(8000, 8060)))
        found.append(
            tenant(
                name,
                uid=draw(st.one_of(st.just(2000 + ord(name)), st.integers(2097, 2107))),
                cpus=draw(st.integers(1, 14)),
                cpu_mode=draw(st.sampled_from(["shared", "capped", "pinned"])),
                memory_gib=draw(st.integers(1, 90)),
                host_port=port,
                container_port=port,
                **draw(_gpus),
            )
        )
    return found
