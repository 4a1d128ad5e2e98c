"""A restart from this machine's memory: ``memory_torch.py FOLDER [MEGABYTES] [ROUNDS]``; prints JSON.

A training with two levels of storage, the local one in memory (``/dev/shm``), is killed by SIGKILL after a
local save and starts again. Its processes are forked after the imports, and counted is from there to the end
of the first step: model, ``Loop``, restore, a step; seconds, and those of a core (one thread).
"""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.torch import EpochBatches, Loop

FORK = multiprocessing.get_context("fork")
LAYERS, LENGTH = 16, 100_000


def train(folder: Path, local: Path, size: int, first_step: Any) -> None:
    """Train without an end; send a report of the first step."""
    started, cpu_before = time.monotonic(), time.process_time()
    torch.set_num_threads(1)
    width = int((size / 12 / LAYERS) ** 0.5)
    layers = (torch.nn.utils.skip_init(torch.nn.Linear, width, width, bias=False) for _ in range(LAYERS))
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.Adam(model.parameters())
    loop = Loop(
        folder / "far",
        local=local,
        interval=Interval(max_seconds=1e-3, dollars_per_gb=1e6, dollars_per_hour=1.0),
        settings={},
        model=model,
        optimizer=optimizer,
    )
    if not loop.step:
        for layer in model:
            torch.nn.init.eye_(layer.weight)
    restored = time.monotonic()
    loader = DataLoader(
        TensorDataset(torch.arange(LENGTH)), batch_sampler=EpochBatches(LENGTH, 1, shuffle=False)
    )
    first = loop.step
    for _ in loop.epochs(1):
        for _ in loop.batches(loader):
            optimizer.zero_grad()
            model(torch.ones(16, width)).square().mean().backward()
            optimizer.step()
            if loop.step == first:
                report = {
                    "step": loop.step,
                    "seconds": time.monotonic() - started,
                    "cpu_seconds": time.process_time() - cpu_before,
                    "restore_seconds": restored - started,
                }
                first_step.send(report)


def start(folder: Path, local: Path, size: int) -> tuple[Any, dict[str, Any]]:
    """Start a process that trains; return it with the report of its first step."""
    receiver, sender = FORK.Pipe(duplex=False)
    process = FORK.Process(target=train, args=(folder, local, size, sender))
    process.start()
    sender.close()
    return process, receiver.recv()


def newest(memory: Path) -> int:
    return max((int(path.name[5:]) for path in memory.glob("*/step-*")), default=0)


def main(folder: Path, megabytes: int, rounds: int) -> dict[str, Any]:
    """Kill a training after a save in memory and start it again, in rounds; return medians."""
    folder.mkdir(parents=True, exist_ok=True)
    memory = Path(tempfile.mkdtemp(prefix="gpu-spot-memory-", dir="/dev/shm"))
    size, reports, lost = megabytes * 1_000_000, list[dict[str, Any]](), 0
    process, _ = start(folder, memory, size)
    try:
        for _ in range(rounds):
            before, end_at = newest(memory), time.monotonic() + 300
            while newest(memory) <= before:
                if time.monotonic() > end_at or not process.is_alive():
                    raise SystemExit("no save in memory")
                time.sleep(0.02)
            process.kill()
            process.join()
            at = newest(memory)
            process, report = start(folder, memory, size)
            reports.append(report)
            lost += report["step"] != at
    finally:
        process.kill()
        process.join()
        shutil.rmtree(memory, ignore_errors=True)
    medians = {key: statistics.median(report[key] for report in reports) for key in reports[0]}
    return {
        "megabytes": megabytes,
        "load": round(os.getloadavg()[0], 1),
        "memory_restart_s": round(medians["seconds"], 2),
        "memory_restart_cpu_s": round(medians["cpu_seconds"], 2),
        "memory_restore_s": round(medians["restore_seconds"], 2),
        "lost_saves": lost,
    }


if __name__ == "__main__":
    megabytes, rounds = (int(argument) for argument in (sys.argv[2:] or (400, 3)))
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), megabytes, rounds)) + "\n")
