/* answers.c -- computes exercise answers; calls no reference function ref_*().
 *
 * Book: the exercises of chapters 00 to 20. */
#include "answers.h"
#include "ref.h"
#include "tests/20_clusters/model.h"
#include "tests/judge/tolerance.h"
#include "tokens.h"

static void fail(const char *what)
{
    fprintf(stderr, "answers: %s\n", what);
    exit(1);
}

/* Chapters 00 and 18: computes the bytes of arrays and messages. */
static void bytes(void)
{
    enum { heads = 32, D = 128 };
    static float map[heads][D][D + D];
    static uint16_t kv[heads][2][D];
    say("00.map", "%.0f", 4 * heads * D * (D + D), sizeof map);
    say("00.token", "%.0f", 2 * 2 * heads * D, sizeof kv);
    say("00.tokens", "%.0f", sizeof map / sizeof kv, 256);
    int tokens = 0;
    for (size_t pairs = 0; pairs <= D * D; tokens++) pairs += D + D;
    say("00.state", "%.0f", (double)(D * D) / (D + D), tokens - 1);
    const double k[2][2] = { { 1, 0 }, { 0.6, 0.8 } }, v[2] = { 1, 2 };
    const double S[2] = { k[0][0] * v[0] + k[1][0] * v[1], k[1][1] * v[1] };
    say("00.first", "%.1f", S[0] * k[0][0] + S[1] * k[0][1], v[0] + k[1][0] * v[1]);
    say("00.second", "%.1f", S[0] * k[1][0] + S[1] * k[1][1], v[1] + k[1][0] * v[0]);
    const struct { uint16_t q[D], k[D], v[D], o[D], g[D], beta; } kda = { 0 };
    const struct { uint16_t q[D], k[D], v[D], o[D], g, beta; } gdn = { 0 };
    say("18.gdn", "%.0f", 4 * D * 2 + 2 + 2, sizeof gdn);
    say("18.kda", "%.0f", 5 * D * 2 + 2, sizeof kda);
    say("18.ratio", "%.2f", (double)sizeof kda / sizeof gdn, 1282.0 / 1028);
}

