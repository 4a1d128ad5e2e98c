"""A Loop on a small disk: ``python full_torch.py FOLDER``; prints the checkpoints and what was exported."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import torch
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.torch import EpochBatches, Loop


def main() -> None:
    folder = Path(sys.argv[1])
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("spot_training").addHandler(handler)
    model = torch.nn.Linear(256, 1400)
    data = TensorDataset(torch.randn(40, 256))
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), batch_size=4))
    interval = Interval(max_seconds=1e-6, overhead=0.999999)
    loop = Loop(folder / "c", model=model, asynchronous=False, interval=interval)
    for _ in loop.epochs(1):
        for _ in loop.batches(loader):
            pass
    names = sorted(path.name for path in (folder / "c").glob("step-*"))
    sys.stdout.write(json.dumps({"names": names, "lines": lines, "step": loop.step}))


if __name__ == "__main__":
    main()
