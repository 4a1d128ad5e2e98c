"""State divided among ranks: n processes of gloo save it, m restore it: JSON. Runs in PyTorch's environment.

PyTorch judges: ``DTensor.full_tensor`` and ``ZeroRedundancyOptimizer.consolidate_state_dict`` gather the
state after the last step, and after the restore; all tensors are compared bit by bit.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as the first optimizer does; before the forks
import torch.distributed.checkpoint
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

from frameworks.loop_torch import FORK
from spot_training import Interval
from spot_training.command.contents import export
from spot_training.torch import EpochBatches, Loop

KINDS = ("fsdp", "hsdp", "tensor", "fsdp+tensor", "zero")
LENGTH = 64
LIMIT_SECONDS = 200.0


class Model(torch.nn.Module):
    """Layers of sizes that 8 ranks divide, and of others; a buffer that differs at each rank."""

    def __init__(self, width: int) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.up = torch.nn.Linear(6, width)
        self.down = torch.nn.Linear(width, 24)
        self.norm = torch.nn.BatchNorm1d(24)
        self.head = torch.nn.Linear(24, 7)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.nn.functional.gelu(self.up(inputs))
        output: torch.Tensor = self.head(self.norm(self.down(hidden)))
        return output


def divide(kind: str, ranks: int, width: int) -> tuple[Any, Any]:
    """Return a model and an optimizer, divided; ``whole``: as one process has them."""
    model: Any = Model(width)
    if "tensor" in kind:
        across = 2 if "fsdp" in kind and ranks > 1 else 1
        mesh = init_device_mesh("cpu", (across, ranks // across), mesh_dim_names=("data", "model"))
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(model, mesh["model"], plan)
        if "fsdp" in kind:
            fully_shard(model, mesh=mesh["data"])
    elif kind == "fsdp":
        fully_shard(model.up, mesh=init_device_mesh("cpu", (ranks,)))
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)), reshard_after_forward=False)
    elif kind == "hsdp":
        shape = (2, ranks // 2) if ranks > 1 else (1, 1)
        fully_shard(model, mesh=init_device_mesh("cpu", shape, mesh_dim_names=("copies", "parts")))
    elif kind == "zero":
        model = DistributedDataParallel(model)
    matrices = [tensor for tensor in model.parameters() if tensor.ndim > 1]
    others = [tensor for tensor in model.parameters() if tensor.ndim < 2]
    options = {"lr": 0.01}
    groups = [{"params": matrices}, {"params": others, "weight_decay": 0.0}]
    if kind == "zero":
        optimizer: Any = ZeroRedundancyOptimizer(groups, torch.optim.AdamW, **options)
    else:
        optimizer = torch.optim.AdamW(groups, **options)
    return model, optimizer


def gathered(model: Any, optimizer: Any) -> dict[str, Any]:
    """Return the whole state, gathered by PyTorch; of rank 0 what is not divided."""
    if isinstance(optimizer, ZeroRedundancyOptimizer):
        optimizer.consolidate_state_dict(to=0)
    is_first = not distributed.is_initialized() or distributed.get_rank() == 0
    whole = optimizer.state_dict() if is_first or not hasattr(optimizer, "consolidate_state_dict") else {}

    def gather(value: Any) -> Any:
        if isinstance(value, DTensor):
            return value.full_tensor().clone()
        if isinstance(value, torch.Tensor):
            return value.clone()
        if isinstance(value, dict):
            return {key: gather(inner) for key, inner in value.items()}
        return [gather(inner) for inner in value] if isinstance(value, list) else value

    result: dict[str, Any] = gather(
        {"model": dict(getattr(model, "module", model).state_dict()), "optimizer": whole}
    )
    return result


def train(folder: Path, kind: str, epochs: int, name: str, options: dict[str, Any]) -> None:
    """Restore, write the gathered state; train to an epoch, write it again."""
    rank, ranks = (
        (distributed.get_rank(), distributed.get_world_size()) if distributed.is_initialized() else (0, 1)
    )
    model, optimizer = divide(kind, ranks, options.get("width", 16))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
    loop = Loop(
        folder / "checkpoints",
        settings={"test": "shards"},
        interval=Interval(max_seconds=options.get("every", 600)),
        local=folder / "local" if options.get("local") else "",
        keep=options.get("keep", 3),
        model=model,
        optimizer=optimizer,
        scheduler=scheduler,
    )
    with (folder / f"starts-{rank}").open("a") as file:
        file.write(f"{loop.step}\n")
    write(folder / f"{name}-before.pt", rank, gathered(model, optimizer))
    numbers = torch.arange(float(LENGTH))[:, None]
    data = TensorDataset(torch.sin(numbers * torch.arange(1.0, 7.0)))
    loader = DataLoader(data, batch_sampler=EpochBatches(LENGTH, 4))
    for _ in loop.epochs(epochs):
        for [batch] in loop.batches(loader):
            time.sleep(options.get("pause", 0.0))
            optimizer.zero_grad()
            output = model(batch)
            loss = (output - batch.sum(1, keepdim=True)).pow(2).mean()
            loss.backward()
            optimizer.step()
            scheduler.step()
            with (folder / f"samples-{rank}").open("a") as file:
                file.write(json.dumps([loop.step, batch[:, 0].tolist()]) + "\n")
    write(folder / f"{name}-after.pt", rank, gathered(model, optimizer))


def write(path: Path, rank: int, content: Any) -> None:
    """Write a file at rank 0."""
    if rank == 0:
        torch.save(content, path)


def start(
    folder: Path, ranks: int, target: Callable[..., None], *arguments: Any, alone: bool = False
) -> list[Any]:
    """Start processes of gloo; ``alone``: one without ``torch.distributed``."""
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def main(rank: int) -> None:
        with (folder / "log").open("a") as log:
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
        torch.set_num_threads(1)
        if not alone:
            os.environ.update(
                RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
            )
            os.environ["GLOO_SOCKET_IFNAME"] = "lo"
            distributed.init_process_group("gloo")
        try:
            target(folder, *arguments)
        except Exception as error:  # multiprocessing has no excepthook
            sys.excepthook(type(error), error, error.__traceback__)
            sys.stderr.flush()
            os._exit(1)
        if not alone:
            distributed.destroy_process_group()

    processes = [FORK.Process(target=main, args=(rank,)) for rank in range(ranks)]
    for process in processes:
        process.start()
    return processes


def end(processes: list[Any]) -> list[int]:
    """Wait for processes; return their exit codes."""
    deadline = time.monotonic() + LIMIT_SECONDS
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def differences(one: Any, two: Any, path: str = "") -> list[str]:
    """Return where two states differ in a bit or in type."""
    if isinstance(one, dict):
        keys = {*one, *two} if isinstance(two, dict) else set()
        if not isinstance(two, dict) or one.keys() != two.keys():
            return [f"{path}: {sorted(map(str, keys))}"]
        return [text for key in one for text in differences(one[key], two[key], f"{path}.{key}")]
    if isinstance(one, list):
        return [
            text
            for number, pair in enumerate(zip(one, two, strict=True))
            for text in differences(*pair, f"{path}.{number}")
        ]
    if isinstance(one, torch.Tensor):
        same = one.dtype == two.dtype and one.shape == two.shape
        same = same and bool(torch.equal(one.flatten().view(torch.uint8), two.flatten().view(torch.uint8)))
    else:
        same = one == two
    return [] if same else [path]


def bytes_of_ranks(folder: Path) -> list[int]:
    """Return the bytes that each rank wrote of the newest checkpoint's divided state."""
    newest = max((folder / "checkpoints").glob("step-*"))
    return [path.stat().st_size for path in sorted(newest.glob("rank-*/shard.pt"))]


