/* checks.c -- checks the saved block's size, and which calls may read the block.
 *
 * Book: chapter 12.  Checked by: itself, it can fail.  Next: ref/13_backward.c.
 */
#include "tests/judge/judge.h"
#include "core/paths.h"

#include <stdlib.h>
#include <string.h>

/* Returns the args of the second of three ranks, with sizes but without arrays. */
static struct kcp_forward example(struct kcp_plan **plan, enum kcp_model model)
{
    const int64_t cu[] = { 0, 1000, 3000 }, cuts[] = { 0, 900, 1600, 3000 };
    struct kcp_forward a = { 0 };
    if (kcp_plan_make(plan, 2, cu, 3, cuts, 0, 64, 0, NULL))
        return a;
    a.plan = *plan;
    a.N = 2;
    a.R = 3;
    a.r = 1;
    a.NS = (*plan)->ctx[1].NS;
    a.NC = (*plan)->ctx[1].NC;
    a.T = 700;
    a.H = 2;
    a.HV = 4;
    a.K = 16;
    a.V = 32;
    a.C = 64;
    a.model = model;
    a.KG = model == KCP_KDA ? 16 : 1;
    return a;
}

static size_t up(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Compares the block's bytes per mode with the sum over the tensors that the mode
 * keeps. */
static int bytes(struct kcp_report *rep)
{
    for (int model = 0; model < 2; model++) {
        struct kcp_plan *plan = NULL;
        struct kcp_forward a = example(&plan, model ? KCP_GDN : KCP_KDA);
        if (!plan)
            return KCP_NO_MEMORY;
        const size_t T = 700, d = sizeof(double), state = 4 * 16 * 32 * d;
        const size_t small = up(sizeof(struct kcp_saved)) + 2 * up(T * 2 * 16 * d)
            + 2 * up(T * 2 * d) + up(T * 4 * d) + 2 * up(T * 4 * 64 * d) + up(state);
        const size_t more = up(T * 4 * a.KG * d) + up(T * 4 * 16 * d)
            + 2 * up(T * 4 * 32 * d) + up(a.NC * state)
            + (model ? 0 : 2 * up(T * 4 * 16 * d));
        EXPECT(rep, a.NS == 2 && a.NC == 12, "example has %d segments, %d chunks",
               a.NS, a.NC);
        a.save = KCP_RECOMPUTE;
        EXPECT(rep, kcp_saved_bytes(&a) == small, "%s recompute holds %zu "
               "bytes, not %zu", model ? "GDN" : "KDA", kcp_saved_bytes(&a), small);
        a.save = KCP_SAVE_LIGHT;
        EXPECT(rep, kcp_saved_bytes(&a) == small - 2 * up(T * 2 * 16 * d), "%s light "
               "holds %zu bytes", model ? "GDN" : "KDA", kcp_saved_bytes(&a));
        a.save = KCP_SAVE_ALL;
        EXPECT(rep, kcp_saved_bytes(&a) == small + more, "%s save-all holds %zu bytes, "
               "not %zu", model ? "GDN" : "KDA", kcp_saved_bytes(&a), small + more);
        EXPECT(rep, kcp_saved_states((struct kcp_call *)&a) == 1,
               "classic mode keeps %d states", kcp_saved_states((struct kcp_call *)&a));
        kcp_plan_free(plan);
    }
    return KCP_OK;
}
KCP_CHECK(check_12_bytes) = { "12_h0", "bytes",
    "the size of a saved block (recompute, light, save-all) equals the sum of its"
    " tensors' sizes", bytes };

static int layout(struct kcp_report *rep)
{
    struct kcp_plan *plan = NULL;
    struct kcp_forward a = example(&plan, KCP_KDA);
    if (!plan)
        return KCP_NO_MEMORY;
    struct kcp_saved s;
    a.save = KCP_SAVE_ALL;
    kcp_saved_layout(&s, (struct kcp_call *)&a, "ref", 8, 8);
    uint64_t end = sizeof s;
    for (uint32_t j = 0; j < s.items; j++) {
        EXPECT(rep, s.item[j].at >= end && s.item[j].at % 64 == 0, "%s is at %llu, "
               "not %llu", s.item[j].name, (unsigned long long)s.item[j].at,
               (unsigned long long)end);
        end = s.item[j].at + s.item[j].bytes;
        EXPECT(rep, kcp_saved_at(&s, s.item[j].name) == (char *)&s + s.item[j].at,
               "%s: wrong address", s.item[j].name);
    }
    EXPECT(rep, end <= s.bytes, "the block of %llu bytes ends before its last tensor",
           (unsigned long long)s.bytes);
    EXPECT(rep, !kcp_saved_at(&s, "v"), "v is saved, but backward has it as an input");
    kcp_plan_free(plan);
    return KCP_OK;
}
KCP_CHECK(check_12_layout) = { "12_h0", "layout",
    "tensors of a saved block are aligned, do not overlap and are found by name",
    layout };

static int check(struct kcp_saved *block, size_t n, struct kcp_forward a, char *why)
{
    why[0] = 0;
    return kcp_saved_check(block, n, (struct kcp_call *)&a, "ref", 8, 8, why, 160);
}

static int foreign(struct kcp_report *rep)
{
    struct kcp_plan *plan = NULL;
    struct kcp_forward a = example(&plan, KCP_KDA), b;
    if (!plan)
        return KCP_NO_MEMORY;
    const size_t n = kcp_saved_bytes(&a);
    struct kcp_saved *block = calloc(1, n);
    char why[160];
    if (!block) {
        kcp_plan_free(plan);
        return KCP_NO_MEMORY;
    }
#define OPEN(writer) kcp_saved_begin(block, n, (struct kcp_call *)&a, writer, 8, 8)
#define REFUSED(status, word)                                                         \
    EXPECT(rep, check(block, n, b, why) == status && strstr(why, word),               \
           "message \"%s\", expected \"%s\"", why, word)
    EXPECT(rep, kcp_saved_begin(block, n - 1, (struct kcp_call *)&a, "ref", 8, 8)
                    == KCP_BAD, "a block one byte too short is accepted");
    b = a;
    EXPECT(rep, OPEN("ref") == KCP_OK && check(block, n, b, why) == KCP_OK,
           "valid block rejected: %s", why);
    EXPECT(rep, check(block, n - 1, b, why) == KCP_BAD, "accepts a truncated block");
    EXPECT(rep, check(block, 8, b, why) == KCP_BAD, "accepts a truncated header");
    EXPECT(rep, check(NULL, n, b, why) == KCP_BAD, "accepts NULL as a block");
    b = a; b.save = KCP_SAVE_ALL;
    EXPECT(rep, check(block, n, b, why) == KCP_OK, "other save mode rejected: %s", why);
    b = a; b.C = 32;
    REFUSED(KCP_MISMATCH, "C is 64");
    b = a; b.r = 2;
    REFUSED(KCP_MISMATCH, "r is 1");
    b = a; b.T = 701;
    REFUSED(KCP_MISMATCH, "T is 700");
    b = a; b.model = KCP_GDN; b.KG = 1;
    REFUSED(KCP_MISMATCH, "model");
    b = a; b.l2norm = 1;
    REFUSED(KCP_MISMATCH, "l2norm");
    OPEN("v2_fused"); b = a;
    EXPECT(rep, check(block, n, b, why) == KCP_OK,
           "a block of the same format by another writer is rejected: %s", why);
    OPEN("v2_fused");
    block->format = 7;
    REFUSED(KCP_MISMATCH, "format 7.1, written by v2_fused; ref reads 1.1, factors");
    OPEN("ref");
    block->format_version++;
    REFUSED(KCP_MISMATCH, "format 1.2");
    EXPECT(rep, kcp_saved_layout_of(block, (struct kcp_call *)&a, 7, "ref", 8, 8)
                    == KCP_BAD, "accepts an unknown format");
    OPEN("ref");
    block->version++;
    REFUSED(KCP_MISMATCH, "version");
    OPEN("ref");
    block->magic[0] = 'k';
    REFUSED(KCP_MISMATCH, "does not open with");
    OPEN("ref");
    block->item[3].at += 64;
    REFUSED(KCP_MISMATCH, "table");
    free(block);
    kcp_plan_free(plan);
    return KCP_OK;
}
KCP_CHECK(check_12_foreign) = { "12_h0", "foreign",
    "a saved block of another format, call, version or length is rejected with a "
    "reason", foreign };

static const struct kcp_saved_item *item(const struct kcp_saved *s, const char *name)
{
    for (uint32_t j = 0; j < s->items; j++)
        if (!strcmp(s->item[j].name, name)) return &s->item[j];
    return NULL;
}

/* Computes the layout of the fused forward's block on rank 0 of R ranks, for sequences
 * of 1000 and 2000 tokens. */
static int of_chunks(struct kcp_saved *s, int R, int64_t L, int strip_chunks,
                     enum kcp_save save)
{
    const int64_t cu[] = { 0, 1000, 3000 };
    struct kcp_plan *plan;
    struct kcp_call a = { .N = 2, .R = R, .H = 2, .HV = 4, .K = 64, .V = 64, .C = 64,
                          .KG = 64, .model = KCP_KDA, .strip_chunks = strip_chunks,
                          .save = save };
    if (kcp_plan_make(&plan, 2, cu, R, NULL, L, 64, 0, NULL)) return KCP_NO_MEMORY;
    a.plan = plan;
    a.NS = plan->ctx[0].NS;
    a.NC = plan->ctx[0].NC;
    a.T = plan->ctx[0].end;
    const int status = kcp_saved_layout_of(s, &a, KCP_FORMAT_CHUNKS, "fused", 2, 4);
    kcp_plan_free(plan);
    return status;
}

/* With 4 chunks per strip, the sequences have 4 and 8 strips. A map [K,V+K] is as large
 * as two states, because K = V. */
static int strips(struct kcp_report *rep)
{
    struct kcp_saved s, other;
    const size_t state = 4 * 64 * 64 * sizeof(float);
    int status = of_chunks(&s, 1, 0, 4, KCP_RECOMPUTE);
    if (status) return status;
    const struct kcp_saved_item *starts = item(&s, "strip_starts");
    const struct kcp_saved_item *maps = item(&s, "strip_maps");
    EXPECT(rep, starts && starts->bytes == 12 * state, "12 states take %llu "
           "bytes", starts ? (unsigned long long)starts->bytes : 0ull);
    EXPECT(rep, maps && maps->bytes == 24 * state, "12 maps take %llu bytes",
           maps ? (unsigned long long)maps->bytes : 0ull);
    status = of_chunks(&other, 1, 0, 5, KCP_RECOMPUTE);
    EXPECT(rep, status || other.bytes != s.bytes,
           "other strips give a block of equal size");
    status = status ? status : of_chunks(&other, 2, 0, 4, KCP_RECOMPUTE);
    EXPECT(rep, status || !item(&other, "strip_maps"),
           "saves strip maps on two ranks");
    status = status ? status : of_chunks(&other, 1, 256, 4, KCP_RECOMPUTE);
    EXPECT(rep, status || !item(&other, "strip_maps"), "strip maps of segments");
    return status;
}
KCP_CHECK(check_12_strips) = { "12_h0", "strips",
    "the saved block of the fused forward has states and maps of strips if the "
    "sequence is cut", strips };

/* Checks the size of the fused forward's block per mode (48 chunks, 4 heads). */
static int chunk_modes(struct kcp_report *rep)
{
    struct kcp_saved of[3];
    const size_t heads = 48 * 4, state = 64 * 64 * sizeof(uint16_t);
    const size_t factors = up(heads * (388 * 64 + 10240)) + up(heads * 64 * 4) +
                           2 * up(48 * 2 * 64 * 4);
    for (int save = 0; save < 3; save++) {
        const int status = of_chunks(&of[save], 1, 0, 4, (enum kcp_save)save);
        if (status) return status;
    }
    const struct kcp_saved *all = &of[KCP_SAVE_ALL], *light = &of[KCP_SAVE_LIGHT];
    const struct kcp_saved_item *h = item(all, "h_chunks");
    const struct kcp_saved_item *v_new = item(all, "v_new_chunks");
    EXPECT(rep, of[0].NC == 48, "%d chunks", of[0].NC);
    EXPECT(rep, h && h->bytes == heads * state, "save-all does not save h");
    EXPECT(rep, v_new && v_new->bytes == heads * state, "save-all: v_new");
    EXPECT(rep, all->bytes - of[0].bytes == 2 * heads * state, "save-all holds %llu "
           "bytes more than recompute", (unsigned long long)(all->bytes - of[0].bytes));
    EXPECT(rep, of[0].bytes - light->bytes == factors, "light holds %llu bytes less "
           "than recompute", (unsigned long long)(of[0].bytes - light->bytes));
    EXPECT(rep, !item(light, "factors") && !item(light, "beta") &&
           item(light, "h_kept") && item(light, "strip_maps"),
           "light has factors or lacks h_kept, strip_maps");
    return KCP_OK;
}
KCP_CHECK(check_12_chunk_modes) = { "12_h0", "chunk_modes",
    "the saved block of the fused forward has no factors if light, and adds h and"
    " v_new if save-all", chunk_modes };
