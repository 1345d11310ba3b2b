"""Every optimizer of the package, by name: tests over these meet a new one without naming it."""
import flambeau as torch

EVERY = {name: found for name in torch.optim.__all__ if isinstance(found := getattr(torch.optim, name), type)
         and issubclass(found, torch.optim.Optimizer) and found is not torch.optim.Optimizer}
OF_A_KIND = {"LBFGS", "Muon", "SparseAdam"}       # take a closure, matrices alone, and sparse gradients alone
ORDINARY = sorted(EVERY.keys() - OF_A_KIND)
