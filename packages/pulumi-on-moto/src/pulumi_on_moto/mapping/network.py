"""Network: VPC, subnets, routes, gateways, endpoints, security groups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, output_paths

_WAITS = "nothing to wait for or to clean up here"
_VPC_ATTRIBUTES = ("enableDnsSupport", "enableDnsHostnames")


def _vpc_attributes(resource: CreatedResource) -> None:
    for key in _VPC_ATTRIBUTES:
        if (value := resource.inputs.get(key)) is not None:
            changed = {f"E{key[1:]}": {"Value": value}}
            resource.clients("ec2").modify_vpc_attribute(VpcId=resource.id, **changed)


def _vpc_outputs(resource: CreatedResource) -> dict[str, Any]:
    ec2 = resource.clients("ec2")
    filters = [{"Name": "vpc-id", "Values": [resource.id]}]
    tables = ec2.describe_route_tables(Filters=[*filters, {"Name": "association.main", "Values": ["true"]}])
    groups = ec2.describe_security_groups(Filters=[*filters, {"Name": "group-name", "Values": ["default"]}])
    return {
        "arn": resource.arn("ec2", f"vpc/{resource.id}"),
        "ownerId": resource.find("Vpc.OwnerId"),
        "mainRouteTableId": tables["RouteTables"][0]["RouteTableId"],
        "defaultRouteTableId": tables["RouteTables"][0]["RouteTableId"],
        "defaultSecurityGroupId": groups["SecurityGroups"][0]["GroupId"],
    }


def _subnet_attributes(resource: CreatedResource) -> None:
    if (value := resource.inputs.get("mapPublicIpOnLaunch")) is not None:
        changed = {"MapPublicIpOnLaunch": {"Value": value}}
        resource.clients("ec2").modify_subnet_attribute(SubnetId=resource.id, **changed)


def _attach_gateway(resource: CreatedResource) -> None:
    if vpc := resource.inputs.get("vpcId"):
        resource.clients("ec2").attach_internet_gateway(InternetGatewayId=resource.id, VpcId=vpc)


_ROUTE_RENAMES = {"cidrBlock": "DestinationCidrBlock", "ipv6CidrBlock": "DestinationIpv6CidrBlock"}


def _inline_routes(resource: CreatedResource) -> None:
    for route in resource.inputs.get("routes") or []:
        present = {key: value for key, value in route.items() if value not in (None, "")}
        renamed = {_ROUTE_RENAMES.get(key, key): value for key, value in present.items()}
        shaped = resource.matched("ec2", "CreateRoute", renamed, "routes[]")
        resource.clients("ec2").create_route(RouteTableId=resource.id, **shaped)


def _permission(rule: dict[str, Any], group_id: str) -> dict[str, Any]:
    """Return an inline rule as AWS's ``IpPermission``."""
    groups = [*(rule.get("securityGroups") or []), *([group_id] if rule.get("self") else [])]
    description = {"Description": rule["description"]} if rule.get("description") else {}
    permission = {
        "IpProtocol": str(rule["protocol"]),
        "FromPort": int(rule["fromPort"]),
        "ToPort": int(rule["toPort"]),
        "IpRanges": [{"CidrIp": cidr, **description} for cidr in rule.get("cidrBlocks") or []],
        "Ipv6Ranges": [{"CidrIpv6": cidr, **description} for cidr in rule.get("ipv6CidrBlocks") or []],
        "PrefixListIds": [{"PrefixListId": item, **description} for item in rule.get("prefixListIds") or []],
        "UserIdGroupPairs": [{"GroupId": group, **description} for group in groups],
    }
    return {key: value for key, value in permission.items() if value != []}


def _group_rules(resource: CreatedResource) -> None:
    """Replace a group's rules, as pulumi-aws does: AWS makes a new one with an allow-all egress rule."""
    ec2 = resource.clients("ec2")
    [group] = ec2.describe_security_groups(GroupIds=[resource.id])["SecurityGroups"]
    for direction, present in (("ingress", "IpPermissions"), ("egress", "IpPermissionsEgress")):
        if group[present]:
            revoke = getattr(ec2, f"revoke_security_group_{direction}")
            revoke(GroupId=resource.id, IpPermissions=group[present])
        if declared := resource.inputs.get(direction):
            rules = [_permission(rule, resource.id) for rule in declared]
            authorize = getattr(ec2, f"authorize_security_group_{direction}")
            authorize(GroupId=resource.id, IpPermissions=rules)


