/* checks.c -- compares chapter 10's gradients with the adjoint of the token recurrence.
 *
 * Book: chapter 10.  Checked by: itself, it can fail.  Next: ref/11_merge_backward.c.
 * At gate -50, dg is 1e-22 of a typical gradient, so that any cancellation of larger
 * terms would destroy dg.
 */
#include "tests/judge/batch.h"

static int adjoint(struct batch *x, double *dq, double *dk, double *dv, double *dg,
                   double *dbeta, double *dh0)
{
    struct kcp_step a = { 0 };
    memcpy(&a, &x->c, sizeof(struct kcp_call));
    a.pass = KCP_BACKWARD; a.cu_seqlens = x->seq; a.q = x->q; a.k = x->k; a.v = x->v;
    a.g = x->g; a.beta = x->beta; a.h0 = x->h0; a.do_ = x->dO; a.dht = x->dht;
    a.dq = dq; a.dk = dk; a.dv = dv; a.dg = dg; a.dbeta = dbeta; a.dh0 = dh0;
    return ref_step(&a);
}

static int against_adjoint(struct kcp_report *rep)
{
    static const double gate[] = { 0, -1, -5, -10, -50 };
    int status = KCP_OK;
    for (int model = 0; model < 2; model++)
        for (int j = 0; j < 5 && !status; j++) {
            struct batch x;
            status = batch_forward(&x, model ? KCP_GDN : KCP_KDA, gate[j]);
            const int64_t qk = x.c.T * x.c.H * x.c.K, vo = x.c.T * x.c.HV * x.c.V;
            const int64_t one = x.c.T * x.c.HV, gn = one * x.c.KG;
            const int64_t st = (int64_t)x.c.NS * x.c.HV * x.c.K * x.c.V;
            double *dq = batch_array(&x, qk), *dk = batch_array(&x, qk);
            double *dv = batch_array(&x, vo), *dg = batch_array(&x, gn);
            double *db = batch_array(&x, one), *dh = batch_array(&x, st);
            status = status ? status : batch_backward(&x);
            status = status ? status : adjoint(&x, dq, dk, dv, dg, db, dh);
            for (int e = 0; e < 6 && !status; e++) {
                const double *got[] = { x.dq, x.dk, x.dv, x.dbeta, x.dg, x.dh_in };
                const double *want[] = { dq, dk, dv, db, dg, dh };
                const char *name[] = { "dq", "dk", "dv", "dbeta", "dg", "dh0" };
                const int64_t n[] = { qk, qk, vo, one, gn, st };
                const double err = apart(got[e], want[e], n[e]);
                EXPECT(rep, err <= 1e-13, "%s, gate %g: %s is off the adjoint by %.2g",
                       model ? "GDN" : "KDA", gate[j], name[e], err);
            }
            batch_free(&x);
        }
    return status;
}
KCP_CHECK(check_10_adjoint) = { "10_wy_backward", "adjoint",
    "gradients agree with the adjoint of the recurrence to 1e-13, and dg also at "
    "g = -50", against_adjoint };
