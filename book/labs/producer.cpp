// producer.cpp -- runs the producer warps of lab step 18_producer on a CPU.
//
// Book: staff.md.  Used by: make grade LAB=18_producer.
// Usage: a.out TEST, with TEST from the table at the end. The student's pipeline.cuh is
// compiled as C++ against the functions below instead of those of cuda/tile/. Lanes and
// consumers are coroutines, which run in random order. The bytes of a copy arrive at a
// random later time; from its issue until then its destination has 0xff bytes. A
// consumer compares a stage with the right bytes as soon as `full` lets it pass.
#include "kcp.h"
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>
#include <functional>
#include <map>
#include <string>
#include <vector>

#define __device__
#define __host__
#define __forceinline__ inline
#define __align__(n) alignas(n)
// The guards of the headers that chunk_factors.cuh includes.
#define KCP_TILE_CLUSTER_CUH
#define KCP_TILE_LAUNCH_CUH
#define KCP_TILE_REGISTERS_CUH
#define KCP_TILE_SETMAXNREG_CUH
#define KCP_TILE_TMA_CUH
#define KCP_TILE_WARP_CUH
#define KCP_TILE_WGMMA_CUH
#define KCP_TILE_WARP_SCAN_CUH
#include "cuda/tile/swizzle.cuh"

typedef uint16_t bf16;
enum { CHUNK = 64, PAD = 8, LANES = 32, STACK = 1 << 16 };
struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
static uint4 make_uint4(int x, int y, int z, int w)
{
    return { (uint32_t)x, (uint32_t)y, (uint32_t)z, (uint32_t)w };
}
static uint2 make_uint2(uint32_t x, uint32_t y) { return { x, y }; }
static uint32_t __shfl_xor_sync(uint32_t, uint32_t x, int) { return x; }
template <class X> static X min(X a, X b) { return a < b ? a : b; }
struct CUtensorMap { const bf16 *x; int64_t T; int heads, K; };
struct token_range { int64_t t; int len; };
template <class X>
static const X *in(const void *a, int64_t t, int H, int n, int D)
{
    return (const X *)a + (t * H + n) * D;
}
template <class Args> static token_range chunk_tokens(const Args &a, int s, int c)
{
    const int *cu = (const int *)a.cu, *cn = (const int *)a.cn;
    const int64_t t = cu[s] + (int64_t)(c - cn[s]) * a.C, left = cu[s + 1] - t;
    return { t, left < a.C ? (int)left : a.C };
}

// ---- coroutines
struct role { std::function<void()> run; const char *name; int block, lane;
              ucontext_t at; uint64_t *bar; int phase; bool done; };
static std::vector<role> roles;
static role *me;
static ucontext_t scheduler;
static struct { int x; } threadIdx, blockDim = { 1 };
static void yield(void) { swapcontext(&me->at, &scheduler); }
static void start(void)
{
    me->run();
    me->done = true;
    yield();
}

// ---- barriers and copies in flight
struct barrier { int count, arrived, phase; int64_t bytes; };
static std::map<uint64_t *, barrier> bars;
static std::map<uint64_t *, std::string> bar_name;
static char *block_smem[2];
struct copy { char *to; std::vector<char> bytes; uint64_t *bar; int arrives; };
static std::vector<copy> flying;
static std::map<role *, std::vector<copy>> of_lane;     // cp.async, not yet announced
static long progress;

static void arrive(uint64_t *bar, int64_t bytes, int arrivals)
{
    if (!bars.count(bar)) {
        printf("  FAIL  an arrival or a copy at an address that has no barrier\n");
        exit(1);
    }
    barrier &b = bars[bar];
    b.bytes += bytes;
    b.arrived += arrivals;
    progress++;
    if (b.arrived < b.count || b.bytes) return;
    b.arrived -= b.count;
    b.phase++;
}
static void mbarrier_init(uint64_t *bar, int count) { bars[bar] = { count, 0, 0, 0 }; }
static void mbarrier_fence_init(void) {}
static void fence_proxy_async(void) {}
static void __syncthreads(void) {}
static void cluster_sync(void) {}
static int cluster_rank(void) { return me ? me->block : 0; }
template <class P> static P *in_block(P *p, int block)
{
    return (P *)(block_smem[block] + ((char *)p - block_smem[me->block]));
}
static void mbarrier_arrive(uint64_t *bar) { arrive(bar, 0, 1); }
static void mbarrier_arrive_cluster(uint64_t *bar, int rank)
{
    arrive(in_block(bar, rank), 0, 1);
}
static void mbarrier_arrive_expect_tx(uint64_t *bar, uint32_t bytes)
{
    arrive(bar, bytes, 1);
}
static void mbarrier_wait(uint64_t *bar, int phase)     // by parity
{
    me->bar = bar, me->phase = phase;
    while ((bars[bar].phase & 1) == (phase & 1)) yield();
    me->bar = NULL;
    progress++;
}
static std::map<int, int> at_warp;                      // lanes that reached __syncwarp
static void __syncwarp(void)
{
    const int warp = (me - &roles[0]) / LANES;
    const int until = (at_warp[warp]++ / LANES + 1) * LANES;
    progress++;
    while (at_warp[warp] < until) yield();
}

