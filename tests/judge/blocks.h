/* blocks.h -- memory of the calling thread's GPU, kept from array to array.
 *
 * Book: CONTRIBUTING.md, "How the judge works".
 * Checked by: tests/20_clusters/stand_in/late.c.  Next: blocks.c. */
#ifndef KCP_BLOCKS_H
#define KCP_BLOCKS_H

#include <stddef.h>

/* n bytes, NULL: out of memory. is_kept: an earlier array's block may come back, with
 * that array's bytes. The caller of release has synchronized with the block's GPU. */
void *blocks_alloc(size_t n, int is_kept);
void blocks_release(void *p);

#endif
