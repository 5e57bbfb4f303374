/* self_moved.c -- the judge judged: how far roundings on the way move what is expected.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.  Next: check.c.
 */
#include "paths.h"
#include "trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How far one more rounding of the inputs moves w of chapter 03, beside its size. */
static double moves_w(const char *words)
{
    struct kcase k;
    char why[200] = "";
    if (case_parse(words, &k, why, sizeof why)) return NAN;
    const struct kcp_stage *s = stage_find("03");
    struct kcp_plan *p = case_plan(&k, 1);
    const struct expected *x = expected_of(s, &k, KCP_FORWARD, KCP_BF16, p);
    const struct tensor *w = x ? tensor_find(&x->want, "w") : NULL;
    const double *moved = w ? expected_moved("w", MOVED_DRAWS) : NULL;
    double off = 0, own = 0;
    for (int64_t i = 0; moved && i < w->n; i++) {
        off += moved[i] * moved[i];
        own += ((double *)w->p)[i] * ((double *)w->p)[i];
    }
    kcp_plan_free(p);
    return moved ? sqrt(off / own) : NAN;
}

/* Limits rise where the numbers themselves are ill-conditioned, and there alone. */
static int conditioned(struct kcp_report *rep)
{
    const char *one = "live kda H=1 HV=2 K=64 V=64 C=64 R=1 lengths=150 "
                      "h0 beta=sigmoid",
               *many = "live kda H=1 HV=2 K=64 V=64 C=64 R=1 lengths=150 h0 "
                       "beta=sigmoid alike=0.99";
    const double plain = moves_w(one), alike_ = moves_w(many);
    EXPECT(rep, plain > 1e-4 && plain < 2e-3, "independent keys: %.1e", plain);
    EXPECT(rep, alike_ > 1.5 * plain && alike_ < 2e-2, "alike keys: %.1e", alike_);
    return KCP_OK;
}
KCP_CHECK(check_00_conditioned) = { "00_judge", "conditioned",
    "one more rounding of the inputs moves w where keys are alike, else hardly",
    conditioned };

/* A layer's outputs by chapters, numbers rounded on the way, are the token recurrence's
 * as far as the type allows, name by name, and no number is as it was. */
static void moved_of(struct kcp_report *rep, const char *stage, enum kcp_pass pass,
                     const char *words, double most)
{
    struct kcase k;
    char why[200] = "";
    const struct kcp_stage *s = stage_find(stage);
    if (case_parse(words, &k, why, sizeof why)) {
        EXPECT(rep, 0, "%s: %s", words, why);
        return;
    }
    struct kcp_plan *p = case_plan(&k, k.call.R);
    const struct expected *x = expected_of(s, &k, pass, KCP_F32, p);
    const struct kcp_field *f;
    for (int i = 0; x && (f = trial_field(s, i)); i++) {
        const struct tensor *want = tensor_find(&x->want, f->name);
        if (field_in(f) || !want) continue;
        const double *by = expected_moved(f->name, MOVED_DRAWS);
        double off = 0, own = 0;
        for (int64_t j = 0; j < want->n && by; j++) {
            off += by[j] * by[j];
            own += ((double *)want->p)[j] * ((double *)want->p)[j];
        }
        const double moved = sqrt(off / own);
        EXPECT(rep, by && (!own || (moved > 1e-9 && moved < most)), "%s %s: %g: %s",
               stage, f->name, moved, words);
    }
    kcp_plan_free(p);
}

/* One draw alone says less, number by number, and the eighth adds to it. */
static int by_draws(struct kcp_report *rep)
{
    struct kcase k;
    char why[200] = "";
    const struct kcp_stage *s = stage_find("03");
    double sum[MOVED_DRAWS + 1] = { 0 };
    int fell = 0;
    if (case_parse("live kda H=1 HV=2 K=16 V=8 C=16 R=1 lengths=70 h0", &k, why,
                   sizeof why)) return KCP_BAD;
    struct kcp_plan *p = case_plan(&k, 1);
    const struct expected *x = expected_of(s, &k, KCP_FORWARD, KCP_BF16, p);
    const struct tensor *w = x ? tensor_find(&x->want, "w") : NULL;
    double *before = calloc(w ? (size_t)w->n : 1, sizeof *before);
    for (int draws = 1; w && before && draws <= MOVED_DRAWS; draws++) {
        const double *by = expected_moved("w", draws);
        for (int64_t i = 0; by && i < w->n; i++) {
            fell += by[i] < before[i];
            before[i] = by[i];
            sum[draws] += by[i] * by[i];
        }
        EXPECT(rep, by && sum[draws] > 1.02 * sum[draws - 1], "draw %d: %g after %g",
               draws, sum[draws], sum[draws - 1]);
    }
    EXPECT(rep, !fell && sum[1] < 0.3 * sum[MOVED_DRAWS], "%d numbers fell", fell);
    free(before);
    kcp_plan_free(p);
    return KCP_OK;
}
KCP_CHECK(check_00_by_draws) = { "00_judge", "by_draws",
    "fewer draws say less of how far a number moves, never more", by_draws };

static int moved(struct kcp_report *rep)
{
    static const char *const sizes = "R=3 H=2 HV=4 K=8 V=6 C=16 lengths=0,40,0,61,1 "
                                     "h0 dht l2norm beta=sigmoid gate=softplus";
    for (int m = 0; m < 4; m++) {
        char words[200];
        snprintf(words, sizeof words, "live %s %s%s", model_name[m & 1], sizes,
                 m > 1 ? " layout=vk" : "");
        moved_of(rep, "08", KCP_FORWARD, words, 1e-4);
        moved_of(rep, "13", KCP_BACKWARD, words, 1e-4);
    }
    return KCP_OK;
}
/* So of whatever is drawn, but where terms cancel: what differs by more than roundings
 * is no measure. */
static int moved_drawn(struct kcp_report *rep)
{
    static const char *const stages[] = { "08", "13" };
    for (int i = 0; i < 2; i++) {
        const struct kcp_stage *s = stage_find(stages[i]);
        const struct kcp_variant v = { s->name, "ref", "the reference", KCP_F32,
                                       KCP_HOST, "any", s->ref, NULL };
        const struct options o = { .seed = 7 };
        int n = 0;
        struct kcase *list = cases_of(s, &v, &o, NULL, &n);
        char words[1024];
        for (int j = 0; list && j < n; j++)
            if (list[j].call.T < 100) {
                case_print(&list[j], words, sizeof words);
                moved_of(rep, stages[i], i ? KCP_BACKWARD : KCP_FORWARD, words, 1e-2);
            }
        EXPECT(rep, list && n > 40, "%d cases of %s", n, s->name);
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_moved_drawn) = { "00_judge", "moved_drawn",
    "and so do those of each drawn case of few tokens", moved_drawn };

KCP_CHECK(check_00_moved) = { "00_judge", "moved",
    "a layer rounded on its way moves each of its outputs, and hardly", moved };
