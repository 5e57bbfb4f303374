/* layer.c -- compares the functions of layer.h with direct calls of the references.
 *
 * Book: chapter 08.  Checked by: direct calls of ref_forward and ref_backward.
 * Next: tests/08_forward/graph.c, the same on a GPU; book/examples/kda.c. */
#include "ref/core/paths.h"
#include "tests/13_backward/batch.h"

enum { NOTHING, NO_ARRAY, SHORT, OTHER_T, OTHERS_BLOCK, NO_PLAN };
static int status_of[MOST];

/* Runs forward and backward through layer.h. The call of the last rank has error
 * x->spoil. */
static int layer_body(struct kcp_comm *comm, void *arg)
{
    struct batch *x = arg;
    const int spoil = comm->r == comm->R - 1 ? x->spoil : NOTHING;
    struct kcp_layer l;
    struct kcp_forward f = call(x, comm);
    kcp_layer_ref(&l);
    f.T = f.NS = f.NC = f.r = -1;
    kcp_layer_call(&l, (struct kcp_call *)&f, x->plan, comm);
    f.saved_bytes = kcp_layer_saved(&l, (struct kcp_call *)&f);
    f.saved = malloc(f.saved_bytes);
    struct kcp_backward b = backward_of(x, &f);
    if (spoil == NO_ARRAY) f.beta_raw = NULL;
    if (spoil == SHORT) f.saved_bytes--;
    if (spoil == OTHER_T) f.T++;
    if (spoil == NO_PLAN) f.plan = NULL;
    int err = f.saved ? kcp_layer_forward(&l, &f) : KCP_NO_MEMORY;
    if (spoil == OTHERS_BLOCK) ((struct kcp_saved *)f.saved)->HV = H;
    if (!err) err = kcp_layer_backward(&l, &b);
    free(f.saved);
    status_of[comm->r] = err;
    return err;
}

/* Runs a convolution of q, as rows of one head, by layer.h and by the reference. */
static int conv_body(struct kcp_comm *comm, void *arg)
{
    struct batch *x = arg;
    const struct kcp_context *at = &x->plan->ctx[comm->r];
    struct kcp_layer l;
    struct kcp_conv c = { .cu = at->cu, .cn = at->cn, .sc = at->sc, .D = H * K,
                          .Wc = 4, .x = x->in[Q] + at->begin * H * K,
                          .weight = x->in[KK] };
    kcp_layer_ref(&l);
    kcp_layer_call(&l, (struct kcp_call *)&c, x->plan, comm);
    c.y = x->out[DQ] + at->begin * H * K;
    const int err = kcp_layer_conv(&l, &c);
    c.y = x->out[DK] + at->begin * H * K;
    return err ? err : ref_conv(&c);
}

static int same(struct kcp_report *rep)
{
    struct batch x = { .R = 1 };
    char why[160];
    const int status = draw(&x);
    for (int R = 1; R <= 3 && !status; R++) {
        struct batch direct = x, layer = x, conv = x;
        int worst = 0;
        direct.R = layer.R = conv.R = R;
        EXPECT(rep, !go(&direct, why), "R = %d: %s", R, why);
        EXPECT(rep, !go_with(layer_body, &layer, why), "R = %d: %s", R, why);
        EXPECT(rep, apart(&direct, &layer, &worst) < 0, "R = %d: %s: bits differ from "
               "the reference's", R, out_name[worst]);
        EXPECT(rep, !go_with(conv_body, &conv, why) &&
               !memcmp(conv.out[DQ], conv.out[DK], sizeof(double) * T * H * K),
               "R = %d: convolution: %s", R, why);
        drop(&direct);
        drop(&layer);
        drop(&conv);
    }
    drop_inputs(&x);
    return status;
}

static int refuses(struct kcp_report *rep)
{
    static const struct { int spoil, status; const char *text; } row[] = {
        { NO_ARRAY, KCP_BAD, "beta_raw" }, { SHORT, KCP_BAD, "too short" },
        { OTHER_T, KCP_BAD, "not the plan's" },
        { OTHERS_BLOCK, KCP_MISMATCH, "saved block: HV" },
        { NO_PLAN, KCP_BAD, "no plan" } };
    struct batch x = { .R = 2 };
    char why[160];
    const int status = draw(&x);
    for (size_t i = 0; i < sizeof row / sizeof *row && !status; i++) {
        struct batch y = x;
        y.spoil = row[i].spoil;
        const int err = go_with(layer_body, &y, why);
        EXPECT(rep, err == row[i].status && strstr(why, row[i].text) &&
               !strncmp(why, "rank 1", 6), "%s: status %d, %s", row[i].text, err, why);
        EXPECT(rep, status_of[0] == KCP_COMM, "%s: status %d on rank 0", row[i].text,
               status_of[0]);
        drop(&y);
    }
    drop_inputs(&x);
    return status;
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
    "forward, backward and conv of layer.h equal the references on 1 to 3 ranks",
    same };
KCP_CHECK(check_08_layer_refuses) = { "08_forward", "layer_refuses",
    "if an argument of layer.h is invalid on one rank, every rank returns an "
    "error", refuses };
KCP_CHECK(check_08_layer_picks) = { "08_forward", "layer_picks",
    "for each forward on a GPU, layer.h has a backward that reads its saved block",
    picks };
