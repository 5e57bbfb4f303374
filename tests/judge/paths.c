/* paths.c -- finds which rows of the table of kernel paths a case reaches.
 * Book: chapter 08, "Paths".
 *
 * The ranks of a case may reach different rows. */
#include "isolation.h"
#include "paths.h"
#include "trial.h"
#include <stdlib.h>
#include <string.h>

static int add_once(const struct kcp_path *p, const struct kcp_path **out, int n,
                    int max)
{
    for (int i = 0; i < n; i++)
        if (out[i] == p) return n;
    if (!p || n == max) return n;
    out[n] = p;
    return n + 1;
}

/* Adds call q's row of the table of paths, and the row's branches (launch variants). */
static int add_taken(const struct kcp_query *q, const struct kcp_path **out, int n,
                     int max)
{
    const struct kcp_path *row = kcp_path_find(q, NULL, NULL, 0);
    n = add_once(row, out, n, max);
    for (int i = 0; i < kcp_npaths; i++)
        if (kcp_path_branches(&kcp_paths[i], row, q))
            n = add_once(&kcp_paths[i], out, n, max);
    return n;
}

/* Returns 1 for even ids. A forward runs before each backward. On a GPU, cases with odd
 * ids use the forward with the backward's name, if it exists; all other cases use the
 * forward that the table of paths selects. Users may call either forward. */
static int is_layer_of_all(int id) { return id % 2 == 0; }

const struct kcp_variant *paths_forward_before(const struct kcp_variant *back,
                                               const struct kcp_forward *a, int id)
{
    const struct kcp_variant *v = NULL;
    struct kcp_device d;
    const struct kcp_query q = {
        .stage = "08_forward", .storage = back->storage, .args = a, .saved = 1,
        .format = kcp_path_format("13_backward", back->name),
        .call = (const struct kcp_call *)a, .device = &d };
    const int same = kcp_variants("08_forward", back->name, &v, 1);
    if (same && (!is_layer_of_all(id) || back->where == KCP_HOST)) return v;
    if (back->where == KCP_HOST || kcp_device_here(&d)) return same ? v : NULL;
    const struct kcp_path *p = kcp_path_find(&q, NULL, NULL, 0);
    return p && kcp_variants(p->stage, p->kernel, &v, 1) ? v : NULL;
}

int paths_of_case(const struct kcp_stage *s, const char *kernel,
                  enum kcp_storage storage, const struct kcase *k,
                  const struct kcp_device *d, const struct kcp_path **out, int max)
{
    struct kcp_plan *plan = case_plan(k, s->ranks ? k->call.R : 1);
    const int back = (s->facts & KCP_LOADS) != 0;
    const struct kcp_variant *v;
    int n = 0;
    for (int r = 0; plan && r < plan->R; r++) {
        struct kcp_call call = call_of(s, k, plan, r, KCP_FORWARD);
        call.plan = plan;
        struct kcp_query q = { .stage = s->name, .storage = storage, .call = &call,
                             .device = storage == KCP_F64 ? NULL : d, .kernel = kernel,
                             .only = kernel != NULL, .saved = back, .unlinked = 1 };
        n = add_taken(&q, out, n, max);
        const int same = kernel && kcp_variants("08_forward", kernel, &v, 1);
        q.format = back && kernel ? kcp_path_format(s->name, kernel) : 0;
        q.stage = "08_forward";
        q.kernel = same && !is_layer_of_all(k->id) ? kernel : NULL;
        q.only = q.kernel != NULL;
        if (back) n = add_taken(&q, out, n, max);
    }
    kcp_plan_free(plan);
    return n;
}

/* ---- which paths were judged */
enum { MOST_PATHS = 256 };
static char judged[MOST_PATHS];

const struct kcp_device *paths_device(void)
{
    static struct kcp_device d;
    static int is_known, is_found;
    if (!is_known) is_found = isolated_device(&d) == 0;
    is_known = 1;
    return is_found ? &d : NULL;
}

