"""A small training by ``transformers.Trainer``, alone or with ranks, for the kill tests.

See ``train_torch.py``.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch import distributed
from transformers import Trainer, TrainerCallback, TrainingArguments

from spot_training import Interval
from spot_training.huggingface import SpotCallback

LENGTH, EPOCHS = 62, 4


class Model(torch.nn.Module):
    """A regression that keeps the last batch's ids."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(8, 32), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1)
        )
        self.ids: list[int] = []

    def forward(
        self, ids: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        self.ids = ids.tolist()
        return {"loss": torch.nn.functional.mse_loss(self.layers(inputs)[:, 0], labels)}


class History(TrainerCallback):
    """A line for each step."""

    def __init__(self, place: Path, rank: int, pause: float) -> None:
        self.file = (place / f"history-{rank}").open("a")
        self.pause = pause

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        time.sleep(self.pause)
        steps = -(-LENGTH // (args.train_batch_size * args.world_size))
        print(
            json.dumps([state.global_step - 1, (state.global_step - 1) // steps, model.ids]),
            file=self.file,
            flush=True,
        )


def main(
    place: Path, *, batch: int = 4, pause: float = 0.01, every: float = 0.03, apart: bool = False
) -> None:
    """Train; ``pause`` seconds a step make room for a kill; ``apart``: each rank on a disk of its own."""
    torch.set_num_threads(1)
    rank = int(os.environ.get("RANK", "0"))
    torch.manual_seed(0)
    data = [
        {"ids": n, "inputs": torch.sin(n * torch.arange(1.0, 9.0)), "labels": float(n % 7)}
        for n in range(LENGTH)
    ]
    spot = SpotCallback(place / "checkpoints", interval=Interval(max_seconds=every))
    trainer = Trainer(
        Model(),
        TrainingArguments(
            str(place / (f".trainer-{rank}" if apart else ".trainer")),
            num_train_epochs=EPOCHS,
            per_device_train_batch_size=batch,
            learning_rate=0.01,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
            seed=3,
            ddp_backend="gloo" if "RANK" in os.environ else None,
            # Else the last batch is filled up with samples of the epoch's first.
            accelerator_config={"even_batches": False},
        ),
        train_dataset=data,
        callbacks=[History(place, rank, pause), spot],
    )
    (place / f"up-{rank}").touch()
    trainer.train(resume_from_checkpoint=spot.resume_from())
    if rank == 0:
        torch.save(trainer.model.state_dict(), place / ".final.pt")
        (place / ".final.pt").rename(place / "final.pt")
    if distributed.is_initialized():
        distributed.destroy_process_group()  # otherwise gloo's threads race with the end of the interpreter


if __name__ == "__main__":
    main(
        Path(sys.argv[1]),
        **{name: json.loads(value) for name, value in (one.split("=") for one in sys.argv[2:])},
    )
