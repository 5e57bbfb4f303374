/* fields.c -- computes the sizes of a stage's arrays, and which arrays a call uses.
 *
 * Book: chapter 00.  Checked by: tests/20_clusters/calls.c, tests/fuzz/calls.c.
 * Next: checked.c. */
#include "checked.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_SIZE = 32768,             /* of H, HV, K, V, C, KG, Wc */
    MOST_CHANNELS = 1 << 24,       /* D */
};

const struct kcp_size kcp_sizes[] = {
#define SIZE(name, least, most) { #name, offsetof(struct kcp_call, name), least, most },
#define OWN_SIZE SIZE
#define OPTION(name, values)
#define OWN_OPTION(name, values)
#define FLAG(name)
#define REAL(name)
#include "members.def"
};
const int kcp_nsizes = sizeof kcp_sizes / sizeof *kcp_sizes;

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
    for (int i = 0; i < kcp_nsizes; i++)
        if (strlen(kcp_sizes[i].name) == n && !strncmp(kcp_sizes[i].name, at, n))
            return *(const int *)((const char *)c + kcp_sizes[i].at);
    return -1;
}

void shape_set(struct kcp_call *c, const char *word, int64_t value)
{
    const size_t n = strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZc");
    for (int i = 0; i < kcp_nsizes; i++)
        if (strlen(kcp_sizes[i].name) == n && !strncmp(kcp_sizes[i].name, word, n))
            *(int *)((char *)c + kcp_sizes[i].at) = (int)value;
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

int field_used(const struct kcp_field *f, const struct kcp_call *c)
{
    if (f->when == KCP_ONLY_KDA && c->model != KCP_KDA) return 0;
    if (f->when == KCP_ONLY_GDN && c->model != KCP_GDN) return 0;
    if (f->io == KCP_FOUT) return c->pass == KCP_FORWARD;
    if (f->io == KCP_BIN || f->io == KCP_BOUT) return c->pass == KCP_BACKWARD;
    return 1;
}
