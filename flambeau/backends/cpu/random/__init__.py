"""The numbers that PyTorch draws on the CPU, from the same seeds, bit for bit."""
