"""The stand-in for ``aws``: ids of the right shape, ARNs, lookups."""

from __future__ import annotations

import hashlib
import uuid
from importlib import metadata
from typing import Any, Final

from packages.pulumi_standins import schema
from packages.pulumi_standins.server import Provider
from packages.pulumi_standins.values import Path
from packages.pulumi_standins.world import RefusedError, World

ACCOUNT: Final = "123456789012"

# Prefixes of ids, as EC2 and EFS form them; other resources have their physical name as id.
_ID_PREFIXES: Final = {
    "AccessPoint": "fsap-",
    "DefaultSecurityGroup": "sg-",
    "Eip": "eipalloc-",
    "FileSystem": "fs-",
    "FlowLog": "fl-",
    "InternetGateway": "igw-",
    "LaunchTemplate": "lt-",
    "MountTarget": "fsmt-",
    "NatGateway": "nat-",
    "RouteTable": "rtb-",
    "RouteTableAssociation": "rtbassoc-",
    "SecurityGroup": "sg-",
    "SecurityGroupEgressRule": "sgr-",
    "SecurityGroupIngressRule": "sgr-",
    "Subnet": "subnet-",
    "Vpc": "vpc-",
    "VpcEndpoint": "vpce-",
}
# The provider's inputs with a physical name, by kind; where a program sets none, it appends characters to the
# logical name (docs of the bridge, "auto-naming").
_NAME_INPUTS: Final = ("name", "bucket", "brokerName", "clusterName", "dashboardName", "nodeGroupName")
_NOT_NAMED: Final = frozenset({"BucketObjectv2", "Subnet", "Vpc"})
_PARTITIONS: Final = {"cn-": "aws-cn", "us-gov-": "aws-us-gov"}
_ARN_RESOURCES: Final = {
    "autoscaling/group": "autoScalingGroup:0:autoScalingGroupName/",
    "cloudwatch/eventRule": "rule/",
    "cloudwatch/logGroup": "log-group:",
    "cloudwatch/metricAlarm": "alarm:",
    "dynamodb/table": "table/",
    "ecr/repository": "repository/",
    "eks/cluster": "cluster/",
    "iam/instanceProfile": "instance-profile/",
    "iam/openIdConnectProvider": "oidc-provider/",
    "iam/policy": "policy/",
    "iam/role": "role/",
    "kms/key": "key/",
    "lambda/function": "function:",
    "secretsmanager/secret": "secret:",
    "ssm/parameter": "parameter",
}
_SNAPSHOT: Final = {"state": "completed", "encrypted": True, "storageTier": "standard", "volumeSize": 40}
_IMAGE: Final = "ami-0123456789abcdef0"
_GLOBAL_SERVICES: Final = {"iam", "s3"}
_LOG_SERVICES: Final = {"cloudwatch/eventRule": "events", "cloudwatch/logGroup": "logs"}


