"""The subcommands: each puts its parts together and runs them. All that is real is made here."""

from __future__ import annotations

import base64
import signal
import sys
from collections.abc import Callable
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from userdata.agent import clients, files, hooks, log
from userdata.agent.clients import Clients
from userdata.agent.clock import Clock, SystemClock
from userdata.agent.config import Config, Service
from userdata.agent.errors import AgentError, ConfigError, LeaseLostError
from userdata.agent.heart import Heart
from userdata.agent.host import Host, SystemHost
from userdata.agent.imds import Identity, Metadata, is_warmed
from userdata.agent.names import DATA_DIR, LEASE_FILE, UNIT_VOLUME

if TYPE_CHECKING:  # imported where they are used: `watch` and `metrics` do without most of this
    from userdata.agent.jobs import Jobs
    from userdata.agent.train import Spawn
    from userdata.agent.volume.execute import Executor

_CODE_DIR: Final = Path("/var/lib/gpu-spot/code")
# Written by cloud-init at every boot, before the network is up.
_INSTANCE_ID: Final = Path("/var/lib/cloud/data/instance-id")
_GATE_EVERY: Final = 5.0
_HOOK_WAIT: Final = 120.0


class Node:
    """This machine, as the subcommands need it; whoever rehearses one replaces what is not real there."""

    def __init__(self, config: Config, directory: Path, metadata_url: str) -> None:
        self.config = config
        self.directory = directory
        self.data = DATA_DIR
        self.clock: Clock = SystemClock()
        self.host: Host = SystemHost()
        self.metadata = Metadata(self.clock, metadata_url)
        self.clients: Clients = clients
        self.on_sigterm: Callable[[Callable[[], None]], None] = _on_sigterm
        self.spawn: Spawn | None = None  # None: the trainer's own, as the job's user

    @cached_property
    def identity(self) -> Identity:
        """Who we are; asked until the metadata service answers."""
        while True:
            try:
                return self.metadata.identity()
            except AgentError as error:
                log.warning("identity unknown", error=str(error))
                self.clock.sleep(1.0)

    def instance(self) -> str:
        """Return the instance's id, from cloud-init's file if there is one, else from the metadata."""
        try:
            found = _INSTANCE_ID.read_text().strip()
        except OSError:
            found = ""
        return found if found.startswith("i-") else self.identity.instance

    def gate(self) -> None:
        """Wait until the instance is not on its way into the warm pool.

        Until then nothing leases or works.
        """
        said = ""
        while True:
            try:
                state = self.metadata.lifecycle_state()
                if not is_warmed(state):
                    return
            except AgentError as error:
                state = str(error)
            if state != said:
                log.info("waiting outside", state=state)
                said = state
            self.clock.sleep(_GATE_EVERY)

    def complete(self, hook: str, result: hooks.Result) -> bool:
        """Complete a lifecycle hook of this instance; False while AWS knows no active one.

        Raises:
            AgentError: AWS refused or cannot be reached, or the instance is in no Auto Scaling group.
        """
        wanted = self.config.hooks
        group = wanted.auto_scaling_group if wanted else ""
        group = group or self.metadata.auto_scaling_group()
        if not group:
            raise AgentError(f"lifecycle hook {hook}: the instance is in no Auto Scaling group")
        client = self.clients.autoscaling(self.config.region)
        return hooks.complete(client, group, hook, self.identity.instance, result)

    def heart(self) -> Heart:
        """Return the heartbeat of this instance's workers."""
        from userdata.agent.registry import Registry

        registry = Registry(
            self.clients.dynamodb(self.config.region),
            self.config.registry_table,
            self.config.group,
            self.identity.instance,
        )
        return Heart(registry, self.metadata, self.clock, self.directory, self.config.heartbeat_seconds)


def _on_sigterm(act: Callable[[], None]) -> None:
    signal.signal(signal.SIGTERM, lambda number, frame: act())


def watch(node: Node) -> int:
    """Watch for the notice until told to stop."""
    from userdata.agent.watch import Watcher

    config = node.config
    name = config.hooks.terminate if config.hooks else ""
    hook = partial(node.complete, name, "CONTINUE") if name else None
    Watcher(config, node.metadata, node.host, node.clock, node.directory, hook).run()
    return 0


