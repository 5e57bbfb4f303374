/* checks.c -- checks gradients by finite differences, and that all cuts agree.
 * Book: chapter 16. */
#include "run.h"

static int each_model(struct kcp_report *rep, const char *words,
                      int (*check)(struct kcp_report *, const char *, const char *))
{
    enum kcp_model models[KCP_MODELS];
    const int n = models_of(stage_find("16"), models);
    int status = KCP_OK;
    for (int i = 0; i < n && !status; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s %s", model_name[models[i]], words);
        status = check(rep, "16", text);
    }
    return status;
}

static int every_cut(struct kcp_report *rep)
{
    return each_model(rep, BATCH, cuts_agree);
}
KCP_CHECK(check_16_every_cut) = { "16_family", "every_cut",
    "on 1 to 12 ranks with any cuts and exchange forms, outputs and gradients agree "
    "with the token recurrence to 1e-12", every_cut };

static int canonical(struct kcp_report *rep)
{
    return each_model(rep, BATCH "L=48", canonical_reference);
}
KCP_CHECK(check_16_canonical) = { "16_family", "canonical",
    "canonical segments give equal bits for R = 1, 2, 3, 4, 7 and 8", canonical };

/* Compares a backward that reads h_kept with a backward that exchanges states again. */
static int keeps(struct kcp_report *rep, const char *stage, const char *words)
{
    static const char *const cuts[] = { "R=5", "cuts=0,0,0,64,400,421,421", "R=2 L=48",
                                        "R=4 L=48" };
    const struct kcp_variant ref = reference_of(stage_find(stage));
    int status = KCP_OK;
    for (int i = 0; i < 4 && !status; i++) {
        char text[300];
        snprintf(text, sizeof text, "%s %s", words, cuts[i]);
        status = bits_agree(rep, &ref, text, &family_keeping, "");
    }
    return status;
}

static int kept(struct kcp_report *rep)
{
    return each_model(rep, BATCH, keeps);
}
KCP_CHECK(check_16_kept) = { "16_family", "kept",
    "backward gives equal bits whether it reads h_kept or exchanges states again",
    kept };

static int differences(struct kcp_report *rep)
{
    return each_model(rep, SIZES "lengths=40,0,1,19,0", gradients_agree);
}
KCP_CHECK(check_16_differences) = { "16_family", "differences",
    "gradients, computed token by token or by chunks, agree with finite "
    "differences of the loss",
    differences };
