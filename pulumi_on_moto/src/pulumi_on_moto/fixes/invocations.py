"""A function that a client, a topic or a bucket calls runs from its deployed archive, not in Docker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from moto.awslambda.models import LambdaBackend, LambdaFunction, lambda_backends

from pulumi_on_moto.errors import LocalCloudError
from pulumi_on_moto.fixes.fix import Fix

Runner = Callable[[str, Any], tuple[str, bool, str]]


def run_by(backend: LambdaBackend, runner: Runner) -> None:
    """Have ``runner(name, event)`` run functions; it returns answer, whether that is an error, and log."""
    backend.local_runner = runner  # type: ignore[attr-defined]


def _invoke(function: LambdaFunction, event: Any = None) -> tuple[str, bool, str]:
    backend = lambda_backends[function.account_id][function.region]
    runner: Runner | None = getattr(backend, "local_runner", None)
    if runner is None:
        raise LocalCloudError(f"function {function.function_name!r} is called before the program has ended")
    return runner(function.function_name, {} if event in (None, "{}") else event)


INVOKE: Final = Fix(
    "invocations",
    moto="Invoke, topics and buckets run functions in Docker",
    aws="runs them; here the function runtime does, at once, from the deployed archive",
    patches=((LambdaFunction, "_invoke_lambda", _invoke),),
)
