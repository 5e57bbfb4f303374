/* checks.c -- checks sizes of forward's saved tensors, and which calls may read them.
 * Book: chapter 12. */
#include "tests/judge/judge.h"
#include "core/paths.h"

#include <stdlib.h>
#include <string.h>

/* Returns the args of the second of three ranks, with sizes but without arrays. */
static struct kcp_forward example(struct kcp_plan **plan)
{
    const int64_t cu[] = { 0, 1000, 3000 }, cuts[] = { 0, 900, 1600, 3000 };
    struct kcp_forward a = { .H = 2, .HV = 4, .K = 16, .V = 32, .KG = 16 };
    if (!kcp_plan_make(plan, 2, cu, 3, cuts, 0, 64, 0, NULL)) {
        kcp_layer_call(&(struct kcp_layer){ 0 }, (struct kcp_call *)&a, *plan, NULL);
        a.r = 1; a.T = 700; a.NS = (*plan)->ctx[1].NS; a.NC = (*plan)->ctx[1].NC;
    }
    return a;
}

static int check(struct kcp_saved *block, size_t n, struct kcp_forward a, char *why)
{
    why[0] = 0;
    return kcp_saved_check_of(block, n, (struct kcp_call *)&a, KCP_FORMAT_FACTORS,
                              "ref", 8, 8, why, 160);
}

static int foreign(struct kcp_report *rep)
{
    struct kcp_plan *plan = NULL;
    struct kcp_forward a = example(&plan), b;
    if (!plan) return KCP_NO_MEMORY;
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
                    == KCP_BAD, "a block that is one byte too short is accepted");
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
    b = a; b.g_type = KCP_TYPE_F32;
    EXPECT(rep, check(block, n, b, why) == KCP_OK,
           "in double, a block is rejected for the type of g: %s", why);
    block->g_type = KCP_TYPE_F32;
    REFUSED(KCP_MISMATCH, "g_type is 2, but this call has 1");
    OPEN("v2_fused"); b = a;
    EXPECT(rep, check(block, n, b, why) == KCP_OK,
           "a block of the right format from another kernel is rejected: %s", why);
    OPEN("v2_fused");
    block->format = 7;
    REFUSED(KCP_MISMATCH, "found format 7.1 by v2_fused, but ref reads 1.1 (factors)");
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
    REFUSED(KCP_MISMATCH, "does not begin with");
    OPEN("ref");
    block->item[3].at += 64;
    REFUSED(KCP_MISMATCH, "table");
    free(block);
    kcp_plan_free(plan);
    return KCP_OK;
}
KCP_CHECK(check_12_foreign) = { "12_h0", "foreign",
    "a saved block is rejected with a reason if its format, call, version or "
    "length is not the expected one", foreign };

/* ---- the tensors of a block, by format and mode */

/* Computes the layout of a saved block on rank 0 of R ranks, for sequences of 1000
 * and 2000 tokens, 2 key heads, 4 value heads and K = V = 64. */
static int layout_of(struct kcp_saved *s, int format, enum kcp_model model, int R,
                     int64_t L, enum kcp_save save)
{
    const int64_t cu[] = { 0, 1000, 3000 };
    const int factors = format == KCP_FORMAT_FACTORS;
    struct kcp_plan *plan;
    struct kcp_call a = { .H = 2, .HV = 4, .K = 64, .V = 64, .model = model,
                          .KG = model == KCP_KDA ? 64 : 1, .strip_chunks = 4,
                          .save = save };
    if (kcp_plan_make(&plan, 2, cu, R, NULL, L, 64, 0, NULL)) return KCP_NO_MEMORY;
    kcp_layer_call(&(struct kcp_layer){ 0 }, &a, plan, NULL);
    const int status = kcp_saved_layout_of(s, &a, format, "ref", factors ? 8 : 2,
                                           factors ? 8 : 4);
    kcp_plan_free(plan);
    return status;
}

/* With 4 chunks per strip (part), the sequences have 4 and 8 strips. A map [K,V+K] is
 * as large as two states, because K = V. The batch has 3000 tokens in 48 chunks. */
