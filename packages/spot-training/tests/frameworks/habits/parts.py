"""Habits with models, optimizers and schedulers: forgotten, changed, copied or set again; see ``table``."""

from __future__ import annotations

import copy
import math
import os
import signal
from typing import Any

import torch
from torch import nn
from torch.nn.utils import prune

from frameworks.habits.job import Job
from frameworks.habits.player import Start
from frameworks.habits.table import EPOCHS, INTERVAL, habit
from spot_training.torch import Loop


@habit("optimizer, scheduler and means of the epoch", "same", "pytorch/examples imagenet/main.py")
def plain(start: Start) -> None:
    job = Job(start)
    scheduler = torch.optim.lr_scheduler.StepLR(job.optimizer, 1, 0.5)
    loop = job.loop(scheduler=scheduler)
    curve = loop.state.setdefault("curve", [])
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            loop.mean("loss", job.step(batch))
        scheduler.step()
        curve.append(loop.mean("loss"))
    start.end(job.model, curve=curve)


def train_teacher(start: Start, *, is_part: bool) -> None:
    job = Job(start)
    teacher = copy.deepcopy(job.model).requires_grad_(requires_grad=False)
    loop = job.loop(**({"teacher": teacher} if is_part else {}))
    for batch in job.batches(loop):
        with torch.no_grad():
            target = teacher(batch[1])
        loss = job.loss(batch) + nn.functional.mse_loss(job.model(batch[1]), target)
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()
        for old, new in zip(teacher.parameters(), job.model.parameters(), strict=True):
            old.data.mul_(0.9).add_(new.data, alpha=0.1)
        start.tick()
    start.end(job.model, teacher)


@habit("a momentum encoder, as a part", "same", "facebookresearch/moco moco/builder.py")
def teacher(start: Start) -> None:
    train_teacher(start, is_part=True)


@habit(
    "a momentum encoder that is not a part",
    "refused",
    "facebookresearch/moco moco/builder.py",
    "changes and is not saved",
)
def forgotten_teacher(start: Start) -> None:
    train_teacher(start, is_part=False)


@habit(
    "a scheduler that is not a part", "refused", "pytorch/examples mnist/main.py", "a StepLR, is not saved"
)
def forgotten_scheduler(start: Start) -> None:
    job = Job(start)
    scheduler = torch.optim.lr_scheduler.StepLR(job.optimizer, 1)
    job.train(job.loop())
    scheduler.step()


@habit(
    "weights that an optimizer trains, of no part",
    "refused",
    "pytorch/examples dcgan/main.py",
    "that are in no part",
)
def forgotten_weights(start: Start) -> None:
    job, more = Job(start), nn.Linear(1, 1)
    job.optimizer.add_param_group({"params": more.parameters()})
    job.train(job.loop())


def train_scaled(start: Start, *, is_part: bool) -> None:
    job, scaler = Job(start), torch.amp.GradScaler("cpu")
    loop = job.loop(**({"scaler": scaler} if is_part else {}))
    for batch in job.batches(loop):
        job.optimizer.zero_grad()
        scaler.scale(job.loss(batch)).backward()
        scaler.step(job.optimizer)
        scaler.update()
        start.tick()
    start.end(job.model, scale=scaler.get_scale())


@habit("mixed precision with its `GradScaler`", "same", "pytorch/examples, torch.amp")
def scaled(start: Start) -> None:
    train_scaled(start, is_part=True)


@habit(
    "a `GradScaler` that is not a part",
    "refused",
    "pytorch/examples, torch.amp",
    "a GradScaler, is not saved",
)
def forgotten_scaler(start: Start) -> None:
    train_scaled(start, is_part=False)


