/* halo.c -- copies the rows that a segment needs from the segments before or after it.
 * Book: chapter 14.
 *
 * Every rank computes from the plan which rows each rank needs, so no rank sends
 * requests. */
#include "checked.h"
#include "form/exchange.h"

#include <string.h>

struct token_range { int64_t begin, end; };      /* global tokens; may be empty */

/* Returns 1 if local segments s - 1 and s of rank r are adjacent in one sequence. */
static int is_adjacent(const struct kcp_plan *p, int r, int s)
{
    const struct kcp_context *x = &p->ctx[r];
    return s > 0 && s < x->NS && p->seg[x->seg0 + s].prev == x->seg0 + s - 1;
}

/* Returns the tokens that rank r needs for segment s: the last `reach` tokens of the
 * sequence before s (in backward the first `reach` tokens after s). The range is empty
 * if s begins (ends) the sequence or adjoins the previous (next) segment of rank r. */
static struct token_range rows_needed(const struct kcp_halo *h, int r, int s)
{
    const struct kcp_plan *p = h->plan;
    const struct kcp_segment *g = &p->seg[p->ctx[r].seg0 + s];
    const struct token_range none = { 0, 0 };
    if (!h->backward) {
        const int64_t start = p->cu_seqlens[g->n], far = g->begin - h->reach;
        if (g->first || is_adjacent(p, r, s)) return none;
        return (struct token_range){ far > start ? far : start, g->begin };
    }
    const int64_t end = p->cu_seqlens[g->n + 1], far = g->end + h->reach;
    if (g->last || is_adjacent(p, r, s + 1)) return none;
    return (struct token_range){ g->end, far < end ? far : end };
}

/* A contiguous part of one rank's shard. `seg` is the last segment of this part. */
struct piece { int rank, seg; int64_t begin, end; };

static struct piece piece_at(const struct kcp_plan *p, int j, struct token_range w)
{
    const struct kcp_segment *g = &p->seg[j];
    const int r = g->rank, seg0 = p->ctx[r].seg0;
    struct piece x = { r, j, g->begin > w.begin ? g->begin : w.begin, g->end };
    while (x.end < w.end && is_adjacent(p, r, j + 1 - seg0)) {
        j++;
        x.end = p->seg[j].end;
    }
    x.seg = j;                                   /* last segment of the piece */
    x.end = x.end < w.end ? x.end : w.end;
    return x;
}

/* first_piece and next_piece iterate over the pieces of a range in token order. A piece
 * with rank = -1 marks the end. */
static struct piece first_piece(const struct kcp_halo *h, int r, int s,
                                struct token_range w)
{
    const struct kcp_plan *p = h->plan;
    const struct kcp_segment *g = &p->seg[p->ctx[r].seg0 + s];
    int j = h->backward ? g->next : g->prev;
    if (w.begin >= w.end)
        return (struct piece){ .rank = -1 };
    while (p->seg[j].begin > w.begin) j = p->seg[j].prev;
    return piece_at(p, j, w);
}

static struct piece next_piece(const struct kcp_halo *h, struct piece x,
                               struct token_range w)
{
    if (x.end >= w.end)
        return (struct piece){ .rank = -1 };
    return piece_at(h->plan, h->plan->seg[x.seg].next, w);
}

/* Returns how many rows backward may send from the run of adjacent segments that begins
 * with local segment s, or 0 if no run begins with s or if s begins the sequence. */
static int64_t edge_of(const struct kcp_halo *h, int r, int s)
{
    const struct kcp_context *x = &h->plan->ctx[r];
    int end = s + 1;
    while (end < x->NS && is_adjacent(h->plan, r, end)) end++;
    const int64_t tokens = x->cu[end] - x->cu[s];
    if (is_adjacent(h->plan, r, s) || h->plan->seg[x->seg0 + s].first) return 0;
    return tokens < h->reach ? tokens : h->reach;
}

