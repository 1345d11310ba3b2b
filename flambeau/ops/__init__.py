"""The operations: declarations and nothing else. `base/op.py` says what a declaration may hold."""
