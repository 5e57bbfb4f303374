#!/usr/bin/env python3
# digest.py -- hashes each variant's machine code, to find records made with older code.
# Book: chapter 18.
#
#   python3 bench/digest.py [BUILD]        prints columns `stage variant nvcc digest also`
#   python3 bench/digest.py --compare A B  compares two builds; status 1: GPU functions differ
#
# A variant's digest covers the instructions (cuobjdump -sass) of all GPU functions in its
# object and in the objects whose host functions it calls. The digest does not depend on the
# functions' names and order. The digest is "-" if a source is missing or newer than its
# object. Digests of two compilers cannot be compared. Row "comm" has the digest of the
# exchange's host code. A row "path" has the digest of what a row of ref/core/paths.def
# selects: its architecture, storage, format and the judge's cases that reach the row on
# the assumed GPU (cuda/host/machine.h), so the digest does not depend on the row's text. Column "also" lists older digests that
# count as equal to the row's digest (bench/results/digests.tsv). A row "alias" has a stage, a
# kernel's former name and, in column "digest", the kernel's present name.
import collections
import csv
import glob
import json
import os
import re
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SEED, PRIME = 0xcbf29ce484222325, 0x100000001b3                # FNV-1a, 64 bits
Object = collections.namedtuple("Object", "path nvcc functions defines needs")
COLUMNS = "stage variant nvcc digest also".split()


def fnv(data, h=SEED):
    for byte in data:
        h = (h ^ byte) * PRIME & 0xffffffffffffffff
    return h


def of_set(hashes):
    return "%016x" % fnv(b"".join(h.to_bytes(8, "little") for h in sorted(set(hashes))))


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def cuobjdump():
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    return shutil.which("cuobjdump", path=os.environ["PATH"] + ":" + home + "/bin")


def functions_of(path):
    """Hashes each GPU function. cuobjdump prints an instruction (16 bytes) in two lines."""
    hashes, code = [], None
    for line in output(cuobjdump(), "-sass", path).splitlines() + ["Function :"]:
        if "Function :" in line:
            hashes += [] if code is None else [fnv(code)]
            code = bytearray()
        elif code is not None:
            word = re.search(r"/\* 0x([0-9a-f]{16}) \*/\s*$", line)
            code += int(word[1], 16).to_bytes(8, "little") if word else b""
    return hashes


def read_object(path):
    with open(path, "rb") as f:
        version = re.search(rb"release \d+\.\d+, V(\d+\.\d+\.\d+)", f.read())
    symbols = [line.split() for line in output("nm", "-g", path).splitlines()]
    defines = [s[-1] for s in symbols if len(s) == 3]
    needs = [s[-1] for s in symbols if len(s) == 2]
    functions = functions_of(path) if version else []
    return Object(path, version[1].decode() if version else "-", functions, defines, needs)


def objects_of(build):
    """Returns all objects of kernels. Unchanged objects are read from BUILD/digest.json."""
    cache_file, cache, new = os.path.join(build, "digest.json"), {}, {}
    if os.path.exists(cache_file):
        with open(cache_file, encoding="utf-8") as f:
            cache = json.load(f)
    for path in sorted(glob.glob(build + "/cuda/**/*.cu.o", recursive=True)):
        st = os.stat(path)
        key = "%s %d %d" % (path, st.st_mtime_ns, st.st_size)
        new[key] = cache.get(key) or read_object(path)
    if new.keys() != cache.keys() and os.access(build, os.W_OK):
        with open(cache_file, "w", encoding="utf-8") as f:
            json.dump(new, f)
    return [Object(*o) for o in new.values()]


def is_old(path):
    """Returns true if a source file of the object is newer than the object."""
    with open(path[:-2] + ".d", encoding="utf-8") as f:
        words = re.findall(r"[^\s:\\]+", f.read())
    sources = [os.path.join(ROOT, w) for w in words if re.match(r"(cuda|ref|comm)/", w)]
    time = os.path.getmtime(path)
    return any(not os.path.exists(s) or os.path.getmtime(s) > time for s in sources)


def reached(objects, start):
    """Returns object `start` and all objects that it calls, directly or indirectly."""
    by_symbol = {symbol: o for o in objects for symbol in o.defines}
    found, todo = {}, [start]
    while todo:
        o = todo.pop()
        if o.path not in found:
            found[o.path] = o
            todo += [by_symbol[symbol] for symbol in o.needs if symbol in by_symbol]
    return list(found.values())


