"""Pictures of what a program computes: `flambeau.lens.graph(loss)` draws the graph that backward goes through."""
from .graph import GraphPicture, graph
from .modules import naming

__all__ = ["GraphPicture", "graph", "naming"]
