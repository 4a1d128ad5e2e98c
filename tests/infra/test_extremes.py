"""Each bound of the schema: at it the whole program deploys, one beyond it is refused by its key."""

from __future__ import annotations

import json
import re
import warnings
from typing import Any

import pytest

from gpu_spot.declared.stackfile import StackConfig
from infra.settings import SettingsError, load_settings
from pulumi_on_moto import deploy
from pulumi_on_moto.emulator import sandbox
from pulumi_on_moto.running.clock import simulated
from rehearsal.commands.deployed import make_given
from tests.apart import apart
from tests.e2e.world import REPOSITORY, START
from tests.infra.bounds import EXTREMES, ZONES, Bound, Extreme, bounds
from tests.sentences import faults
from tests.soak import sample

BOUNDS = bounds()
CASES = [(bound, extreme) for bound in BOUNDS for extreme in EXTREMES[bound.kind]]

MANAGED = {
    "kind": "mixed-asg",
    "target": 1,
    "max": 2,
    "fallback": {"warmInstances": 1},
    "ami": "ami-00000000",
    "amis": {"g5": "ami-00000000"},
    "instanceTypes": ["g5.xlarge"],
    "maxPrice": 1,
    "onDemandCeiling": 1,
}
DATASET = {"snapshot": "snap-00000000", "path": "/data/a", "initializationRateMib": 100}
RANGE = {"min": 1, "max": 100_000}
CHOSEN = {
    "kind": "mixed-asg",
    "target": 1,
    "instanceRequirements": dict.fromkeys(
        ("accelerators", "acceleratorMemoryGiB", "vcpus", "memoryGiB"), RANGE
    ),
    "fallback": {"reservation": {"source": "cr-00000000", "count": 1}},
}
ASKED = {
    "kind": "spot-fleet",
    "fleetType": "request",
    "target": 1,
    "instanceTypes": ["g5.xlarge"],
    "unit": "gpus",
}
MEASURED = {"group": "g", "pattern": "p", "seconds": "$t", "secondsPattern": "[t]"}
STATED = {"group": "g", "pattern": "p", "secondsPerRequest": 1}
DATED = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["g5.xlarge"]}
BLOCK = {"reservation": "cr-00000000", "instanceType": "g5.48xlarge", "zone": ZONES[0]}
OWN = {
    "kind": "rabbitmq",
    "calls": ["shares"],
    "instanceType": "mq.m7g.large",
    "allowedSources": ["10.0.0.0/8"],
    "maintenance": {},
}
EXISTING_QUEUE = {"kind": "rabbitmq", "existing": {"secret": "s"}}
SHARED_BROKER = {"kind": "rabbitmq", "existing": {"brokerOf": "chosen"}}
EXISTING_SQS = {"kind": "sqs", "existing": {"queue": "q", "deadLetters": "d"}}
ANCHOR = "arn:aws:rolesanywhere:us-east-1:123456789012:trust-anchor/00000000-0000-0000-0000-000000000000"
HTTP_SOURCE = {"source": "http"}
HOSTS = {
    "trustAnchor": ANCHOR,
    "organizationalUnit": "u",
    "hosts": [{"name": "g", "gpus": 1, "principals": ["arn:aws:iam::123456789012:role/p"]}],
}
TENANT = {
    **{"name": "t", "uid": 2001, "cpus": 2, "memoryGiB": 4, "image": f"worker@sha256:{'0' * 64}"},
    **{"hostPort": 8001, "containerPort": 80, "datasetGiB": 1, "environment": {"A": "b"}},
}
WHOLE = {"kind": "mixed-asg", "target": 1, "instanceTypes": ["p6-b300.48xlarge"]}
ADDRESS = {
    **{"port": 8000, "allowedSources": ["10.0.0.0/8"], "retryPaths": ["/a"], "proxies": {}},
    "certificateArn": "arn:aws:acm:us-east-1:123456789012:certificate/00000000-0000-0000-0000-000000000000",
    **{"domain": "a.co", "hostedZoneId": "Z0"},
}
JOB = {"repository": "https://example.com/a", "revision": "0" * 40, "command": ["train"]}
PYTHON = {"version": "3.12", "requirements": "r.txt"}
ACCESS = {
    "secrets": {"S": "s"},
    "permissions": [
        {"actions": ["s3:GetObject"], "resources": ["*"], "conditions": {"Bool": {"a:b": "true"}}}
    ],
    "policyArns": ["arn:aws:iam::123456789012:policy/p"],
}
IMAGE = f"worker@sha256:{'0' * 64}"
POLICY = "arn:aws:iam::123456789012:policy/p"
# One of everything that may stand in a stack file.
BASE: dict[str, Any] = {
    "aws:region": "us-east-1",
    "gpu-spot:network": {
        "cidr": "10.20.0.0/16",
        "zones": list(ZONES[:2]),
        "endpoints": "interface",
        "extraEndpoints": ["sts"],
    },
    "gpu-spot:services": [
        {
            "name": "serve",
            "capacity": MANAGED,
            "datasets": [DATASET],
            "image": IMAGE,
            "environment": {"A": "b"},
            **ACCESS,
        },
        {"name": "asked", "capacity": ASKED},
        {"name": "chosen", "capacity": CHOSEN, "command": ["x"], "queue": OWN},
        {
            **{"name": "told", "capacity": DATED, "command": ["x"], "queue": EXISTING_QUEUE},
            "onPremises": HOSTS,
            "scaling": {"floors": [{"min": 1, "from": "08:00", "to": "18:00", "days": ["mon"]}]},
        },
        {"name": "sqs", "capacity": DATED, "command": ["x"], "queue": {"kind": "sqs"}},
        {"name": "known", "capacity": DATED, "command": ["x"], "queue": EXISTING_SQS},
        {"name": "shares", "capacity": DATED, "command": ["x"], "queue": SHARED_BROKER},
        {"name": "logged", "capacity": DATED, "scaling": {"source": "log", "log": MEASURED}},
        {"name": "stated", "capacity": DATED, "scaling": {"source": "log", "log": STATED}},
        {"name": "web", "capacity": DATED, "command": ["x"], "http": ADDRESS, "scaling": HTTP_SOURCE},
    ],
    "gpu-spot:training": [
        {
            **{"name": "job", "capacity": MANAGED, **JOB, "datasets": [DATASET], "environment": {"A": "b"}},
            **ACCESS,
            "prepare": {"version": "1", "command": ["x"], "instanceType": "m7i.large"},
        },
        {"name": "choosy", "capacity": CHOSEN, **JOB, "python": PYTHON, "matrix": {"B": ["c"]}},
        {"name": "dated", "capacity": DATED, **JOB, "capacityBlock": BLOCK},
    ],
    "gpu-spot:sharedHosts": [
        {
            **{"name": "host", "capacity": {**WHOLE, "fallback": {"warmInstances": 0}}},
            **{"allowedSources": ["10.0.0.0/8"], "tenants": [TENANT]},
        }
    ],
    "gpu-spot:storage": {
        "fileSystem": {"accessPoints": [{"name": "a", "path": "/a"}]},
        "buckets": [{"name": "a", "expireDays": 1}],
        "repositories": [{"name": "a"}],
    },
    "gpu-spot:tensorboard": {"accessPoint": "a"},
    "gpu-spot:kubernetes": {
        "cluster": "c",
        "nodeRole": "r",
        "nodeImage": "al2023@v1",
        "checkoutImage": IMAGE,
    },
    "gpu-spot:monitoring": {"email": "a@b.c", "monthlyBudgetUsd": 1},
    "gpu-spot:identity": {
        "permissionsBoundary": POLICY,
        "previews": {
            **{"repository": "o@1/r@2", "environment": "p", "stateBucket": "bbb"},
            "stateKmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000",
        },
        "deploys": {
            **{"policies": [POLICY], "environment": "e", "branch": "b", "driftPolicies": [POLICY]},
            "driftEnvironment": "d",
        },
    },
    "gpu-spot:tags": {"a": "b"},
    "gpu-spot:logRetentionDays": 30,
    "gpu-spot:kmsKeyArn": "arn:aws:kms:us-east-1:123456789012:key/00000000-0000-0000-0000-000000000000",
}
EXISTING = {
    "vpcId": "vpc-00000000",
    "subnets": {ZONES[0]: "subnet-00000000", ZONES[1]: "subnet-11111111"},
    "securityGroups": ["sg-00000000"],
}
OF_EXISTING = ("network.vpcId", "network.subnets", "network.securityGroups", "services[0].http.subnets")
# Other settings that an extreme requires.
ALSO_REQUIRED: dict[Extreme, dict[str, Any]] = {
    "least": {"services[0].capacity.fallback.enabled": False, "training[0].capacity.fallback.enabled": False},
    "most": {},
}
# Extremes that cannot stand in a stack file, or not there: (path, kind) by extreme, and why.
_NEITHER: dict[str, str] = {
    "training[0].capacity.target": "a job has one instance",
    "training[0].budget": "not every type has a known price; tests/infra/refusals.yaml has it",
    "services[0].queue<sqs>.existing.account": "that of the stack; tests/infra/test_sqs.py",
    "services[0].http.subnets[0]": "in an existing network; tests/infra/test_http.py has them",
    "services[0].queue.existing.brokerOf": "a service's; infra/test_queue_kinds.py",
    "services[0].queue.calls[0]": "services of one broker; infra/test_queue_kinds.py",
    "region": "another region has other zones",
}
APART: dict[tuple[str, Extreme], str] = {
    **{(path, extreme): why for path, why in _NEITHER.items() for extreme in ("least", "most")},
    ("training[0].capacity.onDemandBase", "most"): "a job has one instance",
    ("training[0].capacity.unit", "most"): "a job has one instance",
    ("services[0].shmGiB", "most"): "more than types have; tests/infra/mistakes.yaml has one",
    ("training[0].shmGiB", "most"): "more than types have; tests/infra/mistakes.yaml has one",
    ("training[0].datasetGiB", "most"): "as large as the largest volume; tests/infra/mistakes.yaml has one",
    ("stackName", "most"): "names of resources have room for shorter names of entries only",
    ("services[0].gpusPerWorker", "most"): "workers that share GPUs; tests/infra/test_settings.py has it",
    ("services[0].runsOn", "most"): "no group; tests/kubernetes/test_stack.py has it",
    ("training[0].runsOn", "most"): "no group; tests/kubernetes/test_stack.py has it",
    ("training[0].volumeGiB", "least"): "a job without a volume prepares nothing; research-efs has one",
    ("sharedHosts[0].tenants[0].cpus", "most"): "no type has so much for one tenant",
    ("sharedHosts[0].tenants[0].memoryGiB", "most"): "no type has so much for one tenant",
    ("services[0].capacity.unit", "most"): "stands in services[1], which has no warm pool",
    ("training[0].capacity.fleetType", "most"): "a job's fleet is kept",
    ("services[0].capacity.fleetType", "most"): "stands in services[1], whose fleet asks once",
    ("services[0].capacity.kind", "most"): "stands in services[1], a fleet",
    ("network.endpoints", "least"): "stands in the environments that ship; extra endpoints are interfaces",
    ("network.endpoints", "most"): "stands in an existing network",
    ("services[0].queue.allowedSources[0]", "most"): "a group of others, which the local cloud lacks",
    ("services[0].http.allowedSources[0]", "most"): "a group of others, which the local cloud lacks",
    ("network.zones", "least"): "an address needs two; stands in the environments that ship",
    ("services[0].http.subnets", "most"): "in an existing network; tests/infra/test_http.py has them",
    ("services[0].queue.calls", "most"): "services of one broker; infra/test_queue_kinds.py",
    ("services[0].scaling.source", "least"): "the service has no queue",
    ("services[0].scaling.source", "most"): "stands in services[9]",
    **{
        (f"{entry}.capacity.instanceRequirements.{key}", extreme): "no instance type has so little or so much"
        for entry in ("services[0]", "training[0]")
        for key, extreme in [
            *((f"{of}.min", "most") for of in ("accelerators", "acceleratorMemoryGiB", "vcpus", "memoryGiB")),
            *((f"{of}.max", "least") for of in ("acceleratorMemoryGiB", "vcpus", "memoryGiB")),
        ]
    },
}


