/* launch.c -- computes how the kernels of chapter 18 are launched for a call.
 * Book: chapter 18b, "Few heads". */
#include "moves.h"
#include "split.h"

#include <string.h>

/* Returns the columns per block of backward's scans in a launch of `jobs` scans. Blocks
 * of 64 columns run if the GPU has one SM per block (GDN) or two (KDA, whose blocks of
 * 64 columns are memory-bound). Strips are cut so that such blocks fill the SMs. */
static int columns_of(const struct kcp_call *c, int split, int jobs, int sms)
{
    const int64_t blocks = (int64_t)c->HV * jobs * c->V / 64;
    return c->V == 64 || split || (c->KG == 1 ? 1 : 2) * blocks <= sms ? 64 : 128;
}

static struct kcp_launch compute(const struct kcp_call *c, const struct kcp_device *d)
{
    const int sms = d->sms;
    const struct kcp_cut cut = kcp_cut_of(c, d);
    struct kcp_launch x = { .entire = kcp_entire(c), .strips = kcp_fused_strip(c, d) };
    x.cut = !x.entire || x.strips;
    x.walk = kcp_fused_walk(c, d);
    x.windows = x.cut || !c->NC ? 1 : kcp_launches(&cut);
    x.ratio = kcp_launch_ratio(&cut);
    x.chains = kcp_strips(c, c->plan->L ? 0 : x.strips) * c->HV;
    x.columns = c->V == 64 || 2 * x.chains <= sms ? 64 : 128;
    x.stage_strips = kcp_stage_strips(c, sms);
    x.block_chunks = kcp_prepare_chunks(kcp_most_prepared(c, d), c->HV, sms);
    x.split = x.entire && x.strips && !c->plan->L;
    for (int i = 0; i < 2; i++) {
        const int n = columns_of(c, x.split, kcp_jobs(c, i, sms), sms);
        x.reverse_columns[i] = n;
        if (n > x.back_columns) x.back_columns = n;
    }
    return x;
}

/* The values of a call that `compute` reads, with a digest instead of the plan. */
struct key { uint64_t plan; int64_t n[15]; };

static struct key key_of(const struct kcp_call *c, const struct kcp_device *d)
{
    const struct key k = { c->plan->digest,
        { c->r, c->NS, c->NC, c->R, c->H, c->HV, c->K, c->V, c->C, c->KG, c->walk,
          kcp_keeps_states(c), c->strip_chunks, d->sms, d->bandwidth } };
    return k;
}

/* Each thread caches the last results, because a layer's call queries the table several
 * times, for the call and for its inner call (adapt.c), and `compute` loops over the
 * segments up to 64 times. */
struct kcp_launch kcp_launch_of(const struct kcp_call *c, const struct kcp_device *d)
{
    enum { KEPT = 4 };
    static _Thread_local struct { struct key key; struct kcp_launch of; } kept[KEPT];
    static _Thread_local int next;
    struct kcp_launch x = { .cut = 1, .windows = 1, .columns = 64, .back_columns = 64,
                            .stage_strips = c->NS };
    if (kcp_plan_fits(c)) {
        const struct key key = key_of(c, d);
        int i = 0;
        while (i < KEPT && (!key.plan || memcmp(&key, &kept[i].key, sizeof key))) i++;
        if (i == KEPT) {
            i = next++ % KEPT;
            kept[i].of = compute(c, d);
            kept[i].key = key;
        }
        x = kept[i].of;
    }
    if (c->H >= 1 && c->K >= 1) {
        x.finish_blocks = kcp_finish_blocks(c->NC, c->H, c->K, d->sms);
        x.finish_pairs = kcp_finish_pairs(c->NC, c->H, c->K, d->sms);
    }
    x.keeps_states = kcp_keeps_states(c);
    return x;
}

__attribute__((constructor)) static void offer(void) { kcp_gpu_launch = kcp_launch_of; }
