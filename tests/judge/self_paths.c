/* self_paths.c -- the judge judged: its lists reach every path of the table.
 *
 * Book: chapter 08, "Paths".  Checked by: itself: without the cases that are drawn for
 * paths some are not reached.  Next: lists.c.
 */
#include "paths.h"

#include <stdlib.h>
#include <string.h>

static int reached_by(const struct kcp_path *p, const struct kcase *list, int n,
                      const struct kcp_stage *s, const struct kcp_device *d)
{
    const struct kcp_path *row[16];
    for (int i = 0; i < n; i++) {
        const char *kernel = paths_reached_by(p, s->name);
        const int rows = paths_of_case(s, kernel, p->storage, &list[i], d, row, 16);
        for (int j = 0; j < rows; j++)
            if (row[j] == p) return 1;
    }
    return 0;
}

static int repeated(const struct kcp_path *p, const struct kcase *list, int n,
                    const struct kcp_stage *s, const struct kcp_device *d)
{
    for (int i = 0; i < n; i++)
        if (list[i].again && reached_by(p, &list[i], 1, s, d)) return 1;
    return 0;
}

static int reached(struct kcp_report *rep)
{
    const struct options o = { .seed = 1 };
    const struct kcp_device d = kcp_device_assumed();
    int drawn = 0;
    for (int i = 0; i < kcp_npaths; i++) {
        const struct kcp_path *p = &kcp_paths[i];
        const int kept = !paths_judged_by(p, p->stage);
        const struct kcp_stage *s = stage_find(kept ? "13" : p->stage);
        const int host = !strcmp(p->arch, "host");
        const struct kcp_variant v = { s->name, paths_reached_by(p, s->name), "",
                                       p->storage, host ? KCP_HOST : KCP_DEVICE, "",
                                       NULL, NULL };
        int n, few = 0;
        struct kcase *list = cases_of(s, &v, &o, host ? NULL : &d, &n);
        EXPECT(rep, reached_by(p, list, n, s, &d), "path %s: no case reaches it",
               p->name);
        EXPECT(rep, host || repeated(p, list, n, s, &d),
               "path %s: no case of it is run again", p->name);
        while (few < n && list[few].id < 3000) few++;
        drawn += !reached_by(p, list, few, s, &d);
        free(list);
    }
    EXPECT(rep, drawn > 0, "nothing needs to be drawn for a path: is the check blind?");
    return KCP_OK;
}
KCP_CHECK(check_00_reached) = { "00_judge", "reached",
    "a case for every path of the table, as on the machine of the records", reached };
