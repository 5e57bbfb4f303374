/* checks.c -- recomputes the lower bounds of chapter 18 and the cost of strips.
 *
 * Book: chapter 18.  Checked by: itself, from the stage's arrays and equations.
 * Next: tests/19_precision/checks.c. */
#include "core/split.h"
#include "tests/judge/batch.h"
#include "base/random.h"

#include <math.h>

enum { P = 132 };

/* Returns the bytes of all arrays of a bf16 forward call without a saved block. */
static double bytes(int64_t T)
{
    const struct kcp_stage *s = stage_find("08_forward");
    const struct kcp_call c = { .T = T, .N = 1, .NS = 1, .NC = (int)(T / 64), .R = 1,
        .H = 96, .HV = 96, .K = 128, .V = 128, .KG = 128, .C = 64, .model = KCP_KDA };
    double sum = 0;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        int64_t dim[4];
        double n = 1;
        if (!field_used(f, &c)) continue;
        const int nd = shape_dims(&c, f->shape, dim);
        for (int d = 0; d < nd; d++) n *= (double)dim[d];
        sum += n * (double)store_bytes(f->store, KCP_BF16);
    }
    return sum;
}

static int floor_bytes(struct kcp_report *rep)
{
    const double th = (bytes(8192) - bytes(4096)) / (4096 * 96);
    EXPECT(rep, fabs(th - 1282) < 0.01, "%g bytes per token, head, not 1282", th);
    return KCP_OK;
}
KCP_CHECK(check_17_bytes) = { "18_hopper", "floor_bytes",
    "a forward's arrays take 1282 bytes per token and head", floor_bytes };

/* Returns the operations per token of chapters 03 and 04, two per multiply-add. */
static double operations(int C, int D)
{
    double n = 0;
    for (int i = 0; i < C; i++) {
        for (int j = 0; j <= i; j++) {
            n += D;                                /* Aqk_ij */
            n += j < i ? D : 0;                    /* L_ij */
            n += 2 * D;                            /* A_ij v_j, A_ij k_j */
            n += D;                                /* Aqk_ij v_new_j */
        }
        for (int p = 0; p < i; p++) n += p + 1;    /* row i of the inverse */
        n += 3. * D * D;                           /* w S, qg S, kg^T v_new */
    }
    return 2 * n / C;
}

static int floor_operations(struct kcp_report *rep)
{
    for (int C = 32; C <= 256; C *= 2)
        for (int D = 64; D <= 256; D *= 2) {
            const double asked = 6. * D * D + 5. * C * D + C * C / 3.;
            const double got = operations(C, D);
            EXPECT(rep, fabs(got / asked - 1) < 5. / C / 2, "C %d, D %d: %g, not %g", C,
                   D, got, asked);
        }
    EXPECT(rep, fabs(operations(64, 128) / 141e3 - 1) < 0.01,
           "%g operations, not 141000", operations(64, 128));
    return KCP_OK;
}
KCP_CHECK(check_17_operations) = { "18_hopper", "floor_operations",
    "chapters 03 and 04 take 6 D^2 + 5 C D + C^2 / 3 multiply-adds per token",
    floor_operations };

/* Compares kcp_strip_cost with t(m), the cost of m equal strips in scan steps. */
static int split(struct kcp_report *rep)
{
    for (int HV = 1; HV <= 160; HV++)
        for (int m = 1; m <= KCP_MOST_STRIPS; m++) {
            const int C = 64, steps = 96, cu[] = { 0, steps * m * C };
            const struct kcp_context x = { .NS = 1, .cu = (int *)cu };
            const double waves = ceil(HV * m / (double)P);
            const double asked = m == 1 ? waves * steps
                : waves * steps * (1 + KCP_STEP_M) + (m - 1) * KCP_STEP_FOLD;
            const double got = kcp_strip_cost(&x, HV, C, P, (int64_t)steps * C);
            EXPECT(rep, got == asked, "%d heads, %d strips: %g, not %g", HV, m, got,
                   asked);
        }
    return KCP_OK;
}
KCP_CHECK(check_17_split) = { "18_hopper", "split",
    "kcp_strip_cost equals t(m) for all numbers of heads and strips", split };

/* Returns the largest difference between u - w S and A beta (v - k~ S) in a chunk of
 * head n, where k~ = exp2(G) k. */
static double without_u(const struct batch *x, int64_t t0, int rows, int n)
{
    const int K = x->c.K, V = x->c.V, C = x->c.C, HV = x->c.HV, KG = x->c.KG;
    double worst = 0;
    for (int i = 0; i < rows; i++)
        for (int v = 0; v < V; v++) {
            const int64_t tn = (t0 + i) * HV + n;
            double made = 0, want = x->u[tn * V + v];
            for (int p = 0; p < K; p++)
                want -= x->w[tn * K + p] * cos(p + 3 * v);           /* any S */
            for (int j = 0; j <= i; j++) {
                const int64_t jn = (t0 + j) * HV + n;
                double e = x->v[jn * V + v];
                for (int p = 0; p < K; p++)
                    e -= exp2(x->G[jn * KG + (KG > 1 ? p : 0)]) * cos(p + 3 * v) *
                         x->k[((t0 + j) * x->c.H + n / (HV / x->c.H)) * K + p];
                made += x->A[tn * C + j] * x->beta[jn] * e;
            }
            worst = fmax(worst, fabs(made - want));
        }
    return worst;
}

