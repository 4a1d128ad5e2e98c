"""How long PyTorch's training stands for a save, beside it or waited for: ``overhead_torch.py FOLDER``.

On a CPU, where writer and training share the cores. Prints JSON; ``PARAMETERS`` and ``SAVES`` may follow.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.torch import EpochBatches, Loop

STEPS = 1_000_000


def measured(folder: Path, parameters: int, saves: int, *, asynchronous: bool) -> dict[str, Any]:
    width = int((parameters / 4) ** 0.5)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)))
    optimizer = torch.optim.AdamW(model.parameters())
    data = TensorDataset(torch.arange(STEPS))
    loader = DataLoader(data, batch_sampler=EpochBatches(STEPS, 1, shuffle=False))
    interval = Interval(max_seconds=5.0)
    noted: list[float] = []
    interval.saved = noted.append  # type: ignore[method-assign]
    loop = Loop(folder, asynchronous=asynchronous, interval=interval, model=model, optimizer=optimizer)
    started_at = time.monotonic()
    for _ in loop.epochs(1):
        for _ in loop.batches(loader):
            optimizer.zero_grad()
            model(torch.ones(8, width)).square().mean().backward()
            optimizer.step()
            if len(noted) == saves:
                break
        break
    spent = time.monotonic() - started_at
    files = sum(path.stat().st_size for path in folder.glob("step-*/*/*")) / len(list(folder.glob("step-*")))
    return {
        "megabytes": round(files / 1e6),
        "stood_seconds": round(sorted(noted)[len(noted) // 2], 3),
        "steps": loop.step,
        "seconds": round(spent, 1),
    }


if __name__ == "__main__":
    place, parameters, saves = Path(sys.argv[1]), *(int(one) for one in (sys.argv[2:] or (40_000_000, 4)))
    figures = {
        way: measured(place / way, parameters, saves, asynchronous=way == "asynchronous")
        for way in ("asynchronous", "synchronous")
    }
    sys.stdout.write(json.dumps(figures) + "\n")
