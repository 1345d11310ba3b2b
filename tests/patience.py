"""How long a test waits before it says that something hangs.

A bound on work is in processor time (`time.process_time`), which other programs do not use up. A bound on waiting is
this one: far more than a busy machine needs, so that only what would never end reaches it. What must not be waited for
takes longer than that (`NEVER`), so that waiting for it is found out.
"""
PATIENCE = 240                # seconds
NEVER = 10 * PATIENCE