class Aws(Provider):
    """AWS: accepts what the SDK's classes allow."""

    version = metadata.version("pulumi-aws")

    def check(self, token: str, inputs: dict[str, Any]) -> list[tuple[str, str]]:
        described = schema.resource_schema(token)
        if described is None:
            return [("", f"no such type in pulumi-aws {self.version}")]
        return list(schema.problems(described, inputs))

    def defaults(
        self, token: str, name: str, inputs: dict[str, Any], seed: bytes, proposed: str
    ) -> dict[str, Any]:
        described, kind = schema.resource_schema(token), token.rpartition(":")[2]
        if described is None or kind in _NOT_NAMED or inputs.get("namePrefix"):
            return {}
        for key in _NAME_INPUTS:
            if key in described["object"] and inputs.get(key) is None:
                suffix = hashlib.sha256(seed or name.encode()).hexdigest()[:7]
                return {key: proposed or f"{name}-{suffix}"}
        return {}

    def forces_replacement(self, world: World, token: str, inputs: dict[str, Any], path: Path) -> bool:
        return path[0] in world.forces_new(token.rpartition(":")[2])

    def outputs(self, token: str, name: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        kind = token.rpartition(":")[2]
        resource_id = self._new_id(kind, name, inputs)
        described = schema.resource_schema(token) or {"computed": []}
        outputs: dict[str, Any] = {key: f"{key}-of-{resource_id}" for key in described["computed"]}
        outputs |= {"arn": self._arn(token, resource_id, inputs), "id": resource_id, "tagsAll": {}}
        outputs |= {"region": self.region}
        if kind == "LaunchTemplate":
            outputs |= {"latestVersion": 1, "defaultVersion": 1}
        elif kind == "Parameter":
            outputs |= {"version": 1}
        elif kind == "Queue":
            outputs |= {"url": resource_id}
        elif kind == "Broker":
            outputs |= {"instances": [_broker_instance(self.region, resource_id)]}
        elif kind == "Cluster":
            outputs |= _cluster(self.region, resource_id)
        elif kind == "SecretVersion":
            outputs |= {"versionId": str(uuid.uuid4())}
        elif kind == "Vpc":
            outputs |= {"defaultSecurityGroupId": f"sg-{_digits()}", "mainRouteTableId": f"rtb-{_digits()}"}
        if not {"arn", "region"} & {*described["computed"], *described.get("object", ())}:
            outputs.pop("arn"), outputs.pop("region")
        return resource_id, {key: value for key, value in outputs.items() if key not in inputs}

    def _new_id(self, kind: str, name: str, inputs: dict[str, Any]) -> str:
        if kind in _ID_PREFIXES:
            return _ID_PREFIXES[kind] + _digits()
        if kind == "SpotFleetRequest":
            return f"sfr-{uuid.uuid4()}"
        if kind == "Key":
            return str(uuid.uuid4())
        if kind == "Broker":
            return f"b-{uuid.uuid4()}"
        physical = next((str(inputs[key]) for key in _NAME_INPUTS if inputs.get(key)), name)
        if kind == "Queue":
            return f"https://sqs.{self.region}.amazonaws.com/{ACCOUNT}/{physical}"
        if kind in ("Topic", "Secret", "OpenIdConnectProvider", "Policy"):
            service = {"Topic": "sns", "Secret": "secretsmanager"}.get(kind, "iam")
            return self._full_arn(service, physical)
        return physical

    def _arn(self, token: str, resource_id: str, inputs: dict[str, Any]) -> str:
        if resource_id.startswith("arn:"):
            return resource_id
        module = token.split(":")[1]
        service = _LOG_SERVICES.get(module, module.partition("/")[0])
        physical = resource_id.rpartition("/")[2] if token.endswith(":Queue") else resource_id
        resource = _ARN_RESOURCES.get(module, "")
        if token.startswith(("aws:ec2/", "aws:vpc/")):
            service, resource = "ec2", f"{token.rpartition(':')[2].lower()}/"
        if service == "efs":
            service, resource = "elasticfilesystem", f"{token.rpartition(':')[2].lower()}/"
        return self._full_arn(service, f"{resource}{physical}")

    def _full_arn(self, service: str, resource: str) -> str:
        region = "" if service in _GLOBAL_SERVICES else self.region
        account = "" if service == "s3" else ACCOUNT
        return f"arn:{self._partition()}:{service}:{region}:{account}:{resource}"

    def _partition(self) -> str:
        return next((value for start, value in _PARTITIONS.items() if self.region.startswith(start)), "aws")

    def renewed(self, token: str, outputs: dict[str, Any]) -> dict[str, Any]:
        number = {"LaunchTemplate": "latestVersion", "Parameter": "version"}.get(token.rpartition(":")[2])
        return {number: outputs[number] + 1} if number else {}

    def look_up(self, world: World, token: str, arguments: dict[str, Any]) -> dict[str, Any]:
        result = self._result(world, token.rpartition(":")[2], arguments)
        return {"id": token.rpartition(":")[2], "region": self.region, **arguments, **result}

    def _result(self, world: World, function: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if function == "getVpcEndpointService":
            return self._endpoint_service(arguments)
        if function == "getCluster":
            return _cluster(self.region, arguments["name"])
        if function == "getInstances":
            filters = {one["name"]: one["values"] for one in arguments["filters"]}
            ids = world.instances(filters.get("availability-zone", self._zones()))
            if groups := filters.get("tag:gpu-spot:group"):
                owners = {one["id"] for one in world.exists() if group_of(one["inputs"]) in groups}
                ids = [one for one in ids if one.partition("/")[0] in owners]
            if not {*filters.get("vpc-id", ())} <= {one["id"] for one in world.exists()}:
                ids = []
            return {"ids": ids, "publicIps": [name for name in ids if "private" not in name]}
        if function == "getResources":
            return {"resourceTagMappingLists": self._queues(world)}
        if function == "getParametersByPath":
            return _parameters(world, f"{arguments['path']}/")
        constant: dict[str, dict[str, Any]] = {
            "getAddonVersion": {"version": "v1.20.1-eksbuild.1"},
            "getCallerIdentity": {
                "accountId": ACCOUNT,
                "arn": self._full_arn("iam", "user/u"),
                "userId": "u",
            },
            "getPartition": {"partition": self._partition(), "dnsSuffix": "amazonaws.com"},
            "getRandomPassword": {"randomPassword": uuid.uuid4().hex},
            "getRegion": {"name": self.region, "endpoint": f"ec2.{self.region}.amazonaws.com"},
            "getSnapshot": _SNAPSHOT,
            "getParameter": {"insecureValue": _IMAGE, "value": _IMAGE},
            "getVpc": {"enableDnsSupport": True, "enableDnsHostnames": True},
        }
        if function not in constant:
            raise RefusedError(f"{function}: not known to the stand-in")
        return constant[function]

    def _queues(self, world: World) -> list[dict[str, Any]]:
        """Return brokers, secrets and queues of SQS with their tags, as Resource Groups does."""
        return [
            {
                "resourceArn": self._arn(f"aws:{token}", one["id"], one["inputs"]),
                "tags": one["inputs"]["tags"],
                "complianceDetails": [],
            }
            for one in world.exists()
            for token in ("mq/broker:Broker", "secretsmanager/secret:Secret", "sqs/queue:Queue")
            if one["urn"].split("::")[2].endswith(f"aws:{token}")
        ]

    def _zones(self) -> list[str]:
        return [f"{self.region}{letter}" for letter in "abcdefgh"]

    def _endpoint_service(self, arguments: dict[str, Any]) -> dict[str, Any]:
        [names] = [item["values"] for item in arguments["filters"] if item["name"] == "service-name"]
        name = next(name for name in names if name.startswith(f"com.amazonaws.{self.region}."))
        return {"serviceName": name, "availabilityZones": [f"{self.region}{letter}" for letter in "abcd"]}


def group_of(inputs: dict[str, Any]) -> str:
    """Return the capacity group of an Auto Scaling group or a fleet, else an empty text."""
    given = inputs.get("tags") or {}
    tags = given if isinstance(given, dict) else {tag["key"]: tag["value"] for tag in given}
    return str(tags.get("gpu-spot:group", ""))


def _parameters(world: World, path: str) -> dict[str, Any]:
    """Return the parameters below a path, as Systems Manager does."""
    found = [one["inputs"] for one in world.exists() if str(one["inputs"].get("name", "")).startswith(path)]
    return {
        "arns": [],
        "types": [],
        "names": [one["name"] for one in found],
        "values": [one.get("insecureValue") or one.get("value") for one in found],
    }


def _digits() -> str:
    return uuid.uuid4().hex[:17]


def _broker_instance(region: str, broker: str) -> dict[str, Any]:
    host = f"{broker}.mq.{region}.on.aws"
    return {"consoleUrl": f"https://{host}", "endpoints": [f"amqps://{host}:5671"], "ipAddress": ""}


def _cluster(region: str, name: str) -> dict[str, Any]:
    return {
        "endpoint": f"https://0123456789ABCDEF.gr7.{region}.eks.amazonaws.com",
        "certificateAuthority": {"data": "Y2E="},
        "certificateAuthorities": [{"data": "Y2E="}],
        "arn": f"arn:aws:eks:{region}:{ACCOUNT}:cluster/{name}",
    }
