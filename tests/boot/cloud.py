"""The cloud of the machines: the stack on moto over HTTP in real time, with faults and volumes."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import logging
import re
import subprocess
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from moto.ec2.models import ec2_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from contracts.registry.item import Worker
from gpu_spot.declared import stackfile
from lambdas.aws.budget import UNLIMITED
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.emulator import ACCOUNT, AwsClients, sandbox
from pulumi_on_moto.fixes.ec2.spot_requests import request_of
from pulumi_on_moto.fixes.groups import members
from pulumi_on_moto.fixes.speedups.cached_responses import changed
from pulumi_on_moto.running.clock import SimulatedTime
from rehearsal.cloud.holders import ScalingGroupHolder
from rehearsal.cloud.local_cloud import LocalCloud
from rehearsal.commands.deployed import deployed
from tests.boot.machine import Machine
from tests.boot.metadata import Fault, Metadata, is_expired, met
from tests.boot.network import CLOUD, METADATA, Network, serving
from tests.served import answering

PORT: Final = 5000
ROOT: Final = Path(__file__).parents[2]
STACK: Final = Path(__file__).with_name("stack.yaml")
_SCOPE: Final = re.compile(r"Credential=([^/]+)/\d+/[^/]+/([^/]+)/")
_JSON: Final = {"dynamodb", "ssm", "ecr", "secretsmanager"}
"""Services whose errors are JSON; those of others are XML."""
_CHANGES_DISKS: Final = {"AttachVolume", "DetachVolume", "TerminateInstances", "CreateSnapshot"}


class RealTime(SimulatedTime):
    """The clock of this machine."""

    def __init__(self) -> None:
        super().__init__(0.0, lambda _: None)

    @property
    def now(self) -> float:
        """The time."""
        return time.time()

    def set(self, now: float) -> None:
        """Do nothing: time passes by itself."""


@dataclass
class Strike:
    """What happens at one of a machine's calls, which gets an error in place of an answer."""

    address: str
    calls_before: int
    act: Callable[[], object]
    is_done: bool = False
    """Whether the call takes effect nevertheless."""


@dataclass
class Shim:
    """Between the machines and moto: faults, a list of the calls, and what follows from calls."""

    application: Callable[..., Iterable[bytes]]
    called: Callable[[str, str], None]
    faults: list[Fault]
    strikes: list[Strike] = field(default_factory=list)
    calls: list[tuple[float, str, str, str]] = field(default_factory=list)
    """Time, address, service and operation."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request (PEP 3333)."""
        service, operation, key = _named(environ)
        self.calls.append((time.monotonic(), environ["REMOTE_ADDR"], service, operation))
        if is_expired(key):
            return _error(start_response, service, 400, "ExpiredTokenException")
        if fault := met(self.faults, service, operation):
            return _error(start_response, service, fault.status, fault.code)
        strike = self._strike(environ["REMOTE_ADDR"])
        if strike is None or strike.is_done:
            answer = list(self.application(environ, start_response if strike is None else lambda *_: None))
            self.called(service, operation)
            if strike is None:
                return answer
        strike.act()
        return _error(start_response, service, 500, "InternalError")

    def _strike(self, address: str) -> Strike | None:
        """Return what happens at this call of a machine, counting it."""
        for strike in [one for one in self.strikes if one.address == address]:
            strike.calls_before -= 1
            if strike.calls_before < 0:
                self.strikes.remove(strike)
                return strike
        return None

    def times(self, operation: str, address: str = "") -> list[float]:
        """Return when an operation was called."""
        return [
            at for at, source, _, name in list(self.calls) if name == operation and address in ("", source)
        ]


def _named(environ: dict[str, Any]) -> tuple[str, str, str]:
    """Return service and operation of a request, and the access key that signed it."""
    scope = _SCOPE.search(environ.get("HTTP_AUTHORIZATION", ""))
    key, service = scope.groups() if scope else ("", "")
    if target := environ.get("HTTP_X_AMZ_TARGET"):
        return service, target.rpartition(".")[2], key
    if environ.get("CONTENT_TYPE", "").startswith("application/x-www-form-urlencoded"):
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        return service, urllib.parse.parse_qs(body.decode()).get("Action", [""])[0], key
    return service, f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}", key


