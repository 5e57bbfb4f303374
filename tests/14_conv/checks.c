/* checks.c -- compares the convolution with an oracle, its gradients with finite
 * differences, and the bytes between ranks with a count row by row.
 * Book: chapter 14.
 * The oracle uses neither the plan nor ranks. */
#include "tests/judge/trial.h"

#include <math.h>
#include <string.h>

enum { KINDS = 9 };
static const char *const kinds[KINDS] = {
    "Wc=1", "Wc=4", "Wc=4 h0 act=silu", "Wc=7 D=2 x0", "Wc=3 h0 act=silu dxt",
    "Wc=7 h0 act=silu x0 dxt", "shift Wc=2", "shift Wc=2 x0 dxt", "Wc=2 x0 dxt" };

static int reach_of(const struct kcp_call *c) { return (c->shift ? 2 : c->Wc) - 1; }

static const double *array(const struct tensor_set *b, const char *name)
{
    const struct tensor *t = tensor_find(b, name);
    return t ? t->p : NULL;
}

/* Returns x of token t of sequence n. Before the sequence's start, returns x0 or 0. */
static double x_at(const struct tensor_set *b, const struct kcase *k, int n, int64_t t,
                   int d)
{
    const int D = k->call.D, reach = reach_of(&k->call);
    const double *x0 = array(b, "x0");
    const int64_t i = t - k->cu[n] + reach;
    if (t >= k->cu[n]) return array(b, "x")[t * D + d];
    return x0 && i >= 0 ? x0[(n * reach + i) * D + d] : 0;
}

/* Adds the expected y and xt to the inputs in b. */
static void direct(struct tensor_set *b, const struct kcase *k)
{
    const struct kcp_call *c = &k->call;
    const int reach = reach_of(c);
    double *y = tensor_add(b, "y", "T D", KCP_ACTV, c)->p;
    double *xt = tensor_add(b, "xt", "N Wc-1 D", KCP_ACTV, c)->p;
    const double *w = array(b, "weight"), *bias = array(b, "bias");
    for (int n = 0; n < c->N; n++)
        for (int d = 0; d < c->D; d++) {
            for (int i = 0; i < reach; i++)
                xt[(n * reach + i) * c->D + d] =
                    x_at(b, k, n, k->cu[n + 1] - reach + i, d);
            for (int64_t t = k->cu[n]; t < k->cu[n + 1]; t++) {
                double s = bias ? bias[d] : 0;
                for (int j = 0; j < c->Wc && w; j++)
                    s += w[d * c->Wc + j] * x_at(b, k, n, t + j - c->Wc + 1, d);
                if (c->shift) s = x_at(b, k, n, t - 1, d) - x_at(b, k, n, t, d);
                else if (c->act == KCP_ACT_SILU) s /= 1 + exp(-s);
                y[t * c->D + d] = s;
            }
        }
}

/* Counts the messages with x0. A rank that has one of a sequence's first Wc - 1 tokens
 * receives the sequence's rows of x0 in one message from the owner of x0. If `at_end`
 * is 1, counts the messages with dxt, for a sequence's last Wc - 1 tokens. */
static void states_traffic(const struct trial *t, int at_end, struct kcp_traffic *want)
{
    const int64_t *cuts = t->plan->cuts, *cu = t->k->cu, reach = reach_of(&t->k->call);
    const int *owner = at_end ? t->plan->ht_rank : t->plan->h0_rank;
    for (int n = 0; n < t->k->call.N; n++)
        for (int r = 0; r < t->R; r++) {
            int near = 0;
            for (int64_t i = cu[n]; i < cu[n + 1]; i++) {
                const int64_t away = at_end ? cu[n + 1] - 1 - i : i - cu[n];
                near |= i >= cuts[r] && i < cuts[r + 1] && away < reach;
            }
            if (!near || owner[n] == r) continue;
            want[owner[n]].bytes += (int64_t)sizeof(double) * reach * t->k->call.D;
            want[owner[n]].messages++;
        }
}

