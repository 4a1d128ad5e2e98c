"""``Loop.keep`` with kills in saves: ``keep_torch.py FOLDER``; prints JSON. Runs in PyTorch's environment."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.storage.files import Files
from spot_training.storage.manifest import FILE, parse
from spot_training.torch import EpochBatches, Loop

FORK = multiprocessing.get_context("fork")
EPOCHS = 5
METRICS = [0.5, 0.3, 0.4, 0.2, 0.6]
"""By epoch: the best is that of the fourth, in its eighth step."""


def train(folder: Path, loader_kind: str, asynchronous: bool, die_at: int) -> None:
    """Train; be killed at a touch of the disk."""
    touches = [0]

    def touch(files: Files, what: str, path: Path) -> None:
        touches[0] += 1
        if touches[0] == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    Files.touch = touch  # type: ignore[assignment,method-assign]
    torch.manual_seed(1)
    data = TensorDataset(torch.arange(8.0)[:, None])
    loader: Any
    if loader_kind == "stateful":
        from torchdata.stateful_dataloader import StatefulDataLoader

        loader = StatefulDataLoader(data, batch_size=4)
    else:
        loader = DataLoader(data, batch_sampler=EpochBatches(8, 4))
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    loop = Loop(
        folder / "checkpoints",
        keep=1,
        asynchronous=asynchronous,
        interval=Interval(max_seconds=1000.0),
        model=model,
        optimizer=optimizer,
    )
    for epoch in loop.epochs(EPOCHS):
        for (batch,) in loop.batches(loader):
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            loop.keep(metric=-1.0 if loop.repeating else None)  # of a repeated batch: ignored
        with (folder / "weights").open("a") as file:
            file.write(json.dumps([epoch, loop.step, model.weight.item()]) + "\n")
        loop.keep(metric=torch.tensor(METRICS[epoch]))
        if epoch == 1:
            loop.keep(pin="second")


def outcome(folder: Path) -> dict[str, Any]:
    """Return what stays, and whether the best checkpoint has the weights that were evaluated."""
    manifests = {
        path.name: parse((path / FILE).read_text()) for path in sorted(folder.glob("checkpoints/step-*"))
    }
    newest = max(manifests)
    best = manifests[newest].retained["best"]
    parts = torch.load(folder / f"checkpoints/step-{best['step']:012d}/rank-00000/parts.pt")
    lines = [json.loads(line) for line in (folder / "weights").read_text().splitlines()]
    evaluated = {step: weight for _, step, weight in lines}
    return {
        "steps": [manifest.step for manifest in manifests.values()],
        "best": [best["step"], round(best["metric"], 3)],
        "pins": manifests[newest].retained["pins"],
        "same": parts["model"]["weight"].item() == evaluated[best["step"]],
        "epochs": sorted({epoch for epoch, *_ in lines}),
    }


def play(folder: Path, loader_kind: str, asynchronous: bool, die_at: int) -> dict[str, Any]:
    codes = []
    folder.mkdir(parents=True)
    for number in (die_at, 0):
        process = FORK.Process(target=train, args=(folder, loader_kind, asynchronous, number))
        process.start()
        process.join(60)
        process.kill()
        codes.append(process.exitcode)
    return {"codes": codes, **outcome(folder)}


def main(folder: Path, stride: int) -> dict[str, Any]:
    """Kill trainings with each kind of loader at touches that are ``stride`` apart."""
    results: dict[str, Any] = {}
    for loader_kind, asynchronous in (("ours", True), ("stateful", True), ("stateful", False)):
        outcomes = [
            play(folder / f"{loader_kind}-{asynchronous}-{die_at}", loader_kind, asynchronous, die_at)
            for die_at in (0, *range(12, 140, stride))
        ]
        results[f"{loader_kind} {'asynchronous' if asynchronous else 'synchronous'}"] = outcomes
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]))) + "\n")
