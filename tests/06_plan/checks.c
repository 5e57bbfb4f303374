/* checks.c -- checks the plans of all small batches with all cuts between ranks.
 *
 * Book: chapter 06.  Checked by: tests/06_plan/wrong.c.  Next: tests/06_plan/wrong.c.
 * The oracle finds the rank of each token and never computes a segment's boundary. */
#include "plan_case.h"

#include <string.h>

enum { MOST = 256, MAX_N = PLAN_MAX_N, MAX_R = PLAN_MAX_R };

/* Per token: sequence `n`, rank `r`, and `begins`, which is 1 where a segment
 * begins. */
struct tokens {
    int n[MOST], r[MOST], begins[MOST], moved;
    int64_t cut[MAX_R + 1];
};

static int of_sequence(const struct asked *a, int64_t t)
{
    for (int n = 0; n < a->N; n++)
        if (a->cu[n] <= t && t < a->cu[n + 1]) return n;
    return -1;
}

/* Returns the rank that holds token t, or the last rank for t = T. */
static int held_by(const struct asked *a, const struct tokens *k, int64_t t)
{
    for (int r = 0; r < a->R; r++)
        if (k->cut[r] <= t && t < k->cut[r + 1]) return r;
    return a->R - 1;
}

static void ask_tokens(const struct asked *a, struct tokens *k)
{
    const int64_t T = a->cu[a->N];
    memset(k, 0, sizeof *k);
    for (int r = 0; r <= a->R; r++) {
        k->cut[r] = a->by_default ? r * T / a->R : a->cuts[r];
        const int64_t asked = k->cut[r];
        for (int n = of_sequence(a, asked); a->L && n >= 0 && r && r < a->R;) {
            if ((k->cut[r] - a->cu[n]) % a->L == 0) break;
            k->cut[r]--;                        /* move to a canonical position */
        }
        k->moved += k->cut[r] != asked;
    }
    for (int64_t t = 0; t < T; t++) {
        k->n[t] = of_sequence(a, t);
        k->r[t] = held_by(a, k, t);
        k->begins[t] = t == 0 || k->n[t] != k->n[t - 1] || k->r[t] != k->r[t - 1] ||
                       (a->L && (t - a->cu[k->n[t]]) % a->L == 0);
    }
}

/* NEED(x) returns the text of x from the enclosing function if x is false. */
#define NEED(x) do { if (!(x)) return #x; } while (0)

static const char *wrong_segments(const struct kcp_plan *p, const struct asked *a,
                                  const struct tokens *k)
{
    const int64_t T = a->cu[a->N];
    int j = -1, crossing = 0;
    for (int64_t t = 0; t < T; t++) {
        const int n = k->n[t];
        const int64_t next = t + 1;
        crossing |= t > 0 && k->n[t - 1] == n && k->r[t - 1] != k->r[t];
        if (k->begins[t]) {
            NEED(++j < p->S);
            const int end = p->seg[j].end < a->cu[n + 1], from = t > a->cu[n];
            NEED(p->seg[j].begin == t && p->seg[j].n == n && p->seg[j].rank == k->r[t]);
            NEED(p->seg[j].first == !from && p->seg[j].last == !end);
            NEED(kcp_plan_want(p, j, 0) == (end ? 1 : 0) + (end && from ? 2 : 0));
            NEED(kcp_plan_want(p, j, 1) == (from ? 1 : 0) + (end && from ? 2 : 0));
        }
        if (next == T || k->begins[next])
            NEED(p->seg[j].end == next);
    }
    NEED(j + 1 == p->S && crossing == p->crossing);
    for (int n = 0; n < a->N; n++) {
        const int64_t last = a->cu[n] < a->cu[n + 1] ? a->cu[n + 1] - 1 : a->cu[n];
        NEED(p->h0_rank[n] == held_by(a, k, a->cu[n]));
        NEED(p->ht_rank[n] == held_by(a, k, last));
    }
    return NULL;
}

/* Checks the context of rank r token by token. */
static const char *wrong_context(const struct kcp_plan *p, const struct asked *a,
                                 const struct tokens *k, int r)
{
    const struct kcp_context *x = &p->ctx[r];
    const int64_t T = a->cu[a->N];
    int s = -1, c = -1, m = -1, row = 0, t0 = 0, before = 0, seg0 = 0;
    int first = -1, last = -1;
    NEED(x->begin == k->cut[r] && x->end == k->cut[r + 1] && p->cuts[r] == x->begin);
    NEED(x->conv1d_kernel_size == a->Wc);
    for (int64_t t = 0; t < T; t++) {
        seg0 += k->begins[t] && k->r[t] < r;
        if (k->r[t] != r) continue;
        if (k->begins[t]) {
            NEED(++s < x->NS);
            NEED(x->cu[s] == t0 && x->cn[s] == c + 1);
            row = 0;
        }
        if (row++ % a->C == 0)
            NEED(++c < x->NC && x->sc[c] == s);
        if (t0 == 0 || k->n[t] != k->n[t - 1])
            NEED(++m < x->n_local && x->cu_seqlens[m] == t0 && x->seq[m] == k->n[t]);
        first = first < 0 ? k->n[t] : first;
        last = k->n[t];
        t0++;
    }
    NEED(x->NS == s + 1 && x->NC == c + 1 && x->n_local == m + 1);
    NEED(x->cu[x->NS] == t0 && x->cn[x->NS] == x->NC && x->cu_seqlens[m + 1] == t0);
    NEED(s < 0 || x->seg0 == seg0);
    if (s < 0) {
        NEED(x->is_first_rank && x->is_last_rank && !x->pre_num_ranks);
        NEED(!x->post_num_ranks && !x->pre_num_conv_tokens);
        return NULL;
    }
    for (int64_t t = 0; t < k->cut[r]; t++)
        before += k->n[t] == first;
    NEED(x->pre_num_conv_tokens == before && x->is_first_rank == !before);
    NEED(x->pre_num_ranks == r - k->r[a->cu[first]]);
    NEED(x->is_last_rank == (k->r[a->cu[last + 1] - 1] == r));
    NEED(x->post_num_ranks == k->r[a->cu[last + 1] - 1] - r);
    return NULL;
}