@habit("two networks, one trained every third step", "same", "eriklindernoren/PyTorch-GAN wgan.py")
def gan(start: Start) -> None:
    job = Job(start)
    critic = nn.Linear(9, 1)
    second = torch.optim.RMSprop(critic.parameters(), lr=0.01)
    loop = job.loop(critic=critic, second=second)
    for _ in loop.epochs(EPOCHS):
        for i, batch in loop.enumerate(job.loader):
            fake = torch.cat([batch[1], job.model(batch[1] + torch.randn(4, 8))], 1)
            second.zero_grad()
            critic(fake.detach()).mean().backward()
            second.step()
            if i % 3 == 0:
                job.optimizer.zero_grad()
                (-critic(fake)).mean().backward()
                job.optimizer.step()
            start.tick()
    start.end(job.model, critic)


@habit("groups that are added at an unfreezing", "same", "Lightning-AI/pytorch-lightning#6891")
def growing_groups(start: Start) -> None:
    job = Job(start)
    job.model[0].requires_grad_(requires_grad=False)
    job.optimizer = torch.optim.Adam(job.model[4].parameters(), lr=0.01)

    def before(epoch: int) -> None:
        if epoch == 1:
            job.model[0].requires_grad_(requires_grad=True)
            job.optimizer.add_param_group({"params": job.model[0].parameters(), "lr": 0.001})

    job.train(job.loop(), before)
    start.end(job.model)


@habit("layers that are unfrozen in one epoch", "same", "fastai, gradual unfreezing")
def unfrozen(start: Start) -> None:
    job = Job(start)
    job.model[0].requires_grad_(requires_grad=False)
    job.train(job.loop(), lambda epoch: job.model[0].requires_grad_(epoch == 1) if epoch == 1 else None)
    start.end(job.model)


@habit("weights that are pruned in one epoch", "same", "torch.nn.utils.prune, its tutorial")
def pruned(start: Start) -> None:
    job = Job(start)
    job.train(
        job.loop(), lambda epoch: prune.l1_unstructured(job.model[0], "weight", 0.5) if epoch == 1 else None
    )
    start.end(job.model)


@habit("rates that are multiplied at an epoch's begin", "same", "pytorch/examples adjust_learning_rate")
def multiplied(start: Start) -> None:
    job = Job(start)

    def before(epoch: int) -> None:
        if epoch:
            job.optimizer.param_groups[0]["lr"] *= 0.3

    job.train(job.loop(), before)
    start.end(job.model)


@habit("`scheduler.step()` at an epoch's begin", "same", "scripts for PyTorch before 1.1")
def stepped_first(start: Start) -> None:
    job = Job(start)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(job.optimizer, 4)
    job.train(job.loop(scheduler=scheduler), lambda epoch: scheduler.step() if epoch else None)
    start.end(job.model)


@habit("`nn.DataParallel` at one start, none at the next", "same", "pytorch/pytorch#3805")
def wrapped(start: Start) -> None:
    job = Job(start)
    plain = job.model
    if start.number % 2:
        job.model = nn.DataParallel(plain)
    job.train(job.loop())
    start.end(plain)


@habit("an optimizer with a closure", "same", "torch.optim.LBFGS, its documentation")
def closure(start: Start) -> None:
    job = Job(start)
    job.optimizer = torch.optim.LBFGS(job.model.parameters(), lr=0.01, max_iter=2)
    loop = job.loop()
    for epoch in loop.epochs(EPOCHS):  # at an optimum after the first: it evaluates, and takes no step
        job.optimizer.param_groups[0]["tolerance_grad"] = 1e9 if epoch else 1e-7
        for batch in loop.batches(job.loader):

            def evaluate(batch: Any = batch) -> torch.Tensor:
                job.optimizer.zero_grad()
                loss = job.loss(batch)
                loss.backward()
                return loss

            job.optimizer.step(evaluate)
            start.tick()
    start.end(job.model)


