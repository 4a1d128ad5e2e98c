"""Faults of the assumptions about permissions, services and tables."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

from tests.aws_check.doubles import (
    ALLOWED,
    ASG,
    EC2,
    GROUPS,
    Change,
    asked,
    edited,
    refused,
    skipped,
)

IAM, MQ, EKS, SSM = "iam", "mq", "eks", "ssm"
_DOCUMENT = {"Version": "2012-10-17"}
_ALL = json.dumps({**_DOCUMENT, "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})
_NONE = json.dumps({**_DOCUMENT, "Statement": [{"Effect": "Allow", "Action": "x:Y", "Resource": "*"}]})
ANY_POLICY = (IAM, "put_role_policy", asked(PolicyDocument=_ALL))
NO_POLICY = (IAM, "put_role_policy", asked(PolicyDocument=_NONE))
NO_ROLE = (IAM, "create_role", refused("MalformedPolicyDocument", "Invalid principal"))


def _results(**changed: str) -> tuple[str, str, Change]:
    """What an instance wrote is changed; ``any`` stands for every result."""

    def edit(answer: dict[str, Any]) -> None:
        for parameter in answer["Parameters"]:
            results = json.loads(parameter["Value"])
            for name in results:
                results[name] = changed.get(name, changed.get("any", results[name]))
            parameter["Value"] = json.dumps(results)

    return SSM, "get_parameters", edited(edit)


def _written(**results: str) -> tuple[str, str, Change]:
    """An instance wrote these results."""
    return SSM, "get_parameters", skipped({"Parameters": [{"Value": json.dumps(results)}]})


def _stored(service: str, operation: str, edit: Any) -> tuple[str, str, Change]:
    return service, operation, edited(edit)


def _no_actions(answer: dict[str, Any]) -> None:
    answer["PolicyVersion"]["Document"] = {"Statement": [{"Effect": "Allow", "Action": "x:Y"}]}


def _unbound(answer: dict[str, Any]) -> None:
    for statement in answer["PolicyVersion"]["Document"]["Statement"]:
        statement.pop("Condition", None)


def _broker(**shown: Any) -> tuple[str, str, Change]:
    return _stored(MQ, "describe_broker", lambda answer: answer.update(shown))


def _cluster(edit: Any) -> tuple[str, str, Change]:
    return _stored(EKS, "describe_cluster", lambda answer: edit(answer["cluster"]))


def _template(**data: Any) -> tuple[str, str, Change]:
    return _stored(
        EC2,
        "describe_launch_template_versions",
        lambda answer: answer["LaunchTemplateVersions"][0]["LaunchTemplateData"].update(data),
    )


def _other_domain(answer: dict[str, Any]) -> None:
    answer["QueueUrl"] = "https://sqs.example.org/1/domain"


def _other_counts(answer: dict[str, Any]) -> None:
    for info in answer["InstanceTypes"]:
        info["GpuInfo"]["Gpus"][0]["Count"] += 1
        info["NetworkInfo"]["EfaInfo"] = {"MaximumEfaInterfaces": 3}


class _Pages:
    """A paginator with one page."""

    def __init__(self, page: Mapping[str, Any]) -> None:
        self.page = page

    def paginate(self, **arguments: Any) -> list[Mapping[str, Any]]:
        return [self.page]


def _pages(service: str, page: Mapping[str, Any]) -> tuple[str, str, Change]:
    return service, "get_paginator", lambda call, given: _Pages(page)  # type: ignore[return-value, dict-item]


def _another_instance(answer: dict[str, Any]) -> None:
    answer["AutoScalingGroups"][0].update(DesiredCapacity=2)


SIMULATED = (
    *("tags-of-fleets-bound-permissions", "tags-of-groups-bound-launches", "tags-of-templates-bound-fleets"),
    *("both-tags-bound-terminations", "tags-at-creation", "volumes-with-the-jobs-tag", "only-these-tag-keys"),
    *("six-characters-of-secrets", "tags-of-instances-bound-interruptions", "tags-of-hosts-bound-sessions"),
    *("own-channels", "tags-of-principals-bound-sessions"),
    *("session-needs-its-document", "own-sessions", "key-through-services", "grants-for-services"),
    *("one-role-for-fleets", "namespace-of-metrics", "access-points-bound-mounts", "prefix-of-a-dataset"),
    "karpenter-tags-bound-launches",
)
MANAGED = (
    *("policy-amazoneksworkernodepolicy", "policy-amazonec2containerregistrypullonly"),
    *("policy-amazoneks-cni-policy", "policy-amazonebscsidriverpolicy", "policy-amazoneksclusterpolicy"),
    "policy-amazonec2spotfleettaggingrole",
)

FAULTS: dict[str, tuple[str, str, Change]] = {
    **dict.fromkeys(SIMULATED, (IAM, "simulate_custom_policy", ALLOWED)),
    **{name: _stored(IAM, "get_policy_version", _no_actions) for name in MANAGED},
    "driver-deletes-its-own-volumes": _stored(IAM, "get_policy_version", _unbound),
    "own-row": _results(own="denied"),
    "no-other-row": _results(other="ok"),
    "returned-item-with-leading-keys": NO_POLICY,
    "batch-of-own-keys": NO_POLICY,
    "batch-with-another-key": ANY_POLICY,
    "no-scan-with-leading-keys": ANY_POLICY,
    "reserved-keys": ANY_POLICY,
    "two-characters": ANY_POLICY,
    "attributes-bound-permissions": ANY_POLICY,
    "batch-of-a-hundred": (
        "dynamodb",
        "batch_get_item",
        skipped({"Responses": {}, "UnprocessedKeys": {}}),
    ),
    "trust-in-pods": NO_ROLE,
    "trust-in-certificates": NO_ROLE,
    "service-principals": NO_ROLE,
    "provider-without-thumbprint": (
        IAM,
        "create_open_id_connect_provider",
        refused("InvalidInput", "thumbprint"),
    ),
    "missing-object": NO_POLICY,
    "missing-object-without-list": ANY_POLICY,
    "template-for-a-capacity-block": _template(InstanceMarketOptions={}),
    "template-with-efa": _template(NetworkInterfaces=[]),
    "rate-of-initialization": _template(BlockDeviceMappings=[{"Ebs": {}}]),
    "new-template-replaces-nothing": (ASG, GROUPS, edited(lambda answer: _renamed(answer))),
    "protection-of-fifty": (ASG, "set_instance_protection", skipped()),
    "launch-in-zone-once": (ASG, GROUPS, edited(_another_instance)),
    "fleet-with-a-bound-role": (EC2, "describe_spot_fleet_instances", skipped({"ActiveInstances": []})),
    "patterns-of-notices": ("events", "test_event_pattern", skipped({"Result": False})),
    "patterns-of-groups": ("events", "test_event_pattern", skipped({"Result": True})),
    "patterns-of-scheduled-changes": ("events", "test_event_pattern", skipped({"Result": True})),
    "loss-is-reported": ("sqs", "receive_message", skipped()),
    "launch-is-reported": ("sqs", "receive_message", skipped()),
    "no-metadata-without-token": _results(any="10.0.0.1"),
    "no-notice-is-404": _results(any="200"),
    "purchase-option-in-metadata": _results(any="on-demand"),
    "group-in-metadata": _written(
        **{
            "/latest/meta-data/tags/instance/aws:autoscaling:groupName": "another",
            "/latest/meta-data/autoscaling/target-lifecycle-state": "InService",
        }
    ),
    # The simulated instance runs no command: each result is an error.
    "gpu-image": (SSM, "get_parameter", skipped({"Parameter": {"Value": "ami-0123456789abcdef0"}})),
    "layer-precedes-the-runtime": (
        "lambda",
        "invoke",
        lambda call, given: {"Payload": io.BytesIO(b'"/var/lang/lib/boto3"')},
    ),
    "log-line-becomes-a-metric": ("cloudwatch", "list_metrics", skipped({"Metrics": []})),
    "visibility-below-the-functions-timeout": (
        "lambda",
        "create_event_source_mapping",
        edited(lambda answer: None),
    ),
    "document-with-a-fixed-command": (SSM, "create_document", refused("InvalidDocumentContent", "Shell")),
    "document-with-a-fixed-port": (SSM, "create_document", refused("InvalidDocumentContent", "Port")),
    "budget-by-tag": ("budgets", "create_budget", refused("InvalidParameterException", "CostFilters")),
    "topic-for-alarms-and-budgets": ("sns", "set_topic_attributes", refused("InvalidParameter", "Policy")),
    "action-of-drills": (
        "fis",
        "get_action",
        skipped({"action": {"parameters": {}, "targets": {"I": {"resourceType": "aws:ec2:instance"}}}}),
    ),
    "drill-without-instances-fails": (
        "fis",
        "get_experiment",
        edited(lambda answer: answer["experiment"]["state"].update(status="completed")),
    ),
    "drill-interrupts": ("sqs", "receive_message", skipped()),
    "accelerators-of-types": (EC2, "get_paginator", lambda call, given: _changed_types(call)),
    "interfaces-of-types": (EC2, "get_paginator", lambda call, given: _changed_types(call)),
    "default-image": (SSM, "get_parameter", skipped({"Parameter": {"Value": "ami-12c6146b"}})),
    "codes-of-quotas": (
        "service-quotas",
        "get_aws_default_service_quota",
        refused("NoSuchResourceException"),
    ),
    "names-of-endpoints": (EC2, "describe_vpc_endpoint_services", skipped({"ServiceDetails": []})),
    "services-of-a-region": _pages(SSM, {"Parameters": []}),
    "domain-of-the-partition": _stored("sqs", "create_queue", _other_domain),
    "one-price-of-a-type": _pages("pricing", {"PriceList": []}),
    "prices-of-usage-types": _pages("pricing", {"PriceList": []}),
    "prices-of-brokers": _pages("pricing", {"PriceList": []}),
    "broker-takes-one-user": (MQ, "create_broker", skipped({"BrokerId": "b"})),
    "broker-needs-upgrades": (MQ, "create_broker", skipped({"BrokerId": "b"})),
    "single-broker-has-one-subnet": (MQ, "create_broker", skipped({"BrokerId": "b"})),
    "password-without-separators": (MQ, "create_broker", skipped({"BrokerId": "b"})),
    "broker-types": (MQ, "describe_broker_instance_options", skipped({"BrokerInstanceOptions": []})),
    "broker-endpoint": _broker(
        BrokerInstances=[{"ConsoleURL": "https://b-1.mq.us-east-1.amazonaws.com", "Endpoints": []}]
    ),
    "users-by-management-api": _broker(
        BrokerInstances=[{"ConsoleURL": "https://127.0.0.1:1", "Endpoints": []}]
    ),
    "users-are-not-returned": _broker(Users=[{"Username": "gpu-spot"}]),
    "security-groups-are-final": (MQ, "update_broker", skipped()),
    "change-waits-for-maintenance": (MQ, "update_broker", skipped()),
    "broker-metrics": ("cloudwatch", "list_metrics", skipped({"Metrics": []})),
    "cluster-has-one-endpoint": _broker(
        BrokerInstances=[{"Endpoints": ["amqps://a:5671"]}, {"Endpoints": ["amqps://b:5671"]}]
    ),
    "cluster-serves-during-a-reboot": _broker(
        BrokerInstances=[{"ConsoleURL": "https://127.0.0.1:1", "Endpoints": []}]
    ),
    "no-users-api": (MQ, "create_user", skipped()),
    "addons-are-offered": (EKS, "describe_addon_versions", skipped({"addons": []})),
    "versions-have-an-end": (EKS, "describe_cluster_versions", skipped({"clusterVersions": [{}]})),
    "access-by-entries-only": _cluster(lambda cluster: None),
    "node-entries-take-no-policy": (EKS, "associate_access_policy", skipped()),
    "pods-need-a-role-that-trusts-them": (EKS, "create_pod_identity_association", skipped()),
    "one-role-for-a-service-account": (EKS, "create_pod_identity_association", skipped()),
    "tag-of-the-clusters-group": (EC2, "describe_security_groups", skipped({"SecurityGroups": []})),
    "standard-support-only": _cluster(
        lambda cluster: cluster.update(upgradePolicy={"supportType": "EXTENDED"})
    ),
    "node-joins": (SSM, "get_parameter", skipped({"Parameter": {"Value": "ami-0123456789abcdef0"}})),
}
"""Some are changed by ``NO_SERVER`` as well: no server answers, whatever the operation returns."""

NO_SERVER = {
    "access-by-entries-only": "gpu_spot.aws_check.assumptions.services.clusters._kubernetes",
    "node-joins": "gpu_spot.aws_check.assumptions.services.clusters._kubernetes",
    "users-by-management-api": "gpu_spot.aws_check.assumptions.services.brokers._request",
    "cluster-serves-during-a-reboot": "gpu_spot.aws_check.assumptions.services.brokers._request",
}
"""Functions that reach a server which no double has; the test replaces them: status 500."""


def _renamed(answer: dict[str, Any]) -> None:
    """After the update the member is another one."""
    for found in answer["AutoScalingGroups"]:
        template = found.get("LaunchTemplate", {})
        for member in found["Instances"]:
            if template.get("Version") == "2":
                member["InstanceId"] = "i-another"


def _changed_types(call: Any) -> Any:
    pages = [
        *call("describe_instance_types").paginate(
            Filters=[{"Name": "instance-type", "Values": ["g5.xlarge"]}]
        )
    ]
    for page in pages:
        _other_counts(page)
    return _Pages(pages[0])
