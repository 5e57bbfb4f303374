/* split.h -- computes where a rank cuts segments, so that a call with few heads fills a
 * GPU.
 * Book: chapter 18b, "Few heads".
 *
 * A strip is a part of a segment. A chunk has C tokens. One rule computes the length of
 * strips for programs with one kernel per stage, another rule for the fused forward,
 * whose launches overlap. P (`processors`) is the SM count. Costs are in machine.h. */
#pragma once

#include "core/paths.h"
#include "machine.h"
#include "stages.h"

/* launch.c: computes the launch of a call on GPU d. The plan may be NULL and sizes may
 * be wrong; then the launch is that of an empty call. */
#ifdef __cplusplus
extern "C"
#endif
struct kcp_launch kcp_launch_of(const struct kcp_call *call,
                                const struct kcp_device *d);

enum { KCP_MOST_STRIPS = 64 };

/* Returns the length of the rank's longest segment. kcp_strips_at returns the number of
 * strips if all segments are cut into strips of L tokens. */
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

/* Returns the number of chunks in the longest strip, i.e. a scan's serial steps. */
static inline int64_t kcp_steps_at(const struct kcp_context *x, int C, int64_t L)
{
    const int64_t longest = kcp_longest(x);
    return ((L < longest ? L : longest) + C - 1) / C;
}

/* Returns the length, a multiple of C, of each of m strips of the longest segment. */
static inline int64_t kcp_length_tried(int64_t longest, int C, int m)
{
    return (longest + (int64_t)m * C - 1) / ((int64_t)m * C) * C;
}

/* ---- programs of stages */

/* Returns the cost, in steps of chapter 04's scan, of scanning strips of L tokens on P
 * SMs and folding their maps. L is a multiple of C, or the longest segment's length. */
static inline double kcp_strip_cost(const struct kcp_context *x, int HV, int C, int P,
                                   int64_t L)
{
    const int64_t strips = kcp_strips_at(x, L), steps = kcp_steps_at(x, C, L);
    const int64_t waves = (strips * HV + P - 1) / P;
    return (double)(waves * steps) * (kcp_longest(x) > L ? 1 + KCP_STEP_M : 1)
         + (double)(strips - x->NS) * KCP_STEP_FOLD;
}

/* Returns the cheapest strip length, or 0 if uncut segments are cheapest. Strips need
 * extra work for maps, so cutting is faster only if SMs would otherwise be idle. */
static inline int64_t kcp_strip_length(const struct kcp_context *x, int HV, int C,
                                       int P)
{
    const int64_t longest = kcp_longest(x);
    int64_t best = 0;
    double lowest = longest ? kcp_strip_cost(x, HV, C, P, longest) : 0;
    for (int m = 2; longest && m <= KCP_MOST_STRIPS; m++) {
        const int64_t L = kcp_length_tried(longest, C, m);
        const double cost = kcp_strip_cost(x, HV, C, P, L);
        if (L < longest && cost < lowest) {
            lowest = cost;
            best = L;
        }
    }
    return best;
}

/* Returns the tokens per strip of a program of stages, or 0 if segments are not cut, as
 * in every canonical plan. kcp_stage_strips returns how many strips this rank has. */
static inline int64_t kcp_stage_length(const struct kcp_call *a, int P)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    if (a->plan->L) return 0;
    if (a->strip_chunks) return (int64_t)a->strip_chunks * a->C;
    return kcp_strip_length(x, a->HV, a->C, P);
}

static inline int64_t kcp_stage_strips(const struct kcp_call *a, int P)
{
    const int64_t L = kcp_stage_length(a, P);
    return L ? kcp_strips_at(&a->plan->ctx[a->r], L) : a->NS;
}

/* ---- the fused forward */

/* Input of the rule for the fused forward: the segments of one rank, P SMs, KG gates
 * per head (1 or K). `crossing` is !kcp_entire(). `excess` is by how much longer than
 * on an H200 the same bytes take in memory, as a fraction: 0 on an H200. */
struct kcp_cut {
    const struct kcp_context *x;
    int H, HV, KG, V, P, crossing;
    double excess;
};

/* Returns the scan's number of blocks for this number of chains. A chain is one value
 * head of one strip (a part of a segment). The scan has one block per 64 columns of a
 * chain if all these blocks fit on P SMs at once, otherwise one block per chain. */
