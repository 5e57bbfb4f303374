/* anchors.c -- defines anchors: fixed cases that each list has besides drawn cases.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: self_lists.c,
 * tests/judge/self_lists.c.  Next: case_text.c, whose words these are.
 *
 * Drawn cases combine properties by chance. Anchors ensure these combinations: a state
 * that stays alive across at least four ranks, in every form and model; several chunks,
 * several heads and given states at each tensor-core size; keys with equal cosines
 * (alike keys); alternating gates; null rows; optional inputs omitted. */
#include "judge.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

struct anchors {
    struct kcase *list;
    int n, first, ranks;
    uint64_t seed;
    int wide;
};

/* Parses `words` and adds the case. Option --ranks replaces the value after "R=". */
static void add(struct anchors *a, const char *words, ...)
{
    char text[400], why[200];
    va_list ap;
    va_start(ap, words);
    vsnprintf(text, sizeof text, words, ap);
    va_end(ap);
    char *R = strstr(text, "R=");
    if (R && a->ranks) {
        char rest[400];
        snprintf(rest, sizeof rest, "%s", R + 2 + strspn(R + 2, "0123456789"));
        snprintf(R, sizeof text - (size_t)(R - text), "R=%d%.300s", a->ranks, rest);
    }
    struct kcase *more = realloc(a->list, (size_t)(a->n + 1) * sizeof *more);
    if (!more) return;
    a->list = more;
    struct kcase *k = &more[a->n];
    if (case_parse(text, k, why, sizeof why)) {
        fprintf(stderr, "kcp-check: case %s: %s\n", text, why);
        abort();
    }
    k->id = a->first + a->n + a->wide * 1000;
    k->seed = a->seed * 1000003u + (unsigned)k->id;
    if (!R) k->call.R = a->ranks ? a->ranks : 1;
    a->n++;
}

static int is(const struct kcp_stage *s, const char *list)
{
    char number[4] = { s->name[0], s->name[1], ' ', 0 };
    return strstr(list, number) != NULL;
}

static int models_of(const struct kcp_stage *s)
{
    if (is(s, "16 ")) return 3;
    return is(s, "14 15 ") ? 1 : 2;
}

/* Adds long sequences whose live state crosses every cut, in each form and model. */
static void crossing(struct anchors *a, const struct kcp_stage *s)
{
    static const char *const plain[] = { "kda", "gdn" };
    static const char *const family[] = { "dplr", "gdn2", "gla" };
    static const int ranks[] = { 4, 5, 8, 4 };
    const char *const *model = is(s, "16 ") ? family : plain;
    const int models = models_of(s);
    for (int f = 0; f < KCP_FORMS; f++)
        for (int m = 0; m < models; m++) {
            const int R = ranks[(f + m) % 4];
            const char *more = "l2norm beta=sigmoid%.0s";
            if (is(s, "15 ")) more = "spike masks=1 D=3 walk=%s";
            if (is(s, "16 ")) more = "blocks=%.0s2";
            char about[80];
            snprintf(about, sizeof about, more, f % 2 ? "blelloch" : "sequential");
            if (f == KCP_PIPELINE && !is(s, "16 ")) strcat(about, " blocks=3");
            add(a, "live %s %s R=%d H=1 HV=2 K=8 V=6 C=16 lengths=9,171,12 h0 dht %s",
                model[m], kcp_form_names[f], R, about);
            if (f == m)                        /* same sizes, other lengths */
                add(a, "live %s %s R=%d H=1 HV=2 K=8 V=6 C=16 lengths=12,171,9 h0"
                    " dht %s",
                    model[m], kcp_form_names[f], R, about);
            if (is(s, "13 ") && f == 0)
                add(a, "live %s R=%d H=2 HV=2 K=8 V=6 C=16 lengths=9,171 h0 dht reuse_M"
                    " l2norm save=%s", model[m], R, m ? "all" : "none");
        }
    /* masks=2 drops a random half of the tokens, so at some of the 28 cuts the first
     * token of a rank is dropped. */
    for (int f = 0; f < KCP_FORMS && is(s, "15 "); f++)
        add(a, "live kda %s R=8 H=1 HV=2 K=8 V=6 C=16 lengths=9,171,12 h0 dht "
            "spike masks=2 D=3", kcp_form_names[f]);
}

