/* checks.c -- compares the convolution over ranks with an oracle on the whole tensor,
 * and gradients with finite differences.
 *
 * Book: chapter 14.  Checked by: tests/14_conv/mutants.c.  Next: ref/15_scan.c.
 * The oracle uses neither the plan nor ranks.
 */
#include "tests/judge/judge.h"
#include <math.h>
#include <string.h>
enum { MAX_T = 60, MAX_D = 3, MAX_W = 7, MAX_N = 6, MAX_R = 9 };

/* The outputs for all tokens, computed by the ranks or by the oracle. */
struct result {
    double y[MAX_T * MAX_D], dx[MAX_T * MAX_D];
    double dw[MAX_D * MAX_W], db[MAX_D];
    double xt[MAX_N * (MAX_W - 1) * MAX_D], dx0[MAX_N * (MAX_W - 1) * MAX_D];
};
struct whole {
    int N, D, Wc, R, shift, with_bias, with_x0, with_dxt;
    enum kcp_act act;
    int64_t T, L, cu[MAX_N + 1], cuts[MAX_R + 1];
    double x[MAX_T * MAX_D], dy[MAX_T * MAX_D], w[MAX_D * MAX_W], b[MAX_D];
    double x0[MAX_N * (MAX_W - 1) * MAX_D], dxt[MAX_N * (MAX_W - 1) * MAX_D];
    struct kcp_plan *plan;
    struct kcp_traffic traffic[2][MAX_R];
    struct result out;
};

static int reach_of(const struct whole *a) { return (a->shift ? 2 : a->Wc) - 1; }

/* Returns x of token t of sequence n, or before the sequence's start x0 (0 without
 * x0). */
static double x_at(const struct whole *a, int n, int64_t t, int d)
{
    const int64_t k = t - a->cu[n] + reach_of(a);
    if (t >= a->cu[n])
        return a->x[t * a->D + d];
    return a->with_x0 && k >= 0 ? a->x0[(n * reach_of(a) + k) * a->D + d] : 0;
}

static void direct_xt(const struct whole *a, double *xt)
{
    const int reach = reach_of(a);
    for (int n = 0; n < a->N; n++)
        for (int k = 0; k < reach; k++)
            for (int d = 0; d < a->D; d++)
                xt[(n * reach + k) * a->D + d] =
                    x_at(a, n, a->cu[n + 1] - reach + k, d);
}

static void direct_y(const struct whole *a, double *y)
{
    for (int n = 0; n < a->N; n++)
        for (int64_t t = a->cu[n]; t < a->cu[n + 1]; t++)
            for (int d = 0; d < a->D; d++) {
                double s = a->with_bias ? a->b[d] : 0;
                for (int j = 0; j < a->Wc && !a->shift; j++)
                    s += a->w[d * a->Wc + j] * x_at(a, n, t + j - a->Wc + 1, d);
                if (a->shift)
                    s = x_at(a, n, t - 1, d) - x_at(a, n, t, d);
                else if (a->act == KCP_ACT_SILU)
                    s /= 1 + exp(-s);
                y[t * a->D + d] = s;
            }
}

static double direct_loss(const struct whole *a)
{
    double y[MAX_T * MAX_D], xt[MAX_N * (MAX_W - 1) * MAX_D], s = 0;
    direct_y(a, y);
    direct_xt(a, xt);
    for (int64_t i = 0; i < a->T * a->D; i++)
        s += y[i] * a->dy[i];
    for (int i = 0; a->with_dxt && i < a->N * reach_of(a) * a->D; i++)
        s += xt[i] * a->dxt[i];
    return s;
}

/* Computes central differences of the loss sum(y dy) + sum(xt dxt) with respect to each
 * of the n elements of input x. */
static void differences(struct whole *a, double *x, int64_t n, double *dx)
{
    const double e = 1e-5;
    for (int64_t i = 0; i < n; i++) {
        const double keep = x[i];
        x[i] = keep + e;
        const double up = direct_loss(a);
        x[i] = keep - e;
        const double down = direct_loss(a);
        x[i] = keep;
        dx[i] = (up - down) / (2 * e);
    }
}

