/* layer.c -- compares the functions of layer.h with direct calls of the references.
 * Book: chapter 08. */
#include "ref/core/paths.h"
#include "tests/judge/trial.h"

#include <stdlib.h>
#include <string.h>

enum { NOTHING, NO_ARRAY, SHORT, OTHER_T, OTHERS_BLOCK, NO_PLAN };
static int spoil, status_of[CASE_RANKS];

/* Runs forward through layer.h, then backward if b is not NULL. The call of the last
 * rank has error `spoil`. */
static int run_pair(struct kcp_forward f, struct kcp_backward *b)
{
    const struct kcp_plan *plan = f.plan;
    struct kcp_comm *comm = f.comm;
    const int r = f.r, wrong = r == f.R - 1 ? spoil : NOTHING, HV = f.HV;
    struct kcp_layer l;
    kcp_layer_ref(&l);
    f.T = f.NS = f.NC = f.r = -1;
    kcp_layer_call(&l, (struct kcp_call *)&f, plan, comm);
    f.saved_bytes = kcp_layer_saved(&l, (struct kcp_call *)&f);
    f.saved = malloc(f.saved_bytes);
    if (b) {
        memcpy(b, &f, sizeof(struct kcp_call));
        b->saved = f.saved;
        b->saved_bytes = f.saved_bytes;
    }
    if (wrong == NO_ARRAY) f.beta_raw = NULL;
    if (wrong == SHORT) f.saved_bytes--;
    if (wrong == OTHER_T) f.T++;
    if (wrong == NO_PLAN) f.plan = NULL;
    int err = f.saved ? kcp_layer_forward(&l, &f) : KCP_NO_MEMORY;
    if (wrong == OTHERS_BLOCK) ((struct kcp_saved *)f.saved)->HV = HV / 2;
    if (!err && b) err = kcp_layer_backward(&l, b);
    free(f.saved);
    return status_of[r] = err;
}

static int run_forward(void *args)
{
    return run_pair(*(struct kcp_forward *)args, NULL);
}

/* The judge stores forward's outputs o and ht after the arguments of stage 13. */
static int run_backward(void *args)
{
    struct kcp_backward b = *(struct kcp_backward *)args;
    void *const *forward = (void *const *)((struct kcp_backward *)args + 1);
    struct kcp_forward f = { .cu = b.cu, .cn = b.cn, .sc = b.sc, .q_raw = b.q_raw,
        .k_raw = b.k_raw, .v = b.v, .g_raw = b.g_raw, .beta_raw = b.beta_raw,
        .A_log = b.A_log, .dt_bias = b.dt_bias, .h0 = b.h0, .o = forward[0],
        .ht = forward[1] };
    memcpy(&f, &b, sizeof(struct kcp_call));
    return run_pair(f, &b);
}

static int run_conv(void *args)
{
    struct kcp_layer l;
    kcp_layer_ref(&l);
    return kcp_layer_conv(&l, args);
}

static const struct kcp_variant layers[] = {
    { "08_forward", "layer", "", KCP_F64, KCP_HOST, "any", run_forward, NULL },
    { "13_backward", "layer", "", KCP_F64, KCP_HOST, "any", run_backward, NULL },
    { "14_conv", "layer", "", KCP_F64, KCP_HOST, "any", run_conv, NULL } };

#define BATCH \
    "kda live H=2 HV=4 K=8 V=6 C=16 lengths=260,0,1,69,91,0 h0 dht l2norm " \
    "gate=softplus beta=sigmoid2 scale=0.4 seed=13 "

static int same(struct kcp_report *rep)
{
    int status = KCP_OK;
    spoil = NOTHING;
    for (int i = 0; i < 9 && !status; i++) {
        const struct kcp_variant *v = &layers[i / 3];
        const struct kcp_variant ref = reference_of(stage_find(v->stage));
        char words[300];
        snprintf(words, sizeof words, BATCH "R=%d", 1 + i % 3);
        status = bits_agree(rep, &ref, words, v, "");
    }
    return status;
}

static int refuses(struct kcp_report *rep)
{
    static const struct { int spoil, status; const char *text; } row[] = {
        { NO_ARRAY, KCP_BAD, "beta_raw" }, { SHORT, KCP_BAD, "too short" },
        { OTHER_T, KCP_BAD, "differs from the plan" },
        { OTHERS_BLOCK, KCP_MISMATCH, "saved block: its HV" },
        { NO_PLAN, KCP_BAD, "no plan" } };
    struct kcase k;
    char why[160];
    if (case_parse(BATCH "R=2", &k, why, sizeof why)) return KCP_BAD;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct trial t = { .stage = stage_find("13"), .variant = &layers[1],
                           .mem = &host_memory };
        spoil = row[i].spoil;
        const int err = trial_case(&t, &k, KCP_FORWARD, KCP_F64, why, sizeof why);
        EXPECT(rep, err == row[i].status && strstr(why, row[i].text) &&
               !strncmp(why, "rank 1", 6), "%s: status %d, %s", row[i].text, err, why);
        EXPECT(rep, status_of[0] == KCP_COMM, "%s: status %d on rank 0", row[i].text,
               status_of[0]);
        trial_free(&t);
    }
    return KCP_OK;
}

/* ---- layer.h selects kernels by the path table */

/* Returns 1 if backward reads every format of saved block that kernel `forward`
 * writes. The search starts at the first row of kernel `backward` in the path table,
 * because a layer with this kernel does not use earlier rows. */
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
    "forward, backward and conv of layer.h equal the references on 1 to 3 ranks",
    same };
KCP_CHECK(check_08_layer_refuses) = { "08_forward", "layer_refuses",
    "if an argument of layer.h is invalid on one rank, every rank returns an "
    "error", refuses };
KCP_CHECK(check_08_layer_picks) = { "08_forward", "layer_picks",
    "for each forward on a GPU, layer.h picks a backward that reads its saved block",
    picks };
