/* self_paths.c -- the judge judged: its lists reach every path of the table.
 *
 * Book: chapter 08, "Paths".  Checked by: itself: without the cases that are drawn for
 * paths some are not reached.  Next: lists.c.
 */
#include "paths.h"

#include <stdlib.h>
#include <string.h>

/* The list of a kernel, and the rows that each of its cases reaches: the same for all
 * rows of the table that the kernel has. */
struct walked {
    struct kcp_variant v;
    int n;
    struct kcase *list;
    struct { const struct kcp_path *row[16]; int rows; } *to;
};
enum { MOST_WALKED = 64 };
static struct walked walked[MOST_WALKED];
static int nwalked;

static int is_alike(const struct kcp_variant *a, const struct kcp_variant *b)
{
    return a->storage == b->storage && a->where == b->where &&
           !strcmp(a->stage, b->stage) && !strcmp(a->name, b->name);
}

static const struct walked *list_walked(const struct kcp_stage *s,
                                        const struct kcp_variant *v,
                                        const struct kcp_device *d)
{
    const struct options o = { .seed = 1 };
    for (int i = 0; i < nwalked; i++)
        if (is_alike(&walked[i].v, v)) return &walked[i];
    if (nwalked == MOST_WALKED) return NULL;
    struct walked *w = &walked[nwalked++];
    w->v = *v;
    w->list = cases_of(s, v, &o, v->where == KCP_HOST ? NULL : d, &w->n);
    w->to = calloc((size_t)w->n + 1, sizeof *w->to);
    for (int i = 0; i < w->n && w->to; i++)
        w->to[i].rows = paths_of_case(s, v->name, v->storage, &w->list[i], d,
                                      w->to[i].row, 16);
    return w->list && w->to ? w : NULL;
}

static void forget_lists(void)
{
    for (int i = 0; i < nwalked; i++) {
        free(walked[i].list);
        free(walked[i].to);
    }
    nwalked = 0;
}

/* Of the first n cases, or of those that are run again alone. */
static int reached_by(const struct kcp_path *p, const struct walked *w, int n,
                      int again)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < w->to[i].rows; j++)
            if (w->to[i].row[j] == p && (!again || w->list[i].again)) return 1;
    return 0;
}

static int reached(struct kcp_report *rep)
{
    const struct kcp_device d = kcp_device_assumed();
    const struct options o = { .seed = 1 };
    struct kcase k;
    int drawn = 0;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        const int kept = !paths_judged_by(p, p->stage);
        const struct kcp_stage *s = stage_find(kept ? "13" : p->stage);
        const int host = !strcmp(p->arch, "host");
        const struct kcp_variant v = { s->name, paths_reached_by(p, s->name), "",
                                       p->storage, host ? KCP_HOST : KCP_DEVICE, "",
                                       NULL, NULL };
        const struct walked *w = list_walked(s, &v, &d);
        int few = 0;
        if (case_for_path(s, v.name, p, &d, &o, 3000, 0, &k))
            EXPECT(rep, k.call.K >= 16 && k.call.V >= 16 && k.call.C >= 16,
                   "path %s: its case has K=%d V=%d C=%d: too small to say much",
                   p->name, k.call.K, k.call.V, k.call.C);
        EXPECT(rep, w != NULL, "path %s: no list of %s", p->name, v.name);
        if (!w) break;
        EXPECT(rep, reached_by(p, w, w->n, 0), "path %s: no case reaches it", p->name);
        EXPECT(rep, host || reached_by(p, w, w->n, 1),
               "path %s: no case of it is run again", p->name);
        while (few < w->n && w->list[few].id < 3000) few++;
        drawn += !reached_by(p, w, few, 0);
    }
    EXPECT(rep, drawn > 0, "nothing needs to be drawn for a path: is the check blind?");
    forget_lists();
    return KCP_OK;
}
KCP_CHECK(check_00_reached) = { "00_judge", "reached",
    "a case for every path of the table, as on the machine of the records", reached };
