/* options.c -- kcp-bench's command line: a case, and what of it to time.
 *
 * Book: chapter 18.  Checked by: tests/cli/bench_cli.sh.  Next: setup.c.
 */
#include "bench.h"
#include "base/options.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: kcp-bench [option value]...      times variants; kcp-check judges them\n"
    "what:    --stage NN | --stages 08,13   --variant NAME   --newest (of each stage)\n"
    "case:    -T tokens   -H heads   --HV heads   -K size   -V size   -C chunk\n"
    "         -D spikes   --walk auto|sequential|scan (15; 08 over ranks: are maps\n"
    "                     made in one walk beside the factors, or strip by strip)\n"
    "         --model kda|gdn|dplr|gdn2|gla   --gate live|strong   --segments S\n"
    "         --sequences N (packed, of uneven lengths)\n"
    "         --lengths 4x8192,1024 (packed, of these: five sequences)\n"
    "         --save recompute|all|light|none   --reuse-M (13 takes M from 08)\n"
    "ranks:   -g, --ranks R   whole layers over R ranks, each with T / R tokens:\n"
    "                         front, t_sum, t_exchange, t_main apart, every form\n"
    "         --forms all_gather,chain,chain_window,pipeline,scan (chain_window: the\n"
    "                 chain over windows)      --backend nccl|threads\n"
    "         --cuts 45,55   tokens of the ranks, as shares\n"
    "         --wire exact|bf16     what crosses cuts: as it is, or rounded\n"
    "         --replay       each call once more from a CUDA graph, by turns with it\n"
    "         --unsent       by turns with the same call, its messages left out: the\n"
    "                        least that hiding the exchange could come to\n"
    "sweep:   -b, -e   tokens from and to   -f factor\n"
    "timing:  -w, --warmup n   -n, --iters n\n"
    "judged:  --judge   each row, once more: four value heads against the reference\n"
    "         in double, in this process; --tsv and --json mean it too, but over\n"
    "         ranks, whose references take long\n"
    "records: --tsv FILE (what record.sh keeps)   --json FILE   --against RECORD.tsv\n"
    "         --help   --version\n"
    "Under mpirun, torchrun or srun every process is a rank, on a GPU of its own.\n";

static void print_usage(void) { fputs(usage, stdout); }

int bench_bad(const char *option, const char *found, const char *expected)
{
    char why[300];
    options_refuse(why, sizeof why, option, found ? found : "", expected);
    return options_say("kcp-bench", why);
}

/* --save has a last word, which is no mode of the layer: 08 leaves nothing at all. */
enum { SAVE_NONE = 3 };
_Static_assert(KCP_RECOMPUTE == 0 && KCP_SAVE_ALL == 1 && KCP_SAVE_LIGHT == 2 &&
               LIVE == 0 && STRONG == 1,
               "the words of --save and --gate stand in the order of their enums");

static const struct option_row rows[] = {
#define AT(field) offsetof(struct bench, field)
#define INT(name, field, low, high) { name, OPTION_INT, AT(field), NULL, low, high }
#define TEXT(name, field, expects) { name, OPTION_TEXT, AT(field), expects, 0, 0 }
#define WORD(name, field, words) { name, OPTION_WORD, AT(field), words, 0, 0 }
    TEXT("--stage", stage, "a stage, e.g. 04"),
    TEXT("--stages", stages, "numbers of stages, with commas"),
    TEXT("--variant", variant, "a name that kcp-check --list prints"),
    { "--newest", OPTION_FLAG, AT(newest), NULL, 0, 0 },
    INT("-T", tokens, 1, 1 << 24),
    INT("-H", call.H, 1, 1024),
    INT("--HV", call.HV, 1, 1024),
    INT("-K", call.K, 16, 256),
    INT("-V", call.V, 16, 256),
    INT("-C", call.C, 1, 8192),
    INT("-D", call.D, 1, 64),
    INT("--segments", call.NS, 1, 65536),
    INT("--sequences", call.N, 1, LENGTHS_MOST),
    TEXT("--lengths", lengths, "lengths, as 4x8192,1024"),
    WORD("--walk", call.walk, "auto|sequential|scan"),
    WORD("--model", call.model, "kda|gdn|dplr|gdn2|gla"),
    WORD("--gate", regime, "live|strong"),
    WORD("--save", save, "recompute|all|light|none"),
    { "--reuse-M", OPTION_FLAG, AT(call.reuse_M), NULL, 0, 0 },
    INT("--ranks", ranks, 1, 8),
    INT("-g", ranks, 1, 8),
    TEXT("--forms", forms, "forms, with commas"),
    TEXT("--cuts", cuts, "shares of the ranks, with commas"),
    WORD("--wire", wire, "exact|bf16"),
    { "--replay", OPTION_FLAG, AT(replay), NULL, 0, 0 },
    { "--unsent", OPTION_FLAG, AT(unsent), NULL, 0, 0 },
    TEXT("--backend", backend, "nccl or threads"),
    INT("-b", from, 1, 1 << 24),
    INT("-e", to, 1, 1 << 24),
    INT("-f", factor, 2, 1024),
    INT("--warmup", warmup, 0, 10000),
    INT("-w", warmup, 0, 10000),
    INT("--iters", iters, 5, 100000),
    INT("-n", iters, 5, 100000),
    { "--judge", OPTION_FLAG, AT(judge), NULL, 0, 0 },
    TEXT("--tsv", tsv, "a file"),
    TEXT("--json", json, "a file"),
    TEXT("--against", against, "a record"),
#undef WORD
#undef TEXT
#undef INT
#undef AT
};

