/* emit.h -- writes the judge's cases to files, for kernels in other languages.
 * Book: CONTRIBUTING.md, "Kernels written elsewhere". */
#pragma once
#include "judge.h"

/* Write cases to `dir`, or judge outputs in `dir`. Return exit status 2 on error. */
int emit_cases(const char *dir, const struct options *o);
int judge_foreign(const char *dir, const struct options *o, struct kcp_report *rep);

extern const char *const emit_pass_name[2];
/* Builds the path of a file of case i in pass `pass`. */
void emit_path(char *path, size_t n, const char *dir, int i, int pass,
               const char *file);
/* Computes the shape that tensor t has in its .npy file. In layout vk, the file
 * contains transposed states. */
void emit_dims(const struct kcp_field *f, const struct kcp_call *c,
               const struct tensor *t, int64_t *dim);

/* ---- a file with the outputs of a build (outputs.c). */
/* outputs_keep writes the file, and outputs_against compares outputs with it. Both run
 * each stage's reference and host variants in this process on fifty random cases (ten
 * with o->quick). Exit status 0: written or no bit changed; 1: a status changed, or an
 * output changed by over ten limits; 2: unusable file; 3: smaller changes. */
int outputs_keep(const char *path, const struct options *o);
int outputs_against(const char *path, const struct options *o);
