"""What ``Loop`` does at its edges, in processes of their own: JSON. Runs in PyTorch's environment."""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy
import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, _utils

from frameworks import parts_torch
from spot_training import Interval, SaveError, SpotTrainingError
from spot_training.levels.background import BackgroundSaver
from spot_training.torch import EpochBatches, Loop
from spot_training.torch import saves as saves_module

FORK = multiprocessing.get_context("fork")
DATA = TensorDataset(torch.arange(8.0)[:, None])


def loader(workers: int = 0) -> DataLoader[Any]:
    return DataLoader(DATA, batch_sampler=EpochBatches(8, 4), num_workers=workers)


def new_loop(folder: Path, rate: float = 0.1, **options: Any) -> tuple[torch.nn.Module, Any, Loop]:
    """Return a model, its optimizer and a loop that saves at the end or at a notice."""
    torch.manual_seed(1)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    return model, optimizer, Loop(folder, model=model, optimizer=optimizer, **options)


def step(model: Any, optimizer: Any, batch: Any) -> float:
    optimizer.zero_grad()
    loss = model(batch[0]).pow(2).mean()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def run(folder: Path, target: Callable[..., None], *arguments: Any, during: Any = None) -> dict[str, Any]:
    """Run a case in a fork; ``during`` gets the process. Return its exit code and what it printed."""
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    log.write_text("")

    def main() -> None:
        with log.open("a") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        logging.basicConfig(level=logging.WARNING)
        try:
            target(folder, *arguments)
        except SpotTrainingError as error:  # multiprocessing has no excepthook
            sys.excepthook(type(error), error, None)
            os._exit(1)

    process = FORK.Process(target=main)
    process.start()
    began = time.monotonic()
    if during is not None:
        during(process, log)
    process.join(60)
    seconds = time.monotonic() - began
    process.kill()
    return {"code": process.exitcode, "log": log.read_text(), "seconds": seconds}


def busy(folder: Path, where: str, seconds: float) -> None:
    """Train; be busy in a validation, or in the third step."""
    saves_module.LONG_STEP_SECONDS = 0.2  # type: ignore[misc]
    model, optimizer, loop = new_loop(folder / "checkpoints")
    for epoch in loop.epochs(3):
        total = count = 0
        for batch in loop.batches(loader()):
            total, count = total + step(model, optimizer, batch), count + 1
            sys.stdout.write(f"step {loop.step} {loop.repeating}\n")
            sys.stdout.flush()
            if where == "step":
                time.sleep(seconds if loop.step == 2 else 0.3)
        sys.stdout.write(f"epoch {epoch} mean {total / count}\n")
        sys.stdout.flush()
        if where == "validation" and epoch == 1:
            time.sleep(seconds)
    sys.stdout.write(f"then {float(torch.rand(1))}\n")


def notice_at(line: str) -> Callable[[Any, Path], None]:
    """Return what sends a SIGTERM shortly after a line."""

    def during(process: Any, log: Path) -> None:
        while line not in log.read_text():
            time.sleep(0.01)
        time.sleep(0.1)
        os.kill(process.pid, signal.SIGTERM)

    return during