static int is_number_of_stage(const char *word, size_t n)
{
    char two[3] = "";
    if (n != 2) return 0;
    memcpy(two, word, 2);
    return stage_find(two) != NULL;
}

static int is_form(const char *word, size_t n)
{
    if (n == strlen(CHAIN_WINDOW) && !memcmp(word, CHAIN_WINDOW, n)) return 1;
    for (int form = 0; form < KCP_FORMS; form++)
        if (strlen(kcp_form_names[form]) == n && !memcmp(word, kcp_form_names[form], n))
            return 1;
    return 0;
}

/* Words with commas, all of them known: else nothing would be timed, and unsaid. */
static int is_list(const char *s, int (*is_known)(const char *, size_t))
{
    for (;;) {
        const size_t n = strcspn(s, ",");
        if (!is_known(s, n)) return 0;
        if (!s[n]) return 1;
        s += n + 1;
    }
}

/* So many shares as ranks. */
static int cuts_are_right(const struct bench *b)
{
    const char *s = b->cuts;
    int n = 0;
    for (;; s++) {
        char *end;
        const long share = strtol(s, &end, 10);
        if (end == s || share < 1 || share > 1000000) return 0;
        n++;
        s = end;
        if (*s != ',') break;
    }
    return !*s && n == b->ranks;
}

/* A list of lengths says how many sequences and tokens there are; records have it in
 * one way of writing. */
static int take_lengths(struct bench *b)
{
    static char word[LENGTHS_TEXT];
    static int64_t cu[LENGTHS_MOST + 1];
    const int N = lengths_read(b->lengths, cu);
    if (!N)
        return bench_bad("--lengths", b->lengths, "lengths from 1, as 4x8192,1024: "
                         "at most 4096, of 16777216 tokens");
    if (lengths_write(word, sizeof word, cu, N))
        return bench_bad("--lengths", b->lengths, "a list of 255 letters");
    if (b->tokens || b->from || b->to || b->call.N)
        return bench_bad("--lengths", b->lengths,
                         "no -T, -b, -e or --sequences beside");
    b->lengths = word;
    b->tokens = (int)cu[N];
    b->call.N = N;
    return 0;
}

/* The options together: what one says about another. */
static int settle(struct bench *b)
{
    struct kcp_call *c = &b->call;
    if (b->lengths && take_lengths(b)) return 2;
    if (!b->tokens) b->tokens = 8192;
    if (!c->N) c->N = 1;
    b->judge |= (b->tsv || b->json) && !b->ranks;
    if (!b->from) b->from = b->tokens;
    b->unsaved = b->save == SAVE_NONE;
    c->save = b->unsaved ? KCP_RECOMPUTE : (enum kcp_save)b->save;
    if (!b->to) b->to = b->from;
    if (!b->factor) b->factor = 2;
    if (!c->HV) c->HV = c->H;
    c->T = b->from;
    c->scale = 1 / sqrt(c->K);
    c->KG = c->model == KCP_GDN ? 1 : c->K;
    if (c->HV % c->H) return bench_bad("--HV", "", "a multiple of -H");
    if (b->stage && !stage_find(b->stage))
        return bench_bad("--stage", b->stage, "a stage, e.g. 04");
    if (b->stages && !is_list(b->stages, is_number_of_stage))
        return bench_bad("--stages", b->stages, "numbers of stages, as 08,13");
    if (b->forms && !is_list(b->forms, is_form))
        return bench_bad("--forms", b->forms, "all_gather, chain, "
                         "chain_window, pipeline or scan, with commas");
    if (b->wire && b->ranks < 2)
        return bench_bad("--wire", "bf16", "--ranks 2 or more");
    if (b->cuts && !cuts_are_right(b))
        return bench_bad("--cuts", b->cuts, "a share above 0 for each of --ranks");
    const struct kcp_variant *v;
    if (b->variant && !kcp_variants(NULL, b->variant, &v, 1))
        return bench_bad("--variant", b->variant, "one that kcp-check --list prints");
    if (!b->lengths && c->N > 1 && c->N > c->T / 16)
        return bench_bad("--sequences", "", "sixteen tokens a sequence or more");
    if (c->NS > c->T) return bench_bad("--segments", "", "at most -T");
    if (b->to > b->from && (b->json || b->tsv || b->against))
        return bench_bad("-e", "", "one size with --json, --tsv and --against");
    if (b->tsv && b->against && strcmp(b->tsv, b->against) == 0)
        return bench_bad("--tsv", b->tsv, "another file than that of --against");
    if (b->json && b->against && strcmp(b->json, b->against) == 0)
        return bench_bad("--json", b->json, "another file than that of --against");
    if (b->backend && strcmp(b->backend, "nccl") && strcmp(b->backend, "threads"))
        return bench_bad("--backend", b->backend, "nccl or threads");
    return 0;
}

int bench_options(int argc, char **argv, struct bench *b)
{
    static const struct option_table table = {
        .program = "kcp-bench", .row = rows, .n = sizeof rows / sizeof *rows,
        .help = print_usage,
    };
    char why[300];
    b->call = (struct kcp_call){ .H = 96, .K = 128, .V = 128, .C = 64, .D = 4, .NS = 1,
        .R = 1, .gate = KCP_GATE_BOUNDED, .beta_form = KCP_BETA_SIGMOID,
        .l2norm = 1, .lower_bound = -5, .part = KCP_LOCAL | KCP_REVERSE };
    const int status = options_read(&table, argc, argv, b, why, sizeof why);
    if (status == OPTIONS_DONE) return -1;
    if (status == OPTIONS_BAD) return options_say("kcp-bench", why);
    return settle(b);
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
