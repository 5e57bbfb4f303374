/* halo.c -- the figure of chapter 14: halos across short ranks, W = 4. */
#include "halo.h"

int main(void)
{
    svg_begin(720, 214, "Halos across five ranks",
              "Ranks hold 5, 1, 0, 1 and 5 tokens of one sequence. Rank 1 needs rows "
              "2, 3 and 4 of rank 0; rank 3 needs rows 3 and 4 of rank 0 and 5 of rank "
              "1; rank 4 needs rows 4, 5 and 6, from three ranks.");
    halo_tokens("a");
    halo_needs(1, 2, "rows 2, 3, 4", 0);
    halo_needs(3, 3, "rows 3, 4, 5", 1);
    halo_needs(4, 4, "rows 4, 5, 6", 2);
}
