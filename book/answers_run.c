/* answers_run.c -- computes numbers for the answers to exercises by calling ref/.
 *
 * Book: the exercises of chapters 01, 03, 05, 07, 09, 10, 14 and 19. */
#include "example.h"
#include "answers.h"
#include "tests/09_chunk_backward/mutants.c"

static uint64_t seed = 5;
static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

static double normal(void)
{
    return sqrt(-2 * log(1 - uniform())) * cos(6.283185307179586 * uniform());
}

/* Chapter 01: deliberately computes token 2's error e from S before S has decayed. */
static void undecayed(void)
{
    double S[K][V], old[V], e[V], answer[V];
    recurrence(2);
    memcpy(S, ht, sizeof S);
    const double *k = ex_k[2], *v = ex_v[2];
    for (int j = 0; j < V; j++) {
        old[j] = S[0][j] * k[0] + S[1][j] * k[1];
        e[j] = v[j] - old[j];                       /* S is not decayed */
    }
    for (int i = 0; i < K; i++)
        for (int j = 0; j < V; j++)
            S[i][j] = S[i][j] * exp2(ex_log2_decay[2][i]) + k[i] * e[j];
    for (int j = 0; j < V; j++)
        answer[j] = S[0][j] * k[0] + S[1][j] * k[1];
    /* Computes e and `answer` again, from chapter 01's rounded state after token 1. */
    const double S1[K][V] = { { -0.085, 1.18 }, { -0.78, 0.24 } };
    for (int j = 0; j < V; j++) {
        const double by = v[j] - (0.8 * S1[0][j] - 0.6 * S1[1][j]);
        const double then = 0.8 * (S1[0][j] / 2 + 0.8 * by) -
                            0.6 * (S1[1][j] / 4 - 0.6 * by);
        say(j ? "01.e1" : "01.e0", "%.3f", e[j], by);
        say(j ? "01.a1" : "01.a0", "%.3f", answer[j], then);
    }
    recurrence(3);
}

/* Chapter 01: runs only tokens 1 and 2, from the state after token 0. Then dh0 of this
 * run is the dS that backward passes to token 0. */
static void back_to_token_0(void)
{
    double first[K][V];
    recurrence(T);
    say("01.dbeta", "%.4f", dbeta[1], (0.6 * 1.24 + 0.8 * 0.16) * (-1.3 + 0.4));
    recurrence(1);
    memcpy(first, ht, sizeof first);
    struct kcp_step a = step_call(1, 2);
    a.h0 = first;
    step_run(a);
    same(dh0[0], (double[]){ dh0[0][1] }, 1, "01: columns of dS");
    say("01.dS0", "%.4f", dh0[0][0], 0.73 * 1.24 - 0.36 * 0.16);
    say("01.dS1", "%.4f", dh0[1][0], -0.18 * 1.24 + 0.26 * 0.16);
}

/* Chapter 03: checks A, u and w of GDN (one gate per head) if all keys are equal and
 * beta is 1: A is 0 outside two diagonals, and w is 0 from token 1 on. */
