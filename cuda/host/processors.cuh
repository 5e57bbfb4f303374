// processors.cuh -- the number of SMs of the calling thread's GPU.
// Book: chapter 08, "Paths".
#ifndef KCP_PROCESSORS_CUH
#define KCP_PROCESSORS_CUH

#include "core/paths.h"

static inline int processors(void)
{
    struct kcp_device d;
    return kcp_device_here(&d) ? 1 : d.sms;
}

#endif