static copy issue(char *to, const void *from, size_t bytes, uint64_t *bar, int arrives)
{
    copy c = { to, std::vector<char>(bytes, 0), bar, arrives };
    if (from) memcpy(c.bytes.data(), from, bytes);
    memset(to, 0xff, bytes);
    progress++;
    return c;
}
static void tma_load_1d(void *to, const void *from, uint32_t bytes, uint64_t *bar)
{
    flying.push_back(issue((char *)to, from, bytes, bar, 0));
}
static void tma_load_1d_multicast(void *to, const void *from, uint32_t bytes,
                                  uint64_t *bar)
{
    for (int b = 0; b < 2; b++)
        tma_load_1d(in_block((char *)to, b), from, bytes, in_block(bar, b));
}
static void tma_load_3d(void *to, const CUtensorMap &map, int channel, int n, int t,
                        uint64_t *bar)
{
    char box[TILE_BYTES] = {};
    for (int i = 0; i < CHUNK && t + i < map.T; i++)
        for (int p = 0; p < 8; p++)
            memcpy(box + swizzle128_offset(i, p),
                   in<bf16>(map.x, t + i, map.heads, n, map.K) + channel + 8 * p, 16);
    tma_load_1d(to, box, TILE_BYTES, bar);
}
static void tma_load_3d_multicast(void *to, const CUtensorMap &map, int channel, int n,
                                  int t, uint64_t *bar)
{
    for (int b = 0; b < 2; b++)
        tma_load_3d(in_block((char *)to, b), map, channel, n, t, in_block(bar, b));
}
static void cp_async_16(void *to, const void *from, int there)
{
    of_lane[me].push_back(issue((char *)to, there ? from : NULL, 16, NULL, 0));
}
static void cp_async_mbarrier_arrive(uint64_t *bar)
{
    for (copy &c : of_lane[me]) flying.push_back(c);
    of_lane[me].clear();
    flying.push_back({ NULL, {}, bar, 1 });             // after all copies of this lane
}
// Completes a random copy. An arrival of cp.async waits for earlier copies.
static void complete(void)
{
    size_t i = rand() % flying.size();
    for (size_t j = 0; j < i && flying[i].arrives; j++)
        if (!flying[j].bar) i = j;
    const copy c = flying[i];
    flying.erase(flying.begin() + i);
    if (c.to) memcpy(c.to, c.bytes.data(), c.bytes.size());
    if (c.bar) me = &roles[0], arrive(c.bar, -(int64_t)c.bytes.size(), c.arrives);
    progress++;
}

#include STUDENT

// ---- a scan's inputs, and what a consumer expects in a stage
enum { K = 128, H = 1, HV = 2 };
struct test { const char *name; int kda, blocks, tokens, pipelines; };
static int failures;

static void same(const char *what, int chunk, const void *got, const void *want,
                 size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (((const char *)got)[i] != ((const char *)want)[i]) {
            if (!failures++)
                printf("  FAIL  %s of chunk %d in block %d: byte %zu differs%s\n", what,
                       chunk, me->block, i, ((const unsigned char *)got)[i] == 0xff ?
                       ": its copy has not arrived, or was never issued" : "");
            return;
        }
}
static void triangle(const char *what, int chunk, const unsigned char *got,
                     const unsigned char *from)
{
    unsigned char want[TILE_BYTES] = {};
    for (int J = 0; J < 4; J++)
        memcpy(want + 2560 * J, from + triangle_column(J), 2048 - 512 * J);
    same(what, chunk, got, want, TILE_BYTES);
}
static void deadlock(void)
{
    const char *between = ": ";
    uint64_t *told = NULL;                               // once per warp
    printf("  FAIL  deadlock");
    for (role &r : roles) {
        if (r.done || !r.bar || r.bar == told) continue;
        const barrier &b = bars[told = r.bar];
        printf("%s%s lane %d of block %d waits for %s, phase %d; the barrier is in"
               " phase %d, with %d of %d arrivals, %lld bytes missing", between, r.name,
               r.lane, r.block, bar_name[r.bar].c_str(), r.phase, b.phase, b.arrived,
               b.count, (long long)b.bytes);
        between = "; ";
    }
    printf("\n");
    failures++;
}

static const char *const pipes[] = { "pipeline K", "pipeline A", "pipeline Q",
                                     "pipeline Aqk" };
