/* bench_options.c -- kcp-bench's command line: a case, and what of it to time.
 *
 * Book: chapter 17.  Checked by: every bad value is answered with one line.
 * Next: bench_record.c.
 */
#include "bench.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-bench [--stage NN] [--variant NAME] [-T tokens] [-H heads] [--HV heads]\n"
    "                 [-K size] [-V size] [-C chunk] [--model kda|gdn] [--gate live|strong]\n"
    "                 [--stages 08,13] [--newest] [--segments S] [--save recompute|all]\n"
    "                 [--warmup n] [--iters n] [--json FILE] [--against RECORD]\n"
    "times each variant on one GPU; kcp-check judges them\n";

int bench_bad(const char *option, const char *found, const char *expected)
{
    fprintf(stderr, "kcp-bench: %s: found '%s', expected %s\n", option, found ? found : "",
            expected);
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

int bench_options(int argc, char **argv, struct bench *b)
{
    struct kcp_call *c = &b->call;
    int T = 8192, bad_number = 0;
    *c = (struct kcp_call){ .H = 96, .K = 128, .V = 128, .C = 64, .NS = 1, .N = 1, .R = 1,
                            .gate = KCP_GATE_BOUNDED, .beta_form = KCP_BETA_SIGMOID,
                            .l2norm = 1, .lower_bound = -5,
                            .part = KCP_LOCAL | KCP_REVERSE };
    const struct { const char *name; int *at, low, high; } ints[] = {
        { "-T", &T, 1, 1 << 24 },      { "-H", &c->H, 1, 1024 }, { "--HV", &c->HV, 1, 1024 },
        { "-K", &c->K, 16, 256 },      { "-V", &c->V, 16, 256 }, { "-C", &c->C, 1, 256 },
        { "--segments", &c->NS, 1, 65536 }, { "--warmup", &b->warmup, 0, 10000 },
        { "--iters", &b->iters, 5, 100000 },
    };
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i], *next = argv[i + 1];
        int known = 0;
        for (size_t j = 0; j < sizeof ints / sizeof *ints; j++)
            if (!strcmp(a, ints[j].name)) {
                known = 1;
                bad_number = !number(next, ints[j].low, ints[j].high, ints[j].at);
                if (bad_number) return bench_bad(a, next, "a whole number in its range");
            }
        if (known) i++;
        else if (!strcmp(a, "--help")) return fputs(usage, stdout), -1;
        else if (!strcmp(a, "--stage") && next) b->stage = argv[++i];
        else if (!strcmp(a, "--variant") && next) b->variant = argv[++i];
        else if (!strcmp(a, "--json") && next) b->json = argv[++i];
        else if (!strcmp(a, "--against") && next) b->against = argv[++i];
        else if (!strcmp(a, "--stages") && next) b->stages = argv[++i];
        else if (!strcmp(a, "--newest")) b->newest = 1;
        else if (!strcmp(a, "--model") && next && (!strcmp(next, "kda") || !strcmp(next, "gdn")))
            c->model = argv[++i][0] == 'g' ? KCP_GDN : KCP_KDA;
        else if (!strcmp(a, "--save") && next && !strcmp(next, "all")) c->save = KCP_SAVE_ALL, i++;
        else if (!strcmp(a, "--save") && next && !strcmp(next, "recompute")) c->save = KCP_RECOMPUTE, i++;
        else if (!strcmp(a, "--gate") && next && !strcmp(next, "live")) b->regime = LIVE, i++;
        else if (!strcmp(a, "--gate") && next && !strcmp(next, "strong")) b->regime = STRONG, i++;
        else return bench_bad("option", a, "one of --help");
    }
    if (!c->HV) c->HV = c->H;
    if (c->HV % c->H) return bench_bad("--HV", "", "a multiple of -H");
    if (b->stage && !stage_find(b->stage)) return bench_bad("--stage", b->stage, "a stage, e.g. 04");
    c->T = T, c->scale = 1 / sqrt(c->K), c->KG = c->model == KCP_KDA ? c->K : 1;
    if (c->NS > T) return bench_bad("--segments", "", "at most -T");
    return 0;
}

/* --stage names one, --stages a list of numbers; else all but 14, which takes other
 * shapes, and 16, which takes other models. */
int bench_asked(const struct bench *b, const struct kcp_stage *st)
{
    const char two[] = { st->name[0], st->name[1], 0 };
    if (b->stage) return stage_find(b->stage) == st;
    if (b->stages) return strstr(b->stages, two) != NULL;
    return strcmp(two, "14") && strcmp(two, "16");
}
