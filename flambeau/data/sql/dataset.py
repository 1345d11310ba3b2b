"""A query of a database as a Dataset: read whole, or in batches, shuffled and resumable, in bounded memory."""
from ...utils.data import Dataset


class SQLDataset(Dataset):
    """The rows of a query."""
