"""The agent's subcommands on instances of a deployed stack, overheard: what each group asks of IAM."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock
from unittest.mock import Mock

from moto.ec2.models import ec2_backends
from rich.console import Console

from contracts import names
from contracts.agent import config
from contracts.agent.names import SNAPSHOT_NAME
from contracts.registry import item as registry_item
from gpu_spot.status import report
from gpu_spot.status.reader import StackReader
from gpu_spot.status.snapshot import DeclaredEntries
from gpu_spot.status.text import view
from lambdas.core.model import GroupRole, PurchaseOption
from pulumi_on_moto.emulator import ACCOUNT
from pulumi_on_moto.running.functions import Call
from tests.e2e.calls import Authorisation, documents
from tests.e2e.world import World, living, load
from tests.iam import Request
from tests.infra.booting import Machine
from tests.node.configs import FakeClock
from tests.node.metadata import MetadataServer
from tests.node.units import DiskHost
from tests.tenants.docker_double import DockerDouble, options
from userdata.agent import tasks
from userdata.agent.aws import clients
from userdata.agent.aws.imds import GROUP_TAG, LIFECYCLE_STATE, PRIVATE_ADDRESS, PURCHASE_OPTION
from userdata.agent.machine.errors import AgentError
from userdata.agent.machine.host import SystemHost
from userdata.agent.storage.volume import prepared
from userdata.agent.tenants import codec
from userdata.agent.tenants.host.limiter import CpuLimiter

_AGENTS_CLIENTS: Final = (
    *("autoscaling", "cloudwatch", "dynamodb", "ec2"),
    *("ecr", "s3", "secretsmanager", "ssm"),
)


class OverError(BaseException):
    """Ends a subcommand that would run for ever."""


@dataclass(frozen=True)
class Role:
    """What a group's role allows, what its instances asked, and by which subcommands."""

    policies: list[dict[str, Any]]
    asked: tuple[Request, ...]
    commands: frozenset[str]


class NodeHost(DiskHost):
    """Disks as EC2 has them; commands are only noted, processes are real."""

    def __init__(self, ec2: Any, revision: str) -> None:
        super().__init__(ec2)
        self.revision = revision
        self.ran: list[list[str]] = []

    def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        self.ran.append(list(argv))
        if "nvidia-smi" in argv:
            return "GPU 0: a double\n"
        return self.revision if "rev-parse" in argv else ""

    def signal(self, pid: int, number: signal.Signals) -> None:
        SystemHost().signal(pid, number)


class TenantHost(DiskHost):
    """Disks as EC2 has them, each mounted at a place of its own; Docker in memory, its images pulled."""

    def __init__(self, ec2: Any) -> None:
        super().__init__(ec2)
        self.docker = DockerDouble()
        self.images: set[str] = set()
        self.places: dict[Path, str] = {}

    def run(self, argv: Any, timeout: float = 60, stdin: str = "", environment: Any = None) -> str:
        programs = ("docker", "nft", "install", "chown", "runc", "containerd", "nvidia-ctk", "nvidia-smi")
        is_tenants = argv[0] in programs
        if tuple(argv[:2]) == ("docker", "pull"):
            self.images.add(argv[-1])
        elif tuple(argv[:3]) == ("docker", "image", "inspect") and argv[-1] not in self.images:
            raise AgentError("docker image inspect: no such image")
        if tuple(argv[:2]) in (("docker", "info"), ("docker", "manifest")):
            return ""
        return self.docker.run(argv, timeout, stdin, environment) if is_tenants else ""

    def mounted(self, path: Path) -> str | None:
        return self.places.get(path)

    def mount(self, device: str, path: Path) -> None:
        self.places[path] = device

    def unmount(self, path: Path) -> None:
        self.places.pop(path, None)


