"""The CPU's memory: blocks that are kept and given out again, what the machine allows, memory that processes share."""
