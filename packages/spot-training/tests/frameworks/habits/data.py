"""Habits with data: generators, workers, orders, samples that vary; see ``table``."""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch
from torch.utils.data import DataLoader, Subset, random_split

from frameworks.habits.job import Job, Samples
from frameworks.habits.player import Start
from frameworks.habits.table import EPOCHS, habit
from spot_training.torch import EpochBatches

RNG = random.Random(5)


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
    "a generator of the script that is not a part",
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


@habit("the same, without workers", "refused", "datasets with a curriculum", "a counter")
def counting_here(start: Start) -> None:
    job = Job(start, Counting())
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


@habit("`random_split` without a seed", "refused", "PyTorch's tutorials", "sorted(")
def split_unseeded(start: Start) -> None:
    torch.seed()
    data, _ = random_split(Samples(30), [24, 6])
    job = Job(start, data)
    job.train(job.loop())
    start.end(job.model)


@habit(
    "a `DataLoader` with `shuffle=True`",
    "refused",
    "pytorch/examples mnist/main.py",
    "use batch_sampler=EpochBatches",
)
def shuffled(start: Start) -> None:
    job = Job(start)
    job.loader = DataLoader(Samples(), 4, shuffle=True)
    job.train(job.loop())


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
    for batch in job.batches(loop):
        numbers = batch[0]
        x = torch.stack([torch.sin(n * torch.arange(1.0, 9.0)) for n in numbers])
        job.step([numbers, x, torch.cos(numbers.float())])
    start.end(job.model)


@habit("batches and data that grow with the epochs", "same", "progressive resizing, fastai")
def grows(start: Start) -> None:
    job = Job(start)
    loop = job.loop()
    for epoch in loop.epochs(EPOCHS):
        data = Samples(24 + 4 * epoch)
        for batch in loop.batches(DataLoader(data, batch_sampler=EpochBatches(len(data), 4 + 2 * epoch))):
            job.step(batch)
    start.end(job.model)


@habit("`Subset.indices` set at an epoch's end", "said", "hard mining in public scripts", "indices")
def mined(start: Start) -> None:
    data = Subset(Samples(), list(range(24)))
    job = Job(start, data)
    loop = job.loop()
    for epoch in loop.epochs(EPOCHS):
        for batch in loop.batches(job.loader):
            job.step(batch)
        data.indices = [(index * 5 + epoch) % 24 for index in range(24)]
    start.end(job.model)


@habit("a validation set with its own generator", "refused", "noisy validation of denoisers", "val.dataset.")
def validated(start: Start) -> None:
    job, rng = Job(start), numpy.random.default_rng(4)
    val = DataLoader(Samples(8, noise=rng.random), 4)
    del rng
    job.train(job.loop(), lambda epoch: [float(job.loss(batch)) for batch in val])
