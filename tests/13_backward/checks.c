/* checks.c -- compares results for all cuts, exchange algorithms and save modes.
 * Book: chapters 12 and 13.
 *
 * The batch has six sequences (two empty, one of one token), h0, dht, softplus gates,
 * two value heads per key head, and K != V. */
#include "core/paths.h"
#include "cuda/host/split.h"
#include "tests/judge/trial.h"

#define BATCH \
    "live H=2 HV=4 K=8 V=6 C=16 lengths=260,0,1,69,91,0 h0 dht l2norm gate=softplus " \
    "beta=sigmoid2 scale=0.4 seed=13 id=1 "

static int each_model(struct kcp_report *rep, const char *words,
                      int (*check)(struct kcp_report *, const char *, const char *))
{
    char text[300];
    snprintf(text, sizeof text, "kda %s", words);
    const int status = check(rep, "13", text);
    snprintf(text, sizeof text, "gdn %s", words);
    return status ? status : check(rep, "13", text);
}

static int one_rank(struct kcp_report *rep)
{
    return each_model(rep, BATCH, cuts_agree);
}
KCP_CHECK(check_13_one_rank) = { "13_backward", "one_rank",
    "all exchange forms on 1 to 12 ranks, with uneven cuts and empty ranks, agree"
    " with the recurrence to 1e-12", one_rank };

static int canonical(struct kcp_report *rep)
{
    return each_model(rep, BATCH "L=48", canonical_reference);
}
KCP_CHECK(check_13_canonical) = { "13_backward", "canonical",
    "canonical segments give equal bits of all outputs, including dA_log and ddt_bias, "
    "for R = 1, 2, 3, 4, 7 and 8", canonical };

/* Checks that both modes of saving tensors give equal bits. On a GPU this holds only
 * for blocks of format `chunks`, where forward's scan stores the states that backward
 * would recompute. */
static int modes_agree(struct kcp_report *rep, const struct kcp_variant *v,
                       const char *words)
{
    const int all = v->where == KCP_HOST ||
                    kcp_path_format(v->stage, v->name) == KCP_FORMAT_CHUNKS;
    return all ? bits_agree(rep, v, words, v, "save=all") : KCP_OK;
}

static int ref_modes(struct kcp_report *rep, const char *stage, const char *words)
{
    const struct kcp_variant ref = reference_of(stage_find(stage));
    return modes_agree(rep, &ref, words);
}

static int modes(struct kcp_report *rep)
{
    static const char *const words[] = {
        BATCH "R=5 layout=vk", BATCH "R=5 reuse_M",
        BATCH "L=48 cuts=0,3,3,130,131,205,263,421" };
    int status = KCP_OK;
    for (int i = 0; i < 3 && !status; i++)
        status = each_model(rep, words[i], ref_modes);
    return status;
}
KCP_CHECK(check_13_modes) = { "13_backward", "modes",
    "modes recompute and save-all give equal bits", modes };

static int gpu_modes(struct kcp_report *rep)
{
    static const char *const words[] = {
        "kda live H=2 HV=4 K=64 V=64 lengths=150,0,300 l2norm beta=sigmoid h0 dht id=1",
        "kda live H=2 K=128 V=128 lengths=700,65 strip=2 l2norm h0 dht id=1",
        ("kda live all_gather H=2 K=128 V=128 lengths=500,100 R=3 l2norm reuse_M h0 dht"
         " id=1"),
        "gdn live H=1 HV=3 K=128 V=128 lengths=1,600 gate=softplus dht id=1",
        "gdn live H=1 HV=2 K=64 V=64 lengths=700 strip=2 l2norm h0 id=1",
        "gdn live chain H=2 K=128 V=64 lengths=365 R=2 h0 dht layout=vk id=1" };
    const struct kcp_variant *v[256];
    const int n = kcp_variants("13_backward", NULL, v, 256);
    int err = KCP_OK;
    if (!gpu_of_threads()) {
        printf("  (found no GPU that threads can share: not run)\n");
        return KCP_NA;
    }
    for (int i = 0; i < n && !err; i++)
        for (size_t j = 0; j < sizeof words / sizeof *words && !err; j++)
            if (v[i]->where == KCP_DEVICE) err = modes_agree(rep, v[i], words[j]);
    return err;
}
KCP_CHECK(check_13_gpu_modes) = { "13_backward", "gpu_modes",
    "on a GPU, mode save-all (block format `chunks`) gives the bits of mode "
    "recompute", gpu_modes };

/* Checks which of rank r's scans run in the first and in the second GPU launch. Each
 * segment must have exactly one reverse scan and one scan of states (no scan of states
 * with save-all). The first launch must compute all results that earlier ranks need. */
static void launches(struct kcp_report *rep, const struct kcp_plan *p, int r,
                     enum kcp_save save, int processors)
{
    const struct kcp_call c = { .K = 128, .V = 128, .HV = 32, .KG = 128, .C = 64,
        .NS = p->ctx[r].NS, .NC = p->ctx[r].NC, .R = p->R, .r = r, .save = save,
        .plan = p };
    const int entire = kcp_entire(&c);
    for (int s = 0; s < c.NS; s++) {
        const int first = kcp_scan_jobs(&c, entire, s, 0, processors);
        const int second = kcp_scan_jobs(&c, entire, s, 1, processors);
        const int needed = kcp_plan_want(p, p->ctx[r].seg0 + s, 1) & KCP_WANT_H;
        const int states = save != KCP_SAVE_ALL ? KCP_JOB_STATES : 0;
        const int given = p->seg[p->ctx[r].seg0 + s].last;
        EXPECT(rep, !(first & second) &&
               ((first | second) & ~KCP_JOB_DH_EXT) == (states | KCP_JOB_REVERSE),
               "rank %d, segment %d: job bits %d in launch 1, %d in 2, expected each "
               "bit of %d once", r, s, first, second, states | KCP_JOB_REVERSE);
        EXPECT(rep, !needed || first & (KCP_JOB_DH_EXT | KCP_JOB_REVERSE),
               "rank %d, segment %d: job bits %d of launch 1 omit the needed dh_ext",
               r, s, first);
        EXPECT(rep, entire || !(first & KCP_JOB_REVERSE) || given,
               "rank %d, segment %d: the reverse scan runs before dS arrives", r, s);
    }
}

static int jobs(struct kcp_report *rep)
{
    static const int64_t cu[] = { 0, 70, 71, 300, 1000, 1003 };
    for (int i = 0; i < 32; i++) {
        struct kcp_plan *p = NULL;
        const int R = 1 + i / 8, L = i % 2 ? 128 : 0;
        if (kcp_plan_make(&p, 5, cu, R, NULL, L, 64, 0, NULL)) return KCP_NO_MEMORY;
        for (int r = 0; r < R; r++)
            launches(rep, p, r, i / 2 % 2 ? KCP_SAVE_ALL : KCP_RECOMPUTE,
                     i / 4 % 2 ? 132 : 1000);
        kcp_plan_free(p);
    }
    return KCP_OK;
}
KCP_CHECK(check_13_jobs) = { "13_backward", "jobs",
    "each scan of a segment runs once, before or after the exchange", jobs };
