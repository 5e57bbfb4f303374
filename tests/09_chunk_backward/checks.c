/* checks.c -- compares gradients with differences of a loss that is affine in each
 * input.
 *
 * Book: chapter 09.  Checked by: itself, it can fail.  Next: ref/10_wy_backward.c.
 * The loss is <dO, o> + <dht, h_out>. A change delta of one input changes the loss by
 * exactly <gradient, delta>, however large delta is. */
#include "tests/judge/batch.h"

static double loss(struct batch *x, const double *Aqk, const double *u, const double *h)
{
    const int64_t vo = x->c.T * x->c.HV * x->c.V;
    const int64_t st = (int64_t)x->c.NS * x->c.HV * x->c.K * x->c.V;
    struct kcp_chunk c;
    batch_bind(x, "04_chunk", &c);
    c.u = u; c.Aqk = Aqk; c.h_in = h; c.v_new = x->dv; c.h = x->dh;
    return ref_chunk(&c) ? NAN : dot(x->dO, x->o, vo) + dot(x->dht, x->h_out, st);
}

/* Returns a + delta. delta is 0 where a is 0, so that Aqk stays triangular. */
static double *moved(struct batch *x, const double *a, double *delta, int64_t n)
{
    struct stream s = stream_of(n, "moved");
    double *b = batch_array(x, n);
    for (int64_t e = 0; b && e < n; e++) {
        delta[e] = a[e] != 0 ? normal(&s) : 0;
        b[e] = a[e] + delta[e];
    }
    return b;
}

static void one(struct kcp_report *rep, struct batch *x, const char *what)
{
    const int64_t vo = x->c.T * x->c.HV * x->c.V, tri = x->c.T * x->c.HV * x->c.C;
    const int64_t st = (int64_t)x->c.NS * x->c.HV * x->c.K * x->c.V;
    const int64_t of_tokens = tri > vo ? tri : vo;
    double *delta = batch_array(x, of_tokens > st ? of_tokens : st);
    const double rest = loss(x, x->Aqk, x->u, x->h0);
    double got, want;

    want = loss(x, x->Aqk, x->u, moved(x, x->h0, delta, st)) - rest;
    got = dot(x->dh_in, delta, st);
    EXPECT(rep, fabs(got - want) <= 1e-11 * fabs(rest), "%s: <dh_in, delta> = %.15g, "
           "the loss moved by %.15g", what, got, want);
    want = loss(x, x->Aqk, moved(x, x->u, delta, vo), x->h0) - rest;
    got = dot(x->dU, delta, vo);
    EXPECT(rep, fabs(got - want) <= 1e-11 * fabs(rest), "%s: <dU, delta> = %.15g, the "
           "loss moved by %.15g", what, got, want);
    want = loss(x, moved(x, x->Aqk, delta, tri), x->u, x->h0) - rest;
    got = dot(x->dAqk, delta, tri) / x->c.scale;
    EXPECT(rep, fabs(got - want) <= 1e-11 * fabs(rest), "%s: <dAqk, delta> / scale = "
           "%.15g, the loss moved by %.15g", what, got, want);
}

static int duality(struct kcp_report *rep)
{
    static const double gate[] = { 0, -1, -5, -50 };
    int status = KCP_OK;
    for (int model = 0; model < 2; model++)
        for (int j = 0; j < 4 && !status; j++) {
            struct batch x;
            char what[64];
            snprintf(what, sizeof what, "%s, gate %g", model ? "GDN" : "KDA", gate[j]);
            status = batch_forward(&x, model ? KCP_GDN : KCP_KDA, gate[j]);
            status = status ? status : batch_backward(&x, NULL);
            if (!status)
                one(rep, &x, what);
            batch_free(&x);
        }
    return status;
}
KCP_CHECK(check_09_duality) = { "09_chunk_backward", "duality",
    "<gradient, delta> is the exact change of the loss, for h, u and Aqk", duality };
