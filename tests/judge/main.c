/* main.c -- program kcp-check, which judges one stage or all stages.
 * Book: CONTRIBUTING.md. */
#include "judge.h"
#include "emit.h"
#include "isolation.h"
#include "paths.h"
#include "comm/backend/kcp_mpi.h"
#include "base/options.h"
#include <regex.h>
#include <stdlib.h>
#include <string.h>

/* Values of the command-line options. `usual` contains the default values. */
struct command {
    struct options o;
    const char *emit, *foreign, *backend, *reference, *words, *keep, *against;
    int64_t seed;
    int exchange, repeats, limit;
    int list, bare, here, in_turn, exact, cases, smallest;
    const char *paths;
    struct kcase given[MOST_GIVEN];
};

#define OPTION(name, field, kind, value, expects, low, high, help)                    \
    { name, OPTION_##kind, offsetof(struct command, field), expects, low, high, value, \
      help },
static const struct option_row rows[] = {
#include "options.def"
};
#undef OPTION

static void print_usage(const struct option_table *t)
{
    printf("usage: kcp-check [options]\n"
           "       kcp-check --list | --paths [TEXT] | --emit DIR | --foreign DIR\n"
           "                 --keep FILE | --against FILE | --exchange N [options]\n"
           "\n"
           "Judges the variants of every stage against the references.\n\n");
    options_print(t);
    printf("\nDefaults are in parentheses. A repeated option gets its last value.\n"
           "exit status: 0 passed, 1 something failed or nothing ran, 2 usage error,\n"
           "             3 with --strict: something was skipped or n/a\n");
}

static const struct option_table table = {
    .program = "kcp-check", .row = rows, .n = sizeof rows / sizeof *rows,
    .help = print_usage,
};

/* Prints "OPTION: found 'FOUND', expected EXPECTED" in one line, even if `found`
 * contains line breaks. */
static int bad(const char *option, const char *found, const char *expected)
{
    char why[600];
    options_refuse(why, sizeof why, option, found, expected);
    return options_say("kcp-check", why);
}

/* Copies the values of options to the judge's variables, and checks the stage's name
 * and the cases' words. */
static int read_values(struct command *x)
{
    struct options *o = &x->o;
    char why[300];
    const struct kcp_check *c;
    o->seed = (uint64_t)x->seed;
    judge_full = o->full;
    bare_workspaces = x->bare;
    isolation_off = x->here;
    ranks_in_turn = x->in_turn;
    if (x->repeats >= 0) case_repeats = x->repeats;
    if (x->limit >= 0) isolation_limit = x->limit;
    if (x->backend && strcmp(x->backend, "nccl") && strcmp(x->backend, "threads"))
        return bad("--backend", x->backend, "threads or nccl");
    if (o->stage && !stage_find(o->stage) && !kcp_checks(o->stage, &c, 1))
        return bad("--stage", o->stage, "a stage, e.g. 05 or 05_affine");
    if (x->words)
        o->ngiven = cases_parse(x->words, x->given, MOST_GIVEN, why, sizeof why);
    if (x->words && !o->ngiven)
        return bad("--case", why, "words such as 'kda R=2 K=64'");
    if (x->words) o->given = x->given;
    for (int i = 0; i < o->ngiven && o->stage && stage_find(o->stage); i++) {
        const char *word = inputs_ignore(stage_find(o->stage), &x->given[i]);
        if (word) return bad("--case", word, "words that the stage uses");
    }
    if (x->exact) fence_bytes = 0;
    return 0;
}

static const struct command usual = { .seed = 1, .exchange = -1, .repeats = -1,
                                      .limit = -1 };

/* Stores the program's name, and the options that a command needs to repeat a failure,
 * except --stage, --variant and --case. */
