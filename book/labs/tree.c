/* tree.c -- runs a student's tree in the program of chapter 15; counts its products.
 *
 * Book: labs/STAFF.md.  Used by: make grade LAB=15_blelloch.  Next: warp.c.
 * One variant of stage 15 runs the whole program with the tree in each tile. Two others
 * run the tree on names instead of maps, and count all products or products in series.
 * A name denotes the map of consecutive tokens. A name is composed only with the name
 * of the next tokens, and applied only to the state before the first of its tokens.
 */
#include "15_scan.h"
#include "book/labs/frame.h"

#include <stdlib.h>
#include <string.h>

enum { LEAVES = 64, NAMES = 40 * LEAVES };

/* `name` denotes the map of tokens [lo,hi) or, if `state` is set, the state before
 * token hi. `depth` is the number of products in series that gave this map or state. */
static struct { uint64_t name; int lo, hi, state, depth; } known[NAMES];
static int nknown, products;
static uint64_t secret = 1;

static int names(const void *number)
{
    uint64_t name;
    memcpy(&name, number, sizeof name);
    for (int i = nknown - 1; i >= 0; i--)
        if (known[i].name == name) return i;
    return -1;
}

static int give_name(void *number, int lo, int hi, int state, int depth)
{
    if (nknown == NAMES) return KCP_BAD;
    secret = secret * 6364136223846793005u + 1442695040888963407u;
    known[nknown].name = secret ^ secret >> 29;
    known[nknown].lo = lo;
    known[nknown].hi = hi;
    known[nknown].state = state;
    known[nknown].depth = depth;
    memcpy(number, &known[nknown++].name, sizeof secret);
    return KCP_OK;
}

static int deeper(int a, int b)
{
    return 1 + (known[a].depth > known[b].depth ? known[a].depth : known[b].depth);
}

static int compose(int HV, int K, int V, const void *b, const void *a, int backward,
                   int a_first, void *out, struct CUstream_st *stream)
{
    const int left = names(a), right = names(b);
    products++;
    if (left < 0 || right < 0 || known[left].state || known[right].state)
        return failed("compose: an argument is not a map");
    if (known[left].hi != known[right].lo)
        return failed("compose: leaves [%d,%d) do not end where leaves [%d,%d) begin",
                          known[right].lo, known[right].hi, known[left].lo,
                          known[left].hi);
    if (out == a || out == b)
        return failed("compose: 'out' is also one of the two input maps");
    return give_name(out, known[left].lo, known[right].hi, 0, deeper(left, right));
}

static int apply(int HV, int K, int V, const void *map, int backward, int first, int v0,
                 int Vb, const void *S_in, int ld_in, void *S_out, int ld_out,
                 struct CUstream_st *stream)
{
    const int m = names(map), s = names(S_in);
    products++;
    if (m < 0 || s < 0 || known[m].state || !known[s].state || first)
        return failed("apply: 'map' is not a map, or 'S_in' is not a state");
    if (known[s].hi != known[m].lo)
        return failed("apply: the map of leaves [%d,%d) is applied to the state"
                          " before leaf %d", known[m].lo, known[m].hi, known[s].hi);
    return give_name(S_out, 0, known[m].hi, 1, deeper(m, s));
}

static int no_copy(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                   size_t width, size_t rows, struct CUstream_st *stream)
{
    return failed("a tree copies nothing");
}

/* Runs the tree over n leaves; returns 0 if every state is right. *depth becomes the
 * largest number of products in series. */
static int tree_of_names(int n, int backward, int *depth)
{
    static double map[LEAVES + 1][2], state[LEAVES][2];
    static const struct kcp_mapops ops = { .name = "names", .elem = 8, .apply = apply,
                                            .compose = compose, .copy = no_copy };
    const struct kcp_scan call = { .HV = 1, .K = 1, .V = 1, .C = LEAVES };
    double *node[LEAVES], *at[LEAVES];
    struct spike_rank x = { .a = &call, .ops = &ops, .node = node,
                            .spare = map[LEAVES] };
    int status = KCP_OK;
    nknown = products = *depth = 0;
    memset(map, 0, sizeof map);
    memset(state, 0, sizeof state);
    for (int e = 0; e < n; e++) {
        node[e] = map[e];
        at[e] = state[e];
        status = give_name(map[e], e, e + 1, 0, 0);
    }
    give_name(state[0], 0, 0, 1, 0);
    if ((status = scan_up(&x, n, backward))) return status;
    const int whole = names(x.node[n - 1]);
    if (whole < 0 || known[whole].state || known[whole].lo || known[whole].hi != n)
        return failed("scan_up: node[%d] of %d is not the map of all"
                          " leaves", n - 1, n);
    if ((status = scan_down(&x, n, backward, at))) return status;
    for (int e = 0; e < n; e++) {
        const int s = names(at[e]);
        if (s < 0 || !known[s].state || known[s].hi != e)
            return failed("scan_down: state[%d] of %d is not the state "
                              "before leaf %d", e, n, e);
        if (known[s].depth > *depth) *depth = known[s].depth;
    }
    if (known[whole].depth > *depth) *depth = known[whole].depth;
    return KCP_OK;
}

static int scanned(void *args) { return ref_scan(args); }

static int counted(void *args, int products_too, int depth_too)
{
    for (int n = 1; n <= LEAVES; n++)
        for (int backward = 0; backward < 2; backward++) {
            int depth, log = 0;
            const int status = tree_of_names(n, backward, &depth);
            while (1 << log < n) log++;
            if (status) return status;
            if (products_too && products > 2 * n)
                return failed("%d leaves: found %d products, expected at most %d", n,
                                  products, 2 * n);
            if (depth_too && depth > 2 * log)
                return failed("%d leaves: found %d products in series, "
                                  "expected at most %d", n, depth, 2 * log);
        }
    return scanned(args);
}

static int few(void *args) { return counted(args, 1, 0); }
static int flat(void *args) { return counted(args, 0, 1); }

KCP_VARIANT(lab_15_blelloch_lab) = { "15_scan", "lab", "yours, every tile scanned",
    KCP_F64, KCP_HOST, "any", scanned, NULL };
KCP_VARIANT(lab_15_blelloch_products) = { "15_scan", "products", "yours, counted",
    KCP_F64, KCP_HOST, "any", few, NULL };
KCP_VARIANT(lab_15_blelloch_depth) = { "15_scan", "depth", "yours, one after another",
    KCP_F64, KCP_HOST, "any", flat, NULL };
