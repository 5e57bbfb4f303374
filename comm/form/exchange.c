/* exchange.c -- computes the state at the start of every segment from the maps.
 * Book: chapter 07. */
#include "exchange.h"

#include "checked.h"
#include "moves.h"

#define FORM_ENTRY(number, name) [number] = &form_##name,
static const struct form *const forms[KCP_FORMS] = { KCP_FORM_LIST(FORM_ENTRY) };
_Static_assert(KCP_ALL_GATHER == 0 && KCP_CHAIN == 1 && KCP_PIPELINE == 2 &&
               KCP_SCAN == 3, "KCP_FORM_LIST: add a new form as the last row");

struct fold fold_of(const struct kcp_exchange *x)
{
    const struct kcp_plan *plan = x->plan;
    struct fold f = { .x = x, .r = x->comm ? x->comm->r : 0 };
    f.elem = x->ops ? x->ops->elem : sizeof(double);
    f.ctx = &plan->ctx[f.r];
    f.NS = f.ctx->NS;
    f.wide = x->V + (x->ops && x->ops->is_diagonal ? 1 : x->K);
    f.map = f.elem * x->HV * x->K * f.wide;
    f.state = f.elem * x->HV * x->K * x->V;
    return f;
}

/* ---- segments of the plan */

static int local_segment(const struct fold *f, int p)
{
    return f->x->backward ? f->NS - 1 - p : p;
}

const struct kcp_segment *fold_segment(const struct fold *f, int p)
{
    return &f->x->plan->seg[f->ctx->seg0 + local_segment(f, p)];
}

const struct kcp_segment *fold_before(const struct fold *f, const struct kcp_segment *s)
{
    const int j = f->x->backward ? s->next : s->prev;
    return j < 0 ? NULL : &f->x->plan->seg[j];
}

const struct kcp_segment *fold_after(const struct fold *f, const struct kcp_segment *s)
{
    const int j = f->x->backward ? s->prev : s->next;
    return j < 0 ? NULL : &f->x->plan->seg[j];
}

int fold_starts(const struct fold *f, const struct kcp_segment *s)
{
    return f->x->backward ? s->last : s->first;
}

int fold_ends(const struct fold *f, const struct kcp_segment *s)
{
    return f->x->backward ? s->first : s->last;
}

int fold_hops(const struct fold *f, const struct kcp_segment *s)
{
    return f->x->backward ? s->post : s->pre;
}

int fold_hops_left(const struct fold *f, const struct kcp_segment *s)
{
    return f->x->backward ? s->pre : s->post;
}

/* ---- positions and visits of this rank */

char *fold_map(const struct fold *f, int p)
{
    return (char *)f->x->maps + local_segment(f, p) * f->map;
}

char *fold_state(const struct fold *f, int p)
{
    return (char *)f->x->states + local_segment(f, p) * f->state;
}

/* Returns 1 if the segment at position p - 1 is directly before the segment at p in the
 * same sequence. */
static int follows(const struct fold *f, int p)
{
    return fold_before(f, fold_segment(f, p)) == fold_segment(f, p - 1);
}

struct visit fold_visit(const struct fold *f, int p0)
{
    const struct kcp_segment *s = fold_segment(f, p0);
    struct visit v = { p0, p0 + 1, !fold_starts(f, s), 0, fold_hops(f, s) };
    while (v.p1 < f->NS && follows(f, v.p1)) v.p1++;
    v.leaves = !fold_ends(f, fold_segment(f, v.p1 - 1));
    return v;
}

int fold_next_rank(const struct fold *f, const struct visit *v)
{
    return fold_after(f, fold_segment(f, v->p1 - 1))->rank;
}

int fold_previous_rank(const struct fold *f, const struct visit *v)
{
    return fold_before(f, fold_segment(f, v->p0))->rank;
}

int fold_crossings(const struct fold *f, int leaving)
{
    int n = 0;
    struct visit v;
    for (int p = 0; p < f->NS; p = v.p1) {
        v = fold_visit(f, p);
        n += leaving ? v.leaves : v.enters;
    }
    return n;
}

int fold_next_hop(const struct fold *f, int h)
{
    int next = -1;
    struct visit v;
    for (int p = 0; p < f->NS; p = v.p1) {
        v = fold_visit(f, p);
        const int arrives = v.hops - 1, goes = v.hops;
        if (v.enters && arrives > h && (next < 0 || arrives < next)) next = arrives;
        if (v.leaves && goes > h && (next < 0 || goes < next)) next = goes;
    }
    return next;
}

