/* saved.c -- the block that forward saves for backward: a header, then tensors.
 * Book: chapter 12.
 *
 * saved.def lists the tensors of each format. A reader checks the format in the block's
 * header, but not which kernel wrote the block. */
#include "moves.h"
#include "paths.h"
#include "records.h"

#include <stdio.h>
#include <string.h>

static const char magic[8] = "KCPsaved";
enum { SAVED_VERSION = 3, SAVED_ALIGN = 64 };
#define MOST_BYTES (INT64_C(1) << 60)

#define KCP_FORMAT(id, version, name, what) { id, version, name },
#define KCP_KEPT(name, count, bytes, when)
static const struct { int id, version; const char *name; } formats[] = {
#include "saved.def"
};
#undef KCP_FORMAT
#undef KCP_KEPT

enum { FORMATS = sizeof formats / sizeof *formats };

int kcp_format_version(int format)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].id == format) return formats[i].version;
    return 0;
}

const char *kcp_format_name(int format)
{
    for (int i = 0; i < FORMATS; i++)
        if (formats[i].id == format) return formats[i].name;
    return "unknown";
}

/* Returns the number of initial states that a rank saves. In a contiguous plan without
 * canonical cuts this is one state (ref_h0), because only the rank's first segment can
 * begin inside a sequence. Otherwise several segments may begin inside a sequence. Then
 * a rank saves one state per segment, so backward need not repeat the fold of maps that
 * computes these states. */
int kcp_saved_states(const struct kcp_call *a)
{
    if (!a) return 0;
    const int every = a->plan && (a->plan->L > 0 || a->plan->scattered);
    return every ? a->NS : a->NS > 0;
}

/* Returns `count` times `each`, or -1 if a factor is negative or the product is more
 * than MOST_BYTES. */
static int64_t product(__int128 count, __int128 each)
{
    if (count < 0 || each < 0 || count > MOST_BYTES || each > MOST_BYTES) return -1;
    return count * each > MOST_BYTES ? -1 : (int64_t)(count * each);
}

static int add(struct kcp_saved *s, const char *name, int64_t bytes)
{
    struct kcp_saved_item *item = &s->item[s->items];
    if (s->items == sizeof s->item / sizeof *s->item || bytes < 0 ||
        s->bytes > MOST_BYTES)
        return KCP_BAD;
    s->items++;
    snprintf(item->name, sizeof item->name, "%s", name);
    item->at = s->bytes;
    item->bytes = (uint64_t)bytes;
    s->bytes += (item->bytes + SAVED_ALIGN - 1) / SAVED_ALIGN * SAVED_ALIGN;
    return KCP_OK;
}

/* Adds to the header every tensor of saved.def whose condition is true. */
static int add_all(struct kcp_saved *s, const struct kcp_facts *f)
{
    KCP_FACTS(KCP_FACT_LOCAL)
#define KCP_FORMAT(id, version, name, what)
#define KCP_KEPT(name, count, bytes, when)                                             \
    if ((when) && add(s, name, product(count, bytes))) return KCP_BAD;
#include "saved.def"
#undef KCP_FORMAT
#undef KCP_KEPT
    return KCP_OK;
}

static int64_t exchange_bytes(const struct kcp_call *a)
{
    const struct kcp_exchange x = {
        .form = a->form, .blocks = a->blocks, .reuse_M = 1,
        .HV = a->HV, .K = a->K, .V = a->V, .plan = a->plan, .comm = a->comm,
        .ops = a->ops, .stream = a->stream,
    };
    return (int64_t)kcp_moves->exchange_kept(&x);
}

/* Fills the header of a block for this call: sizes, then name, offset and bytes of
 * every tensor. `writer` is used only in messages. A number has `actv` bytes in an ACTV
 * array and `acc` bytes in an ACC array. Returns KCP_BAD if the format is unknown or
 * sizes are invalid. If sizes are invalid, s->bytes is 0. */
int kcp_saved_layout_of(struct kcp_saved *s, const struct kcp_call *a, int format,
                        const char *writer, size_t actv, size_t acc)
{
    if (!s) return KCP_BAD;
    memset(s, 0, sizeof *s);
    if (!a || !writer) return KCP_BAD;
    if (format == KCP_FORMAT_ADAPTED) {
        struct kcp_call inner;
        kcp_adapt(a, &inner);
        const struct kcp_path *p = kcp_adapt_path(&inner, 0, 1);
        const int of = p ? p->format : 0;
        if (!of || of == KCP_FORMAT_ADAPTED) return KCP_BAD;
        return kcp_saved_layout_of(s, &inner, of, writer, actv, acc);
    }
    memcpy(s->magic, magic, sizeof magic);
    snprintf(s->writer, sizeof s->writer, "%s", writer);
    s->version = SAVED_VERSION;
    s->format = format;
    s->format_version = kcp_format_version(format);
    s->actv = (int32_t)actv;
    s->acc = (int32_t)acc;
    s->T = a->T;
    s->L = a->plan ? a->plan->L : 0;
    s->R = a->R; s->r = a->r; s->NS = a->NS; s->NC = a->NC;
    s->H = a->H; s->HV = a->HV; s->K = a->K; s->V = a->V; s->C = a->C; s->KG = a->KG;
    s->model = a->model; s->save = a->save; s->l2norm = a->l2norm;
    s->reuse_M = a->reuse_M; s->form = a->form;
    enum kcp_storage storage = actv == 8 ? KCP_F64 : KCP_BF16;
    if (actv == 4) storage = KCP_F32;
    s->g_type = kcp_type_of(a, KCP_G, storage);
    s->beta_type = kcp_type_of(a, KCP_BETA, storage);
    s->bytes = (sizeof *s + SAVED_ALIGN - 1) / SAVED_ALIGN * SAVED_ALIGN;

    struct kcp_device device = { 0 };  /* used only for format `chunks` */
    if (format == KCP_FORMAT_CHUNKS && kcp_device_here(&device))
        device = kcp_device_assumed();
    struct kcp_facts f = kcp_facts_of(a, &device);
    f.saved = 1;
    f.format = format;
    f.actv = (int64_t)actv;
    f.acc = (int64_t)acc;
    f.exchange = a->reuse_M ? exchange_bytes(a) : 0;
    if (add_all(s, &f)) {
        s->bytes = s->items = 0;
        return KCP_BAD;
    }
    return s->format_version ? KCP_OK : KCP_BAD;
}