def _single_rule(draft: ResourceRequest) -> None:
    text = draft.take("description")
    description = {"Description": text} if text else {}
    permission: dict[str, Any] = {"IpProtocol": str(draft.need("ipProtocol"))}
    for key, name in (("fromPort", "FromPort"), ("toPort", "ToPort")):
        if (value := draft.take(key)) is not None:
            permission[name] = int(value)
    for key, name, field in (
        ("cidrIpv4", "IpRanges", "CidrIp"),
        ("cidrIpv6", "Ipv6Ranges", "CidrIpv6"),
        ("prefixListId", "PrefixListIds", "PrefixListId"),
        ("referencedSecurityGroupId", "UserIdGroupPairs", "GroupId"),
    ):
        if (value := draft.take(key)) is not None:
            permission[name] = [{field: value, **description}]
    draft.put(GroupId=draft.need("securityGroupId"), IpPermissions=[permission])


def _default_group(draft: ResourceRequest) -> None:
    vpc = draft.need("vpcId")
    draft.put(Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}])


def _flow_log(draft: ResourceRequest) -> None:
    for key, kind in (("vpcId", "VPC"), ("subnetId", "Subnet"), ("eniId", "NetworkInterface")):
        if resource := draft.take(key):
            draft.put(ResourceIds=[resource], ResourceType=kind)


def _route_id(resource: CreatedResource) -> str:
    named = (resource.params.get(f"Destination{kind}") for kind in ("CidrBlock", "Ipv6CidrBlock"))
    return f"r-{resource.params['RouteTableId']}-{next(filter(None, named), 'prefix')}"


_RULE = Spec(
    "ec2.authorize_security_group_ingress",
    "SecurityGroupRules[0].SecurityGroupRuleId",
    shape=_single_rule,
    outputs=output_paths(securityGroupRuleId="SecurityGroupRules[0].SecurityGroupRuleId"),
)

SPECS: dict[str, Spec] = {
    "aws:ec2/vpc:Vpc": Spec(
        "ec2.create_vpc", "Vpc.VpcId", after=_vpc_attributes, takes=_VPC_ATTRIBUTES, outputs=_vpc_outputs
    ),
    "aws:ec2/subnet:Subnet": Spec(
        "ec2.create_subnet",
        "Subnet.SubnetId",
        after=_subnet_attributes,
        takes={"mapPublicIpOnLaunch"},
        outputs=output_paths(
            arn="Subnet.SubnetArn",
            availabilityZone="Subnet.AvailabilityZone",
            availabilityZoneId="Subnet.AvailabilityZoneId",
        ),
    ),
    "aws:ec2/internetGateway:InternetGateway": Spec(
        "ec2.create_internet_gateway",
        "InternetGateway.InternetGatewayId",
        after=_attach_gateway,
        takes={"vpcId"},
    ),
    "aws:ec2/routeTable:RouteTable": Spec(
        "ec2.create_route_table", "RouteTable.RouteTableId", after=_inline_routes, takes={"routes"}
    ),
    "aws:ec2/route:Route": Spec("ec2.create_route", _route_id),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Spec("ec2.associate_route_table", "AssociationId"),
    "aws:ec2/eip:Eip": Spec(
        "ec2.allocate_address",
        "AllocationId",
        outputs=output_paths(allocationId="AllocationId", publicIp="PublicIp"),
    ),
    "aws:ec2/natGateway:NatGateway": Spec(
        "ec2.create_nat_gateway",
        "NatGateway.NatGatewayId",
        outputs=output_paths(publicIp="NatGateway.NatGatewayAddresses[0].PublicIp"),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Spec(
        "ec2.create_vpc_endpoint",
        "VpcEndpoint.VpcEndpointId",
        rename={"policy": "PolicyDocument"},
        outputs=lambda resource: {"arn": resource.arn("ec2", f"vpc-endpoint/{resource.id}")},
        no_effect={"autoAccept": _WAITS},
    ),
    "aws:ec2/securityGroup:SecurityGroup": Spec(
        "ec2.create_security_group",
        "GroupId",
        rename={"name": "GroupName"},
        autoname="name",
        shape=lambda draft: draft.put(Description=draft.take("description", "Managed by Pulumi")),
        after=_group_rules,
        takes={"ingress", "egress"},
        outputs=lambda resource: {"arn": resource.arn("ec2", f"security-group/{resource.id}")},
        no_effect={"revokeRulesOnDelete": _WAITS},
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": Spec(
        "ec2.describe_security_groups",
        "SecurityGroups[0].GroupId",
        tags="ec2",
        shape=_default_group,
        after=_group_rules,
        takes={"ingress", "egress"},
        outputs=lambda resource: {"arn": resource.arn("ec2", f"security-group/{resource.id}")},
    ),
    "aws:ec2/flowLog:FlowLog": Spec(
        "ec2.create_flow_logs",
        "FlowLogIds[0]",
        rename={"iamRoleArn": "DeliverLogsPermissionArn"},
        shape=_flow_log,
        outputs=lambda resource: {"arn": resource.arn("ec2", f"vpc-flow-log/{resource.id}")},
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _RULE,
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": replace(
        _RULE, operation="ec2.authorize_security_group_egress"
    ),
}
