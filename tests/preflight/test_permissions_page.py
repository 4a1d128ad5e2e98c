"""docs/operations.md lists what the preflight asks AWS: all of it, and no more."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import boto3

REPOSITORY = Path(__file__).parents[2]
SERVICES = {"service-quotas": "servicequotas", "elbv2": "elasticloadbalancing"}
# Attributes of a client that are not operations.
OTHER = {"meta", "get_paginator"}


def test_the_page_lists_every_action() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text("utf-8")
    section = text.split("## Before the first `up`")[1].split("\n## ")[0]
    listed: set[str] = set()
    for service, operation in re.findall(r"`([a-z0-9-]+):([A-Za-z{},]+)`", section):
        head, _, rest = operation.partition("{")
        listed |= {f"{service}:{head}{one}" for one in rest.rstrip("}").split(",")}
    assert listed == asked()


def asked() -> set[str]:
    """Every action of the checks, from their source: operations by name are one of boto3's clients'."""
    found: set[str] = set()
    for path in (REPOSITORY / "gpu_spot" / "preflight").rglob("*.py"):
        source = path.read_text("utf-8")
        services = re.findall(r'(?:clients|client)\("([a-z0-9-]+)"\)', source)
        names = set(re.findall(r"\.((?:get|list|describe|simulate)_[a-z_]+)\(", source))
        names |= set(re.findall(r'get_paginator\(\s*"([a-z_]+)"', source))
        names |= {
            node.value
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.fullmatch(r"describe_[a-z_]+", node.value)
        }
        found |= {
            f"{SERVICES.get(service, service)}:{operation}"
            for service in services
            for operation in operations(service, names - OTHER)
        }
    return found


def operations(service: str, names: set[str]) -> set[str]:
    client = boto3.session.Session(region_name="us-east-1").client(
        service,  # type: ignore[call-overload]
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    known = client.meta.method_to_api_mapping
    return {str(known[name]) for name in names if name in known}
