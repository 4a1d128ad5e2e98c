"""Habits of public training scripts with ``Loop``, and what becomes of them: a row of the page, and a test.

Each is written for this table after the named script, with its habit alone.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from queue import Queue
from typing import Any, Literal

import numpy
import torch
import torch._dynamo  # as the first optimizer does; before the forks
from torch import nn
from torch.optim.swa_utils import AveragedModel, update_bn
from torch.utils.data import DataLoader, Dataset

from frameworks.habits.player import Body, Start
from spot_training import Interval
from spot_training.torch import EpochBatches, Loop

Verdict = Literal["same", "refused"]
EPOCHS = 3
INTERVAL = Interval(max_seconds=0.01)
RNG = random.Random(5)
torch.set_num_threads(1)


@dataclass(frozen=True)
class Row:
    """A habit, where it is from, and what becomes of it."""

    title: str
    verdict: Verdict
    source: str
    body: Body
    says: str = ""


ROWS: list[Row] = []


def habit(title: str, verdict: Verdict, source: str, says: str = "") -> Callable[[Body], Body]:
    def add(body: Body) -> Body:
        ROWS.append(Row(title, verdict, source, body, says))
        return body

    return add


class Samples(Dataset[Any]):
    def __init__(self, length: int = 24, begin: int = 0, noise: Callable[[], float] | None = None) -> None:
        self.length, self.begin, self.noise = length, begin, noise

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor, torch.Tensor]:
        number = index + self.begin
        x = torch.sin(number * torch.arange(1.0, 9.0))
        return number, x + 0.1 * self.noise() if self.noise else x, torch.cos(torch.tensor(float(number)))


class Job:
    """The usual script: a small network with batch statistics, SGD with momentum, 18 steps."""

    def __init__(self, start: Start, data: Any = None, workers: int = 0, **parts: Any) -> None:
        torch.manual_seed(1)
        random.seed(2)
        numpy.random.seed(3)
        self.start, self.parts = start, parts
        self.model = nn.Sequential(
            nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1)
        )
        self.optimizer: Any = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)
        self.loader = loader(data or Samples(), workers=workers)

    def loop(self, **parts: Any) -> Any:
        given = {"model": self.model, "optimizer": self.optimizer, **parts}
        return Loop(interval=INTERVAL, asynchronous=False, settings={}, **given)

    def loss(self, batch: Any) -> torch.Tensor:
        return loss_of(self.model, batch)

    def step(self, batch: Any) -> float:
        loss = self.loss(batch)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.start.tick()
        return float(loss)

    def train(self, loop: Any, before: Callable[[int], object] = lambda epoch: None) -> None:
        for epoch in loop.epochs(EPOCHS):
            before(epoch)
            for batch in loop.batches(self.loader):
                self.step(batch)


def loader(data: Any, workers: int = 0, seed: int = 0, **options: Any) -> DataLoader[Any]:
    batches = EpochBatches(len(data), 4, seed=seed, **options)
    return DataLoader(data, batch_sampler=batches, num_workers=workers)


def loss_of(model: Any, batch: Any) -> torch.Tensor:
    return nn.functional.mse_loss(model(batch[1])[:, 0], batch[2])


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


def table(start: Start, enumerated: Callable[[Any, Any], Any]) -> None:
    job = Job(start)
    rates = [0.1 * (1 + math.cos(math.pi * i / 18)) for i in range(18)]
    loop = job.loop()
    for epoch in loop.epochs(EPOCHS):
        for i, batch in enumerated(loop, job.loader):
            job.optimizer.param_groups[0]["lr"] = rates[len(job.loader) * epoch + i]
            job.step(batch)
    start.end(job.model)


def log_every(batches: Any) -> Iterator[Any]:
    yield from batches


@habit(
    "a table of rates by `enumerate(loop.batches(loader))`",
    "refused",
    "facebookresearch/dino main_dino.py",
    "use loop.enumerate(loader)",
)
def by_builtin(start: Start) -> None:
    table(start, lambda loop, loader: enumerate(loop.batches(loader)))


@habit("a table of rates by `loop.enumerate(loader)`", "same", "facebookresearch/dino main_dino.py")
def by_loop(start: Start) -> None:
    table(start, lambda loop, loader: loop.enumerate(loader))


@habit(
    "`enumerate` over a logger's generator",
    "refused",
    "facebookresearch/mae util/misc.py MetricLogger.log_every",
    "use loop.enumerate(loader)",
)
def by_logger(start: Start) -> None:
    table(start, lambda loop, loader: enumerate(log_every(loop.batches(loader))))


@habit(
    "`loop.enumerate(loader, through=log_every)`",
    "same",
    "facebookresearch/mae util/misc.py MetricLogger.log_every",
)
def through_logger(start: Start) -> None:
    table(start, lambda loop, loader: loop.enumerate(loader, through=log_every))


@habit("warm-up and logs by `loop.step` and `loop.enumerate`", "same", "karpathy/nanoGPT train.py get_lr")
def warm_up(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for i, batch in loop.enumerate(job.loader):
            job.optimizer.param_groups[0]["lr"] = 0.05 * min(1.0, (loop.step + 1) / 10) + 0.001 * i
            job.step(batch)
    start.end(job.model)


class Prefetcher:
    def __init__(self, batches: Any) -> None:
        self.batches = iter(batches)
        self.following = next(self.batches, None)

    def __iter__(self) -> Iterator[Any]:
        while self.following is not None:
            batch, self.following = self.following, next(self.batches, None)
            yield batch


@habit(
    "a prefetcher of its own around `loop.batches`",
    "refused",
    "NVIDIA/apex data_prefetcher",
    "by a prefetcher",
)
def prefetcher(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in Prefetcher(loop.batches(job.loader)):
            job.step(batch)


@habit("`loop.batches(loader, through=Prefetcher)`", "same", "NVIDIA/apex data_prefetcher")
def through(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader, through=Prefetcher):
            job.step(batch)
    start.end(job.model)


@habit(
    "batches read by a background thread", "refused", "justheuristic/prefetch_generator", "in another thread"
)
def background(start: Start) -> None:
    job = Job(start)
    loop, queue = job.loop(), Queue[Any](2)
    for _ in loop.epochs(1):
        batches, errors = loop.batches(job.loader), list[BaseException]()

        def read(batches: Any = batches, errors: Any = errors) -> None:
            try:
                for batch in batches:
                    queue.put(batch)
            except BaseException as error:
                errors.append(error)
            queue.put(None)

        threading.Thread(target=read, daemon=True).start()
        while (batch := queue.get()) is not None:
            job.step(batch)
        raise errors[0]


@habit("`zip` of two `loop.batches`", "refused", "kekmodel/FixMatch-pytorch train.py", "loop.batches(a, b)")
def zipped(start: Start) -> None:
    job, other = Job(start), loader(Samples(24, 100), seed=7)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch, _more in zip(loop.batches(job.loader), loop.batches(other), strict=False):
            job.step(batch)


@habit("`loop.batches(labelled, unlabelled)`", "same", "kekmodel/FixMatch-pytorch train.py")
def together(start: Start) -> None:
    job, other = Job(start), loader(Samples(40, 100), seed=7)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch, (_, x, _y) in loop.batches(job.loader, other):
            loss = job.loss(batch) + 0.1 * job.model(x).square().mean()
            job.optimizer.zero_grad()
            loss.backward()
            job.optimizer.step()
            start.tick()
    start.end(job.model, steps=loop.step)


@habit("`zip` with a range", "refused", "a counter of steps", "use loop.batches(a, b) or loop.enumerate")
def with_range(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for _i, batch in zip(range(5), loop.batches(job.loader), strict=False):
            job.step(batch)


@habit("`islice` of an epoch's batches", "refused", "a limit of batches in an epoch", "loop.batch == n")
def sliced(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in itertools.islice(loop.batches(job.loader), 4):
            job.step(batch)


@habit("`if loop.batch == n: break`", "same", "a limit of batches in an epoch")
def limited(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
            if loop.batch == 3:
                break
    start.end(job.model)


@habit(
    "validation by `loop.batches(val_loader)`", "same", "pytorch/vision references/classification/train.py"
)
def validation(start: Start) -> None:
    job, rest = Job(start), loader(Samples(8, 100), shuffle=False)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
        job.model.eval()
        with torch.no_grad():
            values = list[float]()
            for i, batch in enumerate(loop.batches(rest)):  # counts from 0: it has no position
                assert i == len(values)
                values.append(float(job.loss(batch)))
        job.model.train()
        loop.state.setdefault("curve", []).append(values)
    start.end(job.model, curve=loop.state["curve"])


@habit(
    "accuracy over the train loader, SWA's `update_bn`", "same", "torch.optim.swa_utils, its documentation"
)
def whole_loader(start: Start) -> None:
    job = Job(start)
    averaged: Any = AveragedModel(job.model)
    loop = job.loop(averaged=averaged)
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
        averaged.update_parameters(job.model)
        loop.state.setdefault("numbers", []).append([batch[0].tolist() for batch in job.loader])
    update_bn((batch[1] for batch in job.loader), averaged)
    start.end(job.model, averaged, numbers=loop.state["numbers"])


def train_teacher(start: Start, *, is_part: bool) -> None:
    job = Job(start)
    teacher = copy.deepcopy(job.model).requires_grad_(requires_grad=False)
    loop = job.loop(**({"teacher": teacher} if is_part else {}))
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
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
    "a momentum encoder that is no part",
    "refused",
    "facebookresearch/moco moco/builder.py",
    "changes and is not saved",
)
def forgotten_teacher(start: Start) -> None:
    train_teacher(start, is_part=False)


@habit("a scheduler that is no part", "refused", "pytorch/examples mnist/main.py", "a StepLR, is not saved")
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
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
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
    "a `GradScaler` that is no part", "refused", "pytorch/examples, torch.amp", "a GradScaler, is not saved"
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


def accumulated(start: Start, **options: Any) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for i, batch in loop.enumerate(job.loader, **options):
            (job.loss(batch) / 2).backward()
            if (i + 1) % 2 == 0 or i + 1 == len(job.loader):
                job.optimizer.step()
                job.optimizer.zero_grad()
            start.tick()
    start.end(job.model)


@habit(
    "gradients of several batches, without `accumulate`",
    "refused",
    "ultralytics/yolov5 train.py",
    "accumulate=n",
)
def by_hand(start: Start) -> None:
    accumulated(start)


@habit("`loop.batches(loader, accumulate=2)`", "same", "ultralytics/yolov5 train.py")
def with_accumulate(start: Start) -> None:
    accumulated(start, accumulate=2)
