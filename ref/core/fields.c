/* fields.c -- ranges of sizes and options, sizes of a stage's arrays, and the arrays
 * that a call uses.
 * Book: chapter 00. */
#include "checked.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SIZE = 32768,             /* of H, HV, K, V, C, KG, Wc */
    MOST_CHANNELS = 1 << 24,       /* D */
};

/* AT compiles only if the member has the size of `type`. */
#define AT(name, type)                                                                 \
    #name, offsetof(struct kcp_call, name) +                                           \
    0 * sizeof(char[sizeof ((struct kcp_call *)0)->name == sizeof(type) ? 1 : -1])
#define SIZE(name, same, least, most) { AT(name, int), MEMBER_SIZE, same, least, most }
#define OPTION(name, same, values) { AT(name, int), MEMBER_OPTION, same, 0, values - 1 }
const struct kcp_member kcp_members[] = {
    SIZE(N, 1, 0, INT_MAX),
    SIZE(R, 1, 1, INT_MAX),
    SIZE(H, 1, 1, MOST_SIZE),
    SIZE(HV, 1, 1, MOST_SIZE),
    SIZE(K, 1, 1, MOST_SIZE),
    SIZE(V, 1, 1, MOST_SIZE),
    SIZE(C, 1, 1, MOST_SIZE),
    SIZE(KG, 1, 1, MOST_SIZE),
    SIZE(D, 1, 1, MOST_CHANNELS),
    SIZE(Wc, 1, 1, MOST_SIZE),
    SIZE(NS, 0, 0, INT_MAX),
    SIZE(NC, 0, 0, INT_MAX),
    OPTION(model, 1, KCP_MODELS),
    OPTION(pass, 1, 2),
    OPTION(part, 1, 8),
    OPTION(gate, 1, 3),
    OPTION(beta_form, 1, 3),
    OPTION(q_type, 1, 5),
    OPTION(g_type, 1, 5),
    OPTION(beta_type, 1, 5),
    OPTION(act, 1, 2),
    OPTION(layout, 1, 2),
    OPTION(save, 1, 2),
    OPTION(form, 1, KCP_FORMS),
    OPTION(walk, 1, 3),
    OPTION(blocks, 1, INT_MAX),
    OPTION(strip_chunks, 0, INT_MAX),
    { AT(l2norm, int), MEMBER_FLAG, 1, 0, 0 },
    { AT(reuse_M, int), MEMBER_FLAG, 1, 0, 0 },
    { AT(shift, int), MEMBER_FLAG, 1, 0, 0 },
    { AT(scale, double), MEMBER_REAL, 1, 0, 0 },
    { AT(lower_bound, double), MEMBER_REAL, 1, 0, 0 },
};
const int kcp_nmembers = sizeof kcp_members / sizeof *kcp_members;
_Static_assert(sizeof kcp_members / sizeof *kcp_members <= KCP_MOST_MEMBERS,
               "comm/agree.c compares at most KCP_MOST_MEMBERS members");

/* Returns the address of the size in `c` whose name is name[0 .. n-1], or NULL. */
static int *size_at(const struct kcp_call *c, const char *name, size_t n)
{
    for (int i = 0; i < kcp_nmembers; i++)
        if (kcp_members[i].kind == MEMBER_SIZE && strlen(kcp_members[i].name) == n &&
            !strncmp(kcp_members[i].name, name, n))
            return (int *)((char *)c + kcp_members[i].at);
    return NULL;
}

int has_word(const char *list, const char *word, const char *between)
{
    const size_t n = strlen(word);
    for (const char *at = list; at && *at; at += strspn(at, between)) {
        const size_t len = strcspn(at, between);
        if (len == n && !strncmp(at, word, n)) return 1;
        at += len;
    }
    return 0;
}

/* Returns the value of one name ("T", "NS") or number in a shape, or -1 if the name is
 * unknown. "Wc-1" is 1 for the token shift. */
static int64_t size_of(const struct kcp_call *c, const char *at, size_t n)
{
    if (n == 1 && *at == 'T') return c->T;
    if (n == 4 && !strncmp(at, "Wc-1", n)) return c->shift ? 1 : (int64_t)c->Wc - 1;
    if (*at >= '0' && *at <= '9') return strtol(at, NULL, 10);
    const int *size = size_at(c, at, n);
    return size ? *size : -1;
}

