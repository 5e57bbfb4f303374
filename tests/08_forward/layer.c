/* layer.c -- compares the functions of layer.h with direct calls of the references.
 *
 * Book: chapter 08.  Checked by: direct calls of ref_forward and ref_backward.
 * Next: tests/08_forward/graph.c, the same on a GPU; book/examples/kda.c. */
#include "ref/core/paths.h"
#include "tests/judge/judge.h"

#include <stdlib.h>
#include <string.h>

enum { T = 90, N = 2, H = 1, HV = 2, K = 8, V = 4, C = 16, MAX_R = 3 };
static const int64_t cu_seqlens[N + 1] = { 0, 37, T };

/* The arrays of all ranks. got[0] has the references' results, got[1] those of
 * layer.h. */
struct arrays {
    double q[T][H][K], k[T][H][K], v[T][HV][V], g[T][HV][K], beta[T][HV];
    double h0[N][HV][K][V], do_[T][HV][V], x[T][K], weight[K][4];
    struct answers {
        double o[T][HV][V], ht[N][HV][K][V], dq[T][H][K], dk[T][H][K], dv[T][HV][V];
        double dg[T][HV][K], dbeta[T][HV], dh0[N][HV][K][V], y[T][K];
    } got[2];
    const struct kcp_plan *plan;
    struct kcp_layer layer;
    int by_layer, spoil, status[MAX_R];
};

static struct arrays *draw(void)
{
    struct arrays *a = calloc(1, sizeof *a);
    struct stream s = stream_of(8, "08_layer");
    if (!a) return NULL;
    for (double *x = &a->q[0][0][0]; x < (double *)a->got; x++) *x = normal(&s);
    for (int i = 0; i < T * HV * K; i++) (&a->g[0][0][0])[i] *= i % 2 ? 0.01 : -0.01;
    for (int i = 0; i < T * HV * K; i++)
        if ((&a->g[0][0][0])[i] > 0) (&a->g[0][0][0])[i] *= -1;
    kcp_layer_ref(&a->layer);
    return a;
}

/* Fills the args of forward and backward. The references and layer.h get equal args
 * except for the output arrays. */
static void fill(struct arrays *a, struct kcp_comm *comm, struct kcp_forward *f,
                 struct kcp_backward *b)
{
    struct kcp_call c = { .H = H, .HV = HV, .K = K, .V = V, .KG = K, .model = KCP_KDA,
        .beta_form = KCP_BETA_SIGMOID, .l2norm = 1, .scale = 0.3 };
    kcp_layer_call(&a->layer, &c, a->plan, comm);
    const struct kcp_context *x = &a->plan->ctx[c.r];
    const int64_t t = x->begin;
    struct answers *y = &a->got[a->by_layer];
    *f = (struct kcp_forward){ .cu = x->cu, .cn = x->cn, .sc = x->sc, .q_raw = a->q[t],
        .k_raw = a->k[t], .v = a->v[t], .g_raw = a->g[t], .beta_raw = a->beta[t],
        .h0 = a->h0, .o = y->o[t], .ht = y->ht };
    *b = (struct kcp_backward){ .cu = x->cu, .cn = x->cn, .sc = x->sc, .q_raw = a->q[t],
        .k_raw = a->k[t], .v = a->v[t], .g_raw = a->g[t], .beta_raw = a->beta[t],
        .h0 = a->h0, .do_ = a->do_[t], .dq_raw = y->dq[t], .dk_raw = y->dk[t],
        .dv = y->dv[t], .dg_raw = y->dg[t], .dbeta_raw = y->dbeta[t], .dh0 = y->dh0 };
    memcpy(f, &c, sizeof c);
    memcpy(b, &c, sizeof c);
    f->saved_bytes = b->saved_bytes = kcp_layer_saved(&a->layer, &c);
    b->saved = f->saved = malloc(f->saved_bytes);
}

enum { NOTHING, NO_ARRAY, SHORT, OTHER_T, OTHERS_BLOCK, NO_PLAN };

static int body(struct kcp_comm *comm, void *arg)
{
    struct arrays *a = arg;
    const struct kcp_layer *l = &a->layer;
    struct kcp_forward f;
    struct kcp_backward b;
    fill(a, comm, &f, &b);
    struct kcp_conv c = { .cu = f.cu, .cn = f.cn, .sc = f.sc, .weight = a->weight };
    memcpy(&c, &f, sizeof(struct kcp_call));
    c.D = K; c.Wc = 4; c.x = a->x[a->plan->ctx[comm->r].begin];
    c.y = a->got[a->by_layer].y[a->plan->ctx[comm->r].begin];
    const int me = comm->r == comm->R - 1;
    if (me && a->spoil == NO_ARRAY) f.beta_raw = NULL;
    if (me && a->spoil == SHORT) f.saved_bytes--;
    if (me && a->spoil == OTHER_T) f.T++;
    if (me && a->spoil == NO_PLAN) f.plan = NULL;
    int err = f.saved ? KCP_OK : KCP_NO_MEMORY;
    if (!err) err = a->by_layer ? kcp_layer_forward(l, &f) : ref_forward(&f);
    if (me && a->spoil == OTHERS_BLOCK) ((struct kcp_saved *)f.saved)->HV = H;
    if (!err) err = a->by_layer ? kcp_layer_backward(l, &b) : ref_backward(&b);
    if (!err) err = a->by_layer ? kcp_layer_conv(l, &c) : ref_conv(&c);
    free(f.saved);
    a->status[comm->r] = err;
    return err;
}