const char *plan_wrong(const struct kcp_plan *p, const struct asked *a)
{
    struct tokens k;
    ask_tokens(a, &k);
    NEED(p->N == a->N && p->R == a->R && p->T == a->cu[a->N] && p->C == a->C);
    NEED(p->L == a->L && p->moved == k.moved && p->cuts[a->R] == k.cut[a->R]);
    const char *why = wrong_segments(p, a, &k);
    for (int r = 0; r < a->R && !why; r++)
        why = wrong_context(p, a, &k, r);
    return why;
}

/* ---- all small cases */

static int make(const struct asked *a, struct kcp_plan **p)
{
    const char *why;
    return kcp_plan_make(p, a->N, a->cu, a->R, a->by_default ? NULL : a->cuts, a->L,
                         a->C, a->Wc, &why);
}

/* Advances x[1..n-1] to the next non-decreasing sequence of numbers in 0..T. Returns 0
 * after the last sequence. */
static int next_row(int64_t *x, int n, int64_t T)
{
    int i = n - 1;
    while (i > 0 && x[i] == T) i--;
    if (i <= 0) return 0;
    x[i]++;
    for (int j = i + 1; j < n; j++) x[j] = x[i];
    return 1;
}

/* Calls visit(case, plan) for all batches of at most 4 sequences and 6 tokens, with all
 * cuts into at most 5 ranks, classic (L = 0) and canonical (L = 1, 2, 3). */
int64_t plan_cases(int (*visit)(const struct asked *, struct kcp_plan *, void *),
                   void *arg)
{
    int64_t plans = 0;
    for (int T = 0; T <= 6; T++)
        for (int N = T > 0; N <= 4; N++)
            for (int R = 1; R <= 5; R++) {
                struct asked a = { .N = N, .R = R, .Wc = 4 };
                a.cu[N] = T;
                do {
                    memset(a.cuts, 0, sizeof a.cuts);
                    a.cuts[R] = T;
                    do
                        for (a.L = 0; a.L < 4; a.L++) {
                            struct kcp_plan *p;
                            a.C = 1 + plans % 3;
                            const int more = make(&a, &p) || visit(&a, p, arg);
                            plans++;
                            kcp_plan_free(p);
                            if (!more) return plans;
                        }
                    while (next_row(a.cuts, R, T));
                } while (next_row(a.cu, N, T));
            }
    return plans;
}

static int must_be_right(const struct asked *a, struct kcp_plan *p, void *arg)
{
    const char *why = plan_wrong(p, a);
    EXPECT((struct kcp_report *)arg, !why, "N %d R %d T %d L %d C %d: %s", a->N, a->R,
           (int)p->T, (int)a->L, a->C, why);
    return 1;
}

static int brute_force(struct kcp_report *rep)
{
    const int64_t plans = plan_cases(must_be_right, rep);
    EXPECT(rep, plans > 100000, "only %lld plans", (long long)plans);
    struct stream s = stream_of(6, "06_plan");
    for (int trial = 0; trial < 3000; trial++) {          /* larger random cases */
        struct asked a = { .N = 1 + (int)(uniform(&s) * MAX_N), .Wc = trial % 6 };
        struct kcp_plan *p;
        const int longest = 1 + (int)(uniform(&s) * (MOST - 1) / a.N);
        a.R = 1 + (int)(uniform(&s) * MAX_R);
        a.C = 1 + (int)(uniform(&s) * 9);
        a.L = trial % 2 * (int64_t)(1 + uniform(&s) * 20);
        a.by_default = trial % 3 == 0;
        for (int n = 0; n < a.N; n++)
            a.cu[n + 1] = a.cu[n] + (int64_t)(uniform(&s) * longest * (n % 4 != 2));
        for (int r = 1; r <= a.R; r++)
            a.cuts[r] = r == a.R ? a.cu[a.N] : a.cuts[r - 1] +
                (int64_t)(uniform(&s) * uniform(&s) * (a.cu[a.N] - a.cuts[r - 1] + 1));
        const int err = make(&a, &p);
        EXPECT(rep, !err, "trial %d: status %d", trial, err);
        if (!err) must_be_right(&a, p, rep);
        kcp_plan_free(p);
    }
    return KCP_OK;
}

KCP_CHECK(check_06_brute_force) = {
    "06_plan", "brute_force", "all small batches and cuts, compared token by token",
    brute_force };
