"""Habits with batches: counters, prefetchers, several loaders, accumulated gradients; see ``table``."""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Iterator
from queue import Queue
from typing import Any

import torch
from torch.optim.swa_utils import AveragedModel, update_bn

from frameworks.habits.job import Job, Samples, loader
from frameworks.habits.player import Start
from frameworks.habits.table import EPOCHS, habit


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
    job.train(job.loop(), through=Prefetcher)


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
    job.train(job.loop(), through=lambda batches: itertools.islice(batches, 4))


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
    "`next` of an iterator, without `loop.epochs`",
    "refused",
    "training by a number of steps",
    "outside of an epoch",
)
def infinite(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    batches = iter(loop.batches(job.loader))
    for _ in range(18):
        try:
            batch = next(batches)
        except StopIteration:
            batches = iter(loop.batches(job.loader))
            batch = next(batches)
        job.step(batch)
    loop.stop()
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


@habit(
    "gradients that are kept over an epoch's end",
    "refused",
    "scripts that count steps globally",
    "gradients were computed",
)
def accumulate_across(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader, accumulate=4):
            (job.loss(batch) / 4).backward()
            if (loop.step + 1) % 4 == 0:
                job.optimizer.step()
                job.optimizer.zero_grad()
            start.tick()
    start.end(job.model)


@habit("the first batch of an epoch is skipped", "same", "detection scripts, images without objects")
def skips(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    empty = set(next(job.loader.batch_sampler.indices(1, 0)))  # in this order of epoch 1
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            if set(batch[0].tolist()) == empty:
                continue
            job.step(batch)
    start.end(job.model)
