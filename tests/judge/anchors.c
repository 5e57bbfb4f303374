/* anchors.c -- makes a stage's anchors (fixed cases) from table anchors.def.
 * Book: CONTRIBUTING.md, "How the judge works".
 *
 * Random cases combine properties only by chance. The anchors include every form and
 * model on four or more ranks with a state that hardly decays, and each tensor-core
 * size with several chunks, several heads and initial states. Other anchors have nearly
 * equal (alike) keys, alternating gates or rows of zeros, or omit optional inputs. */
#include "judge.h"

#include <stdlib.h>
#include <string.h>

#define ANCHOR(stages, wide, words) { stages, wide, words },
static const struct { const char *stages; int wide; const char *words; } rows[] = {
#include "anchors.def"
};

struct anchors {
    const struct kcp_stage *stage;
    struct kcase *list;
    int n, first, ranks, wide, next;       /* next: form of the next word NEXT */
    uint64_t seed;
};

static int is(const struct kcp_stage *s, const char *list)
{
    const char number[] = { s->name[0], s->name[1], ' ', 0 };
    return strstr(list, number) != NULL;
}

/* Replaces the first occurrence of `word` in `text` by the text `by`, or returns 0. */
static int replace_one(char *text, const char *word, const char *by)
{
    const size_t n = strlen(word), more = strlen(by);
    char *at = strstr(text, word);
    if (!at) return 0;
    memmove(at + more, at + n, strlen(at + n) + 1);
    memcpy(at, by, more);
    return 1;
}

static void replace(char *text, const char *word, const char *by)
{
    while (replace_one(text, word, by)) continue;
}

static int alternatives(const char *list)
{
    int n = 1;
    for (; *list && *list != '}'; list++) n += *list == '|';
    return n;
}

/* Returns the number of alternatives of the longest list {a|b|c} in the text. */
static int repeats_of(const char *text)
{
    int most = 1;
    for (; (text = strchr(text, '{')); text++)
        if (alternatives(text) > most) most = alternatives(text);
    return most;
}

/* Copies `text`, with each list {a|b|c} of n texts replaced by its text i mod n. */
static void choose(const char *text, int i, char *out)
{
    while (*text) {
        if (*text != '{') {
            *out++ = *text++;
            continue;
        }
        const char *end = strchr(text, '}');
        int skip = i % alternatives(text++);
        for (; skip; text++) skip -= *text == '|';
        while (*text != '|' && *text != '}') *out++ = *text++;
        text = end + 1;
    }
    *out = 0;
}

static struct kcase *add(struct anchors *a)
{
    a->list = realloc(a->list, (size_t)(a->n + 1) * sizeof *a->list);
    if (!a->list) abort();
    return &a->list[a->n++];
}

static void add_case(struct anchors *a, const char *words)
{
    char text[500], why[200];
    struct kcase *k = add(a);
    snprintf(text, sizeof text, "%s", words);
    if (a->ranks) snprintf(text, sizeof text, "%s R=%d", words, a->ranks);
    if (case_parse(text, k, why, sizeof why)) {
        fprintf(stderr, "kcp-check: case %s: %s\n", text, why);
        abort();
    }
    const char *ignored = inputs_ignore(a->stage, k);     /* by models without beta */
    if (ignored && !strcmp(ignored, "exact")) k->exact_beta = 0;
    k->id = a->first + a->n - 1 + a->wide * 1000;
    k->seed = a->seed * 1000003u + (unsigned)k->id;
}

/* Adds the last case again, with new inputs and, if R > 2, an empty middle rank. */
static void add_empty_rank(struct anchors *a)
{
    struct kcase *k = add(a);
    const int R = k[-1].call.R;
    *k = k[-1];
    k->id++;
    k->seed++;
    k->uneven = R > 2;
    for (int r = 1; r < R && R > 2; r++)
        k->cuts[r] = (r - (r > R / 2)) * k->call.T / (R - 1);
}

/* Adds a row's cases (anchors.def) once per alternative of the row's longest list. */
static void add_cases(struct anchors *a, const char *text)
{
    char chosen[2000], *rest;
    for (int i = 0; i < repeats_of(text); i++) {
        choose(text, i, chosen);
        while (replace_one(chosen, "NEXT", kcp_form_names[a->next % KCP_FORMS]))
            a->next++;
        rest = NULL;
        for (char *w = strtok_r(chosen, ";", &rest); w; w = strtok_r(NULL, ";", &rest))
            if (!strcmp(w, "empty")) add_empty_rank(a);
            else add_case(a, w);
    }
}

enum { FOUR_FORMS = KCP_SCAN + 1 };
#define FORM_ALTERNATIVE(number, name) "|" #name

struct kcase *cases_anchors(const struct kcp_stage *s, int wide, uint64_t seed,
                            int ranks, int first, int *n)
{
    struct anchors a = { .stage = s, .first = first, .ranks = s->ranks ? ranks : 1,
                         .seed = seed, .wide = wide };
    const char *options = s->oracle ? "" : "l2norm beta=sigmoid gate=softplus";
    char models[200] = "{", forms[] = KCP_FORM_LIST(FORM_ALTERNATIVE) "}";
    forms[0] = '{';
    models_text(s, "|", models + 1, sizeof models - 2);
    strcat(models, "}");
    if (s->facts & KCP_SPIKES) options = "spike masks=1 D=3";
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const int others = strstr(rows[i].words, "NEWER_FORM") != NULL;
        if (rows[i].wide != wide || !is(s, rows[i].stages)) continue;
        for (int form = others ? FOUR_FORMS : KCP_FORMS - 1; form < KCP_FORMS; form++) {
            char text[2000];
            snprintf(text, sizeof text, "%s", rows[i].words);
            replace(text, "MODEL", models);
            replace(text, "OPTIONS", options);
            replace(text, "NEWER_FORM", kcp_form_names[form]);
            replace(text, "FORM", forms);
            add_cases(&a, text);
        }
    }
    *n = a.n;
    return a.list;
}
