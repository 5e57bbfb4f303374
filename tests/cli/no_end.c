/* no_end.c -- callers without end: preloaded, a listener is never done with accepting.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/bootstrap.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/socket.h>
#include <unistd.h>

/* Whoever really calls comes first; else one who has left already. */
int accept(int fd, struct sockaddr *at, socklen_t *len)
{
    int (*real)(int, struct sockaddr *, socklen_t *), pair[2];
    *(void **)&real = dlsym(RTLD_NEXT, "accept");
    const int called = real(fd, at, len);
    if (called >= 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
        return called;
    close(pair[1]);
    return pair[0];
}
