/* arrays.h -- arrays that another language holds, asked for by their own library.
 *
 * Book: none.  Checked by: tests/cli/torch_check.py, "arrays".  Next: arrays.c.
 *
 * A binding of a language whose objects cost much to be asked one by one hands all of a
 * call over at once. Who holds them says what they are by DLPack's C exchange
 * interface; its structs are read here by their published layout, version 1. */
#ifndef KCP_ARRAYS_H
#define KCP_ARRAYS_H

#include <stdint.h>

#pragma GCC visibility push(default)

/* Of DLPack, version 1: what an array is. */
struct kcp_array {
    void *data;
    int32_t device, id, ndim;
    uint8_t code, bits;
    uint16_t lanes;
    int64_t *shape, *strides;
    uint64_t byte_offset;
};

/* What one array of a call shall be, and where in the args its address goes. ndim below
 * 0: not given, and then its object is `none`. */
struct kcp_array_like {
    int64_t at, ndim, code, bits, device, id, shape[5];
};

/* Put the addresses of n objects into args. 0: done. Else objects[i] is not as like[i]
 * says, not dense, or not on a boundary of 16 bytes, and the result is i + 1; ask, of
 * the interface above, may have left an error of its language behind. */
int kcp_arrays(int (*ask)(void *object, struct kcp_array *is), const void *none,
               const struct kcp_array_like *like, int n, void *const *objects,
               void *args);

#pragma GCC visibility pop
#endif
