"""shap: what each input had to do with a net's answer: by gradients, by DeepLIFT's rules, by leaving out."""
import numpy as np
import shap
import torch

from tests.programs import array, fill, tolerance

PACKAGES = ["shap"]


def _net():
    return fill(torch.nn.Sequential(torch.nn.Linear(5, 12), torch.nn.ReLU(), torch.nn.Linear(12, 3),
                                    torch.nn.Sigmoid()))


def deep():
    """DeepLIFT's rules through hooks of modules, of a plain and of a convolutional net."""
    conv = fill(torch.nn.Sequential(torch.nn.Conv2d(1, 3, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
                                    torch.nn.Flatten(), torch.nn.Linear(27, 2)))
    plain = shap.DeepExplainer(_net(), array(20, 5))
    pictures = shap.DeepExplainer(conv, array(6, 1, 8, 8))
    return {"plain": plain.shap_values(array(4, 5, seed=1)), "expected": plain.expected_value,
            "pictures": pictures.shap_values(array(2, 1, 8, 8, seed=1), check_additivity=False)}


def by_gradients():
    """Expected gradients, of the input and of a layer inside."""
    net = _net()
    whole, inside = (shap.GradientExplainer(of, array(20, 5)) for of in (net, (net, net[2])))
    return {"input": whole.shap_values(array(3, 5, seed=1), nsamples=40, rseed=2),
            "layer": inside.shap_values(array(2, 5, seed=1), nsamples=20, rseed=2)}


@tolerance(1e-4, "a regression over samples of inputs left out amplifies rounding")
def by_leaving_out():
    """A net as a function of arrays."""
    net = _net()

    def asked(x):
        with torch.no_grad():
            return net(torch.from_numpy(np.asarray(x, np.float32))).numpy()[:, 0]

    np.random.seed(1)
    kernel = shap.KernelExplainer(asked, array(8, 5).numpy())
    permuted = shap.PermutationExplainer(asked, array(8, 5).numpy(), seed=3)
    return {"kernel": kernel.shap_values(array(2, 5, seed=1).numpy(), nsamples=60, silent=True),
            "permuted": permuted(array(2, 5, seed=1).numpy()).values}
