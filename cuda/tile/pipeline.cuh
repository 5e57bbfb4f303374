// pipeline.cuh -- a ring of chunks in shared memory for the warpgroup scans.
// Book: chapter 17, "Warps with roles"; chapter T, "Chapter 05: the map".
#pragma once

#include "mbarrier.cuh"
#include "swizzle.cuh"
#include "state_io.cuh"

enum { DIM = 128 }; // K and V

// A ring of pipeline stages. Chunk i uses stage i % stages, in phase i / stages of the
// stage's two mbarriers: `full` (all copies have arrived) and `empty` (all threads have
// read the stage). Each of a chunk's tensors is stored as two swizzle128 tiles. Every
// thread arrives separately, because racecheck cannot follow one arrival for a whole
// warp.
template <int tensors, int stages>
struct chunk_pipeline {
    bf16 tile[stages][tensors][2 * SWIZZLE128_TILE];
    float decay[stages][DIM], eq[stages][CHUNK], ek[stages][CHUNK];
    uint64_t full[stages], empty[stages];
};
