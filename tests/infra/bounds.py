"""Every bound of the stack file's schema, with values at it and one beyond it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from infra.catalogue import accelerators
from infra.schema import Settings

Extreme = Literal["least", "most"]
EXTREMES: Final[dict[str, tuple[Extreme, ...]]] = {
    **dict.fromkeys(("minimum", "minLength", "minItems"), ("least",)),
    **dict.fromkeys(("maximum", "maxLength", "maxItems"), ("most",)),
    **dict.fromkeys(("pattern", "enum"), ("least", "most")),
}
ZONES: Final = tuple(f"us-east-1{letter}" for letter in "abcdefgh")
TYPES: Final = tuple(
    one.name
    for one in accelerators.CATALOGUE.values()
    if (one.family.vendor, one.family.architecture, one.family.needs_ami) == ("nvidia", "x86_64", None)
)
LISTS: Final[dict[str, Callable[[int], list[Any]]]] = {
    "instanceTypes": lambda n: list(TYPES[:n]),
    "zones": lambda n: list(ZONES[:n]),
    "command": lambda n: ["x"] * n,
    "matrix.{}": lambda n: [str(k) for k in range(n)],
    "securityGroups": lambda n: [f"sg-{k:08d}" for k in range(n)],
    "allowedSources": lambda n: [f"10.{k}.0.0/16" for k in range(n)],
    "hosts": lambda n: [
        {"name": f"g{k}", "gpus": 1, "principals": [f"arn:aws:iam::123456789012:role/g{k}"]} for k in range(n)
    ],
    "retryPaths": lambda n: [f"/{k}" for k in range(n)],
    "http.subnets": lambda n: [f"subnet-{k:08d}" for k in range(n)],
    "principals": lambda n: [f"arn:aws:iam::123456789012:role/{k}" for k in range(n)],
    "calls": lambda n: [f"c{k}" for k in range(n)],
    "extraEndpoints": lambda n: [f"service{k}" for k in range(n)],
    "floors": lambda n: [{"min": 1, "from": "08:00", "to": "18:00", "days": ["mon"]}] * n,
    "days": lambda n: ["mon"] * n,
    "tenants": lambda n: [
        {
            **{"name": f"t{k}", "uid": 2100 + k, "cpus": 2, "memoryGiB": 4, "environment": {"A": "b"}},
            **{"image": f"w@sha256:{'0' * 64}", "hostPort": 8100 + k, "containerPort": 80},
        }
        for k in range(n)
    ],
    "actions": lambda n: [f"a:{k}" for k in range(n)],
    "resources": lambda n: ["*"] * n,
    "permissions": lambda n: [{"actions": ["a:b"], "resources": ["*"]} for _ in range(n)],
    "policyArns": lambda n: [f"arn:aws:iam::123456789012:policy/{k}" for k in range(n)],
    "policies": lambda n: [f"arn:aws:iam::123456789012:policy/{k}" for k in range(n)],
    "driftPolicies": lambda n: [f"arn:aws:iam::123456789012:policy/{k}" for k in range(n)],
    "datasets": lambda n: [{"snapshot": "snap-00000000", "path": f"/mnt/{k}"} for k in range(n)],
}
OF_ANY_TEXT: Final = ("environment.{}", "matrix.{}[0]", "organizationalUnit", "tags.{}")
"""Texts that may have spaces, no control characters."""
_UUID: Final = "00000000-0000-0000-0000-000000000000"


def _arn(service: str, place: str) -> Callable[[int], str]:
    """Return how an ARN of one length is made, that of a key of that service."""
    return lambda n: (f"arn:aws:{service}:us-east-1:123456789012:{place}/" + _UUID)[:n].ljust(n, "0")


# Texts that a pattern allows, by the end of the key's path: the shortest, and the longest that it allows by
# itself (else `maxLength` does), then how one of a length is made.
TEXTS: Final[dict[str, tuple[int, int, Callable[[int], str]]]] = {
    "floors[0].from": (5, 5, lambda n: "00:00"[:n]),
    "floors[0].to": (5, 5, lambda n: "24:00"[:n]),
    "http.readiness": (1, 128, lambda n: "/" + "r" * (n - 1)),
    "log.group": (1, 512, lambda n: "g" * n),
    "log.pattern": (1, 1024, lambda n: "p" * n),
    "log.seconds": (2, 100, lambda n: "$" + "t" * (n - 1)),
    "log.secondsPattern": (3, 1024, lambda n: "[t" + (", " + "t" * 99).ljust(n - 3)[: n - 3] + "]"),
    "log.sample": (1, 4096, lambda n: "s" * n),
    "queue.name": (1, 100, lambda n: "q" * n),
    "http.retryPaths[0]": (1, 128, lambda n: "/" + "p" * (n - 1)),
    "http.allowedSources[0]": (9, 20, lambda n: "10.0.0.0/8" if n < 11 else "sg-" + "0" * (n - 3)),
    "http.certificateArn": (83, 83, _arn("acm", "certificate")),
    "http.domain": (4, 253, lambda n: "a." * ((n - 2) // 2) + ("com" if n % 2 else "co")),
    "http.hostedZoneId": (2, 32, lambda n: "Z" + "0" * (n - 1)),
    "http.subnets[0]": (15, 24, lambda n: "subnet-" + "0" * (n - 7)),
    "queue.allowedSources[0]": (9, 20, lambda n: "10.0.0.0/8" if n < 11 else "sg-" + "0" * (n - 3)),
    "queue.calls[0]": (1, 24, lambda n: "c" * n),
    "schedule.at": (17, 256, lambda n: f"cron(0 {'2' if n % 2 else '02'}{',2' * ((n - 17) // 2)} * * ? *)"),
    "schedule.timeZone": (3, 30, {3: "UTC", 30: "America/Argentina/Buenos_Aires", 51: "Z" * 51}.__getitem__),
    "queue.maintenance.time": (5, 5, lambda n: "00:00"[:n]),
    "queue<sqs>.existing.account": (12, 12, lambda n: "1" * n),
    "queue<sqs>.existing.queue": (1, 80, lambda n: "q" * n),
    "queue<sqs>.existing.deadLetters": (1, 80, lambda n: "d" * n),
    "existing.managementUrl": (9, 200, lambda n: "https://" + "m" * (n - 8)),
    "existing.secret": (1, 512, lambda n: "s" * n),
    "existing.brokerOf": (1, 24, lambda n: "c" * n),
    "onPremises.trustAnchor": (94, 94, _arn("rolesanywhere", "trust-anchor")),
    "onPremises.organizationalUnit": (1, 64, lambda n: "u" * n),
    "onPremises.hosts[0].address": (8, 15, lambda n: "10.0.0.1" if n < 15 else "192.168.100.100"),
    "onPremises.hosts[0].name": (1, 63, lambda n: "g" * n),
    "onPremises.hosts[0].principals[0]": (32, 600, lambda n: "arn:aws:iam::123456789012:role/".ljust(n, "p")),
    "sharedHosts[0].name": (1, 24, lambda n: "h" * n),
    "sharedHosts[0].allowedSources[0]": (10, 18, lambda n: "10.0.0.0/8" if n < 18 else "192.168.100.100/32"),
    "training[0].name": (1, 24, lambda n: "b" * n),
    "prepare.name": (1, 19, lambda n: "d" * n),
    "prepare.version": (1, 32, lambda n: "1" * n),
    "name": (1, 24, lambda n: "a" * n),
    "accessPoints[0].path": (2, 100, lambda n: "/" + "a" * (n - 1)),
    "datasets[0].path": (6, 128, lambda n: "/srv/" + "a" * (n - 5)),
    "vpcId": (12, 21, lambda n: "vpc-" + "0" * (n - 4)),
    "subnets.{}": (15, 24, lambda n: "subnet-" + "0" * (n - 7)),
    "securityGroups[0]": (11, 20, lambda n: "sg-" + "0" * (n - 3)),
    "extraEndpoints[0]": (2, 30, lambda n: "e" * n),
    "snapshot": (13, 22, lambda n: "snap-" + "0" * (n - 5)),
    "image": (73, 512, lambda n: "a" * (n - 72) + "@sha256:" + "0" * 64),
    "training[0].repository": (11, 512, lambda n: "https://a/" + "r" * (n - 10)),
    "previews.repository": (7, 300, lambda n: "o@1/" + "r" * (n - 6) + "@2"),
    "requirements": (5, 256, lambda n: "r" * (n - 4) + ".txt"),
    "python.version": (3, 7, lambda n: "3.1" if n < 7 else "3.12.11"),
    "registrySecret": (1, 512, lambda n: "s" * n),
    "tenants[0].secret": (1, 512, lambda n: "s" * n),
    "repositorySecret": (1, 512, lambda n: "s" * n),
    "revision": (40, 40, lambda n: "0" * n),
    "training[0].artifacts": (9, 512, lambda n: "s3://abc/" + ("a" * (n - 10) + "/") * (n > 9)),
    "training[0].dataset": (9, 512, lambda n: "s3://abc/" + ("d" * (n - 10) + "/") * (n > 9)),
    "tensorboard.accessPoint": (1, 24, lambda n: "a" * n),
    "checkpoints": (1, 24, lambda n: "a" * n),
    "ami": (12, 21, lambda n: "ami-" + "0" * (n - 4)),
    "capacityBlock.reservation": (11, 20, lambda n: "cr-" + "0" * (n - 3)),
    "reservation.source": (11, 20, lambda n: "cr-" + "0" * (n - 3)),
    "amis.{}": (12, 21, lambda n: "ami-" + "0" * (n - 4)),
    "email": (5, 254, lambda n: "a" * (n - 4) + "@b.c"),
    "deploys.policies[0]": (34, 128, lambda n: "arn:aws:iam::123456789012:policy/" + "p" * (n - 33)),
    "deploys.driftPolicies[0]": (34, 128, lambda n: "arn:aws:iam::123456789012:policy/" + "d" * (n - 33)),
    "policyArns[0]": (34, 128, lambda n: "arn:aws:iam::123456789012:policy/" + "p" * (n - 33)),
    "actions[0]": (3, 128, lambda n: "a:" + "b" * (n - 2)),
    "resources[0]": (1, 400, lambda n: "*" if n < 20 else "arn:aws:s3:::" + "b" * (n - 13)),
    "secrets.{}": (1, 512, lambda n: "s" * n),
    "secrets.{key}": (1, 128, lambda n: "S" * n),
    "deploys.environment": (1, 100, lambda n: "e" * n),
    "deploys.workflow": (5, 84, lambda n: "w" * (n - 4) + ".yml"),
    "deploys.branch": (1, 100, lambda n: "b" * n),
    "deploys.driftEnvironment": (1, 100, lambda n: "d" * n),
    "previews.environment": (1, 100, lambda n: "p" * n),
    "permissionsBoundary": (34, 128, lambda n: "arn:aws:iam::123456789012:policy/" + "p" * (n - 33)),
    "kmsKeyArn": (75, 75, _arn("kms", "key")),
    "kubernetes.cluster": (1, 100, lambda n: "c" * n),
    "kubernetes.nodeRole": (1, 64, lambda n: "r" * n),
    "kubernetes.nodeImage": (9, 40, lambda n: "al2023@v" + "1" * (n - 8)),
    "kubernetes.namespace": (1, 24, lambda n: "n" * n),
    "kubernetes.checkoutImage": (73, 512, lambda n: "a" * (n - 72) + "@sha256:" + "0" * 64),
    "stateBucket": (3, 63, lambda n: "b" * n),
    "stateKmsKeyArn": (75, 75, _arn("kms", "key")),
    "matrix.{}[0]": (0, 1000, lambda n: "v" * n),
    "matrix.{key}": (1, 128, lambda n: "A" * n),
    "environment.{}": (0, 1000, lambda n: "v" * n),
    "environment.{key}": (1, 128, lambda n: "A" * n),
    "tags.{}": (0, 256, lambda n: "v" * n),
    "tags.{key}": (1, 128, lambda n: "k" * n),
    "stackName": (1, 40, lambda n: "s" * n),
    "region": (9, 9, lambda n: "us-east-1"[:n]),
}


@dataclass(frozen=True)
class Bound:
    """A key's path as errors name it, ``{}`` for the values of a mapping and ``{key}`` for its keys."""

    path: str
    kind: str
    limit: Any

    def __str__(self) -> str:
        return f"{self.path} {self.kind}"

    def at(self, extreme: Extreme) -> Any:
        """A value at the bound."""
        if self.kind in ("minimum", "maximum"):
            return self.limit
        if self.kind == "enum":
            return self.limit[0 if extreme == "least" else -1]
        if self.kind in ("minItems", "maxItems"):
            return self._made(LISTS)(self.limit)
        least, most, make = self._made(TEXTS)
        return make(least if extreme == "least" else most)

    def beyond(self) -> Any:
        """A value that the bound refuses."""
        match self.kind:
            case "minimum":
                return self.limit - (1 if isinstance(self.limit, int) else self.limit / 2)
            case "maximum":
                return self.limit + 1
            case "enum":
                return 2 if isinstance(self.limit[0], int) else "other"
            case "minItems" | "maxItems":
                return self._made(LISTS)(self.limit + (1 if self.kind == "maxItems" else -1))
            case "minLength" | "maxLength":
                return self._made(TEXTS)[2](self.limit + 1) if self.kind == "maxLength" else ""
            case _:
                return "\n" if self.path.endswith(OF_ANY_TEXT) else "a b"

    def _made(self, table: dict[str, Any]) -> Any:
        return next(made for end, made in table.items() if f".{self.path}".endswith((f".{end}", end)))


