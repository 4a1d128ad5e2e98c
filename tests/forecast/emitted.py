"""What functions and agents emit and call in a minute, counted by running them against doubles."""

from __future__ import annotations

import io
import itertools
import json
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from aws_lambda_powertools import Logger

from contracts import names, watched_queue
from contracts.registry import item as registry_item
from contracts.registry.queue_state import QueueState
from lambdas.aws.capacity.controller import build
from lambdas.aws.queues.watcher import QueueOutcome
from lambdas.aws.scaler import build as build_scaler
from lambdas.handlers import controller, health, queues, scaler
from tests.fakes.aws import NOW, REPORT, ROOT, FakeAws, worker
from tests.lambdas.single_group import CONTROLLER_CONFIG
from tests.scaling.test_scaler import PLACE, learned
from userdata.agent.machine.background import at_once
from userdata.agent.metrics import emf
from userdata.agent.metrics.collect import Collector
from userdata.agent.metrics.gpus import Gpus
from userdata.agent.metrics.owner import Owners

INSTANCE = "i-0123456789abcdef0"
PRICES = {"g5.xlarge": 1.0}
_NUMBERS = itertools.count()
"""Powertools keeps the stream of a name."""


@dataclass
class Emitted:
    """Log bytes, series (name and dimensions), calls of AWS and items that they asked for."""

    log_bytes: int = 0
    series: set[tuple[str, ...]] = field(default_factory=set)
    calls: Counter[str] = field(default_factory=Counter)
    items: int = 0

    def add(self, text: str) -> None:
        """Count lines of a log."""
        for line in filter(None, text.splitlines()):
            self.log_bytes += len(line.encode())
            parsed = json.loads(line)
            for directive in parsed.get("_aws", {}).get("CloudWatchMetrics", ()):
                for dimensions in directive["Dimensions"]:
                    of = [f"{key}={parsed[key]}" for key in sorted(dimensions)]
                    self.series |= {(metric["Name"], *of) for metric in directive["Metrics"]}


class _Context:
    def get_remaining_time_in_millis(self) -> int:
        return 90_000


class CountingAws(FakeAws):
    """Counts the items that are asked for, too."""

    items = 0

    def _batch_get_item(self, RequestItems: Any) -> Any:  # noqa: N803
        self.items += sum(len(request["Keys"]) for request in RequestItems.values())
        return super()._batch_get_item(RequestItems)


def stack(services: int, size: int) -> CountingAws:
    """Return healthy services in calm."""
    aws = CountingAws(spot_prices={("g5.xlarge", "us-west-2a"): "0.3"})
    for number in range(services):
        name = f"answers-{number}"
        aws.add_group(f"{name}-primary", size)
        aws.add_group(f"{name}-fallback")
        aws.add(size, name)
        settings = json.loads(aws.parameters[f"{ROOT}/{name}/config"])
        settings |= {"onDemandPrices": PRICES, "zones": ["us-west-2a"]}
        aws.set(name, config=json.dumps(settings))
    return aws


def functions(services: int, size: int) -> dict[str, Emitted]:
    """Return what a minute of controller and health checker brings; of the others for one service."""
    aws = stack(services, size)
    running = build(aws.client, CONTROLLER_CONFIG, lambda: aws.now)
    parts: dict[str, tuple[ModuleType, str, Any]] = {
        names.SERVICE_CONTROLLER: (controller, "_controller", running),
        names.SERVICE_HEALTH: (health, "_checker", aws.checker()),
    }
    record = {"messageId": "1", "receiptHandle": "1", "body": '{"detail-type": "Scheduled Event"}'}
    found: dict[str, Emitted] = {}
    for _ in range(2):  # the first pass learns the groups
        aws.now += 60
        aws.send_heartbeats()
        for service, (module, attribute, function) in parts.items():
            aws.calls.clear()
            aws.items = 0
            with mock.patch.object(module, attribute, return_value=function):
                found[service] = _minute(module, service, {"Records": [record]})
            found[service].calls, found[service].items = Counter(aws.calls), aws.items
    scaled = learned()
    scaled.minutes(2)
    scaling = build_scaler(scaled.client, PLACE, lambda: scaled.now)
    with mock.patch.object(scaler, "_scaler", return_value=scaling):
        found[names.SERVICE_SCALER] = _minute(scaler, names.SERVICE_SCALER, {})
    queue = watched_queue.WatchedQueue("answers-0", "rabbitmq", "answers", "secret")
    watcher = mock.Mock()
    watcher.run.return_value = [QueueOutcome(queue, QueueState(NOW, 10, 4, 3.5, 2.25, 2.25, 8))]
    with mock.patch.object(queues, "_watcher", return_value=watcher):
        found[names.SERVICE_QUEUES] = _minute(queues, names.SERVICE_QUEUES, {})
    return found


def _minute(module: ModuleType, service: str, event: object) -> Emitted:
    stream, emitted = io.StringIO(), Emitted()
    variables = {names.ENV_STACK: "dev", "POWERTOOLS_SERVICE_NAME": service}
    logger = Logger(service=f"gpu-spot-{service}-{next(_NUMBERS)}", stream=stream)
    with (
        mock.patch.dict("os.environ", variables),
        mock.patch.object(module, "logger", logger),
        redirect_stdout(stream),
    ):
        module.handler(event, _Context())
    emitted.add(stream.getvalue())
    return emitted


def instance(config: Any, clock: Any, directory: Path, gpus: list[Any], nvml: Any) -> Emitted:
    """Return what a minute of an instance's agent brings, a busy worker on each GPU."""
    emitted = Emitted()

    class Sink:
        def put(self, text: str) -> None:
            emitted.add(text)

        def flush(self) -> bool:
            return True

    sink: Any = Sink()
    sampled, owners = Gpus(nvml, len(gpus)), Owners(directory)
    figures = (lambda: None, tuple[float, ...], lambda: None)
    collect = Collector(config, INSTANCE, sampled, owners, sink, clock, *figures, at_once)
    for _ in range(7):
        collect.tick()
        clock.advance(10)
    return emitted


def tenant(values: dict[str, float], config: Any) -> Emitted:
    """Return what a minute of a tenant with these values brings."""
    emitted = Emitted()
    metrics = [emf.Metric(name, "Seconds", (value,)) for name, value in values.items()]
    dimensions = {"stack": config.stack, "group": config.group, names.TENANT: "ada"}
    group, more = config.metrics.log_group, {"instance": INSTANCE}
    emitted.add(emf.line(NOW, group, INSTANCE, dimensions, metrics, more))
    return emitted


def heartbeat_bytes() -> int:
    """Return the size of a heartbeat with a report; DynamoDB writes 1 KB for one unit."""
    return len(json.dumps(registry_item.dump(worker(INSTANCE, NOW, NOW, report=REPORT))))
