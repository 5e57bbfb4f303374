/* checks.c -- checks the plans of all small batches with all cuts and owners.
 * Book: chapter 06.
 * The oracle, find_tokens, finds each token's rank and whether it begins a segment. */
#include "plan_case.h"

#include <string.h>

enum { MOST = 256, MAX_N = PLAN_MAX_N, MAX_R = PLAN_MAX_R, MAX_B = PLAN_MAX_B };

/* The sequence `n` and rank `r` of each token, and `begins`, which is 1 if the token
 * begins a segment. */
struct tokens { int64_t T; int n[MOST], r[MOST], begins[MOST], moved; };

/* Returns the requested end of range b, before find_tokens moves the end down. */
static int64_t end_of(const struct plan_case *a, int b)
{
    if (a->B) return a->bound[b + 1];
    return a->by_default ? (b + 1) * a->cu[a->N] / a->R : a->cuts[b + 1];
}

static void find_tokens(const struct plan_case *a, struct tokens *k)
{
    const int ranges = a->B ? a->B : a->R;
    int64_t begin = 0;
    memset(k, 0, sizeof *k);
    k->T = a->cu[a->N];
    for (int b = 0; b < ranges; b++) {
        int64_t end = end_of(a, b);
        for (int n = 0; n < a->N && a->L && b + 1 < ranges; n++)
            while (a->cu[n] < end && end < a->cu[n + 1] && (end - a->cu[n]) % a->L)
                end--;                       /* down to a canonical position */
        k->moved += end != end_of(a, b);
        for (int64_t t = begin; t < end; t++) k->r[t] = a->B ? a->owner[b] : b;
        begin = end;
    }
    for (int n = 0; n < a->N; n++)
        for (int64_t t = a->cu[n]; t < a->cu[n + 1]; t++) {
            const int64_t into = t - a->cu[n];
            k->n[t] = n;
            k->begins[t] = into == 0 || k->r[t] != k->r[t - 1] ||
                           (a->L && into % a->L == 0);
        }
}

/* If x is false, NEED(x) makes the enclosing function return the text of x. */
#define NEED(x) do { if (!(x)) return #x; } while (0)

/* Checks the segments in token order, their links, and which parts of maps are
 * needed. */
static const char *wrong_segments(const struct kcp_plan *p, const struct plan_case *a,
                                  const struct tokens *k)
{
    int i = -1, changes = 0, crossing = 0, in_order = 1;
    for (int64_t t = 0; t < k->T; t++) {
        const int first = t == a->cu[k->n[t]], end = (int)a->cu[k->n[t] + 1];
        changes = first ? 0 : changes + (k->r[t] != k->r[t - 1]);
        crossing |= changes > 0;
        in_order &= t == 0 || k->r[t] >= k->r[t - 1];
        if (!k->begins[t]) continue;
        NEED(++i < p->S);
        const int j = p->order[i], before = i ? p->order[i - 1] : -1;
        NEED(j >= 0 && j < p->S);
        const struct kcp_segment *g = &p->seg[j];
        int64_t stop = t + 1, after = 0;
        while (stop < k->T && !k->begins[stop]) stop++;
        for (int64_t u = t + 1; u < end; u++) after += k->r[u] != k->r[u - 1];
        NEED(g->begin == t && g->end == stop && g->n == k->n[t] && g->rank == k->r[t]);
        NEED(g->first == first && g->last == (stop == end) && g->at == i);
        NEED(g->pre == changes && g->post == after);
        NEED(g->prev == (first ? -1 : before));
        NEED(first || p->seg[before].next == j);
        NEED(!g->last || g->next == -1);
        const int M = first || g->last ? 0 : KCP_WANT_M;
        NEED(kcp_plan_want(p, j, 0) == (g->last ? 0 : KCP_WANT_H | M));
        NEED(kcp_plan_want(p, j, 1) == (first ? 0 : KCP_WANT_H | M));
    }
    NEED(i + 1 == p->S && p->crossing == crossing && p->moved == k->moved);
    NEED(p->scattered == !in_order);
    for (int n = 0; n < a->N; n++) {
        const int64_t at = a->cu[n], last = a->cu[n + 1] > at ? a->cu[n + 1] - 1 : at;
        NEED(p->h0_rank[n] == (at < k->T ? k->r[at] : p->R - 1));
        NEED(p->ht_rank[n] == (last < k->T ? k->r[last] : p->R - 1));
    }
    return NULL;
}