def _error(start_response: Callable[..., Any], service: str, status: int, code: str) -> Iterable[bytes]:
    """Answer with an error in the protocol of the service."""
    text = f"<Error><Code>{code}</Code><Message>a fault</Message></Error>"
    if service in _JSON:
        text = json.dumps({"__type": code, "message": "a fault"})
    elif service != "s3":
        text = f"<Response><Errors>{text}</Errors></Response>"
    start_response(f"{status} Fault", [("Content-Type", "text/plain")])
    return [text.encode()]


class Cloud:
    """A deployed stack whose instances are machines."""

    def __init__(self, clients: AwsClients, local: LocalCloud, network: Network, disks: Path) -> None:
        self.clients, self.local, self.network = clients, local, network
        self.faults: list[Fault] = []
        self.metadata = Metadata(self._documents, self.faults)
        self.shim = Shim(DomainDispatcherApplication(create_backend_app), self._called, self.faults)
        self.machines: dict[str, Machine] = {}
        self._disks = disks
        self._changing = threading.Lock()

    def launch(self, group: str, side: GroupRole, zone: int = 0) -> str:
        """Launch an instance as its group does, in its zone of this number; return its id."""
        view = self.local.group(group)
        market = PurchaseOption.SPOT if side is GroupRole.PRIMARY else PurchaseOption.ON_DEMAND
        return self.local.launch(group, side, view.instance_types[0], view.zones[zone], market)

    def launch_proxy(self, service: str) -> str:
        """Launch a proxy of a service as its group does; return the instance's id."""
        instances = self.local._instances
        [name] = [one for one in instances.autoscaling.autoscaling_groups if f"{service}-proxies" in one]
        holder, zone = instances.holder(name), self.local.group(service).zones[0]
        return str(instances.launch(holder, "c7g.large", zone, PurchaseOption.ON_DEMAND).id)

    def show(self, instance: str, machine: Machine) -> None:
        """Let an instance be a machine, whose address it has from now on."""
        self.machines[instance] = machine
        self.local._instances.instance(instance).nics[0].private_ip_address = machine.address
        changed()

    def end(self, instance: str) -> None:
        """Terminate an instance whose machine has ended."""
        self.local.kill([instance])
        del self.machines[instance]

    def notice(self, instance: str, seconds: float) -> None:
        """Interrupt a Spot Instance: the metadata service shows it, and the group reacts."""
        self.metadata.notice(self.machines[instance].address, seconds)
        self.local.notice(instance, time.time() + seconds)

    def terminate(self, instance: str) -> None:
        """Let its group terminate an instance, which waits for the hook."""
        self.clients("autoscaling").terminate_instance_in_auto_scaling_group(
            InstanceId=instance, ShouldDecrementDesiredCapacity=False
        )

    def user_data(self, instance: str) -> str:
        """Return an instance's user data."""
        attribute = self.clients("ec2").describe_instance_attribute(InstanceId=instance, Attribute="userData")
        return base64.b64decode(attribute["UserData"]["Value"]).decode()

    def workers(self, group: str) -> list[Worker]:
        """Return what the registry has of a group, on its hosts on premises, too."""
        hosts = self.local.group(group).config.on_premises_hosts
        read = self.local.registry.read_on_premises(group, hosts, UNLIMITED)
        return [*self.local.workers(group), *(one for rows in read.workers.values() for one in rows)]

    def state(self, instance: str) -> str:
        """Return the lifecycle state of an instance in its group; empty if it is in none."""
        moto = self.local._instances.instance(instance)
        holder = self.local._instances.holder_of(moto)
        if not isinstance(holder, ScalingGroupHolder):
            return ""
        state = members.member(holder.group, instance)
        return "" if state is None else str(state.lifecycle_state)

    def volumes(self) -> dict[str, Any]:
        """Return the volumes that clients made: moto's objects by id."""
        mine = {
            device.volume_id
            for instance in self.machines
            for device in self.local._instances.instance(instance).block_device_mapping.values()
        }
        attached = {one for machine in self.machines.values() for one in machine.volumes}
        return {
            name: volume
            for name, volume in ec2_backends[ACCOUNT][self.clients.region].volumes.items()
            if name not in mine or name in attached
        }

    def _called(self, service: str, operation: str) -> None:
        if service == "ec2" and operation in _CHANGES_DISKS:
            self.show_disks()

    def show_disks(self) -> None:
        """Attach to each machine, and detach, what moto has attached and detached."""
        with self._changing:
            backend = ec2_backends[ACCOUNT][self.clients.region]
            for snapshot in backend.snapshots.values():
                if (source := self._disks / str(snapshot.volume.id)).exists():
                    _copy(source, self._disks / str(snapshot.id))
            wanted: dict[str, set[str]] = {instance: set() for instance in self.machines}
            for volume in backend.volumes.values():
                holder = volume.attachment.instance.id if volume.attachment else ""
                if holder in wanted and "gpu-spot:job" in {tag["key"] for tag in volume.get_tags()}:
                    wanted[holder].add(volume.id)
            for instance, machine in self.machines.items():
                for gone in machine.volumes - wanted[instance]:
                    machine.detach(gone)
            for instance, machine in self.machines.items():
                for new in wanted[instance] - machine.volumes:
                    machine.attach(new, self._disk(backend.volumes[new]))

    def _disk(self, volume: Any) -> Path:
        file = self._disks / str(volume.id)
        if volume.snapshot_id:
            _copy(self._disks / str(volume.snapshot_id), file)
        with file.open("ab") as made:
            made.truncate(int(volume.size) * 2**30)
        return file

    def _documents(self, address: str) -> Mapping[str, str]:
        instance = next((name for name, one in self.machines.items() if one.address == address), None)
        if instance is None:
            return {}
        moto = self.local._instances.instance(instance)
        identity = {
            "instanceId": instance,
            "accountId": ACCOUNT,
            "availabilityZone": moto.placement.zone,
            "region": self.clients.region,
            "instanceType": moto.instance_type,
            "pendingTime": datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        own = {
            "instance-id": instance,
            "local-ipv4": address,
            "instance-life-cycle": "spot" if request_of(self.local._instances.ec2, moto) else "on-demand",
        }
        holder = self.local._instances.holder_of(moto)
        if isinstance(holder, ScalingGroupHolder):
            own["tags/instance/aws:autoscaling:groupName"] = holder.name
            own["autoscaling/target-lifecycle-state"] = _target(self.state(instance))
        documents = {f"/latest/meta-data/{name}": text for name, text in own.items()}
        return {**documents, "/latest/dynamic/instance-identity/document": json.dumps(identity)}


def _copy(source: Path, target: Path) -> None:
    """Copy a disk once; most of it are holes."""
    if not target.exists():
        subprocess.run(["cp", "--sparse=always", source, target], check=True)


def _target(state: str) -> str:
    """Return the target state (Auto Scaling user guide, "Retrieve the target lifecycle state")."""
    if state.startswith("Terminating"):
        return "Terminated"
    return "InService" if state.startswith("Pending") else state


@contextlib.contextmanager
def running(folder: Path, overrides: Mapping[str, Any]) -> Iterator[Cloud]:
    """Deploy the stack and serve it while the body runs."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    config = stackfile.load(ROOT, "boot", overrides, file=STACK)
    network = Network()
    try:
        with sandbox(config.region) as clients, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            local = LocalCloud(clients, deployed(clients, config), RealTime())
            cloud = Cloud(clients, local, network, folder)
            with _endpoint(cloud), serving(network.listen(METADATA, 80), cloud.metadata.handler()):
                yield cloud
    finally:
        network.close()


@contextlib.contextmanager
def _endpoint(cloud: Cloud) -> Iterator[None]:
    listening = cloud.network.listen(CLOUD, PORT)
    with listening:
        server = make_server(CLOUD, PORT, cloud.shim, threaded=True, fd=listening.fileno())
        server.daemon_threads = True  # type: ignore[attr-defined]
        with answering(server):
            yield