/* Chapter 19: prints the judge's error limits; for ALIKE_* prints only bf16's. */
static void tolerances(void)
{
#define TOLERANCE(name, f64, f32, bf16)                                                \
    printf("@answer/19.%s %s\n", #name, #bf16);                                        \
    if (strncmp(#name, "ALIKE", 5))                                                    \
        printf("@answer/19.%s.f32 %s\n@answer/19.%s.f64 %s\n", #name, #f32, #name,     \
               #f64);
#include "tests/judge/tolerance.def"
#undef TOLERANCE
}

/* Chapter 19: computes how much the error of a map's M grows from 16 to 256 chunks. */
static void growth(void)
{
    const double from = 1.1e-7, to = 6.2e-7, M16 = 0.9295, M256 = 0.3087;
    say("19.relative", "%.1f", to / from, exp(log(to) - log(from)));
    say("19.absolute", "%.1f", to * M256 / (from * M16), to / from / (M16 / M256));
}

/* Chapter 02: finds where fp32's log(1 + exp(x)) is 0, and where decays underflow. */
static void softplus(void)
{
    float low = -30, high = 0;      /* softplus(low) = 0 < softplus(high) */
    for (int i = 0; i < 60; i++) {
        const float mid = (low + high) / 2, one = 1 + expf(mid);
        if (logf(one) == 0) low = mid;
        else high = mid;
    }
    say("02.edge", "%.2f", floor(-24 * log(2) * 100) / 100, floor(low * 100.0) / 100);
    say("02.better", "%.1e", log1p(exp(-24 * log(2))), log1p(ldexp(1, -24)));
    const double G = -5 * 64 / log(2);
    say("02.G", "%.1f", G, -320 / 0.69314718055994531);
    say("02.decay", "%.0e", exp2(G), exp(-320));
    if ((float)exp2(G) != 0 || exp2(-149) > nextafterf(0, 1))
        fail("02: 2^G is not 0 in fp32, or 2^-149 is not fp32's smallest number");
    int tokens = 0;
    for (float left = expf(-5); left >= 0x1p-126f; left *= expf(-5))
        tokens++;
    say("02.normal", "%.0f", floor(126 * log(2) / 5), tokens);
    say("02.subchunk", "%.1f", -16 * 5 / log(2), log2(exp(-80)));
}

/* Chapter 03: computes an element of L, and the cost of A = (I + L)^-1 in two ways. */
static void solve(void)
{
    say("03.L", "%.2f", 0.75 * (0.6 * 1 * exp2(-1 + 1) + 0.8 * 0 * exp2(-1 - 0)),
        ex_beta[1] * ex_k[1][0] * ex_k[0][0]);
    double rows = 0, block = 0;
    for (int i = 0; i < 64; i++)                    /* row p of A has p + 1 nonzeros */
        for (int p = 0; p < i; p++)
            rows += 2 * (p + 1);
    for (int i = 0; i < 16; i++)
        for (int p = 0; p < i; p++)
            block += 2 * (p + 1);
    const double products = 2 * 2 * 2 * pow(16, 3) + 2 * 2 * pow(32, 3);
    say("03.rows", "%.0f", rows, 63.0 * 64 * 65 / 3);
    say("03.blocks", "%.0f", 4 * block + products, 4 * (15.0 * 16 * 17 / 3) + 163840);
    say("03.serial", "%.0f", 4 * block, 5440);
}

/* Chapter 04: returns operations per token, for chunks of C tokens and K = V = D. */
static double flop(double C, double D) { return 6 * D * D + 5 * C * D + C * C / 3; }

static void lengths(void)
{
    int best = 1;
    for (int C = 1; C <= 4096; C++)
        if (flop(C, 128) < flop(best, 128))
            best = C;
    say("04.best", "%.0f", best, 1);
    say("04.one", "%.0f", flop(1, 128), 98944 + 1.0 / 3);
    say("04.chunk", "%.0f", flop(64, 128), 98304 + 40960 + 4096.0 / 3);
    say("04.more", "%.0f", 100 * (flop(64, 128) / flop(1, 128) - 1), 100 *
        (140629.0 + 1.0 / 3 - 98944 - 1.0 / 3) / (98944 + 1.0 / 3));
}

static double product(double m, double k, double n) { return 2 * m * k * n; }

/* Chapters 04 and 09: computes the share of a chunk's operations that must wait for the
 * state from the previous chunk (in backward, for the gradient from the next chunk). */
static void on_the_chain(void)
{
    enum { C = 64, K = 128, V = 128 };
    const double chain = product(C, K, V) + product(K, C, V);          /* w S, kg^T v */
    const double rest = product(C, K, V) + product(C, C, V);           /* qg S, Aqk v */
    say("04.share", "%.0f", 100 * chain / (chain + rest),
        100.0 * 4 * K / (6 * K + 2 * C));
    const double back = product(C, K, V) + product(K, C, V);      /* kg dS, w^T dU */
    const double before = product(C, C, V) * 2 + product(K, C, V);    /* dv, dAqk, qg */
    say("09.share", "%.0f", 100 * back / (back + before),
        100.0 * 4 * K / (6 * K + 4 * C));
}

/* Chapter 10: computes dbeta of the last token, and errors that cancellation causes. */
static void cancelling(void)
{
    const double e[2] = { 1.917, -0.436 };          /* v_new of chapter 04 */
    double qk = 0, sum = 0, S[2][2] = { { -0.085, 1.18 }, { -0.78, 0.24 } };
    for (int i = 0; i < 2; i++) {
        qk += ex_q[2][i] * ex_k[2][i];
        for (int j = 0; j < 2; j++)
            S[i][j] *= exp2(ex_log2_decay[2][i]);
    }
    for (int j = 0; j < 2; j++)
        sum += ex_v[2][j] - S[0][j] * ex_k[2][0] - S[1][j] * ex_k[2][1];
    say("10.dbeta", "%.4f", qk * sum, -0.6 * (e[0] + e[1]));
    const double ten = 8.6e-7, twenty = 3.9e-11, left = 1.2e-7 * twenty;
    say("10.absolute", "%.1e", left, exp(log(1.2e-7) + log(3.9e-11)));
    say("10.fifty", "%.1e", left / 3.7e-24, 1.2e-7 * (twenty / 3.7e-24));
    const double single = ldexp(left, 53 - 24), per_unit = log(ten / twenty) / 10;
    say("10.single", "%.1e", single, left * 0x1p-24 / 0x1p-53);
    say("10.gate", "%.0f", -10 - log(ten / (10 * single)) / per_unit,
        -20 + log(10 * single / twenty) / per_unit);
}

/* Chapter 13: counts bytes that each of four ranks receives. Computes the factor by
 * which a gradient is too small if the ranks' parts are averaged, not summed. */
static void backward_bytes(void)
{
    enum { ranks = 4, heads = 32, D = 128, replicas = 2 };
    static float half[heads][D][D], partial[heads][1 + D];
    say("13.gather", "%.0f", (ranks - 1) * 2.0 * sizeof half / 1048576,
        3 * (B() + BM()) / 1048576);
    say("13.reuse", "%.0f", (ranks - 1.0) * sizeof half / 1048576, 3 * B() / 1048576);
    say("13.params", "%.0f", (ranks - 1.0) * sizeof partial, 3 * 4 * 32 * 129);
    double whole = 0, parts = 0;  /* averages of 1 and of 1 / ranks */
    for (int p = 0; p < ranks * replicas; p++) {
        whole += 1.0 / (ranks * replicas);
        parts += 1.0 / ranks / (ranks * replicas);
    }
    say("13.small", "%.0f", whole / parts, ranks);
}

/* Chapters 06, 08, 11: counts maps, applications of maps, and messages in plans. */
static void plans(void)
{
    static int64_t cu[101];
    struct kcp_plan *p;
    const char *why;
    for (int n = 0; n <= 8; n++)
        cu[n] = 1000 * n;
    if (kcp_plan_make(&p, 8, cu, 3, NULL, 0, 64, 4, &why))
        fail(why);
    for (int r = 0; r < 3; r++) {
        int h = 0, M = 0;
        for (int64_t j = p->ctx[r].seg0; j < p->ctx[r].seg0 + p->ctx[r].NS; j++) {
            h += !!(kcp_plan_want(p, j, 0) & KCP_WANT_H);
            M += !!(kcp_plan_want(p, j, 0) & KCP_WANT_M);
        }
        if (h != (r < 2) || M)
            fail("06: expected h_ext from ranks 0 and 1, and M from no rank");
    }
    kcp_plan_free(p);
    static const int64_t ten[] = { 0, 10 }, cuts[] = { 0, 5, 5, 10 };
    if (kcp_plan_make(&p, 1, ten, 3, cuts, 0, 4, 4, &why))
        fail(why);
    say("06.pre", "%.0f", p->ctx[2].pre_num_ranks, 2);
    say("06.post", "%.0f", p->ctx[0].post_num_ranks, 2);
    kcp_plan_free(p);
    static const int64_t one[] = { 0, 8000 };       /* eight ranks, one sequence */
    if (kcp_plan_make(&p, 1, one, 8, NULL, 0, 64, 4, &why))
        fail(why);
    int folds = 0, matrices = 0;
    for (int r = 2; r < 8; r++)
        folds += p->ctx[r].pre_num_ranks - 1;
    for (int64_t j = 0; j < p->S; j++)
        matrices += !!(kcp_plan_want(p, j, 0) & KCP_WANT_M);
    say("08.gather", "%.0f", folds, 6 * 7 / 2);
    say("08.chain", "%.0f", 8 - 2, matrices);
    say("11.half", "%.0f", 7 * 4.0 * 32 * 128 * 128 / 1048576, 7 * B() / 1048576);
    say("11.keep", "%.0f", matrices * 4.0 * 32 * 128 * 128 / 1048576, 12);
    kcp_plan_free(p);
    for (int R = 2; R < 9; R++) {                   /* counts a zigzag plan's hops */
        int hops = 0;
        for (int i = 1; i < 2 * R; i++)
            hops += (i < R ? i : 2 * R - 1 - i) != (i - 1 < R ? i - 1 : 2 * R - i);
        if (hops != 2 * R - 2)
            fail("06: a zigzag plan: expected 2R - 2 messages, found more or fewer");
    }
    for (int n = 0; n <= 100; n++)
        cu[n] = 600 * n;
    if (kcp_plan_make(&p, 100, cu, 8, NULL, 0, 64, 4, &why))
        fail(why);
    int maps = 0, cut = 0;
    for (int64_t j = 0; j < p->S; j++)
        maps += !!kcp_plan_want(p, j, 0);
    for (int r = 1; r < 8; r++)
        cut += 7500 * r % 600 != 0;
    say("08.segments", "%.0f", p->S, 100 + cut);
    say("08.maps", "%.0f", maps, cut);
    say("08.bytes", "%.0f", maps * B() / 1048576, 8);
    kcp_plan_free(p);
}

/* Chapter 07: finds the fewest ranks for which a gather moves more maps than a scan. */
static void forms(void)
{
    int first = 0;
    for (int R = 2; R < 64; R++) {
        int steps = 0;
        while (1 << steps < R)
            steps++;
        if (!first && R - 1 > steps)
            first = R;
        if (first && R - 1 <= steps)
            fail("07: above the smallest R, a gather moves no more maps than a scan");
    }
    say("07.R", "%.0f", first, 4);
}

/* Chapters 12 and 14: computes the bytes saved for backward and the bytes of a halo. */
static void kept(void)
{
    /* GB that a layer saves for backward in two modes. G, rho and beta are fp32. */
    const double less = 2 * (2 * 128 + 2 * 64) + 3 * 4 + 4 * 128 * 128 / 8192;
    say("12.layer_less", "%.1f", less * 8192 * 96 / 1e9, 788 * 786432.0 / 1e9);
    const double more = 4 * 128 + 2 * 5 * 128 + 2 * 128 * 128 / 64;
    say("12.layer_all", "%.1f", (less + more) * 8192 * 96 / 1e9, 3092 * 786432.0 / 1e9);
    say("12.h64", "%.0f", 128 * 256 / 64, 512);
    say("12.h256", "%.0f", 128 * 256 / 256, 128);
    /* GB that 24 layers save for backward, for 32 heads and 32768 tokens. */
    const double th = 24.0 * 32 * 32768, state = 4.0 * 128 * 128 / 32768;
    const double factors = 6 * 128 + 2.5 * 64 + 8 + 12;
    say("12.model", "%.1f", th * 950 / 1e9, th * (state + factors) / 1e9);
    say("12.model_all", "%.1f", th * 1718 / 1e9,
        th * (state + factors + 2 * 128 + 2.0 * 128 * 128 / 64) / 1e9);
    int chain = 0;
    for (int c = 1; c < 8192 / 64; c++)
        chain++;
    say("12.fourth", "%.0f", 2.0 * 128 * 128 / (4 * 64), 512 / 4);
    say("12.chain", "%.0f", chain, 8192 / 64 - 1);
    say("14.rows64", "%.3f", 3 * 2 / 64.0, 0.09375);
    say("14.sums64", "%.3f", 2 * 4 * 5 / 64.0, 0.625);
    say("14.sums384", "%.3f", 2 * 4 * 5 / 384.0, 5 / 48.0);
}

/* Chapter 18: returns 1 if, for some m from 2 to `most`, n heads take less time with m
 * parts per sequence than with one. Each part after the first costs `fold` passes. */
static int pays(int n, double fold, int most)
{
    for (int m = 2; m <= most; m++)
        if (2 * ceil(n * m / 132.0) / m + (m - 1) * fold < ceil(n / 132.0) - 1e-12)
            return 1;
    return 0;
}

static void split(void)
{
    int last = 0, likely = 0;
    for (int n = 1; n <= 1000; n++) {
        last = pays(n, 0, 1000) ? n : last;
        likely = pays(n, 0.02, 16) ? n : likely;
    }
    say("18.heads", "%.0f", last + 1, 132 / 2);
    printf("@answer/18.likely %d\n", likely);
    /* Times of the one-kernel forward with one wave and with two waves of blocks. */
    double us = 0;
    for (int step = 0; step < 8192 / 32; step++)
        us += 1.75;
    say("18.one_round", "%.3f", us / 1e3, ceil(96 / 132.0) * 256 * 1.75e-3);
    say("18.two_rounds", "%.3f", 2 * us / 1e3, ceil(133 / 132.0) * 256 * 1.75e-3);
    say("18.memory_heads", "%.0f", us * 2.8e6 / (1282.0 * 8192),
        2.8e12 / (1282 * 32 / 1.75e-6));
    say("18.memory_from", "%.0f", floor(us * 2.8e6 / (1282.0 * 8192)) + 1,
        ceil(2.8e12 / (1282 * 32 / 1.75e-6)));
    say("18.memory_132", "%.3f", 132.0 * 8192 * 1282 / 2.8e9,
        132 * 8.192 * 1.282 / 2800);
    say("18.range", "%.0f", 16 * 5 / log(2), log2(exp(80)));
    say("18.launch", "%.0f", 65536 / 512, 128);
    say("18.registers", "%.0f", 256 * 160 + 256 * 88, 512 * 124);
    say("18.most", "%.0f", (65536 - 256 * 160) / 256, 2 * 128 - 160);
}

/* Chapter 20: compares exchange algorithms between nodes. */
static void clusters(void)
{
    const double state = B() / between.bw, tie = between.a;
    int R = 2;
    while (R < 64 && chain(between, R, 1) < gather(between, R))
        R++;
    /* Finds the bandwidth w.bw at which all-gather takes as long as the chain. */
    struct wire w = { between.a, 1 };
    double high = 1e9;
    while (high - w.bw > 1e-4) {
        const struct wire middle = { w.a, (w.bw + high) / 2 };
        if (gather(middle, 4) > chain(middle, 4, 1))
            w.bw = middle.bw;
        else
            high = middle.bw;
    }
    say("20.tie", "%.0f", w.bw * 1e-3, 3 * 2097152 / 40e3);
    say("20.state", "%.0f", state, 4.0 * 32 * 128 * 128 / 45e3);
    if (R != 64 || state < tie)
        fail("20: gather beats chain at R < 64, or a state takes less than latency");
    double messages = 0;
    for (int d = 1; d < 64; d *= 2)
        for (int node = d; node < 64; node++)
            messages++;
    say("20.messages", "%.0f", messages, 6 * 64 - 63);
    say("20.MiB", "%.0f", messages * (B() + BM()) / 1048576, 321 * 4);
    say("20.card", "%.0f", 6 * (B() + BM()) / 1048576, 24);
    say("20.shared", "%.0f", 6 * (B() + BM()) / 8 / 1048576, 3);
    const double us = two_levels(1024, 8), a_rank = us * 1e3 / (HV * sum_ns);
    say("20.tokens", "%.0f", round(a_rank / 100) * 100, round(us / 0.0192 / 100) * 100);
    say("20.limit", "%.1f", 100 * main_ns / (main_ns + sum_ns), 62.5);
    say("20.map_ns", "%.2f", main_ns / 0.8 - main_ns, 0.25);
    const double crossing = 20 + B() / 12.5e3;
    say("20.crossing", "%.0f", crossing, 20 + 2097152 / 12500.0);
    say("20.crossing_tokens", "%.0f", round(20 * crossing / (HV * 1.6)) * 1e3,
        round(crossing / 0.05 / 0.0512 / 1e3) * 1e3);
    say("20.million", "%.0f", a_rank * 1024 / 1e6, us / 0.0192 * 1.024e-3);
}

int main(void)
{
    bytes();
    softplus();
    tolerances();
    growth();
    solve();
    lengths();
    on_the_chain();
    cancelling();
    backward_bytes();
    plans();
    forms();
    kept();
    split();
    clusters();
    return 0;
}
