/* print.c -- prints each rank's tokens, bytes sent and seconds, and the saved memory.
 * Book: chapters 06, 07, 12. */
#include "run.h"

#include <inttypes.h>
#include <string.h>

enum { ROWS = 32 };            /* the first ROWS ranks and the last rank are printed */

/* Writes a rank's first range and the number of its other ranges, e.g. "0..16 +3". */
static void owners_text(const struct kcp_plan *p, int r, char *text, size_t n)
{
    int first = -1, more = -1;
    for (int b = 0; b < p->B; b++) {
        if (p->owner[b] != r) continue;
        first = first < 0 ? b : first;
        more++;
    }
    const int64_t begin = first < 0 ? p->ctx[r].begin : p->bound[first];
    const int64_t end = first < 0 ? begin : p->bound[first + 1];
    const int at = snprintf(text, n, "%" PRId64 "..%" PRId64, begin, end);
    if (more > 0 && at < (int)n) snprintf(text + at, n - (size_t)at, " +%d", more);
}

static void print_rank(const struct run *x, int r)
{
    const struct kcp_context *c = &x->plan->ctx[r];
    const struct rank_report *t = &x->report[r];
    char tokens[48];
    owners_text(x->plan, r, tokens, sizeof tokens);
    printf("%5d  %-17s %5d %6d", r, tokens, c->n_local, c->NC);
    for (int pass = 0; pass < 2; pass++)
        printf(" %12" PRId64 " %6" PRId64 " %8.3f", t->sent[pass].bytes,
               t->sent[pass].messages + t->sent[pass].collectives, t->seconds[pass]);
    printf("\n");
}

static void print_ranks(const struct run *x)
{
    double saved = 0;
    const int R = x->plan->R;
    printf("                                        "
           " |--------- forward --------| |--------- backward -------|\n"
           " rank  tokens             seqs chunks"
           "   bytes sent  calls  seconds   bytes sent  calls  seconds\n");
    for (int r = 0; r < R; r++) {
        saved += (double)x->report[r].saved / 0x1p20;
        if (r < ROWS || r == R - 1) print_rank(x, r);
        else if (r == ROWS)
            printf("  ...  %d more ranks\n", R - ROWS - 1);
    }
    printf("saved for backward, sum over all ranks: %.1f MiB\n", saved);
}

void print_summary(const struct run *x, double seconds)
{
    const struct kcp_call *c = &x->call;
    printf("%s %s, %s, %d rank%s%s", kcp_models[x->o.model].title,
           x->both ? "forward and backward" : "forward", kcp_form_names[c->form],
           x->plan->R, x->plan->R == 1 ? "" : "s",
           x->conv ? ", after convolutions" : "");
    printf("; T %" PRId64 ", N %d, H %d, HV %d, K %d, V %d, C %d\n", c->T, c->N, c->H,
           c->HV, c->K, c->V, c->C);
    if (x->plan->L)
        printf("canonical segments of %" PRId64 " tokens; moved cuts: %d\n", x->plan->L,
               x->plan->moved);
    print_ranks(x);
    static const char *const dtype[] = { "bf16", "bf16", "f32", "f16" };
    if (x->gpu)
        printf("on the GPU by %s in %s; seconds include copies to and from it\n",
               x->ran ? x->ran : x->layer.forward->name,
               dtype[x->o.dtype + 1]);
    if (x->note)
        printf("note: %s\n", x->note);
    printf("wrote");
    for (int i = 0; i < x->a.n; i++)
        if (x->a.t[i].out) printf(" %s", x->a.t[i].file);
    printf(" to %s; %.2f s\n", x->o.out, seconds);
}