class Group:
    """One group of a deployed stack, and the play of its instances."""

    def __init__(self, world: World, name: str, folder: Path) -> None:
        self.world, self.name, self.folder = world, name, folder
        self.view = world.cloud.group(name)
        self.asked: dict[str, Request] = {}
        self.commands: set[str] = set()
        self.clients: dict[str, Callable[[str], Any]] = {}
        self.server, self.clock = MetadataServer(), FakeClock()
        self.authorisation = Authorisation(world.clients)
        self.credentials: dict[str, list[str]] = {}
        """Condition keys of the instance's credentials, which are in every request."""

    def on_call(self, service: str, operation: str, params: Mapping[str, Any]) -> None:
        for request in self.authorisation.requests(Call("agent", service, operation, params)):
            signed = replace(request, context={**request.context, **self.credentials})
            self.asked.setdefault(repr(signed), signed)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Hand every call of the agent's clients on before it is made, from whatever thread."""
        with contextlib.ExitStack() as stack:
            for name in _AGENTS_CLIENTS:
                made = cache(partial(self._overheard, getattr(clients, name)))
                stack.enter_context(mock.patch.object(clients, name, self.clients.setdefault(name, made)))
            yield

    def _overheard(self, make: Callable[[str], Any], region: str) -> Any:
        client = make(region)

        def on_event(params: Mapping[str, Any], model: Any, **_: Any) -> None:
            self.on_call(model.service_model.service_name, model.name, params)

        client.meta.events.register("provide-client-params.*.*", on_event)
        # moto cannot complete or extend lifecycle actions.
        done = (SimpleNamespace(status_code=200), {})
        for action in ("CompleteLifecycleAction", "RecordLifecycleActionHeartbeat"):
            client.meta.events.register(f"before-call.auto-scaling.{action}", lambda **_: done)
        return client

    def boot_data(self, side: GroupRole) -> str:
        template = f"{self.name}-{side}"
        made = self.world.deployment.resource("aws:ec2/launchTemplate:LaunchTemplate", template)
        return base64.b64decode(made.inputs["userData"]).decode()

    def describe(self, side: GroupRole) -> str:
        """The agent's configuration, as cloud-init writes it."""
        written = json.loads(self.boot_data(side).partition("\n")[2])["write_files"]
        [text] = [file["content"] for file in written if file["path"] == "/etc/gpu-spot/agent.json"]
        return str(text)

    def node(self, side: GroupRole, zone: int = 0, number: int = 0, **changes: Any) -> tasks.Node:
        """Launch an instance; ``changes`` are to its training or service."""
        kind, where = self.view.instance_types[0], self.view.zones[zone]
        market = PurchaseOption.SPOT if side is GroupRole.PRIMARY else PurchaseOption.ON_DEMAND
        instance = self.world.cloud.launch(self.name, side, kind, where, market)
        self.credentials = {"ec2:SourceInstanceARN": [self.authorisation.ec2("instance", instance)]}
        self.server.identify(instance, where, kind, self.world.config.region)
        self.server.documents |= {
            GROUP_TAG: self.view.side(side),
            PURCHASE_OPTION: str(market),
            PRIVATE_ADDRESS: "10.0.1.5",
        }
        return self._node(config.parse(self.describe(side)), number, **changes)

    def host(self, agent_config: config.Config) -> tasks.Node:
        """Take a host of one's own, which nothing but its configuration tells of AWS."""
        self.credentials = {}
        return self._node(agent_config, 0)

    def _node(self, agent_config: config.Config, number: int, **changes: Any) -> tasks.Node:
        if agent_config.training:
            agent_config = replace(agent_config, training=replace(agent_config.training, **changes))
        if agent_config.service:
            agent_config = replace(
                agent_config, service=replace(agent_config.service, gpus=1, user="", **changes)
            )
        made = tasks.Node(agent_config, self.folder / f"run-{number}", self.server.url)
        made.clock, made.data, made.spawn = self.clock, self.folder / "data", _as_me
        if (
            agent_config.prepared and not agent_config.dataset_to_prepare
        ):  # what the snapshot holds, of which no disk here has a copy
            prepared.mark_complete(agent_config.prepared.dataset, made.data / "datasets")
        made.run_in_background = _run_unless_endless
        made.nvml, made.root = None, self.folder
        made.host = NodeHost(
            self.world.clients("ec2"), agent_config.training.revision if agent_config.training else ""
        )
        return made

    def play(self, command: str, node: tasks.Node, *arguments: Any, until: float | None = None) -> None:
        """Run a subcommand; after ``until`` seconds it gets SIGTERM, or is aborted if it has no handler."""
        self.commands.add(command)
        started_at = self.clock.monotonic()
        is_stopped = False

        def on_sleep(seconds: float) -> None:
            nonlocal is_stopped
            passed = self.clock.monotonic() - started_at
            if until is not None and passed >= until and not is_stopped:
                is_stopped = True
                if signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, None):
                    os.kill(os.getpid(), signal.SIGTERM)
                else:
                    raise OverError

        self.clock.on_sleep = on_sleep
        with self.listening(), contextlib.suppress(OverError):
            getattr(tasks, "shared_host" if command == "landlord" else command)(node, *arguments)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self.clock.on_sleep = lambda seconds: None

    def boot(self, side: GroupRole) -> None:
        """Boot under bash where the agent's archive is missing: all that a boot may ask for is asked."""
        metadata, root = MetadataServer(), self.folder / f"boot-{side}"
        root.mkdir()
        machine = Machine(root, metadata)
        metadata.documents["/latest/meta-data/tags/instance/aws:autoscaling:groupName"] = self.view.side(side)
        machine.write_files(self.boot_data(side))
        assert machine.boot(is_late=True).returncode != 0
        metadata.close()
        for service, operation, *arguments in machine.calls("aws"):
            if service == "s3":
                bucket, _, key = arguments[-2].removeprefix("s3://").partition("/")
                for one in ("HeadObject", "GetObject"):  # what `aws s3 cp` does
                    self.on_call("s3", one, {"Bucket": bucket, "Key": key})
            else:
                self.on_call(service, _camel(operation), dict(_given(arguments)))
        for call in machine.calls("cloudwatch-agent"):
            self.on_call("ssm", "GetParameter", {"Name": call[-1].removeprefix("ssm:")})

    def mounted(self, host: NodeHost) -> None:
        """Hear the mounts, which efs-utils signs with the role."""
        for argv in host.ran:
            if argv[:3] == ["mount", "-t", "efs"]:
                options = dict(option.partition("=")[::2] for option in argv[4].split(","))
                params = {"FileSystemId": argv[5].removesuffix(":/"), "AccessPointId": options["accesspoint"]}
                for action in ("ClientMount", "ClientWrite"):
                    self.on_call("elasticfilesystem", action, params)

    def role(self, of: str = "instance") -> Role:
        self.server.close()
        name = f"{self.name}-{of}"
        role = self.world.deployment.resource("aws:iam/role:Role", name).outputs["name"]
        found = documents(self.world.clients, role)
        return Role(found, tuple(self.asked.values()), frozenset(self.commands))


