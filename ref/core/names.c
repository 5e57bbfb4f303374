/* names.c -- the names of the exchange forms.
 *
 * Book: chapter 07.  Checked by: tests/judge/self_cases.c.  Next: ref/comm.h. */
#include "ref.h"

#define FORM_NAME(number, name) #name,
const char *const kcp_form_names[KCP_FORMS] = { KCP_FORM_LIST(FORM_NAME) };
