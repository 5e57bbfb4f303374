/* print.c -- prints times, and lower bounds in % of the times, per variant and pass.
 * Book: chapter 18. */
#include "bench.h"
#include <math.h>

int has_pass(const struct kcp_stage *s)
{
    for (int i = 0; i < s->nfields; i++)
        if (s->fields[i].io == KCP_BOUT) return 1;
    return 0;
}

void print_header(const struct runner *x)
{
    const struct bench *b = x->b;
    if (b->ranks > 1) {
        const double us = b->gather_us, bytes = (double)b->gather_bytes * b->ranks;
        printf("# control: all_gather over %s, %zu bytes per rank: %.1f us, "
               "algbw %.1f GB/s, busbw %.1f GB/s\n", x->world->backend, b->gather_bytes,
               us, bytes / us / 1e3, bytes / us / 1e3 * (b->ranks - 1) / b->ranks);
    }
    if (b->ranks)
        printf("# us of the slowest of %d ranks; front, sum, exchange and main are"
               " parts of time\n%-12s%-16s%-13s%10s%9s%9s%9s%9s%9s%9s%9s%8s",
               b->ranks, "# stage", "variant", "form", "time", "p10", "p90",
               "front", "sum", "exchange", "main", "TFLOP/s", "% floor");
    else
        printf("%-18s%-9s%-22s%10s%10s%10s%9s%9s%8s", "stage", "pass", "variant", "us",
               "p10", "p90", "GB/s", "TFLOP/s", "% floor");
    printf("\n");
}

void print_row(const struct runner *x, const struct kcp_stage *st,
               const struct kcp_variant *v, const struct kcp_call *c,
               const struct times *t, const struct judged *j)
{
    const struct bench *b = x->b;
    const double bytes = cost_bytes(st, c, v->storage), flops = cost_flops(st, c);
    const double floor_us = fmax(bytes / b->copy, flops / b->product) * 1e6;
    const double share = 100 * floor_us / t->median, rate = flops / t->median / 1e6;
    if (x->world->r) return;
    const char *pass = c->pass ? "backward" : "forward";
    if (b->ranks)
        printf("%-12s%-16s%-13s%10.1f%9.1f%9.1f%9.1f%9.1f%9.1f%9.1f%9.1f%8.1f",
               st->name, v->name, x->form ? x->form : kcp_form_names[c->form],
               t->median, t->low, t->high, t->part[FRONT], t->part[SUM],
               t->part[EXCHANGE], t->part[MAIN], rate, share);
    else
        printf("%-18s%-9s%-22s%10.1f%10.1f%10.1f%9.0f%9.1f%8.1f", st->name,
               has_pass(st) ? pass : "", v->name,
               t->median, t->low, t->high, bytes / t->median / 1e3, rate, share);
    if (t->replay > 0) printf("  replay %.1f, call %.1f", t->replay, t->replay_beside);
    if (t->unsent > 0) printf("  unsent %.1f, sent %.1f", t->unsent, t->unsent_beside);
    if (j->outcome != NA)
        printf("  %s %s %.1e of %.1e", outcome_name[j->outcome], j->worst.field,
               j->worst.err, j->worst.tol);
    printf("\n");
    if (j->outcome == FAIL)
        printf("  FAIL   %s %s: %s head %d: error %.2e > %.1e; worst at %s%s: it is"
               " %.9g, should be %.9g\n", st->name, v->name, j->worst.field,
               j->worst.head, j->worst.err, j->worst.tol, j->worst.field,
               j->worst.where, j->worst.got, j->worst.want);
    if (x->tsv) tsv_row(x, st, v, c, t, bytes, flops, j);
}
