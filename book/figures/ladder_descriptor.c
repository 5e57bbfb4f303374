/* ladder_descriptor.c -- chapter 17: the 64 bits that describe B to wgmma.
 *
 * Book: chapter 17.  Checked by: itself: it stops if a field has a wrong value.
 * Next: ladder_roles.c.
 * cuda/tile/smem_desc.cuh computes the bits. book.mk compiles that file for the host,
 * without CUDA's keywords; smem_addr below replaces the GPU's function. */
#include "svg.h"

#include <stdlib.h>

static const struct field { const char *name; int from, bits; const char *fill; }
    fields[] = { { "address", 0, 14, "var(--wash-a)" },
                 { "leading offset", 16, 14, "var(--wash-b)" },
                 { "stride offset", 32, 14, "var(--wash-c)" },
                 { "base", 49, 3, "var(--wash-d)" },
                 { "swizzle", 62, 2, "var(--wash-d)" } };

static unsigned value(uint64_t d, const struct field *f)
{
    return (unsigned)(d >> f->from & ((1u << f->bits) - 1));
}

/* Draws bits 63 .. 0 from left to right, with the value and the meaning of each
 * field. */
static void draw(double y, const char *name, uint64_t d, const char *const *means)
{
    uint64_t known = 0;
    svg_text(20, y, "start", "mono", "%s: 0x%016llx", name, (unsigned long long)d);
    for (int bit = 0; bit < 64; bit++) {
        const char *fill = "none";
        for (int i = 0; i < 5; i++)
            if (bit >= fields[i].from && bit < fields[i].from + fields[i].bits)
                fill = fields[i].fill;
        svg_rect(20 + (63 - bit) * 10.6, y + 12, 10.6, 20, "fill:%s;stroke:var(--line)",
                 fill);
        svg_text(25.3 + (63 - bit) * 10.6, y + 26, "middle", "mono", "%d",
                 (int)(d >> bit & 1));
    }
    for (int i = 0; i < 5; i++) {
        const struct field *f = &fields[i];
        const double x = 20 + (64 - f->from - f->bits / 2.0) * 10.6;
        const int at_edge = f->from + f->bits == 64;
        const double at = at_edge ? 20 : x;
        const char *const anchor = at_edge ? "start" : "middle";
        known |= (uint64_t)value(d, f) << f->from;
        svg_text(at, y + 48, anchor, "soft", "%s %u", f->name, value(d, f));
        svg_text(at, y + 64, anchor, "soft", "%s", means[i]);
    }
    if (known != d) {
        fprintf(stderr, "ladder_descriptor: a bit is outside of the fields\n");
        exit(1);
    }
}

int main(void)
{
    static const char *const k[] = { "x 16 bytes", "not used", "8 rows: 1024", "",
                                     "128" };
    static const char *const mn[] = { "x 16 bytes", "next tile: 8192", "8 rows: 1024",
                                      "", "128" };
    const uint64_t w = smem_desc_k_major((const bf16 *)0x8400);
    const uint64_t kg = smem_desc_mn_major((const bf16 *)0x8400, SWIZZLE128_TILE);
    svg_begin(
        720, 300, "Two matrix descriptors, bit by bit",
        "The 64 bits of the descriptors of w, K-major, and of kg, MN-major, for a "
        "tile at byte 0x8400 of shared memory: address, leading and stride offsets "
        "in units of 16 bytes, base offset, and the kind of swizzle.");
    draw(28, "smem_desc_k_major, w at byte 0x8400", w, k);
    draw(132, "smem_desc_mn_major, kg at byte 0x8400", kg, mn);
    svg_text(20, 236, "start", "",
             "A step of 16 adds %d (K-major: %d bytes) or %d "
             "(MN-major: %d bytes); the next 64 columns add %d.",
             DESC_STEP_K_MAJOR, DESC_STEP_K_MAJOR << 4, DESC_STEP_MN_MAJOR,
             DESC_STEP_MN_MAJOR << 4, DESC_NEXT_TILE);
    svg_text(20, 260, "start", "soft",
             "A number added to a descriptor is added to its address, unless "
             "the field overflows.");
    svg_text(20, 278, "start", "soft",
             "The address has 14 bits, in units of 16 bytes: 256 KiB, more than "
             "the shared memory of an SM.");
}