def steps(path: str) -> list[str | int]:
    """A bound's path in `BASE`: some keys stand in entries of their own."""
    if ".http" in path:
        path = path.replace("[0]", "[9]", 1)
    if "capacityBlock" in path:
        path = path.replace("[0]", "[2]", 1)
    if "<sqs>" in path:
        path = path.replace("<sqs>", "").replace("[0]", "[5]" if "existing" in path else "[4]", 1)
    elif "brokerOf" in path:
        path = path.replace("[0]", "[6]", 1)
    elif "scaling.log" in path or "scaling.source" in path:
        path = path.replace("[0]", "[8]" if path.endswith("secondsPerRequest") else "[7]", 1)
    elif "queue" in path or "onPremises" in path or "scaling" in path:
        path = path.replace("[0]", "[2]" if "queue" in path and "existing" not in path else "[3]", 1)
    if "python" in path or "matrix" in path:  # beside no image, no block
        path = path.replace("[0]", "[1]", 1)
    if "instanceRequirements" in path or "fallback.reservation" in path:
        entry = 1 if path.startswith("training") else 2
        path = path.replace("[0]", f"[{entry}]", 1)
    found = [int(part) if part.isdecimal() else part for part in re.findall(r"[^.\[\]]+", path)]
    return ["aws:region"] if path == "region" else [f"gpu-spot:{found[0]}", *found[1:]]


