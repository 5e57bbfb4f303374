/* watch.c -- ranks that met elsewhere, as in a caller's communicator, open connections.
 *
 * Book: chapter 20.  Checked by: tests/20_clusters/watch.c; bench/gpu_faults.sh, lent.
 * Next: comm/bootstrap.c, bootstrap_join.
 *
 * A gather that the ranks have is enough: each shows where it listens and random bytes,
 * of which rank 0's are the key. Then any two connect and prove that they know it, as
 * in a job. A second gather says whether all of them have: a rank that has no
 * connection must not be taken for one that was lost. */
#define _DEFAULT_SOURCE
#include "watch.h"

#include "backend/tcp.h"
#include "meeting_place.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_PATIENCE = 5, PARTING_MS = 500 };      /* seconds to connect; to part */

/* ---- what a rank shows: numbers of one size, the same from every compiler */
struct spot {                              /* where it listens */
    uint16_t family, port, bits, pad;      /* bits: of the network, from the left */
    unsigned char ip[16];
};
struct watch_row {
    char magic[8];
    uint64_t machine, network, job;        /* the same numbers: the same loopback */
    unsigned char random[KEY_BYTES];
    int32_t R, r, spots, pad;              /* spots 0: it listens nowhere, and */
    char why[64];
    struct spot spot[MOST_LISTENING];
};
static const char magic[8] = "kcp w 1";

static struct address address_of(const struct spot *s)
{
    struct address a;
    memset(&a, 0, sizeof a);
    a.at.ss_family = s->family;
    if (s->family == AF_INET6) {
        memcpy(&((struct sockaddr_in6 *)&a.at)->sin6_addr, s->ip, 16);
        a.len = sizeof(struct sockaddr_in6);
    } else {
        memcpy(&((struct sockaddr_in *)&a.at)->sin_addr, s->ip, 4);
        a.len = sizeof(struct sockaddr_in);
    }
    address_put_port(&a, s->port);
    return a;
}

static int leading_ones(const unsigned char *mask, int bytes)
{
    int n = 0;
    while (n < 8 * bytes && mask[n / 8] >> (7 - n % 8) & 1)
        n++;
    return n;
}

/* An interface's address; 0: none that another rank can call. */
static int spot_of(const struct ifaddrs *i, struct spot *s)
{
    memset(s, 0, sizeof *s);
    if (!i->ifa_addr || !i->ifa_netmask || !(i->ifa_flags & IFF_UP))
        return 0;
    s->family = i->ifa_addr->sa_family;
    if (s->family == AF_INET) {
        const struct sockaddr_in *a = (void *)i->ifa_addr, *m = (void *)i->ifa_netmask;
        memcpy(s->ip, &a->sin_addr, 4);
        s->bits = (uint16_t)leading_ones((const void *)&m->sin_addr, 4);
        return 1;
    }
    if (s->family != AF_INET6)
        return 0;
    const struct sockaddr_in6 *a = (void *)i->ifa_addr, *m = (void *)i->ifa_netmask;
    memcpy(s->ip, &a->sin6_addr, 16);
    s->bits = (uint16_t)leading_ones((const void *)&m->sin6_addr, 16);
    return !IN6_IS_ADDR_LINKLOCAL(&a->sin6_addr);
}

static void listen_at(struct spot *s, struct watch_row *row, int *fd)
{
    struct address a = address_of(s);
    const int at = row->spots;
    if (at == MOST_LISTENING || (fd[at] = address_listen(&a)) < 0)
        return;
    s->port = (uint16_t)address_port(&a);
    row->spot[row->spots++] = *s;
}

/* The loopback first, then what other machines may call: IPv4 before IPv6. */
static void listen_everywhere(struct watch_row *row, int *fd)
{
    static const int family[] = { AF_INET, AF_INET, AF_INET6 };
    struct ifaddrs *all = NULL;
    struct spot s;
    if (getifaddrs(&all))
        return;
    for (int turn = 0; turn < 3; turn++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            const int is_loopback = (i->ifa_flags & IFF_LOOPBACK) != 0;
            if (spot_of(i, &s) && s.family == family[turn] &&
                is_loopback == (turn == 0))
                listen_at(&s, row, fd);
        }
    freeifaddrs(all);
}

static void make_row(struct watch_row *row, const struct watch_gather *by, int asked,
                     int *fd)
{
    struct stat network;
    memset(row, 0, sizeof *row);
    memcpy(row->magic, magic, sizeof magic);
    row->R = by->R;
    row->r = by->r;
    row->machine = launcher_env_machine();
    if (!stat("/proc/self/ns/net", &network))
        row->network = (uint64_t)network.st_ino;
    if (!asked)
        snprintf(row->why, sizeof row->why, "KCP_WATCH=0");
    else if (!job_key_can_prove())
        snprintf(row->why, sizeof row->why, "libcrypto.so.3 was not found");
    else if (job_key_random(row->random, sizeof row->random) ||
             job_key_random(&row->job, sizeof row->job))
        snprintf(row->why, sizeof row->why, "the system gives no random bytes");
    else {
        listen_everywhere(row, fd);
        if (!row->spots)
            snprintf(row->why, sizeof row->why, "it can listen nowhere");
    }
}

/* ---- whom to call where */
static int have_same_loopback(const struct watch_row *x, const struct watch_row *y)
{
    return x->machine && x->machine == y->machine && x->network == y->network;
}

static int is_loopback(const struct spot *s)
{
    return s->family == AF_INET && s->ip[0] == 127;
}

