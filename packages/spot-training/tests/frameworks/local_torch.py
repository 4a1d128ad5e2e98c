"""``Loop`` with two levels of storage, killed at random moments, alone or as two ranks of gloo: JSON.

``python -m frameworks.local_torch FOLDER KILLS [RANKS]`` runs in PyTorch's environment. When a rank is killed
the others get SIGTERM, as from torchrun.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from frameworks.loop_torch import FORK
from spot_training import Interval
from spot_training.levels import local_level
from spot_training.levels.local_level import local_folder
from spot_training.torch import EpochBatches, Loop

LENGTH, BATCH = 96, 4
KINDS = ("killed", "lost", "noticed", "one rank", "copying", "one notice")
"""The first three of a single rank."""
LIMIT_SECONDS = 60.0


def train(folder: Path, epochs: int, step_seconds: float) -> None:
    """Train; save here every 20 ms and there every second; write the weights at the end."""
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if ranks > 1:
        distributed.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    model: Any = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Dropout(), torch.nn.Linear(64, 1))
    if ranks > 1:
        model = DistributedDataParallel(model)
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
    with (folder / f"starts-{rank}").open("a") as file:
        file.write(f"{loop.step}\n")
    data = TensorDataset(torch.arange(float(LENGTH))[:, None] / LENGTH)
    loader = DataLoader(data, batch_sampler=EpochBatches(LENGTH, BATCH))
    with (folder / f"steps-{rank}").open("a", buffering=1) as steps:
        for _ in loop.epochs(epochs):
            for [batch] in loop.batches(loader):
                time.sleep(step_seconds)
                optimizer.zero_grad()
                loss = (model(batch) - batch.sin()).pow(2).mean()
                loss.backward()
                optimizer.step()
                loop.mean("loss", loss)
                loop.state.setdefault("losses", []).append(float(loss.detach()))
                if not loop.repeating:
                    steps.write(f"{loop.step + 1}\n")
    torch.save([model.state_dict(), loop.state["losses"]], folder / f"result-{rank}.pt")
    if ranks > 1:
        distributed.destroy_process_group()


def copy_slowly(folder: Path) -> None:
    """Let copies to the second level take some 50 ms, during which there is a file."""
    local_level._CHUNK = 1 << 10  # type: ignore[misc]
    copy_files = local_level._copy_files

    def copy(root: Any, manifest: Any, store: Any, stage: Any, check: Any) -> Any:
        def wait() -> None:
            time.sleep(0.002)
            check()

        (folder / "copying").touch()
        try:
            return copy_files(root, manifest, store, stage, wait)
        finally:
            (folder / "copying").unlink()

    local_level._copy_files = copy


class Start:
    """The processes of one start of the training."""

    def __init__(self, folder: Path, ranks: int, epochs: int, step_seconds: float) -> None:
        self.folder, self.ranks = folder, ranks
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "copying").unlink(missing_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]

        def main(rank: int) -> None:
            os.environ.pop("GPU_SPOT_LOCAL_CHECKPOINTS", None)
            if ranks > 1:
                os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), LOCAL_RANK=str(rank))
                os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
                copy_slowly(folder)
            with (folder / "log").open("a") as log:
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
            train(folder, epochs, step_seconds)

        self.processes = [FORK.Process(target=main, args=(rank,)) for rank in range(ranks)]
        for process in self.processes:
            process.start()

    def signal(self, number: int, ranks: list[int]) -> None:
        """Send a signal to some ranks."""
        for rank in ranks:
            if self.processes[rank].exitcode is None:
                os.kill(self.processes[rank].pid, number)

    @property
    def has_ended(self) -> bool:
        """Whether a rank has ended."""
        return any(process.exitcode is not None for process in self.processes)

    def end(self, seconds: float = LIMIT_SECONDS) -> list[int]:
        """Wait until all have ended; do to the others of one that failed what torchrun does."""
        limit = time.monotonic() + seconds
        while not self.has_ended and time.monotonic() < limit:
            self.processes[0].join(0.005)
        if any(process.exitcode for process in self.processes):
            self.signal(signal.SIGTERM, list(range(self.ranks)))
        for process in self.processes:
            process.join(max(0.0, limit - time.monotonic()))
            process.kill()
            process.join()
        return [process.exitcode for process in self.processes]

    def newest(self) -> dict[str, int]:
        """Return the newest steps here and there, and the last one that all ranks have taken."""
        far, folder = self.folder / "far", self.folder
        taken = [(folder / f"steps-{rank}").read_text().split() for rank in range(self.ranks)]
        return {
            "here": newest(local_folder(folder / "local", str(far))),
            "there": newest(far),
            "taken": min(int(steps[-1]) if steps else 0 for steps in taken),
        }


def newest(folder: Path) -> int:
    return max((int(path.name[5:]) for path in folder.glob("step-*")), default=0)


def interrupt(start: Start, kind: str, chance: random.Random) -> list[int]:
    every = list(range(start.ranks))
    if kind == "copying":
        limit = time.monotonic() + 5
        while not (start.folder / "copying").exists() and not start.has_ended and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(0.05 * chance.random())
    if kind in ("killed", "lost"):
        start.signal(signal.SIGKILL, every)
    elif kind == "noticed":
        start.signal(signal.SIGTERM, every)
    elif kind == "one notice":
        start.signal(signal.SIGTERM, [chance.choice(every)])
    else:
        start.signal(signal.SIGKILL, chance.choice([*([rank] for rank in every), every]))
    codes = start.end()
    if kind == "lost":
        shutil.rmtree(start.folder / "local", ignore_errors=True)
    return codes


def resumed(start: Start, number: int) -> list[int] | None:
    """Return at which step the ranks resumed in their start of this number; None: they ended before."""
    files = [start.folder / f"starts-{rank}" for rank in range(start.ranks)]
    while True:
        steps = [file.read_text().split("\n")[:-1] if file.exists() else [] for file in files]
        if all(len(of_rank) > number for of_rank in steps):
            return [int(of_rank[number]) for of_rank in steps]
        if start.has_ended:
            return None
        time.sleep(0.01)


def main(folder: Path, kills: int, ranks: int = 1, seed: int = 0) -> dict[str, Any]:
    epochs, place, kinds = ranks * (5 + kills), folder / "killed", KINDS if ranks > 1 else KINDS[:3]
    Start(folder / "whole", ranks, epochs, 0.0).end()
    chance, wrong, counts = random.Random(f"{kills} {seed}"), list[Any](), Counter[str]()
    start = Start(place, ranks, epochs, 0.01)
    resumed(start, 0)
    slowest = 0.0
    for number in range(kills):
        start.processes[0].join(0.2 + 0.3 * chance.random())
        if start.has_ended:
            break
        kind = kinds[number % len(kinds)]
        began = time.monotonic()
        codes = interrupt(start, kind, chance)
        slowest = max(slowest, time.monotonic() - began)
        counts[kind] += 1
        steps = start.newest()
        if "notice" in kind and (any(codes) or steps["there"] != steps["taken"]):
            wrong.append([kind, steps, codes])
        start = Start(place, ranks, epochs, 0.01)
        at = resumed(start, number + 1)
        if at is None:
            break
        if set(at) != {max(steps["here"], steps["there"])}:
            wrong.append([kind, steps, at])
    codes, same = start.end(), []
    for rank in range(ranks):
        paths = [path / f"result-{rank}.pt" for path in (folder / "whole", place)]
        if all(path.exists() for path in paths):
            (weights, losses), (again, losses_again) = map(torch.load, paths)
            same.append(all(torch.equal(weights[name], again[name]) for name in weights))
            same.append(losses == losses_again)
    return {
        "counts": counts,
        "codes": codes,
        "wrong": wrong,
        "same": len(same) == 2 * ranks and all(same),
        "left": newest(local_folder(place / "local", str(place / "far"))),
        "slowest": slowest,
        "log": (place / "log").read_text()[-6000:],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:]))) + "\n")
