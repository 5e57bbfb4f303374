/* mutants.c -- ten of the judge's mutants, switched on inside the references' program.
 * Book: page "compute".
 *
 * ref/08_forward.c and ref/13_backward.c are compiled with the names of the stages that
 * they call replaced: kcp_ref_affine by page_affine, etc. Each page_ function runs the
 * reference, or the mutant if it belongs to this stage, and records the outputs. A
 * mutant of the merge replaces `apply` in the exchange. */
#include "page.h"

#include "checked.h"
#include "ref.h"

#include <stdlib.h>
#include <string.h>

extern const struct kcp_variant m02_no_chunk, m03_w_ungated, m04_decay_first,
    m05_last_chunk, m05_turned, m07_no_M, m07_turned, m10_base_2, m11_in_order,
    m12_keeps_last;
const struct kcp_variant *const mutants[MUTANTS] = {
    &m02_no_chunk, &m03_w_ungated, &m04_decay_first, &m05_last_chunk, &m05_turned,
    &m07_no_M, &m07_turned, &m10_base_2, &m11_in_order, &m12_keeps_last };
const struct kcp_variant *active;

/* ---- tensors of the two runs */
static struct tensor { const char *stage, *name; int pass, r; int64_t n; double *x; }
    kept[2][1024];
static int nkept[2], run;

void forget(int with)
{
    while (nkept[with]) free(kept[with][--nkept[with]].x);
    run = with;
}

const double *recorded(int with, const char *stage, const char *name, int pass, int r,
                       int64_t *n)
{
    for (int i = 0; i < nkept[with]; i++) {
        const struct tensor *t = &kept[with][i];
        if (t->pass != pass || t->r != r || strcmp(t->name, name) ||
            strncmp(t->stage, stage, 2))
            continue;
        *n = t->n;
        return t->x;
    }
    return NULL;
}

static void record(const struct kcp_stage *s, const void *args)
{
    const struct kcp_call *c = args;
    for (int i = 0; i < s->nfields && c->NS; i++) {    /* a rank may have no tokens */
        const struct kcp_field *f = &s->fields[i];
        const double *x = *(double *const *)((const char *)args + f->at);
        const int64_t n = x && field_used(f, c) ? kcp_field_numbers(c, f) : 0;
        const int read = !strcmp(f->name, "h_in") || !strcmp(f->name, "dh_out");
        int64_t old;
        if ((f->io == KCP_IN && !read) || n < 1 || f->store >= KCP_I32) continue;
        double *to = (double *)recorded(run, s->name, f->name, page_pass, c->r, &old);
        const int is_new = !to && nkept[run] < 1024;
        if (is_new) to = malloc(sizeof *to * (size_t)n);
        if (is_new && to)
            kept[run][nkept[run]++] = (struct tensor){ s->name, f->name, page_pass,
                                                       c->r, n, to };
        if (to) memcpy(to, x, sizeof *to * (size_t)n);
    }
}

static int stage(const char *name, int (*ref)(void *), void *args)
{
    const struct kcp_stage *s = kcp_stage_find(name);
    const int is_mine = active && !strcmp(active->stage, s->name);
    const int status = is_mine ? active->run(args) : ref(args);
    if (!status) record(s, args);
    return status;
}

#define STAGE(number, name, type)                                                     \
    static int run_##name(void *a) { return kcp_ref_##name(a); }                      \
    int page_##name(struct type *a);                                                  \
    int page_##name(struct type *a) { return stage(number, run_##name, a); }
STAGE("02", gate, kcp_gate)
STAGE("03", wy, kcp_wy)
STAGE("04", chunk, kcp_chunk)
STAGE("05", affine, kcp_affine)
STAGE("09", chunk_backward, kcp_chunk_backward)
STAGE("10", wy_backward, kcp_wy_backward)
STAGE("11", merge_backward, kcp_merge_backward)
STAGE("12", h0, kcp_h0)

/* ---- the merge: S_out = M S_in + h as a merge of two maps, of which the first is the
 * constant S_in */
static int apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
                 int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    const double (*m)[V + K] = map, (*in)[ld_in] = S_in;
    double maps[2][PAGE_K][Vb + K], S[PAGE_K][Vb], (*out)[ld_out] = S_out;
    const int at = !backward;                  /* backward merges from the last map */
    const int range[] = { first ? at : 0, first ? at + 1 : 2 };
    if (!active || strncmp(active->stage, "07", 2))
        return kcp_ref_mapops.apply(HV, K, V, map, backward, first, v0, Vb, S_in, ld_in,
                                    S_out, ld_out, stream);
    memset(maps, 0, sizeof maps);
    for (int i = 0; i < K; i++) {
        memcpy(maps[at][i], m[i] + v0, sizeof(double) * Vb);
        memcpy(maps[at][i] + Vb, m[i] + V, sizeof(double) * K);
        if (!first) memcpy(maps[1 - at][i], in[i], sizeof(double) * Vb);
    }
    struct kcp_merge a = { .R = 2, .H = 1, .HV = 1, .K = K, .V = Vb, .maps = maps,
        .pass = backward ? KCP_BACKWARD : KCP_FORWARD, .range = range, .S = S };
    const int status = active->run(&a);
    for (int i = 0; i < K && !status; i++) memcpy(out[i], S[i], sizeof S[i]);
    return status;
}

struct kcp_mapops page_ops;
__attribute__((constructor)) static void set_ops(void)
{
    page_ops = kcp_ref_mapops;
    page_ops.apply = apply;
}