def _camel(command: str) -> str:
    return "".join(word.title() for word in command.split("-"))


def _given(arguments: list[str]) -> Iterator[tuple[str, str]]:
    for key, value in zip(arguments[::2], arguments[1::2], strict=True):
        yield _camel(key.removeprefix("--")), value


def serve(group: Group) -> None:
    """A service's instance: launched warm, at work, taken; and one whose launch is given up."""
    node = group.node(GroupRole.FALLBACK)
    group.play("prepare", node)
    group.play("work", node, until=25.0)
    _look_and_leave(group, node)
    group.play("hook", node, "launch", "ABANDON")


def train_and_move(group: Group) -> None:
    """A job that is taken in one zone, goes on in another to its end, and is found finished by a third."""
    first = group.node(GroupRole.PRIMARY, 0, 0, command=("sleep", "60"))
    for kind in ("artifacts", "checkpoints"):
        (first.data / kind / group.name).mkdir(parents=True)
        (first.data / kind / group.name / "model").write_text("weights")
    group.play("efs", first)
    group.play("volume", first, "up")
    group.play("run", first, until=45.0)
    group.mounted(first.host)
    _look_and_leave(group, first)
    _grow(group, first.host)
    _leave_old_snapshot(group)
    second = group.node(GroupRole.FALLBACK, 1, 1, command=("true",))
    group.play("prepare", second)
    group.play("volume", second, "up")
    group.play("run", second)
    third = group.node(GroupRole.PRIMARY, 0, 2)
    group.play("volume", third, "up")
    group.play("run", third)
    training = third.config.training
    finished = group.world.clients("ssm").get_parameter(Name=training.finished_parameter)
    made = f"/{third.config.dataset_to_prepare.dataset}" if third.config.dataset_to_prepare else ""
    assert finished["Parameter"]["Value"] == training.revision + made


