"""Network: VPC, subnets, routes, gateways, endpoints, security groups."""

from __future__ import annotations

from typing import Any

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, json_text, output_paths

_WAITS = "nothing to wait for or to clean up here"


def _vpc_attributes(resource: CreatedResource) -> None:
    ec2 = resource.clients("ec2")
    for key, parameter in (
        ("enableDnsSupport", "EnableDnsSupport"),
        ("enableDnsHostnames", "EnableDnsHostnames"),
    ):
        if resource.inputs.get(key) is not None:
            ec2.modify_vpc_attribute(VpcId=resource.id, **{parameter: {"Value": resource.inputs[key]}})


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
    if resource.inputs.get("mapPublicIpOnLaunch") is not None:
        resource.clients("ec2").modify_subnet_attribute(
            SubnetId=resource.id, MapPublicIpOnLaunch={"Value": resource.inputs["mapPublicIpOnLaunch"]}
        )


def _attach_gateway(resource: CreatedResource) -> None:
    if resource.inputs.get("vpcId"):
        resource.clients("ec2").attach_internet_gateway(
            InternetGatewayId=resource.id, VpcId=resource.inputs["vpcId"]
        )


_ROUTE_RENAMES = {"cidrBlock": "DestinationCidrBlock", "ipv6CidrBlock": "DestinationIpv6CidrBlock"}


def _inline_routes(resource: CreatedResource) -> None:
    for route in resource.inputs.get("routes") or []:
        draft = ResourceRequest(resource.type, resource.name, "", resource.clients, {})
        renamed = {
            _ROUTE_RENAMES.get(key, key): value for key, value in route.items() if value not in (None, "")
        }
        shaped = draft.matched("ec2", "CreateRoute", renamed, "routes[]")
        resource.clients("ec2").create_route(RouteTableId=resource.id, **shaped)


def _permission(rule: dict[str, Any], group_id: str) -> dict[str, Any]:
    """Return an inline rule (or a ``SecurityGroupRule``) as AWS's ``IpPermission``."""
    description = {"Description": rule["description"]} if rule.get("description") else {}
    permission: dict[str, Any] = {
        "IpProtocol": str(rule["protocol"]),
        "FromPort": int(rule["fromPort"]),
        "ToPort": int(rule["toPort"]),
        "IpRanges": [{"CidrIp": cidr, **description} for cidr in rule.get("cidrBlocks") or []],
        "Ipv6Ranges": [{"CidrIpv6": cidr, **description} for cidr in rule.get("ipv6CidrBlocks") or []],
        "PrefixListIds": [{"PrefixListId": item, **description} for item in rule.get("prefixListIds") or []],
    }
    groups = [*(rule.get("securityGroups") or [])]
    if rule.get("sourceSecurityGroupId"):
        groups.append(rule["sourceSecurityGroupId"])
    if rule.get("self"):
        groups.append(group_id)
    permission["UserIdGroupPairs"] = [{"GroupId": group, **description} for group in groups]
    return {key: value for key, value in permission.items() if value != []}


def _group_rules(resource: CreatedResource) -> None:
    ec2 = resource.clients("ec2")
    # AWS adds an allow-all egress rule to a new group; pulumi-aws removes it before it adds rules.
    group = ec2.describe_security_groups(GroupIds=[resource.id])["SecurityGroups"][0]
    if group["IpPermissionsEgress"]:
        ec2.revoke_security_group_egress(GroupId=resource.id, IpPermissions=group["IpPermissionsEgress"])
    if resource.inputs.get("ingress"):
        rules = [_permission(rule, resource.id) for rule in resource.inputs["ingress"]]
        ec2.authorize_security_group_ingress(GroupId=resource.id, IpPermissions=rules)
    if resource.inputs.get("egress"):
        rules = [_permission(rule, resource.id) for rule in resource.inputs["egress"]]
        ec2.authorize_security_group_egress(GroupId=resource.id, IpPermissions=rules)


def _single_rule(draft: ResourceRequest) -> None:
    description = {"Description": draft.inputs["description"]} if draft.inputs.get("description") else {}
    draft.take("description")
    permission: dict[str, Any] = {"IpProtocol": str(draft.need("ipProtocol"))}
    for key, name in (("fromPort", "FromPort"), ("toPort", "ToPort")):
        value = draft.take(key)
        if value is not None:
            permission[name] = int(value)
    for key, name, field in (
        ("cidrIpv4", "IpRanges", "CidrIp"),
        ("cidrIpv6", "Ipv6Ranges", "CidrIpv6"),
        ("prefixListId", "PrefixListIds", "PrefixListId"),
        ("referencedSecurityGroupId", "UserIdGroupPairs", "GroupId"),
    ):
        value = draft.take(key)
        if value is not None:
            permission[name] = [{field: value, **description}]
    draft.put(GroupId=draft.need("securityGroupId"), IpPermissions=[permission])


def _default_group(draft: ResourceRequest) -> None:
    vpc = draft.need("vpcId")
    draft.put(Filters=[{"Name": "vpc-id", "Values": [vpc]}, {"Name": "group-name", "Values": ["default"]}])


