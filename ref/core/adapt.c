/* adapt.c -- the call that runs for a call whose sizes or type no fast kernel takes.
 * Book: chapter 18.
 *
 * Columns of a state do not depend on one another, so a value head of V = 128 m columns
 * is m value heads of 128 columns with the same q, k, gate and beta. Channels of q, k
 * that are 0 change no output, so K below 128 is padded with zeros. q, k, v, o and
 * their gradients of f16 are converted from and to bf16. */
#include "paths.h"

void kcp_adapt(const struct kcp_call *c, struct kcp_call *inner)
{
    const int wide = c->K > 64 || c->V > 64 ? 128 : 64;
    const int parts = (c->V + wide - 1) / wide;
    *inner = *c;
    inner->K = inner->V = wide;
    inner->HV = c->HV * parts;
    if (c->model == KCP_KDA) inner->KG = wide;
    if (c->q_type != KCP_TYPE_F16) return;
    inner->q_type = KCP_AS_Q;
    inner->g_type = kcp_type_of(c, KCP_G, KCP_BF16);
    inner->beta_type = kcp_type_of(c, KCP_BETA, KCP_BF16);
}

const struct kcp_path *kcp_adapt_path(const struct kcp_call *inner, int backward,
                                      int saved)
{
    struct kcp_device d;
    if (kcp_device_here(&d)) d = kcp_device_assumed();
    struct kcp_query q = { .stage = "08_forward", .storage = KCP_BF16, .call = inner,
                           .device = &d, .saved = saved || backward };
    const struct kcp_path *p = kcp_path_find(&q, NULL, NULL, 0);
    if (!p || !backward) return p;
    q.stage = "13_backward";
    q.format = p->format;
    return kcp_path_find(&q, NULL, NULL, 0);
}
