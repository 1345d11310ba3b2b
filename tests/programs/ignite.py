"""pytorch-ignite: trainers and evaluators with metrics, schedules, early stopping and checkpoints."""
import torch
from ignite.engine import Engine, Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import (
    Checkpoint,
    DiskSaver,
    EarlyStopping,
    EMAHandler,
    TerminateOnNan,
    create_lr_scheduler_with_warmup,
)
from ignite.metrics import (
    SSIM,
    Accuracy,
    ConfusionMatrix,
    Fbeta,
    Loss,
    MeanSquaredError,
    Precision,
    Recall,
    RunningAverage,
    TopKCategoricalAccuracy,
)

from tests.programs import array, fill

PACKAGES = ["pytorch-ignite"]
QUICK = True


def _data(seed=0):
    x = array(48, 6, seed=seed)
    y = (x[:, 0] > 0.3).long() + (x[:, 1] > 0).long()
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=12)


def _net():
    return fill(torch.nn.Sequential(torch.nn.Linear(6, 16, bias=False), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
                                    torch.nn.Dropout(0.2), torch.nn.Linear(16, 3)))


def trained():
    """A classifier with warm-up, a running loss, its metrics after each epoch, and a moving average of its weights."""
    net, cross = _net(), torch.nn.CrossEntropyLoss()
    adam = torch.optim.AdamW(net.parameters(), 0.02)
    trainer = create_supervised_trainer(net, adam, cross)
    RunningAverage(output_transform=lambda loss: loss).attach(trainer, "running")
    decay = torch.optim.lr_scheduler.ExponentialLR(adam, 0.9)
    warm = create_lr_scheduler_with_warmup(decay, warmup_start_value=0.001, warmup_end_value=0.02, warmup_duration=4)
    trainer.add_event_handler(Events.ITERATION_STARTED, warm)
    trainer.add_event_handler(Events.ITERATION_COMPLETED, TerminateOnNan())
    average = EMAHandler(net, momentum=0.1)
    average.attach(trainer)
    precision, recall = Precision(average=False), Recall(average=False)
    evaluator = create_supervised_evaluator(net, {
        "accuracy": Accuracy(), "loss": Loss(cross), "precision": precision, "recall": recall,
        "top": TopKCategoricalAccuracy(2),
        "f": Fbeta(1.0, precision=precision, recall=recall), "confusion": ConfusionMatrix(3)})
    found = {"running": [], "rates": [], "evaluated": []}

    @trainer.on(Events.ITERATION_COMPLETED(every=4))
    def note(engine):
        found["running"].append(engine.state.metrics["running"])
        found["rates"].append(adam.param_groups[0]["lr"])

    @trainer.on(Events.EPOCH_COMPLETED)
    def evaluate(engine):
        evaluator.run(_data(1))
        found["evaluated"].append(dict(evaluator.state.metrics))

    trainer.run(_data(), max_epochs=3)
    return found | {"averaged": average.ema_model[0].weight, "weight": net[0].weight}


def resumed():
    """A run is kept on disk, goes on from there, and ends as one that was never broken off."""
    def made():
        net = _net()
        net[3].p = 0.0
        sgd = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
        return net, sgd, create_supervised_trainer(net, sgd, torch.nn.CrossEntropyLoss())

    net, sgd, trainer = made()
    keeper = Checkpoint({"net": net, "sgd": sgd, "trainer": trainer}, DiskSaver("kept", require_empty=False), n_saved=1,
                        global_step_transform=lambda engine, _: engine.state.epoch)
    trainer.add_event_handler(Events.EPOCH_COMPLETED(once=2), keeper)
    trainer.run(_data(), max_epochs=4)
    again, sgd_again, second = made()
    Checkpoint.load_objects({"net": again, "sgd": sgd_again, "trainer": second},
                            torch.load(keeper.last_checkpoint))
    second.run(_data(), max_epochs=4)
    return {"file": str(keeper.last_checkpoint), "epochs": second.state.epoch, "weight": net[0].weight,
            "same": all(torch.equal(a, b) for a, b in zip(net.state_dict().values(), again.state_dict().values()))}


def stopped():
    """A loop of one's own stops when its score no longer rises; errors and structural similarity of pictures."""
    engine = Engine(lambda engine, batch: (batch, batch * 0.9 + 0.01))
    SSIM(data_range=1.0, kernel_size=5).attach(engine, "ssim")
    MeanSquaredError().attach(engine, "mse")
    engine.run([array(2, 3, 16, 16, seed=n).sigmoid() for n in range(3)])
    scores = iter([0.5, 0.7, 0.6, 0.65, 0.9])
    trainer = Engine(lambda engine, batch: batch)
    trainer.add_event_handler(Events.EPOCH_COMPLETED, EarlyStopping(2, lambda engine: next(scores), trainer))
    trainer.run(range(2), max_epochs=5)
    return {"ssim": engine.state.metrics["ssim"], "mse": engine.state.metrics["mse"], "epochs": trainer.state.epoch}
