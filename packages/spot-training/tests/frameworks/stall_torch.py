"""How long a save pauses PyTorch's training, beside ``torch.save`` and ``dcp.async_save``; JSON.

``stall_torch.py FOLDER [MEGABYTES] [ROUNDS]``. The ways alternate in one process, so that a busy machine is
the same for all; figures are medians. ``torch.save`` and a rename, as in most scripts, do not flush.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed import checkpoint as dcp
from torch.utils.data import DataLoader, TensorDataset

from spot_training import Interval
from spot_training.torch import EpochBatches, Loop

LAYERS, STEPS = 16, 100_000
DOLLARS_AN_HOUR, DOLLARS_A_GB = 0.35, 0.06


class Training:
    """A model with Adam of so many bytes, and the times of its steps."""

    def __init__(self, folder: Path, size: int) -> None:
        torch.set_num_threads(1)
        width = int((size / 12 / LAYERS) ** 0.5)
        self.folder = folder
        self.model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(LAYERS)))
        self.optimizer = torch.optim.Adam(self.model.parameters())
        self.batch = torch.ones(16, width)
        self.step()

    def step(self) -> float:
        """Take a step; return its seconds."""
        started = time.monotonic()
        self.optimizer.zero_grad()
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        return time.monotonic() - started

    def state(self) -> dict[str, Any]:
        """Return the state that all ways save."""
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}

    def torch_save(self) -> float:
        """Save as most scripts do; return the seconds for which it pauses."""
        started = time.monotonic()
        torch.save(self.state(), self.folder / ".new.pt")
        (self.folder / ".new.pt").replace(self.folder / "naive.pt")
        return time.monotonic() - started

    def dcp_save(self) -> tuple[float, list[float]]:
        """Save in the background of PyTorch; return the seconds of the pause, and of steps beside it."""
        place = self.folder / "dcp"
        shutil.rmtree(place, ignore_errors=True)
        started = time.monotonic()
        saving = dcp.async_save(self.state(), checkpoint_id=place)
        paused = time.monotonic() - started
        steps = self.steps_during(lambda: not saving.done())
        saving.result()
        return paused, steps

    def loop_save(self, loop: Loop) -> tuple[float, list[float]]:
        """Save in the background of ``Loop``; the same."""
        started = time.monotonic()
        loop._saves.start(loop._copy)
        paused = time.monotonic() - started
        steps = self.steps_during(lambda: loop._saves.saver.busy)
        loop._saves.saver.wait()
        loop._state.position.step += 1
        return paused, steps

    def steps_during(self, is_saving: Callable[[], bool]) -> list[float]:
        """Take steps until a save has ended; return the seconds of those that lay within it."""
        steps: list[float] = []
        while is_saving():
            seconds = self.step()
            if is_saving() or not steps:
                steps.append(seconds)
        return steps


def measured(folder: Path, size: int, rounds: int) -> dict[str, Any]:
    """Return the medians."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.update(MASTER_ADDR="127.0.0.1", GLOO_SOCKET_IFNAME="lo")
    distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=0, world_size=1)
    training = Training(folder, size)
    loop = Loop(
        folder / "checkpoints", keep=1, settings={}, model=training.model, optimizer=training.optimizer
    )
    loop._state.loader = None
    pauses: dict[str, list[float]] = {"torch_save": [], "dcp": [], "loop": []}
    steps: dict[str, list[float]] = {"alone": [], "dcp": [], "loop": []}
    for number in range(rounds + 1):  # the first, which also allocates, does not count
        alone = [training.step() for _ in range(4)]
        naive = training.torch_save()
        dcp_paused, dcp_steps = training.dcp_save()
        loop_paused, loop_steps = training.loop_save(loop)
        if not number:
            continue
        for way, seconds in (("torch_save", naive), ("dcp", dcp_paused), ("loop", loop_paused)):
            pauses[way].append(seconds)
        for way, several in (("alone", alone), ("dcp", dcp_steps), ("loop", loop_steps)):
            steps[way] += several
    pause = {way: statistics.median(several) for way, several in pauses.items()}
    step = {way: statistics.median(several) for way, several in steps.items()}
    written = (folder / "naive.pt").stat().st_size
    loop.close()
    distributed.destroy_process_group()
    return {
        "megabytes": round(written / 1e6),
        "rounds": rounds,
        "load": round(os.getloadavg()[1], 1),
        "pause_seconds": {way: round(seconds, 3) for way, seconds in pause.items()},
        "step_seconds": {way: round(seconds, 3) for way, seconds in step.items()},
        "stall_vs_torch_save": round(pause["loop"] / pause["torch_save"], 3),
        "stall_vs_dcp": round(pause["loop"] / pause["dcp"], 3),
        "step_beside_save": round(step["loop"] / step["alone"], 3),
        "step_beside_dcp": round(step["dcp"] / step["alone"], 3),
    }


def storage_share(folder: Path, seconds: float) -> float:
    """Train where prices decide the interval; return the price of saves as a share of the instance's.

    Counted by the bytes of the committed checkpoints over the time from the first commit to the last.
    """
    interval = Interval(  # so many interruptions that without prices it would save every 0.3 s
        per_hour=3600, dollars_per_gb=DOLLARS_A_GB, dollars_per_hour=DOLLARS_AN_HOUR, environment={}
    )
    model = torch.nn.Linear(256, 256)
    loader = DataLoader(
        TensorDataset(torch.arange(STEPS)), batch_sampler=EpochBatches(STEPS, 1, shuffle=False)
    )
    loop = Loop(folder / "share", keep=1000, settings={}, interval=interval, model=model)
    interval.saved(0.01)
    loop._spot._next_save_at = 0.0
    end = time.monotonic() + seconds
    for _ in loop.epochs(1):
        for _ in loop.batches(loader):
            time.sleep(0.01)
            if time.monotonic() > end:
                break
        break
    loop._saves.saver.wait()
    loop.close()
    committed = sorted((folder / "share").glob("step-*"), key=lambda path: path.stat().st_mtime)
    sizes = [sum(file.stat().st_size for file in path.glob("rank-*/*")) for path in committed]
    hours = (committed[-1].stat().st_mtime - committed[0].stat().st_mtime) / 3600
    dollars = sum(sizes[1:]) / 1e9 * DOLLARS_A_GB
    return round(dollars / (hours * DOLLARS_AN_HOUR), 4)


if __name__ == "__main__":
    megabytes, rounds = (int(argument) for argument in (sys.argv[2:] or (1000, 5)))
    place = Path(sys.argv[1])
    result = measured(place, megabytes * 1_000_000, rounds)
    result["storage_share"] = storage_share(place, 30.0)
    sys.stdout.write(json.dumps(result) + "\n")
