"""Run the whole program once under the SDK's mocks and tell what it declared, in JSON's types."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import runpy
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import pulumi
import yaml
from botocore.session import get_session
from google.protobuf import json_format
from pulumi.output import Unknown
from pulumi.runtime import mocks, rpc, settings
from pulumi.runtime.stack import run_in_stack

from pulumi_on_moto.program.second_run import with_ignored

ROOT = Path(__file__).resolve().parents[2]
LOOKUPS = {
    "aws:index/getCallerIdentity:getCallerIdentity": {
        "accountId": "123456789012",
        "arn": "arn",
        "id": "id",
        "userId": "u",
    },
    "aws:ebs/getSnapshot:getSnapshot": {
        "state": "completed",
        "encrypted": True,
        "storageTier": "standard",
        "volumeSize": 40,
    },
    "aws:ec2/getVpc:getVpc": {"enableDnsSupport": True, "enableDnsHostnames": True},
    "aws:ec2/getSubnet:getSubnet": {"vpcId": "vpc-0000000a", "mapPublicIpOnLaunch": False},
    "aws:ec2/getSecurityGroup:getSecurityGroup": {"vpcId": "vpc-0000000a"},
    "aws:ec2/getVpcEndpointService:getVpcEndpointService": {},
    "aws:ssm/getParameter:getParameter": {"insecureValue": "ami-0123456789abcdef0", "name": "image"},
    "aws:eks/getAddonVersion:getAddonVersion": {},
    "aws:ec2/getInstances:getInstances": {"ids": [], "publicIps": []},
    "aws:resourcegroupstaggingapi/getResources:getResources": {"resourceTagMappingLists": []},
    "aws:eks/getCluster:getCluster": {
        "endpoint": "https://cluster.example.com",
        "certificateAuthorities": [{"data": "Y2E="}],
        "vpcConfig": {"clusterSecurityGroupId": "sg-00000c1a"},
    },
    "aws:secretsmanager/getRandomPassword:getRandomPassword": {"randomPassword": "drawn"},
}
PARTITIONS = {
    entry["id"]: {
        "dnsSuffix": (suffix := entry["outputs"]["dnsSuffix"]),
        "reverseDnsPrefix": ".".join(reversed(suffix.split("."))),
    }
    for entry in get_session().get_data("partitions")["partitions"]
}

PLAIN_SNAPSHOT = "snap-00000000"
SUBNETS: dict[str, dict[str, Any]] = {
    "subnet-0000000a": {"availabilityZone": "us-west-2a"},
    "subnet-000000aa": {"availabilityZone": "us-west-2a", "vpcId": "vpc-0000000e"},
    "subnet-0000000b": {"availabilityZone": "us-west-2b"},
    "subnet-000000ee": {"availabilityZone": "us-west-2b", "vpcId": "vpc-0000000e"},
    "subnet-000000ff": {"availabilityZone": "us-west-2b", "mapPublicIpOnLaunch": True},
    "sg-0000000e": {"vpcId": "vpc-0000000e"},
    "vpc-0000000d": {"enableDnsHostnames": False},
}
BROKER = {"consoleUrl": "https://b-1.mq.example.com", "endpoints": ["amqps://b-1.mq.example.com:5671"]}
# Ids whose shape something checks.
IDS = {"aws:efs/fileSystem:FileSystem": "fs-0a1b2c", "aws:efs/accessPoint:AccessPoint": "fsap-0a1b2c"}


Inputs: TypeAlias = dict[tuple[str, str], dict[str, Any]]
"""Inputs by type and name."""
Forcing: TypeAlias = Callable[[str, Mapping[str, Any], Mapping[str, Any]], Collection[str]]
"""Returns the inputs of a type whose change replaces a resource, of the old and the new inputs."""


def _nothing(type_: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Collection[str]:
    return ()


class Recorder(mocks.Mocks):
    def __init__(self, *, known: bool, deployed: Inputs | None = None, forcing: Forcing = _nothing) -> None:
        self.known = known
        self.deployed = deployed
        self.forcing = forcing
        self.partition, self.prefix = "aws", ""
        self.lookups: list[str] = []

    def call(self, args: mocks.MockCallArgs) -> tuple[dict[str, Any], list[tuple[str, str]]]:
        self.lookups.append(args.token)
        answer = PARTITIONS[self.partition] | {"partition": self.partition}
        if not args.token.endswith(":getPartition"):
            answer = LOOKUPS[args.token]
        if args.args.get("snapshotIds") == [PLAIN_SNAPSHOT]:
            answer = answer | {"encrypted": False}
        if args.token.endswith(":getInstances"):
            # The stack of this name has instances in this zone, whatever its zones, and in no other's VPC.
            asked = {value for one in args.args["filters"] for value in one["values"]}
            is_there = asked == {"leaving"} or {"leaving", "us-west-2a"} <= asked
            return {"ids": ["i-0"] if is_there else [], "publicIps": []}, []
        if "filters" in args.args:  # of an endpoint's service
            values = args.args["filters"][0]["values"]
            prefix = PARTITIONS[self.partition]["reverseDnsPrefix"]
            [name] = [value for value in values if value.startswith(f"{prefix}.")]
            region = name.removeprefix(f"{prefix}.").split(".")[0]
            answer = {"serviceName": name, "availabilityZones": [f"{region}{letter}" for letter in "abc"]}
        if "kubernetesVersion" in args.args:  # of an add-on
            answer = {"version": f"v{args.args['kubernetesVersion']}.0-eksbuild.1"}
        return answer | SUBNETS.get(args.args.get("id", ""), {}), []

    def _is_new(self, args: mocks.MockResourceArgs) -> bool:
        """Return whether a preview creates or replaces a resource, whose outputs are then unknown."""
        if self.deployed is None:
            return False
        old = self.deployed.get((args.typ, args.name))
        return old is None or bool(self.forcing(args.typ, old, plain(args.inputs)))

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        if not self.known or self._is_new(args):
            return "", {}
        # As the engine's ``pulumi:autonaming`` has it, without the random suffix.
        name = self.prefix + args.name.removeprefix(self.prefix)
        computed = {"arn": f"arn:{name}", "url": f"https://{name}", "latestVersion": 1}
        if args.typ == "aws:mq/broker:Broker":
            # AWS tells no users of RabbitMQ, so the provider forgets them.
            computed |= {"instances": [BROKER], "brokerName": f"{name}-0123456", "users": []}
        if args.typ in ("aws:lb/loadBalancer:LoadBalancer", "aws:lb/targetGroup:TargetGroup"):
            computed |= {"arnSuffix": f"suffix/{name}", "dnsName": f"{name}.elb", "zoneId": "ZELB"}
        if args.typ == "aws:eks/cluster:Cluster":
            computed |= LOOKUPS["aws:eks/getCluster:getCluster"] | {"certificateAuthority": {"data": "Y2E="}}
            computed["vpcConfig"] = args.inputs["vpcConfig"] | computed["vpcConfig"]
        if args.typ == "aws:secretsmanager/secretVersion:SecretVersion":
            computed["versionId"] = "v"
        identity = IDS.get(args.typ, f"{name}-id")
        return identity, {"name": name, **args.inputs, **computed}


class Monitor(mocks.MockMonitor):
    def __init__(self, recorder: Recorder) -> None:
        super().__init__(recorder)
        self.recorder = recorder
        self.declared: list[dict[str, Any]] = []
        self.exports: Any = None

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        if request.type != "pulumi:pulumi:Stack":
            self.declared.append(
                {
                    "type": request.type,
                    "name": request.name,
                    "custom": request.custom,
                    "inputs": plain(rpc.deserialize_properties(request.object)),
                    "ignore_changes": list(request.ignoreChanges),
                    "replace_on_changes": list(request.replaceOnChanges),
                    "hide_diffs": list(request.hideDiffs),
                    "delete_before_replace": request.deleteBeforeReplace,
                    "protect": request.protect,
                    "parent": request.parent.rpartition("::")[2],
                    "dependencies": sorted(urn.rpartition("::")[2] for urn in request.dependencies),
                    "delete_timeout": request.customTimeouts.delete,
                }
            )
        deployed = (self.recorder.deployed or {}).get((request.type, request.name))
        if deployed is not None and request.ignoreChanges:
            inputs = json_format.MessageToDict(request.object)
            request.object.update(with_ignored(inputs, deployed, request.ignoreChanges))
        return super().RegisterResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        if request.urn.split("::")[2] == "pulumi:pulumi:Stack":
            self.exports = plain(rpc.deserialize_properties(request.outputs))
        return super().RegisterResourceOutputs(request)


def plain(value: Any) -> Any:
    """Make JSON of inputs: unknowns become "<unknown>", archives the sorted keys in them."""
    if isinstance(value, Unknown):
        return "<unknown>"
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, pulumi.AssetArchive):
        return sorted(value.assets)
    if isinstance(value, pulumi.FileAsset | pulumi.FileArchive):
        return str(value.path)
    return value


def run_program() -> None:
    runpy.run_path(str(ROOT / "infra"), run_name="__main__")


def declared(
    mode: str,
    stack: str,
    stack_file: Path,
    deployed: list[dict[str, Any]] | None = None,
    forcing: Forcing = _nothing,
) -> dict[str, Any]:
    """Return ``declared``, ``lookups``, ``exports``; ``mode`` is ``known``, ``unknown`` or ``again``."""
    monitor = Monitor(_recorder(mode, deployed, forcing))
    _run(monitor, mode, stack, stack_file)
    result = {"declared": monitor.declared, "lookups": monitor.recorder.lookups, "exports": monitor.exports}
    in_json: dict[str, Any] = json.loads(json.dumps(result))
    return in_json


def refused(
    mode: str, stack: str, stack_file: Path, deployed: list[dict[str, Any]] | None = None
) -> tuple[str, int]:
    """Return the error that ends a program, and how many resources it had declared by then."""
    monitor = Monitor(_recorder(mode, deployed))
    try:
        _run(monitor, mode, stack, stack_file)
    except Exception as error:
        return f"{type(error).__name__}: {error}", len(monitor.declared)
    raise AssertionError(f"{stack_file} was not refused")


def _recorder(mode: str, deployed: list[dict[str, Any]] | None, forcing: Forcing = _nothing) -> Recorder:
    inputs = None if deployed is None else {(one["type"], one["name"]): one["inputs"] for one in deployed}
    assert (mode == "again") == (inputs is not None)
    return Recorder(known=mode != "unknown", deployed=inputs, forcing=forcing)


def warned(mode: str, stack: str, stack_file: Path) -> str:
    """Return what the program writes on standard error."""
    with contextlib.redirect_stderr(io.StringIO()) as written:
        declared(mode, stack, stack_file)
    return written.getvalue()


def _run(monitor: Monitor, mode: str, stack: str, stack_file: Path) -> None:
    raw = yaml.safe_load(stack_file.read_text("utf-8"))["config"]
    monitor.recorder.prefix = f"gpu-spot-{stack}-"
    monitor.recorder.partition = get_session().get_partition_for_region(raw["aws:region"])
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    preview = mode != "known"
    mocks.set_mocks(monitor.recorder, project="gpu-spot", stack=stack, preview=preview, monitor=monitor)
    settings.set_root_resource(None)  # set_mocks makes a root stack, and run_in_stack allows only its own
    pulumi.runtime.set_all_config({k: v if isinstance(v, str) else json.dumps(v) for k, v in raw.items()})
    # `main: infra/` makes the engine run this path, with the folder first on sys.path.
    loop.run_until_complete(run_in_stack(run_program))
