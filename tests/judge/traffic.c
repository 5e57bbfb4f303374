/* traffic.c -- compares the references' message and byte counts with the formulas.
 * Book: chapter 07.
 *
 * In stages 15 and 16 backward repeats forward's exchange. Ranks also gather rows per
 * segment: parameter gradients and, if stage 15 drops tokens, o or o's gradient. */
#include "core/paths.h"
#include "trial.h"

#include <string.h>

static void add_exchange(struct kcp_traffic *sum, const struct rank_args *s,
                         const struct kcp_call *c, int backward, int diagonal)
{
    struct kcp_comm comm = { .R = c->R, .r = c->r };
    const struct kcp_exchange e = {
        .form = c->form, .backward = backward, .reuse_M = c->reuse_M && backward,
        .blocks = c->blocks, .HV = c->HV, .K = c->K, .V = c->V, .plan = s->plan,
        .comm = &comm, .ops = diagonal ? &kcp_diagonal_mapops : &ref_mapops };
    const struct kcp_traffic t = kcp_exchange_formula(&e);
    sum->bytes += t.bytes;
    sum->messages += t.messages;
}

/* Adds the bytes of a gather of n numbers per segment. Each rank sends as many rows as
 * the rank with the most segments has. */
static void add_gather(struct kcp_traffic *sum, const struct rank_args *s, int64_t n)
{
    int64_t rows = 1;
    for (int r = 0; r < s->plan->R; r++)
        if (s->plan->ctx[r].NS > rows) rows = s->plan->ctx[r].NS;
    sum->bytes += (s->plan->R - 1) * rows * n * (int64_t)sizeof(double);
}

static int has(const struct rank_args *s, const char *name)
{
    for (int i = 0; i < s->n; i++)
        if (!strcmp(s->buffer[i].field->name, name)) return 1;
    return 0;
}

/* Returns the formula for rank s, which exchanges maps of call c's sizes. */
static struct kcp_traffic formula_of(const struct kcp_stage *stage,
                                     const struct rank_args *s,
                                     const struct kcp_call *c)
{
    const int is_15 = stage->facts & KCP_SPIKES, is_13 = stage->facts & KCP_LOADS;
    const int diagonal = kcp_models[c->model].map == KCP_DIAGONAL && !is_15;
    const int back = c->pass == KCP_BACKWARD;
    struct kcp_traffic sum = { 0 };
    if (!is_13) add_exchange(&sum, s, c, 0, diagonal);
    if (is_13 || back) add_exchange(&sum, s, c, 1, diagonal);
    if (is_15 && has(s, "drop") && s->plan->crossing)
        add_gather(&sum, s, (int64_t)c->HV * c->V + 1);
    if (is_15 && back) add_gather(&sum, s, (int64_t)c->HV * (c->K + 1) * c->D);
    if (has(s, "dA_log")) add_gather(&sum, s, c->HV);
    if (has(s, "ddt_bias")) add_gather(&sum, s, (int64_t)c->HV * c->KG);
    return sum;
}

int traffic_is_right(const struct trial *t, char *why, size_t n)
{
    const int known = t->stage->ranks && !(t->stage->facts & KCP_CONVOLVES);
    for (int r = 0; r < t->R && known; r++) {
        const struct rank_args *s = &t->rank[r];
        if (!s->n) continue;                       /* another process has this rank */
        const struct kcp_variant *v = t->variant;
        struct kcp_call call = s->call;
        if (v && kcp_path_format(v->stage, v->name) == KCP_FORMAT_ADAPTED)
            kcp_adapt(&s->call, &call);
        const struct kcp_traffic sum = formula_of(t->stage, s, &call);
        const struct kcp_traffic *is = &s->traffic;
        if (is->bytes == sum.bytes && is->messages == sum.messages) continue;
        snprintf(why, n, "rank %d sent %lld bytes in %lld messages, expected %lld "
                 "bytes in %lld messages", r, (long long)is->bytes,
                 (long long)is->messages, (long long)sum.bytes,
                 (long long)sum.messages);
        return 0;
    }
    return 1;
}