enum { ROWS = 3000 * 4, CHUNKS = 48 * 4, STATE = 64 * 64, STATES = 4 * STATE };
static const struct {
    int format;
    enum kcp_model model;
    int R, L;
    enum kcp_save save;
    const char *name;
    size_t bytes;                  /* 0 if the saved block lacks the tensor */
} kept[] = {
    { 1, KCP_KDA, 1, 0, KCP_RECOMPUTE, "q", ROWS / 2 * 64 * 8 },
    { 1, KCP_KDA, 1, 0, KCP_RECOMPUTE, "rstd_k", ROWS / 2 * 8 },
    { 1, KCP_KDA, 1, 0, KCP_RECOMPUTE, "beta", ROWS * 8 },
    { 1, KCP_GDN, 1, 0, KCP_RECOMPUTE, "Aqk", ROWS * 64 * 8 },
    { 1, KCP_GDN, 1, 0, KCP_RECOMPUTE, "A", ROWS * 64 * 8 },
    { 1, KCP_KDA, 1, 0, KCP_RECOMPUTE, "h_kept", STATES * 8 },
    { 1, KCP_KDA, 1, 0, KCP_RECOMPUTE, "w", 0 },
    { 1, KCP_KDA, 1, 0, KCP_SAVE_ALL, "G", ROWS * 64 * 8 },
    { 1, KCP_GDN, 1, 0, KCP_SAVE_ALL, "G", ROWS * 8 },
    { 1, KCP_KDA, 1, 0, KCP_SAVE_ALL, "qg", ROWS * 64 * 8 },
    { 1, KCP_GDN, 1, 0, KCP_SAVE_ALL, "qg", 0 },
    { 1, KCP_KDA, 1, 0, KCP_SAVE_ALL, "v_new", ROWS * 64 * 8 },
    { 1, KCP_KDA, 1, 0, KCP_SAVE_ALL, "h", CHUNKS * STATE * 8 },
    { 2, KCP_KDA, 1, 0, KCP_RECOMPUTE, "factors", CHUNKS * (388 * 64 + 10240) },
    { 2, KCP_KDA, 1, 0, KCP_RECOMPUTE, "beta", CHUNKS * 64 * 4 },
    { 2, KCP_KDA, 1, 0, KCP_RECOMPUTE, "rstd_q", CHUNKS / 2 * 64 * 4 },
    { 2, KCP_KDA, 1, 0, KCP_RECOMPUTE, "strip_starts", 12 * STATES * 4 },
    { 2, KCP_KDA, 1, 0, KCP_RECOMPUTE, "strip_maps", 24 * STATES * 4 },
    { 2, KCP_KDA, 2, 0, KCP_RECOMPUTE, "strip_maps", 0 },
    { 2, KCP_KDA, 1, 256, KCP_RECOMPUTE, "strip_maps", 0 },
    { 2, KCP_KDA, 1, 0, KCP_RECOMPUTE, "h_chunks", 0 },
    { 2, KCP_KDA, 1, 0, KCP_SAVE_ALL, "h_chunks", CHUNKS * STATE * 2 },
    { 2, KCP_KDA, 1, 0, KCP_SAVE_ALL, "v_new_chunks", CHUNKS * STATE * 2 } };

static int bytes(struct kcp_report *rep)
{
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        struct kcp_saved s;
        size_t found = 0, end = (sizeof s + 63) / 64 * 64;
        const int status = layout_of(&s, kept[i].format, kept[i].model, kept[i].R,
                                     kept[i].L, kept[i].save);
        if (status) return status;
        for (uint32_t j = 0; j < s.items; j++) {
            if (!strcmp(s.item[j].name, kept[i].name)) found = s.item[j].bytes;
            EXPECT(rep, s.item[j].at == end && kcp_saved_at(&s, s.item[j].name) ==
                   (char *)&s + end, "%s at byte %llu, expected %zu, or lookup fails",
                   s.item[j].name, (unsigned long long)s.item[j].at, end);
            end += (s.item[j].bytes + 63) / 64 * 64;
        }
        EXPECT(rep, found == kept[i].bytes && s.bytes == end, "format %d, %s, R %d, "
               "save %d: %s has %zu bytes, expected %zu; block has %llu, expected %zu",
               kept[i].format, model_name[kept[i].model], kept[i].R, kept[i].save,
               kept[i].name, found, kept[i].bytes, (unsigned long long)s.bytes, end);
        EXPECT(rep, !kcp_saved_at(&s, "v"), "the block has v, an input of backward");
    }
    return KCP_OK;
}
KCP_CHECK(check_12_bytes) = { "12_h0", "bytes",
    "in each format and mode the tensors of a saved block are aligned and as large "
    "as their shapes require, and the block has no other bytes", bytes };
