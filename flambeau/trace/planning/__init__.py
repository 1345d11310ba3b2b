"""How a trace becomes a program: lowered to loops, fused, its buffers placed."""
