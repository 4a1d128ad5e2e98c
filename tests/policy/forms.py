"""Good stack files: the options of the schema in pairs, in each sample stack; policies must stop none."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import yaml

from infra.settings import SettingsError, load_settings
from policy.evaluation import Violation, settings_of
from tests.infra.declared import ROOT, Run
from tests.infra.test_extremes import BASE
from tests.infra.test_network import EXISTING
from tests.review.changes import STACKS

_OF_A_STACK: Final = frozenset(
    {"budget-and-alarm", "capacity-pools", "on-demand-ceiling", "protected", "tags"}
)
"""Rules by whose settings an environment asks for more, or for less cost."""

Option = Callable[[dict[str, Any]], None]

_ENTRIES: Final = ("services", "training", "sharedHosts")
_IMAGE: Final = "123456789012.dkr.ecr.us-west-2.amazonaws.com/work@sha256:" + "9" * 64
_CAPACITY: Final = {
    **{"kind": "mixed-asg", "target": 1, "max": 2},
    "instanceTypes": ["g6.xlarge", "g5.xlarge", "g4dn.xlarge", "g6e.xlarge"],
}
_JOB: Final[dict[str, Any]] = {
    "repository": "https://git.example.org/team/training",
    **{"revision": "a" * 40, "command": ["train"], "capacity": _CAPACITY},
}


def _local(value: Any) -> Any:
    """Return a value of the largest stack file with this region, its zones, and resources that are named."""
    text = json.dumps(value)
    for old, new in (
        ("us-east-1", "us-west-2"),
        ("snap-00000000", "snap-0123456789abcdef0"),
        ('"resources": ["*"]', '"resources": ["arn:aws:s3:::data/*"]'),
    ):
        text = text.replace(old, new)
    return json.loads(text)


def _sets(**values: Any) -> Option:
    """Return the option that sets keys of the file, in what is there if both are objects."""

    def option(config: dict[str, Any]) -> None:
        for key, value in copy.deepcopy(values).items():
            place = f"gpu-spot:{key}"
            both = isinstance(value, dict) and isinstance(config.get(place), dict)
            config[place] = {**config[place], **value} if both else value

    return option


def _adds(section: str, *entries: Mapping[str, Any]) -> Option:
    """Return the option that adds entries, which are named by it."""

    def option(config: dict[str, Any]) -> None:
        place = f"gpu-spot:{section}"
        config[place] = [*config.get(place, ()), *copy.deepcopy(entries)]

    return option


def _network(**values: Any) -> Option:
    return _sets(network=values)


def _existing(config: dict[str, Any]) -> None:
    network = config["gpu-spot:network"]
    config["gpu-spot:network"] = {
        **EXISTING,
        **{key: network[key] for key in ("endpoints", "extraEndpoints") if key in network},
    }


def _stored(config: dict[str, Any]) -> None:
    storage = config.setdefault("gpu-spot:storage", {})
    for kind in ("buckets", "repositories"):
        storage[kind] = [*storage.get(kind, ()), {"name": "more"}]
    points = storage.setdefault("fileSystem", {}).setdefault("accessPoints", [])
    if "results" not in [point["name"] for point in points]:
        points.append({"name": "results", "path": "/results"})


def _each(config: dict[str, Any], **values: Any) -> None:
    for section in _ENTRIES:
        for entry in config.get(f"gpu-spot:{section}", ()):
            entry["capacity"] = {**entry["capacity"], **values}


def _options() -> Iterator[tuple[str, Option]]:
    yield from ((f"egress {value}", _network(egress=value)) for value in ("public", "nat-gateway"))
    yield "egress none", _network(egress="none", endpoints="interface")
    yield "endpoints interface", _network(endpoints="interface")
    yield "flow logs", _network(flowLogs="all")
    yield "existing VPC", _existing
    for key in ("kmsKeyArn", "logRetentionDays", "monitoring", "tags", "identity"):
        yield key, _sets(**{key: _local(BASE[f"gpu-spot:{key}"])})
    yield "protect", _sets(protect=True)
    yield "storage", _stored
    for section in _ENTRIES:
        for entry in _local(BASE[f"gpu-spot:{section}"]):
            if entry["name"] not in ("chosen", "shares"):
                yield entry["name"], _adds(section, entry)
    chosen, shares = (_local(BASE["gpu-spot:services"][place]) for place in (2, 6))
    yield "two of one broker", _adds("services", {**chosen, "name": "chosen"}, shares)
    for deployment in ("single", "cluster"):
        queue = {"kind": "rabbitmq", "deployment": deployment, "instanceType": "mq.m7g.large"}
        queue["allowedSources"] = ["10.0.0.0/8"]
        service = {"name": f"broker-{deployment}", "capacity": _CAPACITY, "command": ["x"], "queue": queue}
        yield f"broker {deployment}", _adds("services", service)
    volume = {**_JOB, "name": "kept", "volumeGiB": 50, "checkpoints": "volume"}
    yield "job with a volume", _adds("training", volume)
    yield "job with a dataset", _adds("training", {**volume, "name": "fed", "dataset": "s3://data/set/"})
    nightly = {**volume, "name": "nightly", "schedule": {"at": "cron(0 3 * * ? *)"}}
    yield "job with a schedule", _adds("training", nightly)
    capacity = {**_CAPACITY, "target": 2, "max": 4}
    shared = {**_JOB, "volumeGiB": 0, "checkpoints": "results"}
    nodes = {"min": 2, "max": 2, "zone": "us-west-2a"}
    several = {**shared, "name": "many", "nodes": nodes, "capacity": capacity}
    yield "job on two nodes", lambda config: (_stored(config), _adds("training", several)(config))
    yield "job with values", _adds("training", {**volume, "name": "tried", "matrix": {"LR": [1, 2]}})
    yield "no fallback", lambda config: _each(config, fallback={"enabled": False})
    yield "On-Demand base", lambda config: _each(config, onDemandBase=1)
    yield "warm pool", lambda config: _each(config, fallback={"enabled": True, "warmInstances": 1})
    kubernetes = {"cluster": "c", "nodeRole": "r", "nodeImage": "al2023@v20261101"}
    pod = {"name": "pods", "runsOn": "kubernetes", "image": _IMAGE, "command": ["x"], "capacity": _CAPACITY}
    task = {**shared, "name": "task", "runsOn": "kubernetes", "image": _IMAGE}

    def in_cluster(section: str, entry: Mapping[str, Any]) -> Option:
        def option(config: dict[str, Any]) -> None:
            config.setdefault("gpu-spot:kubernetes", kubernetes)
            _stored(config)
            _adds(section, entry)(config)

        return option

    yield "pods in an existing cluster", in_cluster("services", pod)
    yield "pods with a queue", in_cluster("services", {**pod, "name": "asked-pods", "queue": {"kind": "sqs"}})
    yield "job in an existing cluster", in_cluster("training", task)
    role = {"role": "arn:aws:iam::123456789012:role/deploy", "accessPolicy": "admin"}
    created = {"cluster": "gpu-spot-own", "create": {"publicCidrs": ["203.0.113.16/28"], "access": [role]}}
    own = {"cluster": "gpu-spot-own", "nodeImage": kubernetes["nodeImage"], **created}

    def in_own_cluster(config: dict[str, Any]) -> None:
        config["gpu-spot:network"]["egress"] = "nat-gateway"
        config.setdefault("gpu-spot:kubernetes", own)
        _adds("services", {**pod, "name": "own-pods"})(config)

    yield "pods in a cluster of the stack", in_own_cluster


@dataclass(frozen=True)
class GoodForm:
    """A sample stack with two options."""

    stack: str
    options: tuple[str, str]

    @property
    def title(self) -> str:
        return f"{self.stack} with {' and '.join(self.options)}"

    def apply(self, config: dict[str, Any]) -> None:
        """Set the options; an empty key is as one that is not there."""
        for key in [key for key, value in config.items() if not value]:
            del config[key]
        for name in self.options:
            OPTIONS[name](config)


OPTIONS: Final[Mapping[str, Option]] = dict(_options())


@cache
def good_forms(stack: str) -> tuple[GoodForm, ...]:
    """Return the pairs of a stack that the schema admits: each option with one before and one behind it.

    How far behind differs from stack to stack, so most pairs are tried once.
    """
    config = yaml.safe_load((ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text("utf-8"))["config"]
    options, step = list(OPTIONS), 1 + 2 * STACKS.index(stack)
    pairs = zip(options, (*options[step:], *options[:step]), strict=True)
    forms = (GoodForm(stack, pair) for pair in pairs)
    return tuple(form for form in forms if _is_valid(copy.deepcopy(config), form))


def _is_valid(config: dict[str, Any], form: GoodForm) -> bool:
    form.apply(config)
    try:
        load_settings(config)
    except SettingsError:
        return False
    return True


def own_rules(stack: str) -> frozenset[str]:
    """Return the rules that a stack's own settings make strict: they ask for what a stack file may lack."""
    return _OF_A_STACK & settings_of(stack).keys()


def false_stops(stack: str, found: Iterable[Violation]) -> list[Violation]:
    """Return the mandatory violations of rules that are no choice of the stack's settings."""
    return [one for one in found if one.level == "mandatory" and one.rule not in own_rules(stack)]


def fingerprint(run: Run) -> str:
    """Return what tells apart two programs that declare different resources."""
    declared = sorted(
        json.dumps([one["type"], one["name"], one["inputs"], one["protect"]], sort_keys=True)
        for one in run.declared
    )
    return hashlib.sha256("".join(declared).encode()).hexdigest()
