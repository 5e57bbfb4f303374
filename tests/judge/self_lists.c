/* self_lists.c -- the judge judged: its lists of cases, and its list of variants.
 *
 * Book: CONTRIBUTING.md, "How the judge works".  Checked by: itself.  Next: main.c.
 */
#include "paths.h"
#include "trial.h"
#include <glob.h>
#include <stdlib.h>
#include <string.h>

/* What --case reads is the case that was printed, of every stage, short and full. */
static int words(struct kcp_report *rep)
{
    for (int i = 0; i < 4 * kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i / 4];
        int n;
        struct kcase *list = i % 4 < 2 ? cases_make(s, i % 4, 0, 1, 0, &n)
                                       : cases_anchors(s, i % 4 - 2, 1, 0, 0, &n), back;
        char text[600], why[300] = "";
        for (int j = 0; j < n; j++) {
            case_print(&list[j], text, sizeof text);
            const int bad = case_parse(text, &back, why, sizeof why);
            back.id = list[j].id;
            EXPECT(rep, !bad && !memcmp(&back, &list[j], sizeof back), "%s: %s", text,
                   why);
        }
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_words) = { "00_judge", "words",
    "a case that is printed and read again is the same case", words };

/* Every pair of regime, ranks and form; every length, in the short list of a stage of
 * ranks: what cases.c promises, counted from outside. */
static int covers(struct kcp_report *rep)
{
    int n, pair[3][9][4] = { { { 0 } } }, lengths = 0;
    struct kcase *list = cases_make(stage_find("08_forward"), 0, 0, 1, 0, &n);
    for (int i = 0; i < n; i++) {
        const struct kcp_call *c = &list[i].call;
        for (int f = 0; f < 4; f++) {
            pair[list[i].regime][c->R][f] |= f == (int)c->form;
        }
        lengths |= (c->T == 1025) | (c->T == 1023) << 1 | (c->T == 1) << 2;
    }
    for (int r = 0; r < 3; r++)
        for (int f = 0; f < 4; f++) {
            int any = 0;
            for (int R = 1; R < 9; R++) any |= pair[r][R][f];
            EXPECT(rep, any, "no case of %s with %s", regime_name[r],
                   kcp_form_names[f]);
        }
    static const int ranks[] = { 1, 2, 3, 4, 5, 8 };
    for (int i = 0; i < 6; i++)
        for (int f = 0; f < 4; f++) {
            const int any =
                pair[0][ranks[i]][f] | pair[1][ranks[i]][f] | pair[2][ranks[i]][f];
            EXPECT(rep, any, "no case of R = %d with %s", ranks[i], kcp_form_names[f]);
        }
    EXPECT(rep, lengths == 7, "lengths 1, 1023, 1025: %d", lengths);
    static const char *const of_ranks[] = { "08_forward", "13_backward", "15_scan",
                                            "16_family" };
    for (int i = 0; i < 4; i++) {               /* one head, several, HV > H, on many */
        free(list);
        list = cases_make(stage_find(of_ranks[i]), 0, 0, 1, 0, &n);
        int seen[9] = { 0 };
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            if (c->HV == 1) seen[c->R] |= 1;
            else if (c->HV == c->H) seen[c->R] |= 2;
            else seen[c->R] |= c->H == 1 ? 4 : 8;
        }
        for (int j = 0; j < 6; j++)
            EXPECT(rep, seen[ranks[j]] == 15, "%s, R = %d: heads %x", of_ranks[i],
                   ranks[j], seen[ranks[j]]);
    }
    free(list);
    return KCP_OK;
}
KCP_CHECK(check_00_covers) = { "00_judge", "covers",
    "the short list holds every pair of regime, ranks and form, of ranks and heads, and"
    " the long lengths", covers };

/* How many ranks the longest way of a sequence of this plan leads over. */
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

/* What crosses, counted by what is alive at the far rank and not by what a case is
 * called: every form and model of 08, 13, 15 and 16 over four ranks and more. */
