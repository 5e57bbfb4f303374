/* outputs.h -- outputs of one build, kept in a file and compared with another build's.
 *
 * Book: CONTRIBUTING.md, "Mutation testing".  Checked by: tests/cli/lies.sh.
 * Next: outputs.c.
 */
#ifndef KCP_OUTPUTS_H
#define KCP_OUTPUTS_H

#include "judge.h"

/* Run fifty cases of each stage (o->quick: ten), drawn with o->seed, with the
 * reference and every host variant, in this process. Exit status: 0 if the file was
 * written, or no bit changed; 1 if an output changed by more than ten tolerances, or
 * a status changed; 2 if the file cannot be opened or written; 3 if outputs changed
 * by less. */
int outputs_keep(const char *path, const struct options *o);
int outputs_against(const char *path, const struct options *o);

#endif
