/* 12_h0.c -- initial states compressed and expanded, and the block forward leaves.
 *
 * Book: chapter 12.  Checked by: tests/12_h0/checks.c, tests/12_h0/mutants.c.
 * Next: ref/13_backward.c.
 */
#include "ref.h"

#include <stdio.h>
#include <string.h>

/* compress:  h_kept = h_in[0]
 * expand:    h_back[0] = h_kept,  h_back[s] = h_start[s] for s >= 1
 *
 * Of the stretches of one rank only the first can begin inside its sequence, so only
 * its initial state comes from another rank; every other one begins a sequence and
 * starts from h0, which the caller gives again (NULL: from 0). spec 9.
 * h_in, h_start, h_back [NS,HV,K,V]; h_kept [1,HV,K,V]; a rank without stretches
 * touches nothing. KCP_BAD without the arrays of the pass. */
int ref_h0(struct kcp_h0 *a)
{
    const int64_t state = (int64_t)a->HV * a->K * a->V;
    const double *h_start = a->h_start;
    double *h_back = a->h_back;

    if (a->NS == 0)
        return KCP_OK;
    //> compress
    if (a->pass == KCP_FORWARD) {
        if (!a->h_in || !a->h_kept)
            return KCP_BAD;
        memcpy(a->h_kept, a->h_in, sizeof(double) * state);
        return KCP_OK;
    }
    //< compress
    if (!a->h_kept_in || !a->h_back)
        return KCP_BAD;
    //> expand
    memcpy(h_back, a->h_kept_in, sizeof(double) * state);
    for (int64_t e = state; e < a->NS * state; e++)
        h_back[e] = h_start ? h_start[e] : 0;
    //< expand
    return KCP_OK;
}

/* One sequence's state between the interface, [HV,V,K] if the caller asks for that
 * layout, and [HV,K,V], as it is inside and on the wire; out: towards the interface. */
void ref_state(const void *args, int out, const double *from, double *to)
{
    const struct kcp_call *a = args;           /* every args struct opens with it */
    const int K = a->K, V = a->V, turned = a->layout == KCP_VK;
    for (int n = 0; n < a->HV; n++)
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                const int64_t kv = ((int64_t)n * K + i) * V + v;
                const int64_t vk = turned ? ((int64_t)n * V + v) * K + i : kv;
                to[out ? vk : kv] = from[out ? kv : vk];
            }
}

/* ---- the saved block: a header that says who wrote what, then the tensors */

static const char magic[8] = "KCPsaved";
enum { SAVED_VERSION = 1, SAVED_ALIGN = 64 };

static void add(struct kcp_saved *s, const char *name, int64_t count, size_t elem)
{
    struct kcp_saved_item *item = &s->item[s->items++];
    snprintf(item->name, sizeof item->name, "%s", name);
    item->at = s->bytes;
    item->bytes = (uint64_t)count * elem;
    s->bytes += (item->bytes + SAVED_ALIGN - 1) / SAVED_ALIGN * SAVED_ALIGN;
}

/* How many initial states must be kept: one in classic mode (ref_h0); in canonical mode
 * every segment's, for segments of one sequence follow each other on a rank and their
 * states come from the fold, not from the scan that recompute repeats. */
int kcp_saved_states(const struct kcp_call *a)
{
    const int canonical = a->plan && a->plan->L > 0;
    return canonical ? a->NS : a->NS > 0;
}

static size_t kept_bytes(const struct kcp_call *a)
{
    const struct kcp_exchange x = {
        .form = a->form, .blocks = a->blocks, .reuse_M = 1,
        .HV = a->HV, .K = a->K, .V = a->V, .plan = a->plan, .comm = a->comm,
        .ops = a->ops, .stream = a->stream,
    };
    return kcp_exchange_kept(&x);
}

/* The header of the block that `writer` makes for this call: sizes, then name, offset
 * and bytes of every tensor. actv and acc are the writer's bytes per number.
 *
 * recompute  q, k as normalised, their rstd, beta, Aqk, A, initial states (h_kept); and
 *            with reuse_M this rank's maps and what the exchange gathered (kept).
 *            v and the gate's input are not copied: 13 is given them again.
 * save-all   G, w, u, qg, kg, v_new, h too (GDN has no qg, kg). */
