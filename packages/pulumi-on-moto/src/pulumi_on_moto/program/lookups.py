"""Data lookups of the program (``aws.get_…``), answered from moto if possible."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError
from moto.ec2.models import ec2_backends
from moto.ec2.models.elastic_block_store import Snapshot

from pulumi_on_moto.emulator import ACCOUNT, AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes import clusters
from pulumi_on_moto.mapping.shapes import convert, supplied

LookupAnswer = dict[str, Any]

_IMAGE_PARAMETERS: Final = ("/aws/service/deeplearning/ami/", "/aws/service/ecs/", "/aws/service/eks/")
"""Public parameters with an AMI id that moto lacks; an image is created for each requested one."""


class Lookups:
    """Answers lookups by token; an unknown one is an error that names it."""

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._images: dict[str, str] = {}
        self._lock = threading.Lock()
        self._handlers: dict[str, Callable[[Mapping[str, Any]], LookupAnswer]] = {
            "aws:index/getAvailabilityZones:getAvailabilityZones": self._zones,
            "aws:index/getCallerIdentity:getCallerIdentity": self._identity,
            "aws:index/getPartition:getPartition": self._partition,
            "aws:index/getRegion:getRegion": self._region,
            "aws:iam/getPolicyDocument:getPolicyDocument": policy_document,
            "aws:eks/getCluster:getCluster": self._cluster,
            "aws:eks/getAddonVersion:getAddonVersion": self._addon_version,
            "aws:ssm/getParameter:getParameter": self._parameter,
            "aws:ssm/getParametersByPath:getParametersByPath": self._parameters,
            "aws:ec2/getInstances:getInstances": self._instances,
            "aws:resourcegroupstaggingapi/getResources:getResources": self._queues,
            "aws:ec2/getVpc:getVpc": self._vpc,
            "aws:ec2/getSubnet:getSubnet": self._subnet,
            "aws:ec2/getSecurityGroup:getSecurityGroup": self._security_group,
            "aws:ec2/getVpcEndpointService:getVpcEndpointService": self._endpoint_service,
            "aws:ebs/getSnapshot:getSnapshot": self._snapshot,
            "aws:secretsmanager/getRandomPassword:getRandomPassword": self._password,
        }

    def __call__(self, token: str, args: Mapping[str, Any]) -> LookupAnswer:
        """Return the answer to a lookup."""
        handler = self._handlers.get(token)
        if handler is None:
            raise LocalCloudError(f"lookup {token} is not emulated by the local cloud")
        echo = supplied(args)
        return {"id": token.rpartition(":")[2], "region": self._clients.region, **echo, **handler(args)}

    def image(self, parameter: str) -> str:
        """Return the AMI id for a public parameter of AWS."""
        with self._lock:
            if parameter not in self._images:
                self._images[parameter] = self._registered(parameter.strip("/").replace("/", "-")[:128])
            return self._images[parameter]

    def _registered(self, name: str) -> str:
        """Return the image of a name, the same for every reader of a parameter."""
        ec2 = self._clients("ec2")
        images = ec2.describe_images(Filters=[{"Name": "name", "Values": [name]}])["Images"]
        if images:
            return str(images[0]["ImageId"])
        reply = ec2.register_image(
            Name=name,
            Architecture="arm64" if "arm64" in name else "x86_64",
            RootDeviceName="/dev/sda1",
            VirtualizationType="hvm",
        )
        return str(reply["ImageId"])

    def _zones(self, args: Mapping[str, Any]) -> LookupAnswer:
        zones = self._clients("ec2").describe_availability_zones()["AvailabilityZones"]
        excluded = {*(args.get("excludeNames") or ()), *(args.get("excludeZoneIds") or ())}
        remaining = [zone for zone in zones if excluded.isdisjoint((zone["ZoneName"], zone["ZoneId"]))]
        names, ids = ([zone[key] for zone in remaining] for key in ("ZoneName", "ZoneId"))
        return {"names": names, "zoneIds": ids, "groupNames": [self._clients.region]}

    def _instances(self, args: Mapping[str, Any]) -> LookupAnswer:
        states = {"name": "instance-state-name", "values": args.get("instanceStateNames") or ["running"]}
        by_name = (args.get("instanceTags") or {}).items()
        tags = [{"name": f"tag:{key}", "values": [value]} for key, value in by_name]
        filters = [
            {"Name": entry["name"], "Values": list(entry["values"])}
            for entry in (states, *tags, *(args.get("filters") or ()))
        ]
        pages = self._clients("ec2").get_paginator("describe_instances").paginate(Filters=filters)
        instances = list(pages.search("Reservations[].Instances[]"))
        addresses = [item["PublicIpAddress"] for item in instances if "PublicIpAddress" in item]
        return {"ids": [instance["InstanceId"] for instance in instances], "publicIps": addresses}

    def _identity(self, args: Mapping[str, Any]) -> LookupAnswer:
        identity = self._clients("sts").get_caller_identity()
        return {"accountId": identity["Account"], "arn": identity["Arn"], "userId": identity["UserId"]}

    def _partition(self, args: Mapping[str, Any]) -> LookupAnswer:
        return {"partition": "aws", "dnsSuffix": "amazonaws.com", "reverseDnsPrefix": "com.amazonaws"}

    def _region(self, args: Mapping[str, Any]) -> LookupAnswer:
        region = self._clients.region
        endpoint = f"ec2.{region}.amazonaws.com"
        return {"name": region, "region": region, "description": region, "endpoint": endpoint}

    def _parameter(self, args: Mapping[str, Any]) -> LookupAnswer:
        name = str(args["name"])
        if name.startswith(_IMAGE_PARAMETERS):
            value, version, kind = self.image(name), 1, "String"
        else:
            with _reported(f"SSM parameter {name!r}"):
                parameter = self._clients("ssm").get_parameter(Name=name, WithDecryption=True)["Parameter"]
            value, version, kind = parameter["Value"], parameter["Version"], parameter["Type"]
        return {
            "arn": f"arn:aws:ssm:{self._clients.region}:{ACCOUNT}:parameter/{name.lstrip('/')}",
            "type": kind,
            "value": value,
            "insecureValue": value,
            "version": version,
        }

    def _password(self, args: Mapping[str, Any]) -> LookupAnswer:
        """Generate a password, different at each run, as on AWS."""
        client = self._clients("secretsmanager")
        shape = client.meta.service_model.operation_model("GetRandomPassword").input_shape
        arguments = {key: value for key, value in supplied(args).items() if key != "region"}
        drawn = client.get_random_password(**convert(arguments, shape, "a password"))
        return {"randomPassword": drawn["RandomPassword"]}

    def _snapshot(self, args: Mapping[str, Any]) -> LookupAnswer:
        """Describe the user's snapshot in the stack file: an encrypted one with that id."""
        [name] = args["snapshotIds"]
        ec2: Any = ec2_backends[ACCOUNT][self._clients.region]
        with self._lock:
            if name not in ec2.snapshots:
                zone = self._zones({})["names"][0]
                volume = ec2.create_volume(size="1", zone_name=zone, encrypted=True)
                ec2.snapshots[name] = Snapshot(ec2, name, volume, "a dataset", encrypted=True)
                ec2.delete_volume(volume.id)
        [snapshot] = self._clients("ec2").describe_snapshots(SnapshotIds=[name])["Snapshots"]
        return {
            "snapshotId": name,
            "state": snapshot["State"],
            "encrypted": snapshot["Encrypted"],
            "storageTier": snapshot["StorageTier"],
            "volumeSize": int(snapshot["VolumeSize"]),
        }

    def _cluster(self, args: Mapping[str, Any]) -> LookupAnswer:
        """Describe the user's cluster in the stack file: one with that name."""
        with self._lock:
            return clusters.existing_cluster(self._clients.region, str(args["name"]))

    def _addon_version(self, args: Mapping[str, Any]) -> LookupAnswer:
        """Return a version that differs by add-on and Kubernetes version; moto knows none."""
        minor = str(args["kubernetesVersion"]).partition(".")[2]
        return {"version": f"v1.{minor}.0-eksbuild.1"}

    def _queues(self, args: Mapping[str, Any]) -> LookupAnswer:
        """List queues, brokers and secrets with given tags; moto's Resource Groups has not all of them."""
        sqs, mq, secrets = (self._clients(service) for service in ("sqs", "mq", "secretsmanager"))
        tags_of: dict[str, Mapping[str, str]] = {}
        for url in sqs.list_queues().get("QueueUrls", ()):
            attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]
            tags_of[attributes["QueueArn"]] = sqs.list_queue_tags(QueueUrl=url).get("Tags", {})
        for broker in mq.list_brokers()["BrokerSummaries"]:
            tags_of[broker["BrokerArn"]] = mq.list_tags(ResourceArn=broker["BrokerArn"]).get("Tags", {})
        for secret in secrets.get_paginator("list_secrets").paginate().search("SecretList[]"):
            tags_of[secret["ARN"]] = {tag["Key"]: tag["Value"] for tag in secret.get("Tags", ())}
        filters = {entry["key"]: entry["values"] for entry in args.get("tagFilters") or ()}
        return {
            "resourceTagMappingLists": [
                {"resourceArn": arn, "tags": dict(tags), "complianceDetails": []}
                for arn, tags in tags_of.items()
                if all(tags.get(key) in values for key, values in filters.items())
            ]
        }

    def _parameters(self, args: Mapping[str, Any]) -> LookupAnswer:
        below, decrypts = bool(args.get("recursive")), args.get("withDecryption") is not False
        paginator = self._clients("ssm").get_paginator("get_parameters_by_path")
        pages = paginator.paginate(Path=args["path"], Recursive=below, WithDecryption=decrypts)
        parameters = list(pages.search("Parameters[]"))
        columns = {"arns": "ARN", "names": "Name", "types": "Type", "values": "Value"}
        return {column: [parameter[key] for parameter in parameters] for column, key in columns.items()}

    def _vpc(self, args: Mapping[str, Any]) -> LookupAnswer:
        ec2, vpc = self._clients("ec2"), _existing_id(args)
        with _reported(f"VPC {vpc!r}"):
            ec2.describe_vpcs(VpcIds=[vpc])
        return {
            name: ec2.describe_vpc_attribute(VpcId=vpc, Attribute=name)[f"E{name[1:]}"]["Value"]
            for name in ("enableDnsSupport", "enableDnsHostnames")
        }

    def _subnet(self, args: Mapping[str, Any]) -> LookupAnswer:
        subnet = _existing_id(args)
        with _reported(f"subnet {subnet!r}"):
            [description] = self._clients("ec2").describe_subnets(SubnetIds=[subnet])["Subnets"]
        return {
            "vpcId": description["VpcId"],
            "availabilityZone": description["AvailabilityZone"],
            "cidrBlock": description["CidrBlock"],
            "mapPublicIpOnLaunch": description["MapPublicIpOnLaunch"],
        }

    def _security_group(self, args: Mapping[str, Any]) -> LookupAnswer:
        group = _existing_id(args)
        with _reported(f"security group {group!r}"):
            [description] = self._clients("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
        return {"vpcId": description["VpcId"], "name": description["GroupName"]}

    def _endpoint_service(self, args: Mapping[str, Any]) -> LookupAnswer:
        """Describe an endpoint service by name, in every zone. moto's implementation needs its extras."""
        [names] = [item["values"] for item in args["filters"] if item["name"] == "service-name"]
        prefix = f"com.amazonaws.{self._clients.region}."
        service = next(name for name in names if name.startswith(prefix))
        return {"serviceName": service, "availabilityZones": self._zones({})["names"]}


def _existing_id(args: Mapping[str, Any]) -> str:
    if not args.get("id"):
        raise LocalCloudError("a lookup by anything but an id is not emulated by the local cloud")
    return str(args["id"])


@contextlib.contextmanager
def _reported(subject: str) -> Iterator[None]:
    """Raise an error of AWS as one that says what was looked for."""
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        raise LocalCloudError(f"{subject}: {code} in the local cloud") from None


def policy_document(args: Mapping[str, Any]) -> LookupAnswer:
    """Render ``aws.iam.get_policy_document`` as its provider does: single values are not lists."""
    if merged := [key for key in args if key.endswith(("PolicyDocuments", "Json")) and args[key]]:
        raise LocalCloudError(f"a policy document: {merged[0]} is not emulated by the local cloud")
    statements = [_statement(item) for item in args.get("statements") or []]
    document = {"Version": args.get("version") or "2012-10-17", "Statement": statements}
    if args.get("policyId"):
        document["Id"] = args["policyId"]
    minified = json.dumps(document, separators=(",", ":"))
    return {"json": json.dumps(document, indent=2), "minifiedJson": minified}


def _statement(item: Mapping[str, Any]) -> dict[str, Any]:
    statement: dict[str, Any] = {"Effect": item.get("effect") or "Allow"}
    if item.get("sid"):
        statement["Sid"] = item["sid"]
    for key in ("actions", "notActions", "resources", "notResources"):
        if item.get(key):
            statement[key[0].upper() + key[1:-1]] = _single(item[key])
    for key, name in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        for principal in item.get(key) or []:
            statement.setdefault(name, {})[principal["type"]] = _single(principal["identifiers"])
    for condition in item.get("conditions") or []:
        operator = statement.setdefault("Condition", {}).setdefault(condition["test"], {})
        operator[condition["variable"]] = _single(condition["values"])
    return statement


def _single(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
