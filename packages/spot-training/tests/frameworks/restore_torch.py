"""Memory and reads of a restore: ``restore_torch.py FOLDER [RANKS] [PARAMETERS]``; prints JSON.

Ranks of gloo on this machine restore one checkpoint of a model with Adam, most of it frozen. Their memory is
the sum of their proportional set sizes, in which a page that they share counts once; it is measured when all
have loaded the model, and at many moments besides.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch import distributed

from spot_training.torch import Loop

FORK = multiprocessing.get_context("fork")


def new_parts(parameters: int, *, steps: bool = False) -> dict[str, Any]:
    """Return a model and its optimizer; ``steps``: which has taken a step, and so has moments."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    width = int((parameters / 4) ** 0.5)
    frozen = [torch.nn.Linear(width, width).requires_grad_(False) for _ in range(12)]
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4)), *frozen)
    optimizer = torch.optim.Adam(model.parameters())
    if steps:
        model(torch.ones(1, width)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return {"model": model, "optimizer": optimizer}


def write(folder: Path, parameters: int) -> None:
    """Save a checkpoint."""
    parts = new_parts(parameters, steps=True)
    (folder / "digest").write_text(repr(digest(parts)))
    loop = Loop(folder / "checkpoints", settings={}, asynchronous=False, **parts)
    for _ in loop.epochs(1):
        pass


def digest(parts: dict[str, Any]) -> float:
    """Return a number of all tensors."""
    moments = [value for state in parts["optimizer"].state.values() for value in state.values()]
    return sum(float(tensor.detach().sum()) for tensor in (*parts["model"].parameters(), *moments))


def restore(folder: Path, rank: int, ranks: int, port: int, parameters: int) -> None:
    """Restore at one rank; wait at two points for the parent to measure."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    distributed.init_process_group("gloo")
    parts = new_parts(parameters)
    for tensor in parts["model"].parameters():
        tensor.data.zero_()
    load = parts["model"].load_state_dict

    def load_and_wait(state: Any) -> Any:
        result = load(state)
        (folder / f"loaded-{rank}").touch()
        while not (folder / "measured").exists():
            time.sleep(0.005)
        return result

    parts["model"].load_state_dict = load_and_wait
    (folder / f"ready-{rank}").touch()
    while not (folder / "go").exists():
        time.sleep(0.005)
    loop = Loop(folder / "checkpoints", settings={}, **parts)
    maps = Path("/proc/self/maps").read_text()
    result = {
        "same": repr(digest(parts)) == (folder / "digest").read_text(),
        "mapped": "parts.pt" in maps,
        "step": loop.step,
    }
    (folder / f".result-{rank}").write_text(json.dumps(result))
    (folder / f".result-{rank}").rename(folder / f"result-{rank}")
    while not (folder / "end").exists():
        time.sleep(0.005)
    os._exit(0)


def memory(pids: list[int]) -> int:
    """Return the bytes of memory of some processes together."""
    total = 0
    for pid in pids:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def reads(pids: list[int]) -> int:
    """Return the bytes that some processes have read from storage."""
    lines = (line for pid in pids for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return sum(int(line.split()[1]) for line in lines if line.startswith("read_bytes"))


def main(folder: Path, ranks: int, parameters: int) -> dict[str, Any]:
    """Write a checkpoint in a process of its own, restore it at all ranks, and measure."""
    folder.mkdir(parents=True, exist_ok=True)
    writing = FORK.Process(target=write, args=(folder, parameters))
    writing.start()
    writing.join()
    [file] = folder.glob("checkpoints/step-*/rank-00000/parts.pt")
    with file.open("rb") as opened:  # out of the page cache, where the file system allows it
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    processes = [
        FORK.Process(target=restore, args=(folder, rank, ranks, port, parameters)) for rank in range(ranks)
    ]
    for process in processes:
        process.start()
    pids = [process.pid for process in processes if process.pid is not None]
    try:
        while len(list(folder.glob("ready-*"))) < ranks:
            time.sleep(0.01)
        before, read_before, peak, started = memory(pids), reads(pids), 0, time.monotonic()
        at_load = 0
        (folder / "go").touch()
        while len(list(folder.glob("result-*"))) < ranks:
            has_loaded = len(list(folder.glob("loaded-*"))) == ranks
            now = memory(pids)
            peak = max(peak, now)
            if has_loaded and not at_load:
                at_load = now
                (folder / "measured").touch()
            time.sleep(0.005)
            if time.monotonic() - started > 300 or not all(process.is_alive() for process in processes):
                raise SystemExit("a rank has not restored")
        seconds, after, read_after = time.monotonic() - started, memory(pids), reads(pids)
    finally:
        (folder / "end").touch()
        for process in processes:
            process.join(10)
            process.kill()
    size = file.stat().st_size
    results = [json.loads((folder / f"result-{rank}").read_text()) for rank in range(ranks)]
    return {
        "ranks": ranks,
        "megabytes": round(size / 1e6),
        "seconds": round(seconds, 2),
        "extra_memory": round(max(at_load - before, peak - max(before, after)) / size, 2),
        "storage_reads": round((read_after - read_before) / size, 2),
        "same": all(result["same"] for result in results),
        "mapped_afterwards": any(result["mapped"] for result in results),
    }


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[2:]] or [4, 10_000_000]
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]), *arguments)) + "\n")
