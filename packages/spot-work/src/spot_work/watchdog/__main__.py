"""The process: ``python -m spot_work.watchdog FD``, started by `supervisor.Watchdog`; not for people.

Reads JSON lines from the socket ``FD`` and answers each URL with the port of a transport's relay. Ends with
the socket's other end.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import signal
import socket
import sys
from typing import Final

from spot_work.watchdog.hang import HANG_SECONDS, HangDetector, cpu_seconds

log: Final = logging.getLogger("spot_work")


async def run(control: socket.socket) -> None:
    """Serve the worker at the other end of ``control`` until it ends."""
    reader, writer = await asyncio.open_connection(sock=control)
    worker, ticks = os.getppid(), [0]
    watching = asyncio.get_running_loop().create_task(_watch(worker, ticks))
    try:
        while line := await reader.readline():
            request = json.loads(line)
            if url := request.get("url"):
                relay = importlib.import_module(request["relay"])
                writer.write(f"{await relay.listen(url)}\n".encode())
            else:
                ticks[0] += 1
    finally:
        watching.cancel()


async def _watch(worker: int, ticks: list[int]) -> None:
    detector, counted = HangDetector(), 0
    while True:
        await asyncio.sleep(1.0)
        has_ticked, counted = ticks[0] != counted, ticks[0]
        if detector.is_hanging(has_ticked=has_ticked, cpu_seconds=cpu_seconds(worker)):
            log.error("the worker has hung for %d s: no thread of it runs; it is killed", HANG_SECONDS)
            os.kill(worker, signal.SIGKILL)
            return


def main() -> None:
    """Run until the worker ends; signals to the process group are the worker's to handle."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    logging.getLogger("botocore").setLevel(logging.WARNING)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        asyncio.run(run(control))


if __name__ == "__main__":
    main()
