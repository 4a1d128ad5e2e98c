"""What the controller remembers of a group between two runs. Losing it costs time, never correctness.

Everything here is soft: what is true is what AWS and the worker registry say. Sizes are bounded, so that the
item stays far below DynamoDB's 400 KB.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from typing import Final

from contracts import codec
from contracts.stored import stored
from lambdas.core.capacity import on_premises
from lambdas.core.capacity.history import History, follow
from lambdas.core.capacity.on_premises import StandIns
from lambdas.core.deadline import record
from lambdas.core.deadline.record import JobRecord
from lambdas.core.events import Event, InterruptionNotice, RebalanceRecommendation, ScheduledChange
from lambdas.core.model import Market, Observation, Release, SetDesired, Side
from lambdas.core.money import bill
from lambdas.core.money.bill import Bill

FORMAT: Final = 1
FORGET_SECONDS: Final = 900.0
"""How long marks outlive their instance or their deadline: longer than any API stays stale."""
RELEASE_SECONDS: Final = 300.0
"""How long a release is believed: an instance that stands longer was not let go after all."""
PACE_SECONDS: Final = 900.0
"""So long one who was replaced for a wish counts against what may be replaced for wishes at once."""
RETIRE_SECONDS: Final = 3600.0
"""So long before AWS retires an instance by schedule its successor is sought, as after a notice."""
SETTLE_SECONDS: Final = 60.0
"""How long a Spot Fleet may show its old target after it was modified (jenkinsci/ec2-fleet-plugin, pull
request 159, says that it does; the time is an estimate)."""
PRICE_SECONDS: Final = 600.0
"""How long a price is believed. Prices "are adjusted gradually" (EC2 guide, "Spot Instances")."""
BOOT_SAMPLES: Final = 20
UNKNOWN_BOOT: Final = 180.0
"""The boot time in seconds to plan with before any was seen: from nothing, typically."""
LONGEST_BOOT: Final = 1800.0
"""What takes longer is no boot but a worker that has been started again on an old instance."""
PLAIN_LENGTH: Final = 64_000
"""Longer text is stored compressed: the marks of 10,000 instances would not fit into an item otherwise."""
MOST_BYTES: Final = 16_000_000
"""The longest text that is read back, uncompressed: several times that of 10,000 instances."""
_COMPRESSED: Final = "zlib:"


@stored(keys="as named", is_open=True, has_defaults=True)
@dataclass(frozen=True, slots=True)
class Memory:
    """Soft state of one group.

    ``doomed`` is the deadline by instance id, from events or observation; ``at_risk`` when a rebalance
    recommendation was heard; ``retiring`` when AWS stops, restarts or retires an instance by schedule;
    ``released`` when we let one go, so that a notice which we caused starts nothing; ``replaced`` when we did
    so for a wish of the health checker; ``silent`` since when one has not been heard. ``boots`` are the
    newest boot times in seconds by market, ``booted`` the instances counted there; ``asked`` is the desired
    capacity last asked of a side that shows it late, and when; ``alarmed`` what people were told and is still
    so; ``history`` what was learned about the spot pools.
    ``spot_prices`` are as in ``Observation``, read at ``priced_at``; ``None`` before they were. ``home`` is
    the zone where a job was at work last, and so its volume is; empty before it was, and for services.
    ``job`` is what is known of a job under a deadline, ``bill`` what the run of one with a budget has cost,
    ``stand_ins`` what is relied on of workers elsewhere.
    """

    doomed: Mapping[str, float] = field(default_factory=dict)
    at_risk: Mapping[str, float] = field(default_factory=dict)
    retiring: Mapping[str, float] = field(default_factory=dict)
    released: Mapping[str, float] = field(default_factory=dict)
    replaced: Mapping[str, float] = field(default_factory=dict)
    boots: Mapping[Market, tuple[float, ...]] = field(default_factory=dict)
    booted: frozenset[str] = frozenset()
    silent: Mapping[str, float] = field(default_factory=dict)
    asked: Mapping[Side, tuple[int, float]] = field(default_factory=dict)
    alarmed: frozenset[str] = frozenset()
    history: History = field(default_factory=History)
    spot_prices: Mapping[str, float] = field(default_factory=dict)
    priced_at: float | None = None
    home: str = ""
    job: JobRecord = field(default_factory=JobRecord)
    stand_ins: StandIns = field(default_factory=StandIns)
    bill: Bill = field(default_factory=Bill)

    def boot_seconds(self, market: Market) -> float:
        """Return how long a boot takes: the mean of the newest launches, ``UNKNOWN_BOOT`` before any."""
        boots = self.boots.get(market, ())
        return sum(boots) / len(boots) if boots else UNKNOWN_BOOT

    def slowest_boot(self, unknown: float) -> float:
        """Return what a boot takes on the slower market of those on which one was seen."""
        return max(
            (self.boot_seconds(market) for market in Market if self.boots.get(market)), default=unknown
        )


def ask(
    memory: Memory,
    observation: Observation,
    moves: Iterable[SetDesired | Release],
    now: float,
    wished: Set[str],
) -> Memory:
    """Return the memory once these moves are asked of AWS; ``wished`` are those let go for a wish."""
    released, replaced, asked = dict(memory.released), dict(memory.replaced), dict(memory.asked)
    capacity = {side: observation.desired(side) for side in Side}
    for move in moves:
        if isinstance(move, SetDesired):
            capacity[move.side] = move.capacity
        else:
            capacity[move.side] -= move.slots
            released |= dict.fromkeys(move.instance_ids, now)
            replaced |= dict.fromkeys((i for i in move.instance_ids if i in wished), now)
        asked[move.side] = (capacity[move.side], now)
    return replace(
        memory,
        released=released,
        replaced=replaced,
        asked={s: asked[s] for s in asked if s in observation.late},
    )


def unsettled(memory: Memory, observation: Observation, now: float) -> dict[Side, int]:
    """Return the sides that take no order now, with the most that they may come to hold.

    An order on top of one that does not show yet would rest on what was before.
    """
    found = {side: observation.desired(side) for side in observation.frozen}
    for side, (capacity, at) in memory.asked.items():
        shown = observation.desired(side)
        if side in found or (shown != capacity and at + SETTLE_SECONDS > now):
            found[side] = max(shown, capacity)
    return found


def untaken(memory: Memory, side: Side, standing: Iterable[str]) -> Memory:
    """Return the memory for when a side did not take its order: ``standing`` have not been let go."""
    stay = frozenset(standing)
    return replace(
        memory,
        released={i: at for i, at in memory.released.items() if i not in stay},
        replaced={i: at for i, at in memory.replaced.items() if i not in stay},
        asked={s: asked for s, asked in memory.asked.items() if s is not side},
    )


def note(memory: Memory, events: Iterable[Event], now: float) -> Memory:
    """Return the memory with the marks that events carry; a repeated or reordered event changes nothing."""
    doomed, at_risk, retiring = dict(memory.doomed), dict(memory.at_risk), dict(memory.retiring)
    for event in events:
        match event:
            case InterruptionNotice(instance_id, deadline):
                doomed[instance_id] = min(deadline, doomed.get(instance_id, deadline))
            case RebalanceRecommendation(instance_id):
                at_risk.setdefault(instance_id, now)
            case ScheduledChange(instance_ids, deadline):
                for instance_id in instance_ids:
                    retiring[instance_id] = min(deadline, retiring.get(instance_id, deadline))
            case _:
                pass
    return replace(memory, doomed=doomed, at_risk=at_risk, retiring=retiring)


def learn(memory: Memory, observation: Observation, now: float) -> Memory:
    """Return the memory after one look: observed deadlines added, boot times learned, the gone forgotten."""
    present = {i.id for i in observation.instances}
    # Events of the whole account come in, weeks ahead.
    retiring = {i: at for i, at in memory.retiring.items() if i in present and at + FORGET_SECONDS > now}
    history = follow(memory.history, observation, memory.doomed, {**memory.released, **memory.retiring}, now)
    # Whom AWS has not taken long after its deadline it takes no longer: the notice was wrong, or withdrawn.
    doomed = {i: at for i, at in memory.doomed.items() if at + FORGET_SECONDS > now}
    for instance_id, at in retiring.items():
        if at - RETIRE_SECONDS <= now:
            doomed[instance_id] = min(at, doomed.get(instance_id, at))
    at_risk = {i: at for i, at in memory.at_risk.items() if i in present or at + FORGET_SECONDS > now}
    boots = {market: list(samples) for market, samples in memory.boots.items()}
    booted = set(memory.booted & present)
    released = {i: at for i, at in memory.released.items() if abs(now - at) < RELEASE_SECONDS}
    for instance in observation.instances:
        # A warm pool takes back whom we release, and may have started it again.
        if instance.id in released and instance.described and instance.launched_at > released[instance.id]:
            del released[instance.id]
    unheard = [i for i in observation.instances if i.ready_since is None and not i.standing_by]
    silent = {i.id: memory.silent.get(i.id, now) for i in unheard}
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
        retiring=retiring,
        released=released,
        replaced={i: at for i, at in memory.replaced.items() if abs(now - at) < PACE_SECONDS},
        boots={market: tuple(samples[-BOOT_SAMPLES:]) for market, samples in boots.items()},
        booted=frozenset(booted),
        silent=silent,
        history=history,
        home=_home(memory, observation),
        job=record.follow(memory.job, observation, now),
        stand_ins=on_premises.follow(memory.stand_ins, observation.elsewhere, now),
        bill=bill.follow(memory.bill, observation, now),
    )


def _home(memory: Memory, observation: Observation) -> str:
    """Return the zone of who is at work on a job, the newest of them, else the one remembered."""
    if not observation.group.break_before_make:
        return ""
    at_work = [(i.ready_since, i.pool.zone) for i in observation.instances if i.ready_since and i.pool.zone]
    return max(at_work, default=(0.0, memory.home))[1]


def dump(memory: Memory) -> str:
    """Return the memory as JSON, compressed where it is long; equal memories as equal text."""
    stored = {"format": FORMAT, **codec.dump(memory)}
    text = json.dumps(stored, sort_keys=True, separators=(",", ":"))
    if len(text) <= PLAIN_LENGTH:
        return text
    return _COMPRESSED + base64.b64encode(zlib.compress(text.encode(), level=1)).decode()


def parse(text: str) -> Memory:
    """Return the memory in ``text``; raise ``ValueError`` for what ``dump`` does not write.

    Every value is checked: a wrong one would fail each pass, and never be written over.
    """
    memory = codec.parse_versioned(Memory, _plain(text), FORMAT)
    record.check(memory.job)
    return memory


def _plain(text: str) -> str:
    if not text.startswith(_COMPRESSED):
        return text
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(
            base64.b64decode(text.removeprefix(_COMPRESSED), validate=True), MOST_BYTES
        )
    except zlib.error as error:
        raise ValueError(f"memory cannot be decompressed: {error}") from None
    if not inflater.eof:
        raise ValueError(f"memory cannot be decompressed: it is cut off, or has more than {MOST_BYTES} bytes")
    return data.decode()
