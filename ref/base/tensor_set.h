/* tensor_set.h -- sets of named tensors, for the judge and kcp-run.
 * Book: CONTRIBUTING.md, "How the judge works". */
#pragma once

#include "checked.h"
#include "ref.h"

#ifdef __cplusplus
extern "C" {
#endif

/* `p` is a double *, int * or int64_t *, depending on `store`. */
struct tensor {
    char name[16];
    int nd;
    int64_t dim[4], n;
    enum kcp_store store;
    void *p;
    /* Only kcp-run uses the following members. */
    char file[24];
    const char *shape;             /* e.g. "T HV V" */
    int out, copies;               /* copies: R if each rank has a copy, otherwise 1 */
    int by_rank;                   /* 1: [R,...]; row r is a sum over rank r's tokens */
};
struct tensor_set { int n; struct tensor t[80]; };

struct tensor *tensor_find(const struct tensor_set *b, const char *name);
/* Adds an empty tensor of this name, or empties an existing tensor of this name. */
struct tensor *tensor_new(struct tensor_set *b, const char *name);
/* Adds an output of this shape, filled with NaN. */
struct tensor *tensor_add(struct tensor_set *b, const char *name, const char *shape,
                          enum kcp_store store, const struct kcp_call *c);
void tensor_drop(struct tensor_set *b, const char *name);
void tensor_set_free(struct tensor_set *b);
/* Frees the tensors of `to`, then copies the tensors of `from` to `to`. */
void tensor_set_copy(struct tensor_set *to, const struct tensor_set *from);
void *alloc_or_exit(size_t bytes);            /* exits with 2 if out of memory */
int     shape_dims(const struct kcp_call *c, const char *shape, int64_t dim[4]);
/* Runs the reference of stage s on the tensors of the set. */
int  reference_run(struct tensor_set *b, const struct kcp_stage *s,
                   const struct kcp_call *c);
int  field_in(const struct kcp_field *f);                       /* 1: IN or BIN */
/* Returns the name of the field's .npy file: the name, but "do" for do_. */
const char *field_file(const struct kcp_field *f);
int  field_given(const struct kcp_field *f, const struct kcp_call *c);
size_t tensor_bytes(const struct tensor *t);  /* of t->p */

/* encode and decode convert n numbers between double and a type. encode truncates to
 * bf16, because callers pass values that bf16 represents exactly. An element with all
 * bits set was never written. */
void encode(void *to, const double *from, int64_t n, enum kcp_type type);
void decode(double *to, const void *from, int64_t n, enum kcp_type type);

#ifdef __cplusplus
}
#endif
