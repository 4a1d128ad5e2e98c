"""A random walk of ``decide`` in which every signal lies, then tells the truth.

A world is a group with a maximum. In its first passes the registry, the prices, the target, the on-premises
workers and the memory are random; members are not described, calls fail, Spot comes and goes. The
capacities of AWS are true, and so is its bill, which is checked after each pass: it is at most the maximum
at the highest price, and what each group may exceed its desired capacity by, less than its largest
instance. Then all is true again, Spot is there and stays, and the memory is any. A group that holds no Spot
Instance for ``SPOT_MINUTES``, once as many have passed in which false marks lapse, counts as absorbed. A
group with an On-Demand share has ``MIXED_MINUTES``: where the maximum leaves room for one instance, AWS
buys the share first, and each try adds one.

In every second world the memory is the controller's own, and settings move while the group runs: target,
maximum, minimum, base, share, zones, types and weights, which the controller sees some passes later. Each
input is absent, late, of yesterday or of another kind by turns: registry, activities, processes, warm pool,
primary group, prices, configuration, requests. AWS refuses what it refuses: a capacity outside the bounds, a
decrement below the minimum. No cause is an alarm twice within an hour, and each alarm is open or was closed.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from contracts.group.replacement_requests import ReplacementRequest
from contracts.group.warm_pool import on_demand_share
from contracts.registry.item import Progress
from lambdas.core.capacity.alarms import RESOLVED_SECONDS
from lambdas.core.capacity.availability import Decision, decide
from lambdas.core.capacity.memory import Memory, dump, parse
from lambdas.core.capacity.plan import Policy
from lambdas.core.capacity.policies.by_deadline import ByDeadline
from lambdas.core.capacity.policies.expected_cost import ExpectedCost
from lambdas.core.capacity.policies.ready_handover import ReadyHandover
from lambdas.core.model import (
    Alarm,
    Group,
    GroupRole,
    Instance,
    LaunchFailure,
    LaunchFailureKind,
    Observation,
    Pool,
    PurchaseOption,
    SetDesired,
    TerminateInstances,
    slots,
)
from tests.core.any_memory import any_memory
from tests.core.build import group as make_group
from tests.oracles.shares import on_demand_by_awss_rule

PASSES_OF_A_WORLD: Final = 200
"""Passes in which the signals lie."""
SPOT_MINUTES: Final = 95
"""Time within which a group holds Spot that is there and stays: a retry within 60, a launch and a boot."""
MIXED_MINUTES: Final = 150
SIZES: Final = ((1,), (1, 2), (1, 4))
ZONES: Final = (("a", "b"), ("a", "b"), ("a",), ("b",))
START: Final = 1_700_000_000.0
SLOT_PRICE: Final = 2.0
"""Price of a slot of the most expensive type; the others cost less."""
_EPSILON: Final = 1e-6


@dataclass(slots=True)
class Box:
    """An instance as AWS bills it. ``ends_at`` is the end of its notice or of its termination."""

    instance: Instance
    hourly: float
    boot: float
    ends_at: float | None = None
    is_ending: bool = False


@dataclass(slots=True)
class Outcome:
    """Passes with lying signals and those of moving worlds, violations, worlds without Spot, alarms."""

    steps: int = 0
    moving: int = 0
    violations: list[str] = field(default_factory=list)
    absorbed: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)
    """Those that were raised twice within an hour, or are neither open nor closed."""
    opened: int = 0
    closed: int = 0
    still_open: int = 0


@dataclass(slots=True)
class World:
    """One group in AWS, and what its controller remembers."""

    draw: random.Random
    group: Group
    policy: Policy
    sizes: tuple[int, ...]
    now: float = START
    boxes: list[Box] = field(default_factory=list)
    desired: dict[GroupRole, int] = field(default_factory=lambda: dict.fromkeys(GroupRole, 0))
    memory: Memory = field(default_factory=Memory)
    has_spot: bool = True
    moves: bool = False
    seen_group: Group | None = None
    """The group as the controller still knows it; ``None``: as it is."""
    types: tuple[str, ...] = ("g5.xlarge",)
    largest: int = 1
    minimum: int = 0
    suspended: frozenset[GroupRole] = frozenset()
    raised_at: dict[str, float] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    opened: int = 0
    closed: int = 0
    alarms: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    allowed: float = 0.0
    serial: int = 0

    def play(self) -> Iterator[str]:
        """Pass once with lying signals; yield violations of the budget."""
        draw = self.draw
        self.now += draw.choice((10.0, 30.0, 60.0))
        if draw.random() < 0.1:
            self.has_spot = not self.has_spot
        if self.moves and draw.random() < 0.05:
            self._move()
        if self.seen_group and draw.random() < 0.3:
            self.seen_group, self.allowed = None, self._most()
        self._interrupt()
        self._advance()
        if self.moves:
            self.memory = parse(dump(self.memory))
        elif draw.random() < 0.2:
            self.memory = any_memory(draw, self.now, [box.instance.id for box in self.boxes])
        seen = self._without_inputs(self._lie()) if self.moves else self._lie()
        decision = self._decide(seen, failures=0.1)
        if self.moves:
            self._count_alarms(decision)
        yield from self._overspent()
        self._advance()
        yield from self._overspent()

    def _move(self) -> None:
        """Deploy other settings: AWS moves the desired capacity into the bounds, and keeps instances."""
        draw, config = self.draw, self.group.config
        base, share, target = 0, 100, 1
        if not config.break_before_make:
            self.sizes = draw.choice(SIZES)
            base, share = draw.choice(((0, 100), (0, 100), (0, 50), (1, 100), (2, 75)))
            target = draw.randint(base + 1, 6)
        self.largest = max(self.largest, *self.sizes)
        self.seen_group = self.seen_group or self.group
        maximum, self.minimum = draw.randint(target + self.largest, 14), draw.choice((0, 0, 0, 1))
        self.types = draw.choice((("g5.xlarge",), ("g6.xlarge",), ("g5.xlarge", "g6.xlarge")))
        zones = draw.choice(ZONES) if config.zones else ()
        config = replace(config, maximum=maximum, base=base, spot_percentage=share, zones=zones)
        self.group = replace(self.group, config=config, maximum=maximum, target=target)
        self.suspended = frozenset(role for role in GroupRole if draw.random() < 0.1)
        bounds = {GroupRole.PRIMARY: self.minimum, GroupRole.FALLBACK: 0}
        self.desired = {role: max(bounds[role], min(n, maximum)) for role, n in self.desired.items()}
        self.allowed = max(self.allowed, self._most())

    def _without_inputs(self, seen: Observation) -> Observation:
        """Return the observation with inputs absent, late, of yesterday or of another kind."""
        draw = self.draw
        failed_at = self.now - draw.choice((0, 60, 3600, 86_400, -60))
        failures = tuple(
            LaunchFailure(role, draw.choice(list(LaunchFailureKind)), failed_at, "words")
            for role in GroupRole
            if draw.random() < 0.2
        )
        processes = frozenset({"Launch"})
        requests = (ReplacementRequest(i.id, int(failed_at), "xid") for i in seen.instances)
        seen = replace(
            seen,
            registry_unknown=draw.random() < 0.1,
            launch_failures=failures,
            launches_succeed=frozenset(role for role in GroupRole if draw.random() < 0.1),
            activities_unknown=frozenset(role for role in GroupRole if draw.random() < 0.1),
            suspended=dict.fromkeys(self.suspended, processes),
            warm_pool_lacks=draw.choice((None, "", "refused", "refused")),
            others_report=draw.choice((None, True, False)),
            configuration=draw.choice(("", "one", "one", "one", "two")),
            replacement_requests=tuple(request for request in requests if draw.random() < 0.05),
            is_partial=draw.random() < 0.1,
        )
        if draw.random() < 0.9:
            return seen
        # Not read: its members are those that EC2 has with its tags.
        role, error = GroupRole.PRIMARY, {GroupRole.PRIMARY: "Throttling"}
        members = slots(i for i in seen.instances if i.group_role is role)
        suspended = {r: seen.suspended[r] for r in seen.suspended if r is not role}
        return replace(
            seen,
            primary_desired=members,
            unobserved=error,
            modifying=frozenset(error),
            missing=frozenset(error) if draw.random() < 0.5 else frozenset(),
            suspended=suspended,
        )

    def _count_alarms(self, decision: Decision) -> None:
        for action in decision.actions:
            if isinstance(action, Alarm):
                ago = self.now - self.raised_at.get(action.kind, -RESOLVED_SECONDS)
                if ago < RESOLVED_SECONDS:
                    self.alarms.append(f"{action.kind} is raised again after {ago:.0f} s")
                self.raised_at[action.kind], self.opened = self.now, self.opened + 1
        still = self.memory.active_alarms | self.memory.alarms_without_cause.keys()
        self.closed += len(self.open - still)
        self.open = still

    def _held(self) -> int:
        """Return the slots that AWS may bill: what each group holds or desires, the base, and what ends.

        Until the controller has lowered it, AWS launches what a group desires; the base is always requested.
        """
        base = {GroupRole.PRIMARY: self.group.config.base, GroupRole.FALLBACK: 0}
        ending = slots(box.instance for box in self.boxes if box.is_ending)
        return ending + sum(max(self.desired[role], self._counted(role), base[role]) for role in GroupRole)

    def _most(self) -> float:
        """Return the highest cost that AWS may already have billed."""
        return SLOT_PRICE * (self._held() + 2 * (self.largest - 1))

    def returns_to_spot(self) -> bool:
        """Return whether the group holds Spot soon once it is there and stays, from any memory."""
        self.has_spot, self.suspended, self.seen_group = True, frozenset(), None
        self.memory = any_memory(self.draw, self.now, [box.instance.id for box in self.boxes])
        price = self.draw.uniform(0.1, 0.9)
        prices = {f"{name}@{zone}": price for name in self.types for zone in "ab"}
        is_mixed = self.group.config.base > 0 or self.group.config.spot_percentage < 100
        minutes, held = MIXED_MINUTES if is_mixed else SPOT_MINUTES, False
        for minute in range(2 * minutes):
            self.now += 60.0
            self._advance()
            instances = tuple(self._truth(box) for box in self.boxes)
            self._decide(self._observe(self.group, instances, prices), failures=0.0)
            held |= minute >= minutes and self._holds_spot()
        # A mixed group whose own On-Demand Instances fill its target has no room for Spot: a matter of the
        # scale-in before, not of a belief.
        config, target = self.group.config, self.group.target
        may_be_full = config.spot_percentage < 100 or self.moves
        # The rounded share of a small target may be all of it: such a group has no Spot.
        has_share = on_demand_share(target, config.base, config.spot_percentage) < target
        return held or not has_share or (may_be_full and self._counted(GroupRole.PRIMARY) >= target)

    def surplus(self) -> Iterator[str]:
        """Yield a line if more runs than the maximum allows, long after it was lowered."""
        running, most = slots(box.instance for box in self.boxes), self.group.maximum + 2 * (self.largest - 1)
        if running > most:
            yield f"in the end {running} slots run, at most {most} may"

    def _holds_spot(self) -> bool:
        return any(b.instance.purchase_option is PurchaseOption.SPOT and self._is_up(b) for b in self.boxes)

    def _interrupt(self) -> None:
        for box in self.boxes:
            if box.ends_at is None and self.draw.random() < 0.05:
                box.ends_at = self.now + self.draw.choice((0.0, 120.0))

    def _advance(self) -> None:
        """End what is due, and launch what the groups lack."""
        self.boxes = [box for box in self.boxes if box.ends_at is None or box.ends_at > self.now]
        for role in GroupRole:
            while (
                role not in self.suspended
                and self.desired[role] > self._counted(role)
                and (self.has_spot or self._lacks_base(role))
            ):
                self._launch(role, self._option(role))

    def _counted(self, role: GroupRole) -> int:
        return slots(b.instance for b in self.boxes if b.instance.group_role is role and not b.is_ending)

    def _lacks_base(self, role: GroupRole) -> bool:
        return role is GroupRole.FALLBACK or self._option(role) is PurchaseOption.ON_DEMAND

    def _option(self, role: GroupRole) -> PurchaseOption:
        """Return what AWS buys next: On-Demand in the fallback, and up to the share in the primary group."""
        if role is GroupRole.FALLBACK:
            return PurchaseOption.ON_DEMAND
        members = (b.instance for b in self.boxes if b.instance.group_role is role and not b.is_ending)
        held = slots(i for i in members if i.purchase_option is PurchaseOption.ON_DEMAND)
        config = self.group.config
        share = on_demand_by_awss_rule(self.desired[role], config.base, config.spot_percentage)
        return PurchaseOption.ON_DEMAND if held < share else PurchaseOption.SPOT

    def _launch(self, role: GroupRole, option: PurchaseOption, zone: str = "") -> None:
        self.serial += 1
        size = self.draw.choice(self.sizes)
        zone = zone or self.draw.choice(self.group.config.zones or "ab")
        pool = Pool(self.draw.choice(self.types), zone)
        instance = Instance(f"i-{self.serial}", pool, option, role, self.now, slots=size)
        hourly = SLOT_PRICE * size * self.draw.choice((1.0, 0.5, 0.1))
        self.boxes.append(Box(instance, hourly, self.draw.uniform(60, 240)))

    def _is_up(self, box: Box) -> bool:
        return self.now >= box.instance.launched_at + box.boot

    def _truth(self, box: Box) -> Instance:
        is_up, is_job = self._is_up(box), self.group.config.break_before_make
        ready = [b for b in self.boxes if self._is_up(b)]
        works = is_up and (not is_job or box is ready[0])
        ready_at = box.instance.launched_at + box.boot
        progress = Progress(10, 10_000, self.now - 30, ready_at, 0.05, 0.05) if works and is_job else None
        return replace(
            box.instance,
            ready_since=ready_at if works else None,
            is_standby=is_up and not works,
            deadline=box.ends_at,
            is_terminating=box.is_ending,
            progress=progress,
        )

    def _lie(self) -> Observation:
        draw = self.draw
        instances = []
        for box in self.boxes:
            is_ready = draw.random() < 0.5
            instances.append(
                replace(
                    box.instance,
                    ready_since=self.now - draw.uniform(0, 7200) if is_ready else None,
                    deadline=self.now + draw.uniform(-60, 900) if draw.random() < 0.3 else None,
                    is_standby=draw.random() < 0.3,
                    is_described=draw.random() < 0.8,
                    is_terminating=box.is_ending,
                )
            )
        group = self.seen_group or self.group
        target = min(group.maximum, draw.choice((0, 1, 2, 5, 100)))
        prices = {f"g5.xlarge@{zone}": draw.choice((0.001, 0.3, 0.9, 5.0)) for zone in "ab"}
        group = replace(group, target=target)
        seen = self._observe(group, tuple(instances), prices if draw.random() < 0.8 else {})
        return replace(seen, on_premises_slots=draw.choice((None, 0, 1, 100)))

    def _observe(
        self, group: Group, instances: tuple[Instance, ...], prices: dict[str, float]
    ) -> Observation:
        return Observation(
            group,
            self.desired[GroupRole.PRIMARY],
            self.desired[GroupRole.FALLBACK],
            instances,
            listed_slots={role: self._counted(role) for role in GroupRole},
            bounds={role: self._bounds(role) for role in GroupRole} if self.moves else {},
            spot_prices=prices,
        )

    def _bounds(self, role: GroupRole) -> tuple[int, int]:
        return (self.minimum if role is GroupRole.PRIMARY else 0), self.group.maximum

    def _decide(self, seen: Observation, failures: float) -> Decision:
        decision = decide(seen, self.policy, self.memory, self.now)
        self.memory = decision.memory
        for role in GroupRole:
            if self.draw.random() < failures:
                continue  # the calls for this group fail
            if role in seen.unobserved:
                asked = [a for a in decision.actions if not isinstance(a, Alarm) and a.group_role is role]
                self.refused += [f"{role} was not read: {action}" for action in asked]
                continue
            least, most = self._bounds(role)
            for action in decision.actions:
                match action:
                    case SetDesired(side, capacity, _, zone, only_there) if side is role:
                        if self.moves and not least <= capacity <= most:
                            self.refused.append(f"capacity {capacity} of {role} is outside {least} to {most}")
                            break
                        if not only_there:
                            self.desired[role] = capacity
                        elif self.has_spot and role not in self.suspended and self.draw.random() < 0.7:
                            self.desired[role] += 1
                            self._launch(role, PurchaseOption.SPOT, zone)
                    case TerminateInstances(side, gone, _, freed) if side is role:
                        if self.moves and self.desired[role] - freed < least:
                            self.refused.append(f"{freed} of {self.desired[role]} end, {role} keeps {least}")
                        self.desired[role] = max(0, self.desired[role] - freed)
                        for box in self.boxes:
                            if box.instance.id in gone and not box.is_ending:
                                box.is_ending, box.ends_at = True, self.now + self.draw.uniform(0, 120)
        return decision

    def _overspent(self) -> Iterator[str]:
        """Yield a line if the bill exceeds the maximum by more than AWS's overshoot of both groups."""
        maximum = max(self.group.maximum, self.seen_group.maximum if self.seen_group else 0)
        # AWS itself replaces what ends of a minimum, which only an operator sets.
        allowed = SLOT_PRICE * (maximum + self.minimum + 2 * (self.largest - 1))
        bill = sum(box.hourly for box in self.boxes)
        # What ran when the maximum was lowered may run on; nothing is added to it.
        self.allowed = 0.0 if self._held() <= maximum else min(self.allowed, self._most())
        if bill > max(allowed, self.allowed) + _EPSILON:
            yield f"at {self.now - START:.0f} s: ${bill:g} an hour is more than ${allowed:g}"
        yield from (f"at {self.now - START:.0f} s: AWS refuses: {line}" for line in self.refused)
        self.refused.clear()


