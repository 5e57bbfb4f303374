/* moves.h -- what the stand-in for NCCL keeps of a communicator and of its calls.
 *
 * Book: chapter 20.  Checked by: ranks.c.  Next: moves.c. */
#ifndef KCP_STAND_IN_MOVES_H
#define KCP_STAND_IN_MOVES_H

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>

#pragma GCC visibility push(default)
int stand_in_groups(void);
void stand_in_error(void);
#pragma GCC visibility pop

#pragma GCC visibility push(hidden)

enum { RANKS = 8, PIECE = 4096, SPLITS = 8, MOVES = 64, POLLS = 3 };

/* ---- what the ranks share: zero at first */
struct box { _Atomic uint64_t sent, taken; char piece[PIECE]; };
struct wish { atomic_int round, color, key; };
struct meeting {
    struct meeting *next;
    int users;
    char name[56];
    atomic_int here[RANKS];
    struct wish wish[SPLITS][RANKS];
    struct box box[RANKS][RANKS];          /* from, to */
};

struct move { int is_send, peer; char *at; size_t bytes; };
struct op {
    struct op *in_group;
    ncclComm_t comm;
    cudaStream_t stream;
    int n;
    struct move move[MOVES];
    const int *part;                       /* of a sum: this rank's, what is gathered */
    int *gathered, *sum;
    size_t numbers;
};

enum state { MEETS, THERE, SPLITS_NOW, GONE };
struct ncclComm {
    ncclComm_t next;                       /* all of them, the gone ones too */
    int R, r, device, blocking;
    struct meeting *at;
    atomic_int aborted, is_broken;
    pthread_mutex_t lock;
    pthread_cond_t change;
    /* under lock: */
    atomic_int state;                      /* enum state */
    int polls, on_stream, running, in_group, round, color, key;
    ncclComm_t *made;
    struct op *waiting;                    /* for a poll */
};

/* One line, and the end of the process. */
void misuse(const char *call, const char *what);
void must_be(ncclComm_t c, const char *call);
void nap(void);
/* A call, to its stream; under lock. */
void launch(ncclComm_t c, struct op *op);
void drop(struct op *op);
/* Nobody's any more, and nothing of it runs: what it held goes. Under lock. */
void clear_away(ncclComm_t c);

#pragma GCC visibility pop

#endif
