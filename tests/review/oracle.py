"""Whether a changed key ends workers: the truth that the review's verdict is compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import yaml

from tests.infra.declared import ROOT, Run
from tests.oracles.replacements import forcing
from tests.review.changes import Change

Truth: TypeAlias = Literal["nothing", "unknown", "ends"]
_ORDER: Final[tuple[Truth, ...]] = ("nothing", "unknown", "ends")
_HOLDERS: Final = frozenset(
    {
        *(
            "aws:autoscaling/group:Group",
            "aws:ec2/spotFleetRequest:SpotFleetRequest",
            "aws:eks/cluster:Cluster",
        ),
        *("kubernetes:apps/v1:Deployment", "kubernetes:batch/v1:Job"),
    }
)
"""Types in which workers run."""


@dataclass(frozen=True)
class Case:
    """A changed key: ``old`` and ``new`` value, its entry, and where the entries that it concerns run."""

    change: Change
    old: Any
    new: Any
    entry: dict[str, Any]
    runs_on: frozenset[str]

    @property
    def keeps_its_form(self) -> bool:
        """Whether the program starts a service's workers, in containers before and after or as processes."""
        forms = [
            ("container" if entry.get("image") else "process" if entry.get("command") else "")
            for entry in (self.entry, self.entry | {self.change.path[-1]: self.new})
        ]
        return bool(forms[0]) and forms[0] == forms[1]

    def lower(self) -> bool:
        return self.new is None or (self.old is not None and self.new < self.old)


Rule: TypeAlias = tuple[str, Truth | Callable[[Case], Truth]]


def _release(case: Case) -> Truth:
    if "kubernetes" in case.runs_on:
        return "ends"
    return "ends" if case.keeps_its_form else "nothing"


def _job(case: Case) -> Truth:
    """A Job's template is immutable; on instances the next instance takes what changed."""
    return "ends" if "kubernetes" in case.runs_on else "nothing"


def _target(case: Case) -> Truth:
    on_instances = "instances" in case.runs_on
    return "ends" if case.lower() and on_instances else "nothing"


def _maximum(case: Case) -> Truth:
    if case.new is None or case.new >= (case.old or 0):
        # Without the key the maximum is twice the target; a scaler may be above it.
        return "unknown" if case.new is None and "kubernetes" in case.runs_on else "nothing"
    if case.new < case.entry["capacity"]["target"]:
        return "ends"
    return "unknown" if "kubernetes" in case.runs_on and "scaling" in case.entry else "nothing"


def _types(case: Case) -> Truth:
    gone = set(case.old or ()) - set(case.new or ())
    if case.change.path[0] == "gpu-spot:sharedHosts":
        return "nothing"  # each host counts as one, whatever its type
    if gone and "kubernetes" in case.runs_on and case.change.path[0] == "gpu-spot:services":
        return "ends"  # nodes of a type that the pool no longer allows drift
    if case.entry["capacity"]["kind"] == "spot-fleet":
        return "ends"
    # A type that goes counts as one slot, so only those of one GPU are counted right.
    return "unknown" if gone and any(not re.search(r"\.\d?xlarge", name) for name in gone) else "nothing"


def _share(case: Case) -> Truth:
    return "unknown" if case.entry["capacity"]["kind"] == "spot-fleet" else "nothing"


def _stricter(case: Case) -> Truth:
    return "unknown" if case.lower() else "nothing"


def _quota(case: Case) -> Truth:
    default = 64
    return "unknown" if (case.new or default) < (case.old or default) else "nothing"


def _zones(case: Case) -> Truth:
    return "ends" if set(case.old or ()) - set(case.new or ()) else "nothing"


def _egress(case: Case) -> Truth:
    # Where there was no way out, one comes in addition; else connections take another.
    return "nothing" if case.old in (case.new, "none") else "unknown"


def _endpoints(case: Case) -> Truth:
    rank = ("none", "gateway", "interface")
    old = case.old or "gateway"
    return "nothing" if rank.index(case.new or "gateway") >= rank.index(old) else "unknown"


def _tags(case: Case) -> Truth:
    """Karpenter replaces nodes whose class has other tags."""
    return "ends" if case.change.stack == "eks" else "nothing"


