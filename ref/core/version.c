/* version.c -- the version of KCP.
 * Book: README.md. */
#include "kcp.h"

const char *kcp_version(void) { return "3.0.0"; }