static int run_ranks(struct arrays *a, int R, char *why, size_t n)
{
    struct kcp_plan *plan;
    why[0] = 0;
    if (kcp_plan_make(&plan, N, cu_seqlens, R, NULL, 0, C, 4, NULL)) return KCP_BAD;
    a->plan = plan;
    memset(&a->got[a->by_layer], 0xff, sizeof a->got[0]);
    const int err = kcp_threads_run(R, body, a, why, n);
    kcp_plan_free(plan);
    return err;
}

static int same(struct kcp_report *rep)
{
    struct arrays *a = draw();
    char why[200];
    if (!a) return KCP_NO_MEMORY;
    for (int R = 1; R <= MAX_R; R++) {
        for (a->by_layer = 0; a->by_layer < 2; a->by_layer++)
            EXPECT(rep, !run_ranks(a, R, why, sizeof why), "R = %d: %s", R, why);
        EXPECT(rep, !memcmp(&a->got[0], &a->got[1], sizeof a->got[0]),
               "R = %d: bits differ from the reference's", R);
    }
    free(a);
    return KCP_OK;
}

static int refuses(struct kcp_report *rep)
{
    static const struct { int spoil, status; const char *says; } row[] = {
        { NO_ARRAY, KCP_BAD, "beta_raw" }, { SHORT, KCP_BAD, "too short" },
        { OTHER_T, KCP_BAD, "not the plan's" },
        { OTHERS_BLOCK, KCP_MISMATCH, "saved block: HV" },
        { NO_PLAN, KCP_BAD, "no plan" } };
    struct arrays *a = draw();
    char why[200];
    if (!a) return KCP_NO_MEMORY;
    a->by_layer = 1;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        a->spoil = row[i].spoil;
        const int err = run_ranks(a, 2, why, sizeof why);
        EXPECT(rep, err == row[i].status && strstr(why, row[i].says) &&
               !strncmp(why, "rank 1", 6), "%s: status %d, %s", row[i].says, err, why);
        EXPECT(rep, a->status[0] == KCP_COMM, "%s: status %d on rank 0", row[i].says,
               a->status[0]);
    }
    free(a);
    return KCP_OK;
}

/* ---- the table of paths through the public interface */

/* Returns 1 if every block format that kernel `forward` writes is read by backward. The
 * search starts at the first row of kernel `backward`, because a layer does not use
 * earlier rows. */
static int reads_what_it_writes(const struct kcp_variant *forward,
                                const struct kcp_variant *backward)
{
    int first = 0;
    while (first < kcp_npaths && (strcmp(kcp_paths[first].stage, "13_backward") ||
                                  strcmp(kcp_paths[first].kernel, backward->name)))
        first++;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = kcp_paths + i;
        int read = 0;
        if (strcmp(p->stage, "08_forward") || strcmp(p->kernel, forward->name))
            continue;
        for (int j = first; j < kcp_npaths && !read; j++)
            read = !strcmp(kcp_paths[j].stage, "13_backward") &&
                   kcp_paths[j].storage == p->storage &&
                   kcp_paths[j].format == p->format;
        if (!read) return 0;
    }
    return 1;
}

static int picks(struct kcp_report *rep)
{
    struct kcp_layer layer;
    const struct kcp_variant *v[256];
    char why[200] = "";
    int pairs = 0;
    const int n = kcp_variants("8", NULL, v, 256);
    for (int i = 0; i < n; i++) {
        if (v[i]->where != KCP_DEVICE) continue;
        const int err = kcp_layer_gpu(&layer, v[i]->storage, v[i]->name, why, 200);
        EXPECT(rep, !err && layer.forward == v[i] && layer.storage == v[i]->storage &&
               reads_what_it_writes(v[i], layer.backward) && layer.ops && layer.conv,
               "%s: status %d, %s", v[i]->name, err, why);
        pairs++;
    }
    const int err = kcp_layer_gpu(&layer, KCP_BF16, "v9_none", why, sizeof why);
    EXPECT(rep, err == (pairs ? KCP_BAD : KCP_NA), "v9_none: status %d", err);
    EXPECT(rep, !pairs || strstr(why, "expected one of v"), "%s", why);
    const int newest = kcp_layer_gpu(&layer, KCP_BF16, NULL, why, sizeof why);
    EXPECT(rep, pairs ? !newest : newest == KCP_NA, "newest: status %d", newest);
    EXPECT(rep, kcp_stage_find("05") == kcp_stage_find("05_affine") &&
           !kcp_stage_find("99"), "kcp_stage_find");
    return KCP_OK;
}

KCP_CHECK(check_08_layer) = { "08_forward", "layer",
    "layer.h on 1 to 3 ranks: forward, backward, conv equal the references", same };
KCP_CHECK(check_08_layer_refuses) = { "08_forward", "layer_refuses",
    "layer.h: an invalid argument on one rank ends all ranks", refuses };
KCP_CHECK(check_08_layer_picks) = { "08_forward", "layer_picks",
    "layer.h: each forward for a GPU has a backward that reads its block", picks };
