// emu.cpp -- kernel.h on a CPU: 512 coroutines, warps in lockstep at collectives, wgmma by its descriptors, barriers counted
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <cstdint>
#include <vector>
#include <map>
#include <algorithm>
#include <functional>
#include <thread>
#include <ucontext.h>
#define __device__
#define __forceinline__ inline
#define __align__(x) alignas(x)
struct float2 { float x, y; }; static float2 make_float2(float x, float y) { return { x, y }; }
struct tid { unsigned x; }; static tid threadIdx;
static ucontext_t main_c, co[640]; static char *stacks; static bool fin[640]; static long progress;
static void yield_() { const int me = threadIdx.x; swapcontext(&co[me], &main_c); }
struct warp { int cnt, gen; void *arg[32]; } W_[20];
template <class F> static void coll(void *arg, F f)
{
    warp &w = W_[threadIdx.x / 32]; w.arg[threadIdx.x % 32] = arg; const int gen = w.gen;
    if (++w.cnt == 32) { w.cnt = 0; f(w.arg); w.gen++; progress++; } else while (w.gen == gen) yield_();
}
static char *g_base; static uint32_t smem_addr(const void *p) { return (uint32_t)((char *)p - g_base); }
static float bfr(float x) { uint32_t u; memcpy(&u, &x, 4); u += 0x7fff + (u >> 16 & 1); u &= 0xffff0000u; memcpy(&x, &u, 4); return x; }
static float bf16x2_low(uint32_t x) { x <<= 16; float y; memcpy(&y, &x, 4); return y; }
static float bf16x2_high(uint32_t x) { x &= 0xffff0000u; float y; memcpy(&y, &x, 4); return y; }
static uint32_t bits(float x) { uint32_t u; memcpy(&u, &x, 4); return u; }
static uint32_t pack_bf16x2(float a, float b) { return bits(bfr(a)) >> 16 | (bits(bfr(b)) & 0xffff0000u); }
static uint32_t times_bf16x2(uint32_t a, uint32_t b) { return pack_bf16x2(bf16x2_low(a) * bf16x2_low(b), bf16x2_high(a) * bf16x2_high(b)); }
static float flush(float x) { return fabsf(x) < 1.17549435e-38f ? 0 : x; }
static float ex2_approx(float x) { return flush(exp2f(x)); } static float rcp_approx(float x) { return flush(1 / x); }
static uint32_t word_at(uint32_t at) { uint32_t y; memcpy(&y, g_base + at, 4); return y; } static void put_word(uint32_t at, uint32_t x) { memcpy(g_base + at, &x, 4); }
static void __syncwarp() { coll(nullptr, [](void **) {}); }
struct lm { uint32_t *r; uint32_t at; };
static uint16_t h16(uint32_t at) { uint16_t y; memcpy(&y, g_base + at, 2); return y; }
static void ldsm_(uint32_t *r, uint32_t at, int trans)
{
    lm a = { r, at };
    coll(&a, [trans](void **p) { for (int l = 0; l < 32; l++) for (int j = 0; j < 4; j++) { uint32_t y = 0;
        for (int h = 0; h < 2; h++) { const int row = trans ? l % 4 * 2 + h : l / 4, col = trans ? l / 4 : l % 4 * 2 + h; y |= (uint32_t)h16(((lm *)p[8 * j + row])->at + col * 2) << 16 * h; }
        ((lm *)p[l])->r[j] = y; } });
}
static void ldmatrix_at(uint32_t *r, uint32_t at) { ldsm_(r, at, 0); } static void ldmatrix_trans_at(uint32_t *r, uint32_t at) { ldsm_(r, at, 1); }
static void stmatrix_x4_trans(uint32_t at, const uint32_t *r)
{
    lm a = { (uint32_t *)r, at };
    coll(&a, [](void **p) { for (int l = 0; l < 32; l++) for (int j = 0; j < 4; j++) for (int h = 0; h < 2; h++) {
        const int row = l % 4 * 2 + h, col = l / 4; const uint16_t y = ((lm *)p[l])->r[j] >> 16 * h; memcpy(g_base + ((lm *)p[8 * j + row])->at + col * 2, &y, 2); } });
}
struct sh { float x, y; };
static float __shfl_xor_sync(unsigned, float x, int o) { sh a = { x, 0 }; coll(&a, [o](void **p) { for (int l = 0; l < 32; l++) ((sh *)p[l])->y = ((sh *)p[l ^ o])->x; }); return a.y; }
static int __any_sync(unsigned, int p) { sh a = { (float)p, 0 }; coll(&a, [](void **q) { float y = 0; for (int l = 0; l < 32; l++) y += ((sh *)q[l])->x; for (int l = 0; l < 32; l++) ((sh *)q[l])->y = y; }); return a.y != 0; }
static float get(uint32_t x, int h) { return h ? bf16x2_high(x) : bf16x2_low(x); }
struct mm { float *d; const uint32_t *a; uint32_t b0, b1; };
static void mma_m16n8k16(float *d, const uint32_t *a, uint32_t b0, uint32_t b1)
{
    mm q = { d, a, b0, b1 };
    coll(&q, [](void **p) { for (int l = 0; l < 32; l++) for (int j = 0; j < 4; j++) { const int r = l / 4 + j / 2 * 8, c = l % 4 * 2 + j % 2; float s = ((mm *)p[l])->d[j];
        for (int k = 0; k < 16; k++) { mm *A = (mm *)p[r % 8 * 4 + k % 8 / 2], *B = (mm *)p[c * 4 + k % 8 / 2]; s += get(A->a[r / 8 + k / 8 * 2], k % 2) * get(k / 8 ? B->b1 : B->b0, k % 2); }
        ((mm *)p[l])->d[j] = s; } });
}
static float elem(uint64_t desc, int mn, int k, int trans)    // trans 0: K-major; 1: MN-major
{
    const uint32_t start = (desc & 0x3fff) << 4, lbo = (desc >> 16 & 0x3fff) << 4, sbo = (desc >> 32 & 0x3fff) << 4; const int sw = desc >> 62;
    const int rowb = sw == 1 ? 128 : sw == 2 ? 64 : 0;
    if (!sw) { const uint32_t a0 = start + mn / 8 * sbo + k / 8 * lbo + (trans ? k % 8 * 16 + mn % 8 * 2 : mn % 8 * 16 + k % 8 * 2); if (a0 >= 232448) { printf("address %u\n", a0); exit(1); } return bf16x2_low(h16(a0)); }
    if (!rowb) { printf("swizzle?\n"); exit(1); }
    uint32_t at;
    if (!trans) at = start + mn / 8 * sbo + mn % 8 * rowb + k * 2;
    else at = start + mn / (rowb / 2) * lbo + k / 8 * sbo + k % 8 * rowb + mn % (rowb / 2) * 2;
    at ^= sw == 1 ? (at >> 7 & 7) << 4 : (at >> 7 & 3) << 4;
    if (at >= 232448) { printf("address %u\n", at); exit(1); }
    return bf16x2_low(h16(at));
}
struct wg { float (*d)[4]; const uint32_t *a; uint64_t A, B; int add; };
static void wgmma(float (*d)[4], const uint32_t *a, uint64_t A, uint64_t B, int N, int tb, int neg, int add, int ta = 0)
{
    wg q = { d, a, A, B, add }; const int w = threadIdx.x / 32 % 4;
    coll(&q, [=](void **p) {
        static float X[16][16], Y[16][128];
        for (int r = 0; r < 16; r++) for (int k = 0; k < 16; k++) X[r][k] = a ? get(((wg *)p[r % 8 * 4 + k % 8 / 2])->a[r / 8 + k / 8 * 2], k % 2) : elem(A, 16 * w + r, k, ta);
        for (int k = 0; k < 16; k++) for (int n = 0; n < N; n++) Y[k][n] = elem(B, n, k, tb);
        for (int l = 0; l < 32; l++) { wg *z = (wg *)p[l]; if (z->A != A || z->B != B || z->add != add) { printf("lanes differ\n"); exit(1); }
            for (int t = 0; t < N / 8; t++) for (int j = 0; j < 4; j++) { const int r = l / 4 + j / 2 * 8, c = 8 * t + l % 4 * 2 + j % 2; float s = 0; for (int k = 0; k < 16; k++) s += X[r][k] * Y[k][c];
                z->d[t][j] = (add ? z->d[t][j] : 0) + (neg ? -s : s); } } });
}
template <int tb, int neg> static void wgmma_step_rs(float (*d)[4], const uint32_t *a, uint64_t b, int add) { wgmma(d, a, 0, b, 32, tb, neg, !!add); }
template <int ta, int tb> static void wgmma_step_ss(float (*d)[4], uint64_t X, uint64_t Y, int add) { wgmma(d, nullptr, X, Y, 32, tb, 0, !!add, ta); }
template <int ta, int tb> static void wgmma_half_step_ss(float (*d)[4], uint64_t X, uint64_t Y, int add) { wgmma(d, nullptr, X, Y, 16, tb, 0, !!add, ta); }
template <int ta, int tb> static void wgmma_two_steps_ss(float (*d)[4], uint64_t X, uint64_t Y, int add) { wgmma(d, nullptr, X, Y, 64, tb, 0, !!add, ta); }
static void wgmma_two_steps_rs(float (*d)[4], const uint32_t *a, uint64_t b) { wgmma(d, a, 0, b, 64, 0, 0, 1); }
template <int neg> static void wgmma_state_rs(float (*d)[4], const uint32_t *a, uint64_t b) { wgmma(d, a, 0, b, 128, 1, neg, 1); }
enum { DESC_HIGH_128 = 1u << 30 | 64, DESC_HIGH_64 = 2u << 30 | 32, DESC_HIGH_CORES = 128, DESC_LEAD_CORES = 8 };
static uint64_t smem_desc_at(uint32_t base, uint32_t high, uint32_t lead, int at) { return (uint64_t)high << 32 | (uint32_t)(base + (lead << 16) + (at >> 4)); }
static int swizzle128_offset(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }
struct float4 { float x, y, z, w; }; struct uint4 { uint32_t x, y, z, w; }; static uint4 make_uint4(uint32_t a, uint32_t b, uint32_t c, uint32_t d) { return { a, b, c, d }; }
typedef uint16_t bf16;
template <int rows> static void copy_swizzled_rows(bf16 *to, int64_t stride, int len, const bf16 *X)
{ const int row = threadIdx.x % 128 / 8, piece = threadIdx.x % 8; const char *from = (const char *)X + swizzle128_offset(row, piece);
  for (int i = 0; i < rows / 16; i++) if (row + 16 * i < len) *(uint4 *)(to + (row + 16 * i) * stride + piece * 8) = *(const uint4 *)(from + 2048 * i); }