void paths_were_judged(const struct kcp_stage *s, const struct kcp_variant *v,
                       const struct kcase *k)
{
    const struct kcp_path *row[24];
    const struct kcp_device *d = v->where == KCP_HOST ? NULL : paths_device();
    const int n = d || v->where == KCP_HOST
        ? paths_of_case(s, v->name, v->storage, k, d, row, 24) : 0;
    for (int i = 0; i < n; i++) judged[row[i] - kcp_paths] = 1;
}

int paths_judged_by(const struct kcp_path *p, const char *stage)
{
    const char *saved = strstr(p->condition, "saved");   /* not "!saved" or "!(saved" */
    while (saved && saved > p->condition && saved[-1] == '(') saved--;
    const int kept = saved && (saved == p->condition || saved[-1] == ' ');
    const int is_forward = kcp_stage_is(p->stage, KCP_SAVES);
    return !strcmp(kept && is_forward ? "13_backward" : p->stage, stage);
}

const char *paths_reached_by(const struct kcp_path *p, const char *stage)
{
    const char *first = NULL;
    if (!strcmp(p->stage, stage)) return p->kernel;
    for (int i = 0; i < kcp_npaths && paths_judged_by(p, stage); i++) {
        const struct kcp_path *back = &kcp_paths[i];
        if (strcmp(back->stage, stage) || back->storage != p->storage ||
            back->format != p->format) continue;
        if (strstr(back->K, p->K) && strstr(back->V, p->V)) return back->kernel;
        if (!first) first = back->kernel;
    }
    return first;
}

/* Returns 1 if no case with as many ranks as --ranks reaches row p of the table. */
static int needs_other_ranks(const struct kcp_path *p, const struct kcp_stage *s,
                             const struct options *o)
{
    struct kcase k;
    const char *kernel = paths_reached_by(p, s->name);
    return o->ranks > 1 && s->ranks && kernel &&
           !case_for_path(s, kernel, p, paths_device(), o, 3000, 0, &k);
}

void paths_close(const struct kcp_stage *s, const struct options *o,
                 struct kcp_report *rep)
{
    const int is_part = o->variant || o->given;
    int seen = 0, absent = 0, others = 0;
    char here[120], why[140] = "";
    for (int i = 0; i < kcp_npaths && i < MOST_PATHS; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        const int host = !strcmp(p->arch, "host");
        if (!paths_judged_by(p, s->name) || (host && o->only_device)) continue;
        kcp_path_here(p, paths_device(), here, sizeof here);
        if (strcmp(here, "here")) {
            absent++;
            snprintf(why, sizeof why, ", last: %s", here);
        } else if (judged[i]) seen++;
        else if (is_part) others++;
        else if (needs_other_ranks(p, s, o)) {
            absent++;
            snprintf(why, sizeof why, ", last: not for %d ranks", o->ranks);
        } else report_fail(rep, "%s: path %s can run here, but no case that "
                             "reaches it passed", s->name, p->name);
    }
    if (others) printf("  paths   %d judged; %d that can run here were left out by"
                       " --variant or --case\n", seen, others);
    if (is_part) return;
    rep->skip += absent > 0;
    if (seen + absent && !rep->quiet)
        printf("  paths   %d judged, %d not here%s\n", seen, absent, why);
}

/* ---- kcp-check --paths */

/* Returns the judge's cases for a kernel, whether or not the kernel is linked. */
static struct kcase *cases_all(const struct kcp_stage *s, const char *kernel,
                               enum kcp_storage storage, const struct kcp_device *d,
                               const struct options *o, int *n)
{
    const struct kcp_variant v = { s->name, kernel, "", storage,
        strcmp(kernel, "ref") ? KCP_DEVICE : KCP_HOST, "", NULL, NULL };
    return cases_of(s, &v, o, d, n);
}

enum { MOST_IDS = 4096 };

