"""``spot-work MODULE:FUNCTION --queue NAME``: run a function as a worker, or inspect a queue."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from spot_work import transports
from spot_work.batching import Batch
from spot_work.command import operator
from spot_work.errors import BrokerRefusedError
from spot_work.queue.settings import Queue
from spot_work.worker import serve

URL: Final = "SPOT_WORK_URL"
"""Environment variable with the broker's URL; it may hold a password and so is not an argument."""

QUEUE: Final = "SPOT_WORK_QUEUE"
MAX_DELIVERIES: Final = "SPOT_WORK_TRIES"
MAX_LENGTH: Final = "SPOT_WORK_MOST"
"""Environment variables with the defaults of arguments; the gpu-spot node agent sets all four."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0: a drain, or done; 1: no broker, or `operator.main` says why; 2: an argument is invalid.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # rabbitmq/link.py logs connection errors
    logging.getLogger("botocore").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(
        "spot-work",
        description="Run a function as a worker of a queue.",
        epilog=f"an operator's commands:\n{operator.HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    if arguments and arguments[0] in operator.NAMES:
        return operator.main(arguments, os.environ.get(URL, ""), os.environ.get(QUEUE, ""))
    parser.add_argument(
        "function", metavar="MODULE:FUNCTION", help="function to run; importing its module loads the model"
    )
    environment = os.environ.get
    parser.add_argument(
        "--queue", default=environment(QUEUE), required=QUEUE not in os.environ, help="name of the queue"
    )
    parser.add_argument(
        "--batch", type=int, default=1, help="maximum values per call (default 1: the value, not a list)"
    )
    parser.add_argument(
        "--wait", type=float, default=0.01, help="seconds that the first value of a batch waits for more"
    )
    parser.add_argument(
        "--max-deliveries",
        type=int,
        default=environment(MAX_DELIVERIES, Queue.max_deliveries),
        help="maximum deliveries of a request, then it is dead-lettered",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        default=environment(MAX_LENGTH, Queue.max_length),
        help="maximum number of waiting requests (0: no limit)",
    )
    parser.add_argument("--requests", action="store_true", help="pass Request objects instead of values")
    options = parser.parse_args(arguments)
    if not (url := os.environ.get(URL)):
        parser.error(f"{URL} is not set; set it to {transports.URLS}")
    function = _load(options.function, parser.error)
    try:
        queue = Queue(options.queue, options.max_deliveries, options.max_length)
        serve(function, queue, url, Batch(options.batch, options.wait), requests=options.requests)
    except (ImportError, TypeError, ValueError) as error:
        parser.error(str(error))
    except (BrokerRefusedError, ConnectionError) as error:
        _print_error(str(error))
        return 1
    return 0


def _print_error(text: str) -> None:
    print(f"spot-work: {text}", file=sys.stderr)  # noqa: T201 - a command


def _load(name: str, error: Callable[[str], NoReturn]) -> Callable[[Any], Any]:
    """Return a function, or call ``error``; raises what its module raises, whose traceback is shown."""
    module_name, colon, function_name = name.partition(":")
    if not (module_name and colon and function_name):
        error(f"the function must be given as module:function, not {name!r}")
    sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as missing:
        if missing.name and f"{module_name}.".startswith(f"{missing.name}."):
            error(str(missing))
        raise
    if not callable(function := getattr(module, function_name, None)):
        error(f"{name} is not callable; name a function of {module_name}")
    return function  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
