/* checks.c -- compares chapter 17's reference with chapter 04, and emulated
 * instructions with the PTX manual.
 * Book: chapter 17. */
#include "ref/17_block.h"
#include "tests/03_wy/batch.h"

/* Compares v_new and the last states of ref_ladder with those of chapter 04. ref_ladder
 * needs one gate per channel. */
static int chunk_of(struct kcp_report *rep, struct batch *x, const char *what)
{
    struct tensor_set own = { .n = 0 };
    if (x->c.model != KCP_KDA) return KCP_OK;
    tensor_set_copy(&own, &x->set);
    const int status = batch_stage(x, &own, "17_ladder");
    const double v = batch_apart(x, "v_new", &own, "v_new");
    const double S = batch_apart(x, "h_out", &own, "h_out");
    EXPECT(rep, status || (v <= 1e-13 && S <= 1e-13), "%s: v_new differs from v_new of "
           "chapter 04 by %g, and the state by %g", what, v, S);
    tensor_set_free(&own);
    return status;
}

static int is_chunk(struct kcp_report *rep)
{
    return batch_each(rep, UP_TO_GATE, chunk_of);
}
KCP_CHECK(check_17_is_chunk) = { "17_ladder", "is_chunk",
    "v_new and states equal those of the scan of chapter 04", is_chunk };

/* Checks mma with random A and B whose elements are placed as in the PTX manual. */
static int fragments(struct kcp_report *rep)
{
    struct stream s = stream_of(17, "fragments");
    double A[16][16], B[16][8], worst = 0;
    struct fragment_a a;
    struct fragment_b b;
    struct fragment_d d = { 0 };
    for (int i = 0; i < 256; i++) A[i / 16][i % 16] = normal(&s);
    for (int i = 0; i < 128; i++) B[i / 8][i % 8] = normal(&s);
    for (int l = 0; l < LANES; l++) {
        const int g = l / 4, e = l % 4 * 2;
        const double of_a[] = { A[g][e], A[g][e + 1], A[g + 8][e], A[g + 8][e + 1],
                                A[g][e + 8], A[g][e + 9], A[g + 8][e + 8],
                                A[g + 8][e + 9] };
        const double of_b[] = { B[e][g], B[e + 1][g], B[e + 8][g], B[e + 9][g] };
        memcpy(a.x[l], of_a, sizeof of_a);
        memcpy(b.x[l], of_b, sizeof of_b);
    }
    warp_mma(&d, &a, &b);
    for (int l = 0; l < LANES; l++)
        for (int x = 0; x < 4; x++) {
            const int row = l / 4 + x / 2 * 8, column = l % 4 * 2 + x % 2;
            double want = 0;
            for (int p = 0; p < 16; p++) want += A[row][p] * B[p][column];
            worst = fmax(worst, fabs(want - d.x[l][x]));
        }
    EXPECT(rep, worst <= 1e-13, "mma is off by %g", worst);
    return KCP_OK;
}
KCP_CHECK(check_17_fragments) = { "17_ladder", "fragments",
    "the emulated mma instruction places fragments as in the PTX manual", fragments };

/* Checks how many reads of shared memory ldmatrix needs per 16 x 16 block for several
 * row pitches, and for swizzled rows. Chapter 17 quotes these numbers. */
static int banks(struct kcp_report *rep)
{
    static const struct { const char *what; int pitch, swizzled, times; } row[] = {
        { "rows of 256 bytes", 256, 0, 32 }, { "rows of 272 bytes", 272, 0, 4 },
        { "rows of 128 bytes", 128, 0, 32 }, { "swizzled rows", 128, 1, 4 },
        { "rows of 144 bytes", 144, 0, 4 }, { "rows of 64 bytes", 64, 0, 16 } };
    static double tile[64 * 136], r[LANES][8];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        for (int block = 0; block < 4; block++) {
            int byte[LANES];
            for (int l = 0; l < LANES; l++) {
                const int y = l % 8 + l / 16 * 8, piece = (2 * block + l / 8 % 2) % 8;
                const int place = row[i].swizzled ? piece ^ y % 8 : piece;
                byte[l] = y * row[i].pitch + 16 * place;
            }
            const int times = warp_ldmatrix(r, tile, byte, 0);
            EXPECT(rep, times == row[i].times, "%s: %d reads, expected %d", row[i].what,
                   times, row[i].times);
        }
    return KCP_OK;
}
KCP_CHECK(check_17_banks) = { "17_ladder", "banks",
    "ldmatrix takes 4 reads of shared memory per block if rows are padded or "
    "swizzled, and otherwise 16 or 32 reads", banks };