static void pause(void)
{
    for (int i = rand() % 4; i > 0; i--, progress++) yield();
}

// One consumer of a pipeline: it compares and releases the stages of all chunks.
template <int blocks, class Storage>
static void consume(Storage &m, const forward_params &x, const raw_rows &raw, int pipe,
                    int kda, int wgs, int n, int v0, int count, int release)
{
    for (int c = 0; c < count; c++) {
        const int at = stage_of(m, pipe, c), z = 1, chunk = first_chunk(x, z) + c;
        const auto *f = chunk_factors_of<K>(x, chunk, n);
        const auto *head = gdn_head_factors_of(x, chunk, n);
        const auto *rows = gdn_qk_rows_of<K>(x, chunk, n / (HV / H));
        const token_range t = chunk_tokens(x.a, z, chunk);
        mbarrier_wait(&m.full[pipe][at], phase_of(m, pipe, c));
        for (int i = 0; i < K / 64 && (pipe == PIPE_K || pipe == PIPE_Q); i++) {
            const int q = pipe == PIPE_Q;
            const unsigned char *want = q ? f->q[i] : f->k[i];
            unsigned char box[TILE_BYTES];
            for (int e = 0; e < CHUNK * 8 && !kda && t.len == CHUNK; e++)
                memcpy(box + swizzle128_offset(e / 8, e % 8),
                       in<bf16>(q ? raw.q.x : raw.k.x, t.t + e / 8, H, 0, K) + 64 * i +
                           e % 8 * 8, 16);
            if (!kda) want = t.len == CHUNK ? box : q ? rows->q[i] : rows->k[i];
            const unsigned char *got = q ? m.q[at].q[i] : m.k[at].tile[i];
            same(q ? "q" : "k", c, got, want, TILE_BYTES);
        }
        for (int i = 0; i < CHUNK && pipe == PIPE_K; i++) {
            static const bf16 zero[K] = {};
            const bf16 *v = in<bf16>(x.a.v, t.t + i, HV, n, x.a.V) + v0;
            same("v", c, m.v[at][i], i < t.len ? v : zero, 128 * wgs);
        }
        if (pipe == PIPE_A) {
            triangle("A beta", c, m.a[at].Ab, kda ? f->Ab : head->Ab);
            if (kda) same("kg", c, m.a[at].kg, f->kg, sizeof f->kg);
            if (kda) same("decay", c, m.decay[at], f->decay, sizeof f->decay);
            if (!kda) same("row factors", c, &m.head[at], &head->f, ROW_FACTORS_BYTES);
        }
        if (pipe == PIPE_Q && !kda)
            same("Q", c, m.head[at].Q, head->f.Q, sizeof head->f.Q);
        if (pipe == PIPE_AQK) triangle("Aqk", c, m.q[at].Aqk, kda ? f->Aqk : head->Aqk);
        pause();
        for (int b = 0; b < blocks; b++)
            arrive(in_block(&m.empty[pipe][at], b), 0, release / blocks);
        if (pipe != PIPE_K) continue;
        memset(m.o[at], 0x5a, sizeof m.o[at]);           // o replaces v
        const std::vector<char> o((char *)m.o[at], (char *)m.o[at] + sizeof m.o[at]);
        pause();
        same("o (v was copied before v_empty)", c, m.o[at], o.data(), o.size());
        arrive(&m.v_empty[at], 0, 128 * wgs);
    }
}

static void run_roles(void)
{
    std::vector<char> stacks(roles.size() * STACK);
    for (size_t i = 0; i < roles.size(); i++) {
        role &r = roles[i];
        getcontext(&r.at);
        r.at.uc_stack.ss_sp = &stacks[i * STACK];
        r.at.uc_stack.ss_size = STACK;
        makecontext(&r.at, start, 0);
    }
    size_t slow = 0, left = 1;                           // a lane that runs rarely
    for (int pass = 0; left && !failures; pass++) {
        const long before = progress;
        if (pass % 64 == 0) slow = rand() % roles.size();
        left = 0;
        for (int all = 0; all < 2 && progress == before; all++)
            for (role &r : roles) {
                if (r.done || (!all && (&r == &roles[slow] || rand() % 2))) continue;
                me = &r;
                threadIdx.x = (&r - &roles[0]) % 128;
                swapcontext(&scheduler, &r.at);
            }
        for (role &r : roles) left += !r.done;
        for (int i = rand() % 8; i > 0 && !flying.empty(); i--) complete();
        if (progress == before && left && flying.empty()) deadlock();
        else if (progress == before && !flying.empty()) complete();
    }
}

static void *random_bytes(size_t n)
{
    unsigned char *p = (unsigned char *)aligned_alloc(1024, (n + 1023) / 1024 * 1024);
    for (size_t i = 0; i < n; i++) p[i] = rand() % 251;  // never 0xff
    return p;
}

