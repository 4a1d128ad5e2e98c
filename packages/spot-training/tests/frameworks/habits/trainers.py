"""Habits of scripts with Lightning and ``transformers.Trainer``; see ``table``."""

from __future__ import annotations

import copy
import csv
import io
import logging
from typing import Any

import lightning.pytorch as lightning
import numpy
import torch
from accelerate import Accelerator
from lightning.pytorch.callbacks import BaseFinetuning, Callback
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.tuner import Tuner
from peft import LoraConfig, get_peft_model
from torch.utils.data import DataLoader
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments

from frameworks.habits.job import Job, Samples, loss_of
from frameworks.habits.player import Start
from frameworks.habits.table import INTERVAL, habit
from spot_training.huggingface import SpotCallback
from spot_training.lightning import SpotCheckpoint

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.BatchNorm1d(16), torch.nn.ReLU())
        self.head = torch.nn.Linear(16, 1)

    def forward(self, x: Any) -> Any:
        return self.head(self.body(x))

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        loss = loss_of(self, batch)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            [value for value in self.parameters() if value.requires_grad], 0.05, momentum=0.9
        )


class Ticks(Callback):
    def __init__(self, start: Start) -> None:
        self.start = start

    def on_train_batch_end(self, *arguments: Any) -> None:
        self.start.tick()


class Unfreeze(BaseFinetuning):
    def freeze_before_training(self, module: Any) -> None:
        self.freeze(module.body)

    def finetune_function(self, module: Any, epoch: int, optimizer: Any) -> None:
        if epoch == 1:
            self.unfreeze_and_add_param_group(module.body, optimizer, lr=0.01)


def fit(
    start: Start, *callbacks: Callback, log: bool = False, kind: type[Module] = Module, tune: int = 0
) -> Module:
    lightning.seed_everything(1)
    spot, module = SpotCheckpoint(interval=INTERVAL, settings={}), kind()
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        devices=1,
        callbacks=[*callbacks, Ticks(start), spot],
        logger=CSVLogger(start.folder, "logs", "", flush_logs_every_n_steps=2) if log else False,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=start.folder,
    )
    data = DataLoader(Samples(), 4, shuffle=True)
    path = spot.resume_from(module)
    if tune:
        Tuner(trainer).lr_find(module, data, num_training=tune)
    trainer.fit(module, data, ckpt_path=path)
    return module


@habit("Lightning: `BaseFinetuning`, which adds groups", "same", "Lightning-AI/pytorch-lightning#6891")
def finetuning(start: Start) -> None:
    start.end(fit(start, Unfreeze()))


@habit("Lightning: `CSVLogger` with a version", "same", "roboflow/rf-detr#1321")
def csv_logger(start: Start) -> None:
    module = fit(start, log=True)
    with (start.folder / "logs" / "metrics.csv").open(newline="") as file:
        start.end(module, rows=[[row["step"], row["loss"]] for row in csv.DictReader(file)])


class Tuned(Module):
    def __init__(self) -> None:
        super().__init__()
        self.lr = 0.05

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), self.lr)


@habit("Lightning: `Tuner.lr_find` before the training", "same", "Lightning, its documentation of Tuner")
def tuned(start: Start) -> None:
    start.end(fit(start, kind=Tuned, tune=10))


class Mixed(Module):
    def __init__(self) -> None:
        super().__init__()
        self.rng = numpy.random.default_rng(0)

    def training_step(self, batch: Any, number: int) -> torch.Tensor:
        return loss_of(self, [batch[0], batch[1] * self.rng.beta(0.4, 0.4), batch[2]])


@habit("Lightning: a module's own `default_rng`", "same", "mixup in public modules")
def mixed(start: Start) -> None:
    start.end(fit(start, kind=Mixed))


class AverageOfBody(Callback):
    def __init__(self) -> None:
        self._batches = 0

    def on_train_start(self, trainer: Any, module: Any) -> None:
        self.average = copy.deepcopy(module.body)

    def on_train_batch_end(self, trainer: Any, module: Any, *batch: Any) -> None:
        self._batches += 1
        for mean, weight in zip(self.average.parameters(), module.body.parameters(), strict=True):
            mean.data.lerp_(weight.data, 1 / self._batches)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        module.body.load_state_dict(self.average.state_dict())


@habit("Lightning: a callback that averages the weights", "same", "EMA callbacks of public scripts")
def average_of_body(start: Start) -> None:
    start.end(fit(start, AverageOfBody()))


class Rows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Dropout(0.1), torch.nn.Linear(4, 1))

    def forward(self, inputs: Any, labels: Any) -> Any:
        outputs = self.layers(inputs)[:, 0]
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


class TrainerTicks(TrainerCallback):
    def __init__(self, start: Start) -> None:
        self.start = start

    def on_step_end(self, args: Any, state: Any, *arguments: Any, **options: Any) -> None:
        # A notice at an evaluation skips it, and says so: the page has that.
        if not args.eval_steps or state.global_step % args.eval_steps:
            self.start.tick()


class Flat(EarlyStoppingCallback):
    def on_train_begin(self, *arguments: Any, **options: Any) -> None:
        """Without its check of ``load_best_model_at_end``."""