const struct listed *paths_list(const char *stage, const char *kernel,
                                enum kcp_storage storage, const struct kcp_device *d,
                                const struct options *o)
{
    static struct listed *first;
    for (struct listed *l = first; l; l = l->next)
        if (l->storage == storage && !strcmp(l->stage, stage) &&
            !strcmp(l->kernel, kernel)) return l;
    const struct kcp_stage *s = stage_find(stage);
    struct listed *l = calloc(1, sizeof *l);
    if (!l) return NULL;
    l->stage = stage;
    l->kernel = kernel;
    l->storage = storage;
    l->cases = cases_all(s, kernel, storage, d, o, &l->n);
    l->reached = calloc((size_t)l->n + 1, sizeof *l->reached);
    if (!l->reached) l->n = 0;
    for (int i = 0; i < l->n; i++)
        l->reached[i].rows = paths_of_case(s, kernel, storage, &l->cases[i], d,
                                           l->reached[i].row, 24);
    l->next = first;
    first = l;
    return l;
}

/* Prints the cases in the list of `kernel` that reach row p of the table of paths, e.g.
 * "08/3,08/7". Returns the number of cases printed so far. */
static int print_cases_of(const struct kcp_path *p, const char *stage,
                          const char *kernel, const struct kcp_device *d,
                          const struct options *o, char *printed, int found)
{
    const struct listed *l = paths_list(stage, kernel, p->storage, d, o);
    for (int i = 0; l && i < l->n; i++)
        for (int j = 0; j < l->reached[i].rows; j++)
            if (l->reached[i].row[j] == p && !printed[l->cases[i].id % MOST_IDS]++)
                printf("%s%.2s/%d", found++ ? "," : "", stage, l->cases[i].id);
    return found;
}

/* Prints all cases that reach row p of the table of paths. Cases of stage 13 also reach
 * rows of 08, because a forward runs first and writes the saved block. */
static void print_cases(const struct kcp_path *p, const struct kcp_device *d,
                        const struct options *o)
{
    char printed[2][MOST_IDS] = { { 0 } };
    int found = print_cases_of(p, p->stage, p->kernel, d, o, printed[0], 0);
    const char *last = "";
    for (int i = 0; i < kcp_npaths && kcp_stage_is(p->stage, KCP_SAVES); i++) {
        const struct kcp_path *back = &kcp_paths[i];
        if (!kcp_stage_is(back->stage, KCP_LOADS) || back->storage != p->storage ||
            !strcmp(back->kernel, last)) continue;
        last = back->kernel;
        found = print_cases_of(p, back->stage, last, d, o, printed[1], found);
    }
    if (!found) printf("none");
}

static void print_smallest(const struct kcp_path *p, const struct kcp_device *d,
                           const struct options *o)
{
    struct kcase k;
    char words[600] = "none";
    if (case_for_path(stage_find(p->stage), p->kernel, p, d, o, 3000, 0, &k))
        case_print(&k, words, sizeof words);
    printf("\t%s", words);
}

int paths_print(const struct options *o, int cases, int smallest)
{
    struct kcp_device d;
    const int status = kcp_device_here(&d);
    if (status == KCP_BAD) return 2;
    if (status) d = kcp_device_assumed();
    if (status && (cases || smallest))
        fprintf(stderr, "kcp-check: no GPU found, so cases are for sm_%d with %d SMs\n",
                d.arch, d.sms);
    printf("path\tstage\tarch\tstorage\tK\tV\tC\tmodel\tcondition\tkernel\tgeometry"
           "\there\tformat%s%s\n", cases ? "\tcases" : "",
           smallest ? "\tsmallest" : "");
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        char here[120];
        if (o->stage && stage_find(o->stage) != stage_find(p->stage)) continue;
        kcp_path_here(p, &d, here, sizeof here);
        printf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t", p->name, p->stage,
               p->arch, storage_name[p->storage], p->K, p->V, p->C, p->model,
               p->condition, p->kernel, p->geometry, here);
        if (p->format)
            printf("%s.%d", kcp_format_name(p->format), kcp_format_version(p->format));
        else printf("-");
        if (cases) printf("\t");
        if (cases) print_cases(p, &d, o);
        if (smallest) print_smallest(p, &d, o);
        printf("\n");
    }
    return 0;
}
