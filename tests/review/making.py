"""Build the engine's JSON for pull requests from what the program declares at base and head.

The JSON is built, not recorded: no engine runs here. The form is that of ``PreviewDigest`` (see
``gpu_spot/review/preview.py``); which inputs force a replacement is in
``tests/oracles/replacements.py``. A state has only inputs.

``python -m tests.review.making`` rewrites the golden comments; review their diff.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from contracts.sentences import sentence
from gpu_spot.review import preview
from gpu_spot.review.comment import comment
from gpu_spot.review.environments import review_environments
from infra.catalogue import on_demand_prices
from policy.evaluation import settings_of, violations
from policy.rules import RULES
from policy.rules.model import Subject
from pulumi_on_moto.program.second_run import with_ignored
from tests.infra.declared import Edit, Run, edited_stack, in_capacity, shipped
from tests.oracles import replacements
from tests.policy.cases import FACTS

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
_FACTS = replace(FACTS, price=on_demand_prices.price)
FORECAST = """**$2,316 a month** ($2,040 to $2,710), +$412 a month

| group | slots | $ a month | available % |
|---|---:|---:|---:|
| inference | 20 (was 16) | $2,114 (+$412) | 99.93 |
"""
"""Stands in for the output of ``gpu-spot forecast``; the figures are fictitious."""


@dataclass(frozen=True)
class EnginePreview:
    """The engine's output for one environment: the digest, and its event log."""

    digest: str
    events: str


def declared(environment: str, edit: Edit | None) -> Run:
    return edited_stack(edit, environment) if edit else shipped(environment)


def digest(environment: str, before: Run, after: Run, error: str = "") -> dict[str, Any]:
    """Return the output of ``pulumi preview --json --show-sames`` between two runs."""
    old, new = ({(step["type"], step["name"]): step for step in side.declared} for side in (before, after))
    steps = [_step(environment, old.get(key), step) for key, step in new.items()]
    steps += [_step(environment, step, None) for key, step in old.items() if key not in new]
    steps.sort(key=lambda step: str(step["urn"]))  # the engine registers in any order
    summary = Counter(step["op"] for step in steps)
    diagnostics = [{"message": error, "severity": "error"}] if error else []
    return {
        "config": {},
        "steps": steps,
        "diagnostics": diagnostics,
        "changeSummary": dict(sorted(summary.items())),
    }


