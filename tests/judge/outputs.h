/* outputs.h -- what a build computes, kept; and how far another build's results move.
 *
 * Book: CONTRIBUTING.md, "Mutation testing".  Checked by: tests/cli/lies.sh.
 * Next: outputs.c.
 */
#ifndef KCP_OUTPUTS_H
#define KCP_OUTPUTS_H

#include "judge.h"

/* Fifty cases of each stage (o->quick: ten), drawn with o->seed, run by the references
 * and by every variant of the host in this process. keep: the outputs go to a file.
 * against: they are compared with such a file. An exit status: 0 kept, or nothing
 * moved; 1 an output moved by more than ten limits, or another status came back; 2 no
 * such file; 3 moved, but less than that. */
int outputs_keep(const char *path, const struct options *o);
int outputs_against(const char *path, const struct options *o);

#endif