static int __shfl_sync(unsigned, int x, int) { return x; }
static void wgmma_fence() {} static void wgmma_commit() {} template <int n> static void wgmma_wait() {} template <int n> static void fence_operand(float (*)[4]) {} static void fence_proxy_async() {}
struct bar { int n, left, ph; long tx; }; static std::map<uint64_t *, bar> bars;
static void flip(bar &b) { if (b.left < 0) { printf("too many arrivals\n"); exit(1); } if (!b.left && !b.tx) { b.ph++; b.left = b.n; progress++; } }
static void mbarrier_init(uint64_t *b, int n) { bars[b] = { n, n, 0, 0 }; }
static void mbarrier_arrive(uint64_t *p) { bar &b = bars[p]; b.left--; flip(b); }
static void mbarrier_arrive_expect_tx(uint64_t *p, uint32_t n) { bar &b = bars[p]; b.tx += n; b.left--; flip(b); }
static void mbarrier_wait(uint64_t *p, int phase) { while (!((bars[p].ph & 1) != (phase & 1))) yield_(); }
static int nb_cnt[16], nb_gen[16];
static void named_barrier_arrive(int id, int n) { if (++nb_cnt[id] == n) { nb_cnt[id] = 0; nb_gen[id]++; progress++; } }
static void named_barrier_sync(int id, int n) { const int g = nb_gen[id]; if (++nb_cnt[id] == n) { nb_cnt[id] = 0; nb_gen[id]++; progress++; } else while (nb_gen[id] == g) yield_(); }
struct CUtensorMap { uint16_t *p; int heads; int T; };
static int swz_(int row, int piece) { return row * 128 + ((piece ^ (row & 7)) << 4); }
static void box(const CUtensorMap &m, const void *sm, int ch, int n, int t, int store)
{ for (int r = 0; r < 32; r++) for (int p = 0; p < 8; p++) { uint16_t *f = m.p + ((size_t)(t + r) * m.heads + n) * 128 + ch + p * 8; char *s = (char *)sm + swz_(r, p); if (t + r >= m.T) { if (!store) memset(s, 0, 16); continue; } if (store) memcpy(f, s, 16); else memcpy(s, f, 16); } }
static void done(uint64_t *b, int n) { bars[b].tx -= n; flip(bars[b]); }
static void tma_load_3d(void *to, const CUtensorMap &m, int ch, int n, int t, uint64_t *b) { box(m, to, ch, n, t, 0); done(b, 4096); }
static void tma_store_3d(const CUtensorMap &m, const void *from, int ch, int n, int t) { box(m, from, ch, n, t, 1); }
static void tma_load_1d(void *to, const void *from, uint32_t n, uint64_t *b) { memcpy(to, from, n); done(b, n); }
static void tma_store_wait_read() {}

