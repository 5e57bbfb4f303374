// v1_stages.cu -- writes any model as rows u, w, kg, qg, Aqk for the v1 kernels.
// Book: chapter 16, "Code: kernels".
#include "program.cuh"
#include "v1_back.cuh"

template <class X>
static int launch_form(const struct family *x)
{
    const struct kcp_family *a = &x->a;
    const size_t rows = (size_t)a->T * x->m * a->HV * sizeof(X);
    const dim3 grid(x->NC, a->HV);
    cudaMemsetAsync(x->w, 0, rows * a->K, a->stream);
    cudaMemsetAsync(x->qg, 0, rows * a->K, a->stream);
    cudaMemsetAsync(x->Aqk, 0, rows * x->C * x->m, a->stream);
    family_gate<<<grid, a->K, 0, a->stream>>>(*x);
    family_scores<X><<<grid, 256, 0, a->stream>>>(*x);
    family_columns<X><<<grid, a->K + a->V, 0, a->stream>>>(*x);
    return launched();
}

template <class X>
static int launch_back(const struct family *x)
{
    const struct kcp_family *a = &x->a;
    const dim3 grid(x->NC, a->HV);
    family_solve_back<X><<<grid, a->V, 0, a->stream>>>(*x);
    family_pairs_back<X><<<grid, 256, 0, a->stream>>>(*x);
    family_channels_back<X><<<dim3(x->NC, a->H), a->K, 0, a->stream>>>(*x);
    return launched();
}

template <class X>
static struct engine v1_engine(const void *args)
{
    return { stages_v1<X>("16_family", args), launch_form<X>, launch_back<X>, 0, NULL,
             NULL, NULL };
}

KCP_VARIANT_PAIR(family_v1_stages, "16_family", "v1_stages",
    "writes the model as rows of KDA, then runs KDA's v1 kernels on them",
    "K, V up to 256",
    [](void *args) {
        return family_run<X>((const struct kcp_family *)args, v1_engine<X>(args));
    },
    [](const void *args) {
        return family_work<X>((const struct kcp_family *)args, v1_engine<X>(args));
    });
