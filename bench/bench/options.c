/* options.c -- the command line of kcp-bench, which selects a case and what to time.
 * Book: chapter 18. */
#include "bench.h"
#include "base/options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MODEL_WORD(NAME, name, ...) "|" #name
#define MODEL_WORDS (KCP_MODEL_LIST(MODEL_WORD) + 1)       /* "kda|gdn|.." */

#define KCP_OPTION(field, name, value, kind, expects, low, high, help)                \
    { name, OPTION_##kind, offsetof(struct bench, field), expects, low, high, value,   \
      help },
static const struct option_row rows[] = {
#include "options.def"
};
#undef KCP_OPTION

static void print_help(const struct option_table *t)
{
    printf("usage: kcp-bench [options]\n       kcp-bench --help | --version\n\n"
           "Times kernels on a GPU. "
           "Under mpirun or srun, each process is a rank with its own GPU.\n\n");
    options_print(t);
}

int bench_bad(const char *option, const char *found, const char *expected)
{
    char why[300];
    options_refuse(why, sizeof why, option, found ? found : "", expected);
    return options_say("kcp-bench", why);
}

/* The value for --save none: forward saves nothing. enum kcp_save has no such value. */
enum { SAVE_NONE = 2 };
_Static_assert(KCP_RECOMPUTE == 0 && KCP_SAVE_ALL == 1 && LIVE == 0 && STRONG == 1,
               "expected the words of --save and --gate in the order of their enums");

#define FORM_WORD(number, name) "|" #name

/* Counts the words in a list that is separated by commas. */
static int words(const char *list)
{
    int n = 1;
    for (; *list; list++) n += *list == ',';
    return n;
}

static int is_list_of_stages(const char *list)
{
    int found = 0;
    for (int i = 0; i < kcp_nstages; i++) {
        char number[3];
        snprintf(number, sizeof number, "%.2s", kcp_stages[i].name);
        found += has_word(list, number, ",");
    }
    return found == words(list);
}

static int is_list_of_forms(const char *list)
{
    int found = 0;
    for (int form = 0; form < KCP_FORMS; form++)
        found += has_word(list, kcp_form_names[form], ",");
    return found == words(list);
}

/* Reads a number from 1 to LENGTHS_TOKENS at *s, and moves *s past the number. Returns
 * 0 if there is no such number. */
static int64_t read_number(const char **s)
{
    char *end;
    const long long n = **s < '1' || **s > '9' ? 0 : strtoll(*s, &end, 10);
    if (n) *s = end;
    return n <= LENGTHS_TOKENS ? n : 0;
}

/* "4x8192,1024" is four sequences of 8192 tokens and one of 1024. Writes boundaries to
 * cu. Returns the number of sequences, or 0 if `text` is not a list of lengths or
 * exceeds a limit. */
static int read_lengths(const char *text, int64_t *cu)
{
    int N = 0;
    cu[0] = 0;
    for (const char *s = text;; s++) {
        int64_t times = 1, length = read_number(&s);
        if (length && *s == 'x') {
            times = length;
            s++;
            length = read_number(&s);
        }
        if (!length || times > LENGTHS_MOST - N) return 0;
        for (int64_t i = 0; i < times; i++, N++) cu[N + 1] = cu[N] + length;
        if (cu[N] > LENGTHS_TOKENS) return 0;
        if (*s != ',') return *s ? 0 : N;
    }
}

static int take_lengths(struct bench *b)
{
    const int N = read_lengths(b->lengths, b->cu);
    if (!N)
        return bench_bad("--lengths", b->lengths, "lengths of 1 or more, such as "
                         "4x8192,1024: at most 4096 lengths and 16777216 tokens");
    if (b->tokens) return bench_bad("--lengths", b->lengths, "no -T with --lengths");
    b->tokens = (int)b->cu[N];
    b->call.N = N;
    return 0;
}

/* Sets defaults, and rejects options that contradict each other. */
static int check_options(struct bench *b)
{
    struct kcp_call *c = &b->call;
    if (b->lengths && take_lengths(b)) return 2;
    if (!b->tokens) b->tokens = 8192;
    if (!b->lengths) b->cu[1] = b->tokens;
    b->judge |= b->tsv && !b->ranks;
    b->unsaved = b->save == SAVE_NONE;
    c->save = b->unsaved ? KCP_RECOMPUTE : (enum kcp_save)b->save;
    if (!c->HV) c->HV = c->H;
    c->T = b->tokens;
    c->scale = 1 / sqrt(c->K);
    c->KG = kcp_gates_of(c);
    if (c->HV % c->H) return bench_bad("--HV", "", "a multiple of -H");
    if (b->stages && !is_list_of_stages(b->stages))
        return bench_bad("--stage", b->stages, "numbers of stages, such as 08,13");
    if (b->forms && !is_list_of_forms(b->forms))
        return bench_bad("--forms", b->forms,
                         (KCP_FORM_LIST(FORM_WORD) ", separated by commas") + 1);
    const struct kcp_variant *v;
    if (b->variant && !kcp_variants(NULL, b->variant, &v, 1))
        return bench_bad("--variant", b->variant, "a name from kcp-check --list");
    if (c->NS > c->T) return bench_bad("--segments", "", "at most -T");
    if (b->canonical && c->NS > 1)
        return bench_bad("--canonical", "", "no --segments with --canonical");
    if (b->spread && !b->ranks) return bench_bad("--layout", "", "--ranks too");
    if (b->tsv && access(b->tsv, F_OK) == 0)
        return bench_bad("--tsv", b->tsv, "a file that does not exist yet");
    if (b->backend && strcmp(b->backend, "nccl") && strcmp(b->backend, "threads"))
        return bench_bad("--backend", b->backend, "nccl or threads");
    return 0;
}

int bench_options(int argc, char **argv, struct bench *b)
{
    static const struct option_table table = {
        .program = "kcp-bench", .row = rows, .n = sizeof rows / sizeof *rows,
        .help = print_help,
    };
    char why[300];
    b->call = (struct kcp_call){ .H = 96, .K = 128, .V = 128, .C = 64, .D = 4, .N = 1,
        .NS = 1, .R = 1, .gate = KCP_GATE_BOUNDED, .beta_form = KCP_BETA_SIGMOID,
        .l2norm = 1, .lower_bound = -5, .part = KCP_LOCAL | KCP_REVERSE };
    const int status = options_read(&table, argc, argv, b, why, sizeof why);
    if (status == OPTIONS_DONE) return -1;
    if (status == OPTIONS_BAD) return options_say("kcp-bench", why);
    return check_options(b);
}

/* Returns 1 if this run times the stage. Without --stage, a run times stages 01 to 14,
 * or only stage 16 if no other stage supports the model. */
int bench_selects(const struct bench *b, const struct kcp_stage *st)
{
    const char two[] = { st->name[0], st->name[1], 0 };
    if (b->stages) return strstr(b->stages, two) != NULL;
    const int family = kcp_models[b->call.model].kind == KCP_FAMILY;
    return family ? (st->facts & KCP_KEEPS) != 0 : atoi(two) < 15;
}
