/* nulls.c -- calls each function of the installed headers with NULL and with
 * numbers such as -1.
 * Book: chapter 20.
 *
 * Functions get NULL for objects and results, and 0, -1, 1, 99 and 2^31 - 1 as ranks
 * or sizes. A function that returns a status must return KCP_BAD, or KCP_NA if the
 * function is not in this build. */
#include "tests/judge/judge.h"

#include "layer.h"

#define REFUSES(call)                                                                 \
    do {                                                                              \
        const int status_ = (call);                                                   \
        EXPECT(rep, status_ == KCP_BAD || status_ == KCP_NA, #call ": status %d",     \
               status_);                                                              \
    } while (0)
#define ZERO(call) EXPECT(rep, !(call), #call ": not 0")

/* Calls every function with NULL, and with number i as rank or size. */
static void of_nothing(struct kcp_report *rep, int i)
{
    char why[80];
    struct kcp_saved saved;

    /* plans */
    REFUSES(kcp_plan_make(NULL, i, NULL, i, NULL, i, i, i, NULL));
    REFUSES(kcp_plan_owned(NULL, i, NULL, i, NULL, i, i, i, NULL));
    REFUSES(kcp_owners_make(NULL, (enum kcp_spread)i, i, NULL, i, i, NULL));
    REFUSES(kcp_plan_refresh(NULL, NULL, NULL));
    ZERO(kcp_plan_want(NULL, i, i));
    (void)kcp_plan_token(NULL, i);
    kcp_plan_take(NULL, i, 8, NULL, NULL);
    kcp_plan_give(NULL, i, 8, NULL, NULL);
    kcp_plan_free(NULL);
    kcp_owners_free(NULL);

    /* saved blocks */
    ZERO(kcp_saved_bytes(NULL));
    ZERO(kcp_saved_states(NULL));
    ZERO(kcp_type_of(NULL, KCP_G, KCP_BF16));
    ZERO(kcp_bytes_of(NULL, KCP_G, KCP_BF16));
    ZERO(kcp_saved_at(NULL, NULL));
    REFUSES(kcp_saved_begin(NULL, 0, NULL, NULL, 8, 8));
    REFUSES(kcp_saved_layout_of(NULL, NULL, i, NULL, 8, 8));
    REFUSES(kcp_saved_layout_of(&saved, NULL, i, NULL, 8, 8));
    REFUSES(kcp_saved_check_of(NULL, 0, NULL, i, NULL, 8, 8, why, sizeof why));

    /* ranks */
    REFUSES(kcp_timeout(NULL, NULL, 0));
    REFUSES(kcp_nccl_by_file(NULL, NULL, 0, 0, NULL, 0));
    REFUSES(kcp_threads_run(i, NULL, NULL, NULL, 0));
    REFUSES(kcp_threads_run_on(i, NULL, NULL, NULL, 0, NULL));
    REFUSES(kcp_nccl_threads_run(i, NULL, NULL, NULL, 0));
    REFUSES(kcp_nccl_over(NULL, NULL, NULL, 0));
    REFUSES(kcp_nccl_from(NULL, NULL));
    REFUSES(kcp_nccl_split(NULL, i, i, NULL));

    /* exchanges */
    REFUSES(kcp_exchange_run(NULL));
    ZERO(kcp_exchange_work(NULL));
    ZERO(kcp_exchange_kept(NULL));
    ZERO(kcp_exchange_formula(NULL).bytes);
    REFUSES(kcp_halo_run(NULL, NULL, NULL));
    REFUSES(kcp_halo_states(NULL, NULL));
    ZERO(kcp_halo_rows(NULL, i));
    ZERO(kcp_halo_at(NULL, i, i));
    ZERO(kcp_halo_edge(NULL, i, i));
    ZERO(kcp_halo_formula(NULL, i).bytes);
    REFUSES(kcp_segment_sum(NULL, NULL, NULL, i, NULL));
    REFUSES(kcp_parameter_sum(NULL, NULL, i, NULL));

    /* layers */
    kcp_layer_ref(NULL);
    REFUSES(kcp_layer_gpu(NULL, (enum kcp_storage)i, NULL, why, sizeof why));
    kcp_layer_call(NULL, NULL, NULL, NULL);
    ZERO(kcp_layer_saved(NULL, NULL));
    ZERO(kcp_layer_plain(NULL, NULL, 1, NULL, 0) != KCP_PLAIN_UNKNOWN);
    ZERO(kcp_layer_forward_work(NULL, NULL));
    ZERO(kcp_layer_backward_work(NULL, NULL));
    ZERO(kcp_layer_conv_work(NULL, NULL));
    ZERO(kcp_layer_family_work(NULL, NULL));
    ZERO(kcp_layer_family_kept(NULL, NULL));
    ZERO(kcp_layer_scan_work(NULL, NULL));
    REFUSES(kcp_layer_forward(NULL, NULL));
    REFUSES(kcp_layer_backward(NULL, NULL));
    REFUSES(kcp_layer_conv(NULL, NULL));
    REFUSES(kcp_layer_convs(NULL, NULL, i));
    REFUSES(kcp_layer_family(NULL, NULL));
    REFUSES(kcp_layer_scan(NULL, NULL));
    (void)kcp_layer_path(NULL, NULL, i);
    REFUSES(kcp_check_call(NULL, (enum kcp_where)i, NULL));
    REFUSES(kcp_checked_run(NULL, NULL));
    ZERO(kcp_stage_find(NULL));
    ZERO(kcp_variants(NULL, NULL, NULL, i));
    ZERO(kcp_struct_size(NULL));
    (void)kcp_struct_member(NULL, NULL, NULL, NULL);
    (void)kcp_enum_value(NULL, NULL);
    (void)kcp_version();
    (void)kcp_why();
    kcp_notices(NULL);
}

