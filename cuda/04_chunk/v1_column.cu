// v1_column.cu -- state scan and output, with one thread per column of the state.
// Book: chapter 04, "Code: kernels".
#include "cuda/tile/device.cuh"
#include "cuda/host/stages_v1.cuh"

// Bound: latency, because the chunks of a stretch (a token range of one sequence) are
// sequential. A chunk costs 6 C K V + C^2 V flops. Column v of the new state depends
// only on column v of the old state, so thread v keeps column v of S and v_new in local
// memory, and no barrier is needed. All threads read the same w, q, k.
template <class X>
static __global__ void chunk(const struct kcp_chunk a)
{
    const int *cn = (const int *)a.cn;
    const int s = blockIdx.x, n = blockIdx.y, v = threadIdx.x;
    const float *h_in = (const float *)a.h_in;
    const int64_t state = ((int64_t)s * a.HV + n) * a.K;
    float S[KMAX], x[CMAX];

    for (int i = 0; i < a.K; i++) S[i] = h_in ? h_in[(state + i) * a.V + v] : 0.0f;
    for (int c = cn[s]; c < cn[s + 1]; c++) {
        const struct token_range z = chunk_tokens(a, s, c);
        const int64_t last = z.t + z.len - 1;
        for (int i = 0; i < a.K && a.h; i++)
            ((X *)a.h)[(((int64_t)c * a.HV + n) * a.K + i) * a.V + v] = S[i];

        //> kernel-v-new
        for (int i = 0; i < z.len; i++) {
            const X *w = in<X>(a.w, z.t + i, a.HV, n, a.K);
            x[i] = in<X>(a.u, z.t + i, a.HV, n, a.V)[v];
            for (int p = 0; p < a.K; p++) x[i] -= (float)w[p] * S[p];
            if (a.v_new) out<X>(a.v_new, z.t + i, a.HV, n, a.V)[v] = x[i];
        }
        //< kernel-v-new
        for (int i = 0; i < z.len && a.o; i++) {
            const struct gated<X> q = gated_q<X>(a, z.t + i, n);
            const X *Aqk = in<X>(a.Aqk, z.t + i, a.HV, n, a.C);
            float o = 0.0f;
            for (int p = 0; p < a.K; p++) o += (float)q.x[p] * S[p];
            o *= (float)a.scale * q.e;
            for (int j = 0; j <= i; j++) o += (float)Aqk[j] * x[j];
            out<X>(a.o, z.t + i, a.HV, n, a.V)[v] = o;
        }
        for (int i = 0; i < a.K; i++) S[i] *= exp2f(gate(a, last, n, i));
        for (int j = 0; j < z.len; j++) {
            const struct gated<X> k = gated_k<X>(a, z.t + j, n, last);
            for (int i = 0; i < a.K; i++) S[i] += (float)k.x[i] * (k.e * x[j]);
        }
    }
    for (int i = 0; i < a.K; i++) ((float *)a.h_out)[(state + i) * a.V + v] = S[i];
}

template <class X>
int v1_chunk(void *args)
{
    const struct kcp_chunk *a = (const struct kcp_chunk *)args;
    if (!v1_takes((const struct kcp_call *)a)) return KCP_NA;
    if (a->NS) chunk<X><<<dim3(a->NS, a->HV), a->V, 0, a->stream>>>(*a);
    return launched();
}

KCP_VARIANT_PAIR(chunk_v1_column, "04_chunk", "v1_column",
    "one block per stretch and head, one thread per column",
    "K, V up to 256, C up to 64", v1_chunk<X>);
