/* 17_block.c -- models a thread block's instructions as in the PTX manual.
 * Book: chapter 17. */
#include "17_block.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct block_tokens block_tokens(const struct kcp_ladder *a, int s, int c)
{
    const int *cu = a->cu, *cn = a->cn;
    const int t0 = cu[s] + (c - cn[s]) * a->C, left = cu[s + 1] - t0;
    return (struct block_tokens){ t0, left < a->C ? left : a->C };
}

void block_launch(void kernel(const struct kcp_ladder *a, int s, int n, int v),
                  const struct kcp_ladder *a)
{
    for (int s = 0; s < a->NS; s++)
        for (int n = 0; n < a->HV; n++)
            for (int v = 0; v < a->V; v++) kernel(a, s, n, v);
}

int block_columns(const struct kcp_ladder *a, int columns, size_t bytes,
                  void chunks(const struct kcp_ladder *a, void *m, double *S, int wide,
                              int s, int n, int v0))
{
    const int HV = a->HV, K = a->K, V = a->V, wide = (K + 15) / 16 * 16;
    const double (*h_in)[HV][K][V] = a->h_in;
    double (*h_out)[HV][K][V] = a->h_out;
    if (K > 256 || a->C > 64) return KCP_NA;
    void *m = calloc(1, bytes);
    double *S = malloc(sizeof *S * columns * wide);
    const int status = m && S ? KCP_OK : KCP_NO_MEMORY;
    for (int s = 0; s < a->NS && !status; s++)
        for (int n = 0; n < HV; n++)
            for (int v0 = 0; v0 < V; v0 += columns) {
                const int there = V - v0 < columns ? V - v0 : columns;
                memset(S, 0, sizeof *S * columns * wide);
                for (int v = 0; v < there && h_in; v++)
                    for (int i = 0; i < K; i++) S[v * wide + i] = h_in[s][n][i][v0 + v];
                chunks(a, m, S, wide, s, n, v0);
                for (int v = 0; v < there; v++)
                    for (int i = 0; i < K; i++)
                        h_out[s][n][i][v0 + v] = S[v * wide + i];
            }
    free(m); free(S);
    return status;
}

/* A number that two lanes write becomes NaN, because hardware leaves it undefined. */
static void spoil_shared(double *shared, const int *to, const int *count)
{
    for (int l = 0; l < LANES; l++)
        for (int k = 0; k < l; k++)
            for (int x = 0; x < count[l]; x++)
                if (to[l] + x >= to[k] && to[l] + x < to[k] + count[k])
                    shared[to[l] + x] = NAN;
}

/* One sector has 32 bytes, or 16 numbers of 2 bytes. */
int block_load(double *shared, const int *to, const double *global, const int64_t *from,
               const int *count)
{
    int64_t sector[2 * LANES];
    int n = 0;
    for (int l = 0; l < LANES; l++)
        for (int x = 0; x < count[l]; x++) {
            const int64_t mine = (from[l] + x) / 16;
            int seen = 0;
            for (int i = 0; i < n && !seen; i++) seen = sector[i] == mine;
            if (!seen) sector[n++] = mine;
            shared[to[l] + x] = global[from[l] + x];
        }
    spoil_shared(shared, to, count);
    return n;
}

int block_stages_make(struct block_stage *at, int n, const struct kcp_ladder *a)
{
    const size_t wide = (size_t)a->C * a->K, u = (size_t)a->C * a->V;
    const size_t one = 2 * wide + u + a->K;
    double *room = malloc(sizeof *room * one * n);
    if (!room) return KCP_NO_MEMORY;
    for (int i = 0; i < n; i++, room += one)
        at[i] = (struct block_stage){ 0, room, room + wide, room + 2 * wide,
                                      room + 2 * wide + u };
    return KCP_OK;
}

void block_stages_free(struct block_stage *at)
{
    free(at[0].w);
}

void block_chunk(const struct kcp_ladder *a, const struct block_stage *m, int64_t t,
                 int n, int v0, int v1, double *S)
{
    const int HV = a->HV, K = a->K, V = a->V;
    double (*v_new)[HV][V] = a->v_new;
    for (int v = v0; v < v1; v++) {
        for (int j = 0; j < m->len; j++) {
            double x = m->u[j * V + v];
            for (int p = 0; p < K; p++) x -= m->w[j * K + p] * S[p * V + v];
            v_new[t + j][n][v] = x;
        }
        for (int i = 0; i < K; i++) {
            double *to = &S[i * V + v];
            *to *= m->decay[i];
            for (int j = 0; j < m->len; j++)
                *to += m->kg[j * K + i] * v_new[t + j][n][v];
        }
    }
}

