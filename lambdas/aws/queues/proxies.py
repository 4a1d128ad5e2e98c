"""Reads the requests at a service's proxies from their items in the worker registry."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from contracts import names
from contracts.registry import http_state, proxy_state, queue_state
from contracts.registry.http_state import HttpState
from contracts.registry.proxy_state import ProxyState
from contracts.watched_queue import WatchedQueue
from lambdas.aws.budget import Budget
from lambdas.aws.registry import RegistryReader
from lambdas.core.queues import proxies
from lambdas.core.queues.proxies import CountedWorker, ProxyHistory, ProxyReading

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_ec2 import EC2Client

_HISTORY: Final = "http-history"
"""Sort key of the history, next to the item with the state."""
_MAX_HISTORY_BYTES: Final = 380_000
"""An item of DynamoDB has 400 KB at most. Source: DynamoDB guide, "Quotas"."""
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,17}")
_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class ProxyReader:
    """Reads the proxies of a stack's services; they have the tag `names.TAG_PROXY`.

    ``instance_arns`` is the ARN of instances up to the instance id, ``clock`` returns epoch seconds.
    """

    stack: str
    ec2: EC2Client
    dynamodb: DynamoDBClient
    table: str
    instance_arns: str
    clock: Callable[[], float]

    def observe(self, service: WatchedQueue, seconds: float) -> tuple[HttpState | None, str]:
        """Write and return the requests over all proxies, and what is unknown, in one line.

        The state is None at the first call, and if no proxy can be read. Takes about ``seconds`` at most.
        Raises errors of AWS, and ``BudgetError`` without time left.
        """
        now, group = self.clock(), service.group
        budget = Budget(now + seconds, self.clock)
        launched = self._launched(group, budget)
        history = self._load_history(group)
        states, problems = self._states(group, {*launched, *history.proxies}, launched.keys(), budget, now)
        readings = {
            proxy: ProxyReading(states.get(proxy), launched.get(proxy))
            for proxy in {*launched, *history.proxies}
        }
        workers = {(row.instance, row.slot) for state in states.values() for row in state.workers}
        starts = self._starts(group, workers | set(map(proxies.worker_key, history.workers)), budget)
        state, history = proxies.observe(history, readings, starts, now)
        self._save_history(group, history)
        if state is not None:
            self.dynamodb.put_item(TableName=self.table, Item=http_state.dump(group, state))
        return state, _problem(state, launched, problems)

    def _launched(self, group: str, budget: Budget) -> dict[str, float]:
        """Return when each proxy was launched, by instance id, of those that pend or run."""
        pages = self.ec2.get_paginator("describe_instances").paginate(
            Filters=[
                {"Name": f"tag:{names.TAG_STACK}", "Values": [self.stack]},
                {"Name": f"tag:{names.TAG_PROXY}", "Values": [group]},
                {"Name": "instance-state-name", "Values": ["pending", "running"]},
            ]
        )
        return {
            instance["InstanceId"]: instance["LaunchTime"].timestamp()
            for page in budget.pages("proxies", pages)
            for reservation in page["Reservations"]
            for instance in reservation["Instances"]
        }

    def _states(
        self, group: str, instances: set[str], launched: Iterable[str], budget: Budget, now: float
    ) -> tuple[dict[str, ProxyState], dict[str, str]]:
        """Return the states of proxies, and why those of listed ones are unknown."""
        arns = {self.instance_arns + proxy: proxy for proxy in instances}
        by_key = {_partition(proxy_state.key(group, arn)): proxy for arn, proxy in arns.items()}
        states: dict[str, ProxyState] = {}
        problems = dict.fromkeys(launched, "no item")
        keys = [proxy_state.key(group, arn) for arn in sorted(arns)]
        for item in self._registry.items(keys, budget):
            proxy = by_key[_partition(item)]
            try:
                state = states[proxy] = proxy_state.parse(item)
            except ValueError as error:
                problems[proxy] = str(error)
                continue
            if state.is_fresh(now):
                problems.pop(proxy, None)
            else:
                problems[proxy] = f"item of {now - state.observed_at:.0f} s ago"
        return states, {proxy: reason for proxy, reason in problems.items() if proxy in set(launched)}

    def _starts(
        self, group: str, workers: Iterable[CountedWorker], budget: Budget
    ) -> dict[CountedWorker, float]:
        """Return the start of each worker's process, of those that are registered."""
        slots: dict[str, int] = {}
        for host, slot in workers:
            slots[host] = max(slots.get(host, 0), slot + 1)
        instances = {host: count for host, count in slots.items() if _INSTANCE.fullmatch(host)}
        on_premises = {host: count for host, count in slots.items() if host not in instances}
        workers_by_origin = (
            self._registry.read(group, instances, budget),
            self._registry.read_on_premises(group, on_premises, budget),
        )
        return {
            (worker.instance, worker.slot): worker.since
            for registered in workers_by_origin
            for members in registered.workers.values()
            for worker in members
        }

    @property
    def _registry(self) -> RegistryReader:
        return RegistryReader(self.dynamodb, self.table, self.instance_arns)

    def _load_history(self, group: str) -> ProxyHistory:
        """Return the history; empty if there is none or it is malformed."""
        response = self.dynamodb.get_item(TableName=self.table, Key=_history_key(group), ConsistentRead=True)
        try:
            return proxies.parse(zlib.decompress(response.get("Item", {})["packed"]["B"]).decode())
        except (KeyError, ValueError, zlib.error):
            return ProxyHistory()

    def _save_history(self, group: str, history: ProxyHistory) -> None:
        packed = zlib.compress(proxies.dumps(history).encode())
        if len(packed) > _MAX_HISTORY_BYTES:
            raise ValueError(
                f"counts of {len(history.workers)} workers at {len(history.proxies)} proxies must "
                f"have at most {_MAX_HISTORY_BYTES} bytes, not {len(packed)}"
            )
        item: dict[str, Any] = {
            **_history_key(group),
            "packed": {"B": packed},
            names.TTL: {"N": str(int(self.clock()) + queue_state.RETENTION_SECONDS)},
        }
        self.dynamodb.put_item(TableName=self.table, Item=item)


def _history_key(group: str) -> dict[str, Any]:
    return {**queue_state.key(group), names.REGISTRY_SORT_KEY: {"S": _HISTORY}}


def _partition(key: Mapping[str, Any]) -> str:
    partition: str = key[names.REGISTRY_KEY]["S"]
    return partition


def _problem(state: HttpState | None, launched: Mapping[str, float], problems: Mapping[str, str]) -> str:
    """Return what is unknown; empty if nothing is, or only new proxies have written nothing yet."""
    if not launched:
        return "no proxy runs"
    if (state is not None and not state.unreadable) or not problems:
        return ""
    named = [f"{proxy}: {problems[proxy]}" for proxy in sorted(problems)[:_MAX_NAMED]]
    more = len(problems) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more else "")


def build(
    client: Callable[[str], Any], stack: str, table: str, instance_arns: str, clock: Callable[[], float]
) -> ProxyReader:
    """Return the reader; ``client`` returns the boto3 client of a service by its name."""
    return ProxyReader(stack, client("ec2"), client("dynamodb"), table, instance_arns, clock)
