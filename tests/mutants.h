/* mutants.h -- the flags and the variants of a stage's mutants, from one list.
 * Book: CONTRIBUTING.md, "Adding".
 *
 * Before this header, a file defines the list MUTANTS(MUTANT). A row has the mutant's
 * name, the flag that selects the mistake, and what is wrong. This header defines each
 * flag as one bit. The file's function run(args, flags) makes the mistakes. The file
 * ends with a prefix of C names, the stage, the supported shapes and this function:
 *
 *     #define MUTANT_STAGE m04, "04_chunk", "any", run
 *     MUTANTS(MUTANT)
 *     MUTANT_TWIN */
#include "kcp.h"

#define MUTANT_BIT(name, FLAG, why) FLAG##_BIT,
#define MUTANT_FLAG(name, FLAG, why) FLAG = 1 << FLAG##_BIT,
enum { MUTANTS(MUTANT_BIT) };
enum { MUTANTS(MUTANT_FLAG) };

#define MUTANT_RECORD(prefix, stage, shapes, run, ident, name, flags, why)            \
    static int prefix##_run_##ident(void *args) { return run(args, flags); }          \
    KCP_VARIANT(prefix##_##ident) = { stage, name, why, KCP_F64, KCP_HOST, shapes,    \
                                      prefix##_run_##ident, NULL };
#define MUTANT_OF(...) MUTANT_RECORD(__VA_ARGS__)         /* expands MUTANT_STAGE */
#define MUTANT(name, FLAG, why)                                                       \
    MUTANT_OF(MUTANT_STAGE, name, "mutant_" #name, FLAG, why)
#define MUTANT_TWIN                                                                   \
    MUTANT_OF(MUTANT_STAGE, twin, "twin", 0,                                          \
              "correct: runs the mutants' code without a mistake")
