/* outputs.h -- outputs of one build, kept in a file and compared with another build's.
 *
 * Book: CONTRIBUTING.md, "Mutation testing".  Checked by: tests/cli/lies.sh.
 * Next: outputs.c.
 */
#ifndef KCP_OUTPUTS_H
#define KCP_OUTPUTS_H

#include "judge.h"

/* Fifty cases of each stage (o->quick: ten), drawn with o->seed, run by the references
 * and every host variant in this process. Exit status: 0 written, or no bit moved; 1 an
 * output moved by more than ten tolerances, or a status changed; 2 no such file; 3
 * moved less. */
int outputs_keep(const char *path, const struct options *o);
int outputs_against(const char *path, const struct options *o);

#endif