def _run_unless_endless(work: Callable[[], object]) -> None:
    """Run what a thread would do, but for the limiter of CPUs, which never ends and calls nothing of AWS."""
    if not isinstance(getattr(work, "__self__", None), CpuLimiter):
        work()


@mock.patch("userdata.agent.tasks.shared_host._free_bytes", new=Mock(return_value=2**40))
def share(group: Group) -> None:
    """A shared host that is taken in one zone; its tenant's volume follows to the next."""
    first = group.node(GroupRole.PRIMARY, 0, 0)
    first.host = TenantHost(group.world.clients("ec2"))
    group.play("landlord", first, until=60.0)
    assert first.host.docker.pids()
    [argv] = [argv for argv in first.host.docker.ran if argv[:2] == ["docker", "run"]]
    assert "API_KEY=k3y\n" in Path(options(argv, "--env-file")[0]).read_text("utf-8")
    assert [path.name for path in first.host.places] == ["ada"]
    group.play("metrics", first, until=70.0)
    group.play("doctor", first)
    group.server.documents[LIFECYCLE_STATE] = "Terminated"
    group.play("watch", first, until=30.0)
    group.play("landlord", first, until=200.0)
    assert not first.host.places
    del group.server.documents[LIFECYCLE_STATE]
    _leave_old_snapshot(group, f"{group.name}-ada")
    second = group.node(GroupRole.FALLBACK, 1, 1)
    second.host = TenantHost(group.world.clients("ec2"))
    group.play("prepare", second)
    group.play("landlord", second, until=900.0)
    assert second.host.docker.pids()
    _ask_for_more(group, second)
    group.play("landlord", second, until=60.0)


def _ask_for_more(group: Group, node: tasks.Node) -> None:
    """The stack file asks for larger volumes of the tenants by now."""
    s3 = group.world.clients("s3")
    place = {"Bucket": node.config.shared_host.bucket, "Key": codec.key_of(group.name)}
    listed = codec.decode(s3.get_object(**place)["Body"].read().decode())
    larger = [replace(tenant, data_gib=tenant.data_gib + 1) for tenant in listed]
    s3.put_object(**place, Body=codec.encode(larger))


def _grow(group: Group, before: NodeHost) -> None:
    """The stack file asks for a larger volume by now."""
    node = group.node(GroupRole.PRIMARY, 0, 3)
    assert node.config.volume is not None
    ours = [{"Name": "tag:gpu-spot:job", "Values": [group.name]}]
    [home] = group.world.clients("ec2").describe_volumes(Filters=ours)["Volumes"]
    larger = replace(node.config.volume, size_gib=home["Size"] + 1)
    node.config = replace(node.config, volume=larger)
    node.host.formatted = before.formatted
    group.play("volume", node, "up")
    group.play("volume", node, "down")


def _leave_old_snapshot(group: Group, job: str = "") -> None:
    """One more of the job's snapshots than are kept, as a crash leaves it: the next instance deletes it."""
    ec2 = group.world.clients("ec2")
    ours = [{"Name": "tag:gpu-spot:job", "Values": [job or group.name]}]
    [home] = ec2.describe_volumes(Filters=ours)["Volumes"]
    tags = [*(t for t in home["Tags"] if t["Key"] != "Name"), {"Key": "Name", "Value": SNAPSHOT_NAME}]
    ec2.create_snapshot(
        VolumeId=home["VolumeId"], TagSpecifications=[{"ResourceType": "snapshot", "Tags": tags}]
    )


