"""Tables of the catalogue against what AWS describes: types, images, quotas, endpoints."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from contracts.partitions import DNS_SUFFIXES, reversed_dns
from gpu_spot.aws_check.assumption import assumes
from gpu_spot.aws_check.aws_test_bed import AwsTestBed, Falsified
from gpu_spot.aws_check.leftover import list_all
from gpu_spot.preflight.checks.account import quotas
from infra.catalogue.accelerators import CATALOGUE, ami_parameter
from infra.catalogue.network_interfaces import EFA_INTERFACES
from infra.components.network.endpoints import INTERFACES

_CATALOGUE: Final = "infra/catalogue/accelerators.py"
_MISSING: Final = "NoSuchResourceException"


def _described(test_bed: AwsTestBed) -> Iterable[Mapping[str, Any]]:
    """Return what the region describes of the catalogue's types."""
    filters = [{"Name": "instance-type", "Values": sorted(CATALOGUE)}]
    return list_all(test_bed.clients("ec2"), "describe_instance_types", "InstanceTypes", Filters=filters)


@assumes("DescribeInstanceTypes, GpuInfo", _CATALOGUE, "another number of accelerators")
def accelerators_of_types(test_bed: AwsTestBed) -> str:
    """Each GPU type of the catalogue that the region describes has the catalogue's number of GPUs."""
    described = {
        info["InstanceType"]: sum(gpu["Count"] for gpu in info["GpuInfo"]["Gpus"])
        for info in _described(test_bed)
        if "GpuInfo" in info
    }
    wrong = {
        name: count
        for name, count in described.items()
        # A share of a GPU counts as one.
        if max(1, int(count)) != CATALOGUE[name].accelerators
    }
    if wrong or not described:
        raise Falsified(f"AWS describes {wrong or 'none of them'}")
    return f"{len(described)} types as in the catalogue"


@assumes(
    "DescribeInstanceTypes, EfaInfo, PlacementGroupInfo",
    "infra/catalogue/network_interfaces.py",
    "another number of EFA interfaces, or no cluster placement group takes the type",
)
def interfaces_of_types(test_bed: AwsTestBed) -> str:
    """The catalogue's types have its number of EFA interfaces, and a cluster placement group takes each."""
    wrong, count = [], 0
    for info in _described(test_bed):
        count += 1
        number = info["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        strategies = info["PlacementGroupInfo"]["SupportedStrategies"]
        if number != EFA_INTERFACES.get(info["InstanceType"], 0) or "cluster" not in strategies:
            wrong.append(f"{info['InstanceType']}: {number}, {', '.join(strategies)}")
    if wrong or not count:
        raise Falsified(f"AWS describes {'; '.join(wrong) or 'none of them'}")
    return f"{count} types as in the catalogue"


@assumes(
    'AWS Deep Learning AMI guide, "Get the latest AMI ID with Systems Manager"',
    "infra/components/capacity/launch_template.py",
    "no parameter, or another root device",
    unsupported_reason="moto has no public parameters of these images",
)
def default_image(test_bed: AwsTestBed) -> str:
    """The parameters of the default images exist, and their root device is /dev/sda1."""
    ssm, ec2 = test_bed.clients("ssm"), test_bed.clients("ec2")
    for architecture in ("x86_64", "arm64"):
        name = ami_parameter(architecture)
        image = ssm.get_parameter(Name=name)["Parameter"]["Value"]
        [described] = ec2.describe_images(ImageIds=[image])["Images"]
        shown = (described["Architecture"], described["RootDeviceName"])
        if shown != (architecture, "/dev/sda1"):
            raise Falsified(f"{name} is {shown}")
    return "two images"


@assumes(
    "GetServiceQuota; codes from public listings of Service Quotas",
    "gpu_spot/preflight/checks/account/quotas.py",
    "a code does not exist, or is no quota in vCPUs",
    unsupported_reason="moto has no default quotas",
)
def codes_of_quotas(test_bed: AwsTestBed) -> str:
    """Service Quotas has each code of preflight's vCPU check, with On-Demand or Spot in its name."""
    client = test_bed.clients("service-quotas")
    families = ("g5.xlarge", "p4d.24xlarge", "p5.48xlarge", "inf2.xlarge", "trn1.2xlarge", "m7i.large")
    expected: dict[str, str] = {}
    for family in families:
        spot, on_demand = quotas.codes(family) or ((), "")
        expected |= {**dict.fromkeys(spot, "Spot"), on_demand: "On-Demand"}
    for code, word in expected.items():
        try:
            response = client.get_aws_default_service_quota(ServiceCode="ec2", QuotaCode=code)
        except ClientError as error:
            if error.response["Error"]["Code"] != _MISSING:
                raise
            raise Falsified(f"{code} does not exist") from None
        name = response["Quota"]["QuotaName"]
        if word not in name:
            raise Falsified(f"{code} is {name!r}, expected {word}")
    return f"{len(expected)} codes"


@assumes(
    "DescribeVpcEndpointServices",
    "infra/components/network/endpoints.py",
    "a service has no interface endpoint under these names",
    unsupported_reason="moto needs a further package to list endpoint services",
)
def names_of_endpoints(test_bed: AwsTestBed) -> str:
    """Each service that instances call has an interface endpoint under the partition's names."""
    prefixes = dict.fromkeys(map(reversed_dns, DNS_SUFFIXES.values()))
    names = {
        f"{prefix}.{test_bed.region}.{service}": service for prefix in prefixes for service in INTERFACES
    }
    # The parameter ServiceNames rejects the whole list if one name is unknown; a filter does not.
    response = test_bed.clients("ec2").describe_vpc_endpoint_services(
        Filters=[{"Name": "service-name", "Values": sorted(names)}]
    )
    offered = {names[detail["ServiceName"]] for detail in response["ServiceDetails"]}
    if missing := sorted(INTERFACES.keys() - offered):
        raise Falsified(f"not offered: {', '.join(missing)}")
    return f"{len(INTERFACES)} services"


@assumes(
    'Systems Manager guide, "Calling AWS service, Region, endpoint, Availability Zone, local zone, and '
    'wavelength zone public parameters"',
    "gpu_spot/preflight/checks/region_services.py",
    "no parameters, or not one of EC2",
)
def services_of_a_region(test_bed: AwsTestBed) -> str:
    """Public parameters list the services of a region."""
    path = f"/aws/service/global-infrastructure/regions/{test_bed.region}/services"
    listed = {
        parameter["Value"]
        for parameter in list_all(test_bed.clients("ssm"), "get_parameters_by_path", "Parameters", Path=path)
    }
    if missing := {"ec2", "autoscaling", "dynamodb", "sqs"} - listed:
        raise Falsified(f"{len(listed)} are listed, without {', '.join(sorted(missing))}")
    return f"{len(listed)} services"


@assumes("botocore data/partitions.json, dnsSuffix", "contracts/partitions.py", "another domain")
def domain_of_the_partition(test_bed: AwsTestBed) -> str:
    """Queue URLs of a region end with the domain of its partition."""
    host = test_bed.queue("domain").split("/")[2].partition(":")[0]
    suffix = DNS_SUFFIXES[test_bed.partition]
    if not host.endswith(suffix):
        raise Falsified(f"the host is {host}, not in {suffix}")
    return host