/* Computes S_p = M S + h (in backward M^T S + h) with M, S and h of position p - 1. */
//> fold_states
int fold_states(const struct fold *f, int p0, int p1, int v0, int Vb)
{
    const struct kcp_exchange *x = f->x;
    const size_t at = v0 * f->elem;
    int err = KCP_OK;
    for (int p = p0 + 1; p < p1 && !err; p++)
        if (follows(f, p))
            err = x->ops->apply(x->HV, x->K, x->V, fold_map(f, p - 1), x->backward,
                                fold_starts(f, fold_segment(f, p - 1)), v0, Vb,
                                fold_state(f, p - 1) + at, x->V,
                                fold_state(f, p) + at, x->V, x->stream);
    return err;
}
//< fold_states

int fold_last_state(const struct fold *f, const struct visit *v, int v0, int Vb,
                    void *out)
{
    const struct kcp_exchange *x = f->x;
    const int p = v->p1 - 1;
    const int first = fold_starts(f, fold_segment(f, p));
    return x->ops->apply(x->HV, x->K, x->V, fold_map(f, p), x->backward, first, v0, Vb,
                         fold_state(f, p) + v0 * f->elem, x->V, out, Vb,
                         x->stream);
}

static int form_is_known(enum kcp_form form)
{
    return (int)form >= 0 && (int)form < KCP_FORMS;
}

int kcp_form_in_order(enum kcp_form form)
{
    return form_is_known(form) && forms[form]->in_order;
}

/* Is called before any sizes are multiplied, because a product can overflow. */
static int sizes_are_right(const struct kcp_exchange *x)
{
    enum { MOST_SIZE = 32768 };
    return x->HV >= 1 && x->HV <= MOST_SIZE && x->K >= 1 && x->K <= MOST_SIZE &&
           x->V >= 1 && x->V <= MOST_SIZE;
}

/* Returns the form (algorithm) if this exchange sends messages, otherwise NULL. */
static const struct form *form_of(const struct kcp_exchange *x)
{
    const int sends = x && x->plan && x->plan->crossing && sizes_are_right(x);
    return sends && form_is_known(x->form) ? forms[x->form] : NULL;
}

static const char *what_is_wrong(const struct kcp_exchange *x)
{
    if (!x || !x->plan) return "the exchange has no plan";
    if (!form_is_known(x->form)) return "form: the value is not a known form";
    if (!sizes_are_right(x)) return "HV, K, V: expected 1 to 32768";
    if (!x->ops) return "'ops' is NULL";
    if (x->plan->R > 1 && (!x->comm || x->comm->R != x->plan->R))
        return "'comm' is NULL, or has another number of ranks than the plan";
    const int r = x->comm ? x->comm->r : 0;
    if (x->plan->ctx[r].NS > 0 && (!x->maps || !x->states))
        return "'maps' or 'states' is NULL";
    if (x->plan->crossing && !x->work && kcp_exchange_work(x)) return "'work' is NULL";
    return NULL;
}

/* If no sequence crosses a cut between ranks, no messages are sent, and each rank
 * applies only the maps of its own segments. */
int kcp_exchange_run(const struct kcp_exchange *x)
{
    const char *wrong = what_is_wrong(x);
    if (wrong) return kcp_refuse(KCP_BAD, "exchange: %s", wrong);
    const struct fold f = fold_of(x);
    if (!x->plan->crossing) return fold_states(&f, 0, f.NS, 0, x->V);
    return forms[x->form]->run(&f);
}

size_t kcp_exchange_work(const struct kcp_exchange *x)
{
    const struct form *form = form_of(x);
    if (!form) return 0;
    const struct fold f = fold_of(x);
    return form->work_bytes(&f);
}

size_t kcp_exchange_kept(const struct kcp_exchange *x)
{
    const struct form *form = form_of(x);
    if (!form || !form->kept_bytes) return 0;
    const struct fold f = fold_of(x);
    return form->kept_bytes(&f);
}

struct kcp_traffic kcp_exchange_formula(const struct kcp_exchange *x)
{
    const struct form *form = form_of(x);
    if (!form)
        return (struct kcp_traffic){ 0 };
    const struct fold f = fold_of(x);
    return form->formula(&f);
}

/* The labs name this table, so that the linker takes this file from an archive. */
const struct moves comm_moves = {
    kcp_exchange_run, kcp_exchange_work, kcp_exchange_kept, kcp_halo_rows, kcp_halo_at,
    kcp_halo_run, kcp_halo_states, kcp_parameter_sum, kcp_agree };

__attribute__((constructor)) static void offer(void) { kcp_moves = &comm_moves; }
