/* bench_options.c -- kcp-bench's command line: a case, and what of it to time.
 *
 * Book: chapter 18.  Checked by: every bad value is answered with one line.
 * Next: bench_setup.c.
 */
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-bench [option value]...      times variants; kcp-check judges them\n"
    "what:    --stage NN | --stages 08,13   --variant NAME   --newest (of each stage)\n"
    "case:    -T tokens   -H heads   --HV heads   -K size   -V size   -C chunk\n"
    "         -D spikes   --walk auto|sequential|scan (15)\n"
    "         --model kda|gdn|dplr|gdn2|gla   --gate live|strong   --segments S\n"
    "         --sequences N (packed, of uneven lengths)\n"
    "         --save recompute|all|none   --reuse-M (13 takes M from 08)\n"
    "ranks:   -g, --ranks R   whole layers over R ranks, each with T / R tokens:\n"
    "                         front, t_sum, t_exchange, t_main apart, every form\n"
    "         --forms all_gather,chain,pipeline,scan    --backend nccl|threads\n"
    "sweep:   -b, -e   tokens from and to   -f factor\n"
    "timing:  -w, --warmup n   -n, --iters n\n"
    "records: --json FILE   --against RECORD\n"
    "Under mpirun, torchrun or srun every process is a rank, on a GPU of its own.\n";

int bench_bad(const char *option, const char *found, const char *expected)
{
    fprintf(stderr, "kcp-bench: %s: found '%s', expected %s\n", option,
            found ? found : "", expected);
    return 2;
}

static int number(const char *s, int low, int high, int *out)
{
    char *end;
    errno = 0;
    const long x = s ? strtol(s, &end, 10) : 0;
    *out = (int)x;
    return s && *s && !*end && !errno && x >= low && x <= high;
}

static int is(const char *a, const char *name) { return strcmp(a, name) == 0; }

/* -1: not one of these; else how bench_options goes on. */
static int read_number(const char *a, const char *next, struct bench *b, int *T)
{
    struct kcp_call *c = &b->call;
    const struct { const char *name; int *at, low, high; } ints[] = {
        { "-T", T, 1, 1 << 24 },           { "-H", &c->H, 1, 1024 },
        { "--HV", &c->HV, 1, 1024 },       { "-K", &c->K, 16, 256 },
        { "-V", &c->V, 16, 256 },          { "-C", &c->C, 1, 8192 },
        { "-D", &c->D, 1, 64 },
        { "--segments", &c->NS, 1, 65536 },   { "--sequences", &c->N, 1, 4096 },
        { "--warmup", &b->warmup, 0, 10000 }, { "-w", &b->warmup, 0, 10000 },
        { "--iters", &b->iters, 5, 100000 },  { "-n", &b->iters, 5, 100000 },
        { "--ranks", &b->ranks, 1, 8 },    { "-g", &b->ranks, 1, 8 },
        { "-b", &b->from, 1, 1 << 24 },    { "-e", &b->to, 1, 1 << 24 },
        { "-f", &b->factor, 2, 1024 },
    };
    for (size_t j = 0; j < sizeof ints / sizeof *ints; j++)
        if (is(a, ints[j].name))
            return number(next, ints[j].low, ints[j].high, ints[j].at) ? 0
                : bench_bad(a, next, "a whole number in its range");
    return -1;
}

