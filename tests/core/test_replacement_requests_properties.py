"""What holds of wishes and of workers on premises, for every policy and any state."""

from __future__ import annotations

from hypothesis import given

from contracts.group.replacement_requests import NOT_SERVING
from lambdas.core.capacity.availability import decide
from lambdas.core.capacity.replacements import REPLACEMENT_DIVISOR
from lambdas.core.model import Observation, slots
from tests.core.build import NOW, carried_out, released
from tests.core.states import memories, observations, policies


@given(observations(), policies, memories)
def test_a_serving_instance_is_replaced_only_if_others_fill_the_target(
    state: Observation, policy, memory
) -> None:
    decision = decide(state, policy, memory, NOW)
    verdicts = {request.instance: request.reason for request in state.replacement_requests}
    gone = released(decision.actions)
    went = [i for i in state.instances if i.id in gone and i.id in verdicts]
    served = [i for i in went if i.ready_since is not None and verdicts[i.id] not in NOT_SERVING]
    if not served:
        return
    situation = decision.state
    left = [i for i in state.instances if i.id not in gone and i.deadline is None and i.ready_since]
    # Who goes beside is not needed either: the target may be lower than what serves.
    assert slots(left) >= situation.group.target


@given(observations(), policies, memories)
def test_replacements_are_requested_and_at_most_a_share_of_the_group(
    state: Observation, policy, memory
) -> None:
    most = max(1, len(state.instances) // REPLACEMENT_DIVISOR)
    decision = decide(state, policy, memory, NOW)
    assert len(decision.state.replacements) <= most
    # Once they are gone as many others wait for their turn.
    later = decide(carried_out(state, decision), policy, decision.memory, NOW)
    ended = {*released(decision.actions)} & decision.state.replacements.keys()
    assert len(ended | later.state.replacements.keys()) <= most


@given(observations(), policies, memories)
def test_on_premises_workers_never_reduce_the_target_below_the_base(
    state: Observation, policy, memory
) -> None:
    target = decide(state, policy, memory, NOW).state.group.target
    assert min(state.group.base, state.group.target) <= target <= state.group.target
