"""A team's year: changes of a stack one after another, under the engine, against an AWS that refuses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml

from gpu_spot.declared import stackfile
from gpu_spot.preflight.checks import monthly_cost
from gpu_spot.preflight.stack import declare
from gpu_spot.review import preview
from gpu_spot.review.effects.consequences import Severity
from gpu_spot.review.environments import ReviewedEnvironment, review_environments
from gpu_spot.review.verdict import ReviewVerdict, verdict_of
from tests.apart import apart
from tests.engine.conftest import YEAR_PROPERTY
from tests.engine.outcomes import ENDS, ROLLS, TIMES, reaches_of
from tests.engine.workspace import Run, Workspace

BILLED: Final = {
    "NAT gateways": "NatGateway",
    "alarms": "MetricAlarm",
    "dashboards": "Dashboard",
    "secrets": "Secret",
    "load balancers": "LoadBalancer",
    "EKS control planes": "Cluster",
}
"""The bill's lines that are a number of resources."""
DATA: Final = frozenset(
    {"AccessPoint", "Bucket", "Broker", "Eip", "FileSystem", "Queue", "Repository", "Table"}
)
"""What holds data, and addresses, which others have in allow lists: the review names each that goes."""
RETAINED: Final = frozenset({"BucketObjectv2", "SecretVersion"})
"""What stays on purpose: an archive goes with its bucket, an old version of a secret with its secret."""

_MAX_STATE_BYTES: Final = 1_000_000
"""Of dev, as exported: a backend writes the state at each step of an update."""


class Step(NamedTuple):
    """A change of keys, by path; ``refused`` is a part of the sentence that ends the preview."""

    title: str
    keys: Mapping[str, Any]
    refused: str = ""


def steps(stack: str) -> tuple[Step, ...]:
    rows = yaml.safe_load(Path(__file__).with_name("year.yaml").read_text("utf-8"))[stack]
    return tuple(Step(row["change"], row["set"], row.get("refused", "")) for row in rows)


def put(config: dict[str, Any], path: str, value: Any) -> None:
    """Set a key; an element of a list is addressed by its name."""
    place: Any = config
    first, *rest = path.split(".")
    parts = [f"gpu-spot:{first}", *rest]
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if isinstance(place, list):
            index = next((i for i, one in enumerate(place) if one["name"] == part), len(place))
            if last:
                place[index : index + 1] = [] if value is None else [{**value, "name": part}]
                return
            place = place[index]
        elif not last:
            place = place.setdefault(part, [] if part in ("gpu-spot:services", "gpu-spot:training") else {})
        elif value is None:
            place.pop(part, None)
        else:
            place[part] = value


def change(config: dict[str, Any], keys: Mapping[str, Any]) -> None:
    for path, value in keys.items():
        put(config, path, value)


def kind(urn: str) -> str:
    return urn.split("::")[2].rpartition(":")[2]


def existing(workspace: Workspace, *kinds: str) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in workspace.world.exists() if kind(one["urn"]) in kinds}


def running(workspace: Workspace) -> dict[str, list[str]]:
    """Return the ids of the instances by zone."""
    path = workspace.world.folder / "instances.json"
    found: dict[str, list[str]] = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return found


def play_controller(workspace: Workspace, before: Mapping[str, str]) -> tuple[int, int]:
    """Let each group have its target, in its zones and with the addresses of its subnets.

    Returns how many workers ended because the target is lower, and how many restart because the release was
    ``before`` another one; not those that moved.
    """
    subnets = {key: one["inputs"] for key, one in existing(workspace, "Subnet").items()}
    targets, after_ = parameters(workspace, "target"), parameters(workspace, "release")
    health, present, after = parameters(workspace, "health"), running(workspace), dict[str, list[str]]()
    ended = restarted = 0
    for owner, one in existing(workspace, "Group", "SpotFleetRequest").items():
        given = one["inputs"].get("tags", ())
        tags = given if isinstance(given, dict) else {tag["key"]: tag["value"] for tag in given}
        if tags.get("gpu-spot:side") != "primary":
            continue
        named = [subnet for key, subnet in subnets.items() if json.dumps(key) in json.dumps(one["inputs"])]
        letters = sorted(subnet["availabilityZone"] for subnet in named)
        address = "public" if any(subnet.get("mapPublicIpOnLaunch") for subnet in named) else "private"
        mine = [name for names in present.values() for name in names if name.startswith(f"{owner}/")]
        group = tags["gpu-spot:group"]
        target = int(targets[group])
        if restarts(before.get(group), after_.get(group), health.get(group)):
            restarted += len(mine)
        else:
            ended += max(0, len(mine) - target)
        for number in range(target):
            after.setdefault(letters[number % len(letters)], []).append(f"{owner}/{address}-{number}")
    workspace.world.put_instances(after)
    return ended, restarted