/* Returns the size in bytes, including the header, of the block that the reference
 * writes for this call, or 0 if the call's sizes are invalid. */
size_t kcp_saved_bytes(const struct kcp_forward *a)
{
    struct kcp_saved s;
    kcp_saved_layout_of(&s, (const struct kcp_call *)a, KCP_FORMAT_FACTORS, "ref",
                        sizeof(double), sizeof(double));
    return s.bytes;
}

/* Writes the header of a saved block of the format `factors`. Returns KCP_BAD if the
 * block is missing or too short, or if sizes are invalid. */
int kcp_saved_begin(void *saved, size_t bytes, const struct kcp_call *a,
                    const char *writer, size_t actv, size_t acc)
{
    struct kcp_saved s = { .bytes = 0 };
    kcp_saved_layout_of(&s, a, KCP_FORMAT_FACTORS, writer, actv, acc);
    if (!saved || bytes < sizeof s || !s.bytes || bytes < s.bytes) return KCP_BAD;
    memcpy(saved, &s, sizeof s);
    return KCP_OK;
}

/* Returns the address of a tensor in a block with a valid header, or NULL if the block
 * lacks the tensor. */
void *kcp_saved_at(const void *saved, const char *name)
{
    const struct kcp_saved *s = saved;
    for (uint32_t j = 0; s && j < s->items; j++)
        if (strcmp(s->item[j].name, name) == 0) return (char *)saved + s->item[j].at;
    return NULL;
}

static int differs(const struct kcp_saved *s, const struct kcp_saved *want, char *why,
                   size_t n)
{
#define SAME(x)                                                                       \
    if (s->x != want->x) {                                                            \
        snprintf(why, n, "saved block: its " #x " is %lld, but this call has %lld",   \
                 (long long)s->x, (long long)want->x);                                \
        return 1;                                                                     \
    }
    SAME(model) SAME(C) SAME(T) SAME(L) SAME(R) SAME(r) SAME(NS) SAME(NC) SAME(H)
    SAME(HV) SAME(K) SAME(V) SAME(KG) SAME(l2norm) SAME(g_type)
    SAME(beta_type) SAME(actv) SAME(acc) SAME(bytes)
#undef SAME
    if (memcmp(s, want, sizeof *want)) {
        snprintf(why, n, "saved block: its table of tensors differs from "
                 "this version's table");
        return 1;
    }
    return 0;
}

/* Verifies that the block has this format and was saved for this call, but save mode,
 * reuse_M and `form` may differ. Returns KCP_BAD if the block is missing or too short,
 * and KCP_MISMATCH if it has a wrong format or is from another call. On an error,
 * writes the reason to the n bytes of `why`. If n is 0, `why` may be NULL. */
int kcp_saved_check_of(const void *saved, size_t bytes, const struct kcp_call *a,
                       int format, const char *reader, size_t actv, size_t acc,
                       char *why, size_t n)
{
    const struct kcp_saved *s = saved;
    struct kcp_call call;
    struct kcp_saved want;

    if (!a) {
        snprintf(why, n, "saved block: the call to compare it with is NULL");
        return KCP_BAD;
    }
    call = *a;
    if (!s || bytes < sizeof *s) {
        snprintf(why, n, "saved block: found %zu bytes, but its header alone has %zu",
                 s ? bytes : (size_t)0, sizeof *s);
        return KCP_BAD;
    }
    if (memcmp(s->magic, magic, sizeof magic) || s->version != SAVED_VERSION) {
        snprintf(why, n, "saved block: does not begin with '%.8s', version %d", magic,
                 SAVED_VERSION);
        return KCP_MISMATCH;
    }
    if (s->format != format || s->format_version != kcp_format_version(format)) {
        snprintf(why, n,
                 "saved block: found format %d.%d by %.*s, but %s reads %d.%d (%s)",
                 s->format, s->format_version, (int)sizeof s->writer, s->writer, reader,
                 format, kcp_format_version(format), kcp_format_name(format));
        return KCP_MISMATCH;
    }
    call.save = s->save;
    call.reuse_M = s->reuse_M;
    if (s->reuse_M) call.form = s->form;
    kcp_saved_layout_of(&want, &call, format, reader, actv, acc);
    want.form = s->form;
    memcpy(want.writer, s->writer, sizeof want.writer);
    if (differs(s, &want, why, n)) return KCP_MISMATCH;
    if (bytes < s->bytes) {
        snprintf(why, n, "saved block: found %zu bytes, expected %llu", bytes,
                 (unsigned long long)s->bytes);
        return KCP_BAD;
    }
    return KCP_OK;
}
