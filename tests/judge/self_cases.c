/* self_cases.c -- tests that the judge's lists of cases contain what they must contain.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.
 * Next: self_inputs.c. */
#include "paths.h"
#include "trial.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>

static int is(const struct kcp_stage *s, const char *numbers)
{
    return strstr(numbers, (char[]){ s->name[0], s->name[1], 0 }) != NULL;
}

static int is_model(const struct kcp_stage *s, int m)
{
    if (is(s, "16")) return m >= KCP_DPLR;
    return m == KCP_KDA || (m == KCP_GDN && !is(s, "15"));
}

static int words(struct kcp_report *rep)
{
    for (int i = 0; i < 5 * kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i / 5];
        const int kind = i % 5;
        int n;
        struct kcase *list, back;
        if (kind < 2) list = cases_make(s, kind, 0, 1, 0, &n);
        else list = kind < 4 ? cases_anchors(s, kind - 2, 1, 0, 0, &n)
                             : cases_tall(s, 1, 0, &n);
        char text[600], why[300] = "";
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            case_print(&list[j], text, sizeof text);
            const int bad = case_parse(text, &back, why, sizeof why);
            back.id = list[j].id;
            EXPECT(rep, !bad && !memcmp(&back, &list[j], sizeof back), "%s: %s", text,
                   why);
            EXPECT(rep, kind < 4 || (c->HV > c->H && c->K != c->V && c->K < 257 &&
                   (c->K > 128 || c->V > 128) && c->V < 257), "tall: %s", text);
            EXPECT(rep, !inputs_ignore(s, &list[j]) || kind < 2 || kind > 3,
                   "%s ignores %s", s->name, inputs_ignore(s, &list[j]));
        }
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_words) = { "00_judge", "words",
    "a printed case parses to an equal case, and its words change its inputs",
    words };

/* Checks that drawn lists contain all pairs of regime and form, of ranks and form,
 * and of ranks and heads; and the lengths 1, 1023 and 1025. */
static int covers(struct kcp_report *rep)
{
    static const char *const stages[] = { "08", "13", "15", "16" };
    static const int ranks[] = { 1, 2, 3, 4, 5, 8 };
    for (int i = 0; i < 4; i++) {
        const struct kcp_stage *s = stage_find(stages[i]);
        int n, regimes = 0, forms[9] = { 0 }, heads[9] = { 0 }, lengths = 0;
        struct kcase *list = cases_make(s, 0, 0, 1, 0, &n);
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            int kind = c->H == 1 ? 2 : 3;
            if (c->HV == c->H) kind = c->H > 1;
            regimes |= 1 << (list[j].regime * KCP_FORMS + c->form);
            forms[c->R] |= 1 << c->form;
            heads[c->R] |= 1 << kind;
            lengths |= (c->T == 1025) | (c->T == 1023) << 1 | (c->T == 1) << 2;
        }
        EXPECT(rep, regimes == (1 << 3 * KCP_FORMS) - 1 || is(s, "15"),
               "%s: regimes and forms %x", s->name, regimes);
        EXPECT(rep, lengths == 7, "%s: lengths 1, 1023, 1025: %x", s->name, lengths);
        for (int j = 0; j < 6; j++)
            EXPECT(rep, forms[ranks[j]] == (1 << KCP_FORMS) - 1 &&
                   heads[ranks[j]] == 15,
                   "%s, R = %d: forms %x, heads %x", s->name, ranks[j], forms[ranks[j]],
                   heads[ranks[j]]);
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_covers) = { "00_judge", "covers",
    "the short list has all pairs of regime, ranks and form, and of ranks and heads, "
    "and the long lengths", covers };

/* Returns the largest number of ranks that a sequence of the plan is on. */
static int ranks_crossed(const struct kcp_plan *p)
{
    int most = 0;
    for (int i = 0; i < p->S; i++) {
        int ranks = 1;
        for (int j = i + 1; j < p->S && p->seg[j].n == p->seg[i].n; j++)
            ranks += p->seg[j].rank != p->seg[j - 1].rank;
        if (ranks > most) most = ranks;
    }
    return most;
}

/* Returns 1 if at least 1e-2 of a state reaches the last rank of a sequence that is
 * on at least four ranks (`wide`: on three, with at least four chunks each). */
