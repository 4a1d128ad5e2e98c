"""The edges of ``SpotCheckpoint``, in processes of their own: JSON. Runs in PyTorch's environment."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader, IterableDataset, Sampler, TensorDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from frameworks.loop_torch import FORK, run
from spot_training.lightning import SpotCheckpoint
from spot_training.torch import saves

LENGTH, BATCH, EPOCHS = 24, 4, 2


class Stream(IterableDataset[tuple[torch.Tensor]]):
    """Samples without a position or a length."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor]]:
        yield from ((torch.tensor([float(number)]),) for number in range(LENGTH))


class Drifting(Sampler[int]):
    """A sampler with a state of its own."""

    def __init__(self) -> None:
        self._chance = torch.Generator().manual_seed(1)
        self._draws = 0

    def __iter__(self) -> Iterator[int]:
        self._draws += 1
        yield from torch.arange(LENGTH).roll(self._draws).tolist()

    def __len__(self) -> int:
        return LENGTH


class Line(lightning.LightningModule):
    """A line; writes the samples of each step."""

    def __init__(self, file: Path, rate: float = 0.1, other: Any = None) -> None:
        super().__init__()
        self.save_hyperparameters("other")
        self._file, self._rate = file, rate
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        with self._file.open("a") as file:
            file.write(json.dumps(batch[0].flatten().tolist()) + "\n")
        loss = self.layer(batch[0] / LENGTH).pow(2).mean()
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self._rate)


class Iterating(Line):
    """Takes its batches itself."""

    def training_step(self, dataloader_iter: Any) -> torch.Tensor:  # type: ignore[override]
        return super().training_step(next(dataloader_iter)[0], 0)


class Interruption(lightning.Callback):
    """A notice after a step; 0: before the first step of the process."""

    def __init__(self, step: int | None) -> None:
        self._step = step

    def on_train_start(self, trainer: Any, *rest: Any) -> None:
        if self._step == 0:
            os.kill(os.getpid(), signal.SIGTERM)

    def on_train_batch_end(self, trainer: Any, *rest: Any) -> None:
        if trainer.global_step == self._step:
            os.kill(os.getpid(), signal.SIGTERM)


def loader_of(kind: str, length: int = LENGTH) -> Any:
    data = TensorDataset(torch.arange(float(length))[:, None])
    if kind == "stateful":
        return StatefulDataLoader(data, BATCH, shuffle=True)
    if kind == "iterable":
        return DataLoader(Stream(), BATCH)
    if kind == "sampler":
        return DataLoader(data, BATCH, sampler=Drifting())
    return DataLoader(data, BATCH, shuffle=True)


def fit(
    folder: Path,
    kind: str = "shuffle",
    step: int | None = None,
    *,
    length: int = LENGTH,
    model: type[Line] = Line,
    resumes: bool = True,
    callbacks: tuple[Any, ...] = (),
    **values: Any,
) -> None:
    torch.manual_seed(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    spot = SpotCheckpoint(folder / "checkpoints")
    module = model(folder / f"ids{os.environ.get('RANK', '')}", **values)
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_epochs=EPOCHS,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[spot, Interruption(step), *callbacks],
    )
    path = spot.resume_from(module) if resumes else None
    trainer.fit(module, loader_of(kind, length), ckpt_path=path)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    sys.stdout.write(json.dumps([trainer.current_epoch, metrics, module.layer.weight.tolist()]) + "\n")


def on_two_ranks(folder: Path, step: int | None = None) -> None:
    """Train on two ranks as under torchrun; only rank 0 has the notice."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def main(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
        os.environ |= {"GROUP_RANK": "0", "TORCHELASTIC_RUN_ID": "1", "GLOO_SOCKET_IFNAME": "lo"}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        torch.distributed.init_process_group("gloo")
        # A slow machine's first step may count as long; at a notice in the next one it would be repeated.
        saves.LONG_STEP_SECONDS = 600.0
        fit(folder, "shuffle", step if rank == 0 else None)
        torch.distributed.destroy_process_group()

    ranks = [FORK.Process(target=main, args=(rank,)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(50)
    sys.exit(max(1 if rank.exitcode is None else abs(rank.exitcode) for rank in ranks))


def of_two_ranks(folder: Path) -> dict[str, Any]:
    """Return whether the samples of both ranks and the weights are those of an uninterrupted training."""
    whole = run(folder / "whole", on_two_ranks)
    first, second = run(folder / "cut", on_two_ranks, 3), run(folder / "cut", on_two_ranks)
    names = ("ids0", "ids1")
    texts = [[(folder / place / name).read_text() for name in names] for place in ("whole", "cut")]
    return {
        "codes": [whole["code"], first["code"], second["code"]],
        "equal": texts[0] == texts[1],
        "weights": [json.loads(result["log"].splitlines()[-1])[2] for result in (whole, second)],
        "log": first["log"] + second["log"],
    }


def orders(folder: Path, kind: str) -> dict[str, Any]:
    """Return whether samples and metrics are an uninterrupted training's; with ``shuffle`` two notices."""
    undisturbed = run(folder / "whole", fit, kind)
    notices = (9, 0) if kind == "shuffle" else (3,)
    first, *_ = [run(folder / "cut", fit, kind, step) for step in notices]
    second = run(folder / "cut", fit, kind)
    whole, cut = (
        [(folder / name / "ids").read_text(), *result["log"].splitlines()[-1:]]
        for name, result in (("whole", undisturbed), ("cut", second))
    )
    return {
        "codes": [first["code"], second["code"]],
        "equal": whole == cut,
        "steps": cut[0].count("\n"),
        "log": first["log"] + second["log"],
    }


def whole_model(folder: Path) -> None:
    fit(folder, other=SimpleNamespace())


def sharded(folder: Path) -> None:
    """Use a strategy that divides the state."""
    spot = SpotCheckpoint(folder)
    spot.resume_from(Line(folder / "ids"))
    strategy = type("FSDPStrategy", (), {})()
    spot.setup(SimpleNamespace(strategy=strategy, world_size=1), None, "fit")


def early(folder: Path) -> None:
    callbacks = (EarlyStopping("loss", stopping_threshold=1e9), ModelCheckpoint(monitor="loss"))
    fit(folder, callbacks=callbacks)


def main(folder: Path) -> dict[str, Any]:
    results: dict[str, Any] = {
        kind: orders(folder / kind, kind) for kind in ("shuffle", "stateful", "iterable", "sampler")
    }
    results["no model"] = run(folder / "a", lambda place: fit(place, resumes=False))
    run(folder / "b", fit, "shuffle", 3)
    results["other rate"] = run(folder / "b", lambda place: fit(place, rate=0.2))
    results["other data"] = run(folder / "b", lambda place: fit(place, length=LENGTH - 1))
    results["unsupported"] = run(folder / "c", whole_model)
    results["dataloader_iter"] = run(folder / "d", lambda place: fit(place, model=Iterating))
    results["sharded"] = run(folder / "e", sharded)
    results["ranks"] = of_two_ranks(folder / "g")
    results["early"] = [run(folder / "f", early), run(folder / "f", early)]
    return results


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))) + "\n")