@habit("warm-up, then cosine, by `SequentialLR` per step", "same", "huggingface/pytorch-image-models")
def sequential(start: Start) -> None:
    job, of = Job(start), torch.optim.lr_scheduler
    phases = [of.LinearLR(job.optimizer, 0.1, total_iters=4), of.CosineAnnealingLR(job.optimizer, 14)]
    scheduler = of.SequentialLR(job.optimizer, phases, [4])
    loop = job.loop(scheduler=scheduler)
    for batch in job.batches(loop):
        job.step(batch)
        scheduler.step() if not loop.repeating else None
    start.end(job.model)


@habit("batch statistics that are frozen from one epoch on", "same", "detection and segmentation fine-tuning")
def frozen_statistics(start: Start) -> None:
    job = Job(start)
    job.train(job.loop(), lambda epoch: job.model[1].eval() if epoch == 1 else None)
    start.end(job.model)


@habit(
    "a class of its own for averages, with a state",
    "same",
    "ultralytics/yolov5 utils/torch_utils.py ModelEMA",
)
def averages(start: Start) -> None:
    class Average:
        def __init__(self, model: nn.Module) -> None:
            self.ema, self.updates = copy.deepcopy(model), 0

        def update(self, model: nn.Module) -> None:
            self.updates += 1
            decay = 0.9 * (1 - math.exp(-self.updates / 5))
            for old, new in zip(self.ema.parameters(), model.parameters(), strict=True):
                old.data.lerp_(new.data, 1 - decay)

        def state_dict(self) -> dict[str, Any]:
            return {"ema": self.ema.state_dict(), "updates": self.updates}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.ema.load_state_dict(state["ema"])
            self.updates = state["updates"]

    job = Job(start)
    average = Average(job.model)
    loop = job.loop(average=average)
    for batch in job.batches(loop):
        job.step(batch)
        average.update(job.model) if not loop.repeating else None
    start.end(job.model, average.ema, updates=average.updates)


@habit(
    "a reference model that is copied after `Loop`", "refused", "huggingface/trl, DPO", "is copied after Loop"
)
def reference_after(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    reference = copy.deepcopy(job.model).eval().requires_grad_(requires_grad=False)
    for batch in job.batches(loop):
        loss = job.loss(batch) + nn.functional.mse_loss(job.model(batch[1]), reference(batch[1]))
        job.optimizer.zero_grad()
        loss.backward()
        job.optimizer.step()
        start.tick()
    start.end(job.model)


@habit(
    "a random target network without a seed",
    "refused",
    "openai/random-network-distillation",
    "differs from the one before the restart",
)
def random_target(start: Start) -> None:
    job = Job(start)
    before = torch.get_rng_state()
    torch.seed()
    target = nn.Linear(8, 1)
    torch.set_rng_state(before)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for number, x, _y in loop.batches(job.loader):
            job.step([number, x, target(x)[:, 0].detach()])
    start.end(job.model)


@habit(
    "an optimizer that is made again in an epoch",
    "refused",
    "progressive growing, fine-tuning in stages",
    "is not saved",
)
def optimizer_again(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for epoch in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            if epoch == 1 and loop.batch == 2:
                job.optimizer = torch.optim.Adam(job.model.parameters(), 0.01)
            job.step(batch)


def end_of_epoch(start: Start, epoch: int) -> None:
    """Interrupt the first start after an epoch's batches: the next epoch begins in another process."""
    if start.number == 1 and epoch == 0:
        os.kill(os.getpid(), signal.SIGTERM)


@habit(
    "a checkpoint of its own that is loaded after `Loop`",
    "same",
    "pytorch/examples imagenet/main.py --resume",
)
def own_checkpoint(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    path = start.folder / "last.pt"
    if path.exists():
        job.model.load_state_dict(torch.load(path))
    for epoch in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
        if epoch == 0 and not path.exists():
            torch.save({key: value + 1 for key, value in job.model.state_dict().items()}, path)
        end_of_epoch(start, epoch)
    start.end(job.model)


class Annealed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 1)
        self.temperature, self.is_initialized = 2.0, False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.is_initialized:
            self.is_initialized = True
            self.inner.bias.data.copy_(x.mean().detach())
        if self.training:
            self.temperature *= 0.95
        return self.inner(x) / self.temperature


@habit(
    "a temperature and a first batch's statistics in attributes", "same", "Gumbel-softmax, ActNorm of Glow"
)
def annealed(start: Start) -> None:
    job = Job(start)
    job.model = Annealed()
    job.optimizer = torch.optim.SGD(job.model.parameters(), lr=0.05)
    job.train(job.loop())
    start.end(job.model)


class Engine:
    def __init__(self, inner: Any) -> None:
        self.inner = inner


@habit(
    "an optimizer deep in objects, no part", "refused", "engines and runners of frameworks", "is not saved"
)
def deep(start: Start) -> None:
    job = Engine(Engine(Engine({"jobs": [Job(start)]})))
    loop = Loop(model=job.inner.inner.inner["jobs"][0].model, interval=INTERVAL, settings={})
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.inner.inner.inner["jobs"][0].loader):
            job.inner.inner.inner["jobs"][0].step(batch)


class Noam:
    def __init__(self, optimizer: Any) -> None:
        self.optimizer, self._step = optimizer, 0

    def step(self) -> None:
        self._step += 1
        self.optimizer.param_groups[0]["lr"] = 0.05 * min(self._step**-0.5, self._step * 6**-1.5)
        self.optimizer.step()


@habit("a warm-up that counts in a private attribute", "said", "harvardnlp/annotated-transformer", "_step")
def noam(start: Start) -> None:
    job = Job(start)
    loop, inner = job.loop(), job.optimizer
    job.optimizer = Noam(inner)
    job.optimizer.zero_grad = inner.zero_grad  # type: ignore[attr-defined]
    for batch in job.batches(loop):
        job.step(batch)
    start.end(job.model)


class Sharp(torch.optim.Optimizer):
    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"rho": 0.05})
        self.base_optimizer = torch.optim.SGD(self.param_groups, lr=0.05, momentum=0.9)
        self.param_groups = self.base_optimizer.param_groups

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.base_optimizer.step()


