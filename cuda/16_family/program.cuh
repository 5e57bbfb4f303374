// program.cuh -- one rank's forward or backward of DPLR, GDN-2 or GLA.
// Book: chapter 16, "Code: kernels".
#pragma once

#include "workspace.cuh"

// The form of a model is its rows u, w, kg, qg, Aqk for the kernels of chapters 04 to
// 11. Copies the tables cu, cn and sc of the form's rows and chunks to the device.
static void store_grid(struct program *x)
{
    const struct kcp_family *a = &x->f.a;
    const int *cu = a->plan->ctx[a->r].cu, m = x->f.m, C = x->f.C;
    struct putter rows = { x->cu, {}, a->stream }, first = { x->cn, {}, a->stream };
    struct putter of = { x->sc, {}, a->stream };
    int c = 0;
    for (int s = 0; s < a->NS; s++) {
        put(&rows, cu[s] * m);
        put(&first, c);
        const int chunks = (cu[s + 1] - cu[s] + C - 1) / C;
        for (int j = 0; j < chunks; j++) put(&of, s);
        c += chunks;
    }
    put(&rows, cu[a->NS] * m);
    put(&first, c);
    put_rest(&rows);
    put_rest(&first);
    put_rest(&of);
}

// Runs chapters 05 (maps), 07 (exchange) and 04 (scan). Backward with h_kept (saved
// first states) copies these states instead of running 05 and 07.
static int family_forward(struct program *x)
{
    const struct kcp_family *a = &x->f.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    const int back = a->pass == KCP_BACKWARD;
    const size_t kept = sizeof(float) * kcp_saved_states(call) * a->HV * a->K * a->V;
    int status = KCP_OK;
    states_in(call, 0, a->h0, x->states);
    if (!back || !a->h_kept) {
        FORM(kcp_affine, map);
        map.want = x->want;
        map.kg = x->f.kg;
        map.w = x->f.w;
        map.u = x->f.u;
        map.G = x->f.G;
        map.h_start = x->states;
        map.map = x->maps;
        put_wants(call, 0, x->want);
        status = x->by.t.affine(&map);
        if (!status) status = exchange(&x->e);
    }
    if (!status && a->h_kept)
        cudaMemcpyAsync(back ? x->states : a->h_kept, back ? a->h_kept : x->states,
                        kept, cudaMemcpyDeviceToDevice, a->stream);
    if (status) return status;
    if (x->f.m == 2 && x->by.scan) return x->by.scan(x);
    FORM(kcp_chunk, c);
    c.qg = x->f.qg;
    c.kg = x->f.kg;
    c.u = x->f.u;
    c.w = x->f.w;
    c.Aqk = x->f.Aqk;
    c.G = x->f.G;
    c.h_in = x->states;
    c.o = back ? NULL : x->o;
    c.v_new = x->v_new;
    c.h = x->h;
    c.h_out = x->h_out;
    return x->by.t.chunk(&c);
}

static int family_reverse(struct program *x, int part)
{
    FORM(kcp_chunk_backward, c);
    c.part = part;
    c.qg = x->f.qg;
    c.kg = x->f.kg;
    c.w = x->f.w;
    c.Aqk = x->f.Aqk;
    c.G = x->f.G;
    c.v_new = x->v_new;
    c.do_ = x->dO;
    c.dh_out = x->ends;
    c.dAqk = x->dAqk;
    c.dv_local = x->dv_local;
    c.dU = x->dU;
    c.dh = x->dh;
    c.dh_in = x->dh_in;
    return x->by.t.chunk_backward(&c);
}

// Runs the kernels of chapters 11 and 07, between the two parts of chapter 09.
static int family_carry_back(struct program *x)
{
    const struct kcp_family *a = &x->f.a;
    const struct kcp_call *call = (const struct kcp_call *)a;
    FORM(kcp_merge_backward, b);
    b.want = x->want;
    b.qg = x->f.qg;
    b.kg = x->f.kg;
    b.w = x->f.w;
    b.G = x->f.G;
    b.do_ = x->dO;
    b.dv_local = x->dv_local;
    b.dh_end = x->ends;
    b.dmap = x->maps;
    put_wants(call, 1, x->want);
    states_in(call, 1, a->dht, x->ends);
    x->e.backward = 1;
    x->e.states = x->ends;
    const int status = x->by.t.merge_backward(&b);
    return status ? status : exchange(&x->e);
}

// A token has m rows in the form, and its q is in the last of these rows. Copies that
// row of each token to the caller or, if `out` is 0, from the caller.
template <class X>
static void query_rows(const struct program *x, void *of_form, void *of_caller, int out)
{
    const struct kcp_family *a = &x->f.a;
    const size_t row = (size_t)a->HV * a->V * sizeof(X), pitch = row * x->f.m;
    char *form = (char *)of_form + (x->f.m - 1) * row;
    if (!a->T) return;
    if (!out) cudaMemsetAsync(of_form, 0, pitch * a->T, a->stream);
    cudaMemcpy2DAsync(out ? of_caller : form, out ? row : pitch, out ? form : of_caller,
                      out ? pitch : row, row, a->T, cudaMemcpyDeviceToDevice,
                      a->stream);
}

template <class X>
static int family_backward(struct program *x)
{
    const struct kcp_family *a = &x->f.a;
    const int two = x->f.m == 2, own = two && x->by.scan;
    int status = KCP_OK;
    if (two && (!own || x->f.spread)) query_rows<X>(x, x->dO, (void *)a->do_, 0);
    if (!own) status = family_reverse(x, KCP_LOCAL);
    else if (x->f.spread && x->f.NC) status = x->by.local(x);
    if (!status) status = family_carry_back(x);
    if (!status) status = own ? x->by.reverse(x) : family_reverse(x, KCP_REVERSE);
    if (status) return status;
    if (x->f.NC) status = x->by.back(&x->f);
    if (status) return status;
    states_out((const struct kcp_call *)a, 0, x->dh_in, a->dht, a->dh0);
    return launched();
}

template <class X>
static int family_run(const struct kcp_family *a, const struct engine &by)
{
    struct program x;
    if (!a->plan || a->model < KCP_DPLR) return KCP_BAD;
    if (!by.t.path) return KCP_NA;
    int status = family_layout<X>(&x, a, by) <= a->work_bytes ? KCP_OK : KCP_BAD;
    if (!status) {
        store_grid(&x);
        if (x.f.NC) status = by.form(&x.f);
    }
    if (!status) status = family_forward(&x);
    if (!status && a->pass == KCP_BACKWARD) status = family_backward<X>(&x);
    else if (!status) {
        if (x.o != a->o) query_rows<X>(&x, x.o, a->o, 1);
        states_out((const struct kcp_call *)a, 1, x.h_out, a->h0, a->ht);
        status = launched();
    }
    if (status && status != KCP_COMM && a->comm)
        a->comm->fail(a->comm, status, by.t.name);
    return status;
}

template <class X>
static size_t family_work(const struct kcp_family *a, const struct engine &by)
{
    struct program x;
    return a->plan && by.t.path ? family_layout<X>(&x, a, by) : 0;
}
