/* job_key.c -- the key of a job: a secret in the environment, or rank 0's in a file.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/handshake.c.
 * KCP_SECRET is the key. Without it rank 0 draws 32 bytes and leaves them in a folder
 * that nobody else can open: KCP_KEY_DIR, else ~/.kcp, else, where all ranks are on one
 * machine, TMPDIR. KCP_TRUST_NETWORK=1 does without a key, for who owns the network.
 * The proof is OpenSSL's: libcrypto is opened when it is needed, as libnccl is, so that
 * kcp builds and starts where there is none. */
#define _DEFAULT_SOURCE
#include "handshake.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char first_line[] = "kcp key 1";

/* ---- libcrypto */
typedef unsigned char *hmac_call(const void *digest, const void *key, int key_bytes,
                                 const unsigned char *data, size_t bytes,
                                 unsigned char *out, unsigned int *out_bytes);
typedef const void *digest_call(void);
static hmac_call *hmac;
static digest_call *sha256;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void open_libcrypto(void)
{
    static const char *const name[] = { "libcrypto.so.3", "libcrypto.so.1.1",
                                        "libcrypto.so" };
    void *lib = NULL;
    for (size_t i = 0; i < sizeof name / sizeof *name && !lib; i++)
        lib = dlopen(name[i], RTLD_NOW | RTLD_LOCAL);
    if (!lib)
        return;
    *(void **)&hmac = dlsym(lib, "HMAC");
    *(void **)&sha256 = dlsym(lib, "EVP_sha256");
}

int job_key_can_prove(void)
{
    pthread_once(&once, open_libcrypto);
    return hmac && sha256;
}

int job_key_prove(const struct job_key *key, const void *data, size_t bytes,
                  unsigned char proof[PROOF_BYTES])
{
    unsigned int made = 0;
    memset(proof, 0, PROOF_BYTES);
    if (key->source == KEY_NONE)
        return KCP_OK;
    if (!job_key_can_prove() ||
        !hmac(sha256(), key->bytes, (int)key->n, data, bytes, proof, &made))
        return KCP_COMM;
    return made == PROOF_BYTES ? KCP_OK : KCP_COMM;
}

int job_key_random(void *bytes, size_t n)
{
    return getentropy(bytes, n) ? KCP_COMM : KCP_OK;
}

/* ---- the folder */
static const char *value_of(const char *name)
{
    const char *s = getenv(name);
    return s && *s ? s : NULL;
}

/* path is a folder of ours that nobody else can open; made if nothing is there. A link
 * in its place may be somebody's trap, but for one that the user has named. */
static int is_private_folder(const char *path, int may_be_link)
{
    struct stat s;
    if (mkdir(path, 0700) && errno != EEXIST)
        return 0;
    const int looked = may_be_link ? stat(path, &s) : lstat(path, &s);
    return !looked && S_ISDIR(s.st_mode) && s.st_uid == geteuid() &&
           !(s.st_mode & 077);
}

/* The first letters of a path are another folder. */
static int is_whole(int length, size_t size)
{
    return length > 0 && (size_t)length < size;
}

static int choose_folder(const struct meeting *at, char *path, size_t size, char *why,
                         size_t n)
{
    const char *named = value_of("KCP_KEY_DIR"), *home = value_of("HOME");
    const char *tmp = value_of("TMPDIR");
    if (named) {
        if (is_whole(snprintf(path, size, "%s", named), size) &&
            is_private_folder(path, 1))
            return KCP_OK;
        snprintf(why, n, "KCP_KEY_DIR=%.100s: expected a folder of ours that nobody "
                 "else can open (chmod 700)", named);
        return KCP_BAD;
    }
    if (home && *home == '/' && is_whole(snprintf(path, size, "%s/.kcp", home), size) &&
        is_private_folder(path, 0))
        return KCP_OK;
    if (at->one_host && is_whole(snprintf(path, size, "%s/kcp-%ld", tmp ? tmp : "/tmp",
                                          (long)geteuid()), size) &&
        is_private_folder(path, 0))
        return KCP_OK;
    snprintf(why, n, "no folder for the job's key (KCP_KEY_DIR, ~/.kcp): set "
             "KCP_SECRET to one word on all ranks, or KCP_TRUST_NETWORK=1");
    return KCP_BAD;
}

/* ---- the key */
static int make_key_file(struct job_key *key, char *why, size_t n)
{
    char hex[2 * KEY_BYTES + 1], path[sizeof key->file.path];
    if (job_key_random(key->bytes, KEY_BYTES)) {
        snprintf(why, n, "the system gives no random bytes");
        return KCP_COMM;
    }
    key->n = KEY_BYTES;
    for (int i = 0; i < KEY_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", key->bytes[i]);
    snprintf(path, sizeof path, "%s", key->file.path);
    return own_file_make(&key->file, path, first_line, hex, why, n);
}

int job_key_look(struct job_key *key, char *why, size_t n)
{
    char hex[2 * KEY_BYTES + 2];
    if (key->source != KEY_FILE)
        return KCP_OK;
    const int err = own_file_read(key->file.path, first_line, hex, sizeof hex, why, n);
    if (err || strlen(hex) != 2 * KEY_BYTES)
        return err ? err : KCP_NA;
    for (int i = 0; i < KEY_BYTES; i++) {
        const char two[3] = { hex[2 * i], hex[2 * i + 1], 0 };
        char *end;
        key->bytes[i] = (unsigned char)strtol(two, &end, 16);
        if (end != two + 2)
            return KCP_NA;
    }
    key->n = KEY_BYTES;
    return KCP_OK;
}

int job_key_open(struct job_key *key, const struct meeting *at, int r, char *why,
                 size_t n)
{
    const char *secret = value_of("KCP_SECRET"), *trust = value_of("KCP_TRUST_NETWORK");
    char folder[320];
    memset(key, 0, sizeof *key);
    key->file.fd = -1;
    if (trust && strcmp(trust, "1") && strcmp(trust, "0")) {
        snprintf(why, n, "KCP_TRUST_NETWORK=%.40s: expected 1, or 0", trust);
        return KCP_BAD;
    }
    if (secret && (strlen(secret) < 16 || strlen(secret) >= sizeof key->bytes)) {
        snprintf(why, n, "KCP_SECRET: expected 16 to 255 characters");
        return KCP_BAD;
    }
    if (!secret && trust && *trust == '1')
        return KCP_OK;
    if (!job_key_can_prove() && dup(STDERR_FILENO) < 0 && errno == EMFILE) {
        snprintf(why, n, "this process may open no more files (ulimit -n)");
        return KCP_BAD;
    }
    if (!job_key_can_prove()) {
        snprintf(why, n, "libcrypto.so.3 (OpenSSL; Debian's libssl3) was not found, "
                 "without which ranks cannot prove who they are: install it, or trust "
                 "the network with KCP_TRUST_NETWORK=1");
        return KCP_BAD;
    }
    if (secret) {
        key->source = KEY_SECRET;
        key->n = strlen(secret);
        memcpy(key->bytes, secret, key->n);
        return KCP_OK;
    }
    key->source = KEY_FILE;
    const int err = choose_folder(at, folder, sizeof folder, why, n);
    if (err)
        return err;
    snprintf(key->file.path, sizeof key->file.path, "%s/%s", folder, at->name);
    return r == 0 ? make_key_file(key, why, n) : KCP_OK;
}

void job_key_close(struct job_key *key)
{
    own_file_remove(&key->file);
    explicit_bzero(key->bytes, sizeof key->bytes);
}
