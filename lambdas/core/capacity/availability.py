"""The availability checker: from what is observed to named actions, each with its reason.

A policy says how many on-demand slots it wants. The rules that keep a group safe whatever the policy
stand here: the ceiling, the base, the ready hand-over, refusals told apart, manual override and pause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from contracts.group.control import Mode
from lambdas.core.capacity import on_premises
from lambdas.core.capacity.alarms import alarms
from lambdas.core.capacity.group_state import Situation
from lambdas.core.capacity.memory import Memory, ask, learn, unsettled
from lambdas.core.capacity.plan import Plan, Policy
from lambdas.core.model import Action, Instance, Market, Observation, Release, SetDesired, Side, ids, slots
from lambdas.core.money import bill
from lambdas.core.rollout import surge as easing


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, why, and what to remember.

    ``actions`` are in the order in which to carry them out. ``wake_at`` is the first moment at which the
    same observation may lead to other actions; ``None``: only a new observation does.
    """

    actions: tuple[Action, ...]
    memory: Memory
    reason: str
    situation: Situation
    wake_at: float | None = None


def decide(observation: Observation, policy: Policy, memory: Memory, now: float) -> Decision:
    """Return what to do about one group now. Pure; carried out and seen, it wants nothing more."""
    memory = learn(memory, observation, now)
    observation = easing.eased(_held(observation, memory, now), now)
    observation = on_premises.relieved(observation, memory.stand_ins.slots)
    situation = Situation.of(observation, memory, now)
    control = observation.group.control
    if control.mode is Mode.PAUSED:
        return Decision((), memory, "paused by the control parameter", situation)
    told, alarmed = alarms(observation, situation)
    plan, moves = _moves(situation, policy, any(cause.startswith(Side.PRIMARY) for cause in alarmed))
    more = (*plan.alarms, *bill.alarms(memory.bill, observation, now))
    told += tuple(alarm for alarm in more if alarm.kind not in memory.alarmed)
    alarmed |= {alarm.kind for alarm in more}
    moves = _placed(_settled(moves, observation, unsettled(memory, observation, now)), observation, memory)
    actions = (*told, *moves)
    memory = replace(memory, alarmed=alarmed)
    if control.mode is not Mode.DRY_RUN:
        memory = ask(memory, observation, moves, now, situation.wished.keys())
    return Decision(actions, memory, plan.reason, situation, _wake_at(situation, plan))


def _held(observation: Observation, memory: Memory, now: float) -> Observation:
    """Return the observation of a group that has nothing to do once its job's budget is spent."""
    if not bill.is_spent(memory.bill, observation.group.budget, now):
        return observation
    return replace(observation, group=replace(observation.group, target=0, reserved=0))


def _moves(situation: Situation, policy: Policy, blocked: bool) -> tuple[Plan, list[SetDesired | Release]]:
    """Return the plan, and the actions that bring both sides to it."""
    unfit = _unfit(situation)
    going = [i for i in unfit if i.side is Side.PRIMARY]
    spared = [i for i in unfit if i.side is Side.FALLBACK]
    if unfit:
        # The next look will not count them: plan for who stays, or it would want something else.
        situation = situation.without(unfit)
    plan = _plan(situation, policy)
    fallback = _fallback_wanted(situation, plan, blocked)
    primary = _primary_wanted(situation, plan, fallback)
    staying = [i for i in situation.primary if i.id not in situation.memory.doomed]
    if victims := _victims(situation, Side.PRIMARY, staying, slots(staying) - primary, plan.handover):
        going += victims
        situation = situation.without(victims)
        plan = _plan(situation, policy)
        fallback = _fallback_wanted(situation, plan, blocked)
        primary = _primary_wanted(situation, plan, fallback)
    staying = [i for i in situation.fallback if i.id not in situation.wished]
    surplus = slots(situation.fallback) - fallback
    victims = _victims(situation, Side.FALLBACK, staying, surplus, plan.handover)
    spared += victims
    # A release that AWS does not show yet may have failed: it lowers nothing before it does.
    freed = slots(victims)
    left = situation.counted[Side.FALLBACK] + situation.showing[Side.FALLBACK] - freed
    desired = situation.fallback_desired - freed
    members = situation.counted[Side.PRIMARY] + situation.showing[Side.PRIMARY]
    worn = frozenset(ids(unfit))
    sides = [
        _move(Side.PRIMARY, primary, situation.primary_desired, members, going, worn, plan.reason),
        _move(Side.FALLBACK, fallback, desired, left, spared, worn, plan.reason),
    ]
    # What was released before and still shows takes its slots off later, or failed and stays.
    owed = situation.owed
    return plan, [
        replace(move, capacity=move.capacity + owed[move.side]) if isinstance(move, SetDesired) else move
        for moves in sides
        for move in moves
    ]


