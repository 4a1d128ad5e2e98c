"""The machine that the subcommands run on, with its real clients, clock and metadata."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from contracts.agent.config import Config, EfsMount
from contracts.agent.names import DATA_DIR
from contracts.registry import item as registry_item
from userdata.agent.aws import clients, hooks
from userdata.agent.aws.imds import IdentityDocument, Metadata, is_warmed
from userdata.agent.aws.own_host import OnPremisesHost
from userdata.agent.machine import log
from userdata.agent.machine.background import BackgroundRunner, in_thread
from userdata.agent.machine.clock import Clock, SystemClock
from userdata.agent.machine.errors import AgentError, LeaseLostError
from userdata.agent.machine.host import Host, SystemHost
from userdata.agent.work import notice, process
from userdata.agent.work.heartbeat import HeartbeatSender

if TYPE_CHECKING:  # imported where it is used: `watch` and `metrics` do without
    from userdata.agent.metrics.gpus import Gpus
    from userdata.agent.tenants.model import HostShape
    from userdata.agent.work.images import PulledImages
    from userdata.agent.work.process import Spawn

STATE_POLL_SECONDS: Final = 5.0
# Written by cloud-init at every boot, before the network is up.
_INSTANCE_ID: Final = Path("/var/lib/cloud/data/instance-id")

# On the root disk.
_ROOT: Final = Path("/var/lib")


class Stop:
    """A SIGTERM handler that records the request, until a task installs its own."""

    def __init__(self) -> None:
        self.is_requested = False

    def __call__(self) -> None:
        """Record the request."""
        self.is_requested = True


class Node:
    """The machine that the subcommands run on; rehearsals replace its attributes."""

    def __init__(self, config: Config, directory: Path, metadata_url: str) -> None:
        self.config = config
        self.directory = directory
        self.data = DATA_DIR
        self.root = _ROOT
        self.clock: Clock = SystemClock()
        self.host: Host = SystemHost()
        self.metadata = (
            OnPremisesHost(self.clock, config.region)
            if config.on_premises
            else Metadata(self.clock, metadata_url)
        )
        self.clients: Any = clients
        """Creates AWS clients by service and region; the module `clients`."""
        self.kernel = Path("/")
        """Parent directory of ``sys``, ``proc`` and ``var/run/cdi``."""
        self.shape: Callable[[], HostShape] = self._shape
        """Returns the resources of a shared host."""
        self.send: Callable[[str], None] | None = None
        """Receives metrics in place of the CloudWatch agent."""
        self.on_sigterm: Callable[[Callable[[], None]], None] = _on_sigterm
        self.spawn: Spawn | None = None  # None: `process.spawn`, as the job's user
        self.run_in_background: BackgroundRunner = in_thread
        """Runs a function without blocking the caller."""
        self.fenced: Callable[[Callable[[], float]], AbstractContextManager[None]] = self._fenced
        """Context manager that kills the job if a deadline (monotonic seconds) passes within it."""
        self.member = ""
        """Name of the node that this instance is, of a job of several; empty before it has its lease."""

    @cached_property
    def identity(self) -> IdentityDocument:
        """Identity of the instance; retried until the metadata service responds."""
        while True:
            try:
                return self.metadata.identity()
            except AgentError as error:
                log.warning("identity unknown", error=str(error))
                self.clock.sleep(1.0)

    @cached_property
    def nvml(self) -> Any | None:
        """The module ``pynvml``; None if the GPUs are not NVIDIA's."""
        import importlib

        return importlib.import_module("pynvml") if self.config.nvidia else None

    @cached_property
    def gpus(self) -> Gpus | None:
        """This machine's GPUs; None if they are not NVIDIA's."""
        from userdata.agent.metrics.gpus import Gpus, count_on_bus

        return None if self.nvml is None else Gpus(self.nvml, count_on_bus())

    def _shape(self) -> HostShape:
        from userdata.agent.tenants.host import shape

        return shape.read_shape(self.nvml, self.kernel / "sys", self.kernel / "proc/meminfo")

    @cached_property
    def images(self) -> PulledImages:
        """The images that this machine has pulled."""
        from userdata.agent.work.images import PulledImages

        return PulledImages(self.host, self.clock, self.root / "gpu-spot/images.json")

    def instance(self) -> str:
        """Return the instance's id, from cloud-init's file if there is one, else from the metadata."""
        try:
            text = "" if self.config.on_premises else _INSTANCE_ID.read_text().strip()
        except OSError:
            text = ""
        return text if text.startswith("i-") else self.identity.instance

    def wait_outside_warm_pool(self, stop: Stop | None = None) -> None:
        """Wait while the instance is in the warm pool, or until ``stop`` is requested.

        In the warm pool an instance acquires no lease and does no work.
        """
        last_logged = ""
        while not (stop and stop.is_requested):
            try:
                state = self.metadata.lifecycle_state()
                if not is_warmed(state):
                    return
            except AgentError as error:
                state = str(error)
            if state != last_logged:
                log.info("waiting: instance is in the warm pool", state=state)
                last_logged = state
            self.clock.sleep(STATE_POLL_SECONDS)

    def complete(self, hook: str, result: hooks.Result) -> bool:
        """Complete a lifecycle hook of this instance; return False if it is not active.

        Raises:
            AgentError: the request failed, or the instance is in no Auto Scaling group.
        """
        group, client = self.group_of(hook), self.clients.autoscaling(self.config.region)
        return hooks.complete(client, group, hook, self.identity.instance, result)

    def group_of(self, hook: str) -> str:
        """Return the Auto Scaling group of a lifecycle hook; raise `AgentError` if there is none."""
        configured = self.config.hooks
        group = (configured.auto_scaling_group if configured else "") or self.metadata.auto_scaling_group()
        if not group:
            raise AgentError(f"lifecycle hook {hook}: the instance is in no Auto Scaling group")
        return group

    def mount(self) -> None:
        """Mount the EFS file systems and datasets of the work that are not mounted yet.

        Raises:
            AgentError: a mount failed, or the data volume is missing (nothing may be written to its place).
        """
        from userdata.agent.storage import datasets, efs

        config = self.config
        if config.volume and self.host.mounted(self.data) is None:
            raise AgentError(f"{self.data}: the data volume is not mounted")
        efs.mount_all(self.host, config.efs)

        def find() -> dict[str, datasets.AttachedVolume]:
            return datasets.describe_attached(self.clients.ec2(config.region), self.identity.instance)

        datasets.mount_datasets(self.host, config.datasets, find)

    @property
    def job_mounts(self) -> tuple[EfsMount, ...]:
        """EFS mounts below the job's data directory: mounted after its volume, while it has the lease."""
        return tuple(mount for mount in self.config.efs if Path(mount.path).is_relative_to(self.data))

    def make_user(self, user: str, *, uses_aws: bool = False) -> None:
        """Create a job's user and block its access to the instance role, before any process runs as it.

        With ``uses_aws`` it may use the role.

        Raises:
            AgentError: neither nftables nor iptables works here.
        """
        from userdata.agent.machine import accounts

        user_id = accounts.create_user(self.host, user)
        if not uses_aws:
            accounts.block_metadata_access(self.host, user_id)

    def secret_variables(self, secrets: Mapping[str, str]) -> dict[str, str]:
        """Return the values of a command's secret variables; see `secret_variables.read`."""
        from userdata.agent.work import secret_variables

        if not secrets:
            return {}
        region = self.config.region
        return secret_variables.read(
            secrets,
            lambda name: clients.read_secret(self.clients.secretsmanager(region), name),
            lambda name: clients.read_parameter(self.clients.ssm(region), name),
        )

    def is_terminating(self) -> bool:
        """Return whether a termination notice was received; no work is started after it."""
        return notice.read(self.directory) is not None

    def _fenced(self, dead_at: Callable[[], float]) -> AbstractContextManager[None]:
        from userdata.agent.lease.fence import fenced

        return fenced(dead_at, self.clock, self._kill_job)

    def _kill_job(self) -> None:
        """Kill the job's processes, also in containers, and exit; systemd then restarts the agent."""
        user = process.user_id(self.config.training.user) if self.config.training else None
        for running in self.host.processes():
            if user is not None and running.user == user:
                self.host.signal(running.pid, signal.SIGKILL)
        os._exit(LeaseLostError.exit_code)

    def heartbeat_sender(self) -> HeartbeatSender:
        """Return the sender of this instance's heartbeats."""
        from userdata.agent.aws.registry import WorkerRegistry

        client = self.clients.dynamodb(self.config.region)
        partition = self._registry_partition(client.meta.partition)
        registry = WorkerRegistry(client, self.config.registry_table, partition, self.identity.instance)
        return HeartbeatSender(
            registry,
            self.metadata,
            self.clock,
            self.directory,
            self.config.heartbeat_seconds,
            self.run_in_background,
        )

    def _registry_partition(self, aws_partition: str) -> str:
        """Return the registry's partition of this machine's workers, the only one that it may write."""
        group, identity = self.config.group, self.identity
        if self.config.on_premises:
            return registry_item.partition(names.on_premises_partition(group), identity.instance)
        arns = registry_item.instance_arns(aws_partition, identity.region, identity.account)
        return registry_item.partition(group, arns + identity.instance)


def _on_sigterm(act: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: act())
