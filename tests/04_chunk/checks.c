/* checks.c -- compares the outputs and states of the chunked form with the recurrence.
 *
 * Book: chapter 04.  Checked by: itself, it can fail.  Next: ref/05_affine.c.
 */
#include "tests/judge/batch.h"

static const double gates[] = { 0, -1, -5, -50 };
static const int chunks[] = { 4, 8, 16, 64 };

static int recurrence(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 32 && !status; j++) {
        struct batch x;
        const double gate = gates[j / 8];
        status = batch_draw(&x, j % 2 ? KCP_GDN : KCP_KDA, chunks[j / 2 % 4], gate);
        status = status ? status : batch_wy(&x);
        status = status ? status : batch_chunk(&x);
        status = status ? status : batch_step(&x);
        if (!status) {
            const double o = apart(x.o, x.o_step, x.c.T * x.c.HV * x.c.V);
            const double S = apart(x.h_out, x.ht, BATCH_NS * x.c.HV * x.c.K * x.c.V);
            EXPECT(rep, o <= 1e-13 && S <= 1e-13,
                   "%s, C = %d, gate %g: o differs by %g, final states by %g",
                   j % 2 ? "GDN" : "KDA", x.c.C, gate, o, S);
        }
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_04_recurrence) = { "04_chunk", "recurrence",
    "o, ht equal the recurrence's: C = 4..64, partial chunks, gates to -50",
    recurrence };

/* Runs the recurrence on each chunk c from state h [c]. The resulting state must equal
 * h [c+1], or h_out for the last chunk of a stretch (a run of tokens). */
static int states(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 8 && !status; j++) {
        struct batch x;
        status = batch_draw(&x, j % 2 ? KCP_GDN : KCP_KDA, 16, gates[j / 2]);
        status = status ? status : batch_wy(&x);
        status = status ? status : batch_chunk(&x);
        const int64_t KV = (int64_t)x.c.HV * x.c.K * x.c.V;
        double *o = batch_array(&x, x.c.T * x.c.HV * x.c.V);
        double *ht = batch_array(&x, x.c.NC * KV);
        int64_t cu[64] = { 0 };
        for (int c = 0; c < x.c.NC; c++) {
            const int s = x.sc[c], end = x.cu[s] + (c + 1 - x.cn[s]) * x.c.C;
            cu[c + 1] = end < x.cu[s + 1] ? end : x.cu[s + 1];
        }
        struct kcp_step a = { .cu_seqlens = cu };
        memcpy(&a, &x.c, sizeof x.c);
        a.N = x.c.NC; a.q = x.q; a.k = x.k; a.v = x.v; a.g = x.g; a.beta = x.beta;
        a.h0 = x.h; a.o = o; a.ht = ht;
        if (!status && x.arrays.full) status = KCP_NO_MEMORY;
        if (!status) status = ref_step(&a);
        for (int c = 0; c < x.c.NC && !status; c++) {
            const int last = c + 1 == x.cn[x.sc[c] + 1];
            const double *next = last ? x.h_out + x.sc[c] * KV : x.h + (c + 1) * KV;
            EXPECT(rep, apart(next, ht + c * KV, KV) <= 1e-13,
                   "%s, gate %g: the state after chunk %d differs by %g",
                   j % 2 ? "GDN" : "KDA", gates[j / 2], c,
                   apart(next, ht + c * KV, KV));
        }
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_04_states) = { "04_chunk", "states",
    "h of each chunk is the recurrence's state before the chunk", states };

static int gdn_is_kda(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 4 && !status; j++) {
        struct batch x, y = { 0 };
        status = batch_draw(&x, KCP_GDN, 16, gates[j]);
        status = status ? status : batch_repeat(&x, &y, gates[j]);
        if (!status && !(status = batch_wy(&x)) && !(status = batch_wy(&y)) &&
            !(status = batch_chunk(&x)) && !(status = batch_chunk(&y))) {
            const int64_t vo = x.c.T * x.c.HV * x.c.V;
            const double o = apart(x.o, y.o, vo), v_new = apart(x.v_new, y.v_new, vo);
            EXPECT(rep, o <= 1e-13 && v_new <= 1e-13,
                   "gate %g: o, v_new differ by %g %g", gates[j], o, v_new);
        }
        batch_free(&x);
        batch_free(&y);
    }
    return status;
}
KCP_CHECK(check_04_gdn_is_kda) = { "04_chunk", "gdn_is_kda",
    "GDN equals KDA with equal gates in all channels", gdn_is_kda };