static void keep_options(const struct command *x, const char *program)
{
    static const char kept[] = "--device --bare --in-turn --here --exact --backend "
                               "--reference --limit --ranks --repeats";
    static char name[4200], options[9000];
    char word[4200];
    size_t used = 0;
    judge_program = shell_word(program, name, sizeof name);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *at = (const char *)x + rows[i].at, *text = NULL;
        const size_t size = rows[i].kind == OPTION_TEXT ? sizeof text : sizeof(int);
        if (!has_word(kept, rows[i].name, " ") || used + 4300 > sizeof options ||
            !memcmp(at, (const char *)&usual + rows[i].at, size)) continue;
        if (rows[i].kind == OPTION_TEXT) memcpy(&text, at, sizeof text);
        if (text) shell_word(text, word, sizeof word);
        else snprintf(word, sizeof word, "%d", *(const int *)(const void *)at);
        used += (size_t)snprintf(options + used, sizeof options - used, " %s%s%s",
                                 rows[i].name, rows[i].kind == OPTION_FLAG ? "" : " ",
                                 rows[i].kind == OPTION_FLAG ? "" : word);
    }
    judge_options = options;
}

/* Returns 1 if the text is a list of sizes such as "128x128,64x64". */
static int shapes_read(const char *s)
{
    regex_t sizes;
    const int bad = regcomp(&sizes, "^[0-9]+x[0-9]+(,[0-9]+x[0-9]+)*$", REG_EXTENDED);
    const int fits = !bad && !regexec(&sizes, s, 0, NULL, 0);
    if (!bad) regfree(&sizes);
    return fits;
}

static int needs(const char *option, const char *other)
{
    fprintf(stderr, "kcp-check: %s: needs %s\n", option, other);
    return 2;
}

/* Rejects options that exclude each other, and options that need another option. */
static int combine(const struct command *x)
{
    const struct options *o = &x->o;
    const int ways = !!x->emit + !!x->foreign + (x->exchange >= 0) + x->list +
                     !!x->paths + !!x->keep + !!x->against;
    if ((x->cases || x->smallest) && !x->paths)
        return needs(x->cases ? "--cases" : "--smallest", "--paths");
    if (x->paths && x->paths[0] && o->ranks)
        return needs("--ranks", "--paths without words (words give ranks as R=2)");
    if (ways > 1) {
        fprintf(stderr, "kcp-check: found %d of --list, --paths, --emit, --foreign, "
                "--keep, --against and --exchange; give at most one\n", ways);
        return 2;
    }
    if ((ways && x->words && !x->emit) || (x->words && !o->stage))
        return needs("--case", "--stage, and --emit or a run that judges variants");
    if (ways && x->reference) return needs("--reference", "a run that judges variants");
    if (ways && !x->list && o->variant)
        return needs("--variant", "--list or a run that judges variants");
    if (ways && x->repeats >= 0) return needs("--repeats", "variants to judge");
    if (o->storage && !x->emit) return needs("--storage", "--emit");
    if (o->small && !x->emit) return needs("--small", "--emit");
    if (o->shapes && !x->emit) return bad("--shapes", o->shapes, "--emit too");
    if (o->shapes && !shapes_read(o->shapes))
        return bad("--shapes", o->shapes, "K x V, as 128x128,64x64");
    return 0;
}

/* Returns 2 after an error if o's stage or number of ranks excludes case k, else 0. */
static int case_fits(const struct kcase *k, const struct options *o)
{
    const struct kcp_stage *s = stage_find(o->stage);
    char found[80], expected[80];
    const int R = k->call.R;
    if (s) models_text(s, " or ", expected, sizeof expected);
    if (s && !has_word(expected, model_name[k->call.model], " "))
        return bad("--case", model_name[k->call.model], expected);
    snprintf(found, sizeof found, "R=%d", R);
    snprintf(expected, sizeof expected, "R=%d, the number of ranks", o->ranks);
    const int other = s && s->ranks && o->ranks && R != o->ranks;
    return other ? bad("--case", found, expected) : 0;
}