def put(document: dict[str, Any], path: str, value: Any) -> str:
    """Set what stands at a bound's path; return the path as an error names it."""
    *parents, last = steps(path)
    here: Any = document
    for place, step in enumerate(parents):
        if step == "{}":
            step = parents[place] = next(iter(here))
        here = here[step] if isinstance(step, int) else here.setdefault(step, {})
    if last == "{key}":
        [(_, mapped)] = here.items()
        here.clear()
        here[value], last = mapped, value
    elif last == "{}":
        last = next(iter(here), "g5.xlarge")
        here[last] = value
    else:
        here[last] = value
    named = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in (*parents, last))
    return named.lstrip(".")


def base(*, existing: bool) -> dict[str, Any]:
    """A stack file with one of everything, in a network of its own or an existing one."""
    document: dict[str, Any] = json.loads(json.dumps(BASE))
    if existing:
        document["gpu-spot:network"] = json.loads(json.dumps(EXISTING))
        document["gpu-spot:services"][9]["http"]["subnets"] = [*EXISTING["subnets"].values()]
    return document


def extreme_file(extreme: Extreme, *, existing: bool = False) -> dict[str, Any]:
    """All extremes of one kind that can stand together."""
    document = base(existing=existing)
    for path, value in () if existing else ALSO_REQUIRED[extreme].items():
        put(document, path, value)
    # Whole lists first: what stands in their first element is set in it.
    for bound, one in sorted(CASES, key=lambda case: "Items" not in case[0].kind):
        if one != extreme or (bound.path, one) in APART:
            continue
        if bound.path.startswith(OF_EXISTING) == existing:
            put(document, bound.path, bound.at(one))
    return document


