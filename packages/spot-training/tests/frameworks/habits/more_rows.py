"""More habits of public training scripts: parts that change, data, the loop's end; see ``rows``."""

from __future__ import annotations

import copy
import math
import random
import signal
import sys
from typing import Any

import numpy
import torch
from torch import nn
from torch.nn.utils import prune

from frameworks.habits.player import Start
from frameworks.habits.rows import EPOCHS, INTERVAL, RNG, Job, Samples, habit
from spot_training import Spot


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


@habit("a dataset's own `default_rng`", "same", "NumPy's advice since 1.17")
def own_generator(start: Start) -> None:
    rng = numpy.random.default_rng(0)
    job = Job(start, Samples(noise=rng.normal))
    job.train(job.loop())
    start.end(job.model)


@habit("the same, in workers", "same", "albumentations 2, MONAI Randomizable")
def generator_in_workers(start: Start) -> None:
    rng = numpy.random.default_rng(0)
    job = Job(start, Samples(noise=lambda: float(rng.normal()) + RNG.random()), workers=1)
    job.train(job.loop())
    start.end(job.model)


def mixed(start: Start, *, is_part: bool) -> None:
    job, rng = Job(start), numpy.random.default_rng(0)
    loop = job.loop(**({"rng": rng} if is_part else {}))
    for _ in loop.epochs(EPOCHS):
        for number, x, y in loop.batches(job.loader):
            share = float(rng.beta(0.4, 0.4))
            order = torch.as_tensor(rng.permutation(4))
            job.step([number, share * x + (1 - share) * x[order], share * y + (1 - share) * y[order]])
    start.end(job.model)


@habit("mixup by a generator of the script, `Loop(rng=rng)`", "same", "facebookresearch/mixup-cifar10")
def mixup(start: Start) -> None:
    mixed(start, is_part=True)


@habit(
    "a generator of the script that is no part",
    "refused",
    "facebookresearch/mixup-cifar10",
    "changes and is not saved",
)
def forgotten_generator(start: Start) -> None:
    mixed(start, is_part=False)


class Counting(Samples):
    count = 0

    def __getitem__(self, index: int) -> Any:
        self.count += 1
        number, x, y = super().__getitem__(index)
        return number, x + 0.01 * self.count, y


@habit("a dataset that counts its samples, in workers", "refused", "datasets with a curriculum", "a counter")
def counting(start: Start) -> None:
    job = Job(start, Counting(), workers=1)
    job.train(job.loop())


@habit(
    "a listing or a set in another order at the next start", "refused", "huggingface/datasets#3857", "sorted("
)
def listed(start: Start) -> None:
    for backwards in (False, True):
        data = Samples(24, 100) if backwards else Samples()
        job = Job(start, data)
        loop = job.loop()
        for _ in loop.epochs(EPOCHS):
            for batch in loop.batches(job.loader):
                job.step(batch)
                if loop.batch == 3:
                    break
            break
        loop.close()


@habit("random masks in the model's forward", "same", "facebookresearch/mae models_mae.py")
def masks(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for number, x, y in loop.batches(job.loader):
            keep = (torch.rand_like(x) > 0.3) * (random.random() + numpy.random.rand())
            job.step([number, x * keep, y])
    start.end(job.model)


@habit("targets of different lengths", "same", "pytorch/vision references/detection")
def targets(start: Start) -> None:
    job = Job(start)
    job.loader.collate_fn = lambda samples: [
        torch.tensor([s[0] for s in samples]),
        *zip(*samples, strict=True),
    ][0:3]
    loop = job.loop()
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            numbers = batch[0]
            x = torch.stack([torch.sin(n * torch.arange(1.0, 9.0)) for n in numbers])
            job.step([numbers, x, torch.cos(numbers.float())])
    start.end(job.model)


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
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
            scheduler.step() if not loop.repeating else None
    start.end(job.model)


@habit("batch statistics that are frozen from one epoch on", "same", "detection and segmentation fine-tuning")
def frozen_statistics(start: Start) -> None:
    job = Job(start)
    job.train(job.loop(), lambda epoch: job.model[1].eval() if epoch == 1 else None)
    start.end(job.model)


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
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
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
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
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
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
    start.end(job.model)


@habit("a SIGTERM handler of the script that raises, before `Loop`", "same", "Slurm templates with requeue")
def handler_before(start: Start) -> None:
    handled(start, is_before=True)


@habit("the same at each step, after `Loop`", "same", "Slurm templates with requeue")
def handler_after(start: Start) -> None:
    handled(start, is_before=False)


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
    for _ in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
            average.update(job.model) if not loop.repeating else None
    start.end(job.model, average.ema, updates=average.updates)
