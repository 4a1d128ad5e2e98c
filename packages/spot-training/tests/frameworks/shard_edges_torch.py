"""Divided state that is damaged, refused, or interrupted: JSON. Runs in PyTorch's environment."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from frameworks.shards_torch import differences, end, start, train
from spot_training import SpotTrainingError
from spot_training.levels.local_level import local_folder
from spot_training.torch import Loop


class DeepSpeedEngine(torch.nn.Linear):
    """Stands for DeepSpeed's, which needs a compiler of its GPU's: refused by the name of its class."""


class Average:
    """Averages weights, and has its rank's parts of them as plain tensors."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.tensors = [tensor.detach().to_local().clone() for tensor in model.parameters()]

    def state_dict(self) -> dict[str, Any]:
        return {"tensors": self.tensors}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.tensors = state["tensors"]


def truncate(part: Path) -> None:
    """Lose the end of a rank's file."""
    os.truncate(part / "shard.pt", (part / "shard.pt").stat().st_size - 1)


def flip(part: Path) -> None:
    """Change a byte of a rank's file."""
    content = bytearray((part / "shard.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (part / "shard.pt").write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "truncated": truncate,
    "flipped": flip,
    "missing": shutil.rmtree,
    "without a manifest": lambda part: (part.parent / "manifest.json").unlink(),
}


def damaged(folder: Path) -> dict[str, Any]:
    """Save twice with two ranks; damage rank 1's part of the newest; restore with two and with three."""
    origin, options = folder / "origin", {}
    codes = [end(start(origin, 2, train, "fsdp", epochs, str(epochs), options)) for epochs in (1, 2)]
    before = torch.load(origin / "1-after.pt")
    results: dict[str, Any] = {"codes": codes}
    for number, (name, harm) in enumerate(DAMAGES.items()):
        copy = folder / name
        shutil.copytree(origin / "checkpoints", copy / "checkpoints")
        newest = max((copy / "checkpoints").glob("step-*"))
        harm(newest / "rank-00001")
        left = sorted(str(path.relative_to(newest)) for path in newest.rglob("*"))
        ranks = 2 + number % 2
        codes = [end(start(copy, ranks, train, "fsdp", 1, "again", options))]
        bad = newest.with_name(f".bad-{newest.name}")
        results[name] = {
            "codes": codes,
            "stays": left == sorted(str(path.relative_to(bad)) for path in bad.rglob("*")),
            "mismatches": differences(before, torch.load(copy / "again-before.pt")),
            "log": (copy / "log").read_text(),
        }
    return results


def refused(folder: Path) -> None:
    """Create loops at two ranks; print why each was refused."""
    rank, lines = distributed.get_rank(), dict[str, str]()
    mesh = init_device_mesh("cpu", (2,))

    def attempt(name: str, create: Callable[[], dict[str, Any]]) -> None:
        try:
            Loop(folder / name, settings={}, **create()).close()
            lines[name] = "accepted"
        except SpotTrainingError as error:
            lines[name] = str(error)

    def fsdp1() -> dict[str, Any]:
        return {"model": FullyShardedDataParallel(torch.nn.Linear(4, 4), device_id=torch.device("cpu"))}

    def fsdp1_optimizer() -> dict[str, Any]:
        return {"optimizer": torch.optim.SGD(fsdp1()["model"].parameters(), lr=0.1)}

    def meta() -> dict[str, Any]:
        with torch.device("meta"):
            model = torch.nn.Linear(4, 4)
        fully_shard(model, mesh=mesh)
        return {"model": model}

    def overlapping() -> dict[str, Any]:
        model = DistributedDataParallel(torch.nn.Linear(4, 4))
        optimizer = ZeroRedundancyOptimizer(
            model.parameters(), torch.optim.SGD, overlap_with_ddp=True, lr=0.1
        )
        return {"model": model, "optimizer": optimizer}

    def stages() -> dict[str, Any]:
        model = torch.nn.Sequential(torch.nn.Linear(4, 4 + rank))
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        return {"model": model}

    def average() -> dict[str, Any]:
        model = torch.nn.Linear(4, 4)
        fully_shard(model, mesh=mesh)
        return {"model": model, "average": Average(model)}

    attempt("fsdp1", fsdp1)
    attempt("fsdp1-optimizer", fsdp1_optimizer)
    attempt("deepspeed", lambda: {"model": DeepSpeedEngine(4, 4)})
    attempt("overlapping", overlapping)
    attempt("meta", meta)
    attempt("stages", stages)
    attempt("average", average)
    late(folder / "late", lines)
    (folder / f"lines-{rank}").write_text(json.dumps(lines))


def late(folder: Path, lines: dict[str, str]) -> None:
    """Divide a model after the loop was created: its save fails."""
    model = torch.nn.Linear(4, 4)
    loop = Loop(folder, settings={}, model=model)
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    for _ in loop.epochs(1):
        pass
    lines["late"] = f"{len(list(folder.glob('step-*')))} checkpoints"


def steps(folder: Path) -> int:
    """Return how many steps rank 0 has taken, over all starts."""
    path = folder / "samples-0"
    return len(path.read_text().splitlines()) if path.exists() else 0


def killed(folder: Path, kills: int) -> dict[str, Any]:
    """Kill one of two ranks, or the machine, at random moments; save on two levels."""
    epochs, options = 2 + kills, {"every": 0.05, "local": True}
    end(start(folder / "whole", 2, train, "fsdp", epochs, "whole", {}))
    chance, copy, codes = random.Random(kills), folder / "killed", list[list[int]]()
    slow = {**options, "pause": 0.01}
    for number in range(kills):
        processes, before = start(copy, 2, train, "fsdp", epochs, "killed", slow), steps(copy)
        taken, deadline = before + chance.randint(2, 6), time.monotonic() + 60
        while steps(copy) < taken and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.05 * chance.random())
        if number % 3 == 2:
            for process in processes:
                os.kill(process.pid, signal.SIGTERM)
            codes.append(end(processes))
            continue
        processes[number % 3].kill()
        processes[number % 3].join()
        for process in processes:
            process.kill()
        codes.append(end(processes))
        if number % 3 == 1:
            shutil.rmtree(copy / "local", ignore_errors=True)
    codes.append(end(start(copy, 2, train, "fsdp", epochs, "killed", options)))
    whole, again = (torch.load(folder / name / f"{name}-after.pt") for name in ("whole", "killed"))
    far = str(copy / "checkpoints")
    return {
        "codes": codes,
        "starts": (copy / "starts-0").read_text().split(),
        "mismatches": differences(whole, again),
        "local": str(local_folder(copy / "local", far).name),
        "log": (copy / "log").read_text()[-3000:],
    }


def refusals(folder: Path) -> dict[str, Any]:
    """Return the lines of both ranks."""
    codes = end(start(folder, 2, refused))
    lines = (
        [json.loads((folder / f"lines-{rank}").read_text()) for rank in range(2)] if not any(codes) else []
    )
    return {"codes": codes, "lines": lines, "log": (folder / "log").read_text()}


if __name__ == "__main__":
    name, path = sys.argv[1], Path(sys.argv[2])
    play: dict[str, Callable[[], dict[str, Any]]] = {
        "damaged": lambda: damaged(path),
        "refusals": lambda: refusals(path),
        "killed": lambda: killed(path, int(sys.argv[3])),
    }
    sys.stdout.write(json.dumps(play[name]()) + "\n")
