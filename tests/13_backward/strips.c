/* strips.c -- cuts one rank's sequences into parts (strips), as kernels do for few
 * heads.
 * Book: chapter 18b, "Few heads".
 * A plan for one rank has the strips as segments. The state at the start of a strip
 * comes from forward. Mutants combine maps wrongly, read a wrong state or omit dht. */
#include "wrong.h"

/* Returns the tokens per strip: C strip_chunks, or C if strip_chunks is 0. */
static int64_t length(const struct kcp_backward *a)
{
    return (int64_t)a->C * (a->strip_chunks ? a->strip_chunks : 1);
}

int wrong_strips(struct wrong_rank *x)
{
    const struct kcp_plan *whole = x->a->plan;
    struct kcp_backward *a = &x->on_strips;
    if (whole->R > 1 || whole->L) return KCP_NA;
    *a = *x->a;
    int status = kcp_plan_make(&x->strips, whole->N, whole->cu_seqlens, 1, NULL,
                               length(a), a->C, a->Wc, NULL);
    if (status) return status;
    const struct kcp_context *ctx = x->strips->ctx;
    a->plan = x->strips;
    a->NS = ctx->NS; a->NC = ctx->NC;
    a->cu = ctx->cu; a->cn = ctx->cn; a->sc = ctx->sc;
    x->a = a;
    x->seg = x->strips->seg;
    double *h_in = zeros(x, a->NS * size(x));
    for (int s = 0; s < a->NS; s++) {
        const int from = x->x.flags & NEXT_START && !x->seg[s].last ? s + 1 : s;
        memcpy(h_in + s * size(x), x->h + ctx->cn[from] * size(x),
               sizeof(double) * size(x));
    }
    return wrong_chunk(x, h_in);
}
