"""Settings of PyTorch's compiler. They can be set and read; `flambeau.compile` has none of what they choose between."""
cache_size_limit = recompile_limit = 8                # timm, transformers
accumulated_cache_size_limit = accumulated_recompile_limit = 256
capture_scalar_outputs = False                        # accelerate
capture_dynamic_output_shape_ops = False
skip_fwd_side_effects_in_bwd_under_checkpoint = False # accelerate
suppress_errors = False
verbose = False
optimize_ddp = True
assume_static_by_default = True
automatic_dynamic_shapes = True
allow_unspec_int_on_nn_module = False
inline_inbuilt_nn_modules = True
