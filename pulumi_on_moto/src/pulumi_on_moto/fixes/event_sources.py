"""Event source mappings are polled by the function runtime, not by moto."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.awslambda.models import LambdaBackend
from moto.sqs.models import sqs_backends

from pulumi_on_moto.fixes.fix import Fix


def _without_polling(create: Callable[..., Any]) -> Callable[..., Any]:
    def created(backend: LambdaBackend, spec: dict[str, Any]) -> Any:
        mapping = create(backend, spec)
        for queue in sqs_backends[backend.account_id][backend.region_name].queues.values():
            queue.lambda_event_source_mappings.clear()
        return mapping

    return created


POLLING: Final = Fix(
    "event sources",
    moto="runs a function in Docker as soon as a message arrives on its queue",
    aws="polls the queue in batches, hides and deletes messages; here the function runtime does",
    patches=(
        (
            LambdaBackend,
            "create_event_source_mapping",
            _without_polling(LambdaBackend.create_event_source_mapping),
        ),
    ),
)
