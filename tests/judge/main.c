/* main.c -- kcp-check: the judge from the command line, one stage or all.
 *
 * Book: CONTRIBUTING.md.  Checked by: tests/cli/cli.sh.  Next: criterion.c.
 */
#include "judge.h"
#include "emit.h"
#include "isolation.h"
#include "outputs.h"
#include "paths.h"
#include "base/program.h"
#include "base/options.h"
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-check [--stage NN] [--variant NAME|./mine.so] [--ranks R] [--seed S]\n"
    "                 [--full] [--quick] [--stop] [--quiet] [--strict] [--device]\n"
    "                 [--list] [--backend threads|nccl] [--case TEXT]\n"
    "                 [--reference ./its.so]\n"
    "                 [--repeats N] [--bare] [--in-turn] [--limit S] [--here]\n"
    "                 [--exact] [--apart]\n"
    "       kcp-check --paths [--cases] [--smallest] [--stage NN]\n"
    "                                            every path a call can take, as TSV;\n"
    "                                            the judge's cases that reach it,\n"
    "                                            and words of a small one\n"
    "       kcp-check --emit DIR --stage NN [--storage f64|f32|bf16] [--wide]\n"
    "                 [--shapes 128x128,64x64] [--case TEXT]\n"
    "                                            write the judge's cases as .npy;\n"
    "                                            --wide: of every list\n"
    "       kcp-check --foreign DIR              judge outputs computed elsewhere\n"
    "       kcp-check --keep FILE [--stage NN] [--seed S] [--quick]\n"
    "       kcp-check --against FILE ...         outputs of 50 cases a stage, or 10,\n"
    "                                            kept; what moves in another build\n"
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
    "  --apart: on a GPU each array in an allocation of its own: slower\n"
    "  --quick: variants alone, no mutants and no checks: for many seeds\n"
    "  --seeds N: with --quick N seeds from --seed S on, a variant's in one process\n"
    "  --stop: at the first failure\n"
    "  --ranks R are threads, which share a GPU; with --device --backend nccl a GPU\n"
    "  each; under mpirun, torchrun or srun they are its processes, with --device a\n"
    "  GPU each\n"
    "  of an option given twice the last counts; --help, --version\n"
    "exit status: 0 all right, 1 something failed, 2 usage,\n"
    "3 skips or n/a under --strict\n";

/* What the command line asks for, beside the judge's options; -1: not given. */
struct asked {
    struct options o;
    const char *emit, *foreign, *backend, *reference, *words, *keep, *against;
    int64_t seed;
    int exchange, repeats, limit;
    int list, bare, here, in_turn, exact, apart, paths, cases, smallest;
    struct kcase alone[8];
};

static const struct option_row rows[] = {
#define AT(field) offsetof(struct asked, field)
#define FLAG(name, field) { name, OPTION_FLAG, AT(field), NULL, 0, 0 }
#define TEXT(name, field, expects) { name, OPTION_TEXT, AT(field), expects, 0, 0 }
    FLAG("--full", o.full),
    FLAG("--quick", o.quick),
    FLAG("--stop", o.stop),
    FLAG("--quiet", o.quiet),
    FLAG("--strict", o.strict),
    FLAG("--device", o.only_device),
    FLAG("--list", list),
    FLAG("--paths", paths),
    FLAG("--cases", cases),
    FLAG("--smallest", smallest),
    FLAG("--bare", bare),
    FLAG("--here", here),
    FLAG("--exact", exact),
    FLAG("--apart", apart),
    FLAG("--wide", o.wide),
    FLAG("--in-turn", in_turn),
    TEXT("--stage", o.stage, "a stage, e.g. 05 or 05_affine"),
    TEXT("--variant", o.variant, "a name that --list prints, or ./mine.so"),
    TEXT("--emit", emit, "a directory"),
    TEXT("--foreign", foreign, "a directory"),
    TEXT("--keep", keep, "a file to write"),
    TEXT("--against", against, "a file that --keep wrote"),
    TEXT("--shapes", o.shapes, "K x V, as 128x128,64x64"),
    TEXT("--backend", backend, "threads or nccl"),
    TEXT("--case", words, "words as a failure prints them"),
    TEXT("--reference", reference, "a shared object, ./its.so"),
    { "--storage", OPTION_WORD, AT(o.storage), "f64|f32|bf16", 0, 0 },
    { "--ranks", OPTION_INT, AT(o.ranks), NULL, 1, CASE_RANKS },
    { "--seed", OPTION_WHOLE, AT(seed), NULL, 0, 1e12 },
    { "--seeds", OPTION_INT, AT(o.seeds), NULL, 1, MOST_SEEDS },
    { "--repeats", OPTION_INT, AT(repeats), NULL, 0, 100000 },
    { "--limit", OPTION_INT, AT(limit), NULL, 0, 86400 },
    { "--exchange", OPTION_INT, AT(exchange), NULL, 0, 1000000 },
#undef TEXT
#undef FLAG
#undef AT
};

