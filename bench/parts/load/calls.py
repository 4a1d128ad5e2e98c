"""What an API server says of itself: its audit log's requests, its metrics, the CPU time of its processes."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from tests.cluster.client import ClusterApi

AUDIT: Final = ({"level": "Metadata", "omitManagedFields": True},)
"""Every request, without bodies."""
WORKERS: Final = "our workers"
_CONTROLLER: Final = re.compile(r"system:serviceaccount:kube-system:([a-z0-9-]+)$")
_SIZES: Final = re.compile(r"^apiserver_watch_events_(sizes_sum|total)\{(.*)\} (\S+)$", re.MULTILINE)
_RESPONSES: Final = re.compile(r"^apiserver_response_sizes_sum\{(.*)\} (\S+)$", re.MULTILINE)
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True)
class Reading:
    """Counters at one moment; times in seconds.

    Attributes:
        at: Of the clock.
        cpu: CPU seconds of each component.
        watch_bytes: Sent to watches, by kind; ``watch_events`` are these events.
        response_bytes: By verb and resource.
    """

    at: float
    cpu: Mapping[str, float]
    watch_bytes: Mapping[str, float]
    watch_events: Mapping[str, float]
    response_bytes: Mapping[str, float]


def read(api: ClusterApi, at: float, folder: Path) -> Reading:
    """Read the counters of the control plane that runs in ``folder``."""
    text = str(api.get("/metrics"))
    counted: dict[str, Counter[str]] = {"total": Counter(), "sizes_sum": Counter()}
    for name, labels, value in _SIZES.findall(text):
        counted[name][dict(_LABEL.findall(labels)).get("kind") or _resource(labels)] += float(value)
    responses: Counter[str] = Counter()
    for labels, value in _RESPONSES.findall(text):
        responses[f"{dict(_LABEL.findall(labels))['verb']} {_resource(labels)}"] += float(value)
    return Reading(at, _cpu(folder), counted["sizes_sum"], counted["total"], responses)


def _resource(labels: str) -> str:
    named = dict(_LABEL.findall(labels))
    return _path(named.get("resource", ""), named.get("subresource"))


def _path(resource: str, subresource: str | None) -> str:
    return f"{resource}/{subresource}" if subresource else resource


def _cpu(folder: Path) -> dict[str, float]:
    """Return the CPU seconds of the processes whose command names a folder, by component."""
    seconds: Counter[str] = Counter()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            command = (path / "cmdline").read_text("utf-8").split("\0")
            fields = (path / "stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        if any(str(folder) in part for part in command[1:]):
            name = "etcd" if command[0].endswith("etcd") else command[1]
            seconds[name] += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return dict(seconds)


def requests(folder: Path, namespace: str, begin: float, end: float) -> dict[str, Any]:
    """Return the requests of an audit log between two times, by who made them, a second.

    Watches count when they begin. ``refused`` are those that the API server had no room for (429).
    """
    calls: Counter[str] = Counter()
    callers: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    for path in sorted(folder.glob("audit*.log")):
        with path.open(encoding="utf-8") as log:
            for line in log:
                event = json.loads(line)
                is_watch = event["verb"] == "watch"
                if event["stage"] != ("ResponseStarted" if is_watch else "ResponseComplete"):
                    continue
                at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
                if not begin <= at < end:
                    continue
                caller = _caller(event, namespace)
                callers[caller] += 1
                calls[f"{caller}: {event['verb']} {_object(event)}"] += 1
                if event.get("responseStatus", {}).get("code") == HTTPStatus.TOO_MANY_REQUESTS:
                    refused[caller] += 1
    seconds = end - begin

    def rates(counts: Counter[str]) -> dict[str, float]:
        return {name: round(count / seconds, 2) for name, count in counts.most_common(40)}

    return {"requests_per_s": rates(callers), "calls_per_s": rates(calls), "refused": dict(refused)}


def _object(event: Mapping[str, Any]) -> str:
    reference = event.get("objectRef", {})
    return _path(reference.get("resource", event["requestURI"]), reference.get("subresource"))


def _caller(event: Mapping[str, Any], namespace: str) -> str:
    user, agent = event["user"]["username"], event.get("userAgent", "")
    if user.startswith(f"system:serviceaccount:{namespace}:"):
        return WORKERS
    if controller := _CONTROLLER.search(agent):
        return controller[1]
    return "scheduler" if agent.endswith("/scheduler") else agent.partition("/")[0] or user
