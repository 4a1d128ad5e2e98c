"""What a changed key of a sample stack does to what is deployed: replaced, deleted, refused, or nothing.

``python -m tests.engine.outcomes > docs/changes.md`` writes the page. For each change of
``tests/review/changes.py`` the program runs as the next preview of the deployed sample; what the providers
replace of its differences is in ``tests/oracles/replacements.py``. ``test_changes.py`` compares the page with
what the engine says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pulumi
import yaml

from infra.settings import SettingsError, load_settings
from tests.apart import SHARED_VARIABLE, apart
from tests.infra import program
from tests.infra.declared import ROOT, Run, shipped, variant
from tests.oracles.replacements import forcing
from tests.review import making
from tests.review.changes import Change, changes

PAGE: Final = ROOT / "docs" / "changes.md"
IN_PLACE: Final = "in place"
NOTHING: Final = "**nothing changes**"
REFUSED: Final = "refused"
COMPARED: Final = '`ARGS="--changes 20"`: every 20th'
ENDS: Final = "**no worker of before**: these end at the `up`"
ROLLS: Final = "running workers, by a rolling release"
BOOTS: Final = "new instances; running ones keep theirs"
AT_ONCE: Final = "at the `up`; running instances stay"
DRIFTS: Final = "running pods of services, by new nodes one after another"
TIMES: Final = (ENDS, ROLLS, DRIFTS, BOOTS, AT_ONCE)
_MAX_KINDS: Final = 6
_OPERATIONS: Final = {"replace": "replace", "create-replacement": "replace", "delete": "delete"}
_HEAD: Final = """\
# Changed keys