def train(
    start: Start, model: Any, *callbacks: TrainerCallback, kind: type[Trainer] = Trainer, **options: Any
) -> None:
    data = [{"inputs": x, "labels": y} for _, x, y in (Samples()[index] for index in range(22))]
    spot = SpotCallback(interval=INTERVAL, settings={})
    given = TrainingArguments(
        str(start.folder / "checkpoints" / ".trainer"),
        per_device_train_batch_size=4,
        save_strategy="no",
        logging_steps=3,
        **{"report_to": [], "use_cpu": True, "disable_tqdm": True, **options},
    )
    every, sets = [*callbacks, TrainerTicks(start), spot], {"train_dataset": data, "eval_dataset": data[:4]}
    trainer = kind(model, given, callbacks=every, **sets)
    result = trainer.train(resume_from_checkpoint=spot.resume_from())
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    start.end(trainer.model, steps=trainer.state.global_step, losses=losses, mean=result.training_loss)


@habit("`Trainer`: early stopping, logged and mean loss", "same", "huggingface/transformers#28544, #10290")
def trainer_stops_early(start: Start) -> None:
    torch.manual_seed(0)
    # The metric does not improve.
    options = {"learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 5, "greater_is_better": False}
    stop = Flat(early_stopping_patience=3)
    train(start, Rows(), stop, num_train_epochs=9, metric_for_best_model="loss", **options)


@habit("`Trainer`: PEFT's LoRA", "same", "huggingface/peft, its examples")
def lora(start: Start) -> None:
    torch.manual_seed(0)
    adapters = LoraConfig(r=2, target_modules=["layers.0", "layers.2"], lora_dropout=0.1)
    options = {"remove_unused_columns": False, "label_names": ["labels"]}
    train(start, get_peft_model(Rows(), adapters), num_train_epochs=3, learning_rate=0.01, **options)


class Unfreezing(TrainerCallback):
    """Also gives each epoch its weight decay, and each step its loss's temperature."""

    def __init__(self) -> None:
        self.epochs = 0

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        model.layers[0].requires_grad_(requires_grad=False)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        self.epochs += 1
        more["optimizer"].param_groups[0]["weight_decay"] = 0.01 * self.epochs
        if self.epochs == 2:
            model.layers[0].requires_grad_(requires_grad=True)

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        model.temperature *= 0.9
        model.count += 1


class Tempered(Rows):
    def __init__(self) -> None:
        super().__init__()
        self.temperature = 1.0
        self.register_buffer("count", torch.ones(()), persistent=False)

    def forward(self, inputs: Any, labels: Any) -> Any:
        outputs = super().forward(inputs, labels)
        return {**outputs, "loss": outputs["loss"] * self.temperature * self.count}


@habit("`Trainer`: a callback that unfreezes, counts and anneals", "same", "public callbacks, several")
def unfreezing(start: Start) -> None:
    torch.manual_seed(0)
    options = {"num_train_epochs": 4, "learning_rate": 0.01, "logging_strategy": "epoch"}
    train(start, Tempered(), Unfreezing(), **options)


class Averaging(TrainerCallback):
    """Has averages of the weights in a module, and in a mapping; what is private is begun anew and counts."""

    def __init__(self) -> None:
        self._steps, self._is_open = 0, False
        self._log: Any = None

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        self.average, self.shadow = copy.deepcopy(model), dict(model.state_dict())

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        self._steps += 1
        if not self._is_open:
            self._is_open, self._log = True, io.StringIO()
        self._log.write("one more\n")
        for (name, weight), mean in zip(model.named_parameters(), self.average.parameters(), strict=True):
            mean.data.lerp_(weight.data, 1 / self._steps)
            self.shadow[name] = 0.9 * self.shadow[name] + 0.1 * weight.data

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **more: Any) -> None:
        for (name, weight), mean in zip(model.named_parameters(), self.average.parameters(), strict=True):
            weight.data.copy_(mean.data + self.shadow[name])


@habit("`Trainer`: a callback that averages the weights", "same", "EMA callbacks of public scripts")
def averaging(start: Start) -> None:
    torch.manual_seed(0)
    train(start, Rows(), Averaging(), num_train_epochs=3, learning_rate=0.01)


class Baseline(Trainer):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.baseline, self.heat = 0.0, torch.ones(1)

    def compute_loss(self, model: Any, inputs: Any, *arguments: Any, **options: Any) -> Any:
        loss = super().compute_loss(model, inputs, *arguments, **options)
        self.baseline, self.heat = 0.9 * self.baseline + 0.1 * float(loss), self.heat * 0.95
        return loss * (1 + self.baseline) * self.heat[0]


@habit("`Trainer`: a subclass with a running baseline", "same", "reinforcement learning by public trainers")
def baseline(start: Start) -> None:
    torch.manual_seed(0)
    train(start, Rows(), kind=Baseline, num_train_epochs=3, learning_rate=0.01)


@habit("`Trainer`: evaluation at each epoch's end", "said", "huggingface/transformers, its examples")
def each_epoch(start: Start) -> None:
    torch.manual_seed(0)
    options = {"eval_strategy": "epoch", "logging_strategy": "epoch", "greater_is_better": False}
    stop = Flat(early_stopping_patience=2)
    train(start, Rows(), stop, num_train_epochs=4, metric_for_best_model="loss", **options)


@habit("accelerate: `prepare` of model and optimizer", "same", "huggingface/accelerate examples")
def accelerated(start: Start) -> None:
    accelerator, job = Accelerator(cpu=True), Job(start)
    job.model, job.optimizer = accelerator.prepare(job.model, job.optimizer)
    for batch in job.batches(job.loop()):
        job.optimizer.zero_grad()
        accelerator.backward(job.loss(batch))
        job.optimizer.step()
        start.tick()
    start.end(job.model)


@habit("`Trainer`: `group_by_length`", "refused", "huggingface/transformers, its examples", "group_by_length")
def by_length(start: Start) -> None:
    train(start, Rows(), train_sampling_strategy="group_by_length")