/* Copies the last case and makes the middle rank of the copy empty. */
static void empty_rank(struct anchors *a)
{
    struct kcase *more = realloc(a->list, (size_t)(a->n + 1) * sizeof *more);
    if (!more) return;
    a->list = more;
    struct kcase *k = &more[a->n];
    const int R = k[-1].call.R;
    *k = k[-1];
    k->id++;
    k->seed++;
    k->uneven = R > 2;
    for (int r = 1; r < R && R > 2; r++)
        k->cuts[r] = (r - (r > R / 2)) * k->call.T / (R - 1);
    a->n++;
}

/* Adds cases whose ranks own several ranges of one long sequence with a live state. */
static void owners(struct anchors *a, const struct kcp_stage *s)
{
    static const char *const owner[] = { "zigzag", "striped", "dealt" };
    const int first = is(s, "16 ") ? KCP_DPLR : KCP_KDA;
    for (int f = 0; f < KCP_FORMS; f++)
        for (int i = 0; i < 3; i++) {
            const char *more = is(s, "15 ") ? "spike masks=2 D=3" : "l2norm";
            if (is(s, "16 ")) more = "blocks=2";
            add(a, "live %s %s R=%d H=1 HV=2 K=8 V=6 C=16 lengths=9,171,12 h0 dht "
                "owners=%s %s", model_name[first + (f + i) % models_of(s)],
                kcp_form_names[f], 3 + (f + i) % 3, owner[i], more);
            if (i == f % 3)
                add(a, "live %s %s R=4 H=1 HV=2 K=8 V=6 C=16 lengths=5,260 h0 dht L=24 "
                    "owners=%s %s%s", model_name[first + (f + i) % models_of(s)],
                    kcp_form_names[f], owner[i], more,
                    is(s, "13 ") && f == 0 ? " reuse_M" : "");
        }
}

/* Adds cases with several chunks per sequence and a live state, cases without optional
 * states, and for stage 09 cases of a single part. */
static void chunks(struct anchors *a, const struct kcp_stage *s)
{
    for (int m = 0; m < 2; m++) {
        const char *model = model_name[m];
        add(a, "live %s H=2 HV=4 K=8 V=12 C=16 lengths=70,33 h0 dht l2norm", model);
        add(a, "live %s H=2 HV=4 K=8 V=12 C=16 lengths=33,70 h0 dht l2norm", model);
        add(a, "live %s H=1 HV=2 K=12 V=8 C=16 lengths=50,20 no_states", model);
        if (!is(s, "09 ")) continue;
        add(a, "live %s H=1 HV=2 K=8 V=12 C=16 lengths=70,33 h0 dht part=1", model);
        add(a, "live %s H=1 HV=2 K=8 V=12 C=16 lengths=70,33 h0 dht part=2", model);
    }
}

/* Adds cases with special inputs: alike keys, alternating gates, beta of 0 or 1,
 * null or large rows. */
static void unlike(struct anchors *a, const char *sizes)
{
    static const struct { const char *beta, *alike; } keys[] = {
        { "sigmoid", "0.9" }, { "sigmoid2", "0.9" }, { "sigmoid", "0.99" },
        { "sigmoid2", "1" } };
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < 2; m++)
            add(a, "live %s %s lengths=150,21 h0 dht beta=%s alike=%s%s",
                model_name[m], sizes, keys[i].beta, keys[i].alike,
                i % 2 ? " l2norm" : "");
    for (int m = 0; m < 2; m++) {
        const char *model = model_name[m];
        add(a, "turns %s %s lengths=70,65 h0 dht l2norm beta=sigmoid", model, sizes);
        add(a, "turns %s %s lengths=130 gate=bounded lb=-1 h0 dht", model, sizes);
        add(a, "turns %s %s lengths=80 gate=softplus h0 dht", model, sizes);
        add(a, "strong %s %s lengths=90 gate=bounded lb=-0.3 h0 dht", model, sizes);
        add(a, "live %s %s lengths=100,7 exact h0 dht plain", model, sizes);
        add(a, "live %s %s lengths=100 l2norm null big h0 dht beta=sigmoid", model,
            sizes);
    }
}