static int records(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int j = 0; j < 8 && !status; j++) {
        struct batch x;
        status = batch_draw(&x, j % 2 ? KCP_GDN : KCP_KDA, j / 2 % 2 ? 64 : 8, -j);
        status = status ? status : batch_wy(&x);
        for (int c = 0; c < x.c.NC && !status; c++)
            for (int n = 0; n < x.c.HV; n++) {
                const int s = x.sc[c], t0 = x.cu[s] + (c - x.cn[s]) * x.c.C;
                const int left = x.cu[s + 1] - t0;
                const double d = without_u(&x, t0, left < x.c.C ? left : x.c.C, n);
                EXPECT(rep, d <= 1e-12, "chunk %d, head %d: v_new differs by %g", c, n,
                       d);
            }
        batch_free(&x);
    }
    return status;
}
KCP_CHECK(check_17_records) = { "18_hopper", "records",
    "v_new from A, beta, v and decayed keys equals u - w S", records };

/* A random chunk on which the adjoints of chapters 10 and 18 are compared. In the
 * chunk, v_new = A beta (v - k~ h), A = (I + L)^-1, and L_ij is a multiple of
 * beta_i. */
enum { ROWS = 12, KEYS = 5 };
struct system {
    double L[ROWS][ROWS], A[ROWS][ROWS], beta[ROWS], v[ROWS][KEYS], k[ROWS][KEYS];
    double h[KEYS][KEYS], dU[ROWS][KEYS], v_new[ROWS][KEYS], x[ROWS][KEYS];
};

static void draw_system(struct system *s, uint64_t seed)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < KEYS * KEYS; i++)
        s->h[i / KEYS][i % KEYS] = random_normal(&seed);
    for (int i = 0; i < ROWS; i++) {
        s->beta[i] = 0.1 + random_uniform(&seed);
        for (int j = 0; j < i; j++) s->L[i][j] = s->beta[i] * random_normal(&seed) / 3;
        for (int j = 0; j <= i; j++) {
            s->A[i][j] = i == j;
            for (int p = j; p < i; p++) s->A[i][j] -= s->L[i][p] * s->A[p][j];
        }
        for (int d = 0; d < KEYS; d++) {
            s->v[i][d] = random_normal(&seed);
            s->k[i][d] = random_normal(&seed);
            s->dU[i][d] = random_normal(&seed);
        }
    }
    for (int i = 0; i < ROWS; i++)
        for (int d = 0; d < KEYS; d++)
            for (int j = 0; j < ROWS; j++) {
                double e = s->v[j][d];
                for (int p = 0; p < KEYS; p++) e -= s->k[j][p] * s->h[p][d];
                s->v_new[i][d] += s->A[i][j] * s->beta[j] * e;
                s->x[i][d] += s->A[j][i] * s->dU[j][d];             /* A^T dU */
            }
}

/* Returns dL_ij by chapter 10's formula, which needs dA = dU (beta v)^T + dw (beta
 * k~)^T with dw = -dU h^T. */
static double long_dL(const struct system *s, int i, int j)
{
    double sum = 0;
    for (int a = 0; a < ROWS; a++)
        for (int b = 0; b < ROWS; b++) {
            double dA = 0;
            for (int d = 0; d < KEYS; d++) {
                double dw = 0;
                for (int p = 0; p < KEYS; p++) dw -= s->dU[a][p] * s->h[d][p];
                dA += s->beta[b] * (s->dU[a][d] * s->v[b][d] + dw * s->k[b][d]);
            }
            sum -= s->A[a][i] * dA * s->A[j][b];
        }
    return sum;
}

static int short_adjoint(struct kcp_report *rep)
{
    for (int seed = 1; seed < 4; seed++) {
        struct system s;
        double worst = 0, worst_beta = 0;
        draw_system(&s, seed);
        for (int i = 0; i < ROWS; i++) {
            double dbeta = 0, quick = 0;
            for (int j = 0; j < i; j++) {
                double dL = 0;
                for (int d = 0; d < KEYS; d++) dL -= s.x[i][d] * s.v_new[j][d];
                worst = fmax(worst, fabs(dL - long_dL(&s, i, j)));
                dbeta += dL * s.L[i][j] / s.beta[i];
            }
            for (int d = 0; d < KEYS; d++) {
                double from_w = 0;                 /* row i, channel d of A^T dw */
                for (int p = 0; p < KEYS; p++) from_w -= s.x[i][p] * s.h[d][p];
                dbeta += s.x[i][d] * s.v[i][d] + from_w * s.k[i][d];
                quick += s.x[i][d] * s.v_new[i][d] / s.beta[i];
            }
            worst_beta = fmax(worst_beta, fabs(dbeta - quick));
        }
        EXPECT(rep, worst < 1e-10, "dL differs by %g", worst);
        EXPECT(rep, worst_beta < 1e-10, "dbeta differs by %g", worst_beta);
    }
    return KCP_OK;
}
KCP_CHECK(check_18_short_adjoint) = { "18_hopper", "short_adjoint",
    "dL and dbeta from x = A^T dU and v_new equal chapter 10's", short_adjoint };
