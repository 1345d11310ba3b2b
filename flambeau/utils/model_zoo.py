"""`torch.utils.model_zoo`: `torch.hub.load_state_dict_from_url` under its older name."""
from ..hub import __getattr__, load_state_dict_from_url as load_url       # torchvision takes tqdm from here

__all__ = ["load_url"]
