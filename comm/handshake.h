/* handshake.h -- two strangers on a connection prove to each other that they are ranks.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/handshake.c. */
#ifndef KCP_HANDSHAKE_H
#define KCP_HANDSHAKE_H

#include "bootstrap.h"

#include <sys/types.h>

#pragma GCC visibility push(hidden)

/* ---- own_file.c: a file that only we have made, locked while the process lives */
struct own_file { int fd; char path[512]; };
/* text under a first line that says what the file is. KCP_BAD: what is there is not
 * ours, or belongs to a job that lives; a dead job's is replaced. */
int own_file_make(struct own_file *f, const char *path, const char *first,
                  const char *text, char *why, size_t n);
/* KCP_NA: it is not there yet, or not whole. KCP_BAD: something else is. */
int own_file_read(const char *path, const char *first, char *text, size_t size,
                  char *why, size_t n);
void own_file_remove(struct own_file *f);

/* ---- job_key.c: what every rank of the job knows and no stranger */
enum { KEY_BYTES = 32, NONCE_BYTES = 32, PROOF_BYTES = 32 };
enum key_source { KEY_NONE, KEY_SECRET, KEY_FILE };
struct job_key {
    enum key_source source;            /* KEY_NONE: the network is trusted */
    struct own_file file;              /* KEY_FILE: rank 0 holds it while it meets */
    unsigned char bytes[256];
    size_t n;
};
/* Rank 0 makes the file where there is need of one; the others learn its name. */
int job_key_open(struct job_key *key, const struct meeting *at, int r, char *why,
                 size_t n);
/* For the others, as long as it takes: KCP_NA while the file is not there. */
int job_key_look(struct job_key *key, char *why, size_t n);
void job_key_close(struct job_key *key);
/* Is there a libcrypto? Without one no proof can be made. */
int job_key_can_prove(void);
/* HMAC-SHA-256 of data by the key; zeros where the network is trusted. */
int job_key_prove(const struct job_key *key, const void *data, size_t bytes,
                  unsigned char proof[PROOF_BYTES]);
int job_key_random(void *bytes, size_t n);

/* ---- handshake.c: one connection on its way from open to met
 * answerer -> caller  challenge   a nonce
 * caller -> answerer  hello       who I am, whom I call, a nonce, a proof over both
 * answerer -> caller  welcome     a proof over both, in the other role
 * Nobody waits for the other end: poll for handshake_events, then step. */
struct challenge { char magic[8]; unsigned char nonce[NONCE_BYTES]; };
struct hello {
    char magic[8];
    uint64_t job;
    int32_t R, caller, answerer, pad;
    unsigned char nonce[NONCE_BYTES], proof[PROOF_BYTES];
};
enum handshake_stage { CONNECTING, CHALLENGE, HELLO, WELCOME, MET, REFUSED };
struct identity { const struct job_key *key; uint64_t job; int R, r; };
struct half_open {
    int fd, calls, rank;       /* rank: the other end's; -1: it has not said so yet */
    enum handshake_stage stage, refused_at;    /* REFUSED: in which stage */
    size_t done;               /* bytes of the stage */
    double until;
    struct challenge challenge;
    struct hello hello;
    unsigned char welcome[PROOF_BYTES];
};
void handshake_begin(struct half_open *h, int fd, int calls, int rank, double until);
short handshake_events(const struct half_open *h);
enum handshake_stage handshake_step(struct half_open *h, const struct identity *me);

#pragma GCC visibility pop

#endif
