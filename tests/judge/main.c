/* main.c -- kcp-check: the judge from the command line, one stage or all.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/cli.sh.  Next: criterion.c.
 */
#include "judge.h"
#include "emit.h"
#include "isolation.h"
#include "said.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-check [--stage NN] [--variant NAME|./mine.so] [--ranks R] [--seed S]\n"
    "                 [--full] [--quiet] [--strict] [--device] [--list]\n"
    "                 [--backend threads|nccl] [--case TEXT] [--reference ./its.so]\n"
    "                 [--repeats N] [--bare] [--in-turn] [--limit S] [--here]\n"
    "                 [--exact]\n"
    "       kcp-check --emit DIR --stage NN [--storage f64|f32|bf16]\n"
    "                                            write the judge's cases as .npy\n"
    "       kcp-check --foreign DIR              judge outputs computed elsewhere\n"
    "       kcp-check --exchange N [--device]    N random exchanges, every form;\n"
    "                                            0: without end\n"
    "  --case 'live kda H=1 HV=3 K=5 V=7 C=64 lengths=150,0,70 R=4 chain h0' is one\n"
    "  case alone, in the words that a failure prints, or up to eight, apart by ';'\n"
    "  --variant: or a check's name; --reference: what --stage is held to\n"
    "  --repeats N: a variant's first cases N times more, the same bits each time (1)\n"
    "  --bare: workspaces as the allocator leaves them, not full of NaN\n"
    "  --in-turn: ranks that share a GPU use it one at a time\n"
    "  --limit S: seconds that a variant may take for a case (30; 0: any number)\n"
    "  --here: in this process, not each variant in one of its own: for debuggers\n"
    "  --exact: no fences around the arrays: for tools that know each array's end\n"
    "  --ranks R are threads, which share a GPU; with --device --backend nccl a GPU\n"
    "  each; under mpirun, torchrun or srun they are its processes, with --device a\n"
    "  GPU each\n"
    "  of an option given twice the last counts\n"
    "exit status: 0 all right, 1 something failed, 2 usage, 3 skips under --strict\n";

/* What the command line asks for, beside the judge's options. */
struct asked {
    struct options o;
    const char *emit, *foreign, *backend, *reference, *words, *storage;
    const char *ranks, *seed, *exchange, *repeats, *limit;
    int list, help, trials, exact;
    struct kcase alone[8];
};

static int bad(const char *option, const char *found, const char *expected)
{
    fprintf(stderr, "kcp-check: %s: found '%s', expected %s\n", option,
            found ? found : "",
            expected);
    return 2;
}

static int number(const char *s, long long low, long long high, long long *out)
{
    char *end;
    errno = 0;
    *out = strtoll(s, &end, 10);
    return *s && !*end && !errno && *out >= low && *out <= high;
}

static int read_words(int argc, char **argv, struct asked *x)
{
    const struct { const char *name; int *at; } flags[] = {
        { "--full", &x->o.full },     { "--quiet", &x->o.quiet },
        { "--strict", &x->o.strict }, { "--device", &x->o.only_device },
        { "--list", &x->list },       { "--help", &x->help },
        { "--bare", &bare_workspaces }, { "--here", &isolation_off },
        { "--exact", &x->exact },
        { "--in-turn", &ranks_in_turn } };
    const struct { const char *name, **at, *expected; } values[] = {
        { "--stage", &x->o.stage, "a stage, e.g. 05 or 05_affine" },
        { "--variant", &x->o.variant, "a name that --list prints, or ./mine.so" },
        { "--emit", &x->emit, "a directory" },
        { "--foreign", &x->foreign, "a directory" },
        { "--backend", &x->backend, "threads or nccl" },
        { "--case", &x->words, "words as a failure prints them" },
        { "--reference", &x->reference, "a shared object, ./its.so" },
        { "--storage", &x->storage, "f64, f32 or bf16" },
        { "--ranks", &x->ranks, "a number of ranks, 1 to 8" },
        { "--seed", &x->seed, "a seed, 0 to 1000000000000" },
        { "--repeats", &x->repeats, "a number of repeats, 0 to 100000" },
        { "--limit", &x->limit, "a number of seconds, 0 to 86400" },
        { "--exchange", &x->exchange, "a number of plans, 0 to 1000000" } };
    for (int i = 1; i < argc; i++) {
        int known = 0;
        for (size_t j = 0; j < sizeof flags / sizeof *flags; j++)
            if (!strcmp(argv[i], flags[j].name)) known = *flags[j].at = 1;
        for (size_t j = 0; j < sizeof values / sizeof *values && !known; j++)
            if (!strcmp(argv[i], values[j].name)) {
                const char *next = argv[i + 1];
                if (!next || !*next || !strncmp(next, "--", 2))
                    return bad(argv[i], next, values[j].expected);
                *values[j].at = argv[++i], known = 1;
            }
        if (!known) return bad("option", argv[i], "one of --help");
    }
    return 0;
}