static void print_usage(void) { fputs(usage, stdout); }

static const struct option_table table = {
    .program = "kcp-check", .row = rows, .n = sizeof rows / sizeof *rows,
    .help = print_usage,
};

/* What was found may hold anything, as line ends: one line all the same. */
static int bad(const char *option, const char *found, const char *expected)
{
    char why[600];
    options_refuse(why, sizeof why, option, found, expected);
    return options_say("kcp-check", why);
}

/* The values that say something about the judge: numbers to their places, names that
 * must be some stage's. */
static int read_values(struct asked *x)
{
    struct options *o = &x->o;
    char why[300];
    const struct kcp_check *c;
    o->seed = (uint64_t)x->seed;
    judge_full = o->full;
    bare_workspaces = x->bare;
    isolation_off = x->here;
    ranks_in_turn = x->in_turn;
    if (x->repeats >= 0) repeats_asked = x->repeats;
    if (x->limit >= 0) isolation_limit = x->limit;
    if (x->backend && strcmp(x->backend, "nccl") && strcmp(x->backend, "threads"))
        return bad("--backend", x->backend, "threads or nccl");
    if (o->stage && !stage_find(o->stage) && !kcp_checks(o->stage, &c, 1))
        return bad("--stage", o->stage, "a stage, e.g. 05 or 05_affine");
    if (x->words && !(o->nalone = cases_parse(x->words, x->alone, 8, why, sizeof why)))
        return bad("--case", why, "words as a failure prints them");
    if (x->words) o->alone = x->alone;
    for (int i = 0; i < o->nalone && o->stage && stage_find(o->stage); i++) {
        const char *word = inputs_ignore(stage_find(o->stage), &x->alone[i]);
        if (word) return bad("--case", word, "words that this stage's inputs read");
    }
    if (x->exact) fence_bytes = 0;
    arrays_apart = x->apart;
    return 0;
}

/* What a failure's command is told besides stage, variant and case, so that it fails
 * alone as it did here. */
static void say_again(const struct asked *x, const char *program)
{
    static char name[4200], options[9000], number[40];
    char word[4200], ranks[40];
    const struct { int on; const char *option, *value; } rows[] = {
        { x->o.only_device, "--device", NULL }, { x->bare, "--bare", NULL },
        { x->in_turn, "--in-turn", NULL },      { x->here, "--here", NULL },
        { x->exact, "--exact", NULL },          { x->apart, "--apart", NULL },
        { x->backend != NULL, "--backend", x->backend },
        { x->reference != NULL, "--reference", x->reference },
        { x->limit >= 0, "--limit", number },  { x->o.ranks > 0, "--ranks", ranks } };
    size_t at = 0;
    judge_program = shell_word(program, name, sizeof name);
    snprintf(number, sizeof number, "%d", x->limit);
    snprintf(ranks, sizeof ranks, "%d", x->o.ranks);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *value = rows[i].value;
        if (!rows[i].on || at + 4300 > sizeof options) continue;
        at += (size_t)snprintf(options + at, sizeof options - at, " %s%s%s",
                               rows[i].option, value ? " " : "",
                               value ? shell_word(value, word, sizeof word) : "");
    }
    snprintf(number, sizeof number, "%d", x->repeats);
    if (x->repeats >= 0)
        snprintf(options + at, sizeof options - at, " --repeats %s", number);
    judge_options = options;
}

/* "128x128,64x64": numbers, and nothing else. */
static int shapes_read(const char *s)
{
    while (*s) {
        const size_t K = strspn(s, "0123456789"), V = strspn(s + K + (s[K] == 'x'),
                                                             "0123456789");
        if (!K || s[K] != 'x' || !V) return 0;
        s += K + 1 + V;
        if (*s == ',' && s[1]) s++;
        else if (*s) return 0;
    }
    return 1;
}

