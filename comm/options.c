/* options.c -- the environment variable KCP_TIMEOUT_S.
 * Book: chapter 20. */
#include "checked.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int kcp_timeout(double *seconds, char *why, size_t n)
{
    const char *s = getenv("KCP_TIMEOUT_S");
    char *end = "";
    if (!seconds) return kcp_refuse(KCP_BAD, "kcp_timeout: 'seconds' is NULL");
    *seconds = 60;
    if (!s || !*s) return KCP_OK;
    errno = 0;
    const long x = strtol(s, &end, 10);
    const int is_digit = *s >= '0' && *s <= '9';       /* no sign, no blank */
    if (is_digit && !*end && !errno && x >= 1 && x <= 86400) {
        *seconds = (double)x;
        return KCP_OK;
    }
    if (why)
        snprintf(why, n, "KCP_TIMEOUT_S=%.40s: expected a whole number from 1 to 86400",
                 s);
    return KCP_BAD;
}
