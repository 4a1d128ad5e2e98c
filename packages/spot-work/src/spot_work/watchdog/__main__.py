"""The process: ``python -m spot_work.watchdog FD PID``, started by `supervisor.Watchdog`; not for people.

Reads JSON lines from the socket ``FD`` and answers each URL with the port of a transport's relay. Ends with
the socket's other end, and with the worker ``PID``: its children may have copies of that end.
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


async def run(control: socket.socket, worker: int) -> None:
    """Serve the worker at the other end of ``control`` until it ends."""
    ticks = [0]
    tasks = [asyncio.ensure_future(task) for task in (_serve(control, ticks), _watch(worker, ticks))]
    ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for task in ended:
        task.result()  # raises what it did


async def _serve(control: socket.socket, ticks: list[int]) -> None:
    reader, writer = await asyncio.open_connection(sock=control)
    while line := await reader.readline():
        request = json.loads(line)
        if url := request.get("url"):
            relay = importlib.import_module(request["relay"])
            writer.write(f"{await relay.listen(url)}\n".encode())
        else:
            ticks[0] += 1


async def _watch(worker: int, ticks: list[int]) -> None:
    """Kill the worker when it hangs; return when it has ended."""
    detector, counted = HangDetector(), 0
    while os.getppid() == worker:
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
        asyncio.run(run(control, int(sys.argv[2])))


if __name__ == "__main__":
    main()