static void alike(void)
{
    enum { n = 8, D = 4 };
    static double q[n][D], k[n][D], v[n][D], G[n], beta[n], Aqk[n][n], A[n][n];
    static double u[n][D], w[n][D];
    const int cu[] = { 0, n }, cn[] = { 0, 1 }, sc[] = { 0 };
    struct kcp_wy a;
    memset(&a, 0, sizeof a);
    a.T = n; a.N = a.NS = a.NC = a.H = a.HV = a.KG = 1; a.K = a.V = D; a.C = n; a.R = 1;
    a.model = KCP_GDN; a.scale = 1;
    for (int t = 0; t < n; t++) {
        k[t][0] = 0.6; k[t][2] = 0.8;
        G[t] = (t ? G[t - 1] : 0) - uniform();
        beta[t] = 1;
        for (int j = 0; j < D; j++)
            v[t][j] = normal();
    }
    a.q = q; a.k = k; a.v = v; a.G = G; a.beta = beta; a.Aqk = Aqk; a.A = A;
    a.u = u; a.w = w; a.cu = cu; a.cn = cn; a.sc = sc;
    if (ref_wy(&a))
        fail("03: ref_wy failed");
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            double is = i == j;
            if (j == i - 1)
                is = -exp2(G[i] - G[j]);
            same(&A[i][j], &is, 1, "03: A of alike keys");
        }
    for (int i = 1; i < n; i++)
        for (int j = 0; j < D; j++) {
            const double zero = 0, is = v[i][j] - exp2(G[i] - G[i - 1]) * v[i - 1][j];
            same(&w[i][j], &zero, 1, "03: w of alike keys");
            same(&u[i][j], &is, 1, "03: u of alike keys");
        }
}

/* Chapter 05: composes the maps of tokens 0 and 1 from the book's numbers. */
static void maps(void)
{
    const double A0[K][K] = { { 0.25, 0 }, { 0, 1 } };
    const double A1[K][K] = { { 0.73, -0.18 }, { -0.36, 0.26 } };
    const double B0[K][V] = { { 0.5, 1 } };
    const double B1[K][V] = { { -0.45, 0.45 }, { -0.6, 0.6 } };
    double M[K][K], h[K][V];
    for (int i = 0; i < K; i++)
        for (int j = 0; j < K; j++) {
            M[i][j] = A1[i][0] * A0[0][j] + A1[i][1] * A0[1][j];
            h[i][j] = A1[i][0] * B0[0][j] + A1[i][1] * B0[1][j] + B1[i][j];
        }
    recurrence(2);
    same(&h[0][0], &ht[0][0], K * V, "05: h_ext by hand");
    printf("@answer/05.M00 %.4f\n@answer/05.M01 %.2f\n", M[0][0], M[0][1]);
    printf("@answer/05.M10 %.2f\n@answer/05.M11 %.2f\n", M[1][0], M[1][1]);
    recurrence(3);
}

/* Returns x rounded to 8 significant bits, to nearest or stochastically. */
static double bf16(double x, int stochastic)
{
    int e;
    const double y = frexp(x, &e) * 256, low = floor(y), part = y - low;
    const int even = fmod(low, 2) == 0;
    const int up = stochastic ? uniform() < part : part > 0.5 || (part == 0.5 && !even);
    return ldexp(low + up, e - 8);
}

/* Chapters 05 and 19: multiplies a number by 1 - 2^-10 per chunk, rounding to bf16. */
static void forgetting(void)
{
    double truth = 1, kept = 1;
    int n = 0;
    while (fabs(kept / truth - 1) < 0.1) {
        truth *= 1 - ldexp(1, -10);
        kept = bf16(kept * (1 - ldexp(1, -10)), 0);
        n++;
    }
    say("05.chunks", "%.0f", n, ceil(log(1.1) / -log1p(-ldexp(1, -10))));
    enum { many = 4000, chunks = 256 };
    double mean = 0, square = 0;
    truth = pow(1 - ldexp(1, -10), chunks);
    for (int i = 0; i < many; i++) {
        double x = 1;
        for (int c = 0; c < chunks; c++)
            x = bf16(x * (1 - ldexp(1, -10)), 1);
        mean += (x / truth - 1) / many;
        square += (x / truth - 1) * (x / truth - 1) / many;
    }
    printf("@answer/19.mean %.1f\n@answer/19.rms %.1f\n", 100 * mean,
           100 * sqrt(square));
    printf("@answer/19.nearest %.0f\n", 100 * (1 / truth - 1));
    if (fabs(mean) > 4 * sqrt(square / many) || 1 / truth - 1 < 5 * sqrt(square))
        fail("19: stochastic rounding is biased, or errs over 1/5 as much as nearest");
}

