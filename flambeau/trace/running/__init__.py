"""How a trace runs: found again by its key, its program over a table of addresses, or instruction by instruction."""
