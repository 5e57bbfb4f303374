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

/* ---- what a call may need for a fast path: each function changes one value */
static void fix_arch(struct device_call *x) { x->device.arch = 90; }
static void fix_q(struct device_call *x)
{
    x->storage = KCP_BF16;
    x->call.q_type = KCP_AS_Q;
}

static void fix_g(struct device_call *x) { x->call.g_type = KCP_AS_Q; }
static void fix_beta(struct device_call *x) { x->call.beta_type = KCP_AS_Q; }
static void fix_C(struct device_call *x) { x->call.C = 64; }

static void fix_K(struct device_call *x)
{
    x->call.K = x->call.K <= 64 ? 64 : 128;
    x->call.KG = kcp_gates_of(&x->call);
}

static void fix_V(struct device_call *x) { x->call.V = x->call.K <= 64 ? 64 : 128; }

static void print_arch(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "sm_%d", x->device.arch);
}

static void print_q(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "%s", kcp_type_name(kcp_type_of(&x->call, KCP_ACTV, x->storage)));
}

static void print_g(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "%s", kcp_type_name(kcp_type_of(&x->call, KCP_G, x->storage)));
}

static void print_beta(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "%s", kcp_type_name(kcp_type_of(&x->call, KCP_BETA, x->storage)));
}

static void print_K(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "%d", x->call.K);
}

static void print_V(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "%d", x->call.V);
}

static void print_C(const struct device_call *x, char *s, size_t n)
{
    snprintf(s, n, "%d", x->call.C);
}

static const struct {
    const char *name;
    void (*fix)(struct device_call *);
    void (*print)(const struct device_call *, char *, size_t);
} fixes[] = {
    { "the GPU", fix_arch, print_arch }, { "q", fix_q, print_q },
    { "g", fix_g, print_g }, { "beta", fix_beta, print_beta }, { "K", fix_K, print_K },
    { "V", fix_V, print_V }, { "C", fix_C, print_C },
};
enum { FIXES = sizeof fixes / sizeof *fixes };

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
        if (bits >> i & 1) fixes[i].fix(&y);
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
        fixes[i].print(&x, found, sizeof found);
        fixes[i].print(&y, expected, sizeof expected);
        at += snprintf(why + at, n - (size_t)at, "%s %s is %s, expected %s",
                       first ? ":" : ";", fixes[i].name, found, expected);
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