static inline int64_t kcp_scan_blocks(int64_t chains, int V, int P)
{
    return chains * V / 64 <= P ? chains * V / 64 : chains;
}

/* Return the time on this GPU, given the time on an H200: kcp_beside of factors, or of
 * kernels that are concurrent with factors; kcp_scan_step of a step of a scan alone,
 * whose use of memory is proportional to the number of its blocks. */
static inline double kcp_beside(const struct kcp_cut *c, double time)
{
    return time * (1 + (c->KG == 1 ? KCP_SHARE_HEAD : KCP_SHARE_CHANNEL) * c->excess);
}

static inline double kcp_scan_step(const struct kcp_cut *c, double time, int64_t blocks)
{
    const double full = blocks < c->P ? (double)blocks / c->P : 1;
    return time * (1 + KCP_SHARE_STEP * full * c->excess);
}

/* Returns the time to compute one chunk's factors of all heads on all SMs. */
static inline double kcp_factors_time(const struct kcp_cut *c)
{
    return kcp_beside(c, c->KG == 1 ? KCP_FACTORS_ROWS * c->H + KCP_FACTORS_HEAD * c->HV
                                    : KCP_FACTORS * c->HV);
}

/* A scan that leaves half of the GPU idle is cut into launches. While launch i scans
 * its chunks, the other SMs compute the factors for launch i + 1. Returns the ratio
 * (chunks of launch i + 1) / (chunks of launch i), at most 1, for which scan and
 * factors take the same time. */
static inline double kcp_launch_ratio(const struct kcp_cut *c)
{
    const int64_t blocks = kcp_scan_blocks(c->HV, c->V, c->P);
    const double beside = kcp_factors_time(c) * c->P / (double)(c->P - blocks);
    const double step = kcp_beside(c, KCP_STEP_BESIDE);
    return step < beside ? step / beside : 1.0;
}

/* NC chunks are divided into n launches. Returns the first chunk of launch i. */
static inline int kcp_launch_begin(int NC, double ratio, int n, int i)
{
    double before = 0, all = 0, w = 1;
    for (int j = 0; j < n; j++, w *= ratio) {
        before += j < i ? w : 0;
        all += w;
    }
    return (int)(NC * before / all + 0.5);
}

/* Returns the time that n launches add to the scan: the factors of the first launch,
 * which do not overlap with a scan, and n - 1 additional launches. */
static inline double kcp_launches_cost(const struct kcp_cut *c, int n)
{
    const int first = n == 1 ? c->x->NC
                             : kcp_launch_begin(c->x->NC, kcp_launch_ratio(c), n, 1);
    return first * kcp_factors_time(c) + (n - 1) * KCP_LAUNCH;
}

/* Returns the cheapest number of launches, but at least 2 if the scan can be cut, so
 * that short test cases also have several launches. */
static inline int kcp_launches(const struct kcp_cut *c)
{
    int best = 2;
    if (c->crossing || c->x->NS != 1 || c->x->NC < 4) return 1;
    if (2 * kcp_scan_blocks(c->HV, c->V, c->P) > c->P) return 1;
    for (int n = 3; n <= 8; n++)
        if (kcp_launches_cost(c, n) < kcp_launches_cost(c, best)) best = n;
    return best;
}

/* Returns the time, with strips of L tokens, of the maps, the fold, the scan, and the
 * factors that do not overlap with the scan. */
static inline double kcp_fused_cost(const struct kcp_cut *c, int64_t L)
{
    const struct kcp_context *x = c->x;
    const int64_t strips = kcp_strips_at(x, L), steps = kcp_steps_at(x, 64, L);
    const int64_t chains = strips * c->HV, blocks = kcp_scan_blocks(chains, c->V, c->P);
    const double step = blocks > chains || c->V == 64 ? KCP_STEP_64 : KCP_STEP_128;
    const double whole = kcp_launches_cost(c, 1);
    const double cut = strips == x->NS ? kcp_launches_cost(c, kcp_launches(c)) : whole;
    double cost = (double)((blocks + c->P - 1) / c->P * steps)
                * (cut < whole ? kcp_beside(c, step) : kcp_scan_step(c, step, blocks));
    cost += cut < whole ? cut : whole;
    if (strips > x->NS || c->crossing)
        cost += (double)((2 * chains + c->P - 1) / c->P * steps)
              * kcp_scan_step(c, KCP_STEP_MAP, 2 * chains);
    return cost + (double)(strips - x->NS) * KCP_FOLD;
}