def reshard(
    folder: Path, kind: str, saved_by: int, restored_by: list[tuple[str, int]], width: int
) -> dict[str, Any]:
    """Save with so many ranks; restore copies with others, and take an epoch's steps with each.

    ``restored_by``: kinds and numbers of ranks; ``whole``: one process without ``torch.distributed``.
    """
    origin, options = folder / f"{kind}-{saved_by}", {"width": width}
    codes = end(start(origin, saved_by, train, kind, 2, "first", options, alone=kind == "whole"))
    result: dict[str, Any] = {"codes": codes, "bytes": [], "mismatches": {}, "log": ""}
    if any(codes):
        return {**result, "log": (origin / "log").read_text()}
    result["bytes"] = bytes_of_ranks(origin)
    before = torch.load(origin / "first-after.pt")
    export(str(origin / "checkpoints"), origin / "model.pt", part="model")
    result["mismatches"]["export"] = differences(before["model"], dict(torch.load(origin / "model.pt")))
    for now, ranks in restored_by:
        name = f"{now} {ranks}"
        copy = folder / f"{kind}-{saved_by}-{now}-{ranks}"
        shutil.copytree(origin / "checkpoints", copy / "checkpoints")
        codes = end(start(copy, ranks, train, now, 3, "second", options, alone=now == "whole"))
        if any(codes):
            result["mismatches"][name] = [f"exit codes {codes}", (copy / "log").read_text()[-2000:]]
            continue
        texts = differences(before, torch.load(copy / "second-before.pt"))
        if not differences(before, torch.load(copy / "second-after.pt")):
            texts.append("no step was taken")
        if (numbers := sampled(copy)) != list(range(LENGTH)):
            texts.append(f"samples {numbers}")
        result["mismatches"][name] = texts
    return result


def sampled(folder: Path) -> list[int]:
    """Return the samples of an epoch by all ranks, each number once for each rank that took other ones."""
    numbers = torch.sin(torch.arange(float(LENGTH))).tolist()
    batches = {
        tuple(json.loads(line)[1])
        for path in folder.glob("samples-*")
        for line in path.read_text().splitlines()
    }
    return sorted(numbers.index(value) for batch in batches for value in batch)


def matrix(folder: Path, kinds: list[str], saved_by: list[int], **options: Any) -> dict[str, Any]:
    """Reshard by all kinds and numbers; ``others``: further kinds that restore, at two ranks."""
    results, width = {}, options.get("width", 16)
    for kind in kinds:
        for number in saved_by:
            same = [(kind, ranks) for ranks in options["restored_by"] if kind != "whole"]
            others = [(name, 1 if name == "whole" else 2) for name in options.get("others", ["whole"])]
            results[f"{kind} {number}"] = reshard(folder, kind, number, [*same, *others], width)
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(matrix(Path(sys.argv[1]), **json.loads(sys.argv[2]))) + "\n")
