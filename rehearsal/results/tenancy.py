"""The account of a shared host's tenants: resources and moves. `summary.json` holds its fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rehearsal.results.moves import Cause, Contents


@dataclass(frozen=True, slots=True)
class PlayedTenant:
    """A tenant: its resources by the tenant list, and what became of it.

    Attributes:
        gpus: its GPUs in words.
        seconds_without: time without a running container after its first start.
        usd: its share of the machine's cost by CPUs, in US dollars; None if the price is unknown.
    """

    cpus: int
    cpu_mode: str
    memory_gib: int
    gpus: str
    data_gib: int
    seconds_without: float
    usd: float | None


@dataclass(frozen=True, slots=True)
class Return:
    """A tenant's move from one host to the next.

    Its container ``ended`` on the old host and ``served`` again on the new one (epoch seconds); ``before``
    and ``after`` are the contents of its volume at the last unmount and the next mount.
    """

    tenant: str
    cause: Cause
    from_zone: str
    to_zone: str
    ended: float
    served: float
    before: Contents
    after: Contents


@dataclass(frozen=True, slots=True)
class Away:
    """A tenant without a running container for ``seconds`` at the end; ``moving``: a host for it existed."""

    tenant: str
    seconds: float
    moving: bool


@dataclass(frozen=True, slots=True)
class TenancyAccount:
    """The account; ``hour_price`` is the machine's On-Demand price (US dollars an hour), None if unknown."""

    tenants: Mapping[str, PlayedTenant]
    returns: tuple[Return, ...]
    away: tuple[Away, ...]
    hour_price: float | None