def _unfit(situation: Situation) -> list[Instance]:
    """Return who is replaced whatever the plan: the mute, the wished, and those that AWS retires.

    An on-demand instance of the base that is silent stays, and people hear of it: the base is always kept.
    """
    silent = [i for i in situation.mute if i.side is Side.FALLBACK or i.market is Market.SPOT]
    failed = situation.failed
    served = [i for i in situation.retiring if i not in failed]
    return [*silent, *failed, *served]


def _settled(
    moves: Sequence[SetDesired | Release], observation: Observation, settling: Mapping[Side, int]
) -> list[SetDesired | Release]:
    """Leave out what is asked of sides that take no order now; the other has the room that they leave.

    ``settling`` is what these may come to hold.
    """
    kept: list[SetDesired | Release] = []
    for move in moves:
        if move.side in settling:
            continue
        if settling and isinstance(move, SetDesired):
            # Raised to what stands already, ahead of a release, it launches nothing.
            held = max(observation.desired(move.side), observation.counted(move.side))
            room = max(held, observation.group.maximum - sum(settling.values()))
            move = replace(move, capacity=min(move.capacity, room))
        kept.append(move)
    return kept


def _placed(
    moves: Sequence[SetDesired | Release], observation: Observation, memory: Memory
) -> list[SetDesired | Release]:
    """Ask for on-demand where the job's volume is: elsewhere it would have to follow first."""
    home = memory.home if observation.group.by_zone else ""
    held = observation.fallback_desired
    return [
        replace(move, zone=home)
        if home and isinstance(move, SetDesired) and move.side is Side.FALLBACK and move.capacity > held
        else move
        for move in moves
    ]


def _plan(situation: Situation, policy: Policy) -> Plan:
    plan, told = _wanted(situation, policy), situation.told
    return replace(plan, reason=f"{plan.reason}; {told}") if told else plan


def _wanted(situation: Situation, policy: Policy) -> Plan:
    control = situation.group.control
    if control.mode is Mode.MANUAL:
        wanted = situation.committed_fallback if control.on_demand is None else control.on_demand
        return Plan(wanted, f"{wanted} on-demand set by the control parameter", handover=False)
    if not situation.reserved:
        return policy.plan(situation)
    rest = situation.beyond_reserved()
    held = situation.group.target - rest.group.target
    plan = policy.plan(rest)
    return replace(
        plan,
        on_demand=max(situation.reserved, held + plan.on_demand),
        primary=rest.group.target if plan.primary is None else plan.primary,
        reason=f"{held} of {situation.reserved} reserved; of the rest: {plan.reason}",
    )


def _fallback_wanted(situation: Situation, plan: Plan, blocked: bool) -> int:
    """Return the on-demand slots to hold behind the primary group."""
    if not situation.group.fallback:
        return 0
    wanted, held = max(0, plan.on_demand), situation.committed_fallback
    # Who is replaced at a wish is none of those that the plan counts on.
    wanted += slots(i for i in situation.fallback if i.id in situation.wished)
    if blocked and situation.group.control.mode is not Mode.MANUAL:
        # What limits, permissions or configuration withhold is for people to mend, not for on-demand to fill.
        wanted = max(wanted - situation.missing_spot, min(wanted, held), situation.reserved)
    # Whom AWS counts it replaces, and the base is asked for in any case.
    primary = max(slots(situation.primary), situation.counted[Side.PRIMARY], situation.group.base)
    room = situation.group.maximum - primary - situation.leaving
    return min(wanted, max(room, slots(situation.fallback)))


