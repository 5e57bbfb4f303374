// pipeline.cuh -- stages of shared memory between a chunk's copies and its products.
// Book: chapter 17, "Warps with roles"; chapter 05, "A warpgroup at once".
// Checked by: every variant that includes it.
// Next: warpgroup_scan.cuh.
#ifndef KCP_TILE_PIPELINE_CUH
#define KCP_TILE_PIPELINE_CUH

#include "mbarrier.cuh"
#include "swizzle.cuh"
#include "state_io.cuh"

enum { DIM = 128 }; // K and V

// A pipeline of stages, chunk i in stage i % stages, phase i / stages: the chunk's
// tensors, two swizzle128 tiles each, what its gate gives, and two barriers, of threads
// whose copies have come (full) and of threads that have read (empty). Each thread
// arrives itself: what a lane does for its warp, no checker of races can follow.
template <int tensors, int stages>
struct chunk_pipeline {
    bf16 tile[stages][tensors][2 * SWIZZLE128_TILE];
    float decay[stages][DIM], eq[stages][CHUNK], ek[stages][CHUNK];
    uint64_t full[stages], empty[stages];
};

#endif
