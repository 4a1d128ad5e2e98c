"""``FakeAws`` with faults: delays, throttling, conflicts, failed launches, interruptions.

Its groups launch and terminate instances, and list members with a delay. Calls check the invariants;
``violations`` lists those that did not hold.
"""

# ruff: noqa: N803 - boto3's own argument names

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from contracts.registry import item as registry_item
from contracts.registry.item import Progress, Worker
from tests.fakes.aws import ROOT, FakeAws, description, member

BOOT_SECONDS = 90.0
HOOK_SECONDS = 120.0
HIDDEN_SECONDS = 20.0
"""Time for which EC2 does not describe a new instance."""
LISTED_SECONDS = 45.0
"""Time for which a group lists a terminated instance."""
MODIFYING_SECONDS = 15.0
NOTICE_SECONDS = 120.0
STALE_SECONDS = 90.0


@dataclass(slots=True)
class Box:
    """An instance; ``boot`` is infinite if its worker never reports.

    ``sick``: its worker reports and does no work.
    """

    id: str
    side: Pool
    spot: bool
    launched: float
    boot: float
    notice: float | None = None
    ending: float | None = None
    ended: float | None = None
    protected: bool = True
    sick: bool = False

    def reports(self, now: float) -> bool:
        """Return whether its worker sends heartbeats."""
        return self.ended is None and now >= self.launched + self.boot

    def works(self, now: float) -> bool:
        return self.reports(now) and not self.sick


@dataclass(slots=True)
class Pool:
    """An Auto Scaling group or a Spot Fleet."""

    name: str
    group: str
    is_spot: bool
    is_fleet: bool = False
    desired: int = 0
    shown: int = 0
    modified: float = -1e9
    has_capacity: bool = True
    boxes: list[Box] = field(default_factory=list)
    refused: list[dict[str, Any]] = field(default_factory=list)

    @property
    def takes_back(self) -> bool:
        """Whether a scale-in returns instances to its warm pool; true for fallbacks."""
        return not self.is_spot

    def counted(self) -> list[Box]:
        """Return the instances that AWS counts against the desired capacity."""
        return [b for b in self.boxes if b.ending is None]


