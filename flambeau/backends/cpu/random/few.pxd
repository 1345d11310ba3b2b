from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #ifndef FLAMBEAU_BITGEN
    #define FLAMBEAU_BITGEN
    /* numpy/random/bitgen.h, whose header need not be there */
    typedef struct {
        void *state;
        uint64_t (*next_uint64)(void *);
        uint32_t (*next_uint32)(void *);
        double (*next_double)(void *);
        uint64_t (*next_raw)(void *);
    } flambeau_bitgen;
    #endif
    """
    ctypedef struct flambeau_bitgen:
        void* state
        uint32_t (*next_uint32)(void*) noexcept


cdef inline uint64_t word64(flambeau_bitgen* stream) noexcept:
    cdef uint64_t high = stream.next_uint32(stream.state)
    return high << 32 | stream.next_uint32(stream.state)


cdef inline double unit64(flambeau_bitgen* stream) noexcept:
    return <double>(word64(stream) & ((<uint64_t>1 << 53) - 1)) * 2.0 ** -53


cdef inline float unit32(flambeau_bitgen* stream) noexcept:
    return <float>(stream.next_uint32(stream.state) & 0xFFFFFF) * <float>(2.0 ** -24)


cdef flambeau_bitgen* words_of(source) except NULL

cpdef drawn(source, int kind, Py_ssize_t count, dtype, first, second, odds)
