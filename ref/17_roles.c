/* 17_roles.c -- kernel 8 of chapter 17 in C: a producer, two consumers and barriers.
 * Book: chapter 17. */
#include "17_block.h"
#include "checked.h"
#include "ref.h"

#include <string.h>

enum { STAGES = 4, CONSUMERS = 2 };

/* A block that computes head n of segment s, with state S [K,V]. Each pipeline stage
 * has two barriers. `full` needs one arrival per phase, and `empty` needs one arrival
 * per phase and consumer. */
struct block {
    const struct kcp_ladder *a;
    struct block_stage at[STAGES];
    struct block_barrier full[STAGES], empty[STAGES];
    struct block_copies copies;
    int s, n;
    double *S;
};

static int producer(struct block *m, int i);
static int consumer(struct block *m, int j, int i);

//> roles
/* Copies chunk i of the segment to a pipeline stage. Returns 0 if a consumer still
 * reads the previous chunk of this pipeline stage. */
static int producer(struct block *m, int i)
{
    const struct kcp_ladder *a = m->a;
    const int HV = a->HV, K = a->K, V = a->V, at = i % STAGES;
    const int c = ((const int *)a->cn)[m->s] + i, n = m->n;
    const struct block_tokens z = block_tokens(a, m->s, c);
    const double (*u)[HV][V] = a->u, (*w)[HV][K] = a->w, (*kg)[HV][K] = a->kg;
    const double (*decay)[HV][K] = a->decay;
    struct block_stage *to = &m->at[at];
    struct block_barrier *full = &m->full[at];
    if (i >= STAGES && !block_passed(&m->empty[at], i / STAGES - 1)) return 0;
    to->len = z.len;
    block_arrive_expect(full, 2 * ((int64_t)z.len * (2 * K + V) + K));
    block_tma(&m->copies, to->w, w[z.t][n], HV * K, z.len, K, full);
    block_tma(&m->copies, to->kg, kg[z.t][n], HV * K, z.len, K, full);
    block_tma(&m->copies, to->u, u[z.t][n], HV * V, z.len, V, full);
    block_tma(&m->copies, to->decay, decay[c][n], 0, 1, K, full);
    return 1;
}

/* Runs consumer j, which computes half j of the columns of chunk i. Returns 0 if chunk
 * i has not arrived. */
static int consumer(struct block *m, int j, int i)
{
    const struct kcp_ladder *a = m->a;
    const int at = i % STAGES, c = ((const int *)a->cn)[m->s] + i, half = a->V / 2;
    if (!block_passed(&m->full[at], i / STAGES)) return 0;
    block_chunk(a, &m->at[at], block_tokens(a, m->s, c).t, m->n, j ? half : 0,
                j ? a->V : half, m->S);
    block_arrive(&m->empty[at]);
    return 1;
}
//< roles

static int step(void *m, int role, int i)
{
    return role ? consumer(m, role - 1, i) : producer(m, i);
}

/* Runs one block: initializes state and barriers, then computes all chunks. */
static int stretch(struct block *m)
{
    const struct kcp_ladder *a = m->a;
    const int *cn = a->cn;
    const size_t state = (size_t)a->K * a->V;
    const size_t at = ((size_t)m->s * a->HV + m->n) * state;
    m->S = (double *)a->h_out + at;
    if (a->h_in) memcpy(m->S, (const double *)a->h_in + at, sizeof *m->S * state);
    else memset(m->S, 0, sizeof *m->S * state);
    for (int i = 0; i < STAGES; i++) {
        block_barrier_init(&m->full[i], 1);
        block_barrier_init(&m->empty[i], CONSUMERS);
    }
    return block_run(step, m, 1 + CONSUMERS, cn[m->s + 1] - cn[m->s], &m->copies);
}

int ref_ladder_roles(struct kcp_ladder *a)
{
    int status = kcp_begin("17_ladder", KCP_HOST, a, NULL);
    if (status) return status;
    struct block m = { .a = a };
    status = block_stages_make(m.at, STAGES, a);
    if (status) return status;
    for (m.s = 0; m.s < a->NS && !status; m.s++)
        for (m.n = 0; m.n < a->HV && !status; m.n++) status = stretch(&m);
    block_stages_free(m.at);
    return status;
}
