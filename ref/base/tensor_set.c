/* tensor_set.c -- allocates and converts the tensors of references.
 * Book: CONTRIBUTING.md, "How the judge works". */
#include "tensor_set.h"
#include "bf16.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tensor *tensor_find(const struct tensor_set *b, const char *name)
{
    for (int i = 0; i < b->n; i++)
        if (!strcmp(b->t[i].name, name)) return (struct tensor *)&b->t[i];
    return NULL;
}

int shape_dims(const struct kcp_call *c, const char *shape, int64_t dim[4])
{
    int nd = 0;
    for (const char *s = shape; *s && nd < 4; nd++) {
        size_t len = strcspn(s, " ");
        dim[nd] = shape_letter(c, s, len);
        if (dim[nd] < 0) return -1;
        s += len + (s[len] == ' ');
    }
    return nd;
}

size_t tensor_bytes(const struct tensor *t)
{
    return (size_t)t->n * (t->store == KCP_I32 ? 4 : 8);
}

/* Allocates memory. If this fails, prints one line and exits with status 2. */
void *alloc_or_exit(size_t bytes)
{
    void *p = malloc(bytes);
    if (p) return p;
    fprintf(stderr, "kcp: out of memory: cannot allocate %zu bytes\n", bytes);
    fflush(stdout);
    _Exit(2);
}

struct tensor *tensor_new(struct tensor_set *b, const char *name)
{
    struct tensor *t = tensor_find(b, name);
    if (t) free(t->p);
    else if (b->n == (int)(sizeof b->t / sizeof *b->t)) abort();
    else t = &b->t[b->n++];
    *t = (struct tensor){ .n = 1, .copies = 1 };
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

/* Fills outputs with NaN, which reveals elements that a reference does not write. */
struct tensor *tensor_add(struct tensor_set *b, const char *name, const char *shape,
                          enum kcp_store store, const struct kcp_call *c)
{
    struct tensor *t = tensor_new(b, name);
    t->store = store;
    t->nd = shape_dims(c, shape, t->dim);
    for (int i = 0; i < t->nd; i++) t->n *= t->dim[i];
    const size_t bytes = tensor_bytes(t) + 8;
    t->p = alloc_or_exit(bytes);
    memset(t->p, 0xff, bytes);
    return t;
}

void tensor_drop(struct tensor_set *b, const char *name)
{
    struct tensor *t = tensor_find(b, name);
    if (!t) return;
    free(t->p);
    *t = b->t[--b->n];
}

void tensor_set_free(struct tensor_set *b)
{
    for (int i = 0; i < b->n; i++) free(b->t[i].p);
    b->n = 0;
}

void tensor_set_copy(struct tensor_set *to, const struct tensor_set *from)
{
    tensor_set_free(to);
    for (int i = 0; i < from->n; i++) {
        struct tensor *t = &to->t[to->n++];
        *t = from->t[i];
        const size_t n = tensor_bytes(t);
        t->p = alloc_or_exit(n + 8);
        memcpy(t->p, from->t[i].p, n);
    }
}

int field_in(const struct kcp_field *f) { return f->io == KCP_IN || f->io == KCP_BIN; }

const char *field_file(const struct kcp_field *f)
{
    return strcmp(f->name, "do_") ? f->name : "do";
}

/* Returns 1 if f is an output that this call reads. Only dv_local of stage 09 is such a
 * field: part KCP_LOCAL writes it, and part KCP_REVERSE reads it. */
int field_given(const struct kcp_field *f, const struct kcp_call *c)
{
    return c->part == KCP_REVERSE && !strcmp(f->name, "dv_local") && !field_in(f);
}

/* Returns 0 if the field depends on an optional input that is not in the set. */
static int is_computed(const struct tensor_set *b, const struct kcp_field *f)
{
    static const char *const of[][2] = {
        { "dA_part", "A_log" },   { "ddt_part", "dt_bias" }, { "dA_log", "A_log" },
        { "ddt_bias", "dt_bias" }, { "dweight", "weight" },  { "dbias", "bias" },
        { "da", "a" }, { "db", "b" }, { "domega", "omega" }, { "dx0", "x0" },
        { "xt", "dxt" },
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (!strcmp(f->name, of[i][0])) return tensor_find(b, of[i][1]) != NULL;
    return 1;
}

int reference_run(struct tensor_set *b, const struct kcp_stage *s,
                  const struct kcp_call *c)
{
    char *args = calloc(1, s->args);
    if (!args) return KCP_NO_MEMORY;
    memcpy(args, c, sizeof *c);
    for (int i = 0; i < s->nfields; i++) {
        const struct kcp_field *f = &s->fields[i];
        if (!field_used(f, c) || !is_computed(b, f)) continue;
        struct tensor *t = tensor_find(b, f->name);
        if (!field_in(f) && !field_given(f, c))
            t = tensor_add(b, f->name, f->shape, f->store, c);
        if (!t && f->when != KCP_MAYBE) {
            fprintf(stderr, "judge: %s needs %s\n", s->name, f->name);
            free(args);
            return KCP_BAD;
        }
        if (t) memcpy(args + f->at, &t->p, sizeof t->p);
    }
    int status = s->ref(args);
    free(args);
    return status;
}

/* ---- storage */

/* Returns 1 if all bits of x are set, as in outputs that were never written. */
static int untouched(double x)
{
    uint64_t u;
    memcpy(&u, &x, 8);
    return u == UINT64_MAX;
}

static size_t type_bytes(enum kcp_type type)
{
    if (type == KCP_TYPE_F64) return 8;
    return type == KCP_TYPE_F32 ? 4 : 2;
}

void encode(void *to, const double *from, int64_t n, enum kcp_type type)
{
    const size_t bytes = type_bytes(type);
    for (int64_t i = 0; i < n; i++) {
        float f = (float)from[i];
        uint32_t u;
        memcpy(&u, &f, 4);
        uint16_t half = (uint16_t)(u >> 16);
        if (type == KCP_TYPE_F16) half = f16_of(from[i]);
        if (bytes == 8) ((double *)to)[i] = from[i];
        else if (bytes == 4) ((float *)to)[i] = f;
        else ((uint16_t *)to)[i] = half;
        if (untouched(from[i])) memset((char *)to + i * bytes, 0xff, bytes);
    }
}

void decode(double *to, const void *from, int64_t n, enum kcp_type type)
{
    const size_t bytes = type_bytes(type);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u;
        float f;
        if (bytes == 8) { to[i] = ((const double *)from)[i]; continue; }
        if (bytes == 4) memcpy(&u, (const char *)from + 4 * i, 4);
        else {
            const uint32_t half = ((const uint16_t *)from)[i];
            u = half << 16 | (half == 0xffff ? 0xffff : 0);
        }
        memcpy(&f, &u, 4);
        to[i] = f;
        if (type == KCP_TYPE_F16) to[i] = f16_value(((const uint16_t *)from)[i]);
        if (u == 0xffffffffu) memset(&to[i], 0xff, 8);
    }
}