/* What cannot be asked for together: nothing that was said is left unsaid. */
static int agrees(const struct asked *x)
{
    const int ways = !!x->emit + !!x->foreign + (x->exchange >= 0) + x->list +
                     x->paths + !!x->keep + !!x->against;
    const int other = ways || x->words || x->o.stop || x->o.reference || x->o.full;
    const int is_object = x->o.variant && strchr(x->o.variant, '/');
    if (x->o.seeds > 1 && (other || is_object || !x->o.quick))
        return bad("--seeds", "it", "--quick too, and variants of this program");
    if (x->cases && !x->paths) return bad("--cases", "it", "--paths too");
    if (x->smallest && !x->paths) return bad("--smallest", "it", "--paths too");
    const char *second = x->foreign ? "--foreign" : "--exchange";
    if (ways > 1)
        return bad("option", x->emit ? "--emit" : second,
                   "one of --list, --paths, --emit, --foreign, --keep, --against, "
                   "--exchange");
    if ((ways && x->words && !x->emit) || (x->words && !x->o.stage))
        return bad("--case", x->words, "a --stage to be judged on it");
    if (ways && x->reference)
        return bad("--reference", x->reference, "a --stage to be held to it");
    if (ways && !x->list && x->o.variant)
        return bad("--variant", x->o.variant, "no --emit, --foreign or --exchange");
    if (ways && x->repeats >= 0)
        return bad("--repeats", "it", "variants to judge");
    if (x->o.storage && !x->emit) return bad("--storage", "it", "--emit too");
    if (x->o.wide && !x->emit) return bad("--wide", "it", "--emit too");
    if (x->o.shapes && !x->emit) return bad("--shapes", x->o.shapes, "--emit too");
    if (x->o.shapes && !shapes_read(x->o.shapes))
        return bad("--shapes", x->o.shapes, "K x V, as 128x128,64x64");
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
    const struct kcp_check *c[MOST_CHECKS];
    int found = !strcmp(o->variant, "ref") || kcp_variants(o->stage, o->variant, &v, 1);
    for (int i = kcp_checks(o->stage, c, MOST_CHECKS) - 1; i >= 0; i--)
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

/* The record of a variant of a shared object: the object itself is loaded where it
 * runs, so that nothing it does ends the judge. NULL after one line. */
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
    struct kcp_report rep = { .quiet = x->o.quiet, .asked = x->o.variant != NULL,
                              .stop = x->o.stop };
    struct options *o = &x->o;
    char why[160];
    int status = ranks_open(x->backend, o->only_device, &o->ranks);
    const struct kcp_stage *s = o->stage ? stage_find(o->stage) : NULL;
    if (!status && s && !s->ranks && ranks_mine() >= 0) {
        status = 2;
        if (ranks_mine() == 0)
            fprintf(stderr, "kcp-check: stage %.2s is one rank's work: run it without "
                    "%s\n", s->name, ranks_launcher());
    }
    for (int i = 0; i < o->nalone && !status; i++) status = case_fits(&o->alone[i], o);
    if (status) {
        ranks_close();
        return status;
    }
    if (mine && (isolation_off || ranks_mine() >= 0))
        mine = variant_load(o->object, why, sizeof why);
    printf("seed %llu%s\n", (unsigned long long)o->seed, o->full ? ", full" : "");
    if (x->exchange >= 0)
        status = exchange_trials(x->exchange, o->ranks ? o->ranks : 3, o->only_device);
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
    static struct asked x = { .seed = 1, .exchange = -1, .repeats = -1, .limit = -1 };
    struct kcp_report rep = { 0 };
    const struct kcp_variant *mine = NULL;
    char why[300];
    const int read = options_read(&table, argc, argv, &x, why, sizeof why);
    if (read == OPTIONS_DONE) return 0;
    if (read == OPTIONS_BAD) return options_say("kcp-check", why);
    int status = read_values(&x);
    say_again(&x, argv[0]);
    if (!status) status = agrees(&x);
    if (status) return status;
    struct options *o = &x.o;
    if (x.reference && (status = other_reference(&x))) return status;
    rep.quiet = o->quiet;
    if (o->variant && strchr(o->variant, '/')) {
        mine = object_record(o);
        if (!mine) return 2;
        if (o->stage && stage_find(o->stage) != stage_find(mine->stage))
            return bad("--variant", mine->stage, "one of --stage");
    } else if (o->variant && !known(o))
        return bad("--variant", o->variant, "a name that --list prints, or ./mine.so");
    if (x.list) return list(o);
    if (x.paths) return paths_print(o, x.cases, x.smallest);
    for (int i = 0; x.emit && i < o->nalone; i++)
        if (case_fits(&o->alone[i], o)) return 2;
    if (x.emit) return emit_cases(x.emit, o);
    if (x.keep) return outputs_keep(x.keep, o);
    if (x.against) return outputs_against(x.against, o);
    if (x.foreign) return judge_foreign(x.foreign, o, &rep);
    return judge(&x, mine);
}

int main(int argc, char **argv)
{
    memory_settle();
    print_notices();
    return finish_stdout("kcp-check", do_all(argc, argv));
}