static int is_rank(const struct kcp_halo *h, int r)
{
    return h && h->plan && r >= 0 && r < h->plan->R;
}

int64_t kcp_halo_edge(const struct kcp_halo *h, int r, int s)
{
    int64_t rows = 0;
    for (int i = 0; is_rank(h, r) && i < s && i < h->plan->ctx[r].NS; i++)
        rows += edge_of(h, r, i);
    return rows;
}

/* Returns the row of the input at which a piece begins. If h->edges is set, the input
 * has only the first rows of each run of adjacent segments. */
static int64_t row_of(const struct kcp_halo *h, const struct piece *piece)
{
    const struct kcp_plan *p = h->plan;
    const struct kcp_context *x = &p->ctx[piece->rank];
    int s = piece->seg - x->seg0;
    while (p->seg[x->seg0 + s].begin > piece->begin) s--;
    const int64_t into = piece->begin - p->seg[x->seg0 + s].begin;
    if (!h->edges) return x->cu[s] + into;
    int begin = s;
    while (is_adjacent(p, piece->rank, begin)) begin--;
    return kcp_halo_edge(h, piece->rank, begin) + x->cu[s] - x->cu[begin] + into;
}

int64_t kcp_halo_at(const struct kcp_halo *h, int r, int s)
{
    int64_t rows = 0;
    for (int i = 0; is_rank(h, r) && i < s && i < h->plan->ctx[r].NS; i++) {
        const struct token_range w = rows_needed(h, r, i);
        rows += w.end - w.begin;
    }
    return rows;
}

int64_t kcp_halo_rows(const struct kcp_halo *h, int r)
{
    return kcp_halo_at(h, r, is_rank(h, r) ? h->plan->ctx[r].NS : 0);
}

static int copy_rows(const struct kcp_halo *h, char *to, const char *from, size_t bytes)
{
    if (h->ops) return h->ops->copy(to, bytes, from, bytes, bytes, 1, h->stream);
    memcpy(to, from, bytes);
    return KCP_OK;
}

/* Sends or receives the rows of one piece, or copies the rows if this rank is both
 * sender and receiver. */
static int move(const struct kcp_halo *h, const struct piece *x, int to,
                const char *from, char *halo)
{
    const int r = h->plan->R > 1 ? h->comm->r : 0;
    //> halo-rows
    const size_t bytes = (size_t)(x->end - x->begin) * h->row_bytes;
    if (x->rank == r) from += row_of(h, x) * h->row_bytes;
    if (x->rank == r && to == r) return copy_rows(h, halo, from, bytes);
    if (x->rank == r) return h->comm->send(h->comm, from, bytes, to, h->stream);
    return h->comm->recv(h->comm, halo, bytes, x->rank, h->stream);
    //< halo-rows
}

/* Moves all pieces (contiguous rows) that rank `to` needs. If `to` is this rank,
 * receives or copies the pieces. Otherwise sends the pieces that this rank has. */
static int move_all(const struct kcp_halo *h, int to, int r, const void *x, void *halo)
{
    const struct kcp_context *ctx = &h->plan->ctx[to];
    int status = KCP_OK;
    for (int s = 0; s < ctx->NS && !status; s++) {
        const struct token_range w = rows_needed(h, to, s);
        char *at = to == r ? (char *)halo + kcp_halo_at(h, to, s) * h->row_bytes : NULL;
        struct piece p = first_piece(h, to, s, w);
        for (; p.rank >= 0 && !status; p = next_piece(h, p, w)) {
            char *here = at ? at + (p.begin - w.begin) * h->row_bytes : NULL;
            if (to == r || p.rank == r) status = move(h, &p, to, x, here);
        }
    }
    return status;
}

/* Exchanges all rows in one group of messages: sends to rank 0, 1, ..., then receives.
 * The sends and receives are in the order of the receiver's segments, so they match. */
