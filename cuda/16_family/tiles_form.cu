// tiles_form.cu -- u, w, kg, qg, Aqk (the form) on tensor cores: all models, all sizes.
// Book: chapter T, "Chapter 16: the family".
#include "v2_form.cuh"
#include "v2_sizes.cuh"

template <int model, int K, int V>
static int one_size(const struct family *x)
{
    const size_t bytes = sizeof(struct form_storage<model, K, V>);
    return launch_shared(make_form<model, K, V>, dim3(x->NC, x->a.HV),
                         traits<model>::threads, bytes, x->a.stream, *x);
}

int family_tiles_form(const struct family *x)
{
    if (x->a.model == KCP_DPLR) return any_size<KCP_DPLR>(x);
    if (x->a.model == KCP_GDN2) return any_size<KCP_GDN2>(x);
    return any_size<KCP_GLA>(x);
}