def _look_and_leave(group: Group, node: tasks.Node) -> None:
    group.play("metrics", node, until=70.0)
    group.play("doctor", node)
    group.server.documents[LIFECYCLE_STATE] = "Terminated"
    group.play("watch", node, until=30.0)
    del group.server.documents[LIFECYCLE_STATE]


def readable(world: World, stack: str) -> str:
    """Return what whoever may not read secrets may read: items, parameters, outputs, `gpu-spot status`."""
    table, parameters = (
        world.clients("dynamodb"),
        world.clients("ssm").get_paginator("get_parameters_by_path"),
    )
    said = [repr(table.scan(TableName=name)["Items"]) for name in table.list_tables()["TableNames"]]
    said += [repr(page["Parameters"]) for page in parameters.paginate(Path="/", Recursive=True)]
    snapshot = StackReader(world.clients, stack, world.config.region, DeclaredEntries({})).read()
    shown = io.StringIO()
    Console(file=shown, width=200).print(view(snapshot))
    said += [repr(world.deployment.outputs), json.dumps(report.to_json(snapshot)), shown.getvalue()]
    return "\n".join(said)


def roles(stack: str, overrides: Mapping[str, Any], objects: Mapping[str, str]) -> dict[str, Role]:
    """Deploy, play every group, and return what was found, by group; for a process of its own."""
    with TemporaryDirectory() as folder, living(load(stack, overrides)) as world:
        # moto takes a second to search its hundreds of Amazon images, none of which is used here.
        snapshots = ec2_backends[ACCOUNT][world.config.region].snapshots
        for snapshot in [one for one in snapshots.values() if one.description.startswith("Auto-created")]:
            del snapshots[snapshot.id]
        s3, where = world.clients("s3"), {"LocationConstraint": world.config.region}
        s3.create_bucket(Bucket="datasets", CreateBucketConfiguration=where)
        for key, content in objects.items():
            s3.put_object(Bucket="datasets", Key=key, Body=content.encode())
        for name, text in {
            "code/books": "bot:t0ken",
            "queues/ocr": "amqps://bot:t0ken@broker:5671",
            "lab/ada": '{"API_KEY": "k3y"}',
        }.items():
            world.clients("secretsmanager").create_secret(Name=name, SecretString=text)
        found = {
            view.name: _played(world, view.name, Path(folder) / view.name) for view in world.cloud.groups()
        }
        for name, output in world.deployment.outputs.get("onPremises", {}).items():
            for host in output["hosts"]:
                partition = registry_item.partition(names.on_premises_partition(name), host)
                agent = config.parse(output["agent"])
                found[partition] = _on_premises_role(world, name, host, agent, Path(folder) / host)
        said = readable(world, stack)
        assert '"groups"' in said
        assert [secret for secret in ("t0ken", "k3y") if secret in said] == []
        return found


@contextlib.contextmanager
def _docker(folder: Path) -> Iterator[None]:
    """Have a command ``docker`` that runs."""
    tools = folder / "bin"
    tools.mkdir(parents=True)
    docker = tools / "docker"
    docker.write_text("#!/bin/sh\nexec sleep 60\n")
    docker.chmod(0o755)
    with mock.patch.dict(os.environ, PATH=f"{tools}:{os.environ.get('PATH', os.defpath)}"):
        yield


def _on_premises_role(world: World, name: str, host: str, agent_config: config.Config, folder: Path) -> Role:
    """An on-premises host with the agent configuration that the stack exports."""
    group = Group(world, name, folder)
    with _docker(folder), mock.patch("socket.gethostname", return_value=host):
        group.play("work", group.host(agent_config), until=25.0)
    return group.role(f"host-{host}")


def _played(world: World, name: str, folder: Path) -> Role:
    group = Group(world, name, folder)
    with _docker(folder):
        agent_config = config.parse(group.describe(GroupRole.PRIMARY))
        (train_and_move if agent_config.training else share if agent_config.shared_host else serve)(group)
    group.boot(GroupRole.PRIMARY)
    group.boot(GroupRole.FALLBACK)
    return group.role()


def _as_me(argv: list[str], env: dict[str, str], cwd: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, start_new_session=True)