#define KCP_TILE_LAUNCH_CUH
#define KCP_TILE_MATH_CUH
#define KCP_TILE_NAMED_BARRIER_CUH
#define KCP_TILE_STEP_PRODUCTS_CUH
#define KCP_TILE_TMA_CUH
#define KCP_TILE_WARPGROUP_STORE_CUH
#include "kcp.h"
#include "cuda/18_hopper/backward_one/finish.cuh"
#include "host_one.h"
enum { TH = 512 };
static backward_one_params X; static backward_one_storage *M_; static backward_walk WK;
static void body(int t)
{
    const int wgn = t / 128;
    if (wgn < 2) chain_warpgroup(X, WK, wgn, 0, *M_); else finish_warpgroup(X, WK, wgn - 2, *M_);
    fin[t] = 1; swapcontext(&co[t], &main_c);
}
int main(int argc, char **argv)
{
    const int T = argc > 1 ? atoi(argv[1]) : 192, only = argc > 2 ? atoi(argv[2]) : -1, layout = argc > 3 ? atoi(argv[3]) : KCP_KV, F = 40;
    if (argc > 4) srand(atoi(argv[4]));
    g_base = (char *)aligned_alloc(1024, 1 << 18); stacks = (char *)malloc((size_t)640 << 17); M_ = (backward_one_storage *)g_base;
    printf("shared memory %zu\n", sizeof(backward_one_storage));
    for (int reg = 0; reg < 5; reg++) {
        if (only >= 0 && only != reg) continue;
        head a; make_head(a, T, reg, reg + 1);
        memset(g_base, 0xff, 1 << 18); memset(fin, 0, sizeof fin); memset(W_, 0, sizeof W_); bars.clear(); memset(nb_cnt, 0, sizeof nb_cnt);
        // rows F .. F + T - 1 of a rank that has foreign rows (NaN) on both sides
        const int TT = F + T + 50; const size_t NN = (size_t)TT * 128;
        std::vector<uint16_t> in[4], out[3]; for (int j = 0; j < 4; j++) { in[j].assign(NN, 0xffff); std::copy(a.rows[j].begin(), a.rows[j].end(), in[j].begin() + F * 128); }
        for (auto &o : out) o.assign(NN, 0x7a7a);
        std::vector<float> db(TT, 77), dx(NN, 77), dt(128), dA(1, NAN), ddt(128, NAN), h0(16384), dht(16384), dh0(16384, NAN);
        for (int i = 0; i < 128; i++) dt[i] = a.dt[i];
        for (int k = 0; k < 128; k++) for (int v = 0; v < 128; v++) dht[layout == KCP_KV ? k * 128 + v : v * 128 + k] = a.dht[k * 128 + v];
        float Alog = a.A;
        X = {}; kcp_backward &c = X.a; c.T = TT; c.H = c.HV = 1; c.K = c.V = c.KG = 128; c.layout = (kcp_layout)layout; c.l2norm = 1; c.scale = a.scale; c.lower_bound = -5; c.beta_form = KCP_BETA_SIGMOID;
        c.A_log = &Alog; c.dt_bias = dt.data(); c.dht = dht.data(); c.dh0 = dh0.data(); c.dv = out[2].data(); c.dg_raw = dx.data(); c.dbeta_raw = db.data();
        X.scale = a.scale; X.lower_bound = -5; X.records = (step_record *)a.rec.data(); X.dA_rows = dA.data(); X.ddt_rows = ddt.data(); X.dq = out[0].data(); X.dk = (bf16 *)out[1].data(); X.dv = (bf16 *)out[2].data();
        X.q = { in[0].data(), 1, TT }; X.k = { in[1].data(), 1, TT }; X.g = { in[2].data(), 1, TT }; X.of_dO = { in[3].data(), 1, TT };
        X.to_q = { out[0].data(), 1, TT }; X.to_k = { out[1].data(), 1, TT }; X.to_v = { out[2].data(), 1, TT };
        WK = { 0, 0, F, T, (T + 31) / 32, 0, 0 };
        init_backward_barriers(*M_); for (int i = 0; i < 128; i++) M_->dt_bias[i] = dt[i];
        for (int t = 0; t < TH; t++) { getcontext(&co[t]); co[t].uc_stack.ss_sp = stacks + ((size_t)t << 17); co[t].uc_stack.ss_size = 1 << 17; co[t].uc_link = &main_c; makecontext(&co[t], (void (*)())body, 1, t); }
        for (int left = TH, idle = 0; left;) { const long was = progress; left = 0;
            const int turn = rand() % 16; static int slow = -1; if (rand() % 200 == 0) slow = rand() % (TH / 128); const int mask = slow >= 0 ? (rand() % 20 ? 15 << 4 * slow : 0) : rand() & 0xfffff; for (int u = 0; u < TH; u++) { const int t = (u / 32 + turn) % (TH / 32) * 32 + u % 32; if (fin[t]) continue; left++; if (mask >> (t / 32) & 1) continue; left--; threadIdx.x = t; swapcontext(&main_c, &co[t]); left += !fin[t]; }
            idle = progress == was ? idle + 1 : 0; if (idle > 4000) { printf("HANG\n"); for (int w = 0; w < 16; w++) printf("%d ", fin[w * 32]); return 1; } }
        const char *names[] = { "live", "decayed", "undecayed", "mixed", "strong" };
        const vd *ref[3] = { &a.dq, &a.dk, &a.dv }; const char *nm[3] = { "dq", "dk", "dv" };
        printf("%-10s", names[reg]);
        int foreign = 0;
        for (int j = 0; j < 3; j++) { std::vector<double> y((size_t)T * 128); for (size_t i = 0; i < y.size(); i++) y[i] = bf_val(out[j][i + F * 128]); printf("%s %.2e ", nm[j], rel(*ref[j], y));
            for (size_t i = 0; i < NN; i++) if (i < (size_t)F * 128 || i >= (size_t)(F + T) * 128) foreign |= out[j][i] != 0x7a7a; }
        { std::vector<double> y((size_t)T * 128); for (size_t i = 0; i < y.size(); i++) y[i] = dx[i + F * 128]; printf("dg %.2e ", rel(a.dx, y)); }
        for (size_t i = 0; i < NN; i++) if (i < (size_t)F * 128 || i >= (size_t)(F + T) * 128) foreign |= dx[i] != 77;
        for (int t = 0; t < TT; t++) if (t < F || t >= F + T) foreign |= db[t] != 77;
        std::vector<double> y(T), u(128), z(16384); for (int t = 0; t < T; t++) y[t] = db[t + F]; for (int i = 0; i < 128; i++) u[i] = ddt[i];
        for (int k = 0; k < 128; k++) for (int v = 0; v < 128; v++) z[k * 128 + v] = dh0[layout == KCP_KV ? k * 128 + v : v * 128 + k];
        printf("dbeta %.2e dA %.2e ddt %.2e dh0 %.2e%s\n", rel(a.db, y), fabs(dA[0] - a.dA) / fabs(a.dA), rel(a.ddt, u), rel(a.dh0, z), foreign ? " FOREIGN" : ""); fflush(stdout);
    }
}
