/* scan.c -- runs chapter 15's example, and measures its three forms on one core.
 *
 * Book: chapter 15, which shows the output.  Checked by: make book.
 * Next: book/clusters.c.
 *
 * Times and memory are measured on the machine that builds the page. */
#include "ref/15_scan.h"
#include "tokens.h"
#include "base/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void fail(const char *what)
{
    fprintf(stderr, "scan.c: %s\n", what);
    exit(1);
}

static struct kcp_plan *plan_of(int64_t T, int R, const int64_t *cuts, int C)
{
    const int64_t cu[] = { 0, T };
    struct kcp_plan *p;
    const char *why;
    if (kcp_plan_make(&p, 1, cu, R, cuts, 0, C, 0, &why))
        fail(why);
    return p;
}

/* ---- the three tokens, token 1 dropped */
enum { T = EX_T, K = EX_K, V = EX_V };
static double alpha_base[T][K], beta_base[T], spike[T], W[K], w[1], o[T][V], ht[K][V],
              ot[V];
static const int dropped[T] = { 0, 1, 0 };

static struct kcp_scan call(const struct kcp_plan *p, int r)
{
    const struct kcp_context *c = &p->ctx[r];
    const int64_t t = c->begin;
    return (struct kcp_scan){
        .T = c->end - t, .N = 1, .NS = c->NS, .NC = c->NC, .R = p->R, .r = r, .H = 1,
        .HV = 1, .K = K, .V = V, .D = 1, .C = 4, .plan = p, .ops = &ref_mapops,
        .cu = c->cu, .cn = c->cn, .sc = c->sc, .walk = KCP_BLELLOCH, .q = ex_q[t],
        .k = ex_k[t], .v = ex_v[t], .spike = spike + t, .alpha_base = alpha_base[t],
        .beta_base = beta_base + t, .W_alpha = W, .w_beta = w, .drop = dropped + t,
        .o = o[t], .ht = ht, .ot = ot };
}

static void show(const char *name, const double *x, int cols)
{
    for (int i = 0; i < K; i++) {
        printf("%-22s", i ? "" : name);
        for (int j = 0; j < cols; j++)
            printf("%s%9.5f", j == V && cols > V ? "  |" : "",
                   x[i * cols + j] == 0 ? 0 : x[i * cols + j]);
        printf("\n");
    }
}

static void tree(void)
{
    static double map[T + 1][K * (V + K)], S[T][K * V], alpha[K];
    double *node[T] = { map[0], map[1], map[2] }, *state[T] = { S[0], S[1], S[2] };
    struct kcp_plan *p = plan_of(T, 1, NULL, 4);
    struct kcp_scan a = call(p, 0);
    struct spike_rank x = { .a = &a, .plan = p, .ops = &ref_mapops, .alpha = alpha,
                            .node = node, .spare = map[T] };
    scan_updates(&x, (struct tile){ 0, T, 0 }, 0);
    printf("== 15-scan\nmaps [B | A]\n");
    show("token 0", node[0], V + K);
    show("token 1, dropped", node[1], V + K);
    show("token 2", node[2], V + K);
    if (scan_up(&x, T, 0) || scan_down(&x, T, 0, state))
        fail("the scan refused");
    show("up: 1 after 0", node[1], V + K);
    show("up: 2 after that", node[2], V + K);
    printf("\nstates\n");
    show("down: before token 0", state[0], V);
    show("down: before token 1", state[1], V);
    show("down: before token 2", state[2], V);
    kcp_plan_free(p);
}

static int body(struct kcp_comm *comm, void *plan)
{
    struct kcp_scan a = call(plan, comm->r);
    a.comm = comm;
    return ref_scan(&a);
}

static void example(void)
{
    static const int64_t one[] = { 0, 3 }, two[] = { 0, 1, 3 };
    static const int64_t *const cuts[] = { one, two };
    double keep[T][V];
    for (int t = 0; t < T; t++) {
        beta_base[t] = log(ex_beta[t]) - log(1 - ex_beta[t]);
        for (int i = 0; i < K; i++)
            alpha_base[t][i] = log(exp2(ex_log2_decay[t][i])) -
                               log(1 - exp2(ex_log2_decay[t][i]));
    }
    tree();
    printf("\noutputs       one rank              two ranks\n");
    for (int R = 1; R <= 2; R++) {
        struct kcp_plan *p = plan_of(T, R, cuts[R - 1], 4);
        char why[160];
        if (kcp_threads_run(R, body, p, why, sizeof why))
            fail(why);
        kcp_plan_free(p);
        for (int t = 0; t < T && R == 2; t++) {
            printf("token %d   %9.5f %9.5f   %9.5f %9.5f   rank %d\n", t, keep[t][0],
                   keep[t][1], o[t][0], o[t][1], t > 0);
            if (memcmp(keep[t], o[t], sizeof o[t]))
                fail("two ranks differ from one");
        }
        memcpy(keep, o, sizeof keep);
    }
}

/* ---- the three forms, one head, K = V = k */
enum form { SEQUENTIAL, SCAN, CHUNKED, FORMS };
struct cost { double us; long kib; };

