/* halo_back.c -- the second figure of chapter 14: halos of backward come from later
 * ranks. */
#include "halo.h"

int main(void)
{
    svg_begin(720, 214, "Halos of the way back across five ranks",
              "Ranks hold 5, 1, 0, 1 and 5 tokens of one sequence. Rank 0 needs the "
              "gradients dp of tokens 5, 6 and 7, from three ranks; rank 1 those of 6, "
              "7 and 8; rank 3 those of 7, 8 and 9.");
    halo_tokens("d");
    halo_needs(0, 5, "dp 5, 6, 7", 0);
    halo_needs(1, 6, "dp 6, 7, 8", 1);
    halo_needs(3, 7, "dp 7, 8, 9", 2);
}
