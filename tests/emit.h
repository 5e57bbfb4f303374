/* emit.h -- the judge's cases as files, for kernels written in other languages. */
#ifndef KCP_EMIT_H
#define KCP_EMIT_H
#include "judge.h"
int emit_cases(const char *dir, const struct options *o);
int judge_foreign(const char *dir, const struct options *o, struct kcp_report *rep);
#endif