int kcp_halo_run(const struct kcp_halo *h, const void *x, void *halo)
{
    if (!h || !h->plan || (h->plan->R > 1 && !h->comm) || h->reach < 0)
        return kcp_refuse(KCP_BAD, "halo: 'plan' or 'comm' is NULL, or 'reach' < 0");
    const int R = h->plan->R, r = R > 1 ? h->comm->r : 0;
    if (!h->plan->crossing) return KCP_OK;
    const int opened = h->comm->group(h->comm, 1);
    int status = opened;
    for (int j = 0; j < R && !status; j++)
        if (j != r) status = move_all(h, j, r, x, NULL);
    if (!status) status = move_all(h, r, r, x, halo);
    return group_end(h->comm, opened, status);
}

/* Returns the sequence whose state rank r must receive for local segment s, or -1. Rank
 * r receives only states of other ranks. In forward, it needs one if s is its first
 * segment of the sequence and begins less than `reach` tokens after the sequence's
 * start. In backward, it needs one if s is its last segment of the sequence and ends
 * less than `reach` tokens before the sequence's end. */
static int state_lacked(const struct kcp_halo *h, int r, int s)
{
    const struct kcp_plan *p = h->plan;
    const struct kcp_context *x = &p->ctx[r];
    const struct kcp_segment *g = &p->seg[x->seg0 + s];
    const int beside = h->backward ? s + 1 : s - 1, n = g->n;
    const int64_t away = h->backward ? p->cu_seqlens[n + 1] - g->end
                                     : g->begin - p->cu_seqlens[n];
    if ((h->backward ? p->ht_rank : p->h0_rank)[n] == r || away >= h->reach) return -1;
    const int again = beside >= 0 && beside < x->NS && p->seg[x->seg0 + beside].n == n;
    return again ? -1 : n;
}

/* Exchanges all states in one group of messages: a rank first sends, then receives.
 * Messages are in the order of the receiver's segments. */
int kcp_halo_states(const struct kcp_halo *h, void *states)
{
    if (!h || !h->plan || (h->plan->R > 1 && !h->comm) || h->reach < 0)
        return kcp_refuse(KCP_BAD, "halo: 'plan' or 'comm' is NULL, or 'reach' < 0");
    const struct kcp_plan *p = h->plan;
    const size_t bytes = (size_t)h->reach * h->row_bytes;
    if (p->R == 1 || !p->crossing || !bytes) return KCP_OK;
    const int *owner = h->backward ? p->ht_rank : p->h0_rank, r = h->comm->r;
    const int opened = h->comm->group(h->comm, 1);
    int status = opened;
    for (int i = 1; i <= p->R; i++) {
        const int to = (r + i) % p->R;                   /* r is the last `to` */
        for (int s = 0; s < p->ctx[to].NS && !status; s++) {
            const int n = state_lacked(h, to, s);
            char *rows = (char *)states + (n < 0 ? 0 : n * bytes);
            if (n >= 0 && to == r)
                status = h->comm->recv(h->comm, rows, bytes, owner[n], h->stream);
            else if (n >= 0 && owner[n] == r)
                status = h->comm->send(h->comm, rows, bytes, to, h->stream);
        }
    }
    return group_end(h->comm, opened, status);
}

struct kcp_traffic kcp_halo_formula(const struct kcp_halo *h, int r)
{
    struct kcp_traffic sum = { 0, 0, 0 };
    for (int j = 0; is_rank(h, r) && j < h->plan->R; j++)
        for (int s = 0; s < h->plan->ctx[j].NS; s++) {
            const struct token_range w = rows_needed(h, j, s);
            struct piece p = first_piece(h, j, s, w);
            for (; p.rank >= 0; p = next_piece(h, p, w)) {
                const int sent = p.rank == r && j != r;
                sum.bytes += sent * (p.end - p.begin) * (int64_t)h->row_bytes;
                sum.messages += sent;
            }
        }
    return sum;
}