def _key(case: Case) -> Truth:
    return "unknown" if case.change.stack in ("prod", "eks", "research-efs", "ocr") else "nothing"


def _scaling(case: Case) -> Truth:
    dry = (case.entry.get("scaling") or {}).get("dryRun") is True
    if case.change.path[-1] in ("scaling", "dryRun"):
        return "unknown"
    if case.change.path[-1] == "min" and "kubernetes" in case.runs_on:
        return "nothing" if case.new is not None and case.new > case.old else "unknown"
    if case.change.path[-1] == "waitSeconds" and "kubernetes" in case.runs_on:
        return "nothing"  # refused or without effect there
    return "nothing" if dry else "unknown"


def _disk(case: Case) -> Truth:
    on_pods = "kubernetes" in case.runs_on and case.change.path[0] == "gpu-spot:services"
    return "ends" if on_pods else "nothing"


RULES: Final[tuple[Rule, ...]] = (
    (r"network\.zones", _zones),
    (r"network\.egress", _egress),
    (r"network\.endpoints", _endpoints),
    (r"network\.flowLogs", "nothing"),
    (r"network\.extraEndpoints", lambda case: "unknown" if case.new is None else "nothing"),
    (r"(monitoring|logRetentionDays|protect|tensorboard)\b.*", "nothing"),
    (r"tags(\..*)?", _tags),
    (r"kmsKeyArn", _key),
    (r"identity\.(previews|deploys).*", "nothing"),
    (r"storage\.fileSystem\.infrequentAfterDays", "nothing"),
    (r"storage\.buckets\[\]\.(expireDays|oldVersionDays)", "nothing"),
    (r"storage\.repositories\[\]\.keepImages", "nothing"),
    (r"services\[\]\.(image|command|environment)", _release),
    (r"services\[\]\.(datasets|readOnlyRoot|reportsReadiness)", _job),
    (r"(services|sharedHosts)\[\]\.drainSeconds", "nothing"),
    (r"services\[\]\.queue\.(maintenance.*|callers|allowedSources|logs)", "nothing"),
    (r"services\[\]\.queue\.(max[DMR]\w+|visibilityTimeout|retentionDays)", "nothing"),
    # Of RabbitMQ: the queue is part of the release.
    (r"services\[\]\.queue\.(name|maxLength)", _release),
    (r"services\[\]\.health\.(graceSeconds|stallTimeoutSeconds)", _stricter),
    (r"services\[\]\.health\..*", "nothing"),
    (r"services\[\]\.scaling.*", _scaling),
    (r"training\[\]\.revision", _job),
    (r"training\[\]\.(command|environment|image|python.*|repository|submodules|artifacts)", _job),
    (r"training\[\]\.datasets(\[\].*)?", _job),
    (r"training\[\]\.(repositorySecret|throughputMib|initializationRateMib|volumeGiB)", _job),
    (r"training\[\]\.(snapshotEveryMinutes|stalledAfterMinutes)", "nothing"),
    (r"training\[\]\.(checkpoints|maxRestarts)", _job),
    (r"sharedHosts\[\]\.tenants\[\].*", "unknown"),
    (r".*\.capacity\.target", _target),
    (r".*\.capacity\.max", _maximum),
    (r".*\.capacity\.instanceTypes", _types),
    (r".*\.capacity\.(onDemandBase|spotPercentage)", _share),
    (r".*\.capacity\.(ami|onDemandCeiling|drill|maxPrice|allocationStrategy)", "nothing"),
    (r".*\.capacity\.rootVolumeGiB", _disk),
    (r".*\.capacity\.fallback\.warmInstances", "nothing"),
    (r"kubernetes\.nodeImage", "ends"),
    (r"kubernetes\.quotaGpus", _quota),
    (r"kubernetes\.create\.(access\[\].*|publicCidrs|allowedSources|logs)", "nothing"),
    (r"kubernetes\.(create\.)?own\.systemType|kubernetes\.create\.(systemType|systemNodes)", "nothing"),
)
"""By the key's place in a stack file; the first row that fits tells."""


def _lower(case: Case) -> str:
    return "watch" if case.new is not None and (case.old is None or case.new < case.old) else ""


