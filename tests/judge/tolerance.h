/* tolerance.h -- the table of tolerances as a C array.
 * Book: chapter 19. */
#pragma once

#include "kcp.h"

#define TOLERANCE(name, f64, f32, bf16) TOLERANCE_##name,
enum tolerance {
#include "tolerance.def"
};
#undef TOLERANCE

static inline double tolerance_of(enum tolerance row, enum kcp_storage storage)
{
#define TOLERANCE(name, f64, f32, bf16) { f64, f32, bf16 },
    static const double table[][3] = {
#include "tolerance.def"
    };
#undef TOLERANCE
    return table[row][storage];
}