/* Copies the state rows that rank r owns, and sets all other rows to NaN. */
static const double *own_rows(const struct whole *a, const int *owner, int r,
                              const double *all, double *to)
{
    const int row = reach_of(a) * a->D;
    for (int i = 0; i < a->N * row; i++)
        to[i] = owner[i / row] == r ? all[i] : NAN;
    return to;
}

/* Copies the shard of one rank, then runs forward and backward on that rank. */
static int body(struct kcp_comm *comm, void *arg)
{
    struct whole *a = arg;
    const struct kcp_context *x = &a->plan->ctx[comm->r];
    const int64_t T = x->end - x->begin, at = x->begin * a->D;
    const size_t bytes = sizeof(double) * T * a->D;
    double in[2][MAX_T * MAX_D + 1], dw[MAX_D * MAX_W] = { 0 }, db[MAX_D] = { 0 };
    struct kcp_conv c = { .T = T, .N = a->N, .NS = x->NS, .NC = x->NC, .R = a->R,
                          .C = a->plan->C };
    c.r = comm->r; c.D = a->D; c.Wc = a->Wc; c.act = a->act; c.shift = a->shift;
    c.plan = a->plan; c.comm = comm; c.cu = x->cu; c.cn = x->cn; c.sc = x->sc;
    c.x = memcpy(in[0], a->x + at, bytes); c.dy = memcpy(in[1], a->dy + at, bytes);
    c.weight = a->w;
    c.bias = a->with_bias ? a->b : NULL;
    c.y = a->out.y + at;
    c.dx = a->out.dx + at;
    c.dweight = dw;
    c.dbias = db;
    double states[2][MAX_N * (MAX_W - 1) * MAX_D];
    if (a->with_x0)
        c.x0 = own_rows(a, a->plan->h0_rank, comm->r, a->x0, states[0]);
    if (a->with_dxt)
        c.dxt = own_rows(a, a->plan->ht_rank, comm->r, a->dxt, states[1]);
    c.xt = a->with_x0 || a->with_dxt ? a->out.xt : NULL;
    c.dx0 = a->with_x0 || a->with_dxt ? a->out.dx0 : NULL;
    for (int pass = 0; pass < 2; pass++) {
        const struct kcp_traffic was = comm->traffic;
        c.pass = pass ? KCP_BACKWARD : KCP_FORWARD;
        if (ref_conv(&c) != KCP_OK)
            return KCP_BAD;
        struct kcp_traffic *is = &a->traffic[pass][comm->r];
        is->bytes = comm->traffic.bytes - was.bytes;
        is->messages = comm->traffic.messages - was.messages;
        is->collectives = comm->traffic.collectives - was.collectives;
    }
    if (comm->r == a->R - 1) {
        memcpy(a->out.dw, dw, sizeof(double) * a->D * a->Wc);
        memcpy(a->out.db, db, sizeof(double) * a->D);
    }
    return KCP_OK;
}

static int run_ranks(struct whole *a, struct kcp_report *rep)
{
    char why[160] = "";
    const char *what = "";
    memset(&a->out, 0, sizeof a->out);
    int status = kcp_plan_make(&a->plan, a->N, a->cu, a->R, a->cuts, a->L, 8, 4, &what);
    EXPECT(rep, status == KCP_OK, "plan: %s", what);
    if (!status)
        status = kcp_threads_run(a->R, body, a, why, sizeof why);
    EXPECT(rep, status == KCP_OK, "ranks: %s", why);
    return status;
}

static int64_t below(struct stream *s, int64_t n)
{
    return (int64_t)(uniform(s) * n);
}

/* Draws x0 and dxt. Bit 0 of `which` enables x0, and bit 1 enables dxt. */
static void draw_states(struct whole *a, int which, struct stream *s)
{
    a->with_x0 = which & 1;
    a->with_dxt = which >> 1 & 1;
    for (int i = 0; i < MAX_N * (MAX_W - 1) * MAX_D; i++) {
        a->x0[i] = normal(s);
        a->dxt[i] = normal(s);
    }
}

