/* self_arena.c -- a rank's arrays in one allocation, as on a GPU: what it must show.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself, without a GPU: a
 * memory that is the host's, but far as a GPU's is.
 * Next: self_workspace.c.
 */
#include "trial.h"
#include <stdlib.h>
#include <string.h>

static struct memory far_memory;
static int copies;
static int counted_copy(void *to, const void *from, size_t n)
{
    copies++;
    return host_memory.copy(to, from, n);
}

/* By how many bytes beyond its end, or before its begin, o is left. */
static int64_t beyond;
static int strays(void *args)
{
    struct kcp_chunk *a = args;
    const int64_t bytes = 8 * a->T * a->HV * a->V;
    const int status = ref_chunk(args);
    ((char *)a->o)[beyond < 0 ? beyond : bytes + beyond] = 1;
    return status;
}
/* Far behind the last array, and far before the first. */
static int strays_at_ends(void *args)
{
    struct kcp_chunk *a = args;
    const int64_t bytes = 8 * a->NS * a->HV * a->K * a->V;
    const int status = ref_chunk(args);
    if (beyond < 0) ((char *)(void *)(uintptr_t)a->cu)[beyond] = 1;
    else ((char *)a->h_out)[bytes + beyond] = 1;
    return status;
}
static int reads_beyond(void *args)
{
    struct kcp_chunk *a = args;
    const int64_t n = a->T * a->HV * a->V;
    const int status = ref_chunk(args);
    ((double *)a->o)[0] += 0 * ((const double *)a->u)[beyond < 0 ? beyond : n + beyond];
    return status;
}
static int into_u(void *args)
{
    const int status = ref_chunk(args);
    ((double *)((struct kcp_chunk *)args)->u)[3] += 1;
    return status;
}
static int plain(void *args) { return ref_chunk(args); }

/* A run there of a case of 04: its status, why, and whether o begins with a number. */
static int tried(int (*run)(void *), int again, char *why, size_t n, double *first)
{
    const struct kcp_stage *s = stage_find("04_chunk");
    const struct kcp_variant v = { s->name, "tampered", "", KCP_F64, KCP_DEVICE, "any",
                                   run, NULL };
    struct trial t = { .stage = s, .variant = &v, .mem = &far_memory };
    struct kcase k;
    case_parse("live kda H=1 HV=2 K=8 V=6 C=16 lengths=40,7 h0", &k, why, n);
    struct kcp_plan *p = case_plan(&k, 1);
    const struct expected *x = expected_of(s, &k, KCP_FORWARD, KCP_F64, p);
    why[0] = 0;
    int status = trial_fill(&t, &k, p, KCP_FORWARD, &x->in, &x->want);
    copies = 0;
    if (!status) status = trial_run(&t, why, n);
    if (!status && again) rank_args_reset(&t.rank[0]);
    if (!status && again) status = trial_run(&t, why, n);
    for (int i = 0; i < t.rank[0].n && !status; i++) {
        const struct buffer *o = &t.rank[0].buffer[i];
        if (o->want && !again && run == plain && memcmp(o->image + FENCE, o->want,
                                                        o->bytes)) status = -1;
        if (!strcmp(o->field->name, "o")) memcpy(first, o->image + FENCE, 8);
    }
    trial_free(&t);
    kcp_plan_free(p);
    return status;
}

static int arena(struct kcp_report *rep)
{
    char why[160];
    double first = 0, second = 0;
    far_memory = host_memory;
    far_memory.is_far = 1;
    far_memory.copy = counted_copy;
    EXPECT(rep, !tried(plain, 0, why, sizeof why, &first) && copies == 2,
           "not the reference's own bits: %s; %d copies back", why, copies);
    EXPECT(rep, !tried(plain, 1, why, sizeof why, &second) && first == second &&
           copies == 4, "not the same again: %s; %d copies", why, copies);
    static const int64_t near[] = { 0, 100, -1, -200 }, far[] = { 600, 4000, -600 };
    for (int i = 0; i < 4; i++) {
        beyond = near[i];
        EXPECT(rep, tried(strays, 0, why, sizeof why, &first) == KCP_BAD &&
               strstr(why, beyond < 0 ? "before o" : "past o"), "%d bytes off: %s",
               (int)beyond, why);
        EXPECT(rep, !tried(reads_beyond, 0, why, sizeof why, &first) && first != first,
               "a read %d numbers off is %g", (int)beyond, first);
    }
    for (int i = 0; i < 3; i++) {
        beyond = far[i];
        EXPECT(rep, tried(strays, 0, why, sizeof why, &first) == KCP_BAD &&
               strstr(why, "far past"), "%d bytes off: %s", (int)beyond, why);
    }
    static const int64_t at_ends[] = { 300, 4300, -300, -4300 };
    for (int i = 0; i < 4; i++) {
        beyond = at_ends[i];
        EXPECT(rep, tried(strays_at_ends, 0, why, sizeof why, &first) == KCP_BAD &&
               strstr(why, beyond < 0 ? "far before cu" : "far past h_out"),
               "%d bytes beyond the ends: %s", (int)beyond, why);
    }
    EXPECT(rep, tried(into_u, 0, why, sizeof why, &first) == KCP_BAD &&
           strstr(why, "into input u"), "a write into an input: %s", why);
    return KCP_OK;
}
KCP_CHECK(check_00_arena) = { "00_judge", "arena",
    "a rank's arrays in one allocation: NaN between, each stray write named, one copy",
    arena };