static int is_alive(const struct kcp_stage *s, const struct kcase *k, int wide)
{
    const struct kcp_stage *forward = is(s, "13") ? stage_find("08") : s;
    struct kcp_plan *p = k->call.R > 2 ? case_plan(k, k->call.R) : NULL;
    int crosses = p && k->regime == LIVE && ranks_crossed(p) > (wide ? 2 : 3);
    for (int r = 0; p && r < k->call.R && wide; r++) crosses &= p->ctx[r].NC > 3;
    const struct expected *e =
        crosses ? expected_of(forward, k, KCP_FORWARD, KCP_F64, p) : NULL;
    kcp_plan_free(p);
    return e && e->alive >= 1e-2;
}

static int crosses(struct kcp_report *rep)
{
    static const char *const stages[] = { "08", "13", "15", "16" };
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 } };
    for (int i = 0; i < 8; i++) {
        const struct kcp_stage *s = stage_find(stages[i / 2]);
        const int wide = i % 2;
        int n, alive[5][KCP_FORMS] = { { 0 } }, kept = 0;
        struct kcase *list = cases_anchors(s, wide, 1, 0, 0, &n);
        for (int j = 0; j < n && !(wide && is(s, "15")); j++) {
            const struct kcp_call *c = &list[j].call;
            int at = wide ? 0 : (int)c->form;
            while (wide && at < 4 && (sizes[at][0] != c->K || sizes[at][1] != c->V))
                at++;
            const int reuses = c->reuse_M && c->form == KCP_ALL_GATHER;
            if (wide && at > 3) continue;
            if (alive[c->model][at] && !(reuses && !kept)) continue;
            const int lives = is_alive(s, &list[j], wide);
            alive[c->model][at] |= lives;
            kept |= lives && reuses;
        }
        for (int m = 0; m < 5 && !(wide && is(s, "15")); m++)
            for (int at = 0; at < (wide ? 4 : KCP_FORMS) && is_model(s, m); at++)
                EXPECT(rep, alive[m][at], "%s, %s, %s %d: no state reaches the "
                       "last rank", s->name, model_name[m], wide ? "size" : "form", at);
        EXPECT(rep, kept || wide || !is(s, "13"), "no live state tests reuse_M");
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_crosses) = { "00_judge", "crosses",
    "a state survives four ranks in all forms and models, and three ranks of several "
    "chunks for all tensor core sizes", crosses };

/* Returns 1 if the cases differ only in the lengths of sequences. */
static int is_cut_else(const struct kcase *a, const struct kcase *b)
{
    struct kcase x = *a;
    x.id = b->id;
    x.seed = b->seed;
    memcpy(x.cu, b->cu, sizeof x.cu);
    return !memcmp(&x, b, sizeof x) && memcmp(a->cu, b->cu, sizeof a->cu);
}

/* Counts, per model or form, the cases that a kernel for tensor-core sizes can take. */
struct counted {
    int other_cuts[5], no_states[5], part[5][3], in_form[KCP_FORMS], blocks[5];
    int over_four[5], many[5], own_keys[5];
};

static struct counted count_wide(const struct kcp_stage *s, const struct kcase *list,
                                 int n)
{
    struct counted x = { .other_cuts = { 0 } };
    for (int i = 0; i < n; i++) {
        const struct kcase *k = &list[i];
        const struct kcp_call *c = &k->call;
        const int m = c->model;
        if (c->K % 64 || c->V % 64 || k->id < 1000 || k->id > 1999) continue;
        const int twin = i + 1 < n && is_cut_else(k, k + 1);
        const int whole = k->with_h0 && k->with_dht && k->regime == LIVE &&
                          (!s->ranks || c->R > 1);
        x.other_cuts[m] += twin;
        x.in_form[c->form] += twin && c->R > 2;
        x.no_states[m] += k->no_states;
        for (int part = 1; part < 3; part++) x.part[m][part] += c->part == part;
        x.blocks[m] += c->form == KCP_PIPELINE && c->blocks && c->V % c->blocks;
        x.over_four[m] += c->R == 4 && k->regime == LIVE && c->K == 128 && c->V == 64 &&
                          c->N == 2 && c->T > 800;
        x.many[m] += whole && c->H > 2 && c->HV / c->H > 3 && c->N > 6 && c->K == 128 &&
                     c->V == 128;
        x.own_keys[m] += whole && c->H > 2 && c->HV == c->H && c->N > 1 && c->K == 64 &&
                         c->V == 64 && c->T > 17 * c->C;
    }
    return x;
}

