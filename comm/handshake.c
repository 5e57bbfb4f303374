/* handshake.c -- challenge, hello, welcome: each end proves that it knows the key.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/bootstrap.c.
 * A proof is an HMAC over both nonces, both ranks, R and the job, under a word that
 * says whose it is: what one end has sent proves nothing when it is sent back, or once
 * more, or to another rank. The caller proves first, so that a stranger who knocks
 * learns a nonce and nothing else. Proven is who is at the other end when a connection
 * begins; what follows is not encrypted. */
#define _POSIX_C_SOURCE 200809L
#include "handshake.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static const char magic[8] = "kcp 2";

void handshake_begin(struct half_open *h, int fd, int calls, int rank, double until)
{
    memset(h, 0, sizeof *h);
    h->fd = fd;
    h->calls = calls;
    h->rank = rank;
    h->until = until;
    h->stage = calls ? CONNECTING : CHALLENGE;
}

/* The caller writes the hello, the answerer challenge and welcome. */
static int we_write(const struct half_open *h)
{
    return h->calls == (h->stage == HELLO);
}

short handshake_events(const struct half_open *h)
{
    return h->stage == CONNECTING || we_write(h) ? POLLOUT : POLLIN;
}

//> proof
static int prove(const struct half_open *h, const struct identity *me, const char *role,
                 unsigned char proof[PROOF_BYTES])
{
    struct {
        char role[16];
        unsigned char challenge[NONCE_BYTES], hello[NONCE_BYTES];
        uint64_t job;
        int32_t R, caller, answerer, pad;
    } said;
    memset(&said, 0, sizeof said);
    strncpy(said.role, role, sizeof said.role - 1);
    memcpy(said.challenge, h->challenge.nonce, NONCE_BYTES);
    memcpy(said.hello, h->hello.nonce, NONCE_BYTES);
    said.job = me->job;
    said.R = me->R;
    said.caller = h->calls ? me->r : h->rank;
    said.answerer = h->calls ? h->rank : me->r;
    return job_key_prove(me->key, &said, sizeof said, proof);
}
//< proof

/* Every byte is looked at, whatever the first ones are. */
static int is_same_proof(const unsigned char *a, const unsigned char *b)
{
    unsigned differs = 0;
    for (int i = 0; i < PROOF_BYTES; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}

/* A port of our own choice may be the one we call: then we talk to ourselves. */
static int is_connected(int fd)
{
    struct sockaddr_storage here, there;
    socklen_t n = sizeof here, m = sizeof there, k = sizeof(int);
    int error = 0;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &k) || error)
        return 0;
    memset(&here, 0, sizeof here);
    memset(&there, 0, sizeof there);
    if (getsockname(fd, (struct sockaddr *)&here, &n) ||
        getpeername(fd, (struct sockaddr *)&there, &m))
        return 0;
    return n != m || memcmp(&here, &there, n);
}

/* Before the first byte of a stage that we write, its bytes are made. */
static int make_message(struct half_open *h, const struct identity *me)
{
    if (h->stage == CHALLENGE) {
        memcpy(h->challenge.magic, magic, sizeof magic);
        return job_key_random(h->challenge.nonce, NONCE_BYTES);
    }
    if (h->stage == WELCOME)
        return prove(h, me, "kcp answerer", h->welcome);
    memcpy(h->hello.magic, magic, sizeof magic);
    h->hello.job = me->job;
    h->hello.R = me->R;
    h->hello.caller = me->r;
    h->hello.answerer = h->rank;
    const int err = job_key_random(h->hello.nonce, NONCE_BYTES);
    return err ? err : prove(h, me, "kcp caller", h->hello.proof);
}

/* After the last byte of a stage that we read: is it what a rank would say? */
static int is_well_said(struct half_open *h, const struct identity *me)
{
    unsigned char proof[PROOF_BYTES];
    if (h->stage == CHALLENGE)
        return !memcmp(h->challenge.magic, magic, sizeof magic);
    if (h->stage == WELCOME)
        return !prove(h, me, "kcp answerer", proof) && is_same_proof(proof, h->welcome);
    if (memcmp(h->hello.magic, magic, sizeof magic) || h->hello.job != me->job ||
        h->hello.R != me->R || h->hello.answerer != me->r || h->hello.caller < 0 ||
        h->hello.caller >= me->R || h->hello.caller == me->r)
        return 0;
    h->rank = h->hello.caller;
    return !prove(h, me, "kcp caller", proof) && is_same_proof(proof, h->hello.proof);
}

/* As much of the stage as goes now. 1: all of it; 0: not yet; -1: it is broken. */
static int move_bytes(struct half_open *h, void *data, size_t size)
{
    while (h->done < size) {
        char *at = (char *)data + h->done;
        const size_t left = size - h->done;
        const ssize_t k = we_write(h)
                        ? send(h->fd, at, left, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(h->fd, at, left, MSG_DONTWAIT);
        if (k > 0)
            h->done += (size_t)k;
        else if (k < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return 0;
        else
            return -1;
    }
    return 1;
}

/* Where a stranger who has said nothing was refused is not worth a word. */
static enum handshake_stage refuse(struct half_open *h)
{
    h->refused_at = h->stage == HELLO && !h->calls && !h->done ? CONNECTING : h->stage;
    h->stage = REFUSED;
    return REFUSED;
}

enum handshake_stage handshake_step(struct half_open *h, const struct identity *me)
{
    if (h->stage == CONNECTING && !is_connected(h->fd))
        return refuse(h);
    if (h->stage == CONNECTING)
        h->stage = CHALLENGE;
    while (h->stage < MET) {
        void *const data[] = { NULL, &h->challenge, &h->hello, h->welcome };
        const size_t size[] = { 0, sizeof h->challenge, sizeof h->hello, PROOF_BYTES };
        if (we_write(h) && h->done == 0 && make_message(h, me))
            return refuse(h);
        const int moved = move_bytes(h, data[h->stage], size[h->stage]);
        if (moved == 0)
            break;
        if (moved < 0 || (!we_write(h) && !is_well_said(h, me)))
            return refuse(h);
        h->stage++;
        h->done = 0;
    }
    return h->stage;
}