def _primary_wanted(situation: Situation, plan: Plan, fallback: int) -> int:
    """Return the primary group's desired capacity: the plan's, as far as the ceiling leaves room for it."""
    wanted = situation.group.target if plan.primary is None else plan.primary
    held = max(fallback, slots(situation.fallback), situation.counted[Side.FALLBACK])
    room = situation.group.maximum - held - situation.leaving
    doomed, wished = situation.memory.doomed, situation.wished
    staying = slots(i for i in situation.primary if i.id not in doomed)
    if wished:
        # What the fallback does not stand in for the group launches itself.
        supply = staying + fallback - slots(i for i in situation.fallback if i.id in wished)
        replaced = slots(i for i in situation.primary if i.id in wished)
        wanted += min(replaced, max(0, situation.group.target - supply))
    return max(situation.group.base, min(wanted, max(room, staying)))


def _move(
    side: Side,
    wanted: int,
    desired: int,
    live: int,
    going: Sequence[Instance],
    worn: Set[str],
    reason: str,
) -> list[SetDesired | Release]:
    """Return the actions that let ``going`` go and bring what is left of a side to ``wanted``.

    ``desired`` and ``live`` are AWS's counts without them; ``worn`` are those that nobody wants back.
    """
    # Below what lives AWS would pick the victim; raised to an overshoot it would stay.
    capacity = max(min(desired, max(wanted, live)), wanted)
    freed = slots(going)
    actions: list[SetDesired | Release] = []
    if capacity != desired:
        # Each release takes its slots off what is set here.
        actions.append(SetDesired(side, capacity + freed, reason))
    if going:
        leaving = ids(going)
        actions.append(Release(side, leaving, reason, freed, for_good=not worn.isdisjoint(leaving)))
    return actions


def _victims(
    situation: Situation, side: Side, staying: Sequence[Instance], surplus: int, handover: bool
) -> list[Instance]:
    """Choose whom to let go, in the order of release; never the base, and never more than ``surplus`` slots.

    Hand-over: a serving instance may go only while the others fill the target without it. What boots in
    place of an instance at risk stays: capacity rebalancing would launch the next one at once.
    """
    if surplus <= 0:
        return []
    at_risk = situation.memory.at_risk
    successors = surplus - slots(i for i in staying if i.id in at_risk)
    serving = slots(situation.lasting((*situation.primary, *situation.fallback)))
    spare = max(0, serving - situation.group.target) if handover else serving
    lasting = set(ids(situation.lasting(staying)))
    base = situation.group.base if side is Side.PRIMARY else 0
    on_demand = slots(i for i in staying if i.market is Market.ON_DEMAND)
    chosen: list[Instance] = []
    for instance in situation.release_order(staying):
        count = instance.slots
        if surplus <= 0:
            break
        if count > surplus:
            continue  # without it the side would lack slots, and launch again
        if not instance.described or instance.unclear:
            continue  # what it is, or whether it serves, nobody knows; who stays silent goes all the same
        if side is Side.PRIMARY and instance.market is Market.ON_DEMAND:
            if on_demand - count < base:
                continue
            on_demand -= count
        if instance.id in lasting:
            if spare < count:
                continue
            spare -= count
        elif instance.id not in at_risk and successors < count:
            continue
        if instance.id not in at_risk:
            successors -= count
        surplus -= count
        chosen.append(instance)
    return chosen


def _wake_at(situation: Situation, plan: Plan) -> float | None:
    """Return the first moment after now at which one stops serving, waits in vain, or is planned for anew."""
    doomed = situation.memory.doomed.keys() - situation.wished.keys()  # these have no date
    drains = (situation.drain_at(i) for i in (*situation.primary, *situation.fallback) if i.id in doomed)
    of_budget = bill.moments(situation.memory.bill, situation.group.budget, situation.now)
    moments = (plan.wake_at, situation.memory.history.refused_at, *of_budget, *drains)
    return min((t for t in moments if t is not None and t > situation.now), default=None)