void block_barrier_init(struct block_barrier *b, int count)
{
    *b = (struct block_barrier){ .count = count };
}

static void end_phase(struct block_barrier *b)
{
    if (b->arrived < b->count || b->bytes) return;
    b->arrived = 0;
    b->phase++;
}

void block_arrive(struct block_barrier *b)
{
    block_arrive_expect(b, 0);
}

void block_arrive_expect(struct block_barrier *b, int64_t bytes)
{
    b->arrived++;
    b->bytes += bytes;
    end_phase(b);
}

/* Phase `phase` is complete if its parity differs from that of the current phase. */
int block_passed(const struct block_barrier *b, int phase)
{
    return (b->phase & 1) != (phase & 1);
}

static void issue(struct block_copies *q, struct block_copy one)
{
    if (q->n == BLOCK_COPIES) block_carry_out(q, 0);
    for (int i = 0; i < one.rows * one.columns; i++) one.to[i] = NAN;
    q->copy[q->n++] = one;
}

void block_async(struct block_copies *q, double *to, const double *from, int64_t stride,
                 int rows, int columns)
{
    issue(q, (struct block_copy){ to, from, stride, rows, columns, q->group, 0, NULL });
}

void block_commit(struct block_copies *q)
{
    q->group++;
}

void block_wait(struct block_copies *q, int n)
{
    while (q->n && q->copy[0].group < q->group - n) block_carry_out(q, 0);
}

void block_tma(struct block_copies *q, double *to, const double *from, int64_t stride,
               int rows, int columns, struct block_barrier *full)
{
    issue(q, (struct block_copy){ to, from, stride, rows, columns, 0, 0, full });
}

void block_async_arrive(struct block_copies *q, double *to, const double *from,
                        int columns, struct block_barrier *full)
{
    issue(q, (struct block_copy){ to, from, 0, 1, columns, 0, 1, full });
}

void block_carry_out(struct block_copies *q, int which)
{
    const struct block_copy one = q->copy[which];
    const size_t row = sizeof(double) * one.columns;
    for (int j = 0; j < one.rows; j++)
        memcpy(one.to + j * one.columns, one.from + j * one.stride, row);
    q->n--;
    memmove(q->copy + which, q->copy + which + 1, sizeof one * (q->n - which));
    if (!one.full) return;
    one.full->arrived += one.arrivals;
    one.full->bytes -= one.arrivals ? 0 : 2 * (int64_t)one.rows * one.columns;
    end_phase(one.full);
}

int block_run(int step(void *m, int role, int i), void *m, int roles, int chunks,
              struct block_copies *q)
{
    int done[8] = { 0 }, left = roles * chunks, idle = 0;
    if (roles > 8) return KCP_BAD;
    for (int role = 0; left && idle <= roles; role = (role + 1) % (roles + 1)) {
        idle++;
        if (role == roles) {
            if (!q->n) continue;
            block_carry_out(q, 0);
        } else {
            if (done[role] == chunks || !step(m, role, done[role])) continue;
            done[role]++;
            left--;
        }
        idle = 0;
    }
    return left ? KCP_BAD : KCP_OK;
}

/* Returns the byte offset of B's element (k, n) before the swizzle. The descriptor's
 * distances are in units of 16 bytes. */
static int64_t byte_of(uint64_t descriptor, int mn_major, int k, int n)
{
    const int64_t at = (descriptor & 0x3fff) << 4;
    const int64_t leading = (descriptor >> 16 & 0x3fff) << 4;
    const int64_t stride = (descriptor >> 32 & 0x3fff) << 4;
    if (!mn_major) return at + n / 8 * stride + n % 8 * 128 + 2 * k;
    return at + n / 64 * leading + k / 8 * stride + k % 8 * 128 + n % 64 * 2;
}

void warpgroup_mma(double *d, int columns, const double (*a)[16], const double *shared,
                   uint64_t descriptor, int mn_major)
{
    const uint64_t fields = 0x3fffull | 0x3fffull << 16 | 0x3fffull << 32 | 1ull << 62;
    const int bad = (descriptor & ~fields) || !(descriptor >> 62);
    for (int k = 0; k < 16; k++)
        for (int n = 0; n < columns; n++) {
            const int64_t byte = byte_of(descriptor, mn_major, k, n);
            const int64_t swizzled = byte ^ (byte >> 7 & 7) << 4;
            const double b = bad ? NAN : shared[swizzled / 2];
            for (int row = 0; row < 64; row++) d[row * columns + n] += a[row][k] * b;
        }
}
