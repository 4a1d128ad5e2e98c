"""LoRA of a small language model: checkpoints have the adapters alone, the base is built again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import peft
import torch
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

from frameworks.wild import common
from spot_training.torch import EpochBatches, Loop

EPOCHS, LENGTH = 3, 24


class Texts(Dataset[torch.Tensor]):
    """Rows of tokens, of which some are replaced at random."""

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> torch.Tensor:
        tokens = (torch.arange(12) * (index + 1)) % 40
        return torch.where(torch.rand(12) < 0.1, 0, tokens)


class Adapters:
    """The adapters of a model, as a part of ``Loop``."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def state_dict(self) -> dict[str, Any]:
        return dict(peft.get_peft_model_state_dict(self._model))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        peft.set_peft_model_state_dict(self._model, state)


def main(folder: Path) -> None:
    """Train."""
    marks = common.start(folder)
    base = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_positions=12, n_embd=16, n_layer=2, n_head=2))
    adapters = peft.LoraConfig(r=2, lora_alpha=4, lora_dropout=0.1, target_modules=["c_attn"])
    model = peft.get_peft_model(base, adapters)
    optimizer = torch.optim.AdamW([part for part in model.parameters() if part.requires_grad], lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=EPOCHS * LENGTH // 4)
    data = Texts()
    loader = DataLoader(data, batch_sampler=EpochBatches(len(data), 4), num_workers=1)
    loop = Loop(
        folder / "checkpoints",
        interval=common.interval(),
        adapters=Adapters(model),
        optimizer=optimizer,
        scheduler=scheduler,
    )
    for _ in loop.epochs(EPOCHS):
        marks.at("workers")
        for tokens in loop.batches(loader):
            loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            loop.mean("loss", loss)
            marks.step(loop)
        marks.at("validation")
        loop.state.setdefault("curve", []).append(loop.mean("loss"))
    common.export(folder, marks, [model], loop.state["curve"])