/* Returns the cheapest chunks per strip, or 0 if uncut segments are cheapest. */
static inline int kcp_fused_chunks(const struct kcp_cut *c)
{
    const int64_t longest = kcp_longest(c->x);
    int64_t best = 0;
    double lowest = longest ? kcp_fused_cost(c, longest) : 0;
    for (int m = 2; longest && m <= KCP_MOST_STRIPS; m++) {
        const int64_t L = kcp_length_tried(longest, 64, m);
        const double cost = kcp_fused_cost(c, L);
        if (L < longest && cost < lowest) {
            lowest = cost;
            best = L;
        }
    }
    return (int)(best / 64);
}

/* ---- the facts of a call that both rules use */

/* Returns 1 if every segment is a whole sequence and no sequence crosses a cut of the
 * plan. */
static inline int kcp_entire(const struct kcp_call *a)
{
    const struct kcp_segment *seg = a->plan->seg + a->plan->ctx[a->r].seg0;
    int entire = !a->plan->crossing;
    for (int s = 0; s < a->NS; s++) entire = entire && seg[s].first && seg[s].last;
    return entire;
}

static inline struct kcp_cut kcp_cut_of(const struct kcp_call *a,
                                        const struct kcp_device *d)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    const double excess = d->bandwidth ? KCP_BANDWIDTH / (double)d->bandwidth - 1 : 0;
    const struct kcp_cut c = { x,    a->H,   a->HV,          a->KG,
                               a->V, d->sms, !kcp_entire(a), excess };
    return c;
}

/* Returns the chunks per strip of the fused forward, or 0 if segments are not cut. In
 * a canonical plan the result is a->strip_chunks, although no segment is cut. */
static inline int kcp_fused_strip(const struct kcp_call *a, const struct kcp_device *d)
{
    if (a->strip_chunks || a->plan->L) return a->strip_chunks;
    const struct kcp_cut c = kcp_cut_of(a, d);
    return kcp_fused_chunks(&c);
}

/* Returns the number of strips of `chunks` chunks on this rank, or the number of
 * segments if `chunks` is 0. */
static inline int64_t kcp_strips(const struct kcp_call *a, int chunks)
{
    const struct kcp_context *x = &a->plan->ctx[a->r];
    return chunks ? kcp_strips_at(x, (int64_t)chunks * a->C) : x->NS;
}

/* ---- a walk computes the map of a rank's only segment concurrently with the factors
 *
 * While some SMs compute the map of a window of chunks, the other SMs compute the
 * factors of the next window. */

/* Returns the number of blocks that compute the map while other blocks compute
 * factors: two per head for [h_ext | M]. For only h_ext, the number is one per head
 * if gates are per channel and K = V, otherwise one per head and 64 columns. */
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

/* Returns the time without a walk: first all factors are computed, then the maps of all
 * strips. A strip has strip_chunks chunks. If strip_chunks is 0, there is one strip. */
static inline double kcp_maps_cost(const struct kcp_call *a, int strip_chunks,
                                   const struct kcp_device *d)
{
    const struct kcp_cut c = kcp_cut_of(a, d);
    const int64_t strips = kcp_strips(a, strip_chunks), blocks = 2 * strips * a->HV;
    const int steps = strips > 1 ? strip_chunks : a->NC;
    const double waves = (double)((blocks + c.P - 1) / c.P);
    const double step = kcp_walk_step(a, KCP_WANT_H | KCP_WANT_M);
    return a->NC * kcp_factors_time(&c)
         + waves * steps * kcp_scan_step(&c, step, blocks)
         + (double)(strips - 1) * KCP_FOLD;
}

/* Returns the time of a walk that computes the map of `walked` chunks, in windows of
 * W chunks. The time is a sum of four terms: the factors of the first window; the
 * walk concurrent with the other factors; the map of the last window, if needed; the
 * launches. The second term is the longer of two times: the walk's time, and the
 * time that all SMs together need for the walk and these factors. */
