// v4_wide_sm90.cu -- K = 256: the reverse scan, one block per 64 columns of V.
// Book: chapter 18, "Keys of 256 channels".
#include "cuda/tile/wide_reverse.cuh"
#include "cuda/host/stages_v2.cuh"

// Bound: 6 C K 64 sequential flops per chunk, 1536 cycles of the tensor core.
static __global__ __launch_bounds__(WIDE_THREADS, 1)
void reverse_wide(const struct kcp_chunk_backward a,
                  const __grid_constant__ CUtensorMap dh)
{
    extern __shared__ __align__(1024) unsigned char shared[];
    const int s = blockIdx.x, n = blockIdx.y;
    const int64_t state = ((int64_t)s * a.HV + n) * ROWS_K * a.V;
    reverse_block<1>(a, s, n, blockIdx.z * 64,
                     a.dh_out ? (const float *)a.dh_out + state : NULL,
                     (float *)a.dh_in + state, a.V, &dh,
                     (struct reverse_storage *)shared);
}

int v4_chunk_backward(void *args)
{
    const struct kcp_chunk_backward *a = (const struct kcp_chunk_backward *)args;
    const void *p[] = { a->q, a->k, a->qg, a->kg, a->w, a->Aqk, a->v_new, a->do_,
                        a->dv_local, a->dU, a->dh, a->dAqk };
    const size_t bytes = sizeof(struct reverse_storage);
    if (a->C != CHUNK || a->K != ROWS_K || a->V % 64) return KCP_NA;
    if (!device_is_sm90()) return KCP_NA;
    if (!(a->part & (KCP_LOCAL | KCP_REVERSE))) return KCP_BAD;
    if (!all_aligned_16(p)) return KCP_NA;
    if (!a->NS) return KCP_OK;
    struct kcp_chunk_backward local = *a;
    local.part = KCP_LOCAL;              // this part does not depend on K
    int status = KCP_OK;
    if (a->part & KCP_LOCAL && a->NC) status = v2_chunk_backward(&local);
    if (status || !(a->part & KCP_REVERSE)) return status;
    CUtensorMap dh;
    if (!wide_store_map(&dh, a->dh, a->NC, a->HV, a->V)) return KCP_NA;
    return launch_shared(reverse_wide, dim3(a->NS, a->HV, a->V / 64), WIDE_THREADS,
                         bytes, a->stream, *a, dh);
}

KCP_VARIANT(chunk_backward_v4_wide) = {
    "09_chunk_backward", "v4_wide_sm90", "K = 256: a warpgroup holds 64 columns of dS",
    KCP_BF16, KCP_DEVICE, "K 256, V a multiple of 64, C 64; sm_90a", v4_chunk_backward,
    NULL };
