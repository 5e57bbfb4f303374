/* arrays.c -- the arrays of a call, asked for in one call of C.
 *
 * Book: none.  Checked by: tests/cli/torch_check.py, "arrays".
 * Next: ../../book/examples/torch/kcp_torch/core.py, which hands them over.
 *
 * Without it a Python binding asks each of eight tensors for its type, shape, device,
 * strides and address: a third of what it costs beside the call itself. */
#include "arrays.h"

#include <stddef.h>

/* The address of an array that is as it shall be; else null. */
static void *address_of(const struct kcp_array *is, const struct kcp_array_like *like)
{
    if (is->ndim != like->ndim || is->code != like->code || is->bits != like->bits ||
        is->lanes != 1 || is->device != like->device || is->id != like->id)
        return NULL;
    int64_t stride = 1;
    for (int d = is->ndim - 1; d >= 0; d--) {
        if (is->shape[d] != like->shape[d])
            return NULL;
        if (is->strides && is->shape[d] != 1 && is->strides[d] != stride)
            return NULL;
        stride *= is->shape[d];
    }
    char *data = is->data;
    if (!data || ((uintptr_t)data + is->byte_offset) % 16)
        return NULL;
    return data + is->byte_offset;
}

int kcp_arrays(int (*ask)(void *object, struct kcp_array *is), const void *none,
               const struct kcp_array_like *like, int n, void *const *objects,
               void *args)
{
    for (int i = 0; i < n; i++) {
        if (like[i].ndim < 0 || objects[i] == none) {
            if (like[i].ndim < 0 && objects[i] == none)
                continue;
            return i + 1;
        }
        struct kcp_array is;
        if (ask(objects[i], &is))
            return i + 1;
        void *data = address_of(&is, &like[i]);
        if (!data)
            return i + 1;
        *(void **)((char *)args + like[i].at) = data;
    }
    return 0;
}