/* Checks that ref_ladder_banks needs four reads per 16 x 16 block. If V = 16, a chunk
 * reads w and kg once. Each has 64 rows and K = 128 columns, thus 4 x 8 blocks. */
static int swizzled(struct kcp_report *rep)
{
    enum { T = 130, K = 128, V = 16 };
    static double u[T * V], w[T * K], kg[T * K], decay[3 * K], v_new[T * V], h[K * V];
    static const int cu[] = { 0, T }, cn[] = { 0, 3 }, sc[] = { 0, 0, 0 };
    int64_t times = 0;
    struct kcp_ladder a = { .T = T, .N = 1, .NS = 1, .NC = 3, .R = 1, .H = 1, .HV = 1,
                            .K = K, .V = V, .C = 64, .KG = K, .work = &times,
                            .work_bytes = sizeof times, .cu = cu, .cn = cn, .sc = sc,
                            .u = u, .w = w, .kg = kg, .decay = decay, .v_new = v_new,
                            .h_out = h };
    const int status = ref_ladder_banks(&a);
    EXPECT(rep, times == 3 * 2 * 8 * 4 * 4, "%lld reads of shared memory, expected %d",
           (long long)times, 3 * 2 * 8 * 4 * 4);
    return status;
}
KCP_CHECK(check_17_swizzled) = { "17_ladder", "swizzled",
    "the swizzled scan has no bank conflict", swizzled };

/* Checks how many sectors of 32 bytes a load fetches. If each lane loads 16
 * contiguous bytes, a warp fetches 16 sectors from one row. From 32 rows it fetches
 * 32 sectors, and uses half of each. One number per lane from 32 rows also takes 32
 * sectors. */
static int sectors(struct kcp_report *rep)
{
    static const struct { const char *what; int pitch, count, sectors; } row[] = {
        { "16 bytes per lane, contiguous", 8, 8, 16 },
        { "16 bytes per lane, in 32 rows", 128, 8, 32 },
        { "a number per lane, 1 row", 1, 1, 2 },
        { "a number per lane, 32 rows", 128, 1, 32 } };
    static double from[LANES * 128], to[LANES * 8];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        int64_t at[LANES];
        int place[LANES], count[LANES];
        for (int l = 0; l < LANES; l++) {
            at[l] = l * row[i].pitch;
            place[l] = l * 8;
            count[l] = row[i].count;
        }
        const int n = block_load(to, place, from, at, count);
        EXPECT(rep, n == row[i].sectors, "%s: %d sectors, expected %d", row[i].what, n,
               row[i].sectors);
    }
    return KCP_OK;
}
KCP_CHECK(check_17_sectors) = { "17_ladder", "sectors",
    "a load by a warp fetches each sector only once, even if several lanes use it",
    sectors };

static int in_flight(struct kcp_report *rep)
{
    const double from[] = { 1, 2, 3, 4 };
    double to[] = { 0, 0, 0, 0 };
    struct block_copies q = { .n = 0 };
    block_async(&q, to, from, 1, 1, 2);
    block_commit(&q);
    EXPECT(rep, isnan(to[0]) && isnan(to[1]),
           "the destination has numbers before the wait, expected NaN");
    block_async(&q, to + 2, from + 2, 1, 1, 2);
    block_commit(&q);
    block_wait(&q, 1);
    EXPECT(rep, to[1] == 2 && isnan(to[2]),
           "a wait for all groups but one completes the wrong copies");
    block_wait(&q, 0);
    EXPECT(rep, to[2] == 3 && to[3] == 4 && !q.n,
           "a wait for all groups leaves a copy incomplete");
    return KCP_OK;
}
KCP_CHECK(check_17_in_flight) = { "17_ladder", "in_flight",
    "the destination of an asynchronous copy is NaN before the wait and complete "
    "after it", in_flight };

static int phases(struct kcp_report *rep)
{
    const double from[] = { 1, 2 };
    double to[2];
    struct block_copies q = { .n = 0 };
    struct block_barrier b;
    block_barrier_init(&b, 2);
    EXPECT(rep, block_passed(&b, -1) && !block_passed(&b, 0), "a new barrier is wrong");
    block_arrive_expect(&b, 4);
    block_tma(&q, to, from, 0, 1, 2, &b);
    block_arrive(&b);
    EXPECT(rep, !block_passed(&b, 0), "the first phase ends before its bytes arrive");
    block_carry_out(&q, 0);
    EXPECT(rep, block_passed(&b, 0) && !block_passed(&b, 1),
           "the first phase does not end, or the second has ended");
    block_arrive(&b);
    EXPECT(rep, !block_passed(&b, 1),
           "the second phase ends after one of two arrivals");
    block_arrive(&b);
    EXPECT(rep, block_passed(&b, 1), "the second phase does not end");
    return KCP_OK;
}
KCP_CHECK(check_17_phases) = { "17_ladder", "phases",
    "a phase of an mbarrier completes exactly when all threads and all bytes have"
    " arrived", phases };