def variants(build):
    objects = objects_of(build) if cuobjdump() else []
    for o in objects:
        source = os.path.join(ROOT, os.path.relpath(o.path, build)[:-2])
        if not os.path.exists(source):
            continue
        with open(source, encoding="utf-8") as f:
            text = f.read()
        records = re.findall(r'KCP_VARIANT\(\w+\)\s*=\s*{\s*"(\w+)",\s*"(\w+)"', text)
        for stage, variant in re.findall(r'VARIANT_PAIR\(\w+,\s*"(\w+)",\s*"(\w+)"', text):
            records += [(stage, variant), (stage, variant + "_f32")]
        parts = reached(objects, o) if records else []
        old = any(is_old(part.path) for part in parts)
        digest = "-" if old else of_set(h for part in parts for h in part.functions)
        for stage, variant in records:
            yield stage, variant, o.nvcc, digest


def exchange(build):
    """Yields the digest of the host code that exchanges maps. Changes of other code do not
    change this digest: in object files, the addresses of called functions are 0."""
    paths = glob.glob(build + "/comm/form/*.o") + glob.glob(build + "/comm/backend/nccl*.o")
    if not paths:
        return
    code = []
    for function in output("objdump", "-d", *sorted(paths)).split("\n\n"):
        columns = [line.split("\t") for line in function.splitlines()]
        code.append(fnv("".join(c[1] for c in columns if len(c) > 1).encode()))
    compiler = re.search(r"\(.*\) (\S+)", output("gcc", "--version"))
    yield "comm", "-", "GCC:" + compiler[1] if compiler else "-", of_set(code)


def paths(build):
    check = build + "/kcp-check"
    if not os.path.exists(check):
        return
    no_gpu = dict(os.environ, CUDA_VISIBLE_DEVICES="")
    table = subprocess.run([check, "--paths", "--cases"], env=no_gpu, text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    for cell in csv.DictReader(table.stdout.splitlines(), delimiter="\t",
                               quoting=csv.QUOTE_NONE):
        text = "\t".join(cell[n] for n in "arch storage format cases".split())
        yield "path", cell["path"], "-", "%016x" % fnv(text.encode())


def aliases():
    """Yields the former names of kernels, because old records contain these names."""
    with open(os.path.join(ROOT, "ref/core/paths.c"), encoding="utf-8") as f:
        for stage, old, now in re.findall(r'\{ "(\w+)", "(\w+)", "(\w+)" \}', f.read()):
            yield "alias", stage + " " + old, "-", now


def rows(build):
    """Yields dictionaries, the rows of the table."""
    also = collections.defaultdict(list)
    with open(os.path.join(ROOT, "bench/results/digests.tsv"), encoding="utf-8") as f:
        for digest, earlier in (line.split() for line in f.readlines()[1:]):
            also[digest].append(earlier)
    for part in variants(build), exchange(build), paths(build), aliases():
        for row in part:
            yield dict(zip(COLUMNS, row), also=" ".join(also.get(row[3], [])))


def compare(a, b):
    sets = []
    for build in (a, b):
        where = {}
        for o in objects_of(build):
            where.update((h, o.path) for h in o.functions)
        if not where:
            sys.exit("digest.py: %s: no objects of kernels; build them first" % build)
        sets.append(where)
    differ = 0
    for have, other, name in (sets[1], sets[0], b), (sets[0], sets[1], a):
        for h in have.keys() - other.keys():
            print("%016x\tonly in %s\t%s" % (h, name, have[h]))
            differ += 1
    print("digest.py: %d functions in %s, %d in %s, %d in only one of them"
          % (len(sets[0]), a, len(sets[1]), b, differ))
    sys.exit(differ > 0)


def main(arguments):
    if arguments[:1] == ["--compare"] and len(arguments) == 3:
        if not cuobjdump():
            sys.exit("digest.py: cuobjdump not found: add the CUDA toolkit's bin to PATH")
        compare(*arguments[1:])
    if len(arguments) > 1 or arguments[:1] == ["--help"] or arguments[:1] == ["--compare"]:
        sys.exit("usage: digest.py [BUILD] | digest.py --compare BUILD BUILD")
    build = arguments[0] if arguments else os.path.join(ROOT, "build")
    print(*COLUMNS, sep="\t")
    for row in rows(build):
        print(*row.values(), sep="\t")


if __name__ == "__main__":
    main(sys.argv[1:])