def hook(node: Node, which: str, result: hooks.Result) -> int:
    """Complete the launching or the terminating hook; a hook that is not active is no error."""
    wanted = node.config.hooks
    name = "" if wanted is None else wanted.launch if which == "launch" else wanted.terminate
    if not name:
        log.info("no such hook", which=which)
    elif not node.complete(name, result):
        log.info("hook not active", hook=name)
    return 0


def prepare(node: Node) -> int:
    """Make ready what a launch waits for, then let it go on: with a warm pool once in, and once out.

    The hook may begin after us. If it has not within two minutes, this boot is no launch but a restart.
    """
    service = node.config.service
    if service:
        _expect_gpus(service)
        if service.image:
            _pull(node, service.image)
    name = node.config.hooks.launch if node.config.hooks else ""
    if not name:
        return 0
    end = node.clock.monotonic() + _HOOK_WAIT
    while not node.complete(name, "CONTINUE"):
        if node.clock.monotonic() >= end:
            log.info("hook not active", hook=name)
            return 0
        node.clock.sleep(_GATE_EVERY)
    return 0


def _executor(node: Node) -> Executor:
    from userdata.agent.volume.ebs import AwsEbs
    from userdata.agent.volume.execute import Executor, Place
    from userdata.agent.volume.fill import S3Filler
    from userdata.agent.volume.lease import DynamoLease

    config, volume, training = node.config, node.config.volume, node.config.training
    assert volume is not None
    assert training is not None
    me, region = node.identity, node.config.region
    dynamodb = node.clients.dynamodb(region)
    s3 = node.clients.s3(region) if volume.dataset else None
    return Executor(
        Place(me.instance, me.zone, node.data, volume.wait_seconds),
        AwsEbs(node.clients.ec2(region), config.stack, config.group, training.job, volume),
        DynamoLease(dynamodb, training.job_table, training.job, me.instance, node.clock),
        node.host,
        S3Filler(s3, volume.dataset, node.data / "datasets"),
        node.clock,
    )


def _jobs(node: Node) -> Jobs:
    from userdata.agent.jobs import Jobs

    training = node.config.training
    if training is None:
        raise ConfigError("training: missing; this instance has none")
    region = node.config.region
    return Jobs(
        node.clients.dynamodb(region),
        node.clients.ssm(region),
        training.job_table,
        training.job,
        training.revision,
        training.target_parameter,
        node.clock,
    )


def volume(node: Node, action: str) -> int:
    """Bring the volume here and say under which lease, or give back what is held."""
    from userdata.agent.volume.execute import Held

    path = node.directory / LEASE_FILE
    if action == "down":
        held = files.read_json(path)
        if held:
            _executor(node).down(Held(int(held["token"]), str(held["volume"])))
            path.unlink(missing_ok=True)
        return 0
    if node.config.volume is None:
        log.info("no volume is configured")
        return 0
    node.gate()
    if _jobs(node).finished():
        log.info("the job is finished: its volume stays where it is")
        return 0
    here = _executor(node).up()
    files.write_json(path, {"token": here.token, "volume": here.volume})
    return 0


def efs(node: Node) -> int:
    """Mount the file systems."""
    from userdata.agent.efs import mount_all

    mount_all(node.host, node.config.efs)
    return 0


def _mount(node: Node) -> None:
    """Mount what the work reads and writes beside its volume; what is mounted stays."""
    from userdata.agent import datasets, efs

    config = node.config
    efs.mount_all(node.host, config.efs)

    def find() -> dict[str, datasets.Attached]:
        return datasets.attached(node.clients.ec2(config.region), node.identity.instance)

    datasets.mount_all(node.host, config.datasets, find)


