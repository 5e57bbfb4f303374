/* wire.c -- counts the bytes of sent maps. GLA's maps have only the diagonal of M.
 * Book: chapter 16, "Communication". */
#include "run.h"

/* Runs the reference without diagonal maps, so M has K^2 numbers for every model. */
static int whole(struct kcp_family *args)
{
    struct kcp_family a = *args;
    struct kcp_mapops ops = ref_mapops;
    ops.diagonal = NULL;
    a.ops = &ops;
    return ref_family(&a);
}

static int run_whole(void *args) { return whole(args); }
static int run_whole_keeping(void *args) { return family_kept(args, whole); }
static const struct kcp_variant variants[] = {
    { "16_family", "whole", "", KCP_F64, KCP_HOST, "any", run_whole, NULL },
    { "16_family", "whole_keeping", "", KCP_F64, KCP_HOST, "any", run_whole_keeping,
      NULL } };

/* Computes, without kcp_exchange_formula, the bytes that rank r sends for one sequence
 * over R ranks. `m` is the number of elements sent per row of M. */
static int64_t bytes_of(const struct kcp_call *c, int r, int backward, int m)
{
    const int64_t row = 8 * c->HV * c->K, later = backward ? r : c->R - 1 - r;
    int64_t bytes = 0;
    if (c->form == KCP_ALL_GATHER) return (c->R - 1) * row * (c->V + m);
    if (c->form != KCP_SCAN) return later > 0 ? row * c->V : 0;
    for (int64_t d = 1; d <= later; d *= 2) bytes += row * (c->V + m);
    return bytes;
}

/* Checks the bytes of both passes, for one sequence of 260 tokens on five ranks. */
static int count(struct kcp_report *rep, const struct kcp_variant *v,
                 const struct kcase *k, int m, int keeps)
{
    int status = KCP_OK;
    for (int pass = 0; pass < 2 && !status; pass++) {
        struct trial t = { .stage = stage_find("16"), .variant = v,
                           .mem = &host_memory };
        char why[160] = "";
        status = trial_case(&t, k, (enum kcp_pass)pass, v->storage, why, sizeof why);
        EXPECT(rep, !status, "%s: status %d, %s", v->name, status, why);
        for (int r = 0; r < t.R && !status; r++) {
            int64_t bytes = bytes_of(&k->call, r, pass, m);
            if (pass && !keeps) bytes += bytes_of(&k->call, r, 0, m);
            EXPECT(rep, t.rank[r].traffic.bytes == bytes, "%s %s %s, pass %d, rank %d: "
                   "sent %lld bytes, expected %lld", v->name, model_name[k->call.model],
                   kcp_form_names[k->call.form], pass, r,
                   (long long)t.rank[r].traffic.bytes, (long long)bytes);
        }
        trial_free(&t);
    }
    return status;
}

static int bytes(struct kcp_report *rep)
{
    const struct kcp_variant ref = reference_of(stage_find("16"));
    enum kcp_model models[KCP_MODELS];
    const int n = models_of(stage_find("16"), models);
    int status = KCP_OK;
    for (int i = 0; i < n * KCP_FORMS && !status; i++) {
        const int model = models[i % n];
        struct kcase k;
        char words[300], why[160];
        snprintf(words, sizeof words, "%s %s " SIZES "lengths=260 "
                 "cuts=0,50,100,131,200,260", model_name[model], kcp_form_names[i / n]);
        if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
        const int K = k.call.K, m = kcp_models[model].map == KCP_DIAGONAL ? 1 : K;
        status = count(rep, &ref, &k, m, 0);
        if (!status) status = count(rep, &family_keeping, &k, m, 1);
        if (!status) status = count(rep, &variants[0], &k, K, 0);
        if (!status) status = count(rep, &variants[1], &k, K, 1);
    }
    return status;
}
KCP_CHECK(check_16_wire) = { "16_family", "wire",
    "a diagonal M is sent as K numbers, or K^2 if requested, and others as K^2; "
    "in each exchange form, each rank sends the expected bytes", bytes };

static int diagonal(struct kcp_report *rep)
{
    static const char *const owners[] = { "R=3", "R=4 owners=zigzag",
                                          "R=5 owners=striped" };
    const struct kcp_variant ref = reference_of(stage_find("16"));
    int status = KCP_OK;
    for (int i = 0; i < 6 * KCP_FORMS && !status; i++) {
        const int form = i / 6, L = i % 6 > 2 && form != KCP_SCAN ? 48 : 0;
        char words[300];
        snprintf(words, sizeof words, "gla %s " BATCH "%s %s", kcp_form_names[form],
                 owners[i % 3], L ? "L=48" : "");
        status = bits_agree(rep, &ref, words, &variants[0], "");
    }
    return status;
}
KCP_CHECK(check_16_diagonal) = { "16_family", "diagonal",
    "in every exchange form GLA gives equal bits whether it sends only the diagonal "
    "of M or all of M", diagonal };
