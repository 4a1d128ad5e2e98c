"""What the supervisor of a shared host works with, and what it remembers of a tenant."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from userdata.agent.machine.background import BackgroundPoller, BackgroundRunner
from userdata.agent.machine.clock import Clock
from userdata.agent.machine.host import Host
from userdata.agent.tenants.host.limiter import CpuLimiter
from userdata.agent.tenants.host.meter import UsageMeter
from userdata.agent.tenants.host.parts import GpuParts
from userdata.agent.tenants.host.shares import WeightCurve
from userdata.agent.tenants.host.steps import DesiredTenant
from userdata.agent.tenants.host.volumes import TenantVolumes
from userdata.agent.tenants.model import HostShape, Tenant
from userdata.agent.tenants.throughput import Bandwidth
from userdata.agent.work.heartbeat import HeartbeatSender
from userdata.agent.work.notice import Notice

POLL_INTERVAL_SECONDS: Final = 2.0


@dataclass(frozen=True)
class SupervisorDependencies:
    """The dependencies of a `TenantSupervisor`.

    ``fetch_tenants`` returns the tenant list if it changed, ``cached_tenants`` the last valid list of this
    boot. ``prepare_image`` pulls a tenant's image, and returns its declared volumes. ``outdated`` returns the
    programs below their least versions: see `images.versions`. ``bandwidth`` is the machine's; ``disk_of`` as
    in `shape`.
    """

    host: Host
    clock: Clock
    run_in_background: BackgroundRunner
    heartbeats: HeartbeatSender
    volumes: TenantVolumes
    meter: UsageMeter
    limiter: CpuLimiter
    weight_curve: WeightCurve
    fetch_tenants: Callable[[], tuple[Tenant, ...] | None]
    cached_tenants: Callable[[], tuple[Tenant, ...] | None]
    read_shape: Callable[[], HostShape]
    prepare_image: Callable[[Tenant], Sequence[str]]
    secret_variables: Callable[[Tenant], Mapping[str, str]]
    outdated: Callable[[], Sequence[str]]
    gpus: GpuParts
    bandwidth: Bandwidth
    disk_of: Callable[[Path], str]
    list_interval_seconds: float
    """Seconds between two reads of the tenant list."""
    poll_interval_seconds: float = POLL_INTERVAL_SECONDS
    """Seconds between two looks at the containers."""


@dataclass
class TenantState:
    """The supervisor's state of a tenant."""

    work: BackgroundPoller[str] | None = None
    """The running background work for it, at most one at a time."""
    data_gib: int = 0
    """The size to which this process last brought its volume."""
    growth_error: str = ""
    """Why it has not this size yet; empty if it has."""
    grow_at: float = 0.0
    starting: DesiredTenant | None = None
    """The plan of the container that is being started."""
    failures: int = 0
    error: str = ""
    """The last failure since the container ran as planned."""
    retry_at: float = 0.0
    is_starting: bool = False
    is_clearing: bool = False
    container_id: str = ""
    """The container last started or seen running, since ``started_at``; empty after its end was observed."""
    started_at: float = 0.0
    has_served: bool = False
    restarts: int = 0
    notice: Notice | None = None
    remove_at: float | None = None
    """When its removal before the instance's end is next due; None before the first try."""
    is_removed: bool = False