static inline double kcp_walk_cost(const struct kcp_call *a, int want, int walked,
                                   const struct kcp_device *d)
{
    const struct kcp_cut c = kcp_cut_of(a, d);
    const double factors = kcp_factors_time(&c);
    const double step = kcp_beside(&c, kcp_walk_step(a, want));
    const int W = KCP_WALK_CHUNKS;
    const double walk = walked * step, share = (double)kcp_walk_blocks(a, want) / c.P;
    const double work = (a->NC - W) * factors + walk * share;
    return W * factors + (walk > work ? walk : work) + (walked == a->NC ? W * step : 0)
         + (double)a->NC / W * KCP_WALK_LAUNCH;
}

/* Returns, as bits KCP_WANT_*, the parts of the map that a walk computes (while other
 * SMs compute factors), or 0 if the map is computed after all factors. If the sequence
 * begins on this rank, M is not needed. If the sequence ends on this rank, no other
 * rank reads the map, so a walk is needed only for the states between strips. If
 * a->walk is KCP_SEQUENTIAL, there is a walk if possible. KCP_AUTO selects the cheaper
 * method, and KCP_BLELLOCH selects no walk. */
static inline int kcp_fused_walk(const struct kcp_call *a, const struct kcp_device *d)
{
    const struct kcp_segment *s = a->plan->seg + a->plan->ctx[a->r].seg0;
    if (a->NS != 1 || a->NC < 2 || a->plan->L || !a->plan->crossing) return 0;
    if (a->walk == KCP_BLELLOCH) return 0;
    const int strip = kcp_fused_strip(a, d);
    if (s->last && !strip) return 0;
    if (!s->first && a->K != a->V) return 0;
    const int want = s->first ? KCP_WANT_H : KCP_WANT_H | KCP_WANT_M;
    if (2 * kcp_walk_blocks(a, want) > d->sms) return 0;
    if (a->walk == KCP_SEQUENTIAL) return want;
    if (a->NC < 2 * KCP_WALK_CHUNKS) return 0;
    const int walked = s->last ? (a->NC - 1) / strip * strip : a->NC;
    return kcp_walk_cost(a, want, walked, d) < kcp_maps_cost(a, strip, d) ? want : 0;
}

/* A launch processes one window: the chunks first .. first + count - 1, which are in
 * strip number `strip`. The launch extends map number `from` (-1: the window begins the
 * segment) by these chunks and stores map number `strip`. is_read is 1 if a later
 * strip or another rank reads that map. To iterate, start with all members 0. */
struct kcp_walk_window { int first, count, strip, from, is_read; };

/* Sets *x to the next window, a part of a strip that one launch processes. The NC
 * chunks are divided into strips of strip_chunks (0: one strip of all chunks).
 * `leaves` is 1 if another rank reads the segment's map. Returns 0 after the last
 * window. A strip of several chunks whose map is read has at least two windows, so that
 * short test cases also have several windows. */
static inline int kcp_walk_next(struct kcp_walk_window *x, int NC,
                                int strip_chunks, int leaves)
{
    const int end = x->first + x->count, L = strip_chunks ? strip_chunks : NC;
    if (end >= NC) return 0;
    const int strip = end / L, begin = strip * L;
    const int chunks = NC - begin < L ? NC - begin : L;
    const int is_read = begin + chunks < NC || leaves;
    int n = chunks / KCP_WALK_CHUNKS;
    if (n < 4) n = chunks > 1 ? 2 : 1;
    if (!is_read) n = 1;
    const int i = (int)(((int64_t)(end - begin) * n + chunks - 1) / chunks);
    x->first = end;
    x->count = begin + (int)((int64_t)chunks * (i + 1) / n) - end;
    x->from = i ? strip : strip - 1;
    x->strip = strip;
    x->is_read = is_read;
    return 1;
}

/* ---- work per block in the kernels of chapter 18 */

/* Returns the number of chunks of the largest launch that computes factors. A launch
 * has all chunks of the call, a part of a cut scan, or one window of a walk. */
