"""Make the engine's JSON for the pull requests from what the program declares at their base and head.

They are made, not recorded: no engine runs here. The form is that of ``PreviewDigest`` (see
``gpu_spot/review/preview.py``); which inputs force a replacement is the table of
``tests/infra/test_replacements.py``. Of what is unchanged only parameters are kept, of a state its inputs.

``python -m tests.review.making`` writes the golden comments anew; look at their difference.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpu_spot.review import preview
from gpu_spot.review.comment import comment
from gpu_spot.review.judged import judged
from policy.judge import settings_of, violations
from policy.rules import RULES
from policy.rules.model import Subject
from tests.infra.declared import ROOT, Run, run, variant
from tests.infra.test_replacements import FORCES_NEW
from tests.policy.cases import FACTS
from tests.review.requests import ERRORS, REQUESTS, Edit

HERE = Path(__file__).parent
GOLDEN = HERE / "golden"
FORECAST = """**$2,316 a month** ($2,040 to $2,710), +$412 a month

| group | slots | $ a month | available % |
|---|---:|---:|---:|
| inference | 20 (was 16) | $2,114 (+$412) | 99.93 |
"""
"""Stands in for what ``gpu-spot forecast`` says; the figures are nobody's."""


@dataclass(frozen=True)
class Made:
    """What the engine says of one environment: the digest that it prints, and its log of policy events."""

    digest: str
    events: str


@cache
def declared(environment: str, edit: Edit | None) -> Run:
    """Run the program of a shipped environment, edited; once, whoever asks."""
    with tempfile.TemporaryDirectory() as folder:
        file = ROOT / f"Pulumi.{environment}.yaml"
        return run("known", variant(Path(folder), edit, file) if edit else file, environment)


def digest(environment: str, before: Run, after: Run, error: str = "") -> dict[str, Any]:
    """Return what ``pulumi preview --json --show-sames`` would print for the way from one run to another."""
    old, new = ({(one["type"], one["name"]): one for one in side.declared} for side in (before, after))
    steps = [_step(environment, old.get(key), one) for key, one in new.items()]
    steps += [_step(environment, one, None) for key, one in old.items() if key not in new]
    custom = [one for one in steps if one["urn"].count("aws:")]
    summary = Counter(one["op"] for one in custom)
    diagnostics = [{"message": error, "severity": "error"}] if error else []
    kept = [one for one in steps if one["op"] != "same" or "aws:ssm/parameter:Parameter" in one["urn"]]
    return {
        "config": {},
        "steps": kept,
        "diagnostics": diagnostics,
        "changeSummary": dict(sorted(summary.items())),
    }


def _step(environment: str, old: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any]:
    one = new or old
    assert one is not None
    urn = f"urn:pulumi:{environment}::gpu-spot::{one['type']}::{one['name']}"
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
    ignored = set(new["ignore_changes"])
    before, after = (
        {key: value for key, value in one["inputs"].items() if key not in ignored} if one["custom"] else {}
        for one in (old, new)
    )
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    kind = old["type"].rpartition(":")[2]
    forcing = changed & (FORCES_NEW.get(kind, set()) | set(new["replace_on_changes"]))
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
        for place in range(max(len(old), len(new))):
            sides = (side[place] if place < len(side) else None for side in (old, new))
            yield from _paths(*sides, f"{path}[{place}]")
    elif old != new:
        yield path, "add" if old is None else "delete" if new is None else "update"


def _state(urn: str, one: dict[str, Any]) -> dict[str, Any]:
    state = {"urn": urn, "custom": one["custom"], "type": one["type"], "parent": one["parent"]}
    if one["custom"]:
        state |= {"id": f"{one['name']}-id", "inputs": one["inputs"], "outputs": {}}
    return state | ({"protect": True} if one["protect"] else {})


def events(environment: str, after: Run) -> str:
    """Return the lines of the engine's ``--event-log`` that tell of policies: ``PolicyEvent``."""
    subjects = [
        Subject(
            one["type"],
            one["name"],
            f"urn:pulumi:{environment}::gpu-spot::{one['type']}::{one['name']}",
            one["inputs"],
            bool(one["protect"]),
            "us-west-2",
        )
        for one in after.declared
    ]
    urns = {subject.name: subject.urn for subject in subjects}
    descriptions = {rule.name: rule.description for rule in RULES}
    told = [
        {
            "resourceUrn": urns.get(one.resource, ""),
            "message": f"{descriptions[one.rule]}\n{one.resource}: {one.words}"
            if one.resource
            else one.words,
            "color": "raw",
            "policyName": one.rule,
            "policyPackName": "gpu-spot",
            "policyPackVersion": "0.1.0",
            "enforcementLevel": one.level,
        }
        for one in violations(subjects, settings_of(environment), FACTS)
    ]
    return "".join(
        json.dumps({"sequence": place, "timestamp": 0, "policyEvent": one}) + "\n"
        for place, one in enumerate(told)
    )


@cache
def made(request: str) -> Mapping[str, Made]:
    """Return what the engine says of each environment that a pull request changes."""
    found = {}
    for environment, edit in REQUESTS[request].items():
        before, after = declared(environment, None), declared(environment, edit)
        steps = digest(environment, before, after, ERRORS.get((request, environment), ""))
        found[environment] = Made(json.dumps(_whole(steps)), events(environment, after))
    return found


def write_golden() -> None:
    """Write the comment on each pull request."""
    for request in REQUESTS:
        (GOLDEN / f"{request}.md").write_text(commented(request), "utf-8")


def commented(request: str) -> str:
    """Return the comment on a pull request, as the workflow has it made."""
    previews = [
        preview.read(environment, one.digest, preview.complaints(one.events))
        for environment, one in made(request).items()
    ]
    forecasts = dict.fromkeys(REQUESTS[request], FORECAST)
    return comment(judged(previews, forecasts), "https://ci.example.org/run/1", "c0ffee" * 6)


def _whole(value: Any) -> Any:
    """Return a value with whole numbers as the engine writes them: 32, not 32.0."""
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


if __name__ == "__main__":
    write_golden()
