"""Functions run from their deployed archives for every caller, not by moto in Docker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.awslambda.models import LambdaBackend, LambdaFunction, lambda_backends
from moto.events.models import EventsBackend, Rule, events_backends
from moto.sqs.models import sqs_backends

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes import Patches, around, local, set_local

Runner = Callable[[str, Any], tuple[str, bool, str]]


def run_by(backend: LambdaBackend, runner: Runner) -> None:
    """Set ``runner(name, event)``, which runs functions; it returns response, error flag and log."""
    set_local(backend, "runner", runner)


def _invoke(function: LambdaFunction, event: Any = None) -> tuple[str, bool, str]:
    backend = lambda_backends[function.account_id][function.region]
    runner: Runner | None = local(backend, "runner")
    if runner is None:
        raise LocalCloudError(f"function {function.function_name!r} is called before the program has ended")
    return runner(function.function_name, {} if event in (None, "{}") else event)


def _without_polling(create: Callable[..., Any], backend: LambdaBackend, spec: dict[str, Any]) -> Any:
    mapping = create(backend, spec)
    for queue in sqs_backends[backend.account_id][backend.region_name].queues.values():
        queue.lambda_event_source_mappings.clear()
    return mapping


Carrier = Callable[[Rule, Any], None]


def carry_by(backend: EventsBackend, carrier: Carrier) -> None:
    """Set ``carrier(rule, event)``, which delivers clients' events to the targets of matching rules."""
    set_local(backend, "carrier", carrier)


def _send(rule: Rule, original_event: Any, transform_input: bool = True) -> None:
    pattern = rule.event_pattern
    if rule.state != "ENABLED" or not (pattern.get_pattern() and pattern.matches_event(original_event)):
        return
    backend = events_backends[rule.account_id][rule.region_name]
    carrier: Carrier | None = local(backend, "carrier")
    if carrier is None:
        raise LocalCloudError(f"rule {rule.name!r}: an event is put before the program has ended")
    carrier(rule, original_event)


PATCHES: Final[Patches] = (
    (LambdaFunction, "_invoke_lambda", _invoke),
    around(LambdaBackend, "create_event_source_mapping", _without_polling),
    (Rule, "send_to_targets", _send),
)