static int crosses(struct kcp_report *rep)
{
    static const char *const stages[] = { "08_forward", "13_backward", "15_scan",
                                          "16_family" };
    for (int i = 0; i < 4; i++) {
        const struct kcp_stage *s = stage_find(stages[i]);
        int n, far[5][4] = { { 0 } }, kept = 0;
        struct kcase *list = cases_anchors(s, 0, 1, 0, 0, &n);
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            struct kcp_plan *p = case_plan(&list[j], c->R);
            const struct expected *e = NULL;
            if (p && c->R > 3) e = expected_of(s, &list[j], KCP_FORWARD, KCP_F64, p);
            const int lives = e && e->alive >= 1e-2 && ranks_crossed(p) > 3;
            far[c->model][c->form] |= lives;
            kept |= lives && c->reuse_M && c->form == KCP_ALL_GATHER;
            kcp_plan_free(p);
        }
        for (int m = 0; m < 5; m++) {
            int own = i == 3 ? m >= KCP_DPLR : m < KCP_DPLR;
            if (i == 2) own = m == KCP_KDA;
            for (int f = 0; f < 4 && own; f++)
                EXPECT(rep, far[m][f], "%s, %s, %s: no state is alive over four ranks",
                       s->name, model_name[m], kcp_form_names[f]);
        }
        if (i == 1) EXPECT(rep, kept, "no kept map is used where a state is alive");
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_crosses) = { "00_judge", "crosses",
    "a state is alive over four ranks and more in every form and model", crosses };

/* Of layers at each size that tensor cores take: several chunks on each of three ranks,
 * with what is carried from chunk to chunk and from rank to rank alive at the last. */
static int carries(struct kcp_report *rep)
{
    static const char *const stages[] = { "08_forward", "13_backward", "16_family" };
    static const int sizes[][2] = { { 64, 64 }, { 128, 128 }, { 64, 128 },
                                    { 128, 64 } };
    for (int i = 0; i < 3; i++) {
        const struct kcp_stage *s = stage_find(stages[i]);
        const struct kcp_stage *forward = i == 1 ? stage_find(stages[0]) : s;
        int n, lives[5][4] = { { 0 } };
        struct kcase *list = cases_anchors(s, 1, 1, 0, 0, &n);
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            struct kcp_plan *p = c->R > 2 ? case_plan(&list[j], c->R) : NULL;
            int size = 0, chunks = p && list[j].regime == LIVE && ranks_crossed(p) > 2;
            while (size < 4 && (sizes[size][0] != c->K || sizes[size][1] != c->V))
                size++;
            for (int r = 0; p && r < c->R; r++) chunks &= p->ctx[r].NC > 3;
            if (chunks && size < 4 && !lives[c->model][size])
                lives[c->model][size] =
                    expected_of(forward, &list[j], KCP_FORWARD, KCP_F64, p)->alive >=
                    1e-2;
            kcp_plan_free(p);
        }
        for (int m = i == 2 ? KCP_DPLR : 0; m < (i == 2 ? 5 : KCP_DPLR); m++)
            for (int size = 0; size < 4; size++)
                EXPECT(rep, lives[m][size], "%s, %s, K=%d V=%d: nothing is carried",
                       s->name, model_name[m], sizes[size][0], sizes[size][1]);
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_carries) = { "00_judge", "carries",
    "at the sizes of tensor cores layers carry a live state over chunks and ranks",
    carries };

/* Everything is the same but where sequences are cut. */
static int is_cut_else(const struct kcase *a, const struct kcase *b)
{
    struct kcase x = *a;
    x.id = b->id;
    x.seed = b->seed;
    memcpy(x.cu, b->cu, sizeof x.cu);
    return !memcmp(&x, b, sizeof x) && memcmp(a->cu, b->cu, sizeof a->cu);
}

/* What a kernel may be told or spared besides its arrays, counted in what one is judged
 * on that takes sizes of tensor cores alone. */
struct owed {
    int cut_else[5], no_states[5], part[5][3], in_form[4], blocks[5], over_four[5];
};

static void count_owed(const struct kcase *list, int n, struct owed *x)
{
    for (int i = 0; i < n; i++) {
        const struct kcase *k = &list[i];
        const struct kcp_call *c = &k->call;
        if (c->K % 64 || c->V % 64 || k->id < 1000 || k->id > 1999) continue;
        const int twin = i + 1 < n && is_cut_else(k, k + 1);
        x->cut_else[c->model] += twin;
        x->in_form[c->form] += twin && c->R > 2;
        x->no_states[c->model] += k->no_states;
        for (int part = 1; part < 3; part++) x->part[c->model][part] += c->part == part;
        x->blocks[c->model] += c->form == KCP_PIPELINE && c->blocks && c->V % c->blocks;
        x->over_four[c->model] += c->R == 4 && k->regime == LIVE && c->K == 128 &&
                                  c->V == 64 && c->N == 2 && c->T > 800;
    }
}

