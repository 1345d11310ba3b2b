"""torch_geometric: graphs as data, message passing, pooling, sampling in batches, training, saving and loading."""
import torch
import torch_geometric as pyg
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import (
    GATConv,
    GCNConv,
    GINConv,
    SAGEConv,
    TransformerConv,
    global_add_pool,
    global_max_pool,
    global_mean_pool,
    to_hetero,
)
from torch_geometric.utils import add_self_loops, degree, softmax, to_dense_adj, to_undirected

from tests.programs import array, fill, gradients, tokens

PACKAGES = ["torch_geometric"]


def _graph(nodes=10, edges=24, seed=0):
    index = torch.stack([tokens(edges, below=nodes, seed=seed), tokens(edges, below=nodes, seed=seed + 1)])
    return Data(x=array(nodes, 6, seed=seed), edge_index=to_undirected(index), y=tokens(nodes, below=3, seed=seed))


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = GCNConv(6, 8), GCNConv(8, 3)

    def forward(self, x, edge_index):
        return self.second(self.first(x, edge_index).relu(), edge_index)


def classified():
    """Nodes of one graph are classified by two graph convolutions; the net and the graph are saved and loaded."""
    data, net = _graph(), fill(_Net())
    adam, losses = torch.optim.Adam(net.parameters(), 0.02, weight_decay=1e-3), []
    for _ in range(8):
        adam.zero_grad()
        loss = torch.nn.functional.cross_entropy(net(data.x, data.edge_index), data.y)
        loss.backward()
        adam.step()
        losses.append(loss)
    torch.save(data, "graph.pt")
    torch.save(net.state_dict(), "net.pt")
    again, net2 = torch.load("graph.pt", weights_only=False), _Net()
    net2.load_state_dict(torch.load("net.pt"))
    return {"losses": losses, "classes": net2(again.x, again.edge_index).argmax(1), "graph": repr(again)}


def convolutions():
    """Convolutions of other kinds: values and gradients."""
    data, found = _graph(), {}
    for name, layer in {"gat": GATConv(6, 4, heads=2), "sage": SAGEConv(6, 4, aggr="max"),
                        "gin": GINConv(torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU())),
                        "transformer": TransformerConv(6, 4, heads=2)}.items():
        out = fill(layer)(data.x, data.edge_index)
        out.square().sum().backward()
        found[name] = {"out": out, "gradients": gradients(layer)}
    return found


def batched():
    """Many graphs in batches, pooled, and each classified."""
    graphs = [_graph(5 + n, 8 + n, seed=n) for n in range(6)]
    for n, graph in enumerate(graphs):
        graph.y = torch.tensor([n % 2])
    net = fill(_Net())
    sgd, losses = torch.optim.SGD(net.parameters(), 0.05), []
    for batch in DataLoader(graphs, batch_size=3, shuffle=True):
        out = global_mean_pool(net(batch.x, batch.edge_index), batch.batch)
        loss = torch.nn.functional.cross_entropy(out, batch.y)
        sgd.zero_grad()
        loss.backward()
        sgd.step()
        losses.append(loss)
    whole = Batch.from_data_list(graphs)
    out = net(whole.x, whole.edge_index)
    return {"losses": losses, "sum": global_add_pool(out, whole.batch), "most": global_max_pool(out, whole.batch),
            "pointers": whole.ptr, "third": whole[2].x}


def kinds():
    """A graph of two kinds of nodes, and a net made for it from one for plain graphs."""
    data = HeteroData()
    data["user"].x, data["item"].x = array(5, 6), array(7, 6, seed=1)
    data["user", "buys", "item"].edge_index = torch.stack([tokens(9, below=5), tokens(9, below=7, seed=1)])
    data["item", "of", "user"].edge_index = data["user", "buys", "item"].edge_index.flip(0)

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = SAGEConv(6, 4)

        def forward(self, x, edge_index):
            return self.first(x, edge_index).relu()

    net = fill(to_hetero(Net(), data.metadata(), aggr="sum"))
    return dict(net(data.x_dict, data.edge_index_dict)) | {"kinds": str(data.metadata())}


def tools():
    """What is counted, normalized, made dense and reordered on the way."""
    index = _graph().edge_index
    return {"degrees": degree(index[0], 10), "dense": to_dense_adj(index), "loops": add_self_loops(index)[0],
            "softmax": softmax(array(index.shape[1]), index[1]),
            "scattered": pyg.utils.scatter(array(index.shape[1], 2), index[0], reduce="mean"),
            "transformed": pyg.transforms.Compose([pyg.transforms.NormalizeFeatures(), pyg.transforms.AddSelfLoops()])(
                _graph()).x}
