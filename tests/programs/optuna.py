"""optuna: settings of a net searched for, with trials that are cut short."""
import optuna
import torch

from tests.programs import array, fill

PACKAGES = ["optuna"]
QUICK = True


def _objective(trial):
    width = trial.suggest_int("width", 4, 16)
    kind = trial.suggest_categorical("kind", ["SGD", "Adam"])
    rate = trial.suggest_float("rate", 1e-3, 0.3, log=True)
    net = fill(torch.nn.Sequential(torch.nn.Linear(5, width), torch.nn.Tanh(), torch.nn.Linear(width, 1)))
    optimizer = getattr(torch.optim, kind)(net.parameters(), rate)
    x, y = array(32, 5), array(32, 5)[:, :1].sin()
    for step in range(6):
        loss = (net(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trial.report(loss.item(), step)
        if trial.should_prune():
            raise optuna.TrialPruned()
    return loss.item()


def searched():
    """Each trial's settings, losses and end."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=4),
                                pruner=optuna.pruners.MedianPruner(3))
    study.optimize(_objective, n_trials=10)
    return {"values": [trial.value for trial in study.trials], "ends": [trial.state.name for trial in study.trials],
            "settings": [{key: held if isinstance(held, str) else float(held) for key, held in trial.params.items()}
                         for trial in study.trials[:6]], "best": study.best_trial.number}