/* May a state that this stage begins with be NULL? */
static int has_states(const struct kcp_stage *s)
{
    for (int i = 0; i < s->nfields; i++)
        if (s->fields[i].when == KCP_MAYBE && !strcmp(s->fields[i].shape, "NS HV K V"))
            return 1;
    return 0;
}

/* Case 0, then one of K = V = 64 and one of 128, small: fifty runs of each cost little.
 */
static void begins(struct kcp_report *rep, const struct kcp_stage *s,
                   const struct kcase *list)
{
    EXPECT(rep, list[0].id == 0, "%s begins with case %d", s->name, list[0].id);
    for (int i = 1; i <= FIRST_WIDE; i++) {
        const struct kcp_call *c = &list[i].call;
        EXPECT(rep, c->K == 64 * i && c->V == 64 * i && c->C == 64 && c->T < 300 &&
               c->HV < 3 && c->R < 3, "%s: number %d, of K=%d V=%d and %lld tokens",
               s->name, i, c->K, c->V, (long long)c->T);
    }
}

static int wide_owed(struct kcp_report *rep)
{
    const struct options o = { .seed = 1 };
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        const struct kcp_variant v = { s->name, "wide", "", KCP_BF16, KCP_DEVICE, "",
                                       NULL, NULL };
        const int layer = !strncmp(s->name, "08", 2) || !strncmp(s->name, "13", 2);
        const int family = !strncmp(s->name, "16", 2);
        const int last = strncmp(s->name, "15", 2) ? KCP_GDN : KCP_KDA;
        if (strstr("01 07 12 14", (char[]){ s->name[0], s->name[1], 0 })) continue;
        struct owed x = { .cut_else = { 0 } };
        int n;
        struct kcase *list = cases_of(s, &v, &o, NULL, &n);
        count_owed(list, n, &x);
        begins(rep, s, list);
        for (int f = 0; f < 4 && s->ranks; f++)
            EXPECT(rep, x.in_form[f], "%s, %s: sizes alike, no other sequences",
                   s->name, kcp_form_names[f]);
        for (int m = family ? KCP_DPLR : 0; m <= (family ? KCP_GLA : last); m++) {
            EXPECT(rep, x.cut_else[m], "%s, %s: sizes alike, no other sequences",
                   s->name, model_name[m]);
            EXPECT(rep, x.no_states[m] || !has_states(s) || s->ranks,
                   "%s, %s: states are always given", s->name, model_name[m]);
            EXPECT(rep, x.blocks[m] || !s->ranks, "%s, %s: no blocks of a pipeline",
                   s->name, model_name[m]);
            EXPECT(rep, x.over_four[m] || !layer, "%s, %s: no K=128 V=64 over four",
                   s->name, model_name[m]);
            for (int part = 1; part < 3 && !strncmp(s->name, "09", 2); part++)
                EXPECT(rep, x.part[m][part], "%s, %s: never part %d alone", s->name,
                       model_name[m], part);
        }
        free(list);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_wide_owed) = { "00_judge", "wide_owed",
    "at sizes of tensor cores: other sequences, states and parts left out, blocks",
    wide_owed };

/* K or V beyond 128, unequal, HV > H, in words that can be said again; and references
 * that take them, shown by the mutants' twin of one stage of ranks and one without. */
