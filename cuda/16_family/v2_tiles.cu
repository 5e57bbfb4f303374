// v2_tiles.cu -- the tensor-core variant for DPLR, GDN-2 and GLA.
// Book: chapter T, "Chapter 16: the family".
#include "program.cuh"
#include "v2_back_storage.cuh"
#include "v2_scan.cuh"
#include "v2_sizes.cuh"
#include "cuda/host/stages_v2.cuh"

// Returns KCP_NA if this GPU has too little shared memory per block.
template <int model, int K, int V>
static int one_size(const struct family *)
{
    const size_t need[] = { sizeof(struct form_storage<model, K, V>),
                            sizeof(struct back_storage<model, K, V>),
                            model == KCP_DPLR ? sizeof(struct scan_pipeline<K>) : 0 };
    int device = 0, has = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&has, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    for (size_t bytes : need)
        if (bytes > (size_t)has) return KCP_NA;
    return KCP_OK;
}

static int fits(const struct family *x)
{
    if (x->a.model == KCP_DPLR) return any_size<KCP_DPLR>(x);
    if (x->a.model == KCP_GDN2) return any_size<KCP_GDN2>(x);
    return any_size<KCP_GLA>(x);
}

static int launch_scan(const struct program *x)
{
    void *keep = x->f.a.pass == KCP_BACKWARD ? x->h : NULL;
    if (!x->f.a.NS) return KCP_OK;
    return x->f.a.K == 64 ? launch_dplr_scan<64, 0>(&x->f, x->states, x->h_out, keep)
                          : launch_dplr_scan<128, 0>(&x->f, x->states, x->h_out, keep);
}

static int launch_reverse(const struct program *x)
{
    if (!x->f.a.NS) return KCP_OK;
    return x->f.a.K == 64 ? launch_dplr_scan<64, 1>(&x->f, x->ends, x->dh_in, x->dh)
                          : launch_dplr_scan<128, 1>(&x->f, x->ends, x->dh_in, x->dh);
}

static int launch_local(const struct program *x)
{
    const struct kcp_family *a = &x->f.a;
    dplr_local<<<dim3(x->f.NC, a->HV, a->V / 64), 128, 0, a->stream>>>(x->f,
                                                                       x->dv_local);
    return launched();
}

static struct engine v2_engine(const void *args)
{
    return { stages_v2("16_family", "v2_tiles", args), family_tiles_form,
             family_tiles_back, 1, launch_scan, launch_local, launch_reverse };
}

static int family_v2_tiles_run(void *args)
{
    const struct kcp_family *a = (const struct kcp_family *)args;
    const struct engine by = v2_engine(a);
    if (!by.t.path) return KCP_NA;
    struct family x = {};
    x.a = *a;
    const int status = fits(&x);
    return status ? status : family_run<bf16>(a, by);
}

static size_t family_v2_tiles_work(const void *args)
{
    const struct engine by = v2_engine(args);
    return family_work<bf16>((const struct kcp_family *)args, by);
}

KCP_VARIANT(family_v2_tiles) = {
    "16_family", "v2_tiles",
    "tensor cores compute the form (u, w, kg, qg, Aqk) in tiles",
    KCP_BF16, KCP_DEVICE, "K and V 64 or 128", family_v2_tiles_run,
    family_v2_tiles_work };
