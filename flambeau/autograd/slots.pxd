cdef class NodeBase:
    cdef public object edges, kept, outs, site, released, leaf
    cdef public long long seq
    cdef public RecipeBase recipe
    cdef public int n_outputs
    cdef public bint hooked


cdef class RecipeBase:
    cdef public object op, template, live, only_kept, keep_out, single_rule, name
    cdef public tuple inputs, input_specs, asked, steps, fetched
    cdef public bint saves, follows, has_float_result