def restarts(before: str | None, after: str | None, health: str | None) -> bool:
    """Return whether workers restart with a release, as docs/services.md has it ("A new release")."""
    if before in (None, after) or after is None or health is None:
        return False  # a first release is for new instances
    images = {bool(json.loads(release)["image"]) for release in (before, after) if release}
    return len(images) == 1 and json.loads(health)["mostAtOnce"] > 0


def parameters(workspace: Workspace, leaf: str) -> dict[str, str]:
    """Return the values of the groups' parameters of a name, by group."""
    return {
        one["inputs"]["tags"]["gpu-spot:group"]: one["inputs"]["insecureValue"]
        for one in existing(workspace, "Parameter").values()
        if one["urn"].endswith(f"-{leaf}")
    }


def billed(workspace: Workspace) -> Counter[str]:
    """Return how many resources of each billed kind exist."""
    kinds = (kind(one["urn"]) for one in workspace.world.exists())
    return Counter(one for one in kinds if one in BILLED.values())


def bill(folder: Path, stack: str) -> dict[str, float]:
    """Return the counts of the bill's lines, as a forecast has them."""
    lines = monthly_cost.lines(declare(stackfile.load(folder, stack)))
    return {line.item: line.count for line in lines if line.item in BILLED}


class Outcome(NamedTuple):
    """What a change did: calls, the verdict, workers that ended, when it reaches them, seconds, mistakes."""

    result: str
    seconds: str
    verdict: str = ""
    ended: int = 0
    reach: str = ""
    wrong: tuple[str, ...] = ()


def play(workspace: Workspace, step: Step) -> Outcome:
    """Make one change, and say what was wrong with it."""
    file = workspace.project / "stacks" / f"Pulumi.{workspace.stack}.yaml"
    before = file.read_text("utf-8")
    workspace.edit(lambda config: change(config, step.keys))
    first = workspace.preview(code=None)
    seconds = f"{first.seconds:.0f}"
    if first.code or step.refused:
        file.write_text(before, "utf-8")
        is_refused = first.code and step.refused and step.refused in first.output
        wrong = () if is_refused and "unhandled exception" not in first.output else (first.output[-2000:],)
        return Outcome("refused", seconds, wrong=wrong)
    [environment] = review_environments([preview.read(workspace.stack, json.dumps(first.document), ())], {})
    verdict = verdict_of([environment])
    data, releases, bills = existing(workspace, *DATA), parameters(workspace, "release"), billed(workspace)
    whole = {(one["urn"], one["id"]): one["inputs"] for one in workspace.world.exists()}
    workers, calls = sum(map(len, running(workspace).values())), len(workspace.world.journal())
    up = workspace.up(code=None)
    if up.code:
        return Outcome("failed", f"{seconds}+{up.seconds:.0f}", wrong=(up.output[-3000:],))
    again = workspace.preview(code=None)
    at_once = workers - sum(map(len, running(workspace).values()))
    later, restarted = play_controller(workspace, releases)
    ended, kept = at_once + later + restarted, "until they have" in first.output
    done = workspace.world.journal()[calls:]
    counts = Counter(one["call"] for one in done)
    reached = reaches_of(done_steps(done, whole, workspace.world.exists()))
    return Outcome(
        ", ".join(f"{count} {call}d" for call, count in sorted(counts.items())) or "nothing",
        f"{seconds}+{up.seconds:.0f}+{again.seconds:.0f}",
        verdict.sentence,
        ended,
        next((when for when in TIMES if when in reached), ""),
        (
            *_not_empty(again),
            *_not_as_listed(reaches_of(first.document["steps"]), reached, at_once, restarted),
            *_not_as_said(verdict, ended),
            *_lost(workspace, data, environment),
            *(_not_as_forecast(workspace, kept=kept) if billed(workspace) != bills else ()),
        ),
    )


def _not_empty(again: Run) -> Iterator[str]:
    if again.code:
        yield again.output[-1000:]
    for step in again.document.get("steps", ()):
        if step["op"] not in ("same", "read"):
            yield f"second preview: {step['op']} {step['urn']} {step.get('diffReasons')}"