/* Calls functions with a valid plan, and with i as token, rank, row or segment. This
 * number may be outside the plan. */
static void of_a_plan(struct kcp_report *rep, int i)
{
    static const int64_t cu[2] = { 0, 100 };
    struct kcp_plan *plan = NULL;
    char row[100] = { 0 };
    if (kcp_plan_make(&plan, 1, cu, 2, NULL, 0, 16, 0, NULL)) return;
    const struct kcp_halo h = { .plan = plan, .reach = 3, .row_bytes = 8 };
    const int is_rank = i == 0 || i == 1;
    EXPECT(rep, i >= 0 && i < 100 ? kcp_plan_token(plan, i) == i
                                  : kcp_plan_token(plan, i) == -1, "token %d", i);
    EXPECT(rep, i >= 0 && i < plan->S ? kcp_plan_want(plan, i, 0) > 0 || i > 0
                                      : !kcp_plan_want(plan, i, 0), "segment %d", i);
    EXPECT(rep, kcp_halo_rows(&h, i) == (i == 1 ? 3 : 0), "halo of rank %d: %lld", i,
           (long long)kcp_halo_rows(&h, i));
    EXPECT(rep, kcp_halo_at(&h, 1, i) <= 3 && !kcp_halo_at(&h, 1, -1), "rows %d", i);
    EXPECT(rep, kcp_halo_edge(&h, 1, i) <= 100, "edge %d", i);
    EXPECT(rep, is_rank || !kcp_halo_formula(&h, i).bytes, "formula of rank %d", i);
    REFUSES(kcp_halo_run(&h, row, row));
    REFUSES(kcp_halo_states(&h, row));
    kcp_plan_take(plan, is_rank ? -1 : i, 1, row, row);
    kcp_plan_give(plan, is_rank ? -1 : i, 1, row, row);
    kcp_plan_free(plan);
}

static int nulls(struct kcp_report *rep)
{
    static const int odd[] = { 0, -1, 1, 99, 2147483647 };
    for (int k = 0; k < 5; k++) {
        of_nothing(rep, odd[k]);
        of_a_plan(rep, odd[k]);
    }
    return KCP_OK;
}
KCP_CHECK(check_00_nulls) = { "20_clusters", "calls_nulls",
    "no function of the interface crashes if objects and results are NULL",
    nulls };
