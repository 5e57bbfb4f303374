/* no_names.c -- a dead name service: preloaded, a look-up of a name takes a minute.
 *
 * Book: chapter 20.  Checked by: tests/cli/network.sh.  Next: comm/meeting_place.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <unistd.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hint,
                struct addrinfo **found)
{
    int (*real)(const char *, const char *, const struct addrinfo *,
                struct addrinfo **);
    if (!hint || !(hint->ai_flags & AI_NUMERICHOST)) {
        sleep(60);
        return EAI_AGAIN;
    }
    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(host, service, hint, found);
}