/* Returns 1 for a stage without ranks that has an optional state. */
static int has_states(const struct kcp_stage *s)
{
    int n = 0;
    for (int i = 0; i < s->nfields; i++)
        n += s->fields[i].when == KCP_MAYBE && !strcmp(s->fields[i].shape, "NS HV K V");
    return n > 0 && !s->ranks;
}

static int wide(struct kcp_report *rep)
{
    const struct options o = { .seed = 1 };
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        const struct kcp_variant v = { s->name, "wide", "", KCP_BF16, KCP_DEVICE, "",
                                       NULL, NULL };
        int n;
        if (is(s, "01 07 12 14")) continue;
        struct kcase *list = cases_of(s, &v, &o, NULL, &n);
        const struct counted x = count_wide(s, list, n);
        /* Small cases with K = V = 64 and 128 must follow case 0, because the first
         * case that a kernel takes runs fifty times. */
        for (int j = 1; j <= FIRST_WIDE; j++) {
            const struct kcp_call *c = &list[j].call;
            EXPECT(rep, list[0].id == 0 && c->K == 64 * j && c->V == 64 * j &&
                   c->C == 64 && c->T < 300 && c->HV < 3 && c->R < 3,
                   "%s: case %d: K=%d V=%d and %lld tokens", s->name, j, c->K,
                   c->V, (long long)c->T);
        }
        for (int f = 0; f < KCP_FORMS && s->ranks; f++)
            EXPECT(rep, x.in_form[f], "%s, %s: no two cases of equal sizes",
                   s->name, kcp_form_names[f]);
        for (int m = 0; m < 5; m++) {
            const struct { const char *what; int is, required; } rows[] = {
                { "two cases of equal sizes", x.other_cuts[m], 1 },
                { "NULL states", x.no_states[m], has_states(s) },
                { "uneven blocks of a pipeline", x.blocks[m], s->ranks },
                { "K=128 V=64 over four ranks", x.over_four[m], is(s, "08 13") },
                { "only part 1", x.part[m][1], is(s, "09") },
                { "only part 2", x.part[m][2], is(s, "09") },
                { "many heads, groups and sequences", x.many[m], 1 },
                { "H = HV, and many chunks", x.own_keys[m], 1 } };
            for (size_t j = 0; j < sizeof rows / sizeof *rows && is_model(s, m); j++)
                EXPECT(rep, rows[j].is || !rows[j].required, "%s, %s: no case of %s",
                       s->name, model_name[m], rows[j].what);
        }
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_wide) = { "00_judge", "wide",
    "for tensor core sizes: several lengths, optional states and parts, blocks, many "
    "heads", wide };

/* Checks that right variants pass on cases that no list contains: hundreds of segments,
 * and K and V up to 256. */
static int rare(struct kcp_report *rep)
{
    static const struct { const char *stage, *words; } rows[] = {
        { "07", "live gdn H=1 HV=2 K=3 V=5 C=16 lengths=200,100 L=3" },
        { "07", "live kda H=1 HV=1 K=2 V=3 C=4 lengths=400 L=1" },
        { "05", NULL }, { "08", NULL } };
    const struct rank_args *one = NULL;
    const int buffers = (int)(sizeof one->buffer / sizeof *one->buffer);
    const int asked = case_repeats;
    for (int i = 0; i < kcp_nstages; i++)
        EXPECT(rep, kcp_stages[i].nfields < buffers, "%s: %d fields, %d buffers",
               kcp_stages[i].name, kcp_stages[i].nfields, buffers);
    case_repeats = 0;
    for (int i = 0; i < 4; i++) {
        const struct kcp_stage *s = stage_find(rows[i].stage);
        const struct kcp_variant *v;
        struct verdict t = { .outcome = FAIL };
        struct kcase k;
        char why[160];
        int n;
        struct kcase *list = cases_tall(s, 1, 0, &n);
        k = list[0];
        if (rows[i].words) case_parse(rows[i].words, &k, why, sizeof why);
        if (kcp_variants(s->name, "twin", &v, 1) == 1)
            judge_case(s, v, &k, KCP_F64, &t);
        EXPECT(rep, t.outcome == PASS, "%s: %s", s->name, t.why);
        free(list);
    }
    case_repeats = asked;
    return KCP_OK;
}
KCP_CHECK(check_00_rare) = { "00_judge", "rare",
    "correct variants pass with hundreds of segments and with the largest K, V",
    rare };