/* Counts the halo rows before the first token of rank r, or after the last token of
 * rank r if `back` is 1. Also counts one message per rank that sends such rows. */
static void rows_traffic(const struct trial *t, int r, int back,
                         struct kcp_traffic *want)
{
    const int64_t *cuts = t->plan->cuts, *cu = t->k->cu;
    const int64_t at = back ? cuts[r + 1] - 1 : cuts[r];
    int n = 0, last = -1;
    if (cuts[r] == cuts[r + 1]) return;
    while (cu[n + 1] <= at) n++;
    for (int i = 1; i <= reach_of(&t->k->call); i++) {
        const int64_t token = back ? at + i : at - i;
        int owner = 0;
        if (token < cu[n] || token >= cu[n + 1]) break;
        while (cuts[owner + 1] <= token) owner++;
        want[owner].bytes += (int64_t)sizeof(double) * t->k->call.D;
        want[owner].messages += owner != last;
        last = owner;
    }
}

/* Compares the bytes and messages of each rank with a count row by row. Backward sends
 * the halo rows of x (again) and of the gradient before the activation, and gathers the
 * sums of dweight and dbias once. */
static void check_traffic(struct kcp_report *rep, const struct trial *t)
{
    const struct kcp_call *c = &t->k->call;
    const int back = t->pass == KCP_BACKWARD, gather = back && !c->shift && t->R > 1;
    const int64_t row = (int64_t)sizeof(double) * c->D;
    struct kcp_traffic want[CASE_RANKS] = { { 0 } }, states[CASE_RANKS] = { { 0 } };
    int most = 1;
    for (int r = 0; r < t->R; r++) {
        for (int b = 0; b <= back; b++) rows_traffic(t, r, b, want);
        most = t->plan->ctx[r].NS > most ? t->plan->ctx[r].NS : most;
    }
    if (t->k->with_x0) states_traffic(t, 0, states);
    if (t->k->with_dxt && back) states_traffic(t, 1, states);
    for (int r = 0; r < t->R; r++) {
        const struct kcp_traffic *got = &t->rank[r].traffic;
        struct kcp_traffic sum = { 0 };
        for (int b = 0; b <= back; b++) {
            const struct kcp_halo h = { .plan = t->plan, .backward = b,
                                        .reach = reach_of(c), .row_bytes = row };
            const struct kcp_traffic f = kcp_halo_formula(&h, r);
            sum.bytes += f.bytes;
            sum.messages += f.messages;
        }
        EXPECT(rep, sum.bytes == want[r].bytes && sum.messages == want[r].messages,
               "rank %d: formula gives %d bytes in %d messages, expected %d in %d", r,
               (int)sum.bytes, (int)sum.messages, (int)want[r].bytes,
               (int)want[r].messages);
        sum.bytes += states[r].bytes + gather * (t->R - 1) * row * most * (c->Wc + 1);
        sum.messages += states[r].messages;
        EXPECT(rep, got->collectives >= gather && got->messages == sum.messages &&
               got->bytes == sum.bytes, "rank %d of %d: sent %d bytes in %d messages, "
               "expected %d in %d", r, t->R, (int)got->bytes, (int)got->messages,
               (int)sum.bytes, (int)sum.messages);
    }
}

/* Compares rows of y, and the rows of xt that this rank owns, with the oracle. */
static void compare(struct kcp_report *rep, const struct buffer *o,
                    const struct tensor_set *want, const char *words)
{
    const double *all = array(want, o->field->name), *got = (void *)(o->image + FENCE);
    const int64_t row = o->dim[0] ? o->n / o->dim[0] : 0;
    double worst = 0;
    if (!o->want || !all) return;
    for (int64_t e = 0; e < o->n; e++) {
        if (is_unwritten(o->want[e])) continue;
        const double off = fabs(got[e] - all[o->first * row + e]);
        if (!(off <= worst)) worst = off;
    }
    EXPECT(rep, worst <= 1e-14, "%s: %s is off by %.1e", words, o->field->name, worst);
}