static inline int kcp_most_prepared(const struct kcp_call *a,
                                    const struct kcp_device *d)
{
    const struct kcp_cut c = kcp_cut_of(a, d);
    const int strip = kcp_fused_strip(a, d), walk = kcp_fused_walk(a, d);
    const int launches = kcp_entire(a) && !strip && a->NC ? kcp_launches(&c) : 1;
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

/* Returns the chunks per block of chunk_prepare (the kernel that computes factors) with
 * a gate per channel. To hide the latency of loads, a block has two or three chunks if
 * four waves of blocks remain. It has more than 3 only to keep gridDim.y <= 65535. */
static inline int kcp_prepare_chunks(int chunks, int heads, int processors)
{
    const int64_t n = (int64_t)chunks * heads / (4 * 3 * processors);
    const int some = n > 3 ? 3 : (int)n, needed = chunks / 65535 + 1;
    return some > needed ? some : needed;
}

/* Returns the number of blocks of backward's kernel `finish`, which distributes pairs
 * of a chunk and a query/key head over blocks. */
static inline int kcp_finish_blocks(int NC, int H, int K, int processors)
{
    const int64_t pairs = (int64_t)NC * H;
    const int most = K == 128 ? processors : 2 * processors;
    return pairs < most ? (int)pairs : most;
}

/* Returns the largest number of (chunk, head) pairs per block of `finish`. */
static inline int64_t kcp_finish_pairs(int NC, int H, int K, int processors)
{
    const int64_t blocks = kcp_finish_blocks(NC, H, K, processors);
    return blocks ? ((int64_t)NC * H + blocks - 1) / blocks : 0;
}

/* Bit flags: the scans that backward runs for a segment. STATES scans the states
 * forward. REVERSE scans the gradients of the states in reverse and stores every one.
 * DH_EXT runs the scan of REVERSE, but stores only dh_ext, which other ranks need. */
enum kcp_scan_job { KCP_JOB_STATES = 1, KCP_JOB_REVERSE = 2, KCP_JOB_DH_EXT = 4 };

/* Returns 1 if the reverse scan of segment s runs before the exchange. This is
 * possible if s ends its sequence, because the reverse scan starts from the given
 * dht and computes the gradient that earlier ranks need. Returns 0 if the reverse scan
 * and the scan of states, in blocks of 64 columns, fit on the GPU at once, because then
 * one launch that computes dh_ext and the states is faster. With K = 128 and a gate per
 * channel, each block counts as two blocks (scans_sm90.cu). */
static inline int kcp_reverses_first(const struct kcp_call *a, int s, int processors)
{
    const int j = a->plan->ctx[a->r].seg0 + s;
    const int64_t blocks = (a->K == 128 && a->KG != 1 ? 4LL : 2LL) * a->HV * a->V / 64;
    return a->plan->seg[j].last && kcp_plan_want(a->plan, j, 1) & KCP_WANT_H &&
           blocks > processors;
}

/* Returns the scans of segment s in launch 0 or 1, as bits KCP_JOB_*. If `entire` is 1,
 * launch 0 runs all scans. Otherwise the exchange is between the launches. Launch 0
 * runs STATES, and DH_EXT if other ranks need it. Launch 1 runs REVERSE. But if
 * kcp_reverses_first is 1, launch 0 runs only REVERSE, and launch 1 runs STATES, so
 * that STATES does not delay the exchange. In mode save-all no launch runs STATES. */
static inline int kcp_scan_jobs(const struct kcp_call *a, int entire, int s, int launch,
                                int processors)
{
    const int states = kcp_keeps_states(a) ? 0 : KCP_JOB_STATES;
    const int seg0 = a->plan->ctx[a->r].seg0;
    if (entire) return launch ? 0 : states | KCP_JOB_REVERSE;
    if (kcp_reverses_first(a, s, processors)) return launch ? states : KCP_JOB_REVERSE;
    if (launch) return KCP_JOB_REVERSE;
    const int wanted = kcp_plan_want(a->plan, seg0 + s, 1) & KCP_WANT_H;
    return states | (wanted ? KCP_JOB_DH_EXT : 0);
}

/* Returns the number of scans in launch 0 or 1, if nothing is split. */
static inline int kcp_jobs(const struct kcp_call *a, int launch, int processors)
{
    const int entire = kcp_entire(a);
    int n = 0;
    for (int s = 0; s < a->NS; s++)
        for (int jobs = kcp_scan_jobs(a, entire, s, launch, processors); jobs;
             jobs &= jobs - 1)
            n++;
    return n;
}