void kcp_saved_layout(struct kcp_saved *s, const struct kcp_call *a, const char *writer,
                      size_t actv, size_t acc)
{
    const int64_t T = a->T, TH = T * a->H, TV = T * a->HV;
    const int64_t KV = (int64_t)a->HV * a->K * a->V;
    const int kda = a->model == KCP_KDA;

    memset(s, 0, sizeof *s);
    memcpy(s->magic, magic, sizeof magic);
    snprintf(s->writer, sizeof s->writer, "%s", writer);
    s->version = SAVED_VERSION;
    s->actv = (int32_t)actv;
    s->acc = (int32_t)acc;
    s->T = T;
    s->L = a->plan ? a->plan->L : 0;
    s->R = a->R; s->r = a->r; s->NS = a->NS; s->NC = a->NC;
    s->H = a->H; s->HV = a->HV; s->K = a->K; s->V = a->V; s->C = a->C; s->KG = a->KG;
    s->model = a->model; s->save = a->save; s->l2norm = a->l2norm;
    s->reuse_M = a->reuse_M; s->form = a->form;
    s->bytes = (sizeof *s + SAVED_ALIGN - 1) / SAVED_ALIGN * SAVED_ALIGN;

    add(s, "q", TH * a->K, actv);
    add(s, "k", TH * a->K, actv);
    add(s, "rstd_q", TH, acc);
    add(s, "rstd_k", TH, acc);
    add(s, "beta", TV, acc);
    add(s, "Aqk", TV * a->C, actv);
    add(s, "A", TV * a->C, actv);
    add(s, "h_kept", kcp_saved_states(a) * KV, acc);
    if (a->reuse_M) {
        add(s, "maps", a->NS * (KV + (int64_t)a->HV * a->K * a->K), acc);
        add(s, "kept", (int64_t)kept_bytes(a), 1);
    }
    if (a->save != KCP_SAVE_ALL)
        return;
    add(s, "G", TV * a->KG, acc);
    add(s, "w", TV * a->K, actv);
    add(s, "u", TV * a->V, actv);
    if (kda) {
        add(s, "qg", TV * a->K, actv);
        add(s, "kg", TV * a->K, actv);
    }
    add(s, "v_new", TV * a->V, actv);
    add(s, "h", a->NC * KV, actv);
}

/* Bytes of the block that the reference writes for this call, header included. */
size_t kcp_saved_bytes(const struct kcp_forward *a)
{
    struct kcp_saved s;
    kcp_saved_layout(&s, (const struct kcp_call *)a, "ref", sizeof(double),
                     sizeof(double));
    return s.bytes;
}

/* Opens a block for writing. KCP_BAD when it is too short. */
int kcp_saved_begin(void *saved, size_t bytes, const struct kcp_call *a,
                    const char *writer, size_t actv, size_t acc)
{
    struct kcp_saved s;
    kcp_saved_layout(&s, a, writer, actv, acc);
    if (!saved || bytes < s.bytes)
        return KCP_BAD;
    memcpy(saved, &s, sizeof s);
    return KCP_OK;
}

/* The place of one tensor in an opened or checked block; NULL: this block has none. */
void *kcp_saved_at(const void *saved, const char *name)
{
    const struct kcp_saved *s = saved;
    for (uint32_t j = 0; s && j < s->items; j++)
        if (strcmp(s->item[j].name, name) == 0)
            return (char *)saved + s->item[j].at;
    return NULL;
}

static int differs(const struct kcp_saved *s, const struct kcp_saved *want, char *why,
                   size_t n)
{
#define SAME(x)                                                                       \
    if (s->x != want->x) {                                                            \
        snprintf(why, n, "saved block: " #x " is %lld, this call has %lld",           \
                 (long long)s->x, (long long)want->x);                                \
        return 1;                                                                     \
    }
    SAME(model) SAME(C) SAME(T) SAME(L) SAME(R) SAME(r) SAME(NS) SAME(NC) SAME(H)
    SAME(HV) SAME(K) SAME(V) SAME(KG) SAME(l2norm) SAME(actv) SAME(acc) SAME(bytes)
#undef SAME
    if (memcmp(s, want, sizeof *want)) {
        snprintf(why, n, "saved block: its table of tensors is not this version's");
        return 1;
    }
    return 0;
}

/* Can `reader` use this block for this call? Mode and reuse_M are the block's own.
 * KCP_BAD: no block, or cut short. KCP_MISMATCH: another writer's, or another call's;
 * why (may be NULL) then holds what was found and what was expected. */
int kcp_saved_check(const void *saved, size_t bytes, const struct kcp_call *a,
                    const char *reader, size_t actv, size_t acc, char *why, size_t n)
{
    const struct kcp_saved *s = saved;
    struct kcp_call asked = *a;
    struct kcp_saved want;

    if (!s || bytes < sizeof *s) {
        snprintf(why, n, "saved block: %zu bytes, its header alone has %zu",
                 s ? bytes : (size_t)0, sizeof *s);
        return KCP_BAD;
    }
    if (memcmp(s->magic, magic, sizeof magic) || s->version != SAVED_VERSION) {
        snprintf(why, n, "saved block: does not open with %.8s, version %d", magic,
                 SAVED_VERSION);
        return KCP_MISMATCH;
    }
    if (strncmp(s->writer, reader, sizeof s->writer)) {
        snprintf(why, n, "saved block: written by %.*s, read by %s",
                 (int)sizeof s->writer, s->writer, reader);
        return KCP_MISMATCH;
    }
    asked.save = s->save; asked.reuse_M = s->reuse_M;
    if (s->reuse_M)
        asked.form = s->form;
    kcp_saved_layout(&want, &asked, reader, actv, acc);
    want.form = s->form;
    if (differs(s, &want, why, n))
        return KCP_MISMATCH;
    if (bytes < s->bytes) {
        snprintf(why, n, "saved block: %zu bytes given, %llu written", bytes,
                 (unsigned long long)s->bytes);
        return KCP_BAD;
    }
    return KCP_OK;
}
