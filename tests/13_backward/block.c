/* block.c -- reads tensors saved by forward (saved block) instead of recomputing them.
 * Book: chapter 12, "What each mode keeps".
 *
 * Variant twin_modes is correct. It reads A and Aqk from the block and, in mode
 * save-all, h and v_new. Mutants read another chunk or head, or omit dt_bias. */
#include "wrong.h"

static int mode(const struct wrong_rank *x)
{
    return ((const struct kcp_saved *)x->a->saved)->save;
}

/* Copies tensor `name` [T,HV,C] of the saved block. With flag STALE, each chunk
 * except a segment's first gets the previous chunk's rows. */
static void take_triangle(struct wrong_rank *x, const char *name, double *to)
{
    const struct kcp_backward *a = x->a;
    const int64_t row = (int64_t)a->HV * a->C;
    const double *from = kcp_saved_at(a->saved, name);
    for (int s = 0; s < a->NS; s++)
        for (int64_t t = a->cu[s]; t < a->cu[s + 1]; t++) {
            const int stale = x->x.flags & STALE && t - a->cu[s] >= a->C;
            memcpy(to + t * row, from + (t - (stale ? a->C : 0)) * row,
                   sizeof(double) * row);
        }
}

/* Computes u, w, kg and qg from the A of the saved block. Arguments g and y are the
 * calls of chapters 02 and 03. */
int wrong_factors(struct wrong_rank *x, struct kcp_gate g, struct kcp_wy y)
{
    const struct kcp_backward *a = x->a;
    int status = KCP_OK;
    take_triangle(x, "A", x->A);
    take_triangle(x, "Aqk", x->Aqk);
    if (mode(x) == KCP_RECOMPUTE && x->x.flags & WRONG_GATE) {
        g.q = g.k = g.beta = NULL;
        g.dt_bias = NULL;
        g.G = zeros(x, a->T * a->HV * a->KG);
        y.G = g.G;
        status = ref_gate(&g);
    }
    return status ? status : ref_wy_factors(&y);
}

/* Copies h [NC,HV,K,V] and v_new [T,HV,V] from a block of mode save-all. */
void wrong_states(struct wrong_rank *x)
{
    const struct kcp_backward *a = x->a;
    const int HV = a->HV, V = a->V, other = x->x.flags & OTHER_HEAD ? 1 : 0;
    const double *h = kcp_saved_at(a->saved, "h");
    const double *v_new = kcp_saved_at(a->saved, "v_new");
    if (mode(x) != KCP_SAVE_ALL) return;
    for (int c = 0; c < a->NC; c++) {
        const int last = c + 1 == a->cn[a->sc[c] + 1];
        const int from = x->x.flags & NEXT_H && !last ? c + 1 : c;
        memcpy(x->h + c * size(x), h + from * size(x), sizeof(double) * size(x));
    }
    for (int64_t t = 0; t < a->T; t++)
        for (int n = 0; n < HV; n++)
            memcpy(x->v_new + (t * HV + n) * V, v_new + (t * HV + (n + other) % HV) * V,
                   sizeof(double) * V);
}
