// swizzle.cuh -- the order of 16-byte pieces in a tile with rows of 128 bytes.
// Book: chapter 17, "Swizzle".
//
// A swizzle128 tile is [64][64] bf16. Row r starts at byte 128 r. Piece p of the row's
// eight 16-byte pieces is stored at position p ^ (r % 8), so that piece p of eight rows
// covers all banks. TMA writes this order with CU_TENSOR_MAP_SWIZZLE_128B, and wgmma
// reads this order through a descriptor with SWIZZLE_128_BYTES.
#pragma once

// Tile size in elements and in bytes. A tile starts at a multiple of 1024 bytes.
enum { SWIZZLE128_TILE = 64 * 64, TILE_BYTES = 2 * SWIZZLE128_TILE };

// Returns the byte offset of element (row, 8 * piece) in a tile.
static __device__ __forceinline__ int swizzle128_offset(int row, int piece)
{
    return row * 128 + ((piece ^ (row & 7)) << 4);
}