static int tall(struct kcp_report *rep)
{
    const int asked = repeats_asked;
    repeats_asked = 0;                           /* once is enough */
    for (int i = 0; i < kcp_nstages; i++) {
        const struct kcp_stage *s = &kcp_stages[i];
        int n;
        struct kcase *list = cases_tall(s, 1, 0, &n), back;
        char text[600], why[300] = "";
        for (int j = 0; j < n; j++) {
            const struct kcp_call *c = &list[j].call;
            case_print(&list[j], text, sizeof text);
            EXPECT(rep, c->HV > c->H && c->K != c->V && (c->K > 128 || c->V > 128) &&
                   c->K % 16 + c->V % 16 == 0 && c->K < 257 && c->V < 257, "%s", text);
            EXPECT(rep, !case_parse(text, &back, why, sizeof why), "%s: %s", text, why);
        }
        const struct kcp_variant *v;
        const int shown = !strncmp(s->name, "05", 2) || !strncmp(s->name, "08", 2);
        if (shown && kcp_variants(s->name, "twin", &v, 1) == 1) {
            struct verdict t;
            judge_case(s, v, &list[0], KCP_F64, &t);
            EXPECT(rep, t.outcome == PASS, "%s: %s", s->name, t.why);
        }
        free(list);
    }
    repeats_asked = asked;
    return KCP_OK;
}
KCP_CHECK(check_00_tall) = { "00_judge", "tall",
    "what only the first kernels claim is asked of them", tall };

/* As many segments as nobody draws: a case of 100 and of 400, judged. And of a rank's
 * buffers one at least is left, empty, behind the last. */
static int many_segments(struct kcp_report *rep)
{
    static const char *const words[] = {
        "live gdn H=1 HV=2 K=3 V=5 C=16 lengths=200,100 L=3",
        "live kda H=1 HV=1 K=2 V=3 C=4 lengths=400 L=1" };
    const struct kcp_variant *v;
    const struct rank_args *one = NULL;
    const int buffers = (int)(sizeof one->buffer / sizeof *one->buffer);
    for (int i = 0; i < kcp_nstages; i++)
        EXPECT(rep, kcp_stages[i].nfields < buffers, "%s: %d fields, room for %d",
               kcp_stages[i].name, kcp_stages[i].nfields, buffers);
    for (int i = 0; i < 2; i++) {
        struct verdict t = { .outcome = FAIL };
        struct kcase k;
        char why[160];
        const int bad = case_parse(words[i], &k, why, sizeof why) ||
                        kcp_variants("07_merge", "twin", &v, 1) != 1 ||
                        judge_case(stage_find("07"), v, &k, KCP_F64, &t);
        EXPECT(rep, !bad && t.outcome == PASS, "%s: %s", words[i], t.why);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_many_segments) = { "00_judge", "many_segments",
    "hundreds of segments are judged as few are", many_segments };

/* Records linked, against the files on disk: a variant must not get lost on its way. */
static int counts(struct kcp_report *rep)
{
    glob_t files;
    int on_disk = 0, linked = 0;
    if (glob("cuda/*/v*.c", 0, NULL, &files)) {
        printf("  (no sources here: the number of variants is not compared)\n");
        return KCP_NA;
    }
    const struct kcp_variant *v[1024];
    const int n = kcp_variants(NULL, NULL, v, 1024);
    for (int i = 0; i < n; i++) linked += !strncmp(v[i]->name, "vB_blas", 7);
    on_disk = (int)files.gl_pathc;
    globfree(&files);
    EXPECT(rep, linked == on_disk || linked == 0,
           "%d vB records linked, %d files on disk",
           linked, on_disk);
#ifdef KCP_WITH_CUDA
    int kernels = 0, seen = 0;
    if (!glob("cuda/*/v*.cu", 0, NULL, &files)) kernels = (int)files.gl_pathc;
    globfree(&files);
#ifndef KCP_HOPPER
    if (!glob("cuda/*/v*_sm90.cu", 0, NULL, &files)) kernels -= (int)files.gl_pathc;
    globfree(&files);
#endif
    const char *last_stage = "", *last = "";
    for (int i = 0; i < n; i++) {                /* v1_x and v1_x_f32 are one file */
        if (v[i]->where != KCP_DEVICE || strstr(v[i]->name, "_f32")) continue;
        seen += strcmp(last_stage, v[i]->stage) || strcmp(last, v[i]->name);
        last_stage = v[i]->stage;
        last = v[i]->name;
    }
    EXPECT(rep, seen == kernels, "%d device variants linked, %d files on disk", seen,
           kernels);
#endif
    return KCP_OK;
}
KCP_CHECK(check_00_counts) = { "00_judge", "counts",
    "as many variant records as files on disk", counts };