/* The words that stand for numbers or one of a few names. */
static int read_values(struct asked *x)
{
    static const char *const storages[] = { "f64", "f32", "bf16" };
    struct options *o = &x->o;
    char why[300];
    long long n;
    const struct kcp_check *c;
    if (x->ranks && !number(x->ranks, 1, 8, &n))
        return bad("--ranks", x->ranks, "a number of ranks, 1 to 8");
    if (x->ranks) o->ranks = (int)n;
    if (x->seed && !number(x->seed, 0, 1000000000000, &n))
        return bad("--seed", x->seed, "a seed, 0 to 1000000000000");
    o->seed = x->seed ? (uint64_t)n : 1;
    if (x->exchange && !number(x->exchange, 0, 1000000, &n))
        return bad("--exchange", x->exchange, "a number of plans, 0 to 1000000");
    x->trials = x->exchange ? (int)n : -1;
    if (x->repeats && !number(x->repeats, 0, 100000, &n))
        return bad("--repeats", x->repeats, "a number of repeats, 0 to 100000");
    if (x->repeats) repeats_asked = (int)n;
    if (x->limit && !number(x->limit, 0, 86400, &n))
        return bad("--limit", x->limit, "a number of seconds, 0 to 86400");
    if (x->limit) isolation_limit = (int)n;
    for (int s = 0; x->storage && s < 3; s++)
        if (!strcmp(x->storage, storages[s])) o->storage = s, x->storage = NULL;
    if (x->storage) return bad("--storage", x->storage, "f64, f32 or bf16");
    if (x->backend && strcmp(x->backend, "nccl") && strcmp(x->backend, "threads"))
        return bad("--backend", x->backend, "threads or nccl");
    if (o->stage && !stage_find(o->stage) && !kcp_checks(o->stage, &c, 1))
        return bad("--stage", o->stage, "a stage, e.g. 05 or 05_affine");
    if (x->words && !(o->nalone = cases_parse(x->words, x->alone, 8, why, sizeof why)))
        return bad("--case", why, "words as a failure prints them");
    if (x->words) o->alone = x->alone;
    if (x->exact) fence_bytes = 0;
    return 0;
}

/* What cannot be asked for together: nothing that was said is left unsaid. */
static int agrees(const struct asked *x)
{
    const int ways = !!x->emit + !!x->foreign + !!x->exchange + x->list;
    if (ways > 1)
        return bad("option", x->emit ? "--emit" :
                   x->foreign ? "--foreign" : "--exchange",
                   "one of --list, --emit, --foreign, --exchange");
    if ((ways && x->words) || (x->words && !x->o.stage))
        return bad("--case", x->words, "a --stage to be judged on it");
    if (ways && x->reference)
        return bad("--reference", x->reference, "a --stage to be held to it");
    if (ways && !x->list && x->o.variant)
        return bad("--variant", x->o.variant, "no --emit, --foreign or --exchange");
    if (ways && x->repeats) return bad("--repeats", x->repeats, "variants to judge");
    if (x->o.storage && !x->emit) return bad("--storage", "it", "--emit too");
    return 0;
}

/* The models of a stage are its own, and so many ranks as somebody said. */
static int case_fits(const struct kcase *k, const struct options *o)
{
    const struct kcp_stage *s = stage_find(o->stage);
    char found[80], expected[80];
    const int family = s && !strncmp(s->name, "16", 2), R = k->call.R;
    snprintf(found, sizeof found, "%s", model_name[k->call.model]);
    if (s && family != (k->call.model >= KCP_DPLR))
        return bad("--case", found, family ? "dplr, gdn2 or gla" : "kda or gdn");
    snprintf(found, sizeof found, "R=%d", R);
    snprintf(expected, sizeof expected, "R=%d, as many as there are", o->ranks);
    const int other = s && s->ranks && o->ranks && R != o->ranks;
    return other ? bad("--case", found, expected) : 0;
}

/* A variant or a check, of the stage if one was said. */
static int known(const struct options *o)
{
    const struct kcp_variant *v = NULL;
    const struct kcp_check *c[256];
    int found = !strcmp(o->variant, "ref") || kcp_variants(o->stage, o->variant, &v, 1);
    for (int i = kcp_checks(o->stage, c, 256) - 1; i >= 0; i--)
        found |= !strcmp(o->variant, c[i]->name);
    return found;
}