/* Chapter 19: computes the RMS error of one and of two roundings to bf16. */
static void rounded_once(void)
{
    double one = 0, two = 0, size = 0;
    for (int i = 0; i < 400000; i++) {
        const double x = 1 + uniform(), y = 1 + uniform();
        const double dx = bf16(x, 0) - x, dy = bf16(y, 0) - y;
        one += dx * dx;
        two += (dx + dy) * (dx + dy);
        size += x * x;
    }
    const double by = ldexp(1, -7) / sqrt(12) / sqrt(7.0 / 3);
    agree("19.once", "%.1f", 1e3 * sqrt(one / size), 1e3 * by, 0.02);
    agree("19.twice", "%.1f", 1e3 * sqrt(two / size), 1e3 * by * sqrt(2), 0.02);
}

static double keep_bits(double x, int bits)
{
    int e;
    const double part = frexp(x, &e);
    return ldexp(nearbyint(ldexp(part, bits)), e - bits);
}

/* Chapter 19: computes the error of a sum of products x * y. Each product is replaced
 * by 1, 2 or 3 products of parts that have 11 bits. */
static void two_of_three(void)
{
    double one = 0, two = 0, three = 0;
    for (int i = 0; i < 4000; i++) {
        double x1y1 = 0, x1y2 = 0, x2y1 = 0, exact = 0;
        for (int p = 0; p < 128; p++) {
            const double x = (float)normal(), y = (float)normal();
            const double x1 = keep_bits(x, 11), y1 = keep_bits(y, 11);
            exact += x * y;
            x1y1 += x1 * y1;
            x1y2 += x1 * keep_bits(y - y1, 11);
            x2y1 += keep_bits(x - x1, 11) * y1;
        }
        one += pow(x1y1 - exact, 2);
        two += pow(x1y1 + x1y2 - exact, 2);
        three += pow(x1y1 + x1y2 + x2y1 - exact, 2);
    }
    agree("19.two", "%.2f", sqrt(two / one), sqrt(0.5), 0.02);
    printf("@answer/19.three %.5f\n", sqrt(three / one));
}

/* Chapter 09: computes for three kinds of gates the error of dU if dS decays too early,
 * as in the deliberately wrong variant mutant_decay_first. */
enum { n9 = 512, C9 = 64, D9 = 16, chunks9 = n9 / C9 };
static struct {
    double q[n9][D9], k[n9][D9], v[n9][D9], G[n9][D9], beta[n9], Aqk[n9][C9], A[n9][C9];
    double u[n9][D9], w[n9][D9], kg[n9][D9], qg[n9][D9], dO[n9][D9], vn[n9][D9];
    double dAqk[n9][C9], dvl[n9][D9], dU[n9][D9], dh[chunks9][D9][D9], dh_in[D9][D9];
    double wrong[n9][D9];
} x9;