/* Checks that only descriptors without a wrong field give the right result. */
static int descriptors(struct kcp_report *rep)
{
    enum { TILE = TILE_ROWS * TILE_COLUMNS };
    static const struct { const char *what; uint64_t bits; int same; } row[] = {
        { "as in cuda/tile/smem_desc.cuh", 1ull << 62 | 64ull << 32 | 1 << 16, 1 },
        { "with leading offset 0, which is not read", 1ull << 62 | 64ull << 32, 1 },
        { "without swizzle", 64ull << 32, 0 },
        { "with 64-byte swizzle", 2ull << 62 | 64ull << 32, 0 },
        { "with a stride in bytes", 1ull << 62 | 1024ull << 32, 0 },
        { "with a base offset", 1ull << 62 | 1ull << 49 | 64ull << 32, 0 } };
    static double rows[64 * 64], tile[16 * TILE], a[64][16], d[64 * 64];
    struct stream s = stream_of(17, "descriptors");
    for (int i = 0; i < 64 * 64; i++) rows[i] = normal(&s);
    for (int i = 0; i < 64 * 16; i++) a[i / 16][i % 16] = normal(&s);
    warp_tma_load(tile, rows, 64, 64, 64);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        double worst = 0;
        memset(d, 0, sizeof d);
        warpgroup_mma(d, 64, (const double (*)[16])a, tile, row[i].bits + 2, 0);
        for (int y = 0; y < 64; y++)
            for (int x = 0; x < 64; x++) {
                double want = 0;
                for (int k = 0; k < 16; k++) want += a[y][k] * rows[64 * x + 16 + k];
                if (!(fabs(d[64 * y + x] - want) <= worst))
                    worst = isnan(d[64 * y + x]) ? 1 : fabs(d[64 * y + x] - want);
            }
        EXPECT(rep, (worst <= 1e-12) == row[i].same, "descriptor %s: off by %g, "
               "expected %s", row[i].what, worst, row[i].same ? "<= 1e-12" : "more");
    }
    return KCP_OK;
}
KCP_CHECK(check_17_descriptors) = { "17_ladder", "descriptors",
    "the emulated wgmma reads operand B through its descriptor", descriptors };

static int run_lanes(void *a) { return ref_ladder_lanes(a); }
static int run_banks(void *a) { return ref_ladder_banks(a); }
KCP_VARIANT(ladder_lanes) = { "17_ladder", "lanes", "32 lanes in C: mma fragments",
    KCP_F64, KCP_HOST, "K up to 256, C up to 64", run_lanes, NULL };
KCP_VARIANT(ladder_banks) = { "17_ladder", "banks", "32 lanes in C: swizzled tiles",
    KCP_F64, KCP_HOST, "K up to 256, C up to 64", run_banks, NULL };

static int run_threads(void *a) { return ref_ladder_threads(a); }
static int run_shared(void *a) { return ref_ladder_shared(a); }
static int run_stages(void *a) { return ref_ladder_stages(a); }
static int run_wgmma(void *a) { return ref_ladder_wgmma(a); }
static int run_roles(void *a) { return ref_ladder_roles(a); }
KCP_VARIANT(ladder_threads) = { "17_ladder", "threads", "in C: one thread per column",
    KCP_F64, KCP_HOST, "K up to 256, C up to 64", run_threads, NULL };
KCP_VARIANT(ladder_shared) = { "17_ladder", "shared", "in C: tiles in shared memory",
    KCP_F64, KCP_HOST, "K up to 256, C up to 64", run_shared, NULL };
KCP_VARIANT(ladder_stages) = { "17_ladder", "stages", "in C: async copies",
    KCP_F64, KCP_HOST, "any", run_stages, NULL };
KCP_VARIANT(ladder_wgmma) = { "17_ladder", "wgmma", "in C: wgmma descriptors",
    KCP_F64, KCP_HOST, "K up to 256, C up to 64", run_wgmma, NULL };
KCP_VARIANT(ladder_roles) = { "17_ladder", "roles",
    "in C: one producer and several consumers",
    KCP_F64, KCP_HOST, "any", run_roles, NULL };
