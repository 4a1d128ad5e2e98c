"""Versions of running node agents: they live on under the role of the next version."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from contracts import names
from contracts.agent import version
from contracts.registry import item as registry_item
from gpu_spot.preflight.account import Account
from gpu_spot.preflight.check_result import CheckResult
from gpu_spot.preflight.stack import Stack
from gpu_spot.tables import deployed_tables


def run(stack: Stack, account: Account) -> Iterator[CheckResult]:
    """Check that no worker's agent is two minor versions behind; a stack that is not deployed has none."""
    client = account.clients("dynamodb")
    for table in deployed_tables(client, stack.name)["registry"]:
        yield from _too_old(client, table)


def _too_old(client: Any, table: str) -> Iterator[CheckResult]:
    pages = client.get_paginator("scan").paginate(
        TableName=table,
        ProjectionExpression="#group, agentVersion",
        ExpressionAttributeNames={"#group": names.REGISTRY_KEY},
        FilterExpression="heartbeat > :fresh",
        ExpressionAttributeValues={":fresh": {"N": str(int(time.time() - registry_item.STALE_SECONDS))}},
    )
    rows = (
        (registry_item.group_of(row[names.REGISTRY_KEY]["S"]), row.get("agentVersion", {}).get("S", ""))
        for page in pages
        for row in page["Items"]
    )
    for (group, agent), count in sorted(Counter(rows).items()):
        if version.is_too_old(agent, version.VERSION):
            finding = f"agent {agent} on {count} of its workers; {version.VERSION} serves it no more"
            yield CheckResult(group, "failure", finding, "first replace their hosts with the version before")
