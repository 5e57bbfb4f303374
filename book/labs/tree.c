/* tree.c -- runs a student's tree scan in chapter 15's program; counts its products.
 * Book: staff.md.  Used by: make grade LAB=15_blelloch.
 * One variant of stage 15 runs the whole program with the tree in each tile. Two others
 * run the tree on names instead of maps: one counts all products, the other counts the
 * products in series. A name denotes a state or the map of leaves lo to hi - 1.
 * Two maps may be composed only if the second's leaves follow those of the first. A map
 * may be applied only to the state before its first leaf.
 */
#include "15_scan.h"
#include "book/labs/frame.h"

#include <stdlib.h>
#include <string.h>

enum { LEAVES = 64 };

/* A name, in the first 8 bytes of a map or a state. Denotes the map of leaves [lo,hi),
 * or the state before leaf hi. `depth` counts its products in series. */
enum kind { NOTHING, MAP, STATE };
struct name { unsigned char kind, lo, hi, depth; int unused; };
static int products;

static struct name name_at(const void *number)
{
    struct name name;
    memcpy(&name, number, sizeof name);
    return name;
}

static void give_name(void *number, enum kind kind, int lo, int hi, int depth)
{
    const struct name name = { kind, lo, hi, depth, 0 };
    memcpy(number, &name, sizeof name);
}

static int deeper(struct name a, struct name b)
{
    return 1 + (a.depth > b.depth ? a.depth : b.depth);
}

static int compose(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *stream)
{
    const struct name left = name_at(a), right = name_at(b);
    products++;
    if (left.kind != MAP || right.kind != MAP)
        return failed("compose: an argument is not a map");
    if (left.hi != right.lo)
        return failed("compose: leaves [%d,%d) do not begin where leaves [%d,%d) end",
                      right.lo, right.hi, left.lo, left.hi);
    if (out == a || out == b)
        return failed("compose: 'out' is also one of the two input maps");
    give_name(out, MAP, left.lo, right.hi, deeper(left, right));
    return KCP_OK;
}

static int apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
                 int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    const struct name m = name_at(map), state = name_at(S_in);
    products++;
    if (m.kind != MAP || state.kind != STATE || first)
        return failed("apply: 'map' is no map, 'S_in' is no state, or 'first' is set");
    if (state.hi != m.lo)
        return failed("apply: the map of leaves [%d,%d) is applied to the state"
                      " before leaf %d", m.lo, m.hi, state.hi);
    give_name(S_out, STATE, 0, m.hi, deeper(m, state));
    return KCP_OK;
}

static int no_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                   size_t width, size_t rows, struct CUstream_st *stream)
{
    return failed("a tree copies nothing");
}

/* Runs the tree over n leaves. Returns 0 if every state is right. Sets *depth to the
 * largest number of products in series. */
static int tree_of_names(int n, int backward, int *depth)
{
    static double map[LEAVES + 1][2], state[LEAVES][1];
    static const struct kcp_mapops ops = { .name = "names", .elem = 8, .apply = apply,
                                            .compose = compose, .copy = no_copy };
    const struct kcp_scan call = { .HV = 1, .K = 1, .V = 1, .C = LEAVES };
    double *node[LEAVES], *at[LEAVES];
    struct spike_rank x = { .a = &call, .ops = &ops, .node = node,
                            .spare = map[LEAVES] };
    int status = KCP_OK;
    memset(map, 0, sizeof map);
    memset(state, 0, sizeof state);
    for (int e = 0; e < n; e++) {
        node[e] = map[e];
        at[e] = state[e];
        give_name(map[e], MAP, e, e + 1, 0);
    }
    give_name(state[0], STATE, 0, 0, 0);
    products = 0;
    status = scan_up(&x, n, backward);
    if (status) return status;
    const struct name whole = name_at(x.node[n - 1]);
    if (whole.kind != MAP || whole.lo || whole.hi != n)
        return failed("scan_up: node[%d] of %d is not the map of all leaves", n - 1, n);
    status = scan_down(&x, n, backward, at);
    if (status) return status;
    *depth = whole.depth;
    for (int e = 0; e < n; e++) {
        const struct name s = name_at(at[e]);
        if (s.kind != STATE || s.hi != e)
            return failed("scan_down: state[%d] of %d is not the state before leaf %d",
                          e, n, e);
        if (s.depth > *depth) *depth = s.depth;
    }
    return KCP_OK;
}

static int scanned(void *args) { return ref_scan(args); }

static int counted(void *args, int in_series)
{
    for (int n = 1; n <= LEAVES; n++)
        for (int backward = 0; backward < 2; backward++) {
            int depth, log = 0;
            const int status = tree_of_names(n, backward, &depth);
            while (1 << log < n) log++;
            if (status) return status;
            const int found = in_series ? depth : products;
            const int most = in_series ? 2 * log : 2 * n;
            if (found > most)
                return failed("%d leaves: found %d products%s, expected at most %d", n,
                              found, in_series ? " in series" : "", most);
        }
    return scanned(args);
}

static int few(void *args) { return counted(args, 0); }
static int flat(void *args) { return counted(args, 1); }

KCP_VARIANT(lab_15_blelloch_lab) = { "15_scan", "lab", "yours, every tile scanned",
    KCP_F64, KCP_HOST, "any", scanned, NULL };
KCP_VARIANT(lab_15_blelloch_products) = { "15_scan", "products", "yours, counted",
    KCP_F64, KCP_HOST, "any", few, NULL };
KCP_VARIANT(lab_15_blelloch_depth) = { "15_scan", "depth", "yours, one after another",
    KCP_F64, KCP_HOST, "any", flat, NULL };
