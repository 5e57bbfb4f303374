/* wire.c -- checks the bytes of sent maps; GLA's maps have only the diagonal of M.
 *
 * Book: chapter 16, "Communication".  Checked by: itself, it can fail.
 * Next: tests/16_family/layer.c.
 */
#include "run.h"

/* Cuts between ranks, all within the first sequence. */
static const int64_t cuts[] = { 0, 50, 100, 131, 200, 260 };

/* Computes, without kcp_exchange_formula, the bytes that rank r sends for one sequence
 * over R ranks. `m` is the number of elements sent per row of M. */
static int64_t bytes_of(enum kcp_form form, int R, int r, int backward, int m)
{
    const int64_t row = 8 * HV * K, later = backward ? r : R - 1 - r;
    int64_t bytes = 0;
    if (form == KCP_ALL_GATHER) return (R - 1) * row * (V + m);
    if (form != KCP_SCAN) return later > 0 ? row * V : 0;
    for (int64_t d = 1; d <= later; d *= 2) bytes += row * (V + m);
    return bytes;
}

/* Checks the sent bytes for the first sequence, which has 260 tokens on five ranks. */
static int count(struct kcp_report *rep, struct batch x, int m)
{
    const int64_t one[2] = { 0, 260 };
    char why[160] = "";
    int status = outputs_add(x.out, out_size, OUTPUTS);
    x.sequences = 1;
    if (!status) status = kcp_plan_make(&x.plan, 1, one, x.R, cuts, 0, C, 0, NULL);
    if (!status) status = kcp_threads_run(x.R, body, &x, why, sizeof why);
    EXPECT(rep, !status, "%s: status %d, %s", kcp_form_names[x.form], status, why);
    for (int r = 0; r < x.R && !status; r++) {
        const int64_t ahead = bytes_of(x.form, x.R, r, 0, m);
        const int64_t back = bytes_of(x.form, x.R, r, 1, m) + (x.keep ? 0 : ahead);
        EXPECT(rep, x.traffic[r].bytes == ahead && x.traffic_back[r].bytes == back,
               "%s %s, rank %d: %lld and %lld bytes, not %lld and %lld",
               model_name[x.model], kcp_form_names[x.form], r,
               (long long)x.traffic[r].bytes, (long long)x.traffic_back[r].bytes,
               (long long)ahead, (long long)back);
    }
    drop(&x);
    return status;
}

static int bytes(struct kcp_report *rep)
{
    struct kcp_mapops whole = ref_mapops;
    int status = KCP_OK;
    whole.diagonal = NULL;
    for (int j = 0; j < 3 && !status; j++) {
        struct batch x = { .model = models[j], .R = 5 };
        const int m = models[j] == KCP_GLA ? 1 : K;
        status = draw(&x);
        for (int form = 0; form < KCP_FORMS && !status; form++)
            for (x.keep = 0; x.keep < 2 && !status; x.keep++) {
                x.form = form;
                x.ops = NULL;
                status = count(rep, x, m);
                x.ops = &whole;                /* correct, but M takes K^2 numbers */
                if (!status) status = count(rep, x, K);
            }
        drop_inputs(&x);
    }
    return status;
}
KCP_CHECK(check_16_wire) = { "16_family", "wire",
    "GLA sends K numbers of M, or on request K^2; DPLR and GDN-2 send K^2, per "
    "rank and form as counted", bytes };

static int diagonal(struct kcp_report *rep)
{
    struct kcp_mapops whole = ref_mapops;
    struct batch x = { .model = KCP_GLA };
    int status = draw(&x);
    whole.diagonal = NULL;
    for (int form = 0; form < KCP_FORMS && !status; form++)
        for (int j = 0; j < 6 && !status; j++) {
            struct batch own = x, all = x;
            own.form = all.form = form;
            own.R = all.R = 3 + j;
            own.spread = all.spread = (enum kcp_spread)(j % 3);
            own.L = all.L = j > 2 && form != KCP_SCAN ? 48 : 0;
            all.ops = &whole;
            status = same_bits(rep, own, all);
        }
    drop_inputs(&x);
    return status;
}
KCP_CHECK(check_16_diagonal) = { "16_family", "diagonal",
    "GLA gives the same bits in every form if it sends the diagonal of M or all "
    "of M", diagonal };
