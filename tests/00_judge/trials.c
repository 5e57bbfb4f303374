/* trials.c -- tests that each plant (tests/judge/plants.h) gets the expected verdict.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * Most plants run twice: in host memory, and in memory marked as GPU memory, where all
 * arrays of a rank are in one allocation. */
#include "tests/judge/plants.h"

#include <stdlib.h>
#include <string.h>

static void verdict_text(const struct verdict *t, char *text, size_t n)
{
    const struct worst *w = &t->worst;
    const char *forward = w->of_forward ? "forward " : "";
    const char *field = w->field;
    if (t->outcome == MARGINAL) snprintf(text, n, "marginal");
    else if (t->outcome != FAIL)
        snprintf(text, n, "%s, %s at %.2f", outcome_name[t->outcome], field,
                 w->tol > 0 ? w->err / w->tol : 0);
    else if (w->nan) snprintf(text, n, "NaN in %s%s", forward, field);
    else if (w->tol > 0 && w->err > w->tol)
        snprintf(text, n, "%s%s wrong in head %d: %s", forward, field, w->head, t->map);
    else snprintf(text, n, "%s", t->why);
}

static void judge_plant(struct kcp_report *rep, const struct plant *p,
                        const struct memory *m)
{
    static const char *const usual = "live kda H=1 HV=2 K=8 V=6 C=16 lengths=90,7 h0";
    const struct kcp_stage *s = stage_find(p->stage);
    const struct kcp_variant v = { s->name, p->name, "", KCP_F64, KCP_HOST, "any",
                                   p->run, p->work };
    const char *words = p->cases ? p->cases : usual;
    const int is_bf16 = !strncmp(words, "bf16: ", 6);
    struct kcase list[8];
    struct verdict t = { .outcome = SKIP };
    char text[1400], why[160];
    const int n = cases_parse(words + (is_bf16 ? 6 : 0), list, 8, why, sizeof why);
    EXPECT(rep, n > 0, "%s: %s", p->name, why);
    planted = p;
    memory_forced = m;
    if (p->forward) trial_forward = p->forward;
    repeats_begin();
    for (int i = 0; i < n; i++)
        judge_case(s, &v, &list[i], is_bf16 ? KCP_BF16 : KCP_F64, &t);
    trial_forward = ref_forward;
    memory_forced = NULL;
    verdict_text(&t, text, sizeof text);
    EXPECT(rep, strstr(text, p->verdict), "%s %s, %s memory: found '%s', expected '%s'",
           p->stage, p->name, m->name, text, p->verdict);
}

static int in_memory(struct kcp_report *rep, const struct memory *m, int but)
{
    for (int i = 0; i < nplants; i++)
        if ((int)plants[i].memory != but) judge_plant(rep, &plants[i], m);
    return KCP_OK;
}

static int on_host(struct kcp_report *rep)
{
    return in_memory(rep, &host_memory, FAR_ONLY);
}

static int copies;
static int counted_copy(void *to, const void *from, size_t n)
{
    copies++;
    return host_memory.copy(to, from, n);
}

static int far(struct kcp_report *rep)
{
    struct memory m = host_memory;
    m.name = "far";
    m.is_far = 1;
    m.copy = counted_copy;
    const int repeats = case_repeats;
    case_repeats = 0;
    judge_plant(rep, &plants[0], &m);
    case_repeats = repeats;
    EXPECT(rep, copies == 2, "%d copies, expected 2: one to the GPU, one back", copies);
    return in_memory(rep, &m, HOST_ONLY);
}

KCP_CHECK(check_00_plants) = { "00_judge", "plants",
    "each plant (a variant, usually with a mistake in values, bounds, workspaces or "
    "messages) gets the expected verdict", on_host };
KCP_CHECK(check_00_plants_far) = { "00_judge", "plants_far",
    "each plant gets the expected verdict if all arrays of a rank are in one "
    "allocation, as on a GPU", far };
