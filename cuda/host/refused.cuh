// refused.cuh -- sets all gradients except dh0 to NaN if `saved` does not fit the call.
// Book: chapter 13, "Code: kernels".
#pragma once

#include "checked.h"
#include "workspace.cuh"

static void nan_if_block_differs(const struct kcp_backward *a, const struct arena *r,
                                 enum kcp_storage storage)
{
    const struct kcp_stage *stage = kcp_stage_find("13_backward");
    const struct kcp_call *call = (const struct kcp_call *)a;
    struct nan_outputs out = {};
    for (int i = 0; i < stage->nfields; i++) {
        const struct kcp_field *f = &stage->fields[i];
        void *p = *(void **)((char *)a + f->at);
        if (f->io != KCP_OUT || f->shape[0] == 'N' || !p) continue;
        out.p[out.count] = p;
        out.bytes[out.count++] =
            kcp_field_numbers(call, f) * kcp_bytes_of(call, f->store, storage);
    }
    nan_if_head_differs<<<264, 256, 0, a->stream>>>(a->saved, r->head, out);
}