/* ---- each path has a case, assuming the GPU type of the published records */
static int reaches(const struct kcp_path *p, const struct listed *l, int n, int again)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < l->reached[i].rows; j++)
            if (l->reached[i].row[j] == p && (!again || l->cases[i].again)) return 1;
    return 0;
}

static int reached(struct kcp_report *rep)
{
    const struct kcp_device d = kcp_device_assumed();
    const struct options o = { .seed = 1 };
    int drawn = 0;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        const struct kcp_stage *s =
            stage_find(paths_judged_by(p, p->stage) ? p->stage : "13");
        const char *kernel = paths_reached_by(p, s->name);
        const int host = !strcmp(p->arch, "host");
        const struct listed *l = paths_list(s->name, kernel, p->storage, &d, &o);
        struct kcase k;
        int few = 0;
        if (case_for_path(s, kernel, p, &d, &o, 3000, 0, &k))
            EXPECT(rep, k.call.K >= 16 && k.call.V >= 16 && k.call.C >= 16,
                   "path %s: its case has K=%d V=%d C=%d", p->name, k.call.K, k.call.V,
                   k.call.C);
        EXPECT(rep, reaches(p, l, l->n, 0), "path %s: no case takes it", p->name);
        EXPECT(rep, host || reaches(p, l, l->n, 1), "path %s: no repeated case",
               p->name);
        while (few < l->n && l->cases[few].id < 3000) few++;
        drawn += !reaches(p, l, few, 0);
    }
    EXPECT(rep, drawn > 0, "no case is drawn for a path");
    return KCP_OK;
}
KCP_CHECK(check_00_reached) = { "00_judge", "reached",
    "all paths have a case, for the GPU of the published records", reached };

/* ---- what is linked */
static int enough(struct kcp_report *rep)
{
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_variant *v[256];
        const int n = kcp_variants(kcp_stages[i].name, NULL, v, 256);
        int mutants = 0, twins = 0;
        for (int j = 0; j < n; j++) {
            mutants += is_mutant(v[j]);
            twins += !strncmp(v[j]->name, "twin", 4);
        }
        EXPECT(rep, mutants >= 5 && twins >= 1, "%s: %d mutants, %d twins",
               kcp_stages[i].name, mutants, twins);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_enough) = { "00_judge", "enough",
    "every stage has at least five mutants and a twin", enough };

static int files(const char *pattern)
{
    glob_t found;
    const int n = glob(pattern, 0, NULL, &found) ? 0 : (int)found.gl_pathc;
    if (n) globfree(&found);
    return n;
}

/* Compares the number of linked variant records with the number of source files.
 * Variants v1_x and v1_x_f32 share a file. */
static int counts(struct kcp_report *rep)
{
    const struct kcp_variant *v[1024];
    const int n = kcp_variants(NULL, NULL, v, 1024);
    const char *stage = "", *name = "";
    int kernels = files("cuda/*/v*.cu") + files("cuda/*/*/v*.cu"), device = 0;
    if (!kernels) {
        printf("  (no source files found: not run)\n");
        return KCP_NA;
    }
#ifndef KCP_HOPPER
    kernels -= files("cuda/*/v*_sm90.cu") + files("cuda/*/*/v*_sm90.cu");
#endif
    for (int i = 0; i < n; i++) {
        if (v[i]->where != KCP_DEVICE || strstr(v[i]->name, "_f32")) continue;
        device += strcmp(stage, v[i]->stage) || strcmp(name, v[i]->name);
        stage = v[i]->stage;
        name = v[i]->name;
    }
#ifdef KCP_WITH_CUDA
    EXPECT(rep, device == kernels, "%d device variants linked, %d files on disk",
           device, kernels);
#endif
    return KCP_OK;
}
KCP_CHECK(check_00_counts) = { "00_judge", "counts",
    "as many variant records as source files", counts };
