/* relatives.c -- checks that two models agree if one is a special case of the other.
 * Book: chapter 16.
 * Chapter 01, which shares no code with chapter 16, computes KDA's expected results. */
#include "run.h"

#include <math.h>

static double *at(const struct tensor_set *b, const char *name)
{
    return tensor_find(b, name)->p;
}

/* Draws the inputs of a model. Adds a, b, omega, beta and cu_seqlens, which chapter 01
 * or another model reads. */
static int draw(struct tensor_set *b, struct kcase *k, enum kcp_model model)
{
    char words[300], why[160];
    struct stream s = stream_of(16, "relatives");
    snprintf(words, sizeof words, "%s " BATCH, model_name[model]);
    if (case_parse(words, k, why, sizeof why)) return KCP_BAD;
    inputs_draw(b, k, stage_find("16"), KCP_F64);
    tensor_add(b, "a", "T HV K", KCP_ACTV, &k->call);
    tensor_add(b, "b", "T HV K", KCP_ACTV, &k->call);
    tensor_add(b, "omega", "T HV V", KCP_ACTV, &k->call);
    struct tensor *beta = tensor_add(b, "beta", "T HV", KCP_ACC, &k->call);
    for (int64_t e = 0; e < beta->n; e++) ((double *)beta->p)[e] = 1.5 * uniform(&s);
    memcpy(tensor_add(b, "cu_seqlens", "N+1", KCP_I64, &k->call)->p, k->cu,
           sizeof *k->cu * (size_t)(k->call.N + 1));
    return KCP_OK;
}

/* Runs both passes of chapter 16 by chunks. */
static int run(struct tensor_set *b, const struct kcase *k)
{
    struct kcp_stage chunks = *stage_find("16");
    chunks.oracle = NULL;
    const int status = pipeline_one_rank(b, &chunks, k, KCP_FORWARD);
    return status ? status : pipeline_one_rank(b, &chunks, k, KCP_BACKWARD);
}

/* Sets inputs with which the model equals KDA. For DPLR, a = exp(g) k, b = -beta k, and
 * v is multiplied by beta. For GDN-2, b = omega = beta. */
static void set_inputs(struct tensor_set *x, const struct kcp_call *c)
{
    const int H = c->H, HV = c->HV, K = c->K, V = c->V, dplr = c->model == KCP_DPLR;
    for (int64_t t = 0; t < c->T * HV; t++) {
        const double beta = at(x, "beta")[t];
        const double *k = at(x, "k") + (t / HV * H + t % HV / (HV / H)) * K;
        for (int64_t p = 0; p < K; p++) {
            at(x, "a")[t * K + p] = exp(at(x, "g")[t * K + p]) * k[p];
            at(x, "b")[t * K + p] = dplr ? -beta * k[p] : beta;
        }
        for (int64_t v = 0; v < V; v++) {
            at(x, "omega")[t * V + v] = beta;
            if (dplr) at(x, "v")[t * V + v] *= beta;
        }
    }
}

static int relatives(struct kcp_report *rep)
{
    int status = KCP_OK;
    for (int m = KCP_DPLR; m <= KCP_GDN2 && !status; m++) {
        struct tensor_set x = { .n = 0 }, kda = { .n = 0 };
        struct kcase k;
        status = draw(&x, &k, (enum kcp_model)m);
        for (int64_t e = 0; e < tensor_find(&x, "g")->n; e++)
            at(&x, "g")[e] *= 20;                         /* noticeable decay */
        tensor_set_copy(&kda, &x);
        struct kcp_call c = k.call;
        c.model = KCP_KDA;
        if (!status) status = reference_run(&kda, stage_find("01"), &c);
        set_inputs(&x, &k.call);
        if (!status) status = run(&x, &k);
        const double o = status ? NAN : tensors_apart(&x, &kda, "o");
        const double ht = status ? NAN : tensors_apart(&x, &kda, "ht");
        EXPECT(rep, o < 1e-12 && ht < 1e-12, "KDA as %s: o is off by %.2g, ht by %.2g",
               model_name[m], o, ht);
        tensor_set_free(&x);
        tensor_set_free(&kda);
    }
    return status;
}
KCP_CHECK(check_16_relatives) = { "16_family", "relatives",
    "KDA, written as DPLR and as GDN-2, agrees with chapter 01 to 1e-12", relatives };

static int degenerate(struct kcp_report *rep)
{
    static const char *const shared[] = { "o", "ht", "dq", "dk", "dv", "dg", "dh0" };
    struct tensor_set gla = { .n = 0 };
    struct kcase k;
    int status = draw(&gla, &k, KCP_GLA);
    if (!status) status = run(&gla, &k);
    for (int m = KCP_DPLR; m <= KCP_GDN2 && !status; m++) {
        struct tensor_set x = { .n = 0 };
        status = draw(&x, &k, (enum kcp_model)m);
        const struct tensor *b = tensor_find(&x, "b");
        const struct tensor *omega = tensor_find(&x, "omega");
        for (int64_t e = 0; e < b->n; e++) ((double *)b->p)[e] = 0;
        for (int64_t e = 0; e < omega->n; e++) ((double *)omega->p)[e] = 1;
        if (m == KCP_DPLR)
            memcpy(at(&x, "a"), at(&x, "g"), 8 * (size_t)tensor_find(&x, "a")->n);
        if (!status) status = run(&x, &k);
        for (int i = 0; i < 7 && !status; i++) {
            const double err = tensors_apart(&x, &gla, shared[i]);
            EXPECT(rep, err < 1e-12, "%s with b = 0 is not GLA: %s differs by %.2g",
                   model_name[m], shared[i], err);
        }
        tensor_set_free(&x);
    }
    EXPECT(rep, !status, "status %d", status);
    tensor_set_free(&gla);
    return status;
}
KCP_CHECK(check_16_degenerate) = { "16_family", "degenerate",
    "DPLR and GDN-2 with b = 0 equal GLA in both passes", degenerate };
