"""captum: what of an input made a net decide, by gradients, by occlusion, by layers and neurons."""
import torch
from captum import attr
from torch import nn

from tests.programs import array, fill

PACKAGES = ["captum"]
QUICK = True


class _Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.pool = nn.Conv2d(2, 4, 3), nn.MaxPool2d(2)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.first, self.second = nn.Linear(36, 8), nn.Linear(8, 3)

    def forward(self, x):
        x = self.pool(self.relu1(self.conv(x)))
        return self.second(self.relu2(self.first(x.flatten(1))))


def _net():
    return fill(_Net()).eval(), array(2, 2, 8, 8).requires_grad_()


def by_gradients():
    """Saliency, integrated gradients, DeepLift, guided backpropagation and their kin."""
    net, x = _net()
    found = {"saliency": attr.Saliency(net).attribute(x, target=1),
             "times": attr.InputXGradient(net).attribute(x, target=1),
             "guided": attr.GuidedBackprop(net).attribute(x, target=1),
             "deconvolved": attr.Deconvolution(net).attribute(x, target=1),
             "smoothed": attr.NoiseTunnel(attr.Saliency(net)).attribute(x, nt_samples=4, stdevs=0.1, target=1),
             "shap": attr.GradientShap(net).attribute(x, torch.zeros(3, 2, 8, 8), n_samples=4, target=1)}
    found["integrated"], found["integrated delta"] = attr.IntegratedGradients(net).attribute(
        x, target=torch.tensor([0, 2]), n_steps=16, return_convergence_delta=True)
    found["lifted"], delta = attr.DeepLift(net).attribute(x, baselines=0.1, target=2, return_convergence_delta=True)
    found["lifted delta"] = delta.abs().max().item() < 1e-6                # of rounding alone, in another order
    found["lifted shap"] = attr.DeepLiftShap(net).attribute(x, array(3, 2, 8, 8, seed=4), target=0)
    found["relevance"] = attr.LRP(net).attribute(x, target=0)
    return found


def by_changes():
    """Occlusion, ablation, permutation, Shapley values, a linear model in the neighbourhood."""
    net, x = _net()
    x = x.detach()
    mask = (torch.arange(128).reshape(1, 2, 8, 8) // 16)
    return {"occlusion": attr.Occlusion(net).attribute(x, (1, 3, 3), strides=(1, 2, 2), target=1),
            "ablation": attr.FeatureAblation(net).attribute(x, target=1, feature_mask=mask),
            "permutation": attr.FeaturePermutation(net).attribute(x, target=1, feature_mask=mask),
            "shapley": attr.ShapleyValueSampling(net).attribute(x, target=1, feature_mask=mask, n_samples=5),
            "kernel": attr.KernelShap(net).attribute(x, target=1, feature_mask=mask, n_samples=30)}


def by_layers():
    """Layers and neurons: activations, conductance, GradCAM, integrated and internal influence."""
    net, x = _net()
    return {"activation": attr.LayerActivation(net, net.conv).attribute(x),
            "cam": attr.LayerGradCam(net, net.conv).attribute(x, target=1),
            "guided cam": attr.GuidedGradCam(net, net.conv).attribute(x, target=1),
            "conductance": attr.LayerConductance(net, net.first).attribute(x, target=1, n_steps=8),
            "integrated": attr.LayerIntegratedGradients(net, net.conv).attribute(x, target=1, n_steps=8),
            "times": attr.LayerGradientXActivation(net, net.first).attribute(x, target=1),
            "lifted": attr.LayerDeepLift(net, net.conv).attribute(x, target=1),
            "influence": attr.InternalInfluence(net, net.first).attribute(x, target=1, n_steps=8),
            "neuron": attr.NeuronGradient(net, net.first).attribute(x, 3),
            "neuron conductance": attr.NeuronConductance(net, net.first).attribute(x, 3, target=1, n_steps=8)}


def texts():
    """Words, through an embedding that is interpreted in its stead."""
    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.lstm, self.head = nn.Embedding(20, 6), nn.LSTM(6, 5, batch_first=True), nn.Linear(5, 2)

        def forward(self, words):
            return self.head(self.lstm(self.embedding(words))[0][:, -1])

    net = fill(Words()).eval()
    words = torch.arange(8).reshape(2, 4)
    over = attr.LayerIntegratedGradients(net, net.embedding)
    found = over.attribute(words, torch.zeros_like(words), target=1, n_steps=8)
    layer = attr.configure_interpretable_embedding_layer(net, "embedding")
    inner = attr.IntegratedGradients(net).attribute(layer.indices_to_embeddings(words), target=1, n_steps=8)
    attr.remove_interpretable_embedding_layer(net, layer)
    return {"layer": found, "inner": inner, "summed": found.sum(-1)}


def measures():
    """Infidelity and sensitivity of explanations; robustness against an attack; influence of examples."""
    from captum.concept import Concept
    from captum.influence import TracInCPFast
    from captum.metrics import infidelity, sensitivity_max
    from captum.robust import FGSM, PGD
    net, x = _net()
    explain = attr.Saliency(net)

    def moved(inputs):
        noise = 0.1 * array(*inputs.shape, seed=9)
        return noise, inputs - noise

    loss = nn.CrossEntropyLoss(reduction="none")
    return {"infidelity": infidelity(net, moved, x, explain.attribute(x, target=1), target=1, n_perturb_samples=3),
            "sensitivity": sensitivity_max(explain.attribute, x, target=1, n_perturb_samples=3),
            "fgsm": FGSM(net, loss).perturb(x, 0.05, torch.tensor([0, 1])),
            "pgd": PGD(net, loss).perturb(x, 0.1, 0.03, 3, torch.tensor([0, 1])),
            "names": [TracInCPFast.__name__, Concept(0, "stripes", None).name]}