void shape_set(struct kcp_call *c, const char *word, int64_t value)
{
    const size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZc");
    int *size = size_at(c, word, n);
    if (size) *size = (int)value;
    if (n == 1 && *word == 'T') c->T = value;
}

int64_t shape_letter(const struct kcp_call *c, const char *letter, size_t len)
{
    int64_t sum = 0;
    for (const char *at = letter, *end = letter + len; at < end; at++) {
        const size_t n = strcspn(at, " +");
        const int64_t one = size_of(c, at, n);
        if (one < 0) return -1;
        sum += one;
        at += n;
    }
    return sum;
}

int64_t kcp_field_numbers(const struct kcp_call *c, const struct kcp_field *f)
{
    const int64_t most_row = INT64_C(1) << 30, most = INT64_C(1) << 50;
    int64_t all = 1, row = 1;
    for (const char *at = f->shape; *at;) {
        const int counted = strchr("TNR", *at) && at == f->shape;
        const size_t len = strcspn(at, " ");
        const int64_t value = shape_letter(c, at, len);
        at += len + strspn(at + len, " ");
        if (value < 0 || (!counted && value && row > most_row / value)) return -1;
        if (value && all > most / value) return -1;
        row *= counted ? 1 : value;
        all *= value;
    }
    return all;
}

/* ---- models */
int kcp_model_reads(enum kcp_model model, const char *name)
{
    const char *all = kcp_models[model].reads;
    return has_word(all, name, " ") || (*name == 'd' && has_word(all, name + 1, " "));
}

int kcp_stage_takes(const struct kcp_stage *s, enum kcp_model model)
{
    const int family = kcp_models[model].kind == KCP_FAMILY;
    return (s->facts & (family ? KCP_TAKES_FAMILY : KCP_TAKES_LAYER)) != 0;
}

int kcp_gates_of(const struct kcp_call *c)
{
    return kcp_models[c->model].gates == KCP_HEAD ? 1 : c->K;
}

int field_used(const struct kcp_field *f, const struct kcp_call *c)
{
    if (f->when == KCP_BY_MODEL && !kcp_model_reads(c->model, f->name)) return 0;
    if (f->io == KCP_FOUT) return c->pass == KCP_FORWARD;
    if (f->io == KCP_BIN || f->io == KCP_BOUT) return c->pass == KCP_BACKWARD;
    return 1;
}

/* ---- types of elements */
enum kcp_type kcp_type_of_storage(enum kcp_storage storage)
{
    static const enum kcp_type type[] = {
        [KCP_F64] = KCP_TYPE_F64, [KCP_F32] = KCP_TYPE_F32,
        [KCP_BF16] = KCP_TYPE_BF16 };
    return type[storage];
}

enum kcp_type kcp_type_of(const struct kcp_call *c, enum kcp_store store,
                          enum kcp_storage storage)
{
    if (!c || store == KCP_I32 || store == KCP_I64) return KCP_AS_Q;
    if (storage == KCP_F64) return KCP_TYPE_F64;
    if (store == KCP_ACC || store == KCP_MAP) return KCP_TYPE_F32;
    if (store == KCP_G && c->g_type) return c->g_type;
    if (store == KCP_BETA && c->beta_type) return c->beta_type;
    return c->q_type ? c->q_type : kcp_type_of_storage(storage);
}

size_t kcp_bytes_of(const struct kcp_call *c, enum kcp_store store,
                    enum kcp_storage storage)
{
    const enum kcp_type type = kcp_type_of(c, store, storage);
    if (!c) return 0;
    if (store == KCP_I32 || type == KCP_TYPE_F32) return 4;
    return type == KCP_TYPE_BF16 || type == KCP_TYPE_F16 ? 2 : 8;
}

const char *kcp_type_name(enum kcp_type type)
{
    static const char *const names[] = { "q", "f64", "f32", "bf16", "f16" };
    return type <= KCP_TYPE_F16 ? names[type] : "?";
}