def done_steps(
    calls: Sequence[Mapping[str, str]],
    before: Mapping[tuple[str, str], Mapping[str, Any]],
    after: Sequence[Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Yield what the providers were called for as steps, with the inputs that were and that are."""
    now = {(one["urn"], one["id"]): one["inputs"] for one in after}
    deleted = {call["urn"] for call in calls if call["call"] == "delete"}
    for call in calls:
        key = call["urn"], call["id"]
        old, new = before.get(key, {}), now.get(key, {})
        replaced = call["call"] == "create" and call["urn"] in deleted
        yield {
            "op": "create-replacement" if replaced else call["call"],
            "urn": call["urn"],
            "diffReasons": [name for name in old.keys() | new.keys() if old.get(name) != new.get(name)],
            "oldState": {"inputs": old},
            "newState": {"inputs": new},
        }
    # What did not change says how what changed is taken.
    for (urn, _), inputs in now.items():
        yield {"op": "same", "urn": urn, "newState": {"inputs": inputs}}


def _not_as_listed(said: set[str], reached: set[str], at_once: int, restarted: int) -> Iterator[str]:
    """Compare the times by the preview, as docs/changes.md lists them, with those by what was done."""
    if said != reached:
        yield f"reaches workers: {sorted(said)} by the preview, {sorted(reached)} by what was done"
    if (at_once and ENDS not in said) or (restarted and ROLLS not in said):
        yield f"{at_once} workers ended at the up and {restarted} restarted, but it reaches: {sorted(said)}"


def _not_as_said(verdict: ReviewVerdict, ended: int) -> Iterator[str]:
    exact = verdict.is_exact and not verdict.may_be_more
    said = verdict.workers if verdict.outcome == "ends" else 0
    if verdict.outcome != "unknown" and (ended < said or (exact and ended != said)):
        yield f"{ended} workers ended, but: {verdict.sentence}"


def _lost(
    workspace: Workspace, before: Mapping[str, dict[str, Any]], environment: ReviewedEnvironment
) -> Iterator[str]:
    said = [one for one in environment.meaning.effects if one.severity >= Severity.WATCH]
    for lost in before.keys() - existing(workspace, *DATA).keys():
        name = before[lost]["urn"].rpartition("::")[2]
        if not any(name in f"{one.words} {one.details}" for one in said):
            yield f"{name} is gone, and the review does not say so"


def _not_as_forecast(workspace: Workspace, *, kept: bool) -> Iterator[str]:
    counted = billed(workspace)
    for item, count in apart(bill, workspace.project, workspace.stack).items():
        present = counted[BILLED[item]]
        if present != count and not (kept and present > count):
            yield f"{item}: {present} exist, the forecast has {count:g}"


def played(workspace: Workspace, year: Sequence[Step], record_property: Any, since: int = 0) -> list[str]:
    """Play all ``since`` one, note each for the table, destroy the stack, and return the mistakes."""
    wrong = []
    for number, step in [*enumerate(year)][since:]:
        outcome = play(workspace, step)
        row = (outcome.result, outcome.verdict, str(outcome.ended), outcome.reach, outcome.seconds)
        record_property(YEAR_PROPERTY, (workspace.stack, str(number), step.title, *row))
        with (workspace.folder / "year.jsonl").open("a", encoding="utf-8") as rows:  # it takes an hour
            rows.write(json.dumps([number, step.title, *row, *outcome.wrong]) + "\n")
        wrong += [f"{number} {step.title}: {text}" for text in outcome.wrong]
        assert outcome.result != "failed", wrong
    workspace.world.put_instances({})
    workspace.destroy()
    assert workspace.resources() == []
    assert {kind(one["urn"]) for one in workspace.world.exists()} <= RETAINED
    return wrong


def test_a_queue_goes_after_its_last_worker(workspace: Workspace, record_property: Any) -> None:
    workspace.up()
    assert played(workspace, steps("queues"), record_property) == []


@pytest.mark.parametrize("stack", ["dev", "eks"])
def test_a_year(stack: str, workspace: Workspace, record_property: Any, pytestconfig: pytest.Config) -> None:
    since = pytestconfig.getoption("--since")
    for step in steps(stack)[:since]:
        if not step.refused:
            workspace.edit(lambda config, keys=step.keys: change(config, keys))
    workspace.up()
    if stack == "dev" and not since:
        assert len(workspace.run("stack", "export").output) < _MAX_STATE_BYTES
    play_controller(workspace, {})
    assert played(workspace, steps(stack), record_property, since) == []
