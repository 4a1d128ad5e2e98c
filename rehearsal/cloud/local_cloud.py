"""The local cloud: a deployment on moto whose instances a simulated market launches and interrupts.

It changes moto's state and sends the events and heartbeats that AWS and the workers would send; the deployed
functions react to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from contracts import names
from contracts.registry import item as registry_item
from contracts.registry.item import Worker, WorkerState
from lambdas.aws.budget import UNLIMITED
from lambdas.aws.registry import RegistryReader
from lambdas.core.model import GroupRole, Pool, PurchaseOption
from pulumi_on_moto.emulator import AwsClients
from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.ec2 import spot_prices, terminations
from pulumi_on_moto.fixes.ec2.spot_requests import ENDED_BY_USER, NO_CAPACITY, request_of
from pulumi_on_moto.fixes.fleets.operations import modifying_takes
from pulumi_on_moto.fixes.groups import launches, leaving
from pulumi_on_moto.fixes.groups import members as moto_groups
from pulumi_on_moto.program.deployment import Deployment
from pulumi_on_moto.running.clock import SimulatedTime
from pulumi_on_moto.running.functions import Call, Invocation
from rehearsal.cloud.heartbeats import Heartbeats
from rehearsal.cloud.holders import ScalingGroupHolder
from rehearsal.cloud.instances import Holder, Instances
from rehearsal.cloud.views import GroupView, read_groups

_MODIFYING_SECONDS: Final = 3.0
"""How long a Spot Fleet shows the old target and rejects another modification after one.

Sources: EC2 user guide, "Spot Fleet request states"; kubernetes-retired/kube-aws#843.
"""
_SUSPENDS_AFTER_SECONDS: Final = 86_400.0
"""A group whose launches all failed for this time launches no more until its processes are resumed.

