/* meeting_place.h -- addresses, and where rank 0 is found.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/meeting_place.c. */
#ifndef KCP_MEETING_PLACE_H
#define KCP_MEETING_PLACE_H

#include "handshake.h"

#include <sys/socket.h>

#pragma GCC visibility push(hidden)

enum {
    MOST_ADDRESSES = 4,       /* of a host name */
    MOST_PORTS = 4,           /* at which rank 0 may be: the first that is free */
    MOST_PLACES = MOST_ADDRESSES * MOST_PORTS,
    MOST_LISTENING = 16,      /* sockets of a rank that others may call */
};

struct address { struct sockaddr_storage at; socklen_t len; };
int  address_port(const struct address *a);
void address_put_port(struct address *a, int port);
/* A listening socket there, which then holds the port it got; -1: errno. */
int  address_listen(struct address *a);
/* A connection that is on its way, or -1. */
int  address_call(const struct address *a);

/* Rank 0's k-th port. */
int place_port(const struct meeting *at, int k);
/* Rank 0 listens; why: it cannot. No name is looked up for longer than until. */
int place_open(const struct meeting *at, double until, struct address *got,
               int *listening, char *why, size_t n);
/* Where a file tells the others. */
int place_write(const struct meeting *at, const struct address *a,
                struct own_file *file, char *why, size_t n);
struct place { struct address a; int rank; double not_before; };
/* Where rank 0 may be, as far as is known by now: how many; -1: something is in the
 * file's place. */
int place_find(const struct meeting *at, double until, struct place place[MOST_PLACES],
               char *why, size_t n);

/* ---- bootstrap.c: ranks that know all places already
 * As bootstrap_meet, of a rank that listens and calls those below it, each at one of
 * its places after another, in their order. */
int bootstrap_join(const struct identity *me, struct place *place, int places,
                   const int *listening, int listeners, double until, int *fd,
                   char *why, size_t n);

#pragma GCC visibility pop

#endif
