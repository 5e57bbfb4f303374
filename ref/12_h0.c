/* 12_h0.c -- selects the initial states to save, and restores all initial states.
 * Book: chapter 12. */
#include "checked.h"
#include "ref.h"

#include <string.h>

/* compress (forward):  h_kept = h_in[0]
 * expand (backward):   h_back[0] = h_kept_in,  h_back[s] = h_start[s] for s >= 1.
 *
 * In a contiguous plan with L = 0, only a rank's first segment can begin inside a
 * sequence, so only this segment can get its initial state from another rank. Every
 * other segment starts from h0, which the caller passes again in h_start (NULL: 0).
 * Shapes: h_in, h_start, h_back [NS,HV,K,V]; h_kept, h_kept_in [1,HV,K,V]. */
int ref_h0(struct kcp_h0 *a)
{
    const int refused = kcp_begin("12_h0", KCP_HOST, a, NULL);
    if (refused) return refused;
    const int64_t state = (int64_t)a->HV * a->K * a->V;
    const double *h_start = a->h_start;
    double *h_back = a->h_back;

    if (a->NS == 0) return KCP_OK;
    //> compress
    if (a->pass == KCP_FORWARD) {
        memcpy(a->h_kept, a->h_in, sizeof(double) * state);
        return KCP_OK;
    }
    //< compress
    //> expand
    memcpy(h_back, a->h_kept_in, sizeof(double) * state);
    for (int64_t e = state; e < a->NS * state; e++)
        h_back[e] = h_start ? h_start[e] : 0;
    //< expand
    return KCP_OK;
}

/* Copies a sequence's state between the caller's layout ([HV,K,V] or [HV,V,K]) and the
 * internal layout [HV,K,V]. If `out` is 1, copies to the caller's layout. */
void ref_state(const void *args, int out, const double *from, double *to)
{
    const struct kcp_call *a = args;           /* args structs start with a kcp_call */
    const int K = a->K, V = a->V, turned = a->layout == KCP_VK;
    for (int n = 0; n < a->HV; n++)
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                const int64_t kv = ((int64_t)n * K + i) * V + v;
                const int64_t vk = turned ? ((int64_t)n * V + v) * K + i : kv;
                to[out ? vk : kv] = from[out ? kv : vk];
            }
}