static int list(const struct options *o)
{
    const struct kcp_variant *v[1024];
    const int n = kcp_variants(o->stage, o->variant, v, 1024);
    for (int i = 0; i < n; i++)
        if (!o->only_device || v[i]->where == KCP_DEVICE)
            printf("%-20s %-28s %s\n", v[i]->stage, v[i]->name, v[i]->why);
    return 0;
}

/* A variant of a stage from a shared object; NULL after one line. */
static const struct kcp_variant *object(const char *option, const char *path)
{
    char why[256] = "", expected[400];
    const struct kcp_variant *v = variant_load(path, why, sizeof why);
    snprintf(expected, sizeof expected, "an object with a variant's record: %s", why);
    if (!v) bad(option, path, expected);
    if (!v || stage_find(v->stage)) return v;
    bad(option, v->stage, "a stage");
    return NULL;
}

/* The record of a variant of a shared object: the object itself is loaded where it runs,
 * so that nothing it does ends the judge. NULL after one line. */
static const struct kcp_variant *object_record(struct options *o)
{
    static struct kcp_variant record;
    char why[256] = "", expected[400];
    const int none = isolated_probe(o->variant, &record, why, sizeof why);
    snprintf(expected, sizeof expected, "an object with a variant's record: %s", why);
    if (none) {
        bad("--variant", o->variant, expected);
        return NULL;
    }
    if (!stage_find(record.stage)) {
        bad("--variant", record.stage, "a stage");
        return NULL;
    }
    if (is_mutant(&record)) {
        bad("--variant", record.name, "a variant: only the judge's own are mutants");
        return NULL;
    }
    o->object = o->variant;
    return &record;
}

/* What the stage is held to instead of its own reference: a function that has one. */
static int other_reference(struct asked *x)
{
    const struct kcp_variant *v = object("--reference", x->reference);
    const struct kcp_stage *s = v ? stage_find(v->stage) : NULL;
    if (!v) return 2;
    if (s->ranks || !x->o.stage || s != stage_find(x->o.stage))
        return bad("--reference", v->stage, "--stage, one without ranks");
    x->o.reference = v;
    return 0;
}

static int judge(struct asked *x, const struct kcp_variant *mine)
{
    struct kcp_report rep = { .quiet = x->o.quiet, .asked = x->o.variant != NULL };
    struct options *o = &x->o;
    char why[160];
    int status = ranks_open(x->backend, o->only_device, &o->ranks);
    for (int i = 0; i < o->nalone && !status; i++) status = case_fits(&o->alone[i], o);
    if (status) {
        ranks_close();
        return status;
    }
    if (mine && (isolation_off || ranks_mine() >= 0))
        mine = variant_load(o->object, why, sizeof why);
    printf("seed %llu%s\n", (unsigned long long)o->seed, o->full ? ", full" : "");
    if (x->exchange)
        status = exchange_trials(x->trials, o->ranks ? o->ranks : 3, o->only_device);
    else if (mine) {
        printf("%s\n", stage_find(mine->stage)->name);
        judge_object(mine, o, &rep);
        status = report_close(&rep, o->strict);
    } else status = judge_all(o, &rep);
    ranks_close();
    return status;
}

static int do_all(int argc, char **argv)
{
    static struct asked x;
    struct kcp_report rep = { 0 };
    const struct kcp_variant *mine = NULL;
    int status = read_words(argc, argv, &x);
    if (!status && x.help) {
        fputs(usage, stdout);
        return 0;
    }
    if (!status) status = read_values(&x);
    if (!status) status = agrees(&x);
    if (!status && x.reference) status = other_reference(&x);
    if (status) return status;
    struct options *o = &x.o;
    rep.quiet = o->quiet;
    if (o->variant && strchr(o->variant, '/')) {
        mine = object_record(o);
        if (!mine) return 2;
        if (o->stage && stage_find(o->stage) != stage_find(mine->stage))
            return bad("--variant", mine->stage, "one of --stage");
    } else if (o->variant && !known(o))
        return bad("--variant", o->variant, "a name that --list prints, or ./mine.so");
    if (x.list) return list(o);
    if (x.emit) return emit_cases(x.emit, o);
    if (x.foreign) return judge_foreign(x.foreign, o, &rep);
    return judge(&x, mine);
}

int main(int argc, char **argv) { return all_said("kcp-check", do_all(argc, argv)); }