/* Adds cases of tensor-core sizes in every model, with at least four chunks in the
 * longest sequence and heads that share keys. Stages with ranks use three ranks, and
 * the form changes from case to case. */
static void wide_chunks(struct anchors *a, const struct kcp_stage *s)
{
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 } };
    const int first = is(s, "16 ") ? KCP_DPLR : KCP_KDA;
    const int models = models_of(s);
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < models; m++) {
            char size[80];
            snprintf(size, sizeof size, "%s K=%d V=%d C=64 H=%d HV=%d",
                     model_name[first + m], sizes[i][0], sizes[i][1], 1 + i % 2,
                     2 + 2 * (i % 2));
            const char *more = "l2norm beta=sigmoid gate=softplus";
            if (is(s, "15 ")) more = "spike masks=1 D=3";
            if (is(s, "16 ")) more = "";
            if (!s->ranks) add(a, "live %s lengths=330,70 h0 dht %s", size, more);
            else add(a, "live %s %s R=3 lengths=21,810,30 h0 dht %s", size,
                     kcp_form_names[(i + m) % KCP_FORMS], more);
        }
    /* In every form, each rank owns two ranges. */
    for (int f = 0; f < KCP_FORMS && s->ranks; f++) {
        const char *more = is(s, "15 ") ? "spike masks=1 D=3" : "l2norm";
        if (is(s, "16 ")) more = "";
        add(a, "live %s %s R=2 K=%d V=%d C=64 H=1 HV=2 lengths=21,810,30 h0 dht "
            "owners=zigzag %s", model_name[first + f % models], kcp_form_names[f],
            sizes[(f + 1) % 4][0], sizes[(f + 1) % 4][1], more);
    }
}

/* Adds cases that scan a rank's segment sequentially: strips with several windows,
 * segments with several strips, and a middle rank, whose map contains M. If K differs
 * from V, only the first rank scans sequentially. */
static void walks(struct anchors *a, const struct kcp_stage *s)
{
    const char *more = "C=64 h0 dht l2norm beta=sigmoid gate=softplus walk=sequential";
    const char *kept = is(s, "13 ") ? " reuse_M" : "";
    for (int m = 0; m < 2; m++) {
        add(a, "live %s %s R=2 H=2 HV=4 K=128 V=128 lengths=1500 strip=4 %s",
            model_name[m], m ? "all_gather" : "chain", more);
        add(a, "live %s %s R=3 H=1 HV=2 K=64 V=64 lengths=2000 strip=6 %s%s",
            model_name[m], m ? "scan" : "all_gather", more, m ? "" : kept);
        add(a, "live %s %s R=3 H=2 HV=2 K=128 V=128 lengths=1100 strip=64 %s",
            model_name[m], m ? "pipeline" : "scan", more);
        add(a, "live %s R=2 H=1 HV=2 K=64 V=128 lengths=900 strip=3 %s", model_name[m],
            more);
    }
}

/* Adds cases of tensor-core sizes on four ranks of two chunks each. Forward composes
 * maps, and with reuse_M backward reads the maps that forward saved. */
static void wide_ranks(struct anchors *a, const struct kcp_stage *s)
{
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 } };
    for (int i = 0; i < 4; i++)
        for (int m = 0; m < 2; m++) {
            char size[120];
            snprintf(size, sizeof size, "R=4 H=1 HV=2 K=%d V=%d C=64 lengths=9,300 h0 "
                     "dht l2norm beta=sigmoid gate=softplus", sizes[i][0], sizes[i][1]);
            add(a, "live %s scan %s", model_name[m], size);
            if (is(s, "13 "))
                add(a, "live %s all_gather %s reuse_M", model_name[m], size);
        }
}

/* Returns the stage's options besides model and sizes. */
static const char *options_of(const struct kcp_stage *s)
{
    if (is(s, "15 ")) return "spike masks=1 D=3";
    if (is(s, "16 ")) return "";
    return "l2norm beta=sigmoid gate=softplus";
}

/* Adds pairs of cases with equal sizes but different sequence lengths, which detect
 * metadata that is cached by sizes alone; and cases without optional inputs. All these
 * cases have tensor-core sizes, for which kernels may run separate code. Not for stage
 * 01, which has no kernel for only tensor-core sizes. */
