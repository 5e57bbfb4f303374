/* play.c -- the interactive figures of chapters 06 (a plan) and 07 (an exchange).
 * Book: chapters 06 and 07. Compiled to WebAssembly (book/compute.mk), with play.js.
 * 06: the plan is that of kcp_plan_make. The curve is |M|_F / sqrt(K), where M is the
 * map from the start of sequence 1 to a token, computed token by token by ref_step.
 * 07: ref_step computes the map of each rank, and comm/form/ exchanges the maps. */
#include "base/random.h"
#include "book/compute/page.h"
#include "checked.h"
#include "ref.h"

#include <stdio.h>
#include <string.h>

enum { N = 4, T = 512, K = 16, LEFT = 10, WIDE = 620 };
static const int64_t cu[N + 1] = { 0, 90, 400, 460, T };

/* The calls here are right, so what checks them is left out of this small program. */
int kcp_begin(const char *stage, enum kcp_where where, const void *args, const char *x)
{
    return (void)stage, (void)where, (void)args, (void)x, KCP_OK;
}
int kcp_refuse(int status, const char *format, ...) { return (void)format, status; }
int kcp_agree(const struct kcp_stage *s, const void *args) { return !s || !args; }

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

/* Rank r's tokens begin at T (r / R)^(2^skew). */
static void draw_plan(int R, double skew, double gate)
{
    int64_t cuts[MOST_R + 1];
    int sent = 0, maps = 0;
    const char *why;
    struct kcp_plan *p;
    const double strength = gate > 0 ? exp2(gate - 13) : 0;
    for (int r = 0; r <= R; r++) cuts[r] = llround(T * pow((double)r / R, exp2(skew)));
    if (kcp_plan_make(&p, N, cu, R, cuts, 0, 64, 4, &why)) return;
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
}

/* ---- 07: one sequence of 16 tokens per rank, one head */
enum { P = PAGE_K, TOKENS = 16 };
static struct kcp_plan *plan;
static enum kcp_form form;
static double map[MOST_R][P][2 * P], state[MOST_R][P * P], expected[MOST_R + 1][P * P];

/* Runs rank r's tokens from state h0 (NULL: zero), with v = 0 if `bare`, to `ht`. */
static int run(int r, const double *h0, int bare, double *ht)
{
    static double k[TOKENS][P], v[TOKENS][P], g[TOKENS][P], beta[TOKENS], o[TOKENS * P];
    static int64_t one[2] = { 0, TOKENS };
    uint64_t seed = (uint64_t)r + 1;
    for (int t = 0; t < TOKENS; t++) {
        double norm = 0;
        for (int i = 0; i < P; i++) {
            k[t][i] = random_normal(&seed);
            v[t][i] = random_normal(&seed) * !bare;
            g[t][i] = -0.03 * random_uniform(&seed);
            norm += k[t][i] * k[t][i];
        }
        for (int i = 0; i < P; i++) k[t][i] /= sqrt(norm);
        beta[t] = random_uniform(&seed);
    }
    struct kcp_step a = { .T = TOKENS, .N = 1, .H = 1, .HV = 1, .K = P, .KG = P, .V = P,
        .C = 1, .scale = 1, .cu_seqlens = one, .q = k, .k = k, .v = v, .g = g,
        .beta = beta, .h0 = h0, .o = o, .ht = ht };
    return ref_step(&a);
}

static int exchange_rank(struct kcp_comm *comm, void *none)
{
    static double work[8 * MOST_R * 2 * P * P];
    const struct kcp_exchange x = { .form = form, .blocks = 2, .HV = 1, .K = P, .V = P,
        .plan = plan, .comm = comm, .ops = &kcp_ref_mapops, .maps = map[comm->r],
        .states = state[comm->r], .work = work };
    return (void)none, kcp_exchange_run(&x);
}

static void draw_exchange(int which, int R, int until)
{
    static const double zero[P * P];
    double unit[P * P], h[P * P], M[P * P], worst = 0;
    const int64_t all[2] = { 0, (int64_t)R * TOKENS };
    const char *why;
    form = which;
    kcp_plan_free(plan);
    if (kcp_plan_make(&plan, 1, all, R, NULL, 0, TOKENS, 0, &why)) return;
    for (int e = 0; e < P * P; e++) unit[e] = e / P == e % P;
    memset(state, 0, sizeof state);
    for (int r = 0; r < R; r++) {
        if (run(r, zero, 0, h) || run(r, unit, 1, M) ||
            run(r, expected[r], 0, expected[r + 1])) return;
        for (int i = 0; i < P; i++) {
            memcpy(map[r][i], h + i * P, P * sizeof *h);
            memcpy(map[r][i] + P, M + i * P, P * sizeof *M);
        }
    }
    if (ranks_run(R, exchange_rank, NULL)) return;
    diagram(R, KCP_FORWARD, until);
    put("<div class=cards>");
    for (int r = 0; r < R; r++) {
        int last = 0;
        for (int i = 0; i < nposts; i++)
            if (posts[i].to == r || (posts[i].to < 0 && r)) last = posts[i].step;
        for (int e = 0; e < P * P; e++)
            worst = fmax(worst, fabs(state[r][e] - expected[r][e]));
        put("<div class=card>rank %d<div>", r);
        picture("S_in", last <= until ? state[r] : zero, P, P, P, 1, 0);
        put("</div></div>");
    }
    put("</div><p class=caption aria-live=polite>Form %s, %d ranks, the messages of "
        "the first %d steps. In the end the states differ from the recurrence's by at "
        "most %.0e.</p>", kcp_form_names[form], R, until, worst);
}

/* Returns for each slider its name, least and greatest value, step and first value. */
const char *play_sliders(int chapter)
{
    put("%s", chapter == 6
            ? "ranks, 1, 8, 1, 4; place of the cuts, -2, 2, 0.25, 0; "
              "strength of the gate, 0, 13, 0.5, 5"
            : "form of the exchange, 0, 3, 1, 1; ranks, 2, 8, 1, 4; "
              "steps, 0, 8, 1, 2");
    return answer();
}

/* Returns the figure of a chapter as HTML, for the values of its three sliders. */
const char *play_draw(int chapter, double a, double b, double c)
{
    if (chapter == 6) draw_plan((int)a, b, c);
    else draw_exchange((int)a, (int)b, (int)c);
    return answer();
}
