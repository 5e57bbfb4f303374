/* run.h -- defines chapter 16's batch, and runs calls that save initial states.
 * Book: chapter 16.
 *
 * The batch has six sequences (two empty, one of one token), h0, dht, two value heads
 * per key head, and K != V. */
#pragma once

#include "tests/judge/trial.h"
#include "layer.h"

#include <stdlib.h>
#include <string.h>

#define SIZES "live H=2 HV=4 K=6 V=5 C=16 h0 dht seed=16 scale=0.4 blocks=2 "
#define BATCH SIZES "lengths=260,0,1,69,91,0 "

/* Calls `run` with h_kept. For backward, first calls `run` for forward, which fills
 * h_kept. The bytes that this forward sends are not counted. */
static inline int family_kept(const struct kcp_family *args,
                              int (*run)(struct kcp_family *))
{
    struct kcp_family a = *args, f = a;
    const size_t row = (size_t)a.HV * (size_t)a.V, o = (size_t)a.T * row;
    struct kcp_layer layer;
    kcp_layer_ref(&layer);
    const size_t kept = kcp_layer_family_kept(&layer, (struct kcp_call *)&a);
    double *x = malloc(kept + (o + (size_t)(a.N * a.K) * row + 1) * sizeof *x);
    if (!x) return KCP_NO_MEMORY;
    a.h_kept = f.h_kept = x;
    f.pass = KCP_FORWARD;
    f.o = x + kept / sizeof *x;
    f.ht = (double *)f.o + o;
    int status = a.pass == KCP_BACKWARD ? run(&f) : KCP_OK;
    if (a.comm) a.comm->traffic = (struct kcp_traffic){ 0 };
    if (!status) status = run(&a);
    free(x);
    return status;
}

static inline int run_keeping(void *args) { return family_kept(args, ref_family); }
static const struct kcp_variant family_keeping = { "16_family", "keeping", "", KCP_F64,
    KCP_HOST, "any", run_keeping, NULL };
