// swizzle.cuh -- the order of 16-byte pieces in a tile whose rows have 128 bytes.
// Book: chapter 17, "Swizzle".
// Checked by: every variant that includes it.
// Next: smem_desc.cuh.
//
// A swizzle128 tile is [64][64] bf16: row r at byte 128 r, its eight pieces of 16 bytes
// in the order piece ^ (r % 8), so that eight rows meet all banks. TMA writes it so
// with CU_TENSOR_MAP_SWIZZLE_128B, and a descriptor of wgmma says so to the tensor
// core.
#ifndef KCP_TILE_SWIZZLE_CUH
#define KCP_TILE_SWIZZLE_CUH

// In elements, and in bytes. A tile begins at a multiple of 1024 bytes.
enum { SWIZZLE128_TILE = 64 * 64, TILE_BYTES = 2 * SWIZZLE128_TILE };

// Byte of element (row, 8 piece) in a tile.
static __device__ __forceinline__ int swizzle128_offset(int row, int piece)
{
    return row * 128 + ((piece ^ (row & 7)) << 4);
}

#endif
