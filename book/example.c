#include <stdio.h>
int main(void) { printf("== 01-step\nhello\n"); return 0; }
