"""Recorded calls: values, storages, the trace, and running it."""