def deployed(document: dict[str, Any]) -> int:
    """Run the whole program and deploy it, boot data included; return how many templates there are."""
    config = StackConfig("gpu-spot", "dev", REPOSITORY / "infra", document)
    with simulated(START), sandbox(config.region, 1) as clients, warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="pulumi_aws")
        make_given(load_settings(document), clients)
        return len(deploy(clients, config).of_type("aws:ec2/launchTemplate:LaunchTemplate"))


def test_the_table_of_what_stands_apart_names_bounds() -> None:
    assert len(BOUNDS) >= 150
    assert APART.keys() <= {(bound.path, extreme) for bound, extreme in CASES}


@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_one_beyond_is_refused_by_its_key(bound: Bound) -> None:
    document = base(existing=bound.path.startswith(OF_EXISTING))
    key = put(document, bound.path, bound.beyond())
    with pytest.raises(SettingsError) as caught:
        load_settings(document)
    line, *more = str(caught.value).splitlines()
    assert re.match(rf"{re.escape(key)}(:| must| is| has) ", line)
    assert not faults(line), line
    assert not more or key == "aws:region"  # whose zones are then wrong, too


@pytest.mark.soak
@pytest.mark.parametrize("extreme", ["least", "most"])
def test_the_extremes_declare_and_deploy(extreme: Extreme) -> None:
    assert apart(deployed, extreme_file(extreme)) >= 7


@pytest.mark.parametrize("extreme", ["least", "most"])
def test_the_extremes_of_an_existing_network_are_taken(extreme: Extreme) -> None:
    assert load_settings(extreme_file(extreme, existing=True)).network.security_groups


CHOICES = [(bound, value) for bound in BOUNDS if bound.kind == "enum" for value in bound.limit[1:-1]]


@pytest.mark.parametrize(("bound", "value"), sample(CHOICES, 3), ids=str)
def test_what_lies_between_the_first_and_the_last_choice_is_taken(bound: Bound, value: Any) -> None:
    document = json.loads(json.dumps(BASE))
    put(document, bound.path, value)
    assert load_settings(document)
