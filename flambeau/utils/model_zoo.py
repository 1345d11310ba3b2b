"""`torch.utils.model_zoo`: `torch.hub.load_state_dict_from_url` by its older name, and torchvision's progress bar."""
from ..hub import load_state_dict_from_url as load_url, tqdm as tqdm

__all__ = ["load_url"]
