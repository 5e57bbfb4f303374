/* lists.c -- lists a variant's cases: random, fixed (anchors), and one for each path.
 * Book: CONTRIBUTING.md, "How the judge works", and chapter 08, "Paths".
 *
 * A path is a row of ref/core/paths.def: a kernel and its condition. Random cases reach
 * rows by chance. If no case of a kernel's list reaches a row, further cases are
 * tried from small to large until one does. For example, only cases with many heads
 * reach a scan of 128 columns. The first case that reaches a row runs twice. */
#include "paths.h"

#include <stdlib.h>
#include <string.h>

static struct kcase *joined(struct kcase *list, int *n, struct kcase *more, int m)
{
    struct kcase *both = m ? realloc(list, (size_t)(*n + m) * sizeof *list) : NULL;
    if (both && more) {
        memcpy(both + *n, more, (size_t)m * sizeof *more);
        *n += m;
    }
    free(more);
    return both ? both : list;
}

/* Returns 1 if the kernel supports case k and case k reaches row p of the table. */
static int reaches(const struct kcp_stage *s, const char *kernel,
                   const struct kcp_path *p, const struct kcase *k,
                   const struct kcp_device *d)
{
    const struct kcp_path *row[24];
    const int n = paths_of_case(s, kernel, p->storage, k, d, row, 24);
    int found = 0, taken = 0;
    for (int i = 0; i < n; i++) {
        found |= row[i] == p;
        taken |= !strcmp(row[i]->stage, s->name);
    }
    return found && taken;
}

/* Reads one or two sizes from a set such as "64 128" or "64..256", and returns their
 * number. If a range begins below 16, the first size is 16, because a normalised row of
 * one number is only a sign, and a state of one number is not a matrix. */
enum { LEAST = 16 };
static int sizes_of(const char *set, int out[2])
{
    int n = 0;
    for (const char *s = set; *s && n < 2;) {
        char *end;
        const long x = strtol(s, &end, 10);
        if (end == s) break;
        const int below = !strncmp(end, "..", 2) && x < LEAST;
        out[n++] = below ? LEAST : (int)x;
        s = end + strspn(end, ". ");
    }
    if (!n) out[n++] = 16;
    return n;
}

/* Returns 1 if the condition of p is true for g (or beta) of type f32 but not for the
 * type of q, as far as the condition's words tell. */
static int needs_f32(const struct kcp_path *p, const char *of)
{
    char f32[16], as_q[16];
    snprintf(f32, sizeof f32, "%s_f32", of);
    snprintf(as_q, sizeof as_q, "%s_as_q", of);
    return strstr(p->condition, f32) && !strstr(p->condition, as_q);
}

int case_for_path(const struct kcp_stage *s, const char *kernel,
                  const struct kcp_path *p, const struct kcp_device *d,
                  const struct options *o, int id, int K_required, struct kcase *k)
{
    /* lengths[3]: a sequence of 3 chunks plus 1 token, and many short sequences. */
    static const char *const lengths[] = {
        "130", "150,33", "400", "193,1,2,1,3,1,1,2,1,1,4,1,1,2,1,3,1,1,1,2,1,5,1,1,2,"
        "1,1,3,1,1", "1500", "6000" };
    static const char *const more[] = { "h0 dht", "h0 dht save=all", "strip=1",
                                        "strip=64", "strip=64 save=all", "R=2 h0",
                                        "R=2 strip=2", "R=2 save=all",
                                        "R=2 strip=1 walk=sequential",
                                        "strip=1 save=all", "R=2 cuts=ends h0 dht",
                                        "R=2 cuts=ends save=all", "R=2 cuts=ends "
                                        "strip=1", "R=2 cuts=ends strip=1 save=all",
                                        "R=2 cuts=ends strip=64",
                                        "R=2 cuts=ends strip=64 save=all" };
    static const int heads[][2] = { { 1, 2 }, { 2, 4 }, { 10, 70 }, { 36, 144 },
                                   { 8, 24 }, { 48, 96 }, { 96, 96 } };
    enum { MORE = sizeof more / sizeof *more, HEADS = sizeof heads / sizeof *heads,
           LENGTHS = sizeof lengths / sizeof *lengths };
    int K[2], V[2], C[2] = { 64, 0 };
    const int nK = sizes_of(p->K, K), nV = sizes_of(p->V, V);
    if (strcmp(p->C, "any") && !strstr(p->C, "..")) sizes_of(p->C, C);
    enum kcp_model models[KCP_MODELS];
    const int nm = models_of(s, models);
    const int tries = nm * MORE * HEADS * LENGTHS * nK * nV;
    for (int i = 0; i < tries; i++) {
        char words[300], why[160];
        int at = i;
        const int m = models[at % nm], iK = (at /= nm) % nK, iV = (at /= nK) % nV;
        const int w = (at /= nV) % MORE, h = (at /= MORE) % HEADS, l = at / HEADS;
        if (K_required && K[iK] != K_required) continue;
        const int any = !strcmp(p->model, "any");
        const int bounded = strstr(p->condition, "bounded")
                            && !strstr(p->condition, "!bounded");
        if (!any && !has_word(p->model, model_name[m], " ")) continue;
        if (o->ranks > 1 && !strstr(more[w], "R=")) continue;
        snprintf(words, sizeof words, "live %s H=%d HV=%d K=%d V=%d C=%d lengths=%s"
                 " l2norm beta=sigmoid gate=%s %s", model_name[m], heads[h][0],
                 heads[h][1], K[iK], V[iV], C[0], lengths[l],
                 bounded ? "bounded" : "softplus", more[w]);
        char *R = strstr(words, "R=2");
        if (R && o->ranks > 1 && o->ranks < 10) R[2] = (char)('0' + o->ranks);
        if (kcp_path_word(p, "q", why, sizeof why)) strcat(strcat(words, " q="), why);
        if (needs_f32(p, "g")) strcat(words, " g=f32");
        if (needs_f32(p, "beta")) strcat(words, " beta=f32");
        if (case_parse(words, k, why, sizeof why)) continue;
        if (o->ranks && k->call.R != o->ranks && s->ranks) continue;
        k->id = id;
        k->seed = o->seed * 1000003u + (unsigned)id;
        if (reaches(s, kernel, p, k, d)) return 1;
    }
    return 0;
}

