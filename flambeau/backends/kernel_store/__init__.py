"""Where kernels are found that were compiled before: the user's cache, the package, a precompiled folder."""
