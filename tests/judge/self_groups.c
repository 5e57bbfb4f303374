/* self_groups.c -- the judge judged: a message that lies outside its group is seen.
 *
 * Book: chapter 07, CONTRIBUTING.md, "How the judge works".
 * Checked by: itself: the same with every pair passes.  Next: groups.c, who counts.
 *
 * One pair of begin and end after the other is left out, as if its two lines were gone.
 */
#include "judge.h"

#include <string.h>

/* The pair that is left out, 0: none; the pass in which it is; most pairs of a rank. */
static struct { int pair, most; enum kcp_pass pass; } out;

/* A rank is a thread, whose pairs come one after the other. */
static __thread struct { int (*group)(struct kcp_comm *, int); int begun; } mine;

static int without_one(struct kcp_comm *c, int begin)
{
    mine.begun += begin;
    return mine.begun == out.pair ? KCP_OK : mine.group(c, begin);
}

static int planted(void *args, int (*run)(void *))
{
    const struct kcp_call *c = args;
    struct kcp_comm *comm = c->comm;
    if (!comm || c->pass != out.pass) return run(args);
    mine.group = comm->group;
    mine.begun = 0;
    comm->group = without_one;
    const int status = run(args);
    comm->group = mine.group;
    if (c->r == 0 && mine.begun > out.most) out.most = mine.begun;
    return status;
}

static int whole_layer(void *args) { return ref_forward(args); }
static int whole_conv(void *args) { return ref_conv(args); }
static int layer(void *args) { return planted(args, whole_layer); }
static int conv(void *args) { return planted(args, whole_conv); }

/* A pass of a case, in which rank 0 makes so many pairs: each is left out once. */
static void each_is_seen(struct kcp_report *rep, const char *stage, int (*run)(void *),
                         const char *words, enum kcp_pass pass, int pairs)
{
    const struct kcp_variant v = { stage, "tampered", "", KCP_F64, KCP_HOST, "any", run,
                                   NULL };
    struct verdict t;
    struct kcase k;
    char why[120] = "";
    EXPECT(rep, !case_parse(words, &k, why, sizeof why), "%s: %s", words, why);
    out.most = 0;
    out.pass = pass;
    for (out.pair = 0; out.pair <= pairs; out.pair++) {
        t.outcome = SKIP;
        judge_case(stage_find(stage), &v, &k, KCP_F64, &t);
        EXPECT(rep, out.pair ? t.outcome == FAIL && strstr(t.why, "outside a group")
                             : t.outcome == PASS,
               "%s, %s, without pair %d: %s: %s", stage, words, out.pair,
               outcome_name[t.outcome], t.why);
    }
    out.pair = 0;
    EXPECT(rep, out.most == pairs, "%s, %s: %d pairs on rank 0, expected %d", stage,
           words, out.most, pairs);
}

static int grouped(struct kcp_report *rep)
{
    const char *const rows = "live kda R=7 D=5 Wc=6 lengths=3,4,2 h0 x0 dxt id=1";
    each_is_seen(rep, "08_forward", layer, "live kda chain R=2 H=1 HV=1 K=8 V=4 C=16 "
                 "lengths=40 h0 id=1", KCP_FORWARD, 1);
    each_is_seen(rep, "08_forward", layer, "live kda pipeline R=2 H=1 HV=1 K=8 V=4 "
                 "C=16 lengths=40 h0 blocks=2 id=1", KCP_FORWARD, 2);
    each_is_seen(rep, "08_forward", layer, "live kda scan R=3 H=1 HV=1 K=8 V=4 C=16 "
                 "lengths=60 h0 id=1", KCP_FORWARD, 2);
    each_is_seen(rep, "14_conv", conv, rows, KCP_FORWARD, 2);
    each_is_seen(rep, "14_conv", conv, rows, KCP_BACKWARD, 4);
    return KCP_OK;
}
KCP_CHECK(check_00_grouped) = { "00_judge", "grouped",
    "sends and receives outside a group are seen, whichever pair of it is missing",
    grouped };
