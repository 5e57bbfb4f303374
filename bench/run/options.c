/* run_options.c -- the command line of kcp-run, strictly.
 *
 * Book: chapters 08, 13, 14.  Checked by: tests/cli/run_cli.sh.  Next: run_help.c.
 * One table: what an option is called, takes and expects. Nothing is guessed.
 */
#include "run.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { TEXT, FLAG, WHOLE, REAL, ONE_OF };

static const struct option {
    const char *name, *expects;        /* ONE_OF: the words, in the order of the enum */
    enum kind kind;
    size_t at;
    double low, high;                  /* WHOLE: inclusive; REAL: high is not allowed */
} table[] = {
#define AT(field) offsetof(struct options, field)
    { "--in", "a directory", TEXT, AT(in), 0, 0 },
    { "--out", "a directory", TEXT, AT(out), 0, 0 },
    { "--model", "kda|gdn|dplr|gdn2|gla", ONE_OF, AT(model), 0, 0 },
    { "--ranks", "a whole number from 1 to 1024", WHOLE, AT(ranks), 1, MOST_RANKS },
    { "--cuts", "R+1 whole numbers from 0 to T, with commas", TEXT, AT(cuts), 0, 0 },
    { "--form", "all_gather|chain|pipeline|scan", ONE_OF, AT(form), 0, 0 },
    { "--blocks", "a whole number from 1 to 65536", WHOLE, AT(blocks), 1, MOST_SIZE },
    { "--canonical", "a whole number of tokens from 1", WHOLE, AT(canonical), 1, 1e15 },
    { "--gate", "raw|softplus|bounded", ONE_OF, AT(gate), 0, 0 },
    { "--lower-bound", "a number from -5 to below 0", REAL, AT(lower_bound), -5, 0 },
    { "--l2norm", "nothing", FLAG, AT(l2norm), 0, 0 },
    { "--beta", "raw|sigmoid|sigmoid2", ONE_OF, AT(beta), 0, 0 },
    { "--scale", "a finite number", REAL, AT(scale), -HUGE_VAL, HUGE_VAL },
    { "--chunk", "a whole number from 1 to 256", WHOLE, AT(chunk), 1, MOST_CHUNK },
    { "--save", "recompute|all", ONE_OF, AT(save), 0, 0 },
    { "--reuse-m", "nothing", FLAG, AT(reuse_M), 0, 0 },
    { "--state-layout", "kv|vk", ONE_OF, AT(layout), 0, 0 },
    { "--device", "cpu|gpu", ONE_OF, AT(device), 0, 0 },
    { "--dtype", "bf16|f32", ONE_OF, AT(dtype), 0, 0 },
    { "--variant", "a name that kcp-check --list prints", TEXT, AT(variant), 0, 0 },
    { "--conv", "three files, of q, k and v, with commas", TEXT, AT(conv), 0, 0 },
    { "--act", "none|silu", ONE_OF, AT(act), 0, 0 },
    { "--stage", "a stage, NN or NN_name", TEXT, AT(stage), 0, 0 },
    { "--shift", "nothing", FLAG, AT(shift), 0, 0 },
    { "--backward", "nothing", FLAG, AT(backward), 0, 0 },
    { "--help", "nothing", FLAG, AT(help), 0, 0 },
#undef AT
};
enum { OPTIONS = sizeof table / sizeof *table };

int run_error(struct run *x, int code, const char *what, const char *format, ...)
{
    char said[sizeof x->why];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    x->exit = code;
    return npy_error(x->why, sizeof x->why, what, "%s", said);
}

/* The position of word among "a|b|c"; -1: it is not there. */
static int one_of(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (int i = 0; ; i++) {
        const size_t m = strcspn(words, "|");
        if (m == n && memcmp(words, word, n) == 0)
            return i;
        if (!words[m])
            return -1;
        words += m + 1;
    }
}

static int whole(const char *s, const struct option *p, int64_t *to)
{
    char *end;
    errno = 0;
    const long long i = strtoll(s, &end, 10);
    if (!isdigit((unsigned char)*s) || *end || errno || i < p->low || i > p->high)
        return -1;
    *to = i;
    return 0;
}

static int real(const char *s, const struct option *p, double *to)
{
    char *end;
    const double f = strtod(s, &end);
    if (!*s || isspace((unsigned char)*s) || *end || !isfinite(f) || f < p->low ||
        f >= p->high)
        return -1;
    *to = f;
    return 0;
}

static int set(struct options *o, const struct option *p, const char *value)
{
    void *at = (char *)o + p->at;
    int i = 0;
    switch (p->kind) {
    case TEXT:
        *(const char **)at = value;
        return *value ? 0 : -1;
    case FLAG:
        *(int64_t *)at = 1;
        return 0;
    case WHOLE:
        return whole(value, p, at);
    case REAL:
        return real(value, p, at);
    case ONE_OF:
        i = one_of(p->expects, value);
        *(int64_t *)at = i;
        break;
    }
    return i < 0 ? -1 : 0;
}

static const struct option *find(const char *arg, size_t n)
{
    for (int i = 0; i < OPTIONS; i++)
        if (strlen(table[i].name) == n && memcmp(table[i].name, arg, n) == 0)
            return &table[i];
    return NULL;
}

/* --name value, or --name=value; each option once. --help wins over everything. */
int options_read(struct run *x, int argc, char **argv)
{
    int seen[OPTIONS] = { 0 };
    x->o = (struct options){ .lower_bound = NAN, .scale = NAN, .dtype = -1 };
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0)
            return x->o.help = 1, 0;
    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i], *value = strchr(arg, '=');
        const size_t n = value ? (size_t)(value - arg) : strlen(arg);
        const struct option *p = find(arg, n);
        if (!p)
            return run_error(x, RUN_BAD, "command line", "found %.80s, expected an "
                             "option that kcp-run --help lists", arg);
        if (seen[p - table]++)
            return run_error(x, RUN_BAD, p->name, "found twice, expected once");
        if (p->kind == FLAG && value)
            return run_error(x, RUN_BAD, p->name, "found %.80s, expected no value",
                             value);
        if (p->kind == FLAG)
            value = "";
        else
            value = value ? value + 1 : i + 1 < argc ? argv[++i] : NULL;
        if (!value)
            return run_error(x, RUN_BAD, p->name, "found no value, expected %s",
                             p->expects);
        if (set(&x->o, p, value) != 0)
            return run_error(x, RUN_BAD, p->name, "found \"%.80s\", expected %s", value,
                             p->expects);
    }
    if (!x->o.in || !x->o.out)
        return run_error(x, RUN_BAD, x->o.in ? "--out" : "--in",
                         "found none, expected a directory");
    return 0;
}
