"""What the controller remembers of a group between two runs. Losing it costs time, never correctness.

Everything here is soft: what is true is what AWS and the worker registry say. Sizes are bounded, so that the
item stays far below DynamoDB's 400 KB.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lambdas.core.events import Event, InterruptionNotice, RebalanceRecommendation
from lambdas.core.history import History, follow, from_json, to_json
from lambdas.core.model import Market, Observation, Release, SetDesired, Side

FORMAT: Final = 1
FORGET_SECONDS: Final = 900.0
"""How long marks outlive their instance or their deadline: longer than any API stays stale."""
RELEASE_SECONDS: Final = 300.0
"""How long a release is believed: an instance that stands longer was not let go after all."""
SETTLE_SECONDS: Final = 60.0
"""How long a Spot Fleet may show its old target after it was modified (jenkinsci/ec2-fleet-plugin, pull
request 159, says that it does; the time is an estimate)."""
BOOT_SAMPLES: Final = 20
LONGEST_BOOT: Final = 1800.0
"""What takes longer is no boot but a worker that has been started again on an old instance."""
PLAIN_LENGTH: Final = 64_000
"""Longer text is stored compressed: the marks of 10,000 instances would not fit into an item otherwise."""
_COMPRESSED: Final = "zlib:"


@dataclass(frozen=True, slots=True)
class Memory:
    """Soft state of one group.

    ``doomed`` is the deadline by instance id, from events or observation; ``at_risk`` when a rebalance
    recommendation was heard; ``released`` when we let an instance go, so that a notice which we caused
    starts nothing; ``boots`` the newest boot times in seconds by market; ``booted`` the instances already
    counted there; ``asked`` the desired capacity last asked of a side that shows it late, and when;
    ``alarmed`` what people have been told and is still so; ``history`` what was learned about
    the spot pools.
    """

    doomed: Mapping[str, float] = field(default_factory=dict)
    at_risk: Mapping[str, float] = field(default_factory=dict)
    released: Mapping[str, float] = field(default_factory=dict)
    boots: Mapping[Market, tuple[float, ...]] = field(default_factory=dict)
    booted: frozenset[str] = frozenset()
    asked: Mapping[Side, tuple[int, float]] = field(default_factory=dict)
    alarmed: frozenset[str] = frozenset()
    history: History = field(default_factory=History)

    def boot_seconds(self, market: Market, default: float) -> float:
        """Return the boot time to plan with: the longest of the newest launches, ``default`` before any."""
        return max(self.boots.get(market, ()), default=default)


def ask(
    memory: Memory, observation: Observation, moves: Iterable[SetDesired | Release], now: float
) -> Memory:
    """Return the memory once these moves are asked of AWS."""
    released, asked = dict(memory.released), dict(memory.asked)
    capacity = {side: observation.desired(side) for side in Side}
    for move in moves:
        if isinstance(move, SetDesired):
            capacity[move.side] = move.capacity
        else:
            capacity[move.side] -= len(move.instance_ids)
            released |= dict.fromkeys(move.instance_ids, now)
        asked[move.side] = (capacity[move.side], now)
    return replace(memory, released=released, asked={s: asked[s] for s in asked if s in observation.late})


def unsettled(memory: Memory, observation: Observation, now: float) -> frozenset[Side]:
    """Return the sides that do not show yet what was asked of them: an order on top would rest on the old."""
    return frozenset(
        side
        for side, (capacity, at) in memory.asked.items()
        if at + SETTLE_SECONDS > now and observation.desired(side) != capacity
    )


def untaken(memory: Memory, side: Side, standing: Iterable[str]) -> Memory:
    """Return the memory for when a side did not take its order: ``standing`` have not been let go."""
    stay = frozenset(standing)
    return replace(
        memory,
        released={i: at for i, at in memory.released.items() if i not in stay},
        asked={s: asked for s, asked in memory.asked.items() if s is not side},
    )


def note(memory: Memory, events: Iterable[Event], now: float) -> Memory:
    """Return the memory with the marks that events carry; a repeated or reordered event changes nothing."""
    doomed, at_risk = dict(memory.doomed), dict(memory.at_risk)
    for event in events:
        match event:
            case InterruptionNotice(instance_id, deadline):
                doomed[instance_id] = min(deadline, doomed.get(instance_id, deadline))
            case RebalanceRecommendation(instance_id):
                at_risk.setdefault(instance_id, now)
            case _:
                pass
    return replace(memory, doomed=doomed, at_risk=at_risk)


def learn(memory: Memory, observation: Observation, now: float) -> Memory:
    """Return the memory after one look: observed deadlines added, boot times learned, the gone forgotten."""
    present = {i.id for i in observation.instances}
    history = follow(memory.history, observation, memory.doomed, memory.released, now)
    # Whom AWS has not taken long after its deadline it takes no longer: the notice was wrong, or withdrawn.
    doomed = {i: at for i, at in memory.doomed.items() if at + FORGET_SECONDS > now}
    at_risk = {i: at for i, at in memory.at_risk.items() if i in present or at + FORGET_SECONDS > now}
    boots = {market: list(samples) for market, samples in memory.boots.items()}
    booted = set(memory.booted & present)
    for instance in observation.instances:
        if instance.deadline is not None:
            doomed[instance.id] = min(instance.deadline, doomed.get(instance.id, instance.deadline))
        if instance.described and instance.ready_since is not None and instance.id not in booted:
            booted.add(instance.id)
            boot = max(0.0, instance.ready_since - instance.launched_at)
            if boot <= LONGEST_BOOT:
                boots.setdefault(instance.market, []).append(boot)
    return replace(
        memory,
        doomed=doomed,
        at_risk=at_risk,
        released={i: at for i, at in memory.released.items() if at + RELEASE_SECONDS > now},
        boots={market: tuple(samples[-BOOT_SAMPLES:]) for market, samples in boots.items()},
        booted=frozenset(booted),
        history=history,
    )


def dump(memory: Memory) -> str:
    """Return the memory as JSON, compressed where it is long; equal memories as equal text."""
    text = json.dumps(
        {
            "format": FORMAT,
            "doomed": dict(memory.doomed),
            "at_risk": dict(memory.at_risk),
            "released": dict(memory.released),
            "boots": {str(market): list(samples) for market, samples in memory.boots.items()},
            "booted": sorted(memory.booted),
            "asked": {str(side): list(asked) for side, asked in memory.asked.items()},
            "alarmed": sorted(memory.alarmed),
            "history": to_json(memory.history),
        },
        sort_keys=True,
        separators=(",", ":"),
    )
    if len(text) <= PLAIN_LENGTH:
        return text
    return _COMPRESSED + base64.b64encode(zlib.compress(text.encode(), level=1)).decode()


def parse(text: str) -> Memory:
    """Return the memory in ``text``; raise ``ValueError`` for text of another format."""
    raw: Any = json.loads(_plain(text))
    found = raw.get("format") if isinstance(raw, dict) else raw
    if found != FORMAT:
        raise ValueError(f"memory has format {found!r}, {FORMAT} is needed")
    return Memory(
        doomed=raw["doomed"],
        at_risk=raw["at_risk"],
        released=raw["released"],
        boots={Market(market): tuple(samples) for market, samples in raw["boots"].items()},
        booted=frozenset(raw["booted"]),
        asked={Side(side): (int(c), float(at)) for side, (c, at) in raw.get("asked", {}).items()},
        alarmed=frozenset(raw["alarmed"]),
        history=from_json(raw["history"]) if "history" in raw else History(),
    )


def _plain(text: str) -> str:
    if not text.startswith(_COMPRESSED):
        return text
    try:
        return zlib.decompress(base64.b64decode(text.removeprefix(_COMPRESSED), validate=True)).decode()
    except zlib.error as error:
        raise ValueError(f"memory cannot be decompressed: {error}") from None