static void wide_options(struct anchors *a, const struct kcp_stage *s)
{
    static const int size[] = { 128, 64 };
    const int has_states = is(s, "04 05 09 11 17 ");
    for (int i = 0; i < 2; i++)
        for (int m = 0; m < 2; m++) {
            char about[80];
            snprintf(about, sizeof about, "live %s H=1 HV=2 K=%d V=%d C=64",
                     model_name[m], size[i], size[i]);
            add(a, "%s lengths=130,40 h0 dht %s", about, options_of(s));
            add(a, "%s lengths=40,130 h0 dht %s", about, options_of(s));
            if (has_states)
                add(a, "%s lengths=150,21 no_states %s", about, options_of(s));
            for (int part = 1; part < 3 && is(s, "09 "); part++)
                add(a, "%s lengths=70,33 h0 dht part=%d %s", about, part,
                    options_of(s));
        }
}

/* Adds cases for layers: pairs with equal sizes but different sequence lengths, in each
 * form; pipelines whose last block is smaller; and a case that once failed. */
static void wide_layers(struct anchors *a, const struct kcp_stage *s)
{
    const int first = is(s, "16 ") ? KCP_DPLR : KCP_KDA;
    const int models = models_of(s);
    for (int f = 0; f < KCP_FORMS; f++) {
        const int size = f % 2 ? 64 : 128, m = (models == 2 ? f + f / 2 : f) % models;
        char about[80];
        snprintf(about, sizeof about, "live %s %s R=3 H=1 HV=2 K=%d V=%d C=64",
                 model_name[first + m], kcp_form_names[f], size, size);
        add(a, "%s lengths=21,170,30 h0 dht %s", about, options_of(s));
        add(a, "%s lengths=30,170,21 h0 dht %s", about, options_of(s));
    }
    for (int m = 0; m < models; m++)
        add(a, "live %s pipeline blocks=3 R=3 H=1 HV=2 K=%d V=%d C=64 lengths=9,210,12 "
            "h0 dht %s", model_name[first + m], m % 2 ? 64 : 128, m % 2 ? 64 : 128,
            options_of(s));
    for (int m = 0; m < 2 && is(s, "08 13 "); m++)
        add(a, "live %s %s R=4 H=1 HV=2 K=128 V=64 C=64 lengths=700,129 h0 dht %s",
            model_name[m], m ? "all_gather" : "scan", options_of(s));
}

/* Adds cases with more heads, groups and sequences than other cases of tensor-core
 * sizes; and cases with five value heads, one key head per value head, a sequence of
 * sixteen chunks and a short sequence. */
static void wide_larger(struct anchors *a, const struct kcp_stage *s)
{
    const int first = is(s, "16 ") ? KCP_DPLR : KCP_KDA;
    const char *R = s->ranks ? "R=2" : "";
    for (int m = 0; m < models_of(s); m++) {
        const char *model = model_name[first + m];
        add(a, "live %s %s H=3 HV=15 K=128 V=128 C=64 "
            "lengths=3,1,70,20,5,0,7,9,130,1,2,8,0,6 h0 dht %s", model, R,
            options_of(s));
        add(a, "live %s %s H=5 HV=5 K=64 V=64 C=64 lengths=130,1000 h0 dht %s", model,
            R, options_of(s));
    }
}

/* Adds cases with bounded gates. Between two steps of a kernel the state decays by a
 * factor down to 2^-230, which underflows in fp32, although the square root of the
 * factor does not. With lb=-3 each token's g is near the bound -3. */
static void bounded_gates(struct anchors *a)
{
    static const char *const more[] = {
        "turns lengths=130", "turns lengths=33,64,1,95 layout=vk",
        "saturated lengths=97 lb=-3", "saturated lengths=64,32 layout=vk",
        "spread lengths=150,21 beta=sigmoid2 alike=0.9", "strong lengths=70,33",
        "live lengths=31,200,2 alike=1", "live lengths=96,130 null big layout=vk" };
    for (int i = 0; i < (int)(sizeof more / sizeof *more); i++)
        for (int m = 0; m < 2; m++)
            add(a, "%.*s %s H=%d HV=%d K=128 V=128 C=64 gate=bounded h0 dht%s %s%s",
                (int)strcspn(more[i], " "), more[i], model_name[m], 1 + i % 2,
                2 + 2 * (i % 2), i == 1 ? "" : " l2norm",
                i == 4 ? "" : "beta=sigmoid", more[i] + strcspn(more[i], " "));
}

