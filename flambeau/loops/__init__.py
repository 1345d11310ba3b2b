"""The loop language: what a kernel computes, its scalar mathematics, and its renderers."""