static void draw(struct whole *a, struct stream *s)
{
    memset(a, 0, sizeof *a);
    a->D = 1 + below(s, MAX_D);
    a->Wc = 1 + below(s, MAX_W);
    a->N = 1 + below(s, MAX_N);
    a->shift = below(s, 4) == 0;
    a->with_bias = below(s, 2);
    a->act = below(s, 2) ? KCP_ACT_SILU : KCP_ACT_NONE;
    for (int n = 0; n < a->N; n++)
        a->cu[n + 1] = a->cu[n] + below(s, 4) * below(s, MAX_T / MAX_N / 3 + 1);
    a->T = a->cu[a->N];
    for (int i = 0; i < MAX_T * MAX_D; i++) {
        a->x[i] = normal(s);
        a->dy[i] = normal(s);
    }
    for (int i = 0; i < MAX_D * MAX_W; i++) {
        a->w[i] = normal(s);
        a->b[i % MAX_D] = normal(s);
    }
}

/* Draws cuts between ranks. Cuts are often equal (empty ranks) or one token apart. */
static void draw_cuts(struct whole *a, int R, struct stream *s)
{
    int64_t c = below(s, a->T + 1) * below(s, 2);
    const int64_t step = 1 + below(s, 2 + below(s, 4) * a->T / R);
    a->R = R; a->cuts[0] = 0; a->cuts[R] = a->T;
    for (int r = 1; r < R; r++, c += below(s, step + 1))
        a->cuts[r] = c < a->T ? c : a->T;
}

static void compare(const char *name, const double *got, const double *want, int64_t n,
                    double tol, int trial, struct kcp_report *rep)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(got[i] - want[i]) <= worst))
            worst = fabs(got[i] - want[i]);
    EXPECT(rep, worst <= tol, "trial %d: %s is off by %.1e", trial, name, worst);
}

/* Counts the messages with x0 (at_end: dxt). Each rank with one of a sequence's first
 * (at_end: last) Wc - 1 tokens receives the sequence's rows of x0 (dxt) from their
 * owner, in one message per sequence. */
static void states_traffic(const struct whole *a, int at_end, struct kcp_traffic *want)
{
    const int64_t *cuts = a->plan->cuts, reach = reach_of(a);
    const int *owner = at_end ? a->plan->ht_rank : a->plan->h0_rank;
    for (int n = 0; n < a->N; n++)
        for (int r = 0; r < a->R; r++) {
            int near = 0;
            for (int64_t t = a->cu[n]; t < a->cu[n + 1]; t++) {
                const int64_t away = at_end ? a->cu[n + 1] - 1 - t : t - a->cu[n];
                near |= t >= cuts[r] && t < cuts[r + 1] && away < reach;
            }
            if (!near || owner[n] == r) continue;
            want[owner[n]].bytes += (int64_t)sizeof(double) * reach * a->D;
            want[owner[n]].messages++;
        }
}

/* Compares the sent bytes with a count per row. Backward sends the halo rows of x again
 * and the halo rows of dpre, and gathers the parameter sums once. */
static void check_traffic(const struct whole *a, int pass, int trial,
                          struct kcp_report *rep)
{
    struct kcp_traffic want[MAX_R] = { 0 };
    const int64_t *cuts = a->plan->cuts, row = sizeof(double) * a->D;
    for (int r = 0; r < a->R; r++)
        for (int back = 0; back <= pass && cuts[r] < cuts[r + 1]; back++) {
            const int64_t at = back ? cuts[r + 1] - 1 : cuts[r];
            int n = 0, last = -1;
            while (a->cu[n + 1] <= at)
                n++;
            for (int i = 1; i < (a->shift ? 2 : a->Wc); i++) {
                const int64_t t = back ? at + i : at - i;
                if (t < a->cu[n] || t >= a->cu[n + 1])
                    break;
                int owner = 0;
                while (cuts[owner + 1] <= t)
                    owner++;
                want[owner].bytes += row;
                want[owner].messages += owner != last;
                last = owner;
            }
        }
    struct kcp_traffic states[MAX_R] = { 0 };
    if (a->with_x0) states_traffic(a, 0, states);
    if (a->with_dxt && pass) states_traffic(a, 1, states);
    const int gather = pass && !a->shift && a->R > 1;
    int most = 1;
    for (int r = 0; r < a->R; r++)
        most = a->plan->ctx[r].NS > most ? a->plan->ctx[r].NS : most;
    for (int r = 0; r < a->R; r++) {
        const struct kcp_traffic *got = &a->traffic[pass][r];
        struct kcp_traffic sum = { 0 };
        for (int back = 0; back <= pass; back++) {
            const struct kcp_halo h = { .plan = a->plan, .backward = back,
                .reach = a->shift ? 1 : a->Wc - 1, .row_bytes = row };
            const struct kcp_traffic f = kcp_halo_formula(&h, r);
            sum.bytes += f.bytes;
            sum.messages += f.messages;
        }
        EXPECT(rep, sum.bytes == want[r].bytes && sum.messages == want[r].messages,
               "trial %d rank %d: formula gives %d bytes", trial, r, (int)sum.bytes);
        want[r].bytes += states[r].bytes;
        want[r].messages += states[r].messages;
        want[r].bytes += gather * (a->R - 1) * row * most * (a->Wc + 1);
        EXPECT(rep, got->collectives == gather && got->messages == want[r].messages &&
               got->bytes == want[r].bytes, "trial %d rank %d: %d, %d, %d bytes", trial,
               r, (int)got->collectives, (int)got->messages, (int)got->bytes);
    }
}

