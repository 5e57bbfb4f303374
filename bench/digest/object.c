/* object.c -- an object that nvcc made: its GPU functions, variants and host symbols.
 *
 * Book: chapter 18.  Checked by: tests/cli/digest.sh.  Next: paths.c.
 * The object is ELF for the host. Its section .nv_fatbin holds containers; in them lie
 * ELF files for the GPU (cubins), whose .text sections are one function each.
 */
#include "digest.h"
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct elf { const char *base; size_t size; const Elf64_Shdr *section; int sections; };

enum { KIND_CUBIN = 2 };
struct fatbin { uint32_t magic; uint16_t version, head; uint64_t bytes; };
struct entry {                         /* a file in a container */
    uint16_t kind, version;
    uint32_t head;
    uint64_t bytes;
    uint32_t packed, unknown;
    uint16_t minor, major;
    uint32_t arch;
};

static int bad(const char *path, const char *found, const char *expected)
{
    fprintf(stderr, "kcp-digest: %s: found %s, expected %s\n", path, found, expected);
    return 2;
}

static int elf_open(struct elf *e, const char *base, size_t size)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)base;
    if (size < sizeof *h || memcmp(base, ELFMAG, SELFMAG) ||
        h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_shoff + (uint64_t)h->e_shnum * sizeof(Elf64_Shdr) > size) return 1;
    *e = (struct elf){ base, size,
                       (const Elf64_Shdr *)(const void *)(base + h->e_shoff),
                       h->e_shnum };
    for (int i = 0; i < e->sections; i++)
        if (e->section[i].sh_type != SHT_NOBITS &&
            e->section[i].sh_offset + e->section[i].sh_size > size) return 1;
    return 0;
}

static const char *section_name(const struct elf *e, int i)
{
    const Elf64_Ehdr *h = (const Elf64_Ehdr *)(const void *)e->base;
    return e->base + e->section[h->e_shstrndx].sh_offset + e->section[i].sh_name;
}

static int section_of(const struct elf *e, const char *name)
{
    for (int i = 1; i < e->sections; i++)
        if (!strcmp(section_name(e, i), name)) return i;
    return 0;
}

/* "release 13.0, V13.0.88" stands in the note that ptxas leaves in a cubin. */
static void read_version(struct object *o, const struct elf *cubin)
{
    const int at = section_of(cubin, ".note.nv.tkinfo");
    if (!at) return;
    const char *note = cubin->base + cubin->section[at].sh_offset;
    const size_t n = cubin->section[at].sh_size;
    for (size_t i = 0; i + 3 < n; i++) {
        if (memcmp(note + i, ", V", 3)) continue;
        size_t k = 0;
        for (i += 3; i < n && k + 1 < sizeof o->nvcc && note[i] &&
                    strchr("0123456789.", note[i]); i++) o->nvcc[k++] = note[i];
        o->nvcc[k] = 0;
        return;
    }
}

static int read_cubin(struct object *o, const char *base, size_t size)
{
    struct elf e;
    if (elf_open(&e, base, size))
        return bad(o->path, "packed GPU code", "nvcc with --no-compress");
    read_version(o, &e);
    struct gpu_function *f = realloc(o->function, sizeof *f * (o->functions +
                                                               (size_t)e.sections));
    if (!f) return bad(o->path, "no memory", "some");
    o->function = f;
    for (int i = 1; i < e.sections; i++) {
        if (strncmp(section_name(&e, i), ".text.", 6)) continue;
        const size_t n = e.section[i].sh_size;
        const uint64_t h = digest_bytes(DIGEST_SEED, base + e.section[i].sh_offset, n);
        f[o->functions++] = (struct gpu_function){ h, n };
    }
    return 0;
}

static int read_fatbin(struct object *o, const char *p, size_t n, int arch)
{
    size_t at = 0;
    while (at + sizeof(struct fatbin) <= n) {
        struct fatbin c;
        memcpy(&c, p + at, sizeof c);
        if (c.magic != 0xba55ed50u || at + c.head + c.bytes > n)
            return bad(o->path, "another kind of .nv_fatbin", "nvcc's");
        const size_t end = at + c.head + c.bytes;
        for (at += c.head; at + sizeof(struct entry) <= end;) {
            struct entry x;
            memcpy(&x, p + at, sizeof x);
            if (at + x.head + x.bytes > end)
                return bad(o->path, "a cut .nv_fatbin", "a whole one");
            if (x.kind == KIND_CUBIN && (int)x.arch == arch &&
                read_cubin(o, p + at + x.head, x.bytes)) return 2;
            at += x.head + x.bytes;
        }
        at = (end + 7) / 8 * 8;
    }
    return 0;
}

/* What a relocation at section:offset points to; NULL if there is none. */
static const char *pointee(const struct elf *e, int section, uint64_t offset)
{
    for (int i = 1; i < e->sections; i++) {
        const Elf64_Shdr *s = &e->section[i];
        if (s->sh_type != SHT_RELA || (int)s->sh_info != section) continue;
        const Elf64_Rela *r = (const Elf64_Rela *)(const void *)
                              (e->base + s->sh_offset);
        const Elf64_Sym *sym = (const Elf64_Sym *)(const void *)
                               (e->base + e->section[s->sh_link].sh_offset);
        for (size_t k = 0; k < s->sh_size / sizeof *r; k++) {
            if (r[k].r_offset != offset) continue;
            const Elf64_Sym *to = &sym[ELF64_R_SYM(r[k].r_info)];
            if (to->st_shndx == SHN_UNDEF || to->st_shndx >= e->sections) return NULL;
            return e->base + e->section[to->st_shndx].sh_offset + to->st_value +
                   r[k].r_addend;
        }
    }
    return NULL;
}