@dataclass
class FaultyAws(FakeAws):
    """Groups that change between the calls; ``draw`` selects the faults.

    Attributes:
        maximum: by group.
        queue: messages with the time from which they are due.
        blind: EC2 describes no instance.
        rival: a pass of a concurrent execution, with the probability ``rivalry`` before a save.
        hosts: on-premises hosts by group, with their last heartbeat.
        progress: the report of an instance's job.
    """

    draw: random.Random = field(default_factory=random.Random)
    pools: dict[str, Pool] = field(default_factory=dict)
    maximum: dict[str, int] = field(default_factory=dict)
    queue: list[tuple[float, str]] = field(default_factory=list)
    blind: bool = False
    rival: Callable[[], object] | None = None
    rivalry: float = 0.1
    hosts: dict[str, dict[str, float]] = field(default_factory=dict)
    progress: Callable[[Box], Progress | None] = lambda _: None
    violations: list[str] = field(default_factory=list)
    _outdated: dict[str, float] = field(default_factory=dict)
    _serial: int = 0

    # Changes over time.

    def pass_time(self, seconds: float) -> None:
        """Advance the time: deadlines pass, hooks end, and groups launch missing instances."""
        self.now += seconds
        for pool in self.pools.values():
            for box in list(pool.boxes):
                due = min(d for d in (box.notice, box.ending, 1e18) if d is not None)
                if box.ended is None and self.now >= due:
                    box.ended = self.now
                if box.ended is not None and (pool.is_fleet or self.now >= box.ended + LISTED_SECONDS):
                    pool.boxes.remove(box)
            lacking = pool.desired - len(pool.counted())
            for _ in range(lacking):
                if pool.has_capacity:
                    self._launch(pool)
            if lacking > 0 and not pool.has_capacity:
                pool.refused = [self._activity("Failed", "UnfulfillableCapacity")]

    def notice(self, box: Box) -> None:
        """Send a notice; a group may start the termination hook and launch a successor."""
        box.notice = self.now + NOTICE_SECONDS
        if not box.side.is_fleet and self.draw.random() < 0.5:
            box.ending = box.notice

    def _launch(self, pool: Pool) -> None:
        self._serial += 1
        never_reports = self.draw.random() < 0.03
        boot = float("inf") if never_reports else BOOT_SECONDS * self.draw.uniform(0.5, 1.5)
        pool.boxes.append(Box(f"i-{self._serial:06d}", pool, pool.is_spot, self.now, boot))
        pool.refused = [self._activity("Successful", "")]

    def _activity(self, status: str, message: str) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.now, UTC)
        said = {"Description": "Launching a new", "StatusCode": status, "StatusMessage": message}
        return {**said, "StartTime": at}

    def _list_describe_auto_scaling_groups(self, AutoScalingGroupNames: list[str], **_: Any) -> Any:
        return "AutoScalingGroups", [self._group(self.pools[name]) for name in AutoScalingGroupNames], list

    def _group(self, pool: Pool) -> dict[str, Any]:
        states = ("InService" if box.ending is None else "Terminating:Wait" for box in pool.boxes)
        return {
            "AutoScalingGroupName": pool.name,
            "DesiredCapacity": pool.desired,
            "Instances": [
                member(box.id, state, protected=box.protected)
                for box, state in zip(pool.boxes, states, strict=True)
            ],
            "WarmPoolConfiguration": {"InstanceReusePolicy": {"ReuseOnScaleIn": pool.takes_back}},
        }

    def _list_describe_instances(self, Filters: list[dict[str, Any]], **_: Any) -> Any:
        (groups,) = (f["Values"] for f in Filters if f["Name"] == "tag:gpu-spot:group")
        boxes = [b for p in self.pools.values() if p.group in groups for b in p.boxes]
        return "Reservations", self._descriptions(boxes), lambda page: [{"Instances": page}]

    def _describe_instances(self, Filters: list[dict[str, Any]]) -> Any:
        boxes = [b for p in self.pools.values() for b in p.boxes if b.id in Filters[0]["Values"]]
        return {"Reservations": [{"Instances": self._descriptions(boxes)}]}

    def _descriptions(self, boxes: list[Box]) -> list[dict[str, Any]]:
        shown = [b for b in boxes if not self.blind and self.now >= b.launched + HIDDEN_SECONDS]
        return [
            description(
                *(b.id, b.launched, b.side.group),
                spot=b.spot,
                state="running" if b.ended is None else "terminated",
            )
            for b in shown
        ]

    def _batch_get_item(self, RequestItems: Any) -> Any:
        [(table, request)] = RequestItems.items()
        if table == "memory":
            return super()._batch_get_item(RequestItems)
        items = (self._item(key["group"]["S"], key["worker"]["S"]) for key in request["Keys"])
        return {"Responses": {table: [item for item in items if item is not None]}}

    def _item(self, partition: str, slot: str) -> dict[str, Any] | None:
        group, writer = partition.split("#")
        if group.endswith("@on-premises"):
            heartbeat = self.hosts.get(group.removesuffix("@on-premises"), {}).get(writer)
            if heartbeat is None:
                return None
            return registry_item.dump(Worker(partition, writer, 0, 1.0, heartbeat, "ready"))
        boxes = (b for p in self.pools.values() if p.group == group for b in p.boxes)
        box = next((b for b in boxes if f"{b.id}/0" == slot and partition.endswith(f"/{b.id}")), None)
        return self._row(partition, box) if box is not None and box.reports(self.now) else None

    def _row(self, partition: str, box: Box) -> dict[str, Any]:
        if self.draw.random() < 0.01:
            return registry_item.key(partition, box.id, 0) | {"heartbeat": {"S": "now"}}
        ready = box.launched + box.boot
        heartbeat = max(ready, self.now - self.draw.uniform(0, 30))
        worker = Worker(partition, box.id, 0, ready, heartbeat, "ready", progress=self.progress(box))
        return registry_item.dump(worker)

    def _list_describe_spot_instance_requests(self, **_: Any) -> Any:
        boxes = [b for p in self.pools.values() for b in p.boxes if b.ended is None]
        marked = {b.id: b.notice - NOTICE_SECONDS for b in boxes if b.notice is not None}
        status = {i: {"UpdateTime": datetime.fromtimestamp(at, UTC)} for i, at in marked.items()}
        return "SpotInstanceRequests", [{"InstanceId": i, "Status": status[i]} for i in marked], list

    def _describe_scaling_activities(self, AutoScalingGroupName: str, **_: Any) -> Any:
        return {"Activities": self.pools[AutoScalingGroupName].refused}

    def _describe_spot_fleet_requests(self, SpotFleetRequestIds: list[str]) -> Any:
        return {"SpotFleetRequestConfigs": [self._fleet(self.pools[name]) for name in SpotFleetRequestIds]}

    def _fleet(self, pool: Pool) -> dict[str, Any]:
        settled = self.now >= pool.modified + MODIFYING_SECONDS
        # For a while after a modification an active fleet returns its former target.
        shown = pool.desired if self.now >= pool.modified + 2 * MODIFYING_SECONDS else pool.shown
        return {
            "SpotFleetRequestId": pool.name,
            "SpotFleetRequestState": "active" if settled else "modifying",
            "SpotFleetRequestConfig": {"TargetCapacity": shown},
        }

    def _list_describe_spot_fleet_instances(self, SpotFleetRequestId: str) -> Any:
        boxes = self.pools[SpotFleetRequestId].boxes
        return "ActiveInstances", [{"InstanceId": b.id, "InstanceType": "g5.xlarge"} for b in boxes], list

    def _describe_spot_fleet_request_history(self, SpotFleetRequestId: str, **_: Any) -> Any:
        text = "g5.xlarge, ami-1, Linux/UNIX: There is no Spot capacity available that matches your request."
        information = {"EventSubType": "spotFleetRequestConfigurationInvalid", "EventDescription": text}
        refused = [r for r in self.pools[SpotFleetRequestId].refused if r["StatusCode"] == "Failed"]
        records = [{"Timestamp": r["StartTime"], "EventInformation": information} for r in refused]
        return {"HistoryRecords": records}

    def _modify_spot_fleet_request(self, SpotFleetRequestId: str, TargetCapacity: int, **_: Any) -> None:
        pool = self.pools[SpotFleetRequestId]
        if self.now < pool.modified + MODIFYING_SECONDS:
            self._broke(f"{pool.name} was modified while it was being modified")
        pool.shown, pool.modified = pool.desired, self.now
        self._ask(pool, TargetCapacity)

    def _set_desired_capacity(self, AutoScalingGroupName: str, DesiredCapacity: int, **_: Any) -> None:
        pool = self.pools[AutoScalingGroupName]
        beyond = len(pool.counted()) - DesiredCapacity
        if beyond > 0 and DesiredCapacity < pool.desired:
            going = [box for box in pool.counted() if not box.protected]
            if len(going) != beyond:
                self._broke(f"{pool.name} set to {DesiredCapacity}, {len(pool.counted())} live: AWS picks")
            for box in going[:beyond]:
                self._check_termination(pool, box)
                box.ending = self.now + HOOK_SECONDS * self.draw.random()
        self._ask(pool, DesiredCapacity)

    def _set_instance_protection(
        self, AutoScalingGroupName: str, InstanceIds: list[str], ProtectedFromScaleIn: bool
    ) -> None:
        for box in self.pools[AutoScalingGroupName].boxes:
            if box.id in InstanceIds:
                box.protected = ProtectedFromScaleIn

    def _ask(self, pool: Pool, capacity: int) -> None:
        raised, pool.desired = capacity > pool.desired, capacity
        both = sum(other.desired for other in self.pools.values() if other.group == pool.group)
        if raised and both > self.maximum[pool.group]:
            self._broke(f"{pool.group}: {both} requested, {self.maximum[pool.group]} is the maximum")

    def _terminate_instance_in_auto_scaling_group(self, InstanceId: str, **_: Any) -> None:
        pool, box = self._find(InstanceId)
        self._check_termination(pool, box)
        if box.ending is None:
            pool.desired -= 1
            box.ending = self.now + HOOK_SECONDS * self.draw.random()

    def _terminate_instances(self, InstanceIds: list[str]) -> None:
        for instance_id in InstanceIds:
            pool, box = self._find(instance_id)
            self._check_termination(pool, box)
            box.ending = self.now

    def _find(self, instance_id: str) -> tuple[Pool, Box]:
        return next((p, b) for p in self.pools.values() for b in p.boxes if b.id == instance_id)

    def _check_termination(self, pool: Pool, box: Box) -> None:
        others = [
            b for p in self.pools.values() if p.group == pool.group for b in p.counted() if b is not box
        ]
        if not box.works(self.now):
            return
        # A sick worker is unknown before the health checker reports it.
        if self.remaining_target(pool.group) > 0 and not any(b.reports(self.now) for b in others):
            self._broke(f"{box.id} was the last ready worker of {pool.group}")
        # A terminated instance is known once its heartbeats are missing.
        reporting = [b for b in others if b.reports(self.now) or self.now - (b.ended or 0) < STALE_SECONDS]
        is_requested = box.id in self.parameters.get(f"{ROOT}/{pool.group}/replacements", "")
        if is_requested and box.notice is None and len(reporting) < self.remaining_target(pool.group):
            self._broke(f"{box.id} of {pool.group} was replaced while it worked and had no successor")

    def remaining_target(self, group: str) -> int:
        """Return the target less the on-premises hosts that report."""
        heartbeats = self.hosts.get(group, {}).values()
        serving = sum(self.now - at < STALE_SECONDS for at in heartbeats)
        return max(0, int(self.parameters[f"{ROOT}/{group}/target"]) - serving)

    def _put_item(self, Item: Any, **more: Any) -> None:
        group = Item["group"]["S"]
        if group in self.memory and self.draw.random() < self.rivalry:
            self._other_copy(group)
        super()._put_item(Item, **more)

    def _other_copy(self, group: str) -> None:
        """Let a concurrent execution save first: with a pass now, or with an earlier observation.

        At most one per moment has an earlier observation: later ones have read what it saved.
        """
        if self.draw.random() < 0.5 and self._outdated.get(group) != self.now:
            self._outdated[group] = self.now
            stored = self.memory[group]
            stored["version"] = {"N": str(int(stored["version"]["N"]) + 1)}
            return
        rival, self.rival = self.rival, None
        try:
            if rival is not None:
                rival()
        except ClientError:
            pass  # it could not read the parameters
        finally:
            self.rival = rival

    def _send_message(self, MessageBody: str, DelaySeconds: int, **_: Any) -> None:
        self.queue.append((self.now + DelaySeconds, MessageBody))

    def _broke(self, violation: str) -> None:
        self.violations.append(f"at {self.now:.0f}: {violation}")