/* Checks rank r's shard, chunk grid and runs of consecutive tokens, token by token. */
static const char *wrong_shard(const struct kcp_plan *p, const struct plan_case *a,
                               const struct tokens *k, int r)
{
    const struct kcp_context *x = &p->ctx[r];
    int row = 0, s = -1, m = -1, c = -1, rows = 0, below = 0;
    int64_t last = -2;
    for (int64_t t = 0; t < k->T; t++) {
        below += k->r[t] < r;
        if (k->r[t] != r) continue;
        if (k->begins[t]) {
            NEED(++s < x->NS && x->cu[s] == row && x->cn[s] == c + 1);
            NEED(p->seg[x->seg0 + s].begin == t && p->seg[x->seg0 + s].rank == r);
            rows = 0;
        }
        if (rows++ % a->C == 0) NEED(++c < x->NC && x->sc[c] == s);
        if (last != t - 1 || k->n[t] != k->n[last])
            NEED(++m < x->n_local && x->cu_seqlens[m] == row && x->seq[m] == k->n[t]);
        NEED(kcp_plan_token(p, x->begin + row) == t);
        last = t;
        row++;
    }
    NEED(x->NS == s + 1 && x->NC == c + 1 && x->n_local == m + 1);
    NEED(x->cu[x->NS] == row && x->cn[x->NS] == x->NC && x->cu_seqlens[m + 1] == row);
    NEED(x->begin == below && x->end == below + row && p->cuts[r] == x->begin);
    NEED(x->conv1d_kernel_size == a->Wc);
    return NULL;
}

/* Checks the neighbours of rank r in a contiguous plan. */
static const char *wrong_neighbours(const struct kcp_plan *p, const struct plan_case *a,
                                    const struct tokens *k, int r)
{
    const struct kcp_context *x = &p->ctx[r];
    int before = 0;
    if (x->begin == x->end) {
        NEED(x->is_first_rank && x->is_last_rank && !x->pre_num_ranks);
        NEED(!x->post_num_ranks && !x->pre_num_conv_tokens);
        return NULL;
    }
    const int first = k->n[x->begin], last = k->n[x->end - 1];
    const int until = k->r[a->cu[last + 1] - 1];
    for (int64_t t = 0; t < x->begin; t++) before += k->n[t] == first;
    NEED(x->pre_num_conv_tokens == before && x->is_first_rank == !before);
    NEED(x->pre_num_ranks == r - k->r[a->cu[first]]);
    NEED(x->is_last_rank == (until == r) && x->post_num_ranks == until - r);
    return NULL;
}

/* Checks the plan's copies of the batch and of the table of owners. */
static const char *wrong_tables(const struct kcp_plan *p, const struct plan_case *a,
                                const struct tokens *k)
{
    int b = 0;
    for (int n = 0; n <= a->N; n++) NEED(p->cu_seqlens[n] == a->cu[n]);
    for (int64_t t = 0; t < k->T; t++) {
        while (b < p->B && p->bound[b + 1] <= t) b++;
        NEED(b < p->B && p->bound[b] <= t && p->owner[b] == k->r[t]);
    }
    NEED(p->bound[p->B] == k->T);
    return NULL;
}

/* Checks the functions that copy rows from the batch to shards and back. */
static const char *wrong_rows(const struct kcp_plan *p, int64_t T)
{
    int64_t whole[MOST], shard[MOST], back[MOST];
    for (int64_t t = 0; t < T; t++) whole[t] = 7 * t + 1;
    memset(back, 0, sizeof back);
    for (int r = 0; r < p->R; r++) {
        const int64_t rows = p->ctx[r].end - p->ctx[r].begin;
        kcp_plan_take(p, r, sizeof *whole, whole, shard);
        for (int64_t i = 0; i < rows; i++)
            NEED(shard[i] == 7 * kcp_plan_token(p, p->ctx[r].begin + i) + 1);
        kcp_plan_give(p, r, sizeof *whole, shard, back);
    }
    NEED(!memcmp(whole, back, sizeof *whole * (size_t)T));
    return NULL;
}

