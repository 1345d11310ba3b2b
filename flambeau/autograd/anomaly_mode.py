"""PyTorch's home of anomaly detection; see graph.py."""
from .graph import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