def world(seed: int) -> World:
    """Return a group with any size, mix, policy and budget."""
    draw = random.Random(seed)
    policy: Policy = draw.choice(
        (ExpectedCost(draw.choice((0.5, 2.0, 100.0, 1000.0))), ExpectedCost(), ReadyHandover(), ByDeadline())
    )
    is_job = isinstance(policy, ByDeadline) or draw.random() < 0.3
    target = 1 if is_job else draw.randint(2, 6)
    mix = (0, 100) if is_job else draw.choice(((0, 100), (0, 100), (0, 50), (1, 100)))
    # A large On-Demand Instance of a mixed group may fill its whole target.
    sizes = draw.choice(SIZES) if mix == (0, 100) and not is_job else (1,)
    base, percentage = min(mix[0], target - 1), mix[1]
    # At least what the schema demands: the target, and one more instance for the exchange.
    least = target + max(sizes)
    group = make_group(
        f"g{seed}",
        target=target,
        maximum=least + draw.randint(0, 6),
        base=base,
        spot_percentage=percentage,
        break_before_make=is_job,
        drain_seconds=draw.choice((0.0, 30.0)),
        deadline=START + 1000 * 3600 if isinstance(policy, ByDeadline) else 0.0,
        zones=draw.choice(((), ("a", "b"))),
    )
    return World(draw, group, policy, sizes, moves=seed % 2 == 1, largest=max(sizes))


def run(steps: int, seed: int = 0) -> Outcome:
    """Take ``steps`` passes with lying signals, ``PASSES_OF_A_WORLD`` in each world."""
    outcome = Outcome()
    for number in range(-(-steps // PASSES_OF_A_WORLD)):
        walk = world(seed + number)
        name = f"world {seed + number} ({walk.policy.name})"
        for _ in range(PASSES_OF_A_WORLD):
            outcome.steps += 1
            outcome.moving += walk.moves
            outcome.violations += [f"{name}, {line}" for line in walk.play()]
        outcome.opened, outcome.closed = outcome.opened + walk.opened, outcome.closed + walk.closed
        outcome.still_open += len(walk.open)
        if walk.opened != walk.closed + len(walk.open):
            walk.alarms.append(f"{walk.opened} opened, {walk.closed} closed, {len(walk.open)} open")
        outcome.alarms += [f"{name}, {line}" for line in walk.alarms]
        if not walk.returns_to_spot():
            outcome.absorbed.append(name)
        outcome.violations += [f"{name}, {line}" for line in walk.surplus()]
    return outcome