static int against_whole(struct kcp_report *rep)
{
    struct stream s = stream_of(14, "against_whole"), rows = stream_of(14, "states");
    static struct whole whole, *a = &whole;
    static struct result is, *want = &is;
    for (int trial = 0; trial < 360; trial++) {
        draw(a, &s);
        draw_cuts(a, 1 + trial % MAX_R, &s);
        draw_states(a, trial / MAX_R % 4, &rows);
        direct_y(a, want->y);
        direct_xt(a, want->xt);
        differences(a, a->x, a->T * a->D, want->dx);
        differences(a, a->w, a->D * a->Wc, want->dw);
        differences(a, a->b, a->D, want->db);
        const int states = a->N * reach_of(a) * a->D, with_x0 = a->with_x0;
        a->with_x0 |= a->with_dxt;               /* x0 = 0, so that dx0 exists */
        if (!with_x0) memset(a->x0, 0, sizeof a->x0);
        differences(a, a->x0, states, want->dx0);
        a->with_x0 = with_x0;
        if (run_ranks(a, rep) == KCP_OK) {
            const int D = a->D, n = a->shift ? 0 : D;
            compare("y", a->out.y, want->y, a->T * D, 1e-14, trial, rep);
            compare("dx", a->out.dx, want->dx, a->T * D, 1e-8, trial, rep);
            compare("dw", a->out.dw, want->dw, n * a->Wc, 1e-8, trial, rep);
            compare("db", a->out.db, want->db, a->with_bias ? n : 0, 1e-8, trial, rep);
            const int n_states = with_x0 || a->with_dxt ? states : 0;
            compare("xt", a->out.xt, want->xt, n_states, 0, trial, rep);
            compare("dx0", a->out.dx0, want->dx0, n_states, 1e-8, trial, rep);
            check_traffic(a, 0, trial, rep);
            check_traffic(a, 1, trial, rep);
        }
        kcp_plan_free(a->plan);
    }
    return KCP_OK;
}
KCP_CHECK(conv_whole) = { "14_conv", "against_whole",
    "on 1 to 9 ranks with any cuts, y and states equal one rank's, gradients "
    "equal finite differences, and bytes equal the count", against_whole };

static int same_bits(struct kcp_report *rep)
{
    struct stream s = stream_of(14, "same_bits"), rows = stream_of(14, "states");
    static struct whole whole, *a = &whole;
    static struct result is, *one = &is;
    for (int trial = 0; trial < 40; trial++) {
        draw(a, &s);
        draw_states(a, trial % 4, &rows);
        a->L = 1 + below(&s, 9);
        for (int R = 1; R <= MAX_R; R++) {
            draw_cuts(a, R, &s);
            if (run_ranks(a, rep) == KCP_OK && R == 1)
                *one = a->out;
            EXPECT(rep, !memcmp(one, &a->out, sizeof *one),
                   "trial %d: L %d, R %d differs from R 1", trial, (int)a->L, R);
            kcp_plan_free(a->plan);
        }
    }
    return KCP_OK;
}
KCP_CHECK(conv_bits) = { "14_conv", "same_bits",
    "canonical segments give equal bits of all outputs for R = 1 to 9", same_bits };
