/* fake_gpu.h -- what a test tells the library that stands for CUDA and NCCL.
 *
 * Book: chapter 20.  Checked by: tests/cli/lent.sh.  Next: fake_gpu.c. */
#ifndef KCP_FAKE_GPU_H
#define KCP_FAKE_GPU_H

#include <stdatomic.h>

enum { FAKE_RANKS = 4, FAKE_COMMS = 8, FAKE_ROW = 4096 };
struct fake_comm {
    atomic_int posted[FAKE_RANKS], gathers;        /* gathers: of rank 0 */
    unsigned char row[2][FAKE_RANKS][FAKE_ROW];
};
struct fake_world { struct fake_comm comm[FAKE_COMMS]; };

/* Memory that all ranks share. */
void fake_gpu_world(struct fake_world *w);
/* Is a stream of this thread being captured? */
void fake_gpu_capture(int on);

#endif
