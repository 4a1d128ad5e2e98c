"""Changes that no stack file makes: of code, boot data, policies, protections, and of resources of others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from gpu_spot.review.environments import review_environments
from gpu_spot.review.preview import read
from gpu_spot.review.verdict import verdict_of
from tests.infra.declared import shipped

_WEAKER: Final[dict[str, dict[str, Any]]] = {
    "BucketVersioning": {"versioningConfiguration": {"status": "Suspended"}},
    "Bucket": {"forceDestroy": True},
    "Budget": {"limitAmount": "99999999", "notifications": []},
    "EventRule": {"eventPattern": '{"source": ["none"]}', "scheduleExpression": "rate(9 days)"},
    "EventSourceMapping": {"enabled": False},
    "Function": {"reservedConcurrentExecutions": 0, "code": "other", "timeout": 1},
    "FileSystem": {"encrypted": False},
    "LaunchTemplate": {"metadataOptions": {"httpTokens": "optional"}},
    "LogGroup": {"retentionInDays": 1},
    "MetricAlarm": {"alarmActions": [], "evaluationPeriods": 9999, "metricName": "other"},
    "Queue": {"messageRetentionSeconds": 60},
    "Role": {"assumeRolePolicy": '{"Statement": [{"Effect": "Allow", "Principal": "*"}]}'},
    "RolePolicy": {"policy": '{"Statement": []}'},
    "Table": {"deletionProtectionEnabled": False, "pointInTimeRecovery": {"enabled": False}, "ttl": {}},
}
"""Inputs of the program's resources that would become weaker."""
_UNSET: Final = {"code": "ours", "enabled": True, "forceDestroy": False}
_GUARDS: Final = frozenset(
    {
        *("Bucket", "Budget", "EventRule", "EventTarget", "EventSourceMapping", "FileSystem", "FlowLog"),
        *("LogGroup", "MetricAlarm", "Queue", "QueuePolicy", "RolePolicy", "Secret", "Table", "Topic"),
        "SecurityGroupIngressRule",
    }
)
_FOREIGN: Final = tuple(
    f"{package}:{module}:{kind}"
    for package in ("aws", "gcp", "azure-native", "cloudflare", "kubernetes")
    for module, kind in (
        *(("redshift/cluster", "Cluster"), ("neptune/instance", "Instance"), ("x/warehouse", "Warehouse")),
        ("core/v9", "Gateway"),
    )
)


@dataclass(frozen=True)
class EngineChange:
    """A change, and whether the comment may be green."""

    title: str
    steps: tuple[dict[str, Any], ...]
    may_be_silent: bool = False


def engine_changes() -> Iterator[EngineChange]:
    """Yield them for the resources of ``prod`` and ``ocr``, then 100 of other types."""
    for stack in ("prod", "ocr"):
        for item in shipped(stack).declared:
            kind = item["type"].rpartition(":")[2]
            if not item["custom"]:
                continue
            for key, weaker in _WEAKER.get(kind, {}).items():
                if item["inputs"].get(key, _UNSET.get(key)) not in (None, weaker):
                    after = {**item["inputs"], key: weaker}
                    yield EngineChange(f"{stack} {item['name']}.{key}", (_step("update", item, after, key),))
            if kind in _GUARDS:
                yield EngineChange(f"{stack} {item['name']} deleted", (_step("delete", item, None),))
            if kind == "LaunchTemplate":
                after = {**item["inputs"], "userData": "b3RoZXI="}
                boots = _step("update", item, after, "userData")
                yield EngineChange(f"{stack} {item['name']} boots", (boots,), may_be_silent=True)
    for number, type_ in enumerate(_FOREIGN * 5):
        op = ("create", "update", "replace", "delete", "import-replacement")[number // len(_FOREIGN)]
        item = {"type": type_, "name": f"gpu-spot-prod-foreign-{number}", "inputs": {"size": 1}}
        yield EngineChange(f"{op} {type_}", (_step(op, item, {"size": 2}, "size"),))


def _step(op: str, item: dict[str, Any], after: dict[str, Any] | None, key: str = "") -> dict[str, Any]:
    urn = f"urn:pulumi:prod::gpu-spot::{item['type']}::{item['name']}"
    state = {"urn": urn, "custom": True, "type": item["type"], "id": "id"}
    step: dict[str, Any] = {"op": op, "urn": urn, "diffReasons": [key] if key else []}
    step |= {"oldState": {**state, "inputs": item["inputs"]}} if op != "create" else {}
    return step | ({"newState": {**state, "inputs": after}} if after is not None else {})


def is_silent(change: EngineChange) -> bool:
    """Return whether the comment on a change is green."""
    digest = {"steps": [*change.steps], "changeSummary": {change.steps[0]["op"]: 1}}
    [reviewed] = environments = review_environments([read("prod", json.dumps(digest), ())], {})
    worst = reviewed.meaning.worst.name
    return verdict_of(environments).outcome == "nothing" and worst in ("NOTHING", "LATER")