/* Adds a case for each row of the table of paths that belongs to this kernel but that
 * no case in the list reaches. A row whose K is "64 128" gets a case per K, because
 * kernels have different code per K. */
static struct kcase *cases_for_paths(const struct kcp_stage *s, const char *kernel,
                                     enum kcp_storage storage, const struct options *o,
                                     const struct kcp_device *d, struct kcase *list,
                                     int *n)
{
    int id = 3000;
    for (int i = 0; i < 2 * kcp_npaths && d; i++) {
        const struct kcp_path *p = &kcp_paths[i / 2];
        struct kcase *k;
        int first = 0, K[2] = { 0, 0 };
        const char *by = paths_reached_by(p, s->name);
        if (p->storage != storage || !by || strcmp(by, kernel)) continue;
        if (!strcmp(p->K, "64 128")) sizes_of(p->K, K);
        else if (i % 2) continue;
        const int of_K = K[i % 2];
        while (first < *n && !((!of_K || list[first].call.K == of_K) &&
                               reaches(s, kernel, p, &list[first], d))) first++;
        if (first < *n) list[first].again = 1;
        if (first < *n) continue;
        k = alloc_or_exit(sizeof *k);
        if (case_for_path(s, kernel, p, d, o, id++, of_K, k)) {
            k->again = 1;
            list = joined(list, n, k, 1);
        } else free(k);
    }
    return list;
}

/* Moves the last `few` cases directly after case 0, for the reason in anchors.def. */
static void put_second(struct kcase *list, int n, int few)
{
    struct kcase last[FIRST_WIDE];
    memcpy(last, list + n - few, (size_t)few * sizeof *list);
    memmove(list + 1 + few, list + 1, (size_t)(n - few - 1) * sizeof *list);
    memcpy(list + 1, last, (size_t)few * sizeof *list);
}

struct kcase *cases_of(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct options *o, const struct kcp_device *d, int *n)
{
    int m = 0;
    struct kcase *list = cases_make(s, o->full, 0, o->seed, o->ranks, n), *more;
    more = cases_anchors(s, 0, o->seed, o->ranks, *n, &m);
    list = joined(list, n, more, m);
    if (!list || v->where != KCP_DEVICE) return list;
    more = cases_make(s, o->full, 1, o->seed, o->ranks, &m);
    list = joined(list, n, more, m);
    more = cases_anchors(s, 1, o->seed, o->ranks, m, &m);
    list = joined(list, n, more, m);
    if (m > FIRST_WIDE) put_second(list, *n, FIRST_WIDE);
    if (!strncmp(v->name, "v1", 2) || strstr(v->shapes, "up to 256")) {
        more = cases_tall(s, o->seed, o->ranks, &m);
        list = joined(list, n, more, m);
    }
    return cases_for_paths(s, v->name, v->storage, o, d, list, n);
}
