"""PyTorch Lightning: accumulation, early stopping, the best weights by ``ModelCheckpoint``, a data module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytorch_lightning
import torch
import torchmetrics
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from torch.utils.data import DataLoader

from frameworks.wild import common, lightning_common
from spot_training.lightning import SpotCheckpoint

EPOCHS, ACCUMULATE = 40, 2
REPEATED = ACCUMULATE


class Data(pytorch_lightning.LightningDataModule):
    """Shuffled samples and those that are not trained on."""

    def train_dataloader(self) -> Any:
        return DataLoader(common.Samples(noise=0.02), common.BATCH, shuffle=True, drop_last=True)

    def val_dataloader(self) -> Any:
        return DataLoader(common.Samples(8, begin=common.LENGTH), 4)


class Model(pytorch_lightning.LightningModule):
    """A network with hyperparameters, a metric of torchmetrics and a scheduler by step."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.network = common.network()
        self.error = torchmetrics.MeanAbsoluteError()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        loss = common.loss_of(self.network, batch)
        self.error(self.network(batch[1])[:, 0], batch[2])
        self.log("error", self.error, on_epoch=True)
        return loss

    def validation_step(self, batch: Any, index: int) -> None:
        lightning_common.wait(0.015)
        self.log("validation", common.loss_of(self.network, batch))

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams["rate"])
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.03, total_steps=EPOCHS * 3)
        return [optimizer], [{"scheduler": scheduler, "interval": "step"}]


class Export(lightning_common.Curve, pytorch_lightning.Callback):
    """Exports the best weights in a hook."""

    def __init__(self, marks: common.Marks, folder: Path, best: Any) -> None:
        super().__init__(marks)
        self._marks, self._folder, self._best = marks, folder, best

    def on_train_end(self, trainer: Any, module: Any) -> None:
        network = common.network()
        weights = torch.load(self._best.best_model_path)["state_dict"]
        network.load_state_dict(
            {name[8:]: value for name, value in weights.items() if name.startswith("network.")}
        )
        common.export(self._folder, self._marks, [network, module.network], self.points)


def main(folder: Path) -> None:
    """Train until the validation gets worse."""
    marks = common.start(folder)
    model = Model(rate=0.02)
    best = ModelCheckpoint(folder / "best", monitor="validation", save_top_k=1, enable_version_counter=False)
    spot = SpotCheckpoint(folder / "checkpoints", interval=common.interval())
    trainer = pytorch_lightning.Trainer(
        **lightning_common.quiet(folder),
        max_epochs=EPOCHS,
        accumulate_grad_batches=ACCUMULATE,
        logger=False,
        callbacks=[spot, EarlyStopping("validation", patience=1), best, Export(marks, folder, best)],
    )
    trainer.fit(model, datamodule=Data(), ckpt_path=spot.resume_from(model))
