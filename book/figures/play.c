/* play.c -- the interactive figure of chapter 06: draws a plan and a survival curve.
 * Book: chapter 06. Compiled to WebAssembly (book/compute.mk); play.js has the sliders.
 * The plan is that of kcp_plan_make. The curve is |M|_F / sqrt(K), where M is the map
 * from the start of sequence 1 to a token, computed token by token by ref_step. */
#include "base/random.h"
#include "checked.h"
#include "ref.h"

#include <stdarg.h>
#include <stdio.h>

enum { N = 4, T = 512, K = 16, MOST_R = 8, LEFT = 10, WIDE = 620 };
static const int64_t cu[N + 1] = { 0, 90, 400, 460, T };
static char text[1 << 16];
static size_t length;

/* The calls here are right, so what checks them is left out of this small program. */
int kcp_begin(const char *stage, enum kcp_where where, const void *args, const char *x)
{
    return (void)stage, (void)where, (void)args, (void)x, KCP_OK;
}
int kcp_refuse(int status, const char *format, ...) { return (void)format, status; }
uint64_t kcp_plan_digest(const struct kcp_plan *p) { return (void)p, 0; }

static void put(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void put(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text + length, sizeof text - length, format, args);
    va_end(args);
    if (n > 0 && length + (size_t)n < sizeof text) length += (size_t)n;
}

static double x_of(double t)
{
    return LEFT + t * WIDE / T;
}

/* Draws the survival curve of sequence 1. Gates are -strength |z|, with normal z. */
static double survival(double strength)
{
    static double M[K][K], zero[K], k[K], g[K], beta, o[K];
    static int64_t one[2] = { 0, 1 };
    double alive = 1;
    uint64_t seed = 1;
    for (int i = 0; i < K * K; i++) M[i / K][i % K] = i / K == i % K;
    put("<polyline style='fill:none;stroke:var(--b);stroke-width:2' points='%.1f,120",
        x_of(cu[1]));
    for (int64_t t = cu[1]; t < cu[2]; t++) {
        double size = 0, norm = 0;
        for (int i = 0; i < K; i++) k[i] = random_normal(&seed), norm += k[i] * k[i];
        for (int i = 0; i < K; i++) k[i] /= sqrt(norm);
        for (int i = 0; i < K; i++) g[i] = -strength * fabs(random_normal(&seed));
        beta = 1 / (1 + exp(random_normal(&seed) - 3));
        struct kcp_step a = {
            .T = 1, .N = 1, .H = 1, .HV = 1, .K = K, .KG = K, .V = K, .C = 1,
            .scale = 1, .cu_seqlens = one, .q = zero, .k = k, .v = zero, .g = g,
            .beta = &beta, .h0 = M, .o = o, .ht = M };
        if (ref_step(&a)) return NAN;
        for (int i = 0; i < K * K; i++) size += M[i / K][i % K] * M[i / K][i % K];
        alive = sqrt(size / K);
        put(" %.1f,%.1f", x_of(t + 1),
            120 + fmin(150, -18 * log10(fmax(alive, 1e-9))));
    }
    put("'/>");
    return alive;
}

/* Rank r's tokens begin at T (r / R)^(2^skew). Returns HTML: a picture and its text. */
const char *play_draw(int R, double skew, double gate)
{
    int64_t cuts[MOST_R + 1];
    int sent = 0, maps = 0;
    const char *why;
    struct kcp_plan *p;
    const double strength = gate > 0 ? exp2(gate - 13) : 0;
    for (int r = 0; r <= R; r++) cuts[r] = llround(T * pow((double)r / R, exp2(skew)));
    length = 0;
    if (kcp_plan_make(&p, N, cu, R, cuts, 0, 64, 4, &why)) return why;
    put("<div class=scroll><svg viewBox='0 0 640 290' role=img>"
        "<title>The plan and the survival of sequence 1</title>");
    for (int i = 0; i < p->S; i++) {
        const struct kcp_segment *s = &p->seg[i];
        const double x = x_of(s->begin), end = x_of(s->end);
        put("<rect x=%.1f y=30 width=%.1f height=30 style='fill:var(--wash-%c);"
            "stroke:var(--%c)'/>", x, end - x, 'a' + s->n, 'a' + s->n);
        if (!s->last)
            put("<path d='M%.1f 68h16m-5 -4l5 4l-5 4' style='fill:none;"
                "stroke-width:1.5;stroke:var(--%c)'/>", end - 8, 'a' + s->n);
        if (!s->first && !s->last)
            put("<text x=%.1f y=50 text-anchor=middle>M</text>", (x + end) / 2);
        sent += !s->last;
        maps += !s->first && !s->last;
    }
    for (int r = 0; r < R; r++) {
        const double x = x_of(cuts[r]), wide = x_of(cuts[r + 1]) - x;
        if (r) put("<path d='M%.1f 24V272' style='stroke:var(--ink);opacity:.5;"
                   "stroke-dasharray:3 3'/>", x);
        if (wide > 14)
            put("<text x=%.1f y=18 text-anchor=middle class=soft>%s%d</text>",
                x + wide / 2, wide > 50 ? "rank " : "", r);
    }
    for (int e = 0; e <= 8; e += 2)
        put("<path d='M10 %dH630' style='stroke:var(--line)'/>"
            "<text x=14 y=%d class=soft>%g</text>", 120 + 18 * e, 116 + 18 * e,
            pow(10, -e));
    const double alive = survival(strength);
    put("<text x=14 y=286 class=soft>what is alive of the state with which sequence 1 "
        "begins</text></svg></div><p class=caption aria-live=polite>%d ranks; gates of "
        "mean %.1g. States that cross a cut: %d; segments that must send M as well: "
        "%d. At the end of sequence 1, %.1e of its first state is alive%s.</p>",
        R, strength ? -0.8 * strength : 0, sent, maps, alive,
        alive < 1e-6 && maps ? ": no test could detect a wrong M" : "");
    kcp_plan_free(p);
    text[length] = 0;
    return text;
}
