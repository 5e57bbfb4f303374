/* kda.c -- runs KDA (GDN if compiled with -DGDN) forward and backward through layer.h.
 * Book: chapter 08.
 *
 *   make examples; build/kda 3      three threads run the references
 *   build/kda 1 bf16                one GPU (build/kda 4 bf16: four GPUs and NCCL)
 *   mpirun -n 3 build/kda           three processes (build/gdn runs GDN)
 */
#include "place.h"

enum { T = 200, N = 2, H = 2, HV = 4, K = 64, V = 64, C = 64 };
#ifdef GDN                                     /* one gate per head and token */
enum { KG = 1 };
static const struct kcp_call model = { .model = KCP_GDN, .gate = KCP_GATE_SOFTPLUS,
    .form = KCP_CHAIN };
#else                                          /* one gate per channel */
enum { KG = K };
static const struct kcp_call model = { .model = KCP_KDA, .gate = KCP_GATE_BOUNDED,
    .lower_bound = -5, .form = KCP_ALL_GATHER };
#endif
static const int64_t cu_seqlens[N + 1] = { 0, 137, T };    /* two sequences, packed */

struct job { struct place place; struct kcp_plan *plan; };

//> example-calls
/* Allocates the saved block and the workspaces, then runs both passes. Their memory is
 * needed until the stream is idle. A real program allocates once, not per call. */
static int layer(const struct place *p, struct shelf *s, struct kcp_forward *f,
                 struct kcp_backward *b)
{
    const struct kcp_layer *l = &p->layer;
    f->saved_bytes = b->saved_bytes = kcp_layer_saved(l, (struct kcp_call *)f);
    b->saved = f->saved = keep(s, place_room(p, f->saved_bytes));
    f->work_bytes = kcp_layer_forward_work(l, f);
    f->work = keep(s, place_room(p, f->work_bytes));
    b->work_bytes = kcp_layer_backward_work(l, b);
    b->work = keep(s, place_room(p, b->work_bytes));
    if (s->full) return KCP_NO_MEMORY;
    const int status = kcp_layer_forward(l, f);
    return status ? status : kcp_layer_backward(l, b);
}
//< example-calls

/* Gathers one sum per result from every rank; rank 0 adds and prints these sums. */
static int say(const struct job *j, struct kcp_comm *comm, const struct kcp_forward *f,
               const struct kcp_backward *b)
{
    const struct place *p = &j->place;
    const int64_t t = j->plan->ctx[comm->r].begin;
    const double mine[2] = { digest(p, f->o, t * HV * V, f->T * HV * V),
                             digest(p, b->dq_raw, t * H * K, f->T * H * K) };
    double all[2 * 64], o = 0, dq = 0, dA = 0;
    char *x = place_room(p, sizeof mine * (size_t)(comm->R + 1));
    int status = x ? place_copy(p, x, mine, sizeof mine) : KCP_NO_MEMORY;
    if (!status)
        status = comm->all_gather(comm, x, x + sizeof mine, sizeof mine, f->stream);
    if (!status) status = comm->barrier(comm, f->stream);
    if (!status)
        status = place_copy(p, all, x + sizeof mine, sizeof mine * (size_t)comm->R);
    if (!status) status = place_get(p, KCP_ACC, &dA, b->dA_log, 1);
    for (int r = 0; r < comm->R && !status; r++) {
        o += all[2 * r];
        dq += all[2 * r + 1];
    }
    if (!status && comm->r == 0)
        printf("%s: o %.9f  dq %.9f  dA_log[0] %.9f\n",
               model.model == KCP_KDA ? "KDA" : "GDN", o, dq, dA);
    place_free(p, x);
    return status;
}

/* Runs one rank. Each rank knows the whole plan, but has only its own tokens. */
static int rank(struct kcp_comm *comm, void *arg)
{
    const struct job *j = arg;
    const struct place *p = &j->place;
    const struct kcp_context *x = &j->plan->ctx[comm->r];
    const int64_t t = x->begin, state = (int64_t)HV * K * V;
    struct shelf s = { .place = p };
    struct kcp_call c = { .H = H, .HV = HV, .K = K, .V = V, .KG = KG,
        .model = model.model, .gate = model.gate, .lower_bound = model.lower_bound,
        .beta_form = KCP_BETA_SIGMOID, .l2norm = 1, .scale = 0.125,
        .form = model.form };
    kcp_layer_call(&p->layer, &c, j->plan, comm);
    struct kcp_forward f = { .T = 0 };
    struct kcp_backward b = { .T = 0 };
    memcpy(&f, &c, sizeof c);
    memcpy(&b, &c, sizeof c);

    b.cu = f.cu = ints(&s, x->cu, c.NS + 1);
    b.cn = f.cn = ints(&s, x->cn, c.NS + 1);
    b.sc = f.sc = ints(&s, x->sc, c.NC);
    b.q_raw = f.q_raw = draw(&s, KCP_ACTV, 0, t, c.T, H * K);
    b.k_raw = f.k_raw = draw(&s, KCP_ACTV, 1, t, c.T, H * K);
    b.v = f.v = draw(&s, KCP_ACTV, 2, t, c.T, HV * V);
    b.g_raw = f.g_raw = draw(&s, KCP_ACTV, 3, t, c.T, HV * KG);
    b.beta_raw = f.beta_raw = draw(&s, KCP_ACTV, 4, t, c.T, HV);
    b.A_log = f.A_log = draw(&s, KCP_ACC, 5, 0, 1, HV);
    b.dt_bias = f.dt_bias = draw(&s, KCP_ACC, 6, 0, HV, KG);
    b.h0 = f.h0 = draw(&s, KCP_ACC, 7, 0, N, state);
    b.do_ = draw(&s, KCP_ACTV, 8, t, c.T, HV * V);
    f.o = room(&s, KCP_ACTV, c.T * HV * V);
    f.ht = room(&s, KCP_ACC, N * state);
    b.dq_raw = room(&s, KCP_ACTV, c.T * H * K);
    b.dk_raw = room(&s, KCP_ACTV, c.T * H * K);
    b.dv = room(&s, KCP_ACTV, c.T * HV * V);
    b.dg_raw = room(&s, KCP_ACTV, c.T * HV * KG);
    b.dbeta_raw = room(&s, KCP_ACTV, c.T * HV);
    b.dh0 = room(&s, KCP_ACC, N * state);
    b.dA_log = room(&s, KCP_ACC, HV);
    b.ddt_bias = room(&s, KCP_ACC, HV * KG);

    int status = s.full ? KCP_NO_MEMORY : layer(p, &s, &f, &b);
    if (!status) status = say(j, comm, &f, &b);
    for (int i = 0; i < s.n; i++) place_free(p, s.x[i]);
    return status;
}

int main(int argc, char **argv)
{
    static struct job j;
    const char *bad = "found more than 64 ranks, expected at most 64";
    int status = place_choose(&j.place, argc, argv);
    if (!status && (j.place.R > 64 || kcp_plan_make(&j.plan, N, cu_seqlens, j.place.R,
                                                    NULL, 0, C, 0, &bad))) {
        snprintf(j.place.why, sizeof j.place.why, "%s", bad);
        status = KCP_BAD;
    }
    if (!status) status = place_ranks(&j.place, rank, &j);
    if (status) fprintf(stderr, "kda: status %d: %s\n", status, j.place.why);
    kcp_plan_free(j.plan);
    return place_end(status == KCP_BAD || status == KCP_NA ? 2 : status != KCP_OK);
}
