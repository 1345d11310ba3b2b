"""vit-pytorch: vision transformers of many kinds: outputs, losses, gradients."""
import torch
from vit_pytorch import SimpleViT, ViT
from vit_pytorch.cait import CaiT
from vit_pytorch.cct import CCT
from vit_pytorch.cross_vit import CrossViT
from vit_pytorch.cvt import CvT
from vit_pytorch.deepvit import DeepViT
from vit_pytorch.levit import LeViT
from vit_pytorch.pit import PiT
from vit_pytorch.t2t import T2TViT

from tests.programs import array, fill

PACKAGES = ["vit-pytorch"]

SMALL = dict(image_size=16, patch_size=4, num_classes=5, dim=24, depth=2, heads=3, mlp_dim=32)


def models():
    """Each model of two pictures: what it says, its loss, the size of its gradients."""
    nets = {"vit": ViT(**SMALL), "mean": ViT(**SMALL, pool="mean"), "simple": SimpleViT(**SMALL),
            "deep": DeepViT(**SMALL), "cait": CaiT(**SMALL, cls_depth=1),
            "pit": PiT(**SMALL | {"depth": (1, 1), "image_size": 32}, dim_head=8),
            "t2t": T2TViT(dim=24, image_size=32, depth=1, heads=3, mlp_dim=32, num_classes=5,
                          t2t_layers=((7, 4), (3, 2))),
            "cct": CCT(img_size=16, embedding_dim=24, n_conv_layers=1, kernel_size=3, stride=1, padding=1,
                       pooling_kernel_size=3, pooling_stride=2, pooling_padding=1, num_layers=2, num_heads=3,
                       mlp_ratio=2.0, num_classes=5, positional_embedding="learnable", stochastic_depth=0.0,
                       dropout_rate=0.0, attention_dropout=0.0),
            "cross": CrossViT(image_size=32, num_classes=5, sm_dim=12, lg_dim=24, sm_patch_size=8, sm_enc_depth=1,
                              lg_patch_size=16, lg_enc_depth=1, depth=1, sm_enc_heads=2, lg_enc_heads=2,
                              cross_attn_heads=2),
            "cvt": CvT(num_classes=5, s1_emb_dim=8, s1_depth=1, s2_emb_dim=16, s2_heads=2, s2_depth=1, s3_emb_dim=24,
                       s3_heads=3, s3_depth=1),
            "levit": LeViT(image_size=64, num_classes=5, stages=2, dim=(32, 48), depth=1, heads=(2, 3), mlp_mult=2)}
    out = {}
    for name, net in nets.items():
        fill(net)
        size = {"pit": 32, "t2t": 32, "cross": 32, "levit": 64}.get(name, 16)
        given = net(array(2, 3, size, size))
        loss = torch.nn.functional.cross_entropy(given, torch.tensor([1, 3]))
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in net.parameters() if p.grad is not None]).norm()
        out[name] = {"given": given, "loss": loss, "norm": norm}
    return out