def _higher(case: Case) -> str:
    return "watch" if case.new is None or (case.old is not None and case.new > case.old) else ""


SECOND_AXIS: Final[tuple[tuple[str, Callable[[Case], str]], ...]] = (
    (r"storage\.buckets\[\]\.(expireDays|oldVersionDays)", _lower),
    (r"storage\.repositories\[\]\.keepImages|logRetentionDays", _lower),
    (r"services\[\]\.queue\.retentionDays", _lower),
    (r"monitoring\.monthlyBudgetUsd", _higher),
    (r"protect", lambda case: "watch" if case.new is False else ""),
    (r"identity\.previews", lambda case: "watch" if case.new else ""),
    (r"storage\.(buckets|repositories|fileSystem)(\[\])?", lambda case: "watch" if case.new is None else ""),
    (r"training\[\]\.(revision|command|environment)", lambda _: "nothing"),
    (r".*\.capacity\.(target|max|instanceTypes|rootVolumeGiB|maxPrice|spotPercentage)", lambda _: "nothing"),
    (r"services\[\]\.(image|command|environment|drainSeconds)", lambda _: "nothing"),
)
"""What a key means for data, reach, alarms and control: ``watch``, ``nothing``, or not judged here."""


def second_axis_truth(change: Change, before: Run, after: Run) -> str:
    """Return what a change means beside workers, by its key alone."""
    if not any(_different(before, after)):
        return "nothing"
    case = _case(change)
    return next((rule(case) for pattern, rule in SECOND_AXIS if re.fullmatch(pattern, change.key)), "")


def truth(change: Change, before: Run, after: Run) -> Truth:
    """Return whether a change ends workers that run."""
    if not any(_different(before, after)):
        return "nothing"
    by_key = _by_key(_case(change))
    return "ends" if _ends_a_holder(before, after) else by_key


def _case(change: Change) -> Case:
    config = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{change.stack}.yaml").read_text("utf-8"))["config"]
    place: Any = config
    for part in change.path[:-1]:
        place = place.get(part, {}) if isinstance(place, dict) else place[part]
    last = change.path[-1]
    old = place[last] if isinstance(last, int) else place.get(last)
    entries = [item for item in _entries(config) if _holds(item, place)]
    runs_on = frozenset(item.get("runsOn", "instances") for item in entries)
    return Case(change, old, change.value, entries[0] if entries else {}, runs_on)


def _entries(config: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for section in ("gpu-spot:services", "gpu-spot:training", "gpu-spot:sharedHosts"):
        yield from config.get(section) or ()


def _holds(entry: Any, place: Any) -> bool:
    """Return whether an entry has a place in it; a capacity may be an alias that several entries share."""
    if entry is place:
        return True
    values = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
    return any(_holds(value, place) for value in values)


def _by_key(case: Case) -> Truth:
    for pattern, rule in RULES:
        if re.fullmatch(pattern, case.change.key):
            return rule if isinstance(rule, str) else rule(case)
    return "unknown"


def _ends_a_holder(before: Run, after: Run) -> bool:
    new = {(item["type"], item["name"]): item["inputs"] for item in after.declared if item["custom"]}
    for item in before.declared:
        if item["type"] not in _HOLDERS:
            continue
        inputs = new.get((item["type"], item["name"]))
        kept = set(item["inputs"]) - set(item["ignore_changes"])
        if inputs is None or forcing(
            item["type"],
            {key: item["inputs"][key] for key in kept},
            {key: value for key, value in inputs.items() if key not in item["ignore_changes"]},
        ):
            return True
    return False


def _different(before: Run, after: Run) -> Iterator[bool]:
    old, new = (
        {
            (item["type"], item["name"]): (item["inputs"], item["protect"])
            for item in run.declared
            if item["custom"]
        }
        for run in (before, after)
    )
    yield from (old.get(key) != new.get(key) for key in old.keys() | new.keys())


def is_reassuring(verdict: str, fact: Truth) -> bool:
    """Return whether a verdict says that nothing ends where something ends, or may."""
    return verdict == "nothing" and fact != "nothing"


def is_false_alarm(verdict: str, fact: Truth) -> bool:
    """Return whether a verdict says that workers end, or may, where nothing does."""
    return verdict != "nothing" and fact == "nothing"
