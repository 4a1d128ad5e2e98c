"""What replaces a resource is known of every declared input, and agrees with AWS's own schemas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from tests.infra.declared import shipped
from tests.oracles.cloudformation import As, spelled_key
from tests.oracles.deployed import EXTENDED, deployed
from tests.oracles.replacements import REPLACED_BY, forcing
from tests.oracles.types import TYPES
from tests.review.changes import STACKS

STRICTER = {"aws:ec2/eip:Eip.domain", "aws:route53/record:Record.name"}
"""Inputs that AWS could change in place and the provider replaces."""


def created_only(type_: str) -> tuple[set[str], set[str]]:
    """Return a type's properties by AWS's schema: all, and those that AWS cannot change."""
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-west-2", type_).schema
    fixed = {path.removeprefix("/properties/") for path in schema.get("createOnlyProperties", ())}
    return set(schema["properties"]), fixed


def disagreements(type_: str, inputs: set[str]) -> Iterator[str]:
    row, counterpart = REPLACED_BY[type_], TYPES.get(type_)
    if not isinstance(counterpart, As):
        return
    known, fixed = created_only(counterpart.type)
    for key in sorted(inputs - {"tags"}):
        name = (counterpart.rename or {}).get(key, spelled_key(key))
        replaces, stays = key in row.inputs, key in row.in_place
        differs = name in known and (name in fixed) != replaces
        if differs and not stays and f"{type_}.{key}" not in STRICTER:
            yield f"{type_}.{key}: AWS {'cannot change it' if name in fixed else 'changes it in place'}"


def test_the_table_has_every_declared_type_and_agrees_with_aws() -> None:
    declared: dict[str, set[str]] = {}
    given = [(item["type"], item["inputs"]) for stack in STACKS for item in shipped(stack).declared]
    given += [(resource.type, resource.inputs) for resource in deployed(EXTENDED).resources]
    for type_, inputs in given:
        if type_.startswith("aws:"):
            declared.setdefault(type_, set()).update(inputs)
    assert not declared.keys() - REPLACED_BY.keys()
    assert not [line for type_, inputs in declared.items() for line in disagreements(type_, inputs)]


@pytest.mark.parametrize(
    ("type_", "before", "after", "replaced"),
    [
        (
            "autoscaling/group:Group",
            {"initialLifecycleHooks": [{"name": "a"}]},
            {},
            {"initialLifecycleHooks"},
        ),
        ("autoscaling/group:Group", {"maxSize": 1}, {"maxSize": 2}, set()),
        ("eks/cluster:Cluster", {"encryptionConfig": {"provider": 1}}, {}, {"encryptionConfig"}),
        ("eks/cluster:Cluster", {}, {"encryptionConfig": {"provider": 1}}, set()),
        (
            "eks/cluster:Cluster",
            {"accessConfig": {"authenticationMode": "API"}},
            {"accessConfig": {"authenticationMode": "CONFIG_MAP"}},
            set(),
        ),
        (
            "vpc/securityGroupIngressRule:SecurityGroupIngressRule",
            {"cidrIpv4": "10.0.0.0/8"},
            {"referencedSecurityGroupId": "sg-1"},
            {"cidrIpv4", "referencedSecurityGroupId"},
        ),
    ],
)
def test_what_replaces(type_: str, before: dict[str, Any], after: dict[str, Any], replaced: set[str]) -> None:
    assert forcing(f"aws:{type_}", before, after) == replaced


def test_an_unknown_type_is_no_change_in_place() -> None:
    with pytest.raises(KeyError):
        forcing("aws:redshift/cluster:Cluster", {"a": 1}, {"a": 2})