static int is_of_network(const struct spot *x, const struct spot *y)
{
    const int bits = x->bits < y->bits ? y->bits : x->bits;
    int same = x->family == y->family && is_loopback(x) == is_loopback(y);
    for (int i = 0; i < bits && i < 128 && same; i++)
        same = !((x->ip[i / 8] ^ y->ip[i / 8]) >> (7 - i % 8) & 1);
    return same;
}

/* 0: at once; 1: if that does not answer; 2: at last; -1: it cannot be there. */
static int preference(const struct watch_row *me, const struct watch_row *to,
                      const struct spot *s)
{
    const int here = have_same_loopback(me, to);
    if (is_loopback(s))
        return here ? 0 : -1;
    for (int i = 0; i < me->spots; i++)
        if (is_of_network(&me->spot[i], s))
            return 1;
    return 2;
}

/* The places of all ranks below this one, each rank's in the order of preference. */
static int find_places(const struct watch_row *all, int r, struct place *place)
{
    int n = 0;
    for (int j = 0; j < r; j++)
        for (int rank = 0; rank <= 2; rank++)
            for (int i = 0; i < all[j].spots; i++)
                if (preference(&all[r], &all[j], &all[j].spot[i]) == rank)
                    place[n++] = (struct place){ address_of(&all[j].spot[i]), j, 0 };
    return n;
}

static int is_well_made(const struct watch_row *row, int R, int r)
{
    int ok = !memcmp(row->magic, magic, sizeof magic) && row->R == R && row->r == r &&
             row->spots >= 0 && row->spots <= MOST_LISTENING;
    for (int i = 0; ok && i < row->spots; i++)
        ok = row->spot[i].family == AF_INET || row->spot[i].family == AF_INET6;
    return ok;
}

/* Who has said that there will be none; all ranks come to the same answer. */
static int all_listen(const struct watch_row *all, int R, char *why, size_t n)
{
    for (int r = 0; r < R; r++) {
        if (!is_well_made(&all[r], R, r)) {
            snprintf(why, n, "no watch: rank %d shows something else", r);
            return 0;
        }
        if (!all[r].spots) {
            snprintf(why, n, "no watch: rank %d: %.63s", r, all[r].why);
            return 0;
        }
    }
    return 1;
}

/* ---- connections, and whether all have them */
static int connect_all(const struct watch_row *all, int R, int r, const int *listening,
                       double seconds, int *fd, char *why, size_t n)
{
    struct job_key key = { .source = KEY_SECRET, .n = KEY_BYTES };
    const struct identity me = { &key, all[0].job, R, r };
    struct place *place = calloc((size_t)R * MOST_LISTENING, sizeof *place);
    char said[160] = "no memory";
    key.file.fd = -1;
    memcpy(key.bytes, all[0].random, KEY_BYTES);
    int err = place ? KCP_OK : KCP_NO_MEMORY;
    if (!err)
        err = bootstrap_join(&me, place, find_places(all, r, place), listening,
                             all[r].spots, monotonic_seconds() + seconds, fd, said,
                             sizeof said);
    if (err)
        snprintf(why, n, "no watch: %.140s", said);
    job_key_close(&key);
    free(place);
    return err;
}

/* Of all ranks the first that has none says why. */
struct outcome { int32_t bad, pad; char why[120]; };

static int all_are_well(const struct watch_gather *by, int bad, char *why, size_t n,
                        int *all_well)
{
    struct outcome mine = { bad, 0, "" };
    struct outcome *all = calloc((size_t)by->R, sizeof *all);
    if (!all)
        return KCP_NO_MEMORY;
    snprintf(mine.why, sizeof mine.why, "%.110s", bad ? why : "");
    const int err = by->rows(by->arg, &mine, all, sizeof mine);
    *all_well = !err;
    for (int r = by->R - 1; r >= 0 && !err; r--)
        if (all[r].bad) {
            *all_well = 0;
            snprintf(why, n, "%.110s", all[r].why);
        }
    free(all);
    return err;
}

static void close_all(int *fd, int n)
{
    for (int i = 0; i < n; i++)
        if (fd[i] >= 0)
            close(fd[i]);
}

int watch_open(struct kcp_comm **watch, const struct watch_gather *by, char *why,
               size_t n)
{
    const int R = by->R, r = by->r;
    const struct kcp_who who = { R, r, 0, NULL };
    struct watch_row mine, *all = calloc((size_t)R, sizeof *all);
    int *fd = malloc(sizeof *fd * (size_t)R), listening[MOST_LISTENING], well = 0;
    struct env_options asked;
    *watch = NULL;
    why[0] = 0;
    for (int i = 0; i < MOST_LISTENING; i++)
        listening[i] = -1;
    for (int i = 0; i < R && fd; i++)
        fd[i] = -1;
    int err = all && fd ? launcher_env_options(&asked, why, n) : KCP_NO_MEMORY;
    if (!err) {
        make_row(&mine, by, asked.watch != 0, listening);
        err = by->rows(by->arg, &mine, all, sizeof mine);
    }
    if (!err && all_listen(all, R, why, n)) {
        const double seconds = (double)asked.seconds;
        const double patience = seconds / 2 < MOST_PATIENCE ? seconds / 2
                                                            : MOST_PATIENCE;
        int bad = connect_all(all, R, r, listening, patience, fd, why, n);
        if (!bad)
            bad = tcp_over(watch, &who, seconds, PARTING_MS / 1e3, fd, why, n);
        err = all_are_well(by, bad, why, n, &well);
    }
    if (*watch && !well) {
        tcp_drop(*watch);
        *watch = NULL;
    } else if (!*watch && fd)
        close_all(fd, R);
    close_all(listening, MOST_LISTENING);
    free(all);
    free(fd);
    return err;
}

void watch_leave(struct kcp_comm *watch) { tcp_say_goodbye(watch); }