def _step(environment: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    resource = new or old
    assert resource is not None
    urn = f"urn:pulumi:{environment}::gpu-spot::{resource['type']}::{resource['name']}"
    step: dict[str, Any] = {"op": "create" if old is None else "delete", "urn": urn}
    if old is not None:
        step["oldState"] = _state(urn, old)
    if new is not None:
        step["newState"] = _state(urn, new)
    step["detailedDiff"] = None
    if old is not None and new is not None:
        _differing(step, old, new)
    return step


def _differing(step: dict[str, Any], old: dict[str, Any], new: dict[str, Any]) -> None:
    before, after = (one["inputs"] if one["custom"] else {} for one in (old, new))
    after = with_ignored(after, before, new["ignore_changes"])
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    forcing = replacements.forcing(old["type"], before, after)
    forcing |= {
        key
        for key in changed
        for path, _ in _paths(before.get(key), after.get(key), key)
        if any(path == forced or path.startswith(f"{forced}.") for forced in new["replace_on_changes"])
    }
    step["op"] = "replace" if forcing else "update" if changed else "same"
    if changed:
        step["diffReasons"] = sorted(changed)
        step["replaceReasons"] = sorted(forcing)
        step["detailedDiff"] = {
            path: {"kind": f"{how}-replace" if key in forcing else how, "inputDiff": True}
            for key in sorted(changed)
            for path, how in _paths(before.get(key), after.get(key), key)
        }


def _paths(old: Any, new: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            yield from _paths(old.get(key), new.get(key), f"{path}.{key}")
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            sides = (values[index] if index < len(values) else None for values in (old, new))
            yield from _paths(*sides, f"{path}[{index}]")
    elif old != new:
        yield path, "add" if old is None else "delete" if new is None else "update"


def _state(urn: str, resource: dict[str, Any]) -> dict[str, Any]:
    state = {"urn": urn, "custom": resource["custom"], "type": resource["type"], "parent": resource["parent"]}
    if resource["custom"]:
        state |= {"id": f"{resource['name']}-id", "inputs": resource["inputs"], "outputs": {}}
    return state | ({"protect": True} if resource["protect"] else {})


def events(environment: str, after: Run) -> str:
    """Return the policy events of the engine's ``--event-log``: ``PolicyEvent``."""
    subjects = [
        Subject(
            resource["type"],
            resource["name"],
            f"urn:pulumi:{environment}::gpu-spot::{resource['type']}::{resource['name']}",
            resource["inputs"],
            bool(resource["protect"]),
            "us-west-2",
        )
        for resource in after.declared
    ]
    urns = {subject.name: subject.urn for subject in subjects}
    descriptions = {rule.name: rule.description for rule in RULES}
    policy_events = [
        {
            "resourceUrn": urns.get(resource.resource, ""),
            "message": (f"{descriptions[resource.rule]}\n" if resource.resource else "")
            + sentence(resource.resource, resource.message),
            "color": "raw",
            "policyName": resource.rule,
            "policyPackName": "gpu-spot",
            "policyPackVersion": "0.1.0",
            "enforcementLevel": resource.level,
        }
        for resource in violations(subjects, settings_of(environment), _FACTS)
    ]
    return "".join(
        json.dumps({"sequence": number, "timestamp": 0, "policyEvent": resource}) + "\n"
        for number, resource in enumerate(policy_events)
    )


@cache
def made_previews(request: str) -> Mapping[str, EnginePreview]:
    """Return the engine's output for each environment that a pull request changes."""
    previews = {}
    for environment, edit in REQUESTS[request].items():
        before, after = declared(environment, None), declared(environment, edit)
        steps = digest(environment, before, after, ERRORS.get((request, environment), ""))
        previews[environment] = EnginePreview(json.dumps(_whole(steps)), events(environment, after))
    return previews


def write_golden() -> None:
    for request in REQUESTS:
        (GOLDEN / f"{request}.md").write_text(render_comment(request), "utf-8")


def render_comment(request: str) -> str:
    """Return the comment on a pull request, as the workflow renders it."""
    previews = [
        preview.read(environment, one.digest, preview.read_policy_events(one.events))
        for environment, one in made_previews(request).items()
    ]
    forecasts = dict.fromkeys(REQUESTS[request], FORECAST)
    return comment(review_environments(previews, forecasts), "https://ci.example.org/run/1", "c0ffee" * 6)


def _whole(value: Any) -> Any:
    """Return a value with whole numbers as the engine writes them: 32, not 32.0."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


ENVIRONMENTS: Final = ("dev", "fleet", "prod", "research")


def _without_a_bucket(config: dict[str, Any]) -> None:
    config["gpu-spot:storage"]["buckets"].pop(0)


NOTHING: Final[Mapping[str, Any]] = {}
LONGER_LOGS: Final = {"logRetentionDays": 60}
OTHER_TYPES: Final = in_capacity(instanceTypes=["g6.xlarge", "g5.xlarge", "g6.2xlarge", "g5.2xlarge"])
KEY: Final = "arn:aws:kms:us-west-2:123456789012:key/00000000-0000-0000-0000-000000000000"

REQUESTS: Final[Mapping[str, Mapping[str, Edit]]] = {
    "nothing": dict.fromkeys(ENVIRONMENTS, NOTHING),
    "keep-logs-longer": dict.fromkeys(ENVIRONMENTS, LONGER_LOGS),
    "more-workers": {"dev": in_capacity(target=12), "prod": in_capacity(target=20)},
    "fewer-workers": {"prod": in_capacity(target=10, max=20)},
    "train-longer": {
        "research": {"training[0].command[3]": "3000", "training[0].environment": {"SEED": "7"}}
    },
    "another-revision": {"research": {"training[0].revision": "b" * 40}},
    "other-types": dict.fromkeys(("dev", "prod"), OTHER_TYPES),
    "other-types-of-a-fleet": {"fleet": OTHER_TYPES},
    "without-fallback": {"dev": in_capacity(fallback={"enabled": False})},
    "another-name": {"dev": {"services[0].name": "answers"}},
    "one-pool-without-budget": {
        "prod": {
            **in_capacity(instanceTypes=["g6.xlarge"]),
            **{"network.zones": ["us-west-2a"], "monitoring.monthlyBudgetUsd": None},
        }
    },
    "own-key": {"prod": {"kmsKeyArn": KEY}},
    "without-a-bucket": {"prod": _without_a_bucket},
}
"""By name: the edit of each environment."""

ERRORS: Final = {
    ("without-a-bucket", "prod"): (
        "error: Preview failed: resource "
        "urn:pulumi:prod::gpu-spot::aws:s3/bucket:Bucket::bucket-datasets cannot be deleted\n"
        "because it is protected. To unprotect the resource, either remove the `protect` flag from the "
        "resource in your Pulumi program and run `pulumi up`, or use the command:\n"
        "`pulumi state unprotect <urn>`"
    )
}
"""Engine errors in addition to the steps (text: ``pkg/resource/deploy/step_generator.go``)."""


if __name__ == "__main__":
    write_golden()
