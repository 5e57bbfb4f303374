/* nccl_watch.c -- a caller's communicator gets connections by which the lost are known.
 *
 * Book: chapter 20.  Checked by: nccl_stand_in.sh; bench/gpu_faults.sh, lent.
 * Next: comm/watch.c.
 *
 * Our own communicators are made over ranks that can talk. A lent one is not: at the
 * first call that all its ranks make and wait for (a comparison of plans, a barrier)
 * they tell one another over it where they listen. Later calls ask for nothing. */
#ifdef KCP_WITH_NCCL
#include "nccl.h"
#include "comm/watch.h"

#include <string.h>

struct watched_call { struct nccl_rank *w; struct CUstream_st *stream; };

static int gather_rows(void *arg, const void *mine, void *all, size_t bytes)
{
    const struct watched_call *x = arg;
    return nccl_show_rows(&x->w->comm, mine, all, bytes, x->stream);
}

int nccl_watch(struct nccl_rank *w, struct CUstream_st *stream)
{
    struct watched_call call = { w, stream };
    const struct watch_gather by = { w->comm.R, w->comm.r, gather_rows, &call };
    char why[sizeof w->unwatched] = "";
    if (w->host || w->watch_asked || w->comm.R < 2)
        return KCP_OK;
    w->watch_asked = 1;
    const int err = watch_open(&w->lent_watch, &by, why, sizeof why);
    pthread_mutex_lock(&w->telling);
    memcpy(w->unwatched, why, sizeof why);
    w->host = w->lent_watch;
    pthread_mutex_unlock(&w->telling);
    if (err && !w->failed)
        nccl_fail(w, THIS_RANK, err, "no memory to watch", TELL_NOW);
    return err ? KCP_COMM : KCP_OK;
}

void kcp_nccl_leave(struct kcp_comm *comm)
{
    struct nccl_rank *w = (struct nccl_rank *)comm;
    if (comm && !strcmp(comm->backend, "nccl") && w->lent_watch && !w->failed)
        watch_leave(w->lent_watch);
}
#else
#include "kcp.h"

void kcp_nccl_leave(struct kcp_comm *comm) { (void)comm; }
#endif