@habit("an optimizer around one that counts in its own state", "refused", "davda54/sam", "base_optimizer")
def sharp(start: Start) -> None:
    job = Job(start)
    job.optimizer = Sharp(job.model.parameters())
    job.train(job.loop())


class Early(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.target = torch.zeros(24)

    def forward(self, numbers: Any, output: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        self.target[numbers] = 0.7 * self.target[numbers] + 0.3 * output.detach()
        return ((output - label) ** 2 + 0.1 * (output - self.target[numbers]) ** 2).mean()


@habit("targets in a criterion's tensor, no part", "said", "shengliu66/ELR loss.py", "criterion.target")
def targets(start: Start) -> None:
    job, criterion = Job(start), Early()
    job.loss = lambda batch: criterion(batch[0], job.model(batch[1])[:, 0], batch[2])  # type: ignore[method-assign]
    for batch in job.batches(job.loop()):
        job.step(batch)
    start.end(job.model)


@habit("a buffer that counts and is not persistent", "same", "running statistics of public modules")
def counting_buffer(start: Start) -> None:
    class Warm(nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner
            self.register_buffer("count", torch.zeros(()), persistent=False)

        def forward(self, x: Any) -> Any:
            self.count += 1
            return self.inner(x) * (1 + 0.01 * self.count)

    job = Job(start)
    job.model = Warm(job.model)  # type: ignore[assignment]
    job.train(job.loop())
    start.end(job.model, count=float(job.model.count))


@habit("lazy layers before their first batch", "refused", "torch.nn.LazyLinear", "call the model once")
def lazy(start: Start) -> None:
    job = Job(start)
    job.model = nn.Sequential(nn.LazyLinear(1))
    job.optimizer = torch.optim.Adam(job.model.parameters())
    job.train(job.loop())
