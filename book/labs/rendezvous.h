/* rendezvous.h -- makes each send between threads wait for the receiver, as over NCCL.
 * Book: staff.md.  Used by: chain_main.c.
 * If two ranks send to each other before they receive, they deadlock over NCCL, but not
 * over threads, because threads buffer messages. With this file, a send waits until its
 * message is received; the sends of a group of calls wait at the end of the group. If
 * the process uses no CPU time for MEET_SECONDS, the wait counts as a deadlock.
 */
#pragma once

#include "comm.h"
#include "kcp.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MEET_RANKS = 64, MEET_SECONDS = 3 };

static struct {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    int sent[MEET_RANKS][MEET_RANKS], taken[MEET_RANKS][MEET_RANKS], ended;
} meet = { .lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER };

static __thread int grouped;                        /* 1 within a group */

static void meet_begin(void)
{
    memset(meet.sent, 0, sizeof meet.sent);
    memset(meet.taken, 0, sizeof meet.taken);
    meet.ended = 0;
}

/* Ends a rank. If `status` is an error, all other ranks stop waiting. */
static void meet_end(int status)
{
    pthread_mutex_lock(&meet.lock);
    meet.ended |= status != 0;
    pthread_cond_broadcast(&meet.moved);
    pthread_mutex_unlock(&meet.lock);
}

static void meet_count(int (*of)[MEET_RANKS], int from, int to)
{
    pthread_mutex_lock(&meet.lock);
    of[from][to]++;
    pthread_cond_broadcast(&meet.moved);
    pthread_mutex_unlock(&meet.lock);
}

/* Returns a rank that has still to receive a message sent by rank r, or -1 if none. */
static int meet_owes(int R, int r)
{
    for (int to = 0; to < R && to < MEET_RANKS; to++)
        if (to != r && meet.sent[r][to] > meet.taken[r][to]) return to;
    return -1;
}

/* Returns the CPU time of all threads in milliseconds. */
static long meet_computed(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return t.tv_sec * 1000L + t.tv_nsec / 1000000;
}

static int meet_wait(const struct kcp_comm *c)
{
    struct timespec until;
    int to, idle = 0;
    long computed = meet_computed();
    clock_gettime(CLOCK_REALTIME, &until);
    pthread_mutex_lock(&meet.lock);
    until.tv_sec++;
    while ((to = meet_owes(c->R, c->r)) >= 0 && !meet.ended && idle < MEET_SECONDS) {
        if (pthread_cond_timedwait(&meet.moved, &meet.lock, &until) != ETIMEDOUT)
            continue;
        const long now = meet_computed();       /* includes this loop */
        idle = now - computed < 5 ? idle + 1 : 0;
        computed = now;
        until.tv_sec++;
    }
    const int ended = meet.ended;
    pthread_mutex_unlock(&meet.lock);
    if (to < 0) return KCP_OK;
    if (ended) return KCP_COMM;
    printf("  FAIL  rank %d of %d waits until rank %d receives, but rank %d waits"
           " too: over NCCL a send ends when it is received, unless the send and the"
           " receive are in one group\n", c->r, c->R, to, to);
    fflush(stdout);
    return KCP_BAD;
}
