"""Gradients: nodes recorded beside each call, and the engine that walks them backwards."""
