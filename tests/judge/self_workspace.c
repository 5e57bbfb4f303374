/* self_workspace.c -- what nobody wrote is NaN: workspaces, the block before forward.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.
 * Next: self_lists.c.
 */
#include "judge.h"
#include <string.h>

/* 04 that adds 0 times a number of its workspace, which it wrote, or which nobody did:
 * on the host by itself, on a GPU around a kernel that is there. */
static const struct memory *held_in;
static int (*inner)(void *), writes_first;
static size_t one_number(const void *a) { return 64; }
static int reads_work(void *args)
{
    struct kcp_chunk *a = args;
    char x[8], work[8];
    const size_t n = held_in == &host_memory ? 8 : 2;        /* double, bf16 */
    int status = inner(args);
    if (!status && held_in->sync()) status = KCP_CUDA;
    if (!status) status = held_in->copy(x, a->o, n);
    if (!status && writes_first) status = held_in->copy(a->work, x, n);
    if (!status) status = held_in->copy(work, a->work, n);
    for (size_t i = 0; i < n; i++) x[i] |= work[i];       /* NaN stays, its own stays */
    return status ? status : held_in->copy(a->o, x, n);
}

static int poisons(struct kcp_report *rep, const struct memory *m,
                   const struct kcp_variant *v)
{
    const struct kcp_variant reads = { v->stage, "reads_work", "", v->storage, v->where,
                                       v->shapes, reads_work, one_number };
    struct kcase k;
    struct verdict t;
    char why[100];
    case_parse("live kda H=1 HV=2 K=64 V=64 C=64 lengths=70", &k, why, sizeof why);
    held_in = m;
    inner = v->run;
    for (writes_first = 0; writes_first < 2; writes_first++) {
        t.outcome = SKIP;
        judge_case(stage_find(v->stage), &reads, &k, v->storage, &t);
        EXPECT(rep, t.outcome == (writes_first ? PASS : FAIL) &&
               t.worst.nan == !writes_first, "%s, workspace %s: %s %s", m->name,
               writes_first ? "written" : "unwritten", outcome_name[t.outcome], t.why);
    }
    return KCP_OK;
}

static int plain(void *a) { return ref_chunk(a); }

static int unwritten(struct kcp_report *rep)
{
    const struct kcp_variant v = { "04_chunk", "honest", "", KCP_F64, KCP_HOST, "any",
                                   plain, NULL };
    return poisons(rep, &host_memory, &v);
}
KCP_CHECK(check_00_unwritten) = { "00_judge", "unwritten",
    "a read of a workspace that nobody wrote is NaN, of one that was is not",
    unwritten };

static int gpu_unwritten(struct kcp_report *rep)
{
    const struct memory *m = device_memory();
    const struct kcp_variant *v;
    if (!m) {
        printf("  00_judge gpu_unwritten: no device\n");
        return KCP_NA;
    }
    if (kcp_variants("04_chunk", "v1_column", &v, 1) != 1) return KCP_NA;
    return poisons(rep, m, v);
}
KCP_CHECK(check_00_gpu_unwritten) = { "00_judge", "gpu_unwritten",
    "the same on a GPU, around a kernel", gpu_unwritten };

/* 04 that reads its workspace, which it has written, or the number past its end; 13 of
 * the block that forward left likewise. */
static int past;
static size_t four_numbers(const void *a) { return 32; }
static int reads_past_work(void *args)
{
    struct kcp_chunk *a = args;
    double x;
    memset(a->work, 0, a->work_bytes);
    const int status = ref_chunk(args);
    memcpy(&x, (const char *)a->work + a->work_bytes - (past ? 0 : sizeof x), sizeof x);
    ((double *)a->o)[0] += 1000 * x;
    return status;
}

static int reads_past_saved(void *args)
{
    struct kcp_backward *a = args;
    const struct kcp_saved *s = a->saved;
    const char *block = a->saved;
    double x;
    const int status = ref_backward(args);
    memcpy(&x, block + (past ? a->saved_bytes : s->bytes - sizeof x), sizeof x);
    if (a->T) ((double *)a->dv)[0] += 0 * x;               /* NaN alone is to be seen */
    return status;
}

static int read_past(struct kcp_report *rep)
{
    static const struct { const char *what; struct kcp_variant v; } plants[] = {
        { "the workspace", { "04_chunk", "reads_past", "", KCP_F64, KCP_HOST, "any",
                             reads_past_work, four_numbers } },
        { "the saved block", { "13_backward", "reads_past", "", KCP_F64, KCP_HOST,
                               "any", reads_past_saved, NULL } } };
    for (int i = 0; i < 4; i++) {
        const struct kcp_variant *v = &plants[i / 2].v;
        struct verdict t = { .outcome = SKIP };
        struct kcase k;
        char why[100];
        past = i % 2;
        case_parse("live kda R=2 H=1 HV=2 K=8 V=8 C=16 lengths=40 h0 dht", &k, why,
                   sizeof why);
        judge_case(stage_find(v->stage), v, &k, KCP_F64, &t);
        EXPECT(rep, t.outcome == (past ? FAIL : PASS) && t.worst.nan == past,
               "%s: a read %s its end: %s %s", plants[i / 2].what,
               past ? "past" : "before", outcome_name[t.outcome], t.why);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_read_past) = { "00_judge", "read_past",
    "a read past the end of a workspace, or of what forward left, is NaN", read_past };

/* A backward that has a workspace in its first two runs alone: the second is the first
 * with the arguments that the others get. Nobody may give it back once more: not the
 * judge's own forward, which begins from the arguments of backward. */
static int runs, left_over;
static size_t work_at_first(const void *a) { return runs < 2 ? 64 : 0; }
static int runs_again(void *args)
{
    struct kcp_call *c = args;
    left_over += !c->work_bytes && c->work;
    if (c->work_bytes) memset(c->work, 0, c->work_bytes);
    runs++;
    return ref_backward(args);
}

static int again(struct kcp_report *rep)
{
    const struct kcp_variant v = { "13_backward", "runs_again", "", KCP_F64, KCP_HOST,
                                   "any", runs_again, work_at_first };
    const int asked = repeats_asked;
    struct kcase k;
    struct verdict t = { .outcome = SKIP };
    char why[100];
    case_parse("live kda H=1 HV=2 K=4 V=4 C=4 lengths=9 h0 dht id=1", &k, why,
               sizeof why);
    runs = left_over = 0;
    repeats_asked = 3;
    judge_case(stage_find(v.stage), &v, &k, v.storage, &t);
    repeats_asked = asked;
    EXPECT(rep, t.outcome == PASS && runs == 4, "%s after %d runs: %s",
           outcome_name[t.outcome], runs, t.why);
    EXPECT(rep, !left_over, "%d runs without a workspace were given an old one",
           left_over);
    return KCP_OK;
}
KCP_CHECK(check_00_again) = { "00_judge", "again",
    "a workspace is given back once, also where a case is repeated", again };
