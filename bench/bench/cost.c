/* cost.c -- lower bounds for the bytes and operations of a stage.
 * Book: chapter 18, "Three floors". */
#include "bench.h"
#include <string.h>

/* Returns the fraction of the rows of G (log decays) that a stage reads. If gates are
 * per channel, stages 04, 05, 09 and 11 read one row of G per chunk, the last. */
static double rows_of_G(const struct kcp_stage *s, const struct kcp_call *c)
{
    const char two[] = { s->name[0], s->name[1], 0 };
    const int last = c->KG > 1 && strstr("04 05 09 11", two);
    return last ? (double)c->NC / (double)c->T : 1;
}

int is_left_out(const struct kcp_field *f) { return strstr(f->shape, "Wc-1") != NULL; }

double cost_bytes(const struct kcp_stage *s, const struct kcp_call *c,
                  enum kcp_storage as)
{
    double bytes = 0;
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        if (!field_used(f, c) || is_left_out(f)) continue;
        double n = (double)kcp_field_numbers(c, f);
        if (!strcmp(f->name, "G")) n *= rows_of_G(s, c);
        bytes += n * (double)kcp_bytes_of(c, f->store, as);
    }
    return bytes;
}

/* row[] has the operations in a stage's equations, per token and value head. */
double cost_flops(const struct kcp_stage *s, const struct kcp_call *c)
{
    const double K = c->K, V = c->V, C = c->C, th = (double)c->T * c->HV;
    const double wy = 3 * C * K + C * V + C * C / 3, chunk = 6 * K * V + C * V;
    const double affine = 4 * K * (K + V), local = 2 * C * V, reverse = 6 * K * V;
    const double back = 6 * K * V + 2 * C * K + 2 * C * V + 2 * C * C + 4 * C * K;
    const struct { const char *stage; double flops; } row[] = {
        { "01_step", 8 * K * V },
        { "03_wy", wy },
        { "04_chunk", chunk },
        { "05_affine", affine },
        { "08_forward", wy + chunk },
        { "09_chunk_backward", local + reverse },
        { "10_wy_backward", back },
        { "11_merge_backward", affine + 2 * K * V },
        { "17_ladder", 4 * K * V },
        { "15_scan", (c->pass ? 24 : 8) * K * V },    /* token by token */
        { "13_backward", 2 * C * V + C * K + chunk + local + reverse + back },
    };
    if (s->facts & KCP_FOLDS) return 2. * (c->R - 1) * c->HV * K * K * V;
    if (s->facts & KCP_CONVOLVES) return 2. * c->Wc * c->D * (double)c->T;
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!strcmp(s->name, row[i].stage)) return row[i].flops * th;
    return 0;
}