static double regime(int which)
{
    static int cu[] = { 0, n9 }, cn[] = { 0, chunks9 }, sc[chunks9];
    for (int t = 0; t < n9; t++) {
        double norm = 1e-6;
        for (int i = 0; i < D9; i++) {
            const double live = -0.01 * uniform(), strong = -log1p(exp(-normal()));
            const double gates[] = { live, strong, -5 + uniform() / 8 };
            x9.G[t][i] = (t % C9 ? x9.G[t - 1][i] : 0) + gates[which] / log(2);
            x9.k[t][i] = normal(); x9.q[t][i] = normal(); x9.dO[t][i] = normal();
            x9.vn[t][i] = normal(); x9.v[t][i] = normal();
            norm += x9.k[t][i] * x9.k[t][i];
        }
        for (int i = 0; i < D9; i++)
            x9.k[t][i] /= sqrt(norm);
        x9.beta[t] = uniform() / 4;
    }
    struct kcp_wy a;
    struct kcp_chunk_backward b;
    memset(&a, 0, sizeof a);
    memset(&b, 0, sizeof b);
    a.T = n9; a.N = a.NS = a.H = a.HV = a.R = 1; a.NC = chunks9; a.K = a.V = a.KG = D9;
    a.C = C9; a.model = KCP_KDA; a.scale = 1; a.cu = cu; a.cn = cn; a.sc = sc;
    memcpy(&b, &a, sizeof(struct kcp_call));
    b.cu = cu; b.cn = cn; b.sc = sc;
    a.q = x9.q; a.k = x9.k; a.v = x9.v; a.G = x9.G; a.beta = x9.beta; a.Aqk = x9.Aqk;
    a.A = x9.A; a.u = x9.u; a.w = x9.w; a.kg = x9.kg; a.qg = x9.qg;
    b.part = KCP_LOCAL | KCP_REVERSE; b.qg = x9.qg; b.kg = x9.kg; b.w = x9.w;
    b.Aqk = x9.Aqk; b.v_new = x9.vn; b.G = x9.G; b.do_ = x9.dO; b.dAqk = x9.dAqk;
    b.dv_local = x9.dvl; b.dU = x9.dU; b.dh = x9.dh; b.dh_in = x9.dh_in;
    if (ref_wy(&a) || ref_chunk_backward(&b))
        fail("09: a reference failed");
    b.dU = x9.wrong;
    mutate(&b, DECAY_FIRST);
    double error = 0, size = 0;
    const double *wrong = &x9.wrong[0][0], *right = &x9.dU[0][0];
    for (int i = 0; i < n9 * D9; i++) {
        error += pow(wrong[i] - right[i], 2);
        size += right[i] * right[i];
    }
    return sqrt(error / size);
}

/* Chapter 10: checks which gradients of a token with beta = 0 are 0. */
static void silent(void)
{
    double beta[T];
    struct kcp_step a = step_call(0, T);
    memcpy(beta, ex_beta, sizeof beta);
    beta[1] = 0;
    a.beta = beta;
    step_run(a);
    for (int i = 0; i < K; i++)
        if (dk[1][i] != 0 || dv[1][i] != 0)
            fail("10: beta = 0: expected dk and dv to be 0, found nonzero");
    if (dbeta[1] == 0 || dq[1][0] == 0 || dg[1][0] == 0)
        fail("10: beta = 0: expected nonzero dbeta, dq and dg, found a 0");
}

/* Chapter 14: finds the rank that owns each halo row, for windows of 4 tokens. */
static void halos(void)
{
    static const int64_t cu[] = { 0, 12 }, cuts[] = { 0, 5, 6, 6, 7, 12 };
    static const char *const says[] = { "", "0 0 0", "", "0 0 1", "0 1 3" };
    struct kcp_plan *p;
    const char *why;
    if (kcp_plan_make(&p, 1, cu, 5, cuts, 0, 64, 4, &why))
        fail(why);
    for (int r = 0; r < 5; r++) {
        char from[32] = "";
        const int64_t b = p->ctx[r].begin, pre = p->ctx[r].pre_num_conv_tokens;
        for (int64_t t = b - (pre < 3 ? pre : 3); t < b && p->ctx[r].end > b; t++)
            for (int h = 0; h < 5; h++)
                if (p->ctx[h].begin <= t && t < p->ctx[h].end)
                    snprintf(from + strlen(from), 8, "%s%d", *from ? " " : "", h);
        if (strcmp(from, says[r]))
            fail("14: a halo row has the wrong owner");
    }
    kcp_plan_free(p);
}

int main(void)
{
    undecayed();
    back_to_token_0();
    alike();
    maps();
    forgetting();
    two_of_three();
    rounded_once();
    const double live = regime(0), strong = regime(1), saturated = regime(2);
    printf("@answer/09.live %.2g\n@answer/09.strong %.2g\n@answer/09.saturated %.2g\n",
           live, strong, saturated);
    silent();
    halos();
    return 0;
}
