/* plain.c -- returns whether calls with given options run a plain path, and why.
 * Book: chapter 08, "Paths".
 *
 * A plain path is a program of stages, which takes many times as long as a kernel of
 * chapter 18. This file reads only values that all ranks have in common (types, sizes
 * of a head, options, architecture), never a rank's tokens, so all ranks decide alike,
 * e.g. to call another library. */
#include "checked.h"
#include "paths.h"

#include <stdio.h>
#include <string.h>

/* A call on a device. The members that differ between ranks have fixed values. */
struct device_call {
    struct kcp_call call;
    enum kcp_storage storage;
    struct kcp_device device;
};

/* ---- what a call may need for a fast path */
enum fix { ARCH, Q, G, BETA, SIZE_K, SIZE_V, SIZE_C, FIXES };
static const char *const fix_names[FIXES] = { "the GPU", "q", "g", "beta", "K", "V",
                                              "C" };

/* Gives one value of the call a value for which there is a fast path. */
static void change(struct device_call *x, enum fix what)
{
    struct kcp_call *c = &x->call;
    switch (what) {
    case ARCH: x->device.arch = 90; break;
    case Q:
        x->storage = KCP_BF16;
        c->q_type = KCP_AS_Q;
        break;
    case G: c->g_type = KCP_AS_Q; break;
    case BETA: c->beta_type = KCP_AS_Q; break;
    case SIZE_K:
        c->K = c->K <= 64 ? 64 : 128;
        c->KG = kcp_gates_of(c);
        break;
    case SIZE_V: c->V = c->K <= 64 ? 64 : 128; break;
    default: c->C = 64;
    }
}

static void print_value(const struct device_call *x, enum fix what, char *s, size_t n)
{
    static const enum kcp_store stores[] = { [Q] = KCP_ACTV, [G] = KCP_G,
                                             [BETA] = KCP_BETA };
    const struct kcp_call *c = &x->call;
    const int sizes[FIXES] = { [SIZE_K] = c->K, [SIZE_V] = c->V, [SIZE_C] = c->C };
    if (what == ARCH) snprintf(s, n, "sm_%d", x->device.arch);
    else if (what >= SIZE_K) snprintf(s, n, "%d", sizes[what]);
    else
        snprintf(s, n, "%s", kcp_type_name(kcp_type_of(c, stores[what], x->storage)));
}

/* Returns the path of a pass, or NULL. Forward sets *format, which backward reads. */
static const struct kcp_path *path_of(const struct device_call *x, int backward,
                                      int saved, int *format, int unlinked)
{
    const struct kcp_query q = {
        .stage = backward ? "13_backward" : "08_forward", .storage = x->storage,
        .call = &x->call, .device = &x->device, .saved = saved,
        .format = backward ? *format : 0, .unlinked = unlinked };
    const struct kcp_path *p = kcp_path_find(&q, NULL, NULL, 0);
    if (!backward) *format = p ? p->format : 0;
    return p;
}

int kcp_path_is_plain(const struct kcp_path *p)
{
    char stage[40];
    return !p || (kcp_path_word(p, "02", stage, sizeof stage) > 0 &&
                  !kcp_path_word(p, "plain", stage, sizeof stage));
}

/* Returns 1 if a pass of x is plain. Sets *p to the path of the first such pass. */
static int is_plain(const struct device_call *x, int saves, int unlinked,
                    const struct kcp_path **p)
{
    int format = 0;
    *p = path_of(x, 0, saves, &format, unlinked);
    if (kcp_path_is_plain(*p) || !saves) return kcp_path_is_plain(*p);
    *p = path_of(x, 1, saves, &format, unlinked);
    return kcp_path_is_plain(*p);
}

/* Returns x with all changes whose bits are in `bits`. */
static struct device_call fixed(const struct device_call *x, unsigned bits)
{
    struct device_call y = *x;
    for (int i = 0; i < FIXES; i++)
        if (bits >> i & 1) change(&y, (enum fix)i);
    return y;
}

int kcp_plain(const struct kcp_call *call, enum kcp_storage storage,
              const struct kcp_device *device, int saves, int unlinked, char *why,
              size_t n)
{
    struct device_call x = { *call, storage, *device };
    const struct kcp_path *p, *other;
    unsigned bits = (1u << FIXES) - 1;
    x.call.plan = NULL;
    x.call.comm = NULL;
    x.call.T = x.call.N = x.call.NS = x.call.NC = x.call.R = 1;
    x.call.r = x.call.strip_chunks = 0;
    if (n) why[0] = 0;
    if (!is_plain(&x, saves, unlinked, &p)) return 0;
    struct device_call y = fixed(&x, bits);
    int at = snprintf(why, n, "%s", p ? p->name : "no path");
    if (is_plain(&y, saves, unlinked, &other)) return 1;
    for (int i = 0; i < FIXES; i++) {                /* keep only necessary changes */
        y = fixed(&x, bits & ~(1u << i));
        if (!is_plain(&y, saves, unlinked, &other)) bits &= ~(1u << i);
    }
    y = fixed(&x, bits);
    for (int i = 0, first = 1; i < FIXES; i++) {
        char found[24], expected[24];
        if (!(bits >> i & 1) || at < 0 || (size_t)at >= n) continue;
        print_value(&x, (enum fix)i, found, sizeof found);
        print_value(&y, (enum fix)i, expected, sizeof expected);
        at += snprintf(why + at, n - (size_t)at, "%s %s is %s, expected %s",
                       first ? ":" : ";", fix_names[i], found, expected);
        first = 0;
    }
    return 1;
}

int kcp_layer_plain(const struct kcp_layer *layer, const struct kcp_call *call,
                    int saves, char *why, size_t n)
{
    struct kcp_device d;
    if (!layer || !call || (!why && n)) return KCP_PLAIN_UNKNOWN;
    if (layer->where != KCP_DEVICE || kcp_device_here(&d)) return KCP_PLAIN_UNKNOWN;
    return kcp_plain(call, layer->storage, &d, saves, 0, why, n);
}