/* Adds cases for kernels that do not take case 0. These cases are small, because the
 * first case that a kernel takes runs fifty times. cases_of moves them to the places
 * after case 0. */
static void first_wide(struct anchors *a, const struct kcp_stage *s)
{
    static const int size[FIRST_WIDE] = { 64, 128 };
    for (int i = 0; i < FIRST_WIDE; i++)
        add(a, "live %s %s H=1 HV=2 K=%d V=%d C=64 lengths=200,70 h0 dht %s",
            model_name[is(s, "16 ") ? KCP_DPLR : KCP_KDA], s->ranks ? "R=2" : "",
            size[i], size[i], options_of(s));
}

/* Adds cases with more heads, groups, sequences, tokens and channels than drawn cases
 * have. */
static void larger(struct anchors *a, const struct kcp_stage *s)
{
    const char *many = "lengths=3,1,2,20,5,0,7,9,30,1,2,8,0,6";
    const int first = is(s, "16 ") ? KCP_DPLR : KCP_KDA;
    const int models = models_of(s);
    for (int m = 0; m < models; m++) {
        const char *model = model_name[first + m];
        const char *more = is(s, "15 ") ? "spike D=9" : "";
        if (is(s, "14 ")) more = "D=70 Wc=5";
        const char *R = s->ranks ? "R=3" : "";
        add(a, "live %s %s H=3 HV=15 K=6 V=5 C=16 %s h0 dht %s", model, R, many, more);
        add(a, "strong %s %s H=5 HV=5 K=5 V=6 C=16 lengths=600,1500 h0 dht %s", model,
            R, more);
    }
}

/* Adds cases with strong gates but so few tokens per rank that the state stays alive,
 * because only then the error from a wrong order of decay and delta update is far above
 * rounding. */
static void few_tokens(struct anchors *a)
{
    add(a, "strong kda R=3 H=1 HV=2 K=4 V=4 C=16 lengths=6 h0 dht l2norm beta=sigmoid");
    add(a, "strong gdn chain R=3 H=1 HV=2 K=4 V=4 C=16 lengths=6 h0 dht l2norm"
        " beta=sigmoid");
    add(a, "turns kda scan R=3 H=1 HV=2 K=4 V=4 C=16 lengths=9 h0 dht l2norm"
        " beta=sigmoid");
}

/* Adds cases with save=light, for which backward recomputes rows and factors. */
static void light(struct anchors *a)
{
    for (int m = 0; m < 2; m++)
        add(a, "live %s %s R=2 H=1 HV=2 K=16 V=12 C=16 lengths=40,33 h0 dht l2norm "
            "beta=sigmoid gate=softplus save=light", model_name[m],
            m ? "chain" : "scan");
}

/* Adds cases with shards shorter than the convolution window, so that an output row
 * reads input rows of several earlier ranks. */
static void short_shards(struct anchors *a)
{
    add(a, "live kda R=5 D=3 Wc=4 lengths=7 h0 dht");
    add(a, "live kda R=4 D=8 Wc=3 lengths=2,5,1 h0 dht act=silu");
    add(a, "live kda R=3 D=5 Wc=6 lengths=9");
}

/* Adds cases with x0 and dxt (rows before and after each sequence): shards and
 * sequences shorter than a window, an empty sequence, only one of x0 and dxt, and
 * several ranges per rank. */