def _default_group_rules(resource: CreatedResource) -> None:
    ec2, group = resource.clients("ec2"), resource.find("SecurityGroups[0]")
    for rules, revoke in (
        (group["IpPermissions"], ec2.revoke_security_group_ingress),
        (group["IpPermissionsEgress"], ec2.revoke_security_group_egress),
    ):
        if rules:
            revoke(GroupId=resource.id, IpPermissions=rules)
    _group_rules(resource)


def _flow_log(draft: ResourceRequest) -> None:
    for key, kind in (("vpcId", "VPC"), ("subnetId", "Subnet"), ("eniId", "NetworkInterface")):
        resource = draft.take(key)
        if resource:
            draft.put(ResourceIds=[resource], ResourceType=kind)
    draft.put(DeliverLogsPermissionArn=draft.take("iamRoleArn"))


def _endpoint(draft: ResourceRequest) -> None:
    draft.put(PolicyDocument=json_text(draft.take("policy")))


def _route_id(resource: CreatedResource) -> str:
    destination = (
        resource.params.get("DestinationCidrBlock")
        or resource.params.get("DestinationIpv6CidrBlock")
        or "prefix"
    )
    return f"r-{resource.params['RouteTableId']}-{destination}"


_RULE = Spec(
    "ec2.authorize_security_group_ingress",
    "SecurityGroupRules[0].SecurityGroupRuleId",
    tags="ec2",
    shape=_single_rule,
    outputs=output_paths(securityGroupRuleId="SecurityGroupRules[0].SecurityGroupRuleId"),
)

SPECS: dict[str, Spec] = {
    "aws:ec2/vpc:Vpc": Spec(
        "ec2.create_vpc",
        "Vpc.VpcId",
        tags="ec2",
        after=_vpc_attributes,
        takes=frozenset({"enableDnsSupport", "enableDnsHostnames"}),
        outputs=_vpc_outputs,
    ),
    "aws:ec2/subnet:Subnet": Spec(
        "ec2.create_subnet",
        "Subnet.SubnetId",
        tags="ec2",
        after=_subnet_attributes,
        takes=frozenset({"mapPublicIpOnLaunch"}),
        outputs=output_paths(
            arn="Subnet.SubnetArn",
            availabilityZone="Subnet.AvailabilityZone",
            availabilityZoneId="Subnet.AvailabilityZoneId",
        ),
    ),
    "aws:ec2/internetGateway:InternetGateway": Spec(
        "ec2.create_internet_gateway",
        "InternetGateway.InternetGatewayId",
        tags="ec2",
        after=_attach_gateway,
        takes=frozenset({"vpcId"}),
    ),
    "aws:ec2/routeTable:RouteTable": Spec(
        "ec2.create_route_table",
        "RouteTable.RouteTableId",
        tags="ec2",
        after=_inline_routes,
        takes=frozenset({"routes"}),
    ),
    "aws:ec2/route:Route": Spec("ec2.create_route", _route_id),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": Spec("ec2.associate_route_table", "AssociationId"),
    "aws:ec2/eip:Eip": Spec(
        "ec2.allocate_address",
        "AllocationId",
        tags="ec2",
        outputs=output_paths(allocationId="AllocationId", publicIp="PublicIp"),
    ),
    "aws:ec2/natGateway:NatGateway": Spec(
        "ec2.create_nat_gateway",
        "NatGateway.NatGatewayId",
        tags="ec2",
        outputs=output_paths(publicIp="NatGateway.NatGatewayAddresses[0].PublicIp"),
    ),
    "aws:ec2/vpcEndpoint:VpcEndpoint": Spec(
        "ec2.create_vpc_endpoint",
        "VpcEndpoint.VpcEndpointId",
        tags="ec2",
        shape=_endpoint,
        outputs=lambda resource: {"arn": resource.arn("ec2", f"vpc-endpoint/{resource.id}")},
        no_effect={"autoAccept": _WAITS},
    ),
    "aws:ec2/securityGroup:SecurityGroup": Spec(
        "ec2.create_security_group",
        "GroupId",
        rename={"name": "GroupName"},
        autoname="name",
        tags="ec2",
        shape=lambda draft: draft.put(Description=draft.take("description", "Managed by Pulumi")),
        after=_group_rules,
        takes=frozenset({"ingress", "egress"}),
        outputs=lambda resource: {"arn": resource.arn("ec2", f"security-group/{resource.id}")},
        no_effect={"revokeRulesOnDelete": _WAITS},
    ),
    "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup": Spec(
        "ec2.describe_security_groups",
        "SecurityGroups[0].GroupId",
        tags="ec2",
        shape=_default_group,
        after=_default_group_rules,
        takes=frozenset({"ingress", "egress"}),
        outputs=lambda resource: {"arn": resource.arn("ec2", f"security-group/{resource.id}")},
    ),
    "aws:ec2/flowLog:FlowLog": Spec(
        "ec2.create_flow_logs",
        "FlowLogIds[0]",
        tags="ec2",
        shape=_flow_log,
        outputs=lambda resource: {"arn": resource.arn("ec2", f"vpc-flow-log/{resource.id}")},
    ),
    "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": _RULE,
    "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule": Spec(
        "ec2.authorize_security_group_egress",
        _RULE.identity,
        tags="ec2",
        shape=_single_rule,
        outputs=_RULE.outputs,
    ),
}
