"""lightning: a module trained, validated, tested and used to predict; callbacks, checkpoints, resuming; Fabric."""
import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, LearningRateMonitor, ModelCheckpoint, StochasticWeightAveraging
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

from tests.programs import array, fill

PACKAGES = ["lightning"]


class _Net(lightning.LightningModule):
    def __init__(self, width=16, rate=1e-2):
        super().__init__()
        self.save_hyperparameters()
        self.net = torch.nn.Sequential(torch.nn.Linear(6, width), torch.nn.GELU(), torch.nn.Dropout(0.1),
                                       torch.nn.Linear(width, 3))
        self.seen = []

    def forward(self, x):
        return self.net(x)

    def training_step(self, batch, index):
        loss = torch.nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("train_loss", loss)
        self.seen.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        given = self(batch[0])
        self.log("val_loss", torch.nn.functional.cross_entropy(given, batch[1]), prog_bar=True)
        self.log("right", (given.argmax(1) == batch[1]).float().mean())

    def test_step(self, batch, index):
        self.log("test_loss", torch.nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def predict_step(self, batch, index):
        return self(batch[0]).argmax(1)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.rate)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "epoch"}}


class _Data(lightning.LightningDataModule):
    def setup(self, stage):
        x = array(40, 6)
        y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
        self.train, self.held = TensorDataset(x[:32], y[:32]), TensorDataset(x[32:], y[32:])

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=8, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.held, batch_size=4)

    test_dataloader = predict_dataloader = val_dataloader


def _trainer(**extra):
    settings = dict(max_epochs=3, accelerator="cpu", devices=1, enable_progress_bar=False, logger=False,
                    enable_model_summary=False, enable_checkpointing=False, num_sanity_val_steps=1)
    return lightning.Trainer(**settings | extra)


def fitted():
    """fit, validate, test and predict, with clipping and accumulated gradients."""
    lightning.seed_everything(5)
    model, data = fill(_Net()), _Data()
    trainer = _trainer(gradient_clip_val=0.5, accumulate_grad_batches=2)
    trainer.fit(model, data)
    found = {"losses": model.seen, "rate": trainer.optimizers[0].param_groups[0]["lr"], "steps": trainer.global_step}
    found["validated"] = trainer.validate(model, data, verbose=False)[0]
    found["tested"] = trainer.test(model, data, verbose=False)[0]
    found["predicted"] = torch.cat(trainer.predict(model, data)).tolist()
    return found


def checkpoints():
    """The best epoch is kept, loaded by its class with its settings; training goes on from the last one."""
    lightning.seed_everything(5)
    best = ModelCheckpoint("kept", monitor="val_loss", save_last=True, filename="best")
    model, data = fill(_Net(width=8)), _Data()
    trainer = _trainer(callbacks=[best], enable_checkpointing=True)
    trainer.fit(model, data)
    again = _Net.load_from_checkpoint(best.best_model_path)
    more = _Net(width=8)
    resumed = _trainer(max_epochs=5)
    resumed.fit(more, data, ckpt_path="kept/last.ckpt")
    return {"best": best.best_model_score, "width": again.hparams.width, "given": again.eval()(array(2, 6, seed=1)),
            "resumed": more.seen, "epoch": resumed.current_epoch}


def callbacks():
    """Early stopping, watched rates, averaged weights, a logger that writes a table."""
    import csv
    lightning.seed_everything(5)
    model, data = fill(_Net()), _Data()
    logger = CSVLogger("logs", flush_logs_every_n_steps=1)
    trainer = _trainer(max_epochs=6, logger=logger, log_every_n_steps=1,
                       callbacks=[EarlyStopping("val_loss", patience=2, min_delta=0.05), LearningRateMonitor(),
                                  StochasticWeightAveraging(swa_lrs=1e-2, swa_epoch_start=2)])
    trainer.fit(model, data)
    with open(f"{logger.log_dir}/metrics.csv") as file:
        rows = [float(row["train_loss"]) for row in csv.DictReader(file) if row["train_loss"]]
    return {"epochs": trainer.current_epoch, "losses": model.seen, "written": rows}


def by_hand():
    """Manual optimization with two optimizers, and Fabric around a plain loop."""
    class Pair(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.automatic_optimization = False
            self.one, self.two, self.seen = torch.nn.Linear(6, 4), torch.nn.Linear(4, 1), []

        def training_step(self, batch, index):
            loss = (self.two(self.one(batch[0]).tanh())[:, 0] - batch[1]).square().mean()
            for optimizer in self.optimizers():
                optimizer.zero_grad()
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
            self.seen.append(loss.item())

        def configure_optimizers(self):
            return torch.optim.SGD(self.one.parameters(), 0.1), torch.optim.Adam(self.two.parameters(), 0.01)

    lightning.seed_everything(5)
    pair = fill(Pair())
    _trainer(max_epochs=2).fit(pair, _Data())

    fabric = lightning.Fabric(accelerator="cpu", devices=1)
    fabric.seed_everything(3)
    net = fill(torch.nn.Linear(6, 1))
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), 0.1))
    losses = []
    for _ in range(3):
        loss = net(array(8, 6)).square().mean()
        fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return {"pair": pair.seen, "fabric": losses, "rank": fabric.global_rank}
