"""`torch.cuda.random`: the generators of CUDA devices, one each."""