/* Draws cuts between ranks. Cuts are often equal (empty ranks) or one token apart. */
static void draw_cuts(struct kcase *k, int R, struct stream *s)
{
    const int64_t T = k->call.T;
    int64_t c = (int64_t)(uniform(s) * (double)(T + 1)) * (uniform(s) < .5);
    const double longest = 2 + uniform(s) * 4 * (double)T / R;
    const int64_t step = 1 + (int64_t)(uniform(s) * longest);
    k->call.R = R;
    k->uneven = 1;
    k->cuts[R] = T;
    for (int r = 1; r < R; r++) {
        k->cuts[r] = c < T ? c : T;
        c += (int64_t)(uniform(s) * (double)(step + 1));
    }
}

static int against_whole(struct kcp_report *rep)
{
    const struct kcp_stage *s = stage_find("14");
    const struct kcp_variant ref = reference_of(s);
    struct stream random = stream_of(14, "cuts");
    const int repeats = case_repeats;
    case_repeats = 0;
    for (int i = 0; i < 20 * KINDS; i++) {
        struct tensor_set want = { .n = 0 };
        struct kcase k;
        char words[200], why[160] = "";
        snprintf(words, sizeof words, "live kda D=3 C=8 lengths=%d,0,%d,1,%d seed=%d "
                 "%s", i % 23, i % 17 + 1, i % 7, i + 1, kinds[i % KINDS]);
        if (case_parse(words, &k, why, sizeof why)) return KCP_BAD;
        inputs_draw(&want, &k, s, KCP_F64);
        direct(&want, &k);
        draw_cuts(&k, 1 + i / KINDS % 9, &random);
        struct verdict v = { .outcome = SKIP };
        judge_case(s, &ref, &k, KCP_F64, &v);
        EXPECT(rep, v.outcome == PASS, "%s, R = %d: %s differs by %.2g from that of "
               "one rank; %s", words, k.call.R, v.worst.field, v.worst.err, v.why);
        for (int pass = 0; pass < 2; pass++) {
            struct trial t = { .stage = s, .variant = &ref, .mem = &host_memory };
            const int status = trial_case(&t, &k, (enum kcp_pass)pass, KCP_F64, why,
                                          sizeof why);
            EXPECT(rep, !status, "%s: status %d %s", words, status, why);
            for (int r = 0; r < t.R && !status; r++)
                for (int j = 0; j < t.rank[r].n && !pass; j++)
                    compare(rep, &t.rank[r].buffer[j], &want, words);
            if (!status) check_traffic(rep, &t);
            trial_free(&t);
        }
        tensor_set_free(&want);
    }
    case_repeats = repeats;
    for (int i = 0; i < KINDS; i++) {
        char words[200];
        snprintf(words, sizeof words, "live kda D=3 lengths=9,0,20,1,6 %s", kinds[i]);
        const int status = gradients_agree(rep, "14", words);
        if (status) return status;
    }
    return KCP_OK;
}
KCP_CHECK(conv_whole) = { "14_conv", "against_whole",
    "on 1 to 9 ranks with any cuts, y and states equal those of the oracle, gradients "
    "equal finite differences, and sent bytes equal a count row by row",
    against_whole };

static int same_bits(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int i = 0; i < KINDS && !status; i++) {
        char words[200];
        snprintf(words, sizeof words, "live kda D=3 C=8 lengths=40,0,1,30,7 L=%d %s",
                 1 + i % 9, kinds[i]);
        status = canonical_reference(rep, "14", words);
    }
    return status;
}
KCP_CHECK(conv_bits) = { "14_conv", "same_bits",
    "canonical segments give equal bits of all outputs for R = 1, 2, 3, 4, 7 and 8",
    same_bits };