_APART: Final = ("sharedHosts[0].capacity", "kubernetes.create", "training[0].nodes")


def bounds() -> list[Bound]:
    """Every bound, but lengths of at least nothing: there is no list with less."""
    root = Settings.model_json_schema()
    return [
        one
        for one in _below(root, root, "")
        if (one.kind, one.limit) != ("minItems", 0) and not one.path.startswith(_APART)
    ]


def _below(root: dict[str, Any], here: dict[str, Any], path: str) -> Iterator[Bound]:
    if "$ref" in here:
        here = root["$defs"][here["$ref"].rpartition("/")[2]]
    yield from (Bound(path, kind, here[kind]) for kind in EXTREMES if kind in here)
    for one in here.get("anyOf", ()):
        yield from _below(root, one, path)
    for place, (kind, ref) in enumerate(here.get("discriminator", {}).get("mapping", {}).items()):
        yield from _below(root, {"$ref": ref}, f"{path}<{kind}>" if place else path)
    for key, one in here.get("properties", {}).items():
        yield from _below(root, one, f"{path}.{key}".lstrip("."))
    if "items" in here:
        yield from _below(root, here["items"], f"{path}[0]")
    if isinstance(here.get("additionalProperties"), dict):
        yield from _below(root, here["additionalProperties"], f"{path}.{{}}")
    for pattern, one in here.get("patternProperties", {}).items():
        yield Bound(f"{path}.{{key}}", "pattern", pattern)
        yield from _below(root, one, f"{path}.{{}}")
    if "propertyNames" in here:
        yield from _below(root, here["propertyNames"], f"{path}.{{key}}")
