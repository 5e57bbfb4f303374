// finish_storage.cuh -- KDA's finishing kernel: parameters, shared storage, fragments.
// Book: chapter 18, "Code: kernels".
// Checked by: bench/finish.cu, tests/13_backward/checks.c.
// Next: finish_producer.cuh.
#ifndef KCP_FINISH_STORAGE_CUH
#define KCP_FINISH_STORAGE_CUH

#include "cuda/18_hopper/backward/storage.cuh"
#include "cuda/tile/named_barrier.cuh"

enum { SUBCHUNKS = 4 }; // of 16 tokens

// The launchers behind backward_finish, each with its kernels an object of its own.
// marks: a byte for each pair of a chunk and a query/key head, all 0.
int kda_finish_64(const struct backward_params *x, unsigned char *marks, int blocks);
int gdn_finish(const struct backward_params *x, int processors);

// Of a chunk and value head, by parts that arrive and are released together: dO and
// v_new; dv and h; dS; and, in two stages, the rows of q, k and the gate.
enum { PART_dO, PART_h, PART_dS, PART_ROWS, PARTS = PART_ROWS + 2 };

// What belongs to a chunk's rows. The factors of the norms' projection take the place
// of the norms.
template <int K>
struct finish_vectors {
    float rstd_q[CHUNK], rstd_k[CHUNK], dt_bias[K];
    int t, len, c, n; // first token, how many; chunk, value head
    float exp_A, none[3];
};

template <int K>
struct finish_rows {
    unsigned char q[K / 64][TILE_BYTES], k[K / 64][TILE_BYTES], g[K / 64][TILE_BYTES];
};

// All in swizzle128 tiles: tokens by channels of K or V, 64 each; h and dS have tiles
// of 64 rows of K by 64 columns of V. dA and dB are the chunk's triangles.
template <int K>
struct shared_storage {
    unsigned char h[K / 64][K / 64][TILE_BYTES], dS[K / 64][K / 64][TILE_BYTES];
    unsigned char dO[K / 64][TILE_BYTES], v_new[K / 64][TILE_BYTES],
        dv[K / 64][TILE_BYTES];
    struct finish_rows<K> rows[2];
    unsigned char dA[TILE_BYTES], dB[TILE_BYTES];
    float dA_diagonal[CHUNK], dv_v_new[CHUNK];
    struct finish_vectors<K> of[2];
    uint64_t full[PARTS], empty[PARTS], sums_full;
};

// The consumers: a warpgroup 64 channels, a warp 16, all tokens of the chunk.
template <int K>
struct finish_threads {
    enum { CONSUMERS = 2 * K, ALL = 2 * K + 128, BLOCKS = K == 128 ? 1 : 2 };
};

// Where a chunk lies, read from shared memory each time: a register that is kept
// is one that a tile lacks.
struct position {
    int64_t t;
    int len, c, n;
};

template <int K>
static __device__ __forceinline__ struct position position_of(
    const struct finish_vectors<K> &of)
{
    const uint2 tokens = ld_shared_v2(&of.t), head = ld_shared_v2(&of.c);
    return { tokens.x, (int)tokens.y, (int)head.x, (int)head.y };
}

// A warp has 16 channels by 64 tokens, as D tiles, channels along M: with g = lane / 4
// and e = 2 (lane % 4), element [t][2 h + j] is channel g + 8 h, token 8 t + e + j. In
// bf16 a pair of tokens is one register, [t][h], and two neighbouring tiles are an A.
typedef uint32_t pairs_of_tokens[8][2];

// Warps beside the consumers have sums over v of h dS, of each channel. They lie above
// the diagonal of dB, where nothing else does.
template <int K>
static __device__ __forceinline__ float *h_dS_of(struct shared_storage<K> &smem,
                                                 int channel)
{
    const int piece = channel / 4;
    return (float *)(smem.dB + swizzle128_offset(piece % 16, 2 + piece / 16))
           + channel % 4;
}

struct place {
    int g, e, warp, channel;
};

static __device__ __forceinline__ struct place place_of_thread(void)
{
    const int thread = opaque_thread_id(), lane = thread % 32;
    return { lane / 4, lane % 4 * 2, thread / 32 % 4, thread / 32 * 16 + lane / 4 };
}

// Where a warp's lanes point in a tile [64 tokens][64 channels], to read its 16
// channels transposed, or to write them so: 16 tokens a step, 2048 bytes on.
static __device__ __forceinline__ int channels_offset(void)
{
    const int lane = opaque_thread_id() % 32, warp = opaque_thread_id() / 32 % 4;
    return swizzle128_offset(lane % 8 + lane / 16 * 8, 2 * warp + lane / 8 % 2);
}

static __device__ __forceinline__ void load_channels(pairs_of_tokens &x,
                                                     const unsigned char *tile)
{
    const unsigned char *from = tile + channels_offset();
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++) {
        uint32_t y[4];
        ldmatrix_x4_trans(y, (const bf16 *)(from + I * 2048));
        x[2 * I][0] = y[0];
        x[2 * I][1] = y[1];
        x[2 * I + 1][0] = y[2];
        x[2 * I + 1][1] = y[3];
    }
}

static __device__ __forceinline__ void store_channels(unsigned char *tile,
                                                      const pairs_of_tokens &x)
{
    unsigned char *to = tile + channels_offset();
    #pragma unroll
    for (int I = 0; I < SUBCHUNKS; I++) {
        const uint32_t y[4] = { x[2 * I][0], x[2 * I][1], x[2 * I + 1][0],
                                x[2 * I + 1][1] };
        stmatrix_x4_trans((bf16 *)(to + I * 2048), y);
    }
}

static __device__ __forceinline__ uint32_t mul_bf16x2(uint32_t x, uint32_t y)
{
    const __nv_bfloat162 z =
        __hmul2(*(const __nv_bfloat162 *)&x, *(const __nv_bfloat162 *)&y);
    return *(const uint32_t *)&z;
}

// Subchunk I of a warp's rows as operand A, and the same times one power of two a
// channel, which is exact.
static __device__ __forceinline__ void operand_a(uint32_t *a, const pairs_of_tokens &x,
                                                 int I)
{
    a[0] = x[2 * I][0];
    a[1] = x[2 * I][1];
    a[2] = x[2 * I + 1][0];
    a[3] = x[2 * I + 1][1];
}

static __device__ __forceinline__ void scaled_operand_a(uint32_t *a,
                                                        const pairs_of_tokens &x, int I,
                                                        const uint32_t *power)
{
    operand_a(a, x, I);
    #pragma unroll
    for (int i = 0; i < 4; i++) a[i] = mul_bf16x2(a[i], power[i % 2]);
}

#endif
