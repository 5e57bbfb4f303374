/* checks.c -- checks that M^T maps gradients dS if M maps states S.
 * Book: chapter 11. */
#include "tests/03_wy/batch.h"

/* Computes dS = M^T dht + dh_ext per head and segment. */
static void applied(const struct batch *x, double *dS)
{
    const int K = x->c.K, V = x->c.V;
    const double *dht = batch_at(x, "dht");
    for (int n = 0; n < x->c.NS * x->c.HV; n++)
        for (int i = 0; i < K; i++)
            for (int v = 0; v < V; v++) {
                const double *map = batch_at(x, "dmap") + (int64_t)n * K * (V + K);
                double s = map[i * (V + K) + v];
                for (int p = 0; p < K; p++)
                    s += map[p * (V + K) + V + i] * dht[(n * K + p) * V + v];
                dS[(n * K + i) * V + v] = s;
            }
}

static int both_maps(struct kcp_report *rep, struct batch *x, const char *what)
{
    const int64_t ld = x->c.V + x->c.K, rows = (int64_t)x->c.NS * x->c.HV * x->c.K;
    const double *dmap = batch_at(x, "dmap");
    struct tensor_set own = { .n = 0 };
    tensor_set_copy(&own, &x->set);
    applied(x, tensor_add(&own, "dS", "NS HV K V", KCP_ACC, &x->c)->p);
    double err = batch_apart(x, "dh_in", &own, "dS");
    EXPECT(rep, err <= 1e-13, "%s: M^T dht + dh_ext differs from dh_in by %.2g",
           what, err);

    double *M[] = { tensor_find(&own, "map")->p, tensor_find(&own, "dmap")->p };
    for (int64_t e = 0; e < rows * ld; e++)            /* compares M, not h_ext */
        if (e % ld < x->c.V) M[0][e] = M[1][e] = 0;
    err = rms_apart(M[1], M[0], rows * ld);
    EXPECT(rep, err <= 1e-13,
           "%s: M of backward differs from M of forward by %.2g", what, err);

    x->c.reuse_M = 1;
    const int status = batch_stage(x, &own, "11_merge_backward");
    const double *two = tensor_find(&own, "dmap")->p;
    int touched = 0, differ = 0;
    for (int64_t e = 0; e < rows && !status; e++)
        for (int v = 0; v < ld; v++) {
            touched += v >= x->c.V && !isnan(two[e * ld + v]);
            differ += v < x->c.V && two[e * ld + v] != dmap[e * ld + v];
        }
    EXPECT(rep, !touched,
           "%s: with reuse_M, %d numbers of M were written", what, touched);
    EXPECT(rep, !differ, "%s: reuse_M changes %d numbers of dh_ext", what, differ);
    tensor_set_free(&own);
    return status;
}

static int transpose(struct kcp_report *rep)
{
    return batch_each(rep, EACH_GATE, both_maps);
}
KCP_CHECK(check_11_transpose) = { "11_merge_backward", "transpose",
    "M^T dht + dh_ext equals dh_in of the reverse scan, M equals M of chapter 05, "
    "and with reuse_M no M is written", transpose };