template <int blocks, int WGS, int kda> static void run(const struct test &now)
{
    typedef scan_storage<K, WGS, OUTPUT_SCAN, kda> storage;
    const int T = now.tokens, count = (T + 63) / 64, V = 256, n = 1, NC = count + 2;
    const int cu[] = { 0, 64, 64 + T, 128 + T }, cn[] = { 0, 1, 1 + count, NC };
    forward_params x = {};
    x.a.H = H, x.a.HV = HV, x.a.K = K, x.a.V = V, x.a.C = CHUNK, x.a.NC = NC;
    x.a.cu = cu, x.a.cn = cn, x.count = NC;
    x.a.v = random_bytes((128 + T) * HV * V * 2);
    x.factors = random_bytes(NC * HV * sizeof(chunk_factors<K>));
    x.qk_rows = random_bytes(NC * H * sizeof(gdn_qk_rows<K>));
    const size_t qk = (128 + T) * H * K * 2;
    const raw_rows raw = { { (bf16 *)random_bytes(qk), 128 + T, H, K },
                           { (bf16 *)random_bytes(qk), 128 + T, H, K }, 1 };
    storage *smem[2] = {};
    for (int b = 0; b < blocks; b++) {
        block_smem[b] = (char *)random_bytes(sizeof(storage));
        smem[b] = (storage *)block_smem[b];
        threadIdx.x = 0;
        pipeline_init<blocks>(*smem[b], SCAN_V_LANES);
        for (int i = 0; i < 4 * MAX_STAGES; i++)
            for (int full = 0; full < 2; full++)
                bar_name[(full ? smem[b]->full[0] : smem[b]->empty[0]) + i] =
                    std::string(full ? "full" : "empty") + " of stage " +
                    std::to_string(i % MAX_STAGES) + " of " + pipes[i / MAX_STAGES];
        for (int i = 0; i < storage::K_STAGES; i++)
            bar_name[&smem[b]->v_empty[i]] = "v_empty of stage " + std::to_string(i);
    }
    for (int b = 0; b < blocks; b++)
        for (int i = 0; i < 4 * LANES; i++) {
            const int v0 = 64 * WGS * (b + 1), pipe = i / LANES;
            const raw_rows *raws = kda ? NULL : &raw;
            storage &m = *smem[b];
            roles.push_back({ [=, &x, &m] {
                constexpr int LV = SCAN_V_LANES, B = blocks;
                if (!(now.pipelines >> pipe & 1)) return;
                switch (pipe) {
                case PIPE_K:
                    return scan_producer_warp<PIPE_K, 1, LV, B>(x, 1, n, v0, m, raws);
                case PIPE_A: return scan_producer_warp<PIPE_A, 1, 0, B>(x, 1, n, v0, m);
                case PIPE_Q:
                    return scan_producer_warp<PIPE_Q, 1, 0, B>(x, 1, n, v0, m, raws);
                default: scan_producer_warp<PIPE_AQK, 1, 0, B>(x, 1, n, v0, m);
                }
            }, "producer", b, i % LANES, {}, NULL, 0, false });
        }
    for (int b = 0; b < blocks; b++)
        for (int pipe = 0; pipe < 4; pipe++)
            roles.push_back({ [=, &x, &raw] {
                if (now.pipelines >> pipe & 1)
                    consume<blocks>(*smem[b], x, raw, pipe, kda, WGS, n,
                                    64 * WGS * (b + 1), count,
                                    release_count<blocks, WGS>());
            }, "consumer", b, 0, {}, NULL, 0, false });
    run_roles();
}

int main(int argc, char **argv)
{
    static const struct test tests[] = {
        { "A", 1, 1, 7 * 64, 1 << PIPE_A },
        { "Q", 1, 1, 7 * 64, 1 << PIPE_Q | 1 << PIPE_AQK },
        { "v", 1, 1, 6 * 64 + 23, 1 << PIPE_K },
        { "gdn", 0, 1, 6 * 64 + 23, 15 },
        { "clusters", 1, 2, 9 * 64, 15 },
    };
    for (const struct test &t : tests) {
        if (argc != 3 || strcmp(argv[1], t.name)) continue;
        for (int seed = 1; seed <= 5 && !failures; seed++) {
            srand(seed);
            roles.clear(), bars.clear(), flying.clear();
            at_warp.clear(), of_lane.clear();
            if (t.blocks == 2) run<2, 1, 1>(t);
            else if (t.kda) run<1, 2, 1>(t);
            else run<1, 2, 0>(t);
        }
        printf("verdict %s: %d failed\n", argv[2], failures);
        return !!failures;
    }
    return 2;
}