/* Every pointer in kcp_variants leads to a record that opens with stage and name. */
static int read_variants(struct object *o, const struct elf *e)
{
    const int list = section_of(e, "kcp_variants");
    if (!list) return 0;
    const size_t n = e->section[list].sh_size / 8;
    o->variant = calloc(n + 1, sizeof *o->variant);
    if (!o->variant) return bad(o->path, "no memory", "some");
    for (size_t i = 0; i < n; i++) {
        const char *record = pointee(e, list, 8 * i), *stage = NULL, *name = NULL;
        for (int k = 1; record && k < e->sections; k++) {
            const char *from = e->base + e->section[k].sh_offset;
            if (e->section[k].sh_type == SHT_NOBITS || record < from ||
                record >= from + e->section[k].sh_size) continue;
            stage = pointee(e, k, (uint64_t)(record - from));
            name = pointee(e, k, (uint64_t)(record - from) + 8);
        }
        if (!stage || !name)
            return bad(o->path, "a variant without a name", "KCP_VARIANT's");
        o->variant[o->variants++] = (struct registered){ stage, name };
    }
    return 0;
}

static int read_symbols(struct object *o, const struct elf *e)
{
    for (int i = 1; i < e->sections; i++) {
        const Elf64_Shdr *s = &e->section[i];
        if (s->sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *sym = (const Elf64_Sym *)(const void *)
                               (e->base + s->sh_offset);
        const char *names = e->base + e->section[s->sh_link].sh_offset;
        const size_t n = s->sh_size / sizeof *sym;
        o->want = calloc(n + 1, sizeof *o->want);
        o->define = calloc(n + 1, sizeof *o->define);
        if (!o->want || !o->define) return bad(o->path, "no memory", "some");
        for (size_t k = 0; k < n; k++) {
            if (ELF64_ST_BIND(sym[k].st_info) == STB_LOCAL || !sym[k].st_name) continue;
            const char *name = names + sym[k].st_name;
            if (sym[k].st_shndx == SHN_UNDEF) o->want[o->wanted++] = name;
            else o->define[o->defined++] = name;
        }
    }
    return 0;
}

/* What compiled the host code, in one word: "GCC:12.2.0". */
static void read_compiler(struct object *o, const struct elf *e)
{
    const int at = section_of(e, ".comment");
    if (!at || !e->section[at].sh_size) return;
    const char *said = e->base + e->section[at].sh_offset;
    if (!*said && e->section[at].sh_size > 1) said++;       /* after an empty string */
    const size_t first = strcspn(said, " ");
    const char *last = strrchr(said, ' ');
    if (last) snprintf(o->compiler, sizeof o->compiler, "%.*s%s", (int)first, said,
                       last + 1);
}

/* The bytes of every function of the host; a call is a hole that the linker fills. */
static int read_host(struct object *o, const struct elf *e)
{
    for (int i = 1; i < e->sections; i++) {
        const Elf64_Shdr *s = &e->section[i];
        if (s->sh_type != SHT_SYMTAB) continue;
        const Elf64_Sym *sym = (const Elf64_Sym *)(const void *)
                               (e->base + s->sh_offset);
        const size_t n = s->sh_size / sizeof *sym;
        o->host = calloc(n + 1, sizeof *o->host);
        if (!o->host) return bad(o->path, "no memory", "some");
        for (size_t k = 0; k < n; k++) {
            if (ELF64_ST_TYPE(sym[k].st_info) != STT_FUNC ||
                sym[k].st_shndx == SHN_UNDEF || sym[k].st_shndx >= e->sections ||
                !sym[k].st_size) continue;
            const char *code = e->base + e->section[sym[k].st_shndx].sh_offset +
                               sym[k].st_value;
            o->host[o->hosts++] = digest_bytes(DIGEST_SEED, code, sym[k].st_size);
        }
    }
    return 0;
}

int object_defines(const struct object *o, const char *symbol)
{
    for (int i = 0; i < o->defined; i++)
        if (!strcmp(o->define[i], symbol)) return 1;
    return 0;
}

int object_read(struct object *o, const char *path, int arch)
{
    struct elf e;
    size_t n;
    *o = (struct object){ .path = path, .nvcc = "-" };
    o->bytes = file_text(path, &n);
    if (!o->bytes) return 2;
    if (elf_open(&e, o->bytes, n)) return bad(path, "no object", "one that nvcc made");
    const int fat = section_of(&e, ".nv_fatbin");
    if (fat && read_fatbin(o, o->bytes + e.section[fat].sh_offset,
                           e.section[fat].sh_size, arch)) return 2;
    read_compiler(o, &e);
    if (read_variants(o, &e) || read_host(o, &e)) return 2;
    return read_symbols(o, &e);
}