For whoever changes a key of a running stack. What a change does to workers, and what to do by hand, is in
[operations](operations.md#what-is-replaced); a [pull request](pull-requests.md) has a comment with it.

Generated (`python -m tests.engine.outcomes --every {every} > docs/changes.md`). Each key of the sample stacks
(`Pulumi.*.yaml`) is changed once, and each that they could have is set once, {total} changes; the
[stack file](stack-file.md) allows {allowed}. The program ran with {what} of these, {count}, and what the
providers replace is a table of their schemas. {listed} rows are not just changed in place or created.
`make test-engine` compares a sample with what the engine says of stand-ins for the providers; {compared}.
AWS or a cluster may refuse more, and with `protect: true` (prod) the engine deletes nothing that holds data.

`refused`: the preview fails, and nothing changes. `nothing changes`: the key has no effect there. At most
{kinds} kinds of resources are named.

| key | change | in | effect |
|---|---|---|---|
"""
_REACHES: Final = """
## When a change reaches workers

By the resources that a change touches: a group or fleet that goes, a service's release, what instances are
launched from, or only what workers and functions read. Refused changes and idle ones are left out.

| key | in | reaches |
|---|---|---|
"""


@dataclass(frozen=True)
class Row:
    key: str
    how: str
    effect: str


def applied(change: Change) -> dict[str, Any]:
    text = (ROOT / "stacks" / f"Pulumi.{change.stack}.yaml").read_text("utf-8")
    config: dict[str, Any] = yaml.safe_load(text)["config"]
    change.apply(config)
    return config


@cache
def allowed() -> tuple[Change, ...]:
    """Return the changes that the schema of stack files allows."""
    return tuple(change for change in changes() if _is_allowed(change))


def _is_allowed(change: Change) -> bool:
    try:
        load_settings(applied(change))
    except (SettingsError, KeyError):
        return False
    return True


def is_default(change: Change) -> bool:
    """Return whether a change only writes a default out, or leaves it out."""
    text = (ROOT / "stacks" / f"Pulumi.{change.stack}.yaml").read_text("utf-8")
    return load_settings(applied(change)) == load_settings(yaml.safe_load(text)["config"])


def how(change: Change) -> str:
    """Return the change in a word: an element of a list or a number may be on either side."""
    place: Any = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{change.stack}.yaml").read_text("utf-8"))[
        "config"
    ]
    for part in change.path:
        if isinstance(place, dict) and part not in place:
            return "set"
        place = place[part]
    if change.value is None:
        return "removed"
    if isinstance(place, list):
        return "fewer" if len(change.value) < len(place) else "more"
    if isinstance(place, (int, float)) and not isinstance(place, bool):
        return "lower" if change.value < place else "higher"
    return "changed"


def effect(steps: Iterable[Mapping[str, Any]]) -> str:
    kinds: dict[str, set[str]] = defaultdict(set)
    changed = False
    for step in steps:
        type_ = step["urn"].split("::")[2].rpartition("$")[2]
        changed |= step["op"] not in ("same", "read")
        if step["op"] in _OPERATIONS and not type_.startswith(("gpu-spot:", "pulumi:")):
            kinds[_OPERATIONS[step["op"]]].add(type_.rpartition(":")[2])
    if not changed:
        return NOTHING
    texts = [
        f"{verb} {_listed(kinds[op])}"
        for op, verb in (("replace", "replaces"), ("delete", "deletes"))
        if kinds[op]
    ]
    return "; ".join(texts) or IN_PLACE


def reach(steps: Iterable[Mapping[str, Any]]) -> str:
    """Return when a change reaches workers, by the resources that it touches; empty without any."""
    found = reaches_of(steps)
    return next((when for when in TIMES if when in found), "")


def reaches_of(steps: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return all times at which a part of a change reaches workers."""
    listed_steps = list(steps)
    kept = {
        _input(step, "new", "metadata", "name")
        for step in listed_steps
        if "NodePool" in step["urn"] and _keeps(step)
    }
    unrestarted = {
        step["urn"].rpartition("-")[0]
        for step in listed_steps
        if step["urn"].endswith("-health") and '"mostAtOnce": 0' in str(_input(step, "new", "insecureValue"))
    }
    return {when for step in listed_steps if (when := _reach_of(step, kept, unrestarted))}


def _reach_of(step: Mapping[str, Any], kept: Container[Any], unrestarted: Container[str]) -> str:
    kind, name = step["urn"].split("::")[2].rpartition(":")[2], step["urn"].rpartition("::")[2]
    if step["op"] in ("same", "read"):
        return ""
    if step["op"] in _OPERATIONS and kind in ("Group", "Job", "SpotFleetRequest"):
        return ENDS
    if step["op"] not in ("update", "replace", "create-replacement"):
        return AT_ONCE
    if kind == "Deployment":
        return ROLLS if _differs(step, "spec", "template") else AT_ONCE
    if kind == "Parameter" and name.endswith("-release") and _differs(step, "insecureValue"):
        in_place = _is_in_place(step) and step["urn"].rpartition("-")[0] not in unrestarted
        return ROLLS if in_place else BOOTS
    if kind in ("EC2NodeClass", "NodePool"):
        specs = [_input(step, side, "spec") for side in ("old", "new")]
        if not all(isinstance(spec, Mapping) for spec in specs):
            return BOOTS  # known after the update: it names new subnets
        (old, chosen), (new, allowed_now) = (_of_nodes(kind, spec) for spec in specs)
        drifts = (old != new or chosen - allowed_now) and _input(step, "new", "metadata", "name") not in kept
        return DRIFTS if drifts else AT_ONCE if (old, chosen) == (new, allowed_now) else BOOTS
    if kind == "LaunchTemplate" or (kind == "Group" and "mixedInstancesPolicy" in step["diffReasons"]):
        return BOOTS
    return AT_ONCE


def _input(step: Mapping[str, Any], side: str, *path: str) -> Any:
    value: Any = (step.get(f"{side}State") or {}).get("inputs", {})
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _differs(step: Mapping[str, Any], *path: str) -> bool:
    return bool(_input(step, "old", *path) != _input(step, "new", *path))


def _is_in_place(step: Mapping[str, Any]) -> bool:
    """Return whether a release stays a container, or a process; or is known after the update."""
    texts = [str(_input(step, side, "insecureValue")) for side in ("old", "new")]
    return not texts[1].startswith("{") or len({'"image":""' in text for text in texts}) == 1


def _keeps(step: Mapping[str, Any]) -> bool:
    """Return whether a pool lets no node go that drifts, as those of jobs do."""
    budgets = _input(step, "new", "spec", "disruption", "budgets") or ()
    return any(one["nodes"] == "0" and "Drifted" in one.get("reasons", ()) for one in budgets)


def _of_nodes(kind: str, spec: Mapping[str, Any]) -> tuple[Any, set[str]]:
    """Return what each node must be like, else it drifts, and the choices of which it must have one.

    Source: Karpenter, "Disruption", "Drift".
    """
    whole = dict(spec)
    if kind == "EC2NodeClass":
        return whole, {json.dumps(one) for one in whole.pop("subnetSelectorTerms", ())}
    template = dict(whole.get("template") or {})
    template["spec"] = dict(template.get("spec") or {})
    requirements = template["spec"].pop("requirements", ())
    return template, {f"{one['key']} {value}" for one in requirements for value in one["values"]}


def _listed(kinds: set[str]) -> str:
    names = [f"`{kind}`" for kind in sorted(kinds)]
    more = len(names) - _MAX_KINDS
    return ", ".join(names[:_MAX_KINDS]) + (f" and {more} more" if more > 0 else "")


def predicted(change: Change) -> tuple[str, str]:
    """Return the effect of a change by what the program declares, and when it reaches workers."""
    before = shipped(change.stack)
    with tempfile.TemporaryDirectory() as folder:
        file = variant(Path(folder), change.apply, ROOT / "stacks" / f"Pulumi.{change.stack}.yaml")
        try:
            result = apart(program.declared, "again", change.stack, file, before.declared, forcing)
        except pulumi.RunError:
            return REFUSED, ""
    steps = making.digest(change.stack, before, Run(change.stack, **result))["steps"]
    return effect(steps), reach(steps)


def rows(effects: Iterable[tuple[Change, tuple[str, str]]]) -> dict[Row, set[str]]:
    """Return the rows of the page with the stacks of each, without changes in place."""
    found: dict[Row, set[str]] = defaultdict(set)
    for change, (text, _) in effects:
        if text != IN_PLACE and not is_default(change):
            found[Row(change.key, how(change), text)].add(change.stack)
    return dict(found)


def reaches(effects: Iterable[tuple[Change, tuple[str, str]]]) -> Iterator[str]:
    """Yield the rows of the second table."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for change, (_, when) in effects:
        if when and not is_default(change):
            found[change.key, when].add(change.stack)
    for (key, when), stacks in sorted(found.items()):
        yield f"| `{key}` | {', '.join(sorted(stacks))} | {when} |"


def page(effects: Sequence[tuple[Change, tuple[str, str]]], every: int) -> str:
    listed_rows = rows(effects)
    head = _HEAD.format(
        every=every,
        total=len(changes()),
        allowed=len(allowed()),
        what="all" if every == 1 else f"every {every}th",
        count=len(effects),
        listed=len(listed_rows),
        compared=COMPARED,
        kinds=_MAX_KINDS,
    )
    lines = [
        f"| `{row.key}` | {row.how} | {', '.join(sorted(stacks))} | {row.effect} |"
        for row, stacks in sorted(
            listed_rows.items(), key=lambda item: (item[0].key, item[0].how, item[0].effect)
        )
    ]
    return head + "\n".join(lines) + "\n" + _REACHES + "\n".join(reaches(effects)) + "\n"


def listed() -> dict[tuple[str, str, str], set[str]]:
    """Return the effects on the page by key, change and stack."""
    found: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for key, change, stacks, text in re.findall(
        r"^\| `(.*?)` \| (.*?) \| (.*?) \| (.*) \|$", PAGE.read_text("utf-8").partition("## When")[0], re.M
    ):
        for stack in stacks.split(", "):
            found[key, change, stack].add(text)
    return dict(found)


def listed_reaches() -> dict[tuple[str, str], set[str]]:
    """Return when a change reaches workers, on the page, by key and stack."""
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    text = PAGE.read_text("utf-8").partition("## When")[2]
    for key, stacks, when in re.findall(r"^\| `(.*?)` \| (.*?) \| (.*) \|$", text, re.M):
        for stack in stacks.split(", "):
            found[key, stack].add(when)
    return dict(found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th change")
    every = parser.parse_args(arguments).every
    chosen = allowed()[::every]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        os.environ.setdefault(SHARED_VARIABLE, folder)
        effects = list(zip(chosen, pool.map(predicted, chosen), strict=True))
    sys.stdout.write(page(effects, every))
    return 0


if __name__ == "__main__":
    sys.exit(main())