static void conv_states(struct anchors *a)
{
    add(a, "live kda D=5 Wc=4 lengths=7,2,0,1,9 h0 act=silu x0 dxt");
    add(a, "live kda R=5 D=3 Wc=4 lengths=7 h0 x0 dxt");
    add(a, "live kda R=4 D=8 Wc=3 lengths=2,0,5,1 act=silu x0 dxt");
    add(a, "live kda R=7 D=5 Wc=6 lengths=3,4,2 h0 x0 dxt");
    add(a, "live kda R=3 D=16 Wc=4 lengths=40,130,1,70 h0 act=silu x0 dxt");
    add(a, "live kda R=3 D=5 Wc=5 lengths=9,4 x0");
    add(a, "live kda R=3 D=5 Wc=5 lengths=9,2,4 dxt");
    add(a, "live kda R=4 D=6 lengths=1,5,0,2 shift Wc=2 x0 dxt");
    add(a, "live kda R=2 D=5 Wc=1 lengths=6,0 x0 dxt");
    add(a, "live kda R=3 D=8 Wc=4 C=16 lengths=50,6,30 L=5 x0 dxt owners=zigzag");
    add(a, "live kda R=4 D=5 Wc=7 C=16 lengths=11,30,3 x0 dxt owners=dealt");
}

/* Adds cases with special inputs for stages 15 and 16, which read gates after
 * activation. Each model of stage 16 has a matrix I + L; for DPLR, L contains rows a
 * and b. */
static void unlike_relatives(struct anchors *a, const struct kcp_stage *s,
                             const char *sizes)
{
    const int first = is(s, "16 ") ? KCP_DPLR : KCP_KDA;
    const char *more = is(s, "15 ") ? "spike masks=1 D=3" : "";
    for (int m = 0; m < models_of(s); m++) {
        const char *model = model_name[first + m];
        const char *exact = first + m == KCP_GLA ? "" : "exact";
        add(a, "live %s %s R=3 %s lengths=150,21 h0 dht alike=0.9 %s", model,
            kcp_form_names[m], sizes, more);
        add(a, "live %s %s R=2 %s lengths=150,21 h0 dht alike=1 %s", model,
            kcp_form_names[m + 1], sizes, more);
        add(a, "turns %s %s R=3 %s lengths=70,65 h0 dht plain %s %s", model,
            kcp_form_names[(m + 3) % KCP_FORMS], sizes, exact, more);
        add(a, "live %s R=2 %s lengths=100,7 h0 dht null big %s", model, sizes, more);
    }
}

struct kcase *cases_anchors(const struct kcp_stage *s, int wide, uint64_t seed,
                            int ranks, int first, int *n)
{
    struct anchors a = { .first = first, .ranks = s->ranks ? ranks : 0, .seed = seed,
                         .wide = wide };
    const int layer = is(s, "08 13 ");
    if (wide == 0 && !is(s, "07 12 ")) larger(&a, s);
    if (wide == 0 && is(s, "14 ")) short_shards(&a);
    if (wide == 0 && is(s, "14 ")) conv_states(&a);
    if (wide == 0 && layer) few_tokens(&a);
    if (is(s, "07 12 14 ")) wide = -1;               /* only the anchors above */
    if (wide == 0 && s->ranks) {
        crossing(&a, s);
        empty_rank(&a);
        owners(&a, s);
    }
    if (wide == 0 && !s->ranks) chunks(&a, s);
    if (wide == 0 && (!s->ranks || layer)) unlike(&a, "H=1 HV=2 K=16 V=12 C=64");
    if (wide == 0 && is(s, "13 ")) light(&a);
    if (wide == 1) wide_chunks(&a, s);
    if (wide == 1 && (!s->ranks || layer)) {
        unlike(&a, "H=1 HV=2 K=64 V=64 C=64");
        unlike(&a, "H=1 HV=2 K=128 V=128 C=64");
    }
    if (wide == 1 && layer) walks(&a, s);
    if (wide == 0 && is(s, "15 16 "))
        unlike_relatives(&a, s, "H=1 HV=2 K=16 V=12 C=16");
    if (wide == 1 && is(s, "15 16 "))
        unlike_relatives(&a, s, "H=1 HV=2 K=64 V=64 C=64");
    if (wide == 1 && layer) wide_ranks(&a, s);
    /* Add new anchors at the end, so that the seeds of other cases do not change. */
    if (wide == 1 && !s->ranks && !is(s, "01 ")) wide_options(&a, s);
    if (wide == 1 && s->ranks) wide_layers(&a, s);
    if (wide == 1 && !is(s, "01 ")) wide_larger(&a, s);
    if (wide == 1 && layer) bounded_gates(&a);
    if (wide == 1) first_wide(&a, s);
    *n = a.n;
    return a.list;
}
