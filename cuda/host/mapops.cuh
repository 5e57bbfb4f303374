// mapops.cuh -- arithmetic of maps on the device: compose, apply, copy in fp32.
// Book: chapter 07.
#pragma once

#include "kcp.h"

#ifdef __cplusplus
extern "C" {
#endif
extern const struct kcp_mapops cuda_mapops;    /* device pointers, elem 4 */
#ifdef __cplusplus
}
#endif
