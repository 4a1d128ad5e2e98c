"""``spot-work MODULE:FUNCTION --queue NAME``: make a function a worker from the command line."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from spot_work.batching import Batch
from spot_work.errors import BrokerRefusedError
from spot_work.queues import Queue
from spot_work.worker import serve

URL: Final = "SPOT_WORK_URL"
"""The environment variable with the broker's address; it may hold a password, so it is no argument."""

QUEUE: Final = "SPOT_WORK_QUEUE"
TRIES: Final = "SPOT_WORK_TRIES"
MOST: Final = "SPOT_WORK_MOST"
"""The defaults of arguments, where they are set: the node agent of gpu-spot sets all four."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; return 0 after a drain, 1 without a broker, 2 for a wrong argument."""
    parser = argparse.ArgumentParser("spot-work", description="Make a function a worker of a queue.")
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="what runs; the module loads the model")
    told = os.environ.get
    parser.add_argument(
        "--queue", default=told(QUEUE), required=QUEUE not in os.environ, help="the name of the queue"
    )
    parser.add_argument("--batch", type=int, default=1, help="values in a call (default 1: one, not a list)")
    parser.add_argument("--wait", type=float, default=0.01, help="seconds that the first waits for others")
    parser.add_argument(
        "--tries", type=int, default=told(TRIES, Queue.tries), help="how often a request may be begun"
    )
    parser.add_argument(
        "--most", type=int, default=told(MOST, Queue.most), help="requests that may wait (0: no limit)"
    )
    parser.add_argument("--requests", action="store_true", help="pass Request objects in place of values")
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # the link says what matters
    logging.getLogger("botocore").setLevel(logging.WARNING)
    if not (url := os.environ.get(URL)):
        parser.error(
            f"{URL} is not set, allowed: amqps://user:password@host:port/vhost or sqs://region/account"
        )
    try:
        function, batch = _load(given.function), Batch(given.batch, given.wait)
        serve(function, Queue(given.queue, given.tries, given.most), url, batch, requests=given.requests)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        parser.error(str(error))
    except (BrokerRefusedError, ConnectionError) as error:
        print(f"spot-work: {error}", file=sys.stderr)  # noqa: T201 - a command
        return 1
    return 0


def _load(name: str) -> Callable[[Any], Any]:
    module, colon, function = name.partition(":")
    if not (module and colon and function):
        raise ValueError(f"{name!r}, allowed: module:function")
    sys.path.insert(0, str(Path.cwd()))
    found = getattr(importlib.import_module(module), function)
    if not callable(found):
        raise TypeError(f"{name} is no function")
    return found  # type: ignore[no-any-return]


if __name__ == "__main__":
    sys.exit(main())