static int read_word(const char *a, const char *next, struct bench *b)
{
    struct kcp_call *c = &b->call;
    const struct { const char *name, **at; } words[] = {
        { "--stage", &b->stage },     { "--stages", &b->stages },
        { "--variant", &b->variant }, { "--json", &b->json },
        { "--against", &b->against }, { "--forms", &b->forms },
        { "--backend", &b->backend },
    };
    const struct { const char *name, *word; int *at, value; } one_of[] = {
        { "--model", "kda", (int *)&c->model, KCP_KDA },
        { "--model", "gdn", (int *)&c->model, KCP_GDN },
        { "--model", "dplr", (int *)&c->model, KCP_DPLR },
        { "--model", "gdn2", (int *)&c->model, KCP_GDN2 },
        { "--model", "gla", (int *)&c->model, KCP_GLA },
        { "--gate", "live", (int *)&b->regime, LIVE },
        { "--gate", "strong", (int *)&b->regime, STRONG },
        { "--walk", "auto", (int *)&c->walk, KCP_AUTO },
        { "--walk", "sequential", (int *)&c->walk, KCP_SEQUENTIAL },
        { "--walk", "scan", (int *)&c->walk, KCP_BLELLOCH },
        { "--save", "all", (int *)&c->save, KCP_SAVE_ALL },
        { "--save", "recompute", (int *)&c->save, KCP_RECOMPUTE },
        { "--save", "none", &b->unsaved, 1 },
    };
    for (size_t j = 0; j < sizeof words / sizeof *words && next; j++)
        if (is(a, words[j].name)) return *words[j].at = next, 0;
    for (size_t j = 0; j < sizeof one_of / sizeof *one_of && next; j++)
        if (is(a, one_of[j].name) && is(next, one_of[j].word))
            return *one_of[j].at = one_of[j].value, 0;
    return bench_bad("option", a, "one of --help, and a value that it takes");
}

/* The options together: what one says about another. */
static int settle(struct bench *b, int T)
{
    struct kcp_call *c = &b->call;
    if (!b->from) b->from = T;
    if (!b->to) b->to = b->from;
    if (!b->factor) b->factor = 2;
    if (!c->HV) c->HV = c->H;
    c->T = b->from, c->scale = 1 / sqrt(c->K), c->KG = c->model == KCP_GDN ? 1 : c->K;
    if (c->HV % c->H) return bench_bad("--HV", "", "a multiple of -H");
    if (b->stage && !stage_find(b->stage))
        return bench_bad("--stage", b->stage, "a stage, e.g. 04");
    if (c->N > 1 && c->N > c->T / 16)
        return bench_bad("--sequences", "", "sixteen tokens a sequence or more");
    if (c->NS > c->T) return bench_bad("--segments", "", "at most -T");
    if (b->to > b->from && (b->json || b->against))
        return bench_bad("-e", "", "one size with --json and --against");
    if (b->json && b->against && strcmp(b->json, b->against) == 0)
        return bench_bad("--json", b->json, "another file than that of --against");
    if (b->backend && !is(b->backend, "nccl") && !is(b->backend, "threads"))
        return bench_bad("--backend", b->backend, "nccl or threads");
    return 0;
}

int bench_options(int argc, char **argv, struct bench *b)
{
    int T = 8192;
    b->call = (struct kcp_call){ .H = 96, .K = 128, .V = 128, .C = 64, .D = 4, .NS = 1,
        .N = 1, .R = 1, .gate = KCP_GATE_BOUNDED, .beta_form = KCP_BETA_SIGMOID,
        .l2norm = 1, .lower_bound = -5, .part = KCP_LOCAL | KCP_REVERSE };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = argv[i + 1];
        if (is(a, "--help")) return fputs(usage, stdout), -1;
        if (is(a, "--newest")) b->newest = 1;
        else if (is(a, "--reuse-M")) b->call.reuse_M = 1;
        else {
            int e = read_number(a, next, b, &T);
            if (e < 0) e = read_word(a, next, b);
            if (e) return e;
            i++;
        }
    }
    return settle(b, T);
}

/* --stage names one, --stages a list of numbers; else all of 01 to 14, and for the
 * other models 16, which alone takes them. */
int bench_asked(const struct bench *b, const struct kcp_stage *st)
{
    const char two[] = { st->name[0], st->name[1], 0 };
    if (b->stage) return stage_find(b->stage) == st;
    if (b->stages) return strstr(b->stages, two) != NULL;
    if (b->call.model > KCP_GDN) return !strcmp(two, "16");
    return atoi(two) < 15;
}
