"""``Loop`` with two levels of storage, killed at random moments: JSON. Runs in PyTorch's environment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.levels.local import local_folder
from spot_training.torch import EpochBatches, Loop
from tests.real.loop_torch import FORK

LENGTH, BATCH = 96, 4
KINDS = ("killed", "lost", "noticed")
LIMIT_SECONDS = 60.0


def train(folder: Path, epochs: int, step_seconds: float) -> None:
    """Train; save here every 20 ms and there every second; write the weights at the end."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Dropout(), torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    price = {"dollars_per_gb": 0.05 / 3600 / 20e-6, "dollars_per_hour": 1.0}
    loop = Loop(
        folder / "far",
        local=folder / "local",
        interval=Interval(max_seconds=0.02, **price),
        settings={},
        model=model,
        optimizer=optimizer,
    )
    with (folder / "starts").open("a") as file:
        file.write(f"{loop.step}\n")
    data = TensorDataset(torch.arange(float(LENGTH))[:, None] / LENGTH)
    loader = DataLoader(data, batch_sampler=EpochBatches(LENGTH, BATCH))
    for _ in loop.epochs(epochs):
        for [batch] in loop.batches(loader):
            time.sleep(step_seconds)
            optimizer.zero_grad()
            loss = (model(batch) - batch.sin()).pow(2).mean()
            loss.backward()
            optimizer.step()
            loop.mean("loss", loss)
            loop.state.setdefault("losses", []).append(float(loss.detach()))
    torch.save([model.state_dict(), loop.state["losses"]], folder / "result.pt")


def start(folder: Path, epochs: int, step_seconds: float) -> Any:
    """Start a process that trains."""

    def main() -> None:
        os.environ.pop("GPU_SPOT_LOCAL_CHECKPOINTS", None)
        with (folder / "log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        train(folder, epochs, step_seconds)

    folder.mkdir(parents=True, exist_ok=True)
    process = FORK.Process(target=main)
    process.start()
    return process


def newest(folder: Path) -> int:
    """Return the newest checkpoint's step; 0 if there is none."""
    return max((int(path.name[5:]) for path in folder.glob("step-*")), default=0)


def interrupt(folder: Path, process: Any, kind: str) -> dict[str, int]:
    """Interrupt a process; return the newest steps here and there."""
    if kind == "noticed":
        os.kill(process.pid, signal.SIGTERM)
        process.join(LIMIT_SECONDS)
    process.kill()
    process.join()
    if kind == "lost":
        shutil.rmtree(folder / "local", ignore_errors=True)
    far = folder / "far"
    return {"here": newest(local_folder(folder / "local", str(far))), "there": newest(far)}


def main(folder: Path, kills: int) -> dict[str, Any]:
    """Train without and with interruptions; compare."""
    epochs = 5 + kills
    start(folder / "whole", epochs, 0.0).join(LIMIT_SECONDS)
    chance, place, wrong = random.Random(kills), folder / "killed", []
    counts = dict.fromkeys(KINDS, 0)
    process = start(place, epochs, 0.01)
    for number in range(kills):
        process.join(0.2 + 0.3 * chance.random())
        if process.exitcode is not None:
            break
        kind = KINDS[number % len(KINDS)]
        steps = interrupt(place, process, kind)
        counts[kind] += 1
        process = start(place, epochs, 0.01)
        while len(starts := (place / "starts").read_text().split()) < number + 2:
            if process.exitcode is not None:
                return {"log": (place / "log").read_text()}
            time.sleep(0.01)
        if int(starts[-1]) != max(steps.values()):
            wrong.append([kind, steps, int(starts[-1])])
    process.join(LIMIT_SECONDS)
    process.kill()
    results = [torch.load(path / "result.pt") for path in (folder / "whole", place)]
    same = all(torch.equal(results[0][0][name], results[1][0][name]) for name in results[0][0])
    return {
        "counts": counts,
        "wrong": wrong,
        "same": same and results[0][1] == results[1][1],
        "left": newest(local_folder(place / "local", str(place / "far"))),
        "log": (place / "log").read_text(),
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))) + "\n")