const char *plan_wrong(const struct kcp_plan *p, const struct plan_case *a)
{
    struct tokens k;
    find_tokens(a, &k);
    NEED(p->N == a->N && p->R == a->R && p->T == k.T && p->C == a->C && p->L == a->L);
    NEED(p->cuts[a->R] == k.T);
    const char *why = wrong_tables(p, a, &k);
    if (!why) why = wrong_segments(p, a, &k);
    for (int r = 0; r < a->R && !why; r++) why = wrong_shard(p, a, &k, r);
    for (int r = 0; r < a->R && !why && !a->B; r++)
        why = wrong_neighbours(p, a, &k, r);
    return why ? why : wrong_rows(p, k.T);
}

/* ---- all small cases */

static int make(const struct plan_case *a, struct kcp_plan **p)
{
    const struct kcp_owners o = { a->B, (int64_t *)a->bound, (int *)a->owner };
    const char *why;
    if (a->B) return kcp_plan_owned(p, a->N, a->cu, a->R, &o, a->L, a->C, a->Wc, &why);
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

/* Increments the n-digit number x in base R. Returns 0 if all digits become 0. */
static int next_owners(int *x, int n, int R)
{
    for (int i = 0; i < n; i++) {
        if (++x[i] < R) return 1;
        x[i] = 0;
    }
    return 0;
}

typedef int visit_plan(const struct plan_case *, struct kcp_plan *, void *);

/* Calls `visit` for a case's plans with L = 0 (no canonical segments) to L = 3. */
static int each_length(struct plan_case *a, visit_plan *visit, void *arg)
{
    int more = 1;
    for (a->L = 0; a->L < 4 && more; a->L++) {
        struct kcp_plan *p;
        a->C = 1 + (a->C + 1) % 3;
        more = make(a, &p) || visit(a, p, arg);
        kcp_plan_free(p);
    }
    return more;
}

/* For three batches of six tokens on three ranks, calls `visit` for all tables of
 * owners with at most four ranges. */
static int each_table(visit_plan *visit, void *arg)
{
    static const struct { int N; int64_t cu[4]; } batch[] = {
        { 1, { 0, 6 } }, { 3, { 0, 4, 4, 6 } }, { 3, { 0, 1, 6, 6 } } };
    int more = 1;
    for (int i = 0; i < 3; i++)
        for (int B = 1; B <= 4; B++) {
            struct plan_case a = { .N = batch[i].N, .R = 3, .Wc = 4, .B = B };
            memcpy(a.cu, batch[i].cu, sizeof batch[i].cu);
            a.bound[B] = 6;
            do
                do
                    more = more && each_length(&a, visit, arg);
                while (next_owners(a.owner, B, 3));
            while (next_row(a.bound, B, 6));
        }
    return more;
}

/* Calls `visit` for all batches of at most 4 sequences and 6 tokens, with all cuts into
 * at most 5 ranks. */
static int each_cut(visit_plan *visit, void *arg)
{
    int more = 1;
    for (int T = 0; T <= 6; T++)
        for (int N = T > 0; N <= 4; N++)
            for (int R = 1; R <= 5; R++) {
                struct plan_case a = { .N = N, .R = R, .Wc = 4 };
                a.cu[N] = T;
                do {
                    memset(a.cuts, 0, sizeof a.cuts);
                    a.cuts[R] = T;
                    do
                        more = more && each_length(&a, visit, arg);
                    while (next_row(a.cuts, R, T));
                } while (next_row(a.cu, N, T));
            }
    return more;
}

void plan_cases(visit_plan *visit, void *arg)
{
    if (each_table(visit, arg)) each_cut(visit, arg);
}

struct counts { struct kcp_report *rep; int64_t contiguous, tables, scattered; };

static int must_be_right(const struct plan_case *a, struct kcp_plan *p, void *arg)
{
    struct counts *x = arg;
    const char *why = plan_wrong(p, a);
    EXPECT(x->rep, !why, "N %d R %d T %d L %d C %d B %d: %s", a->N, a->R, (int)p->T,
           (int)a->L, a->C, a->B, why);
    x->contiguous += a->B == 0;
    x->tables += a->B > 0;
    x->scattered += p->scattered;
    return 1;
}

/* Draws a larger case. */
static struct plan_case draw(struct stream *s, int trial)
{
    struct plan_case a = { .N = 1 + (int)(uniform(s) * MAX_N), .Wc = trial % 6 };
    const int longest = 1 + (int)(uniform(s) * (MOST - 1) / a.N);
    a.R = 1 + (int)(uniform(s) * MAX_R);
    a.C = 1 + (int)(uniform(s) * 9);
    a.L = trial % 2 * (int64_t)(1 + uniform(s) * 20);
    a.by_default = trial % 3 == 0;
    a.B = trial % 5 ? 0 : 1 + (int)(uniform(s) * MAX_B);
    for (int n = 0; n < a.N; n++)
        a.cu[n + 1] = a.cu[n] + (int64_t)(uniform(s) * longest * (n % 4 != 2));
    int64_t *bound = a.B ? a.bound : a.cuts;
    const int ranges = a.B ? a.B : a.R;
    for (int b = 1; b <= ranges; b++)
        bound[b] = b == ranges ? a.cu[a.N] : bound[b - 1] +
            (int64_t)(uniform(s) * uniform(s) * (a.cu[a.N] - bound[b - 1] + 1));
    for (int b = 0; b < a.B; b++) a.owner[b] = (int)(uniform(s) * a.R);
    return a;
}

static int brute_force(struct kcp_report *rep)
{
    struct counts x = { .rep = rep };
    struct stream s = stream_of(6, "06_plan");
    plan_cases(must_be_right, &x);
    EXPECT(rep, x.contiguous > 100000 && x.tables > 90000 &&
           x.scattered > x.tables / 3,
           "%lld contiguous plans (expected over 100000), %lld tables of owners (over "
           "90000), of them %lld with shards not in token order (over a third)",
           (long long)x.contiguous, (long long)x.tables, (long long)x.scattered);
    for (int trial = 0; trial < 3000; trial++) {
        const struct plan_case a = draw(&s, trial);
        struct kcp_plan *p;
        const int err = make(&a, &p);
        EXPECT(rep, !err, "trial %d: status %d", trial, err);
        if (!err) must_be_right(&a, p, &x);
        kcp_plan_free(p);
    }
    return KCP_OK;
}
KCP_CHECK(check_06_brute_force) = { "06_plan", "brute_force",
    "for all small batches, cuts and tables of owners, a plan agrees with an oracle "
    "that works token by token", brute_force };

static int named_layouts(struct kcp_report *rep)
{
    const int64_t cu[] = { 0, 37, 37, 40, 103 };
    for (int R = 1; R <= 6; R++)
        for (int stripe = 1; stripe <= 9; stripe += 2)
            for (int spread = KCP_CONTIGUOUS; spread <= KCP_STRIPED; spread++) {
                struct kcp_owners o;
                int wrong = 0, b = 0;
                if (kcp_owners_make(&o, spread, 4, cu, R, stripe, NULL))
                    return KCP_NO_MEMORY;
                for (int64_t t = 0, n = 0; t < 103; t++) {
                    while (cu[n + 1] <= t) n++;
                    while (o.bound[b + 1] <= t) b++;
                    const int64_t into = t - cu[n], len = cu[n + 1] - cu[n];
                    int64_t i = 0, r = into / stripe % R;
                    while (spread == KCP_ZIGZAG && (i + 1) * len / (2 * R) <= into) i++;
                    while (spread == KCP_CONTIGUOUS && (i + 1) * 103 / R <= t) i++;
                    if (spread == KCP_ZIGZAG) r = i < R ? i : 2 * R - 1 - i;
                    if (spread == KCP_CONTIGUOUS) r = i;
                    wrong += o.owner[b] != r;
                }
                EXPECT(rep, !wrong, "spread %d, R %d, stripe %d: %d wrong", spread, R,
                       stripe, wrong);
                kcp_owners_free(&o);
            }
    return KCP_OK;
}
KCP_CHECK(check_06_named) = { "06_plan", "named_layouts",
    "contiguous, zigzag and striped layouts assign each token to the right rank",
    named_layouts };
