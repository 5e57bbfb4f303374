/* example_whole.c -- runs whole passes of the worked example; each rank is a thread.
 * Book: chapters 08, 12 and 13. */
#include "example.h"
#include "layer.h"

/* ---- 08, 12, 13: whole passes on R ranks that are threads */
struct job {
    const struct kcp_plan *p;
    enum kcp_form form;
    enum kcp_save save;
    double o[T][V], dh0[K][V], dq[T][K], dg[T][K], ht[K][V];
    int64_t bytes[MOST], messages[MOST];
    size_t saved[MOST];
};

static int body(struct kcp_comm *comm, void *arg)
{
    struct job *j = arg;
    const struct kcp_plan *p = j->p;
    const int r = comm->r;
    const int64_t t = p->ctx[r].begin;
    double rest[3][T][K], db[T];
    STAGE(kcp_forward, f);
    f.comm = comm; f.form = j->form; f.save = j->save;
    f.q_raw = ex_q[t]; f.k_raw = ex_k[t]; f.v = ex_v[t]; f.g_raw = g[t];
    f.beta_raw = ex_beta + t;
    f.o = j->o[t];
    f.ht = j->ht;
    f.saved_bytes = j->saved[r] = kcp_saved_bytes(&f);
    f.saved = malloc(f.saved_bytes);
    int status = f.saved ? ref_forward(&f) : KCP_NO_MEMORY;
    j->bytes[r] = comm->traffic.bytes; j->messages[r] = comm->traffic.messages;

    STAGE(kcp_backward, b);
    b.comm = comm; b.form = j->form; b.save = j->save; b.do_ = ones[t];
    b.q_raw = f.q_raw; b.k_raw = f.k_raw; b.v = f.v; b.g_raw = f.g_raw;
    b.beta_raw = f.beta_raw; b.saved = f.saved; b.saved_bytes = f.saved_bytes;
    b.dq_raw = j->dq[t]; b.dk_raw = rest[0]; b.dv = rest[1]; b.dg_raw = j->dg[t];
    b.dbeta_raw = db; b.dh0 = j->dh0;
    if (!status) status = ref_backward(&b);
    free(f.saved);
    return status;
}

static void run(struct job *j)
{
    char why[160] = "";
    if (kcp_threads_run(j->p->R, body, j, why, sizeof why)) fail(why);
    same(&j->o[0][0], &o[0][0], T * V, "o differs from the recurrence");
    same(&j->ht[0][0], &ht[0][0], K * V, "ht differs from the recurrence");
    same(&j->dq[0][0], &dq[0][0], T * K, "dq differs from the recurrence");
    same(&j->dg[0][0], &dg[0][0], T * K, "dg differs from the recurrence");
    same(&j->dh0[0][0], &dh0[0][0], K * V, "dh0 differs from the recurrence");
}

/* ---- the modes of the saved block, the smaller block first */
static const struct { const char *name; enum kcp_save save; } modes[] = {
    { "recompute", KCP_RECOMPUTE }, { "save all", KCP_SAVE_ALL } };

/* Returns the bytes of a saved block per token and value head; activations are bf16. */
static double bytes_kept(struct kcp_call c, int64_t tokens, int format)
{
    const int64_t cu_seqlens[] = { 0, tokens };
    struct kcp_plan *plan;
    struct kcp_saved block;
    if (kcp_plan_make(&plan, 1, cu_seqlens, 1, NULL, 0, c.C, 0, NULL)) fail("no plan");
    kcp_layer_call(&(struct kcp_layer){ 0 }, &c, plan, NULL);
    if (kcp_saved_layout_of(&block, &c, format, "", 2, 4)) fail("no layout");
    kcp_plan_free(plan);
    return (double)block.bytes / (double)(tokens * c.HV);
}

static void mode_bytes(void)
{
    static const struct { enum kcp_model model; int64_t T; int H, HV; } layer[] = {
        { KCP_KDA, 8192, 96, 96 }, { KCP_KDA, 32768, 32, 32 }, { KCP_KDA, 65536, 8, 8 },
        { KCP_GDN, 32768, 16, 32 } };
    printf("== 12-modes\nbytes of the saved block per token and value head, one rank, "
           "one sequence, K = V = 128,\nin bf16, with the header\n\n"
           "                              format 1, by tokens   "
           "format 2, by chunks\n"
           "                            recompute save all    "
           "recompute save all\n");
    for (int i = 0; i < 4; i++) {
        const char *model = layer[i].model == KCP_KDA ? "KDA" : "GDN";
        printf("%s, T = %5d, H, HV = %2d, %2d", model, (int)layer[i].T, layer[i].H,
               layer[i].HV);
        for (int at = 0; at < 4; at++) {
            const struct kcp_call c = {
                .H = layer[i].H, .HV = layer[i].HV, .K = 128, .V = 128, .C = 64,
                .KG = layer[i].model == KCP_KDA ? 128 : 1, .model = layer[i].model,
                .save = modes[at % 2].save };
            const double bytes = bytes_kept(c, layer[i].T, 1 + at / 2);
            printf("%s%9.1f", at == 2 ? "    " : "", bytes);
        }
        printf("\n");
    }
}

static void heads(void)
{
    printf("          one rank               two ranks              three ranks\n");
}

/* Prints two numbers per run: on one rank (a), two ranks (b) and three ranks (c). */
static void row(const char *name, int t, const double *a, const double *b,
                const double *c)
{
    char full[16] = "";
    snprintf(full, sizeof full, "%s", name);
    if (t >= 0) snprintf(full, sizeof full, "%s%d", name, t);
    printf("%-7s %9.6f %9.6f    %9.6f %9.6f    %9.6f %9.6f\n", full, a[0], a[1], b[0],
           b[1], c[0], c[1]);
}

int main(void)
{
    recurrence(T);
    struct job j[MOST + 1] = { { 0 } };
    for (int R = 1; R <= MOST; R++) {
        j[R].p = ranks(R);
        run(&j[R]);
    }
    printf("== 08-forward\n");
    heads();
    for (int t = 0; t < T; t++) row("o_", t, j[1].o[t], j[2].o[t], j[3].o[t]);
    printf("\nthree ranks, bytes (messages) that each rank sends\n");
    for (int f = 0; f < KCP_FORMS; f++) {
        struct job x = { .p = j[3].p, .form = (enum kcp_form)f };
        run(&x);
        printf("%-11s", kcp_form_names[f]);
        for (int r = 0; r < 3; r++)
            printf("   rank %d: %3d (%d)", r, (int)x.bytes[r], (int)x.messages[r]);
        printf("\n");
    }
    printf("== 12-h0\nbytes of the saved block   rank 0   rank 1   (double precision, "
           "with headers and alignment)\n");
    for (int i = 0; i < 2; i++) {
        struct job x = { .p = j[2].p, .save = modes[i].save };
        run(&x);
        printf("%-24s %8zu %8zu\n", modes[i].name, x.saved[0], x.saved[1]);
    }
    mode_bytes();
    printf("== 13-backward\n");
    heads();
    for (int i = 0; i < K; i++)
        row("dh0", -1, j[1].dh0[i], j[2].dh0[i], j[3].dh0[i]);
    for (int t = 0; t < T; t++)
        row("dg_", t, j[1].dg[t], j[2].dg[t], j[3].dg[t]);
    printf("largest difference from the recurrence, over all forms and ranks: %.1e\n",
           worst);
    for (int R = 1; R <= MOST; R++) kcp_plan_free((struct kcp_plan *)j[R].p);
    return 0;
}
