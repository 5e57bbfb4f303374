/* outputs.h -- writes a build's outputs to a file, or compares them with such a file.
 *
 * Book: CONTRIBUTING.md, "Mutation testing".  Checked by: tests/cli/lies.sh.
 * Next: outputs.c. */
#ifndef KCP_OUTPUTS_H
#define KCP_OUTPUTS_H

#include "judge.h"

/* Run the reference and every host variant of each stage in this process on fifty cases
 * (o->quick: ten), drawn with o->seed. Return an exit status: 0 if the file was
 * written, or no bit changed; 1 if an output changed by more than ten tolerances, or a
 * status changed; 2 if the file cannot be opened or written; 3 for smaller changes of
 * outputs. */
int outputs_keep(const char *path, const struct options *o);
int outputs_against(const char *path, const struct options *o);

#endif