/* Runs chapters 03 and 04. G is log2 of the scan's gates, summed within each chunk. */
static int chunked(const struct kcp_scan *a)
{
    const int64_t n = a->T * a->K, m = a->T * a->C;
    double *room = calloc(8 * n + 2 * m + (a->NC + 2) * a->K * a->V + a->T,
                          sizeof *room);
    double *G = room, *at = G + n, alpha[a->K];
    struct kcp_wy y = { 0 };
    struct kcp_chunk c = { 0 };
    if (!room)
        return KCP_NO_MEMORY;
    memcpy(&y, a, sizeof(struct kcp_call));
    y.KG = a->K; y.scale = 1; y.model = KCP_KDA;
    y.cu = a->cu; y.cn = a->cn; y.sc = a->sc;
    double *b = at;
    at += a->T;
    for (int64_t t = 0; t < a->T; t++) {
        const struct spike_token x = spike_token(a, t, 0, NULL, NULL, NULL, alpha);
        b[t] = x.beta;
        for (int i = 0; i < a->K; i++)
            G[t * a->K + i] = log2(alpha[i]) +
                              (t % a->C ? G[(t - 1) * a->K + i] : 0);
    }
    y.q = a->q; y.k = a->k; y.v = a->v; y.G = G; y.beta = b;
    y.Aqk = at;
    y.A = at + m;
    at += 2 * m;
    y.u = at;
    y.w = at + n;
    y.kg = at + 2 * n;
    y.qg = at + 3 * n;
    memcpy(&c, &y, sizeof(struct kcp_call));
    c.cu = a->cu; c.cn = a->cn; c.sc = a->sc; c.qg = y.qg; c.kg = y.kg; c.u = y.u;
    c.w = y.w;
    c.Aqk = y.Aqk;
    c.G = G;
    c.o = a->o;
    c.v_new = at + 4 * n;
    c.h = at + 5 * n;
    c.h_out = a->ht;
    const int status = ref_wy(&y);
    const int then = status ? status : ref_chunk(&c);
    free(room);
    return then;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Returns the best time of three runs in a separate process, and the memory that the
 * runs added after the heap's free blocks were used up. */
static struct cost measure(enum form form, int k, int C, int64_t n)
{
    static uint64_t seed;
    struct kcp_plan *p = plan_of(n, 1, NULL, C);
    const size_t all = (size_t)n * (5 * k + 2) + k + 1 + 2 * (size_t)k * k + k;
    double *x = malloc(sizeof *x * all), best = 1e9;
    struct rusage was, is;
    if (!x)
        fail("no memory");
    for (size_t i = 0; i < all; i++)
        x[i] = random_uniform(&seed) - 0.5;
    double *at = x + 5 * n * k;
    struct kcp_scan a = {
        .T = n, .N = 1, .NS = 1, .NC = p->ctx->NC, .R = 1, .H = 1, .HV = 1, .K = k,
        .V = k, .C = C, .D = 1, .plan = p, .cu = p->ctx->cu, .cn = p->ctx->cn,
        .sc = p->ctx->sc, .walk = form == SCAN ? KCP_BLELLOCH : KCP_SEQUENTIAL, .q = x,
        .k = x + n * k, .v = x + 2 * n * k, .o = x + 3 * n * k,
        .alpha_base = x + 4 * n * k, .beta_base = at, .spike = at + n,
        .W_alpha = at + 2 * n, .w_beta = at + 2 * n + k, .ht = at + 2 * n + k + 1,
        .ot = at + 2 * n + k + 1 + k * k };
    for (int64_t t = 0; t < n; t++) {          /* unit keys keep the state finite */
        double s = 1e-9, *key = x + (n + t) * k;
        for (int i = 0; i < k; i++)
            s += key[i] * key[i];
        for (int i = 0; i < k; i++) {
            key[i] /= sqrt(s);
            x[(4 * n + t) * k + i] += 4;
        }
    }
    for (int j = 0; j < 32; j++) {
        char *full = malloc(1 << 20);
        if (full)
            memset(full, j + 1, 1 << 20);
    }
    getrusage(RUSAGE_SELF, &was);
    for (int j = 0; j < 3; j++) {
        const double start = now();
        if (form == CHUNKED ? chunked(&a) : ref_scan(&a))
            fail("a form refused");
        best = fmin(best, now() - start);
    }
    getrusage(RUSAGE_SELF, &is);
    return (struct cost){ best * 1e6 / (double)n, is.ru_maxrss - was.ru_maxrss };
}

static struct cost apart(enum form form, int k, int C, int64_t n)
{
    struct cost c = { 0, 0 };
    int ends[2];
    fflush(stdout);
    if (pipe(ends))
        fail("no pipe");
    const pid_t child = fork();
    if (child == 0) {
        c = measure(form, k, C, n);
        _exit(write(ends[1], &c, sizeof c) != sizeof c);
    }
    if (child < 0 || read(ends[0], &c, sizeof c) != sizeof c)
        fail("a measurement was lost");
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(ends[1]);
    return c;
}

static void forms(void)
{
    static const char *const name[] = { "sequential", "scan", "chunked" };
    static const int size[][3] = { { 16, 64, 2048 }, { 32, 64, 1024 }, { 64, 16, 512 },
                                   { 64, 64, 512 } };
    printf("== 15-forms\nform          K  tile     T   us a token  of sequential's   "
           "KiB at T/2     at T\n");
    for (int j = 0; j < 4; j++) {
        double first = 0;
        for (int f = 0; f < FORMS; f++) {
            const struct cost half = apart(f, size[j][0], size[j][1], size[j][2] / 2);
            const struct cost c = apart(f, size[j][0], size[j][1], size[j][2]);
            first = f ? first : c.us;
            printf("%-10s  %3d  %4d  %4d %12.2f %16.1f %12ld %8ld\n", name[f],
                   size[j][0], size[j][1], size[j][2], c.us, c.us / first, half.kib,
                   c.kib);
        }
    }
}

int main(void)
{
    example();
    forms();
    return 0;
}
