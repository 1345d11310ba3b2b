"""vector-quantize-pytorch: codebooks of every kind: codes, losses, what they learn from batches."""
import torch
from vector_quantize_pytorch import FSQ, LFQ, RandomProjectionQuantizer, ResidualFSQ, ResidualVQ, SimVQ, VectorQuantize

from tests.programs import array, fill, tolerance

PACKAGES = ["vector-quantize-pytorch"]


@tolerance(2e-4, "of a gradient through normalized rows the part along them cancels")
def codebooks():
    """Over three batches: codes, losses, and the codebook after moving averages; with k-means to begin."""
    found = {}
    for name, how in {"plain": {}, "cosine": {"use_cosine_sim": True},
                      "kmeans": {"kmeans_init": True, "kmeans_iters": 4},
                      "heads": {"heads": 2, "separate_codebook_per_head": True}, "small": {"codebook_dim": 4},
                      "learned": {"learnable_codebook": True, "ema_update": False}}.items():
        torch.manual_seed(1)
        net, each = VectorQuantize(dim=8, codebook_size=16, decay=0.8, commitment_weight=1.0, **how), []
        for n in range(3):
            x = array(2, 20, 8, seed=n).requires_grad_()
            out, codes, loss = net(x)
            (out.square().sum() + loss.sum()).backward()
            each.append({"out": out, "codes": codes, "loss": loss, "gradient": x.grad})
        found[name] = {"each": each, "codebook": net.codebook}
    return found


def residual():
    """Several codebooks after each other, and the code of what they leave; decoded again."""
    torch.manual_seed(2)
    net = ResidualVQ(dim=8, num_quantizers=3, codebook_size=12, kmeans_init=True, kmeans_iters=3)
    out, codes, losses = net(array(2, 16, 8))
    scalar = ResidualFSQ(dim=8, levels=[5, 5, 3], num_quantizers=2)
    return {"out": out, "codes": codes, "losses": losses, "decoded": net.get_output_from_indices(codes),
            "scalar": fill(scalar)(array(2, 6, 8))[0]}


def without_lookup():
    """Finite scalars, signs, a random projection, and a codebook behind a projection."""
    fsq, lfq = FSQ([8, 5, 5]), LFQ(codebook_size=16, dim=4, entropy_loss_weight=0.1)
    out, codes = fsq(array(2, 7, 3))
    signs, indices, loss = lfq(array(2, 9, 4))
    torch.manual_seed(3)
    sim = SimVQ(dim=8, codebook_size=16)(array(2, 10, 8))
    random = RandomProjectionQuantizer(dim=8, num_codebooks=2, codebook_size=10, codebook_dim=4)
    return {"scalars": out, "codes": codes, "again": fsq.indices_to_codes(codes), "signs": signs, "indices": indices,
            "loss": loss, "projected": random(array(2, 5, 8)), "sim": list(sim)}
