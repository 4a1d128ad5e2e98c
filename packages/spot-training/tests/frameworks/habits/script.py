"""Habits of the script: its end, its signals, what it keeps in variables and logs; see ``table``."""

from __future__ import annotations

import copy
import csv
import random
import signal
import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy
import torch

from frameworks.habits.job import Job, Samples, loader
from frameworks.habits.player import Start
from frameworks.habits.table import EPOCHS, INTERVAL, habit
from spot_training import Spot


@habit("early stopping with `loop.stop()`", "same", "Bjarten, early stopping for PyTorch")
def early(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            loop.mean("loss", job.step(batch))
        best = min(loop.state.setdefault("losses", [9.0]))
        loop.state["losses"].append(loop.mean("loss"))
        if loop.keep(metric=loop.mean("loss")) and best < 9.0:
            loop.stop()
    start.end(job.model, losses=loop.state["losses"])


@habit(
    "`return` at a maximum of steps without `loop.stop()`",
    "refused",
    "max_steps of many scripts",
    "loop.stop()",
)
def returns(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for batch in job.batches(loop):
        job.step(batch)
        if loop.step == 8:
            return


@habit("an error that the script catches", "refused", "kubernetes/kubernetes#88800", "not at its end")
def caught(start: Start) -> None:
    try:
        job = Job(start)
        job.train(job.loop(), lambda epoch: [][1] if epoch else None)
    except IndexError as error:
        sys.stderr.write(f"{error}\n")


@habit("a replay buffer of tensors in `loop.state`", "same", "pytorch/tutorials reinforcement_q_learning")
def replay(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    buffer = loop.state.setdefault("buffer", [])
    for batch in job.batches(loop):
        if not loop.repeating:
            buffer.append([batch[1], batch[2]])
            del buffer[:-5]
        x, y = random.choice(buffer)
        job.step([batch[0], x, y])
    start.end(job.model, size=len(buffer))


@habit("a loop of its own with `Spot`", "same", "karpathy/nanoGPT train.py get_batch")
def own_loop(start: Start) -> None:
    job = Job(start)
    spot = Spot(steps=18, interval=INTERVAL)
    saved, step = spot.restore(), 0
    if saved:
        state = torch.load(saved.part() / "ckpt.pt")
        step = state["step"]
        job.model.load_state_dict(state["model"])
        job.optimizer.load_state_dict(state["optimizer"])
    while step < 18:
        x = torch.randn(4, 8) + numpy.random.rand() + random.random()
        job.step([None, x, x[:, 0]])
        step += 1
        state = {"model": job.model.state_dict(), "optimizer": job.optimizer.state_dict(), "step": step}
        spot.after(step, lambda folder, state=state: torch.save(state, folder / "ckpt.pt"))
        if spot.should_stop():
            sys.exit(0)
    spot.finish()
    start.end(job.model)


@habit("two phases, a name each", "same", "pre-training, then fine-tuning, in one script")
def phases(start: Start) -> None:
    job = Job(start)
    for name in ("first", "second"):
        loop = job.loop(name=name)
        for _ in loop.epochs(1):
            for batch in loop.batches(job.loader):
                job.step(batch)
    start.end(job.model)


def handled(start: Start, *, is_before: bool) -> None:
    job = Job(start)

    def leave(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    if is_before:
        signal.signal(signal.SIGTERM, leave)
    loop = job.loop()
    if not is_before:
        signal.signal(signal.SIGTERM, leave)
    for batch in job.batches(loop):
        job.step(batch)
    start.end(job.model)


@habit("a SIGTERM handler of the script that raises, before `Loop`", "same", "Slurm templates with requeue")
def handler_before(start: Start) -> None:
    handled(start, is_before=True)


@habit("the same at each step, after `Loop`", "same", "Slurm templates with requeue")
def handler_after(start: Start) -> None:
    handled(start, is_before=False)


@habit(
    "the best metric and patience in variables", "said", "Bjarten, early stopping for PyTorch", "not resumed"
)
def local_best(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    best, waited, kept = 0.0, 0, None
    for epoch in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
        value = 1.0 - epoch
        if value > best:
            best, waited, kept = value, 0, copy.deepcopy(job.model.state_dict())
        else:
            waited += 1
            if waited == 4:
                loop.stop()
    start.end(job.model, best=best, waited=waited, kept=[v.flatten().tolist() for v in (kept or {}).values()])


@habit("a counter of batches in a variable", "said", "many scripts", "not resumed")
def local_counter(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for epoch in loop.epochs(EPOCHS):
        i = 0
        for batch in loop.batches(job.loader):
            job.optimizer.param_groups[0]["lr"] = 0.05 / (1 + epoch * 6 + i)
            job.step(batch)
            i += 1  # noqa: SIM113
    start.end(job.model)


@habit("a replay buffer in a variable", "said", "pytorch/tutorials reinforcement_q_learning", "not resumed")
def local_replay(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    buffer: deque[Any] = deque(maxlen=5)
    for batch in job.batches(loop):
        buffer.append(batch)
        job.step(random.choice(buffer))
    start.end(job.model)


@habit('a log that is opened with `"w"`', "said", "many scripts", "mode 'w'")
def truncated_log(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    with (start.folder / "log.csv").open("w") as file:
        writer = csv.writer(file)
        for _ in loop.epochs(EPOCHS):
            for batch in loop.batches(job.loader):
                loss = job.step(batch)
                if not loop.repeating:
                    writer.writerow([loop.step, loss])
    start.end(job.model, rows=(start.folder / "log.csv").read_text())


def counted(start: Start, count: Callable[[], float], **parts: Any) -> None:
    job = Job(start)
    loop = job.loop(**parts)
    for batch in job.batches(loop):
        job.optimizer.param_groups[0]["lr"] = 0.05 / (1 + count())
        job.step(batch)
    start.end(job.model)


@habit("a counter in the parsed arguments", "said", "many scripts, `args.global_step += 1`", "args.steps")
def counter_in_arguments(start: Start) -> None:
    args = Namespace(steps=0)
    counted(start, lambda: vars(args).update(steps=args.steps + 1) or args.steps)


@dataclass(slots=True)
class Progress:
    steps: int = 0
    seen: ClassVar[list[int]] = []


@habit("a counter in a `dataclass` with slots, in a class", "said", "states of training loops", "now.steps")
def counter_in_slots(start: Start) -> None:
    now = Progress(steps=0)
    Progress.seen.clear()

    def count() -> int:
        now.steps += 1
        Progress.seen.append(now.steps)
        return len(Progress.seen)

    counted(start, count)


@habit("rates by `next` of a generator", "said", "schedules written as generators", "not resumed")
def rates_by_generator(start: Start) -> None:
    rates = (1.0 * number for number in range(100))
    counted(start, lambda: next(rates))


def draws(loader: Any) -> Iterator[Any]:
    while True:
        yield from loader


@habit("a second loader by `next`", "said", "kekmodel/FixMatch-pytorch train.py", "not resumed")
def second_loader(start: Start) -> None:
    more = draws(loader(Samples(40, 100), seed=7))
    counted(start, lambda: float(next(more)[1].abs().mean()))


@habit("draws by a `partial` of a generator's method", "refused", "functools, its uses", "and is not saved")
def hidden_generator(start: Start) -> None:
    counted(start, partial(numpy.random.default_rng(0).uniform, 0.0, 9.0))


class Lookahead:
    def __init__(self, optimizer: Any) -> None:
        self.inner, self.param_groups, self.steps = optimizer, optimizer.param_groups, 0
        self.fast = [value for group in self.param_groups for value in group["params"]]
        self.slow = [value.detach().clone() for value in self.fast]
        self.zero_grad, self.state_dict = optimizer.zero_grad, optimizer.state_dict
        self.load_state_dict = optimizer.load_state_dict

    def step(self) -> None:
        self.inner.step()
        self.steps += 1
        for slow, fast in zip(self.slow, self.fast, strict=True) if self.steps % 3 == 0 else ():
            slow.lerp_(fast.data, 0.5)
            fast.data.copy_(slow)


@habit("an optimizer around another, whose state it leaves out", "said", "Lookahead", "optimizer.steps")
def lookahead(start: Start) -> None:
    job = Job(start)
    job.optimizer = Lookahead(job.optimizer)
    job.train(job.loop())
    start.end(job.model)
