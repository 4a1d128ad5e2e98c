"""Entries on Kubernetes drawn at random, valid and invalid ones, by their number."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from infra.catalogue.accelerators import CATALOGUE
from infra.kubernetes.context import Manifest
from infra.kubernetes.render import manifests
from infra.settings import SettingsError
from tests.kubernetes.entries import CLUSTER, RABBITMQ, SNAPSHOT, context, settings

COUNT: Final = 200
_TYPES: Final = sorted(CATALOGUE)
_TEXTS: Final = ("", "a", "it's $HOME", "$(A) $$", "ü—漢 \U0001f600", '"{}[]: #\\', "x" * 600)
_NAMES: Final = ("a", "job-1", "z" * 24, "a--b", "m" * 16, "with space", "Upper", "x" * 25, "ends-")
_VARIABLES: Final = ("LR", "_", "lower_case", "V" * 128, "1ST", "WITH-DASH")


@dataclass
class Tally:
    """Drawn entries: manifests of those that the preview accepts, and messages of the others."""

    accepted: list[list[Manifest]] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)


def entries() -> Tally:
    """Draw the entries and render them. Any error but a message of the preview is raised."""
    tally = Tally()
    for number in range(COUNT):
        draw = random.Random(number)
        cluster = _cluster(draw)
        # Of each stack one half is drawn, so that a rejection is of one entry.
        half = {"job": _job(draw)} if number % 2 else {"service": _service(draw)}
        try:
            drawn = settings(**half, kubernetes=cluster)
        except SettingsError as error:
            tally.rejected.append(str(error))
        else:
            tally.accepted.append(manifests(drawn, context(drawn)))
    return tally


def _some(draw: random.Random, keys: dict[str, Any], share: float) -> dict[str, Any]:
    """Keep each key with a probability."""
    return {key: value for key, value in keys.items() if draw.random() < share}


def _rarely(draw: random.Random, usual: Any, invalid: Any) -> Any:
    return invalid if draw.random() < 0.04 else usual


def _environment(draw: random.Random) -> dict[str, str]:
    count = draw.choice((0, 1, 2, 4))
    names = draw.sample(_VARIABLES[:4], count)
    if draw.random() < 0.05:
        names.append(draw.choice(_VARIABLES[4:]))
    return {name: draw.choice(_TEXTS) for name in names}


def _command(draw: random.Random, minimum: int) -> list[str]:
    """Draw a short command, or one with the maximum of arguments."""
    if draw.random() < 0.2:
        return ["x"] * 64
    return [draw.choice(_TEXTS[1:]) for _ in range(minimum + draw.choice((0, 1)))]


def _name(draw: random.Random) -> str:
    return _rarely(draw, draw.choice(_NAMES[:5]), draw.choice(_NAMES[5:]))  # type: ignore[no-any-return]


def _capacity(draw: random.Random, target: int) -> dict[str, Any]:
    nvidia = [
        name
        for name in _TYPES
        if CATALOGUE[name].family.vendor == "nvidia" and CATALOGUE[name].family.needs_ami is None
    ]
    first = draw.choice(nvidia)
    similar = [
        name
        for name in nvidia
        if CATALOGUE[name].accelerators == CATALOGUE[first].accelerators
        and CATALOGUE[name].family.architecture == CATALOGUE[first].family.architecture
    ]
    types = draw.sample(similar, min(len(similar), draw.choice((1, 1, 2, 3))))
    if draw.random() < 0.08:
        types.append(draw.choice(_TYPES))
    return {
        "kind": draw.choice(("mixed-asg", "spot-fleet")),
        "target": target,
        "max": max(2 * target, draw.choice((1, 2, 50, 1000))),
        "instanceTypes": list(dict.fromkeys(types)),
        "fallback": {"enabled": draw.random() < 0.7},
        "spotPercentage": _rarely(draw, draw.choice((100, 100, 0)), 50),
        **_some(draw, {"maxPrice": 1, "onDemandBase": 1}, 0.02),
    }


def _datasets(draw: random.Random) -> list[dict[str, Any]]:
    paths = draw.sample(("/data/a", "/mnt/" + "p" * 120, "/srv/a.b/c_d-e", "/dltraining/datasets/x"), 2)
    return [
        {
            "snapshot": SNAPSHOT,
            "path": _rarely(draw, path, "/etc/passwd"),
            "throughputMib": draw.choice((125, 750)),
            **_some(draw, {"initializationRateMib": draw.choice((100, 300))}, 0.5),
        }
        for path in paths[: draw.choice((0, 0, 1, 2))]
    ]


def _job(draw: random.Random) -> dict[str, Any]:
    count = draw.choice((2, 7, 20, 21, 400))
    matrix: Any = draw.choice((None, None, {"SEED": list(range(count))}, {"A": ["x", "it's"], "B": [1, 0.5]}))
    target = draw.choice((1, 3)) if matrix is not None and len(matrix.get("SEED", ())) > 20 else 1
    job = {
        "name": _name(draw),
        "environment": _environment(draw),
        "command": _command(draw, 1),
        "repository": "https://git.example.com:8443/" + draw.choice(("a", "team/~x_y.z", "r" * 400)),
        "revision": _rarely(draw, f"{draw.getrandbits(160):040x}", "main"),
        "submodules": draw.random() < 0.5,
        "maxRestarts": _rarely(draw, draw.choice((0, 1, 100)), 101),
        "datasets": _datasets(draw),
        "matrix": matrix,
        "nodes": draw.choice((2, 64, {"min": 1, "max": 2}, {"min": 2, "max": 64}))
        if matrix is None and draw.random() < 0.4
        else 1,
        "capacity": _capacity(draw, target),
    }
    return job | _some(draw, {"budget": 10, "stalledAfterMinutes": 30}, 0.03)


def _service(draw: random.Random) -> dict[str, Any]:
    queue = draw.choice(({"kind": "sqs"}, RABBITMQ, None))
    target = draw.choice((1, 4, 40))
    floors = [
        {"min": draw.choice((1, 2)), "from": "00:00", "to": draw.choice(("00:01", "24:00")), "days": [day]}
        for day in draw.sample(("mon", "wed", "sun"), draw.choice((0, 1, 3)))
    ]
    scaling = {"min": draw.choice((0, 1)), "floors": floors, "dryRun": draw.random() < 0.2}
    service = {
        "name": _name(draw),
        "environment": _environment(draw),
        "command": _command(draw, 0),
        "reportsReadiness": draw.random() < 0.5,
        "drainSeconds": _rarely(draw, draw.choice((0, 110)), 111),
        "datasets": _datasets(draw),
        "queue": queue,
        "scaling": None if queue is None else draw.choice((None, scaling)),
        "capacity": _capacity(draw, target),
    }
    return service | _some(draw, {"slotsPerGpu": 2}, 0.04)


def _cluster(draw: random.Random) -> dict[str, Any]:
    checkout = f"git.example.com/{'i' * 200}@sha256:{'3' * 64}"
    keys = {
        "version": draw.choice(("1.35", "1.36")),
        "namespace": draw.choice(("ml", "n" * 24, "a--b")),
        "nodeImage": draw.choice(("al2023@v1", "al2023@v20261101.0.1")),
        "quotaGpus": draw.choice((1, 10_000)),
        "queuedPerWorker": draw.choice((1, 10_000)),
        "checkoutImage": checkout,
    }
    return {**CLUSTER, **_some(draw, keys, 0.3)}
