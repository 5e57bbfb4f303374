/* plan.c -- the figure of chapter 06: four packed sequences on three ranks.
 *
 * Draws the plan that kcp_plan_make returns. */
#include "ref.h"
#include "svg.h"

enum { N = 4, R = 3 };

static double x(int64_t t) { return 30 + t * 22.0; }

int main(void)
{
    const int64_t cu[N + 1] = { 0, 6, 22, 25, 30 };
    const char *ink[N] = { "var(--a)", "var(--b)", "var(--c)", "var(--d)" };
    struct kcp_plan *p;
    const char *why;
    if (kcp_plan_make(&p, N, cu, R, NULL, 0, 4, 4, &why)) {
        fprintf(stderr, "plan.c: %s\n", why);
        return 1;
    }
    svg_begin(720, 250, "The plan for a packed batch",
              "Sequences of 6, 16, 3 and 5 tokens on three ranks of ten tokens. "
              "Sequence 1 crosses "
              "both cuts; rank 1 is wholly inside it, so its map needs M as well as "
              "h_ext.");
    for (int n = 0; n < N; n++)
        svg_text((x(cu[n]) + x(cu[n + 1])) / 2, 26, "middle", "", "sequence %d", n);
    for (int j = 0; j < p->S; j++) {
        const struct kcp_segment *s = &p->seg[j];
        const int want = kcp_plan_want(p, j, 0);
        for (int64_t t = s->begin; t < s->end; t++) {
            svg_rect(x(t), 40, 22, 34, "fill:var(--wash-%c);stroke:var(--line)",
                     "abcd"[s->n]);
            svg_text(x(t) + 11, 61, "middle", "mono", "%lld", (long long)t);
        }
        svg_rect(x(s->begin) + 1, 40, x(s->end) - x(s->begin) - 2, 34,
                 "fill:none;stroke:%s;stroke-width:2", ink[s->n]);
        const char *needs = want ? "computes h_ext" : "";
        if (want == (KCP_WANT_H | KCP_WANT_M)) needs = "computes h_ext and M";
        svg_text(x(s->end) - 6, 120, "end", "mono", "%s", needs);
        if (!s->last)
            svg_arrow(x(s->end) - 30, 88, x(s->end) + 30, 88, ink[s->n]);
    }
    for (int r = 0; r < R; r++) {
        const struct kcp_context *c = &p->ctx[r];
        svg_line(x(c->begin), 34, x(c->begin), 232,
                 "stroke:var(--ink);stroke-dasharray:3 3");
        svg_text(x(c->begin) + 10, 156, "start", "", "rank %d", r);
        svg_text(x(c->begin) + 10, 178, "start", "mono", "pre_num_ranks %d",
                 c->pre_num_ranks);
        svg_text(x(c->begin) + 10, 196, "start", "mono", "post_num_ranks %d",
                 c->post_num_ranks);
        svg_text(x(c->begin) + 10, 214, "start", "mono", "%d segment%s, %d chunks of 4",
                 c->NS, c->NS == 1 ? "" : "s", c->NC);
    }
    svg_line(x(30), 34, x(30), 232, "stroke:var(--ink);stroke-dasharray:3 3");
    kcp_plan_free(p);
    return 0;
}