def run(node: Node) -> int:
    """Train until the job has ended or the instance is being taken, then let the volume go."""
    from userdata.agent.train import Trainer, checkout

    training = node.config.training
    jobs = _jobs(node)
    assert training is not None
    node.gate()
    if jobs.finished():
        jobs.take_down()  # again: the instance that finished the job may not have come to it
        return 0
    renew: Callable[[], None] | None = None
    if node.config.volume:
        from userdata.agent.volume.lease import DynamoLease

        held = files.read_json(node.directory / LEASE_FILE)
        if held is None:  # it was given up when its lease was lost; the oneshot unit still counts as active
            node.host.run(["systemctl", "restart", UNIT_VOLUME])
            held = files.read_json(node.directory / LEASE_FILE)
        if held is None:
            raise AgentError("the data volume is not here")
        me, token = node.identity.instance, int(held["token"])
        dynamodb = node.clients.dynamodb(node.config.region)
        renew = partial(DynamoLease(dynamodb, training.job_table, training.job, me, node.clock).renew, token)

    _mount(node)
    owner = f"--owner={training.user}"
    for kind in ("checkpoints", "artifacts"):
        node.host.run(["install", "--directory", owner, str(node.data / kind / training.job)])
    code = _CODE_DIR / training.job
    checkout(node.host, training, code)
    heart = node.heart()
    trainer = Trainer(
        training, code, node.data, node.directory, jobs, heart, node.host, node.clock, renew, node.spawn
    )
    node.on_sigterm(trainer.stop)
    try:
        trainer.run()
    except LeaseLostError:
        volume(node, "down")
        raise
    volume(node, "down")  # any other error keeps it here for the restart
    return 0


def work(node: Node) -> int:
    """Run the workers."""
    from userdata.agent.work import Workers, slots

    service = node.config.service
    if service is None:
        raise ConfigError("service: missing; this instance has none")
    _mount(node)
    if service.image:
        _pull(node, service.image)
    node.gate()
    places = slots(service, _expect_gpus(service))
    paths = [dataset.path for dataset in node.config.datasets]
    workers = Workers(service, places, node.heart(), node.host, node.clock, node.directory, paths)
    node.on_sigterm(workers.stop)
    workers.run()
    return 0


def slices(node: Node) -> int:
    """Keep the tenants' containers as they are declared, until the instance is taken or told to stop."""
    from userdata.agent.slices import machine
    from userdata.agent.slices.landlord import Landlord

    declared = node.config.slices
    if declared is None:
        raise ConfigError("slices: missing; this instance has none")
    node.gate()
    look = partial(machine.look, node.host, gpus=any(tenant.gpus for tenant in declared.tenants))
    landlord = Landlord(declared, node.host, node.clock, node.directory, partial(_pull, node), look)
    node.on_sigterm(landlord.stop)
    landlord.run()
    return 0


def _expect_gpus(service: Service) -> int:
    from userdata.agent.work import gpu_count

    return service.gpus or gpu_count()


def _pull(node: Node, image: str) -> None:
    from userdata.agent import containers

    containers.pull(node.host, image, partial(_ecr_password, node.config.region))


def _ecr_password(region: str) -> str:
    """Return the password of a registry login, good for twelve hours.

    Long enough for the pull that follows.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        token = clients.ecr(region).get_authorization_token()["authorizationData"][0]["authorizationToken"]
    except (BotoCoreError, ClientError) as error:
        raise clients.as_agent_error("ecr login", error) from None
    return base64.b64decode(token).decode().split(":", 1)[1]


def metrics(node: Node) -> int:
    """Send GPU metrics until told to stop."""
    from userdata.agent.metrics.collect import Collector
    from userdata.agent.metrics.emf import Sink
    from userdata.agent.metrics.gpus import Gpus, count_on_bus
    from userdata.agent.metrics.owner import Owners
    from userdata.agent.tell import Tales
    from userdata.agent.train import newest_checkpoint

    training = node.config.training

    def age() -> float | None:
        if training is None:
            return None
        newest = newest_checkpoint(node.data / "checkpoints" / training.job)
        return max(node.clock.wall() - newest, 0.0) if newest else None

    gpus = Gpus(_nvml(), count_on_bus()) if node.config.nvidia else None
    sink = Sink(node.config.metrics.emf_port)
    owners, tales = Owners(node.directory), Tales(node.directory)

    def depths() -> tuple[float, ...]:
        return tales.queue_depths(node.clock.wall())

    Collector(node.config, node.instance(), gpus, owners, sink, node.clock, age, depths).run()
    return 0


def doctor(node: Node) -> int:
    """Print a line for each check; 1 if one of them failed."""
    from userdata.agent.doctor import examine
    from userdata.agent.metrics.gpus import count_on_bus

    failed = False
    for finding in examine(node.config, node.metadata, node.host, _nvml(), count_on_bus()):
        sys.stdout.write(f"{finding.level:8} {finding.check}: {finding.text}\n")
        failed |= finding.level == "failure"
    return int(failed)


def _nvml() -> Any:
    import importlib

    return importlib.import_module("pynvml")  # it has no types
