"""What `up` again would change: nothing, what differs, what is new, what is gone; and what can be applied."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pulumi_on_moto import Change, Deployment, LocalCloudError, Resource, StackConfig, changes, load, up

QUEUE = "aws:sqs/queue:Queue"
PARAMETER = "aws:ssm/parameter:Parameter"


def without(deployment: Deployment, *urns: str) -> Deployment:
    remaining = tuple(resource for resource in deployment.resources if resource.urn not in urns)
    return replace(deployment, resources=remaining)


def declared(deployment: Deployment, type_: str, name: str, **inputs: object) -> Deployment:
    """The deployment as if the program had declared other inputs for one resource."""
    old = deployment.resource(type_, name)
    changed = replace(old, inputs={**old.inputs, **inputs})
    resources = [changed if resource is old else resource for resource in deployment.resources]
    return replace(deployment, resources=tuple(resources))


def test_the_same_program_changes_nothing(deployment: Deployment, pulumi_stack: StackConfig) -> None:
    assert changes(deployment, pulumi_stack) == ()


def test_a_difference_is_named_by_its_input_whatever_its_type(
    deployment: Deployment, pulumi_stack: StackConfig
) -> None:
    before = declared(deployment, QUEUE, "events", visibilityTimeoutSeconds=30)
    before = declared(before, "aws:ec2/vpc:Vpc", "sample", tags={"Name": "other"}, ipv6CidrBlock="::/56")
    assert set(changes(before, pulumi_stack)) == {
        Change(QUEUE, "events", frozenset({"visibilityTimeoutSeconds"})),
        Change("aws:ec2/vpc:Vpc", "sample", frozenset({"tags", "ipv6CidrBlock"})),
    }


def test_what_is_new_is_not_created_and_what_needs_it_is_seen_to_change(
    deployment: Deployment, pulumi_stack: StackConfig
) -> None:
    table = deployment.resource("aws:dynamodb/table:Table", "workers")
    topic = deployment.resource("aws:sns/topic:Topic", "people")
    found = changes(without(deployment, table.urn, topic.urn), pulumi_stack)
    # Their names and ARNs are unknown, and with them what is made of these; no apply sees them.
    assert set(found) == {
        Change(table.type, table.name),
        Change("aws:lambda/function:Function", "controller", frozenset({"environment"})),
        Change(topic.type, topic.name),
        Change("aws:sns/topicSubscription:TopicSubscription", "people", frozenset({"topic"})),
    }
    assert deployment.clients("dynamodb").list_tables()["TableNames"] == [table.id]


def test_what_is_no_longer_declared_is_gone(deployment: Deployment, pulumi_stack: StackConfig) -> None:
    more = Resource("urn:old", QUEUE, "old", "", "https://old", {}, {}, {})
    before = replace(deployment, resources=(*deployment.resources, more))
    assert changes(before, pulumi_stack) == (Change(QUEUE, "old", is_removed=True),)


def test_up_applies_what_changes_in_place(deployment: Deployment, pulumi_stack: StackConfig) -> None:
    size = load(pulumi_stack.program, "dev", {"size": 8})
    groups = {"inference", "inference-fallback"}
    after, found = up(deployment, size)
    assert {change.name for change in found if "maxSize" in change.inputs} == groups
    described = deployment.clients("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert {group["MaxSize"] for group in described} == {8}
    assert changes(after, size) == ()
    up(after, pulumi_stack)


def test_up_refuses_by_name_what_does_not(deployment: Deployment, pulumi_stack: StackConfig) -> None:
    before = declared(deployment, QUEUE, "events", visibilityTimeoutSeconds=30)
    with pytest.raises(LocalCloudError) as caught:
        up(before, pulumi_stack)
    assert str(caught.value) == f'{QUEUE} "events": visibilityTimeoutSeconds cannot be changed in place here'
