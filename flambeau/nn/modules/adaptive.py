"""Adaptive softmax: many classes, of which the frequent ones are cheap and the rare ones share clusters."""
from collections import namedtuple

from ...tensor.functions import cat
from .. import functional as F
from .container import ModuleList, Sequential
from .linear import Linear
from .module import Module

__all__ = ["AdaptiveLogSoftmaxWithLoss"]

_ASMoutput = namedtuple("_ASMoutput", ["output", "loss"])


class AdaptiveLogSoftmaxWithLoss(Module):
    """The log-probability of each target class, and the mean negative one, for classes sorted by frequency.

    Classes below the first of `cutoffs` are scored by the head, which also scores each cluster of the others. The
    classes of a cluster are scored for the samples whose target lies in it, through a projection that is `div_value`
    times narrower with every cluster.

    >>> layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 100, cutoffs=[10, 50])
    >>> output, loss = layer(torch.randn(3, 16), torch.tensor([1, 60, 20]))
    >>> output.shape, loss.shape
    (torch.Size([3]), torch.Size([]))
    """

    def __init__(self, in_features, n_classes, cutoffs, div_value=4.0, head_bias=False, device=None, dtype=None):
        super().__init__()
        cutoffs = list(cutoffs)
        if not cutoffs:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if cutoffs != sorted(set(cutoffs)) or cutoffs[0] <= 0 or cutoffs[-1] > n_classes - 1 \
                or any(int(c) != c for c in cutoffs):
            raise ValueError("cutoffs should be a sequence of unique, positive integers sorted in an increasing order, "
                             f"where each value is between 1 and n_classes-1 = {n_classes - 1}, got {cutoffs}")
        self.in_features, self.n_classes = in_features, n_classes
        self.cutoffs = [*cutoffs, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        made = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, bias=head_bias, **made)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            narrow, size = int(in_features // div_value ** (i + 1)), self.cutoffs[i + 1] - self.cutoffs[i]
            self.tail.append(Sequential(Linear(in_features, narrow, bias=False, **made),
                                        Linear(narrow, size, bias=False, **made)))

    def reset_parameters(self):
        """Draw all weights anew."""
        self.head.reset_parameters()
        for project, score in self.tail:
            project.reset_parameters()
            score.reset_parameters()

    def forward(self, input_, target_):
        if target_.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported: got "
                               f"{list(target_.shape)}")
        single = target_.dim() == 0
        if single and input_.dim() != 1:
            raise RuntimeError(f"0D target tensor expects 1D input tensors, but found inputs with size "
                               f"{list(input_.shape)}.")
        if not single and (input_.dim() == 1 or input_.shape[0] != target_.shape[0]):
            raise RuntimeError("Input and target should have the same size in the batch dimension: input is "
                               f"{list(input_.shape)}, target {list(target_.shape)}")
        input, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if single else (input_, target_)
        target = target.long()
        # Which samples have their target in which cluster is looked at here, before anything is computed for them.
        bounds = [0, *self.cutoffs]
        rows = [((target >= low) & (target < high)).nonzero().squeeze(1) for low, high in zip(bounds, self.cutoffs)]
        if sum(len(of) for of in rows) != len(target):
            raise RuntimeError(f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                               f"[{target.min().item()}, {target.max().item()}] were found. ")
        at = target
        inner = input.new_zeros(len(target))                    # log-probability of each target inside its cluster
        for i, of in enumerate(rows[1:]):
            if len(of):
                logs = F.log_softmax(self.tail[i](input.index_select(0, of)), dim=1)
                local = (target.index_select(0, of) - bounds[i + 1]).unsqueeze(1)
                inner = inner.index_copy(0, of, logs.gather(1, local).squeeze(1))
                at = at.index_fill(0, of, self.shortlist_size + i)
        head = F.log_softmax(self.head(input), dim=1)
        output = inner + head.gather(1, at.unsqueeze(1)).squeeze(1)
        loss = (-output).mean()
        return _ASMoutput(output.squeeze(0) if single else output, loss)

    def _get_full_log_prob(self, input, head_output):
        """The log-probabilities of all classes, from the scores of the head."""
        head = F.log_softmax(head_output, dim=1)
        made = [head[:, :self.shortlist_size]]
        for i, cluster in enumerate(self.tail, self.shortlist_size):
            made.append(F.log_softmax(cluster(input), dim=1) + head[:, i:i + 1])
        return cat(made, 1)

    def log_prob(self, input):
        """The log-probabilities [N, n_classes] of all classes."""
        return self._get_full_log_prob(input, self.head(input))

    def predict(self, input):
        """The class with the highest probability, for each sample."""
        scores = self.head(input)
        best = scores.argmax(1)
        of = (best >= self.shortlist_size).nonzero().squeeze(1)
        if len(of):                       # elsewhere the head alone decides: no class of a cluster can be likelier
            full = self._get_full_log_prob(input.index_select(0, of), scores.index_select(0, of))
            best = best.index_copy(0, of, full.argmax(1))
        return best
