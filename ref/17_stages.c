/* 17_stages.c -- kernel 5 of chapter 17 in C: keeps two chunks in flight while it
 * computes a third.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

#include <string.h>

enum { STAGES = 3 };

struct block { struct block_stage at[STAGES]; struct block_copies copies; };

/* Issues the copies of chunk c in the group that the next block_commit closes. */
static void copy_chunk(const struct kcp_ladder *a, struct block_copies *q,
                       struct block_stage *to, int s, int n, int c)
{
    const int HV = a->HV, K = a->K, V = a->V;
    const struct block_tokens z = block_tokens(a, s, c);
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    const double (*decay)[HV][K] = a->decay;
    to->len = z.len;
    block_async(q, to->w, w[z.t][n], HV * K, z.len, K);
    block_async(q, to->kg, kg[z.t][n], HV * K, z.len, K);
    block_async(q, to->u, u[z.t][n], HV * V, z.len, V);
    block_async(q, to->decay, decay[c][n], 0, 1, K);
}

static void stretch(const struct kcp_ladder *a, struct block *m, int s, int n,
                    double *S);

//> loop
/* Computes all chunks of a segment of head n. On return S [K,V] is the state at the
 * segment's end. Each iteration closes a group of copies, even an empty group, so that
 * when iteration i waits, the copies of chunk i are in the second newest group. */
static void stretch(const struct kcp_ladder *a, struct block *m, int s, int n,
                    double *S)
{
    const int *cn = a->cn, chunks = cn[s + 1] - cn[s];
    for (int i = 0; i < STAGES - 1; i++) {
        if (i < chunks) copy_chunk(a, &m->copies, &m->at[i], s, n, cn[s] + i);
        block_commit(&m->copies);
    }
    for (int i = 0; i < chunks; i++) {
        const int c = cn[s] + i, next = i + STAGES - 1;
        block_wait(&m->copies, STAGES - 2);
        if (next < chunks)
            copy_chunk(a, &m->copies, &m->at[next % STAGES], s, n, cn[s] + next);
        block_commit(&m->copies);
        block_chunk(a, &m->at[i % STAGES], block_tokens(a, s, c).t, n, 0, a->V, S);
    }
}
//< loop

int ref_ladder_stages(struct kcp_ladder *a)
{
    const int refused = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    if (refused) return refused;
    const size_t state = (size_t)a->K * a->V;
    const double *h_in = a->h_in;
    struct block m = { .copies = { .n = 0 } };
    const int status = block_stages_make(m.at, STAGES, a);
    if (status) return status;
    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < a->HV; n++) {
            const size_t at = ((size_t)s * a->HV + n) * state;
            double *S = (double *)a->h_out + at;
            if (h_in) memcpy(S, h_in + at, sizeof *S * state);
            else memset(S, 0, sizeof *S * state);
            stretch(a, &m, s, n, S);
        }
    block_stages_free(m.at);
    return KCP_OK;
}