/* Returns 1 if o->variant is the name of a variant or a check. */
static int is_known(const struct options *o)
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

/* Loads the variant of a shared object in this process or, with `apart`, only the
 * variant's record in a separate process. Returns NULL after an error message. */
static const struct kcp_variant *load(const char *option, const char *path, int apart)
{
    static struct kcp_variant record;
    const struct kcp_variant *v = &record;
    char why[256] = "", expected[400];
    if (!apart) v = variant_load(path, why, sizeof why);
    else if (isolated_probe(path, &record, why, sizeof why)) v = NULL;
    snprintf(expected, sizeof expected, "an object with a variant's record: %s", why);
    if (!v) bad(option, path, expected);
    if (!v || stage_find(v->stage)) return v;
    bad(option, v->stage, "a stage");
    return NULL;
}

static int set_reference(struct command *x)
{
    const struct kcp_variant *v = load("--reference", x->reference, 0);
    const struct kcp_stage *s = v ? stage_find(v->stage) : NULL;
    if (!v) return 2;
    if (s->ranks || !x->o.stage || s != stage_find(x->o.stage))
        return bad("--reference", v->stage,
                   "the stage of --stage, which must run on one rank");
    x->o.reference = v;
    return 0;
}

static int judge(struct command *x, const struct kcp_variant *mine)
{
    struct kcp_report rep = { .quiet = x->o.quiet, .selected = x->o.variant != NULL,
                              .stop = x->o.stop };
    struct options *o = &x->o;
    char why[160];
    int status = ranks_open(x->backend, o->only_device, &o->ranks);
    const struct kcp_stage *s = o->stage ? stage_find(o->stage) : NULL;
    const int is_fold = s && s->facts & KCP_FOLDS && ranks_mine() >= 0;
    if (is_fold && x->exchange < 0) x->exchange = 40;  /* stage 07 under a launcher */
    if (!status && s && !s->ranks && !is_fold && ranks_mine() >= 0) {
        status = 2;
        if (ranks_mine() == 0)
            fprintf(stderr, "kcp-check: stage %.2s runs on one rank: start it without "
                    "%s\n", s->name, ranks_launcher());
    }
    for (int i = 0; i < o->ngiven && !status; i++) status = case_fits(&o->given[i], o);
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

static int run(int argc, char **argv)
{
    static struct command x;
    struct kcp_report rep = { 0 };
    const struct kcp_variant *mine = NULL;
    char why[300];
    x = usual;
    const int read = options_read(&table, argc, argv, &x, why, sizeof why);
    if (read == OPTIONS_DONE) return 0;
    if (read == OPTIONS_BAD) return options_say("kcp-check", why);
    int status = read_values(&x);
    keep_options(&x, argv[0]);
    if (!status) status = combine(&x);
    if (!status && x.reference) status = set_reference(&x);
    if (status) return status;
    struct options *o = &x.o;
    rep.quiet = o->quiet;
    if (o->variant && strchr(o->variant, '/')) {
        mine = load("--variant", o->variant, 1);
        if (!mine) return 2;
        if (is_mutant(mine))
            return bad("--variant", mine->name, "a name without mutant_");
        o->object = o->variant;
        if (o->stage && stage_find(o->stage) != stage_find(mine->stage))
            return bad("--variant", mine->stage, "a variant of --stage");
    } else if (o->variant && !is_known(o))
        return bad("--variant", o->variant, "a check, a name of --list, or ./mine.so");
    if (x.list) return list(o);
    if (x.paths && x.paths[0]) return paths_of_call(x.paths);
    if (x.paths) return paths_print(o, x.cases, x.smallest);
    for (int i = 0; x.emit && i < o->ngiven; i++)
        if (case_fits(&o->given[i], o)) return 2;
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
    return kcp_mpi_end(finish_stdout("kcp-check", run(argc, argv)));
}
