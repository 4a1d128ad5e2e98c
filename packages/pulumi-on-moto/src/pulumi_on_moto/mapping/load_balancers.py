"""Load balancers: target groups, listeners, and DNS records that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pulumi_on_moto.mapping.base import CreatedResource, ResourceRequest, Spec, generated_name, output_paths
from pulumi_on_moto.mapping.shapes import text

_BALANCER_ATTRIBUTES: Final = {
    "clientKeepAlive": "client_keep_alive.seconds",
    "desyncMitigationMode": "routing.http.desync_mitigation_mode",
    "dropInvalidHeaderFields": "routing.http.drop_invalid_header_fields.enabled",
    "enableDeletionProtection": "deletion_protection.enabled",
    "enableHttp2": "routing.http2.enabled",
    "idleTimeout": "idle_timeout.timeout_seconds",
    "preserveHostHeader": "routing.http.preserve_host_header.enabled",
    "xffHeaderProcessingMode": "routing.http.xff_header_processing.mode",
}
_GROUP_ATTRIBUTES: Final = {
    "deregistrationDelay": "deregistration_delay.timeout_seconds",
    "loadBalancingAlgorithmType": "load_balancing.algorithm.type",
    "slowStart": "slow_start.duration_seconds",
}
_CHECK_NAMES: Final = {
    "healthCheck.healthyThreshold": "HealthyThresholdCount",
    "healthCheck.interval": "HealthCheckIntervalSeconds",
    "healthCheck.timeout": "HealthCheckTimeoutSeconds",
    "healthCheck.unhealthyThreshold": "UnhealthyThresholdCount",
}
"""Those that differ from the members' names by more than case and punctuation."""


def _attributes(names: Mapping[str, str], inputs: Mapping[str, Any]) -> list[dict[str, str]]:
    return [
        {"Key": name, "Value": text(inputs[key])}
        for key, name in names.items()
        if inputs.get(key) is not None
    ]


def _named(draft: ResourceRequest) -> None:
    """Replace the generated name by one with the prefix, if there is one."""
    if prefix := draft.take("namePrefix"):
        draft.inputs["name"] = f"{prefix}{generated_name(draft)[-7:]}"


def _balancer(draft: ResourceRequest) -> None:
    _named(draft)
    draft.put(Scheme="internal" if draft.take("internal") else "internet-facing")


def _balancer_attributes(resource: CreatedResource) -> None:
    attributes = _attributes(_BALANCER_ATTRIBUTES, resource.inputs)
    if logs := resource.inputs.get("accessLogs"):
        attributes += [
            {"Key": f"access_logs.s3.{key}", "Value": text(value)}
            for key, value in logs.items()
            if value is not None
        ]
    resource.clients("elbv2").modify_load_balancer_attributes(
        LoadBalancerArn=resource.id, Attributes=attributes
    )


def _group(draft: ResourceRequest) -> None:
    _named(draft)
    check = dict(draft.take("healthCheck") or {})
    version = draft.inputs.get("protocolVersion")
    if (matcher := check.pop("matcher", None)) is not None:
        draft.put(Matcher={"GrpcCode" if version == "GRPC" else "HttpCode": matcher})
    draft.inputs |= {f"healthCheck.{key}": value for key, value in check.items()}


def _group_attributes(resource: CreatedResource) -> None:
    resource.clients("elbv2").modify_target_group_attributes(
        TargetGroupArn=resource.id, Attributes=_attributes(_GROUP_ATTRIBUTES, resource.inputs)
    )


def _listener(draft: ResourceRequest) -> None:
    if arn := draft.take("certificateArn"):
        draft.put(Certificates=[{"CertificateArn": arn}])


def _record(draft: ResourceRequest) -> None:
    record: dict[str, Any] = {"Name": draft.need("name"), "Type": draft.need("type")}
    [alias] = draft.need("aliases")
    record["AliasTarget"] = {
        "DNSName": alias["name"],
        "HostedZoneId": alias["zoneId"],
        "EvaluateTargetHealth": alias["evaluateTargetHealth"],
    }
    draft.put(
        HostedZoneId=draft.need("zoneId"),
        ChangeBatch={"Changes": [{"Action": "CREATE", "ResourceRecordSet": record}]},
    )


def _record_id(resource: CreatedResource) -> str:
    [change] = resource.params["ChangeBatch"]["Changes"]
    record = change["ResourceRecordSet"]
    return f"{resource.params['HostedZoneId']}_{record['Name']}_{record['Type']}"


def _balancer_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {
        "arn": resource.id,
        # The dimension of its metrics, such as ``app/name/0123456789abcdef``.
        "arnSuffix": resource.id.partition(":loadbalancer/")[2],
        "dnsName": resource.find("LoadBalancers[0].DNSName"),
        "zoneId": resource.find("LoadBalancers[0].CanonicalHostedZoneId"),
    }


def _group_outputs(resource: CreatedResource) -> dict[str, Any]:
    return {"arn": resource.id, "arnSuffix": resource.id.rpartition(":")[2]}


SPECS: dict[str, Spec] = {
    "aws:lb/loadBalancer:LoadBalancer": Spec(
        "elbv2.create_load_balancer",
        "LoadBalancers[0].LoadBalancerArn",
        rename={"loadBalancerType": "Type"},
        autoname="name",
        shape=_balancer,
        after=_balancer_attributes,
        takes={*_BALANCER_ATTRIBUTES, "accessLogs"},
        outputs=_balancer_outputs,
    ),
    "aws:lb/targetGroup:TargetGroup": Spec(
        "elbv2.create_target_group",
        "TargetGroups[0].TargetGroupArn",
        rename=_CHECK_NAMES,
        autoname="name",
        shape=_group,
        after=_group_attributes,
        takes=_GROUP_ATTRIBUTES,
        outputs=_group_outputs,
    ),
    "aws:lb/listener:Listener": Spec(
        "elbv2.create_listener",
        "Listeners[0].ListenerArn",
        shape=_listener,
        outputs=output_paths(arn="Listeners[0].ListenerArn"),
    ),
    "aws:route53/record:Record": Spec(
        "route53.change_resource_record_sets",
        _record_id,
        shape=_record,
        outputs=lambda resource: {"fqdn": resource.inputs["name"]},
    ),
}
