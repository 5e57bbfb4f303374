/* nccl.h -- the NCCL calls that comm/backend/nccl.h uses.
 *
 * Book: chapter 20.  Checked by: tests/cli/nccl_stand_in.sh, against NCCL's own header
 * where there is one.  Next: libnccl.c. */
#ifndef KCP_STAND_IN_NCCL_H
#define KCP_STAND_IN_NCCL_H

#include <cuda_runtime_api.h>

enum { NCCL_UNIQUE_ID_BYTES = 128 };
#define NCCL_SPLIT_NOCOLOR -1
typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[NCCL_UNIQUE_ID_BYTES]; } ncclUniqueId;
typedef enum {
    ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclSystemError = 2,
    ncclInternalError = 3, ncclInvalidArgument = 4, ncclInvalidUsage = 5,
    ncclRemoteError = 6, ncclInProgress = 7
} ncclResult_t;
typedef enum { ncclChar = 0, ncclInt = 2 } ncclDataType_t;
typedef enum { ncclSum = 0 } ncclRedOp_t;
typedef struct ncclConfig_v22800 { int blocking; } ncclConfig_t;
#define NCCL_CONFIG_INITIALIZER { 1 }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int R, ncclUniqueId id, int r,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *made,
                           ncclConfig_t *config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommCount(const ncclComm_t comm, int *R);
ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *r);
const char  *ncclGetErrorString(ncclResult_t result);
ncclResult_t ncclAllGather(const void *mine, void *all, size_t n, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllReduce(const void *mine, void *sum, size_t n, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int to,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int from,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

#endif