Source: Auto Scaling user guide, "Suspend and resume processes".
"""
_ENDING: Final = ("shutting-down", "terminated")


class LocalCloud(moto_groups.MembershipListener):
    """A running deployment with all its groups. Times are epoch seconds of ``clock``."""

    def __init__(self, clients: AwsClients, deployment: Deployment, clock: SimulatedTime) -> None:
        self.clients = clients
        self.deployment = deployment
        self.clock = clock
        self._instances = Instances(clients)
        self._bus = deployment.bus
        self._groups = read_groups(deployment, self._instances)
        self._group_of = {name: group for group in self._groups for name in group.holders}
        variables: dict[str, str] = {}
        for function in deployment.of_type("aws:lambda/function:Function"):
            variables |= (function.inputs.get("environment") or {}).get("variables") or {}
        table, arns = variables[names.ENV_REGISTRY_TABLE], variables[names.ENV_INSTANCE_ARNS]
        self.registry = RegistryReader(clients("dynamodb"), table, arns)
        self.heartbeats = Heartbeats(clients, self.registry.table)
        self._deadlines: dict[str, float] = {}
        self._waiting_since: dict[str, float] = {}
        self._refused_since: dict[str, float] = {}
        self._listener: Callable[[Call], None] | None = None
        self._buyers: dict[str, Callable[[str, GroupRole], str | None]] = {}
        self._selling = False
        modifying_takes(self._instances.ec2, _MODIFYING_SECONDS)
        deployment.functions.listener = self._on_call
        moto_groups.listen(self._instances.autoscaling, self)
        launches.offer(self._instances.autoscaling, self.sell)
        terminations.listen(self._instances.ec2, self._terminated_by_client)

    def set_time(self, now: float) -> None:
        """Advance time: hooks time out, and old terminated instances disappear from the APIs."""
        self.clock.set(now)
        leaving.time_out(self._instances.autoscaling)
        for name, since in list(self._refused_since.items()):
            if now - since >= _SUSPENDS_AFTER_SECONDS:
                del self._refused_since[name]  # after a resume the time counts from zero
                self._instances.holder(name).suspend()
        purged = self._instances.purge(now)
        if purged:
            self.heartbeats.forget(purged)
            for instance_id in purged:
                self._deadlines.pop(instance_id, None)

    def groups(self) -> tuple[GroupView, ...]:
        """Return the deployed capacity groups."""
        return self._groups

    def group(self, name: str) -> GroupView:
        """Return one capacity group."""
        for group in self._groups:
            if group.name == name:
                return group
        deployed = ", ".join(group.name for group in self._groups) or "none"
        raise LocalCloudError(f"group {name!r} is not deployed; groups: {deployed}")

    def boot_data(self, group: str) -> str:
        """Return the user data of the instances of a primary group."""
        return self._instances.boot_data(self._instances.holder(self.group(group).primary))

    def desired(self, group: str) -> tuple[int, int]:
        """Return the desired capacities of primary and fallback group from the API."""
        view = self.group(group)
        fallback = 0 if view.fallback is None else self._instances.holder(view.fallback).desired
        return self._instances.holder(view.primary).desired, fallback

    def alive(self, group: str, side: GroupRole | None = None) -> set[str]:
        """Return the ids of running instances of a group role (None: both), not in a termination hook."""
        view = self.group(group)
        holders = view.holders if side is None else (view.side(side),)
        instance_ids: set[str] = set()
        for holder in (self._instances.holder(name) for name in holders):
            instance_ids |= {instance.id for instance in holder.instances()} - self._let_go(holder)
        return instance_ids

    def launchable(self, group: str) -> dict[GroupRole, int]:
        """Return the desired capacities, the current ones for a group role whose launches are suspended."""
        view, result = self.group(group), {}
        for side, desired in zip(GroupRole, self.desired(group), strict=True):
            result[side] = desired
            if desired and self._instances.holder(view.side(side)).suspended:
                running = map(self._instances.instance, self.alive(group, side))
                result[side] = min(desired, sum(view.weights.get(i.instance_type, 1) for i in running))
        return result

    def launch(
        self, group: str, side: GroupRole, instance_type: str, zone: str, market: PurchaseOption
    ) -> str:
        """Launch an instance; return its id. Desired capacity does not change."""
        holder = self._instances.holder(self.group(group).side(side))
        instance = self._instances.launch(holder, instance_type, zone, market)
        self._launched(holder, instance)
        return str(instance.id)

    def buy_by_zone(self, group: str, buyer: Callable[[str, GroupRole], str | None]) -> None:
        """Let ``buyer`` serve LaunchInstances requests for one instance in a zone, in one of both groups.

        It returns the instance's id, ``None`` if the zone has no capacity.
        """
        self._buyers[group] = buyer

    def sell(self, group: Any, zone: str, capacity: int) -> list[Any]:
        """See ``Seller``; launches meanwhile are not calls of the requesting function."""
        view = self._group_of[group.name]
        buyer = self._buyers.get(view.name)
        role = GroupRole.PRIMARY if group.name == view.primary else GroupRole.FALLBACK
        if buyer is None or capacity != 1:
            return []
        self._selling = True
        try:
            bought = buyer(zone, role)
        finally:
            self._selling = False
        return [] if bought is None else [self._instances.instance(bought)]

    def refuse(self, group: str, side: GroupRole, message: str) -> None:
        """Fail a launch; ``message`` is the StatusMessage of AWS."""
        holder = self._instances.holder(self.group(group).side(side))
        holder.refuse(message)
        self._refused_since.setdefault(holder.name, self.clock.now)
        self._bus.publish(holder.refused(self._bus, message, self.clock.now))

    def quote(self, group: str, prices: Mapping[Pool, float]) -> None:
        """Set the Spot prices of a group's pools, as fractions of the On-Demand price."""
        on_demand = self.group(group).config.on_demand_prices
        quotes = {pool: price for pool, price in prices.items() if pool.instance_type in on_demand}
        spot_prices.quote(
            self._instances.ec2,
            {(p.instance_type, p.zone): price * on_demand[p.instance_type] for p, price in quotes.items()},
        )

    def fill_warm_pools(self) -> None:
        """Bring every warm pool to its size."""
        for view in self._groups:
            if view.fallback is not None:
                self._instances.fill_warm_pool(self._instances.group(view.fallback))

    def warm(self, group: str) -> tuple[str, ...]:
        """Return the ids of the instances in the warm pool of the fallback."""
        name = self.group(group).fallback
        if name is None:
            return ()
        return tuple(instance.id for instance in moto_groups.warm_instances(self._instances.group(name)))

    def takes_back(self, group: str) -> bool:
        """Return whether instances return to the fallback's warm pool at a scale-in."""
        name = self.group(group).fallback
        return name is not None and moto_groups.reuses(self._instances.group(name))

    def start_warm(self, group: str, instance_id: str) -> str:
        """Start an instance of the fallback's warm pool; return its id."""
        fallback = self._instances.group(self.group(group).side(GroupRole.FALLBACK))
        instance = self._instances.start_warm(fallback, instance_id)
        self._launched(self._instances.holder_of(instance), instance)
        return str(instance.id)

    def lose_warm(self, group: str, instance_id: str) -> None:
        """Terminate a warm instance that EC2 had no capacity to start."""
        fallback = self._instances.group(self.group(group).side(GroupRole.FALLBACK))
        self._instances.lose_warm(fallback, instance_id, self.clock.now)

    def rebalance(self, instance_id: str) -> None:
        """Send a rebalance recommendation for a Spot instance."""
        zone = self._instances.instance(instance_id).placement.zone
        self._bus.publish(self._bus.rebalance_recommendation(instance_id, zone, self.clock.now))

    def notice(self, instance_id: str, deadline: float) -> None:
        """Give the two-minute notice: close the Spot request, send the warning, set the workers' deadline.

        The request of an instance that is terminated on interruption is closed at the notice.
        Source: EC2 user guide, "State changes for a Spot request".
        """
        instance = self._instances.instance(instance_id)
        request = request_of(self._instances.ec2, instance)
        if request is None:
            raise LocalCloudError(f"instance {instance_id!r} is On-Demand and gets no interruption notice")
        request.mark(NO_CAPACITY)
        self._deadlines[instance_id] = deadline
        zone = instance.placement.zone
        self._bus.publish(self._bus.interruption_warning(instance_id, zone, self.clock.now))
        self._instances.holder_of(instance).noticed(instance)

    def kill(self, instance_ids: Iterable[str]) -> None:
        """Terminate instances by interruption; they leave their groups, whose desired capacity stays.

        Termination hooks of instances with a notice are completed, as the agent does just before the end.
        """
        for instance_id in instance_ids:
            if self._instances.has_ended(instance_id):
                continue  # already terminated by its group
            instance = self._instances.instance(instance_id)
            holder = self._instances.holder_of(instance)
            self._instances.take(instance, self.clock.now)
            self._announce(instance, *_ENDING)
            if holder.lose(instance):
                self._bus.publish(holder.terminated(self._bus, instance, self.clock.now))
            elif instance_id in self._deadlines:
                holder.let_go(instance_id)

    def let_go(self, group: str) -> None:
        """Complete the termination hooks of service instances whose workers have stopped.

        The agent does so after at most ``drain_seconds``, at a notice after its two minutes.
        """
        view = self.group(group)
        for holder in (self._instances.holder(name) for name in view.holders):
            for instance_id in self._let_go(holder):
                drained_at = self._waiting_since[instance_id] + view.config.drain_seconds
                if drained_at <= self.clock.now and not self._instances.has_ended(instance_id):
                    holder.let_go(instance_id)

    def heartbeat(self, instance_ids: Iterable[str]) -> None:
        """Write the heartbeats of these instances into the worker registry.

        The first heartbeat of an instance completes its launch hook.
        """
        workers = []
        for instance_id in instance_ids:
            instance = self._instances.instance(instance_id)
            holder = self._instances.holder_of(instance)
            self.completed(instance)
            view = self._group_of[holder.name]
            slots = view.config.slots.get(instance.instance_type, 1)
            deadline = self._deadlines.get(instance_id)
            partition = registry_item.partition(view.name, self.registry.instance_arns + instance_id)
            is_draining = deadline is not None and self.clock.now >= deadline - view.config.drain_seconds
            state: WorkerState = "draining" if is_draining else "ready"
            now = self.clock.now
            workers += [
                Worker(partition, instance_id, slot, now, now, state, deadline) for slot in range(slots)
            ]
        self.heartbeats.write(workers, self.clock.now)

    def workers(self, group: str) -> list[Worker]:
        """Return the registered workers of a group's instances, as the functions read them."""
        slots = self.group(group).config.slots
        instances = map(self._instances.instance, sorted(self.alive(group)))
        read = self.registry.read(group, {i.id: slots.get(i.instance_type, 1) for i in instances}, UNLIMITED)
        return [worker for workers in read.workers.values() for worker in workers]

    def tick_schedule(self) -> int:
        """Fire every schedule once; return the number of messages put on queues."""
        return self._bus.tick(self.clock.now)

    def listen(self, listener: Callable[[Call], None]) -> None:
        """Call ``listener`` for every AWS call of a deployed function from now on."""
        self._listener = listener

    def run_functions(self) -> list[Invocation]:
        """Run the deployed functions until no message is visible; return the invocations."""
        return self.deployment.functions.run()

    def _on_call(self, call: Call) -> None:
        if self._listener is not None and not self._selling:
            self._listener(call)

    def completed(self, instance: Any) -> None:
        """See ``MembershipListener``: complete the launch hook of an instance, if it waits for one."""
        launched = self._instances.holder_of(instance).worked(self._bus, instance, self.clock.now)
        if launched is not None:
            self._bus.publish(launched)

    def waits(self, instance: Any) -> None:
        """See ``MembershipListener``."""
        now = self.clock.now
        self._waiting_since[instance.id] = now
        holder = self._instances.holder_of(instance)
        assert isinstance(holder, ScalingGroupHolder)
        self._bus.publish(holder.waits(self._bus, instance, now))

    def departed(self, instance: Any) -> None:
        """See ``MembershipListener``."""
        self._waiting_since.pop(instance.id, None)
        if not self._instances.has_ended(instance.id):
            self._terminated_by_client(instance, has_left=True)
            return
        holder = self._instances.holder_of(instance)
        self._bus.publish(holder.terminated(self._bus, instance, self.clock.now))

    def returned(self, instance: Any) -> None:
        """See ``MembershipListener``; its workers deregistered when they stopped."""
        self._waiting_since.pop(instance.id, None)
        self.heartbeats.forget([instance.id])
        self._announce(instance, "stopping", "stopped")

    def _let_go(self, holder: Holder) -> set[str]:
        """Return the ids of instances without a notice that wait for a termination hook."""
        return {instance_id for instance_id in holder.leaving() if instance_id not in self._deadlines}

    def _launched(self, holder: Holder, instance: Any) -> None:
        now = self.clock.now
        self._refused_since.pop(holder.name, None)
        self._announce(instance, "pending", "running")
        self._bus.publish(holder.launched(self._bus, instance, now))

    def _terminated_by_client(self, instance: Any, has_left: bool) -> None:
        self._instances.ended(instance, ENDED_BY_USER, self.clock.now)
        self._announce(instance, *_ENDING)
        if has_left:
            holder = self._instances.holder_of(instance)
            self._bus.publish(holder.terminated(self._bus, instance, self.clock.now))

    def _announce(self, instance: Any, *states: str) -> None:
        for state in states:
            self._bus.publish(self._bus.state_change(instance.id, state, self.clock.now))