def newest(folder: Path) -> int:
    return max(int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*"))


class Moody:
    """A part whose state changes its type."""

    def __init__(self, later: Any) -> None:
        self.value: Any = None
        self._later = later

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.value = state["value"]

    def change(self) -> None:
        self.value = self._later()


def moody(folder: Path, later: Any) -> None:
    part = Moody(later)
    model, optimizer, loop = new_loop(folder / "checkpoints", interval=Interval(max_seconds=1e-9), part=part)
    for _ in loop.epochs(2):
        for batch in loop.batches(loader()):
            step(model, optimizer, batch)
        part.change()
    sys.stdout.write("exported\n")


def unsupported(folder: Path) -> None:
    part = Moody(None)
    part.value = SpotTrainingError("x")
    new_loop(folder / "checkpoints", part=part)


def rate(folder: Path, value: float) -> None:
    model, optimizer, loop = new_loop(folder / "checkpoints", value)
    for _ in loop.epochs(2):
        for batch in loop.batches(loader()):
            step(model, optimizer, batch)
    sys.stdout.write(f"rate {optimizer.param_groups[0]['lr']}\n")


def twice(folder: Path) -> None:
    rate(folder, 0.1)
    rate(folder, 0.1)


def raced(folder: Path) -> None:
    """Get a SIGTERM in each worker before ``worker_init_fn`` runs, as from torchrun to the group."""
    prepare = _utils.signal_handling._set_worker_signal_handlers

    def hooked() -> None:
        prepare()
        os.kill(os.getpid(), signal.SIGTERM)

    _utils.signal_handling._set_worker_signal_handlers = hooked
    model, optimizer, loop = new_loop(folder / "checkpoints")
    for _ in loop.epochs(2):
        for batch in loop.batches(loader(2)):
            step(model, optimizer, batch)
    sys.stdout.write(f"all {loop.step}\n")


class Stream(IterableDataset[Any]):
    """So many samples, without a length."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        yield from (DATA[number % 8] for number in range(self._count))


def uneven(folder: Path, counts: Sequence[int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def main(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(len(counts)), "GLOO_SOCKET_IFNAME": "lo"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        torch.distributed.init_process_group("gloo")
        model, optimizer, loop = new_loop(folder / "checkpoints")
        for _ in loop.epochs(2):
            try:
                for batch in loop.batches(DataLoader(Stream(counts[rank]), 4)):
                    step(model, optimizer, batch)
            except SpotTrainingError as error:
                sys.stdout.write(f"{loop.step} {error}\n")
                sys.stdout.flush()
                os._exit(1)
        torch.distributed.destroy_process_group()

    ranks = [FORK.Process(target=main, args=(rank,)) for rank in range(len(counts))]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(50)
        process.kill()
    sys.exit(max(1 if process.exitcode is None else abs(process.exitcode) for process in ranks))


def gives_way() -> list[Any]:
    """Return when a background save must give way, and how it ends."""
    saver = BackgroundSaver()
    saver.start(lambda: time.sleep(0.4))
    saver.wait()

    def hanging() -> None:
        while not saver.gives_way.is_set():
            time.sleep(0.01)
        raise SaveError("gave way")

    idle = saver.must_give_way(1.0)
    saver.start(hanging)
    answers = [idle, saver.must_give_way(None), saver.must_give_way(60.0), saver.must_give_way(0.5)]
    answers.append(saver.must_give_way(0.01))  # another save would not end either
    saver.gives_way.set()
    try:
        saver.wait()
    except SaveError as error:
        answers.append(str(error))
    return [*answers, saver.gives_way.is_set()]


def main(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for where, line, steps in (("validation", "epoch 1", 4), ("step", "step 2", 2)):
        place = folder / where
        noticed = run(place, busy, where, 40.0, during=notice_at(line))
        results[where] = {**noticed, "lost": steps - newest(place), "again": run(place, busy, where, 0.0)}
    results["finished"] = run(folder / "validation", busy, "validation", 0.0)
    results["converted"] = run(folder / "a", moody, lambda: numpy.float64(0.5))
    results["surprising"] = run(folder / "b", moody, lambda: SpotTrainingError("x"))
    results["unsupported"] = run(folder / "c", unsupported)
    results["rate"] = [run(folder / "d", rate, value) for value in (0.1, 0.01, 0.1)]
    results["twice"] = run(folder / "e", twice)
    results["raced"] = run(folder / "f", raced)
    results["uneven"] = [run(folder / f"g{counts}", uneven, counts) for counts in ((8, 8), (8, 12), (8, 0))]
    results["gives way"] = gives_way()
    results["parts"] = parts_torch.results()
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
