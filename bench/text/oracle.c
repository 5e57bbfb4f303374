/* oracle.c -- runs the layer by the token recurrence, without chunks, maps and ranks.
 *
 * Book: chapter 01.  Checked by: tests/01_step/checks.c.  Next: trace.c.
 */
#include "text.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { Q, K_IN, RQ, RK, G, CUM, BETA, DQN, DKN, DGN, DBN, ROWS };

/* Runs the front end of chapter 02, or its adjoint. */
static int front(struct rank *a, double **t, enum kcp_pass pass, double *dA,
                 double *ddt)
{
    const struct run *run = a->run;
    CALL(kcp_gate, g, a);
    g.pass = pass;
    g.q_raw = a->t[Q_];
    g.k_raw = a->t[K_];
    g.g_raw = a->t[GRAW];
    g.beta_raw = a->t[BRAW];
    g.A_log = run->theta + param_at(P_ALOG);
    g.dt_bias = run->theta + param_at(P_DT);
    g.q = t[Q];
    g.k = t[K_IN];
    g.rstd_q = t[RQ];
    g.rstd_k = t[RK];
    g.g = t[G];
    g.G = t[CUM];
    g.beta = t[BETA];
    g.dq = t[DQN];
    g.dk = t[DKN];
    g.dg = t[DGN];
    g.dbeta = t[DBN];
    g.dq_raw = a->t[DQ];
    g.dk_raw = a->t[DK];
    g.dg_raw = a->t[DG];
    g.dbeta_raw = a->t[DB];
    g.dA_part = dA;
    g.ddt_part = ddt;
    return ref_gate(&g);
}

static int step(struct rank *a, double **t, enum kcp_pass pass)
{
    struct run *run = a->run;
    struct kcp_step s = { .T = a->T, .N = run->text->N, .R = 1, .H = HEADS };
    s.HV = VALUE_HEADS;
    s.K = s.KG = KEY;
    s.V = VALUE;
    s.C = CHUNK;
    s.pass = pass;
    s.model = KCP_KDA;
    s.scale = 1 / sqrt(KEY);
    s.cu_seqlens = run->text->cu;
    s.q = t[Q];
    s.k = t[K_IN];
    s.v = a->t[V_];
    s.g = t[G];
    s.beta = t[BETA];
    s.o = a->t[O];
    s.ht = run->ht;
    s.do_ = a->t[DO];
    s.dq = t[DQN];
    s.dk = t[DKN];
    s.dv = a->t[DV];
    s.dg = t[DGN];
    s.dbeta = t[DBN];
    s.dh0 = run->dh0;
    return ref_step(&s);
}

int oracle_layer(struct rank *a, enum kcp_pass pass)
{
    static const int row[ROWS] = {
        HEADS * KEY, HEADS * KEY, HEADS, HEADS, VALUE_HEADS * KEY, VALUE_HEADS * KEY,
        VALUE_HEADS, HEADS * KEY, HEADS * KEY, VALUE_HEADS * KEY, VALUE_HEADS
    };
    const int NS = a->ctx->NS, dt = VALUE_HEADS * KEY;
    int64_t all = NS * (VALUE_HEADS + dt);
    for (int i = 0; i < ROWS; i++)
        all += a->T * row[i];
    double *t[ROWS], *workspace = calloc(all + 1, sizeof *workspace), *at = workspace;
    if (!workspace)
        return KCP_NO_MEMORY;
    for (int i = 0; i < ROWS; at += a->T * row[i++])
        t[i] = at;
    double *dA = at, *ddt = dA + NS * VALUE_HEADS, *grad = a->run->grad;

    int status = front(a, t, KCP_FORWARD, NULL, NULL);
    if (!status)
        status = step(a, t, pass);
    if (!status && pass == KCP_BACKWARD)
        status = front(a, t, KCP_BACKWARD, dA, ddt);
    for (int64_t i = 0; !status && pass == KCP_BACKWARD && i < NS * VALUE_HEADS; i++)
        grad[param_at(P_ALOG) + i % VALUE_HEADS] += dA[i];
    for (int64_t i = 0; !status && pass == KCP_BACKWARD && i < NS * dt; i++)
        grad[param_at(P_DT) + i % dt] += ddt[i];
    free(workspace);
    return status;
}
