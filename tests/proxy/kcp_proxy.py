#!/usr/bin/env python3
"""kcp_proxy.py -- finds missing proxy fences in the kernels' PTX.

Book: chapter 18.

    kcp_proxy.py BUILD [--plant]     after make has compiled the PTX

wgmma and the copy engine access shared memory through the async proxy, threads through the
generic proxy. A thread that has written, or has initialized an mbarrier, must execute
fence.proxy.async before the barrier or arrival that makes the writes visible to wgmma or
the copy engine. mbarrier_fence_init of cuda/tile/ contains this fence. No run of a kernel can
prove that a fence exists, so this program walks all paths of the PTX and finds pairs of
places. The first place is a write to shared memory. The second place is a barrier, an
arrival or a copy to global memory that can follow the write with no fence between. A load
of the copy engine that may overwrite the written bytes is also a second place. wgmma is not
reported as a second place, because a warpgroup passes a barrier before wgmma.

threads_alone.tsv lists pairs that are correct, because only threads read the written
bytes. The exit status is 1 if a pair is not in that list, or a line of the list is not
found. --plant removes one fence at a time in a copy of the tree. Each removal must give
a new pair, except the removals counted in UNSEEN.
"""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

LIST = "tests/proxy/threads_alone.tsv"
FENCE = r"(fence_proxy_async|mbarrier_fence_init)\(\);"
# How many fences of a file can be removed without a new pair, because a barrier for threads
# follows the write, and another warp issues the load that overwrites the bytes.
UNSEEN = {"cuda/17_ladder/v8_tma_sm90.cu": 1,
          "cuda/18_hopper/backward/finish_gdn_sm90.cu": 2}
# The kind of an instruction is the first pattern that matches the instruction's beginning.
KINDS = re.compile(r"""
    (?P<FENCES>fence\.proxy\.async)
    |(?P<MULTIPLIES>wgmma\.mma_async)
    |(?P<LOADS>cp\.async\.bulk\..*shared::cluster\.global)
    |(?P<SENDS>cp\.async\.bulk\..*global\.shared::cta)
    |(?P<SYNCS>cp\.async\.mbarrier\.arrive|mbarrier\.arrive|barrier\.cluster\.arrive
        |bar\.(sync|arrive|red)|barrier\.(sync|arrive|red|cta))
    |(?P<WRITES>st\.shared|stmatrix|mbarrier\.init|(red|atom)\.shared|cp\.async\.c
        |st\.(?!global|local|param)(?!.*\.global\.))
    |(?P<BRANCHES>bra|brx\.idx)
    |(?P<ENDS>ret|exit|trap)""", re.VERBOSE)
names = {}                               # of files, by their number in the PTX


class Step:
    """An instruction of a kind in KINDS, and the writes that reach it without a fence."""
    def __init__(self, kind, conditional, targets, place):
        self.kind, self.conditional = kind, conditional
        self.targets, self.place = targets, place
        self.source = None               # a write that no fence or SYNCS has followed
        self.unfenced = 0                # a bit per write, by its number in the kernel


def read_step(text, place):
    text = text.strip(" \t\n{}")
    guard = re.match(r"@\S*\s*", text)
    text = text[guard.end():] if guard else text
    found = KINDS.match(text)
    if not found:
        return None
    targets = re.findall(r"\$[^\s,{};]+", text) if found.lastgroup == "BRANCHES" else []
    return Step(found.lastgroup, bool(guard), targets, place)


def leaves(s, i):
    """Returns a write that no fence or barrier (SYNCS) has followed up to step i, or
    None."""
    if s.kind == "WRITES":
        return i
    if s.kind in ("FENCES", "SYNCS"):
        return s.source if s.conditional else None
    return s.source


def unfenced_after(s, i):
    """Returns all writes that no fence has followed up to step i. A barrier (SYNCS) removes
    no write, because the copy engine may still overwrite the written bytes."""
    if s.kind == "FENCES" and not s.conditional:
        return 0
    return s.unfenced | (1 << i if s.kind == "WRITES" else 0)


def pairs_of_kernel(steps, labels):
    """Follows writes along all paths of a kernel. Returns pairs of places."""
    if not any(s.kind in ("MULTIPLIES", "LOADS", "SENDS") for s in steps):
        return set()
    after = []
    for i, s in enumerate(steps):
        falls = s.conditional or s.kind not in ("BRANCHES", "ENDS")
        to = [i + 1] * falls + [labels.get(t, len(steps)) for t in s.targets]
        after.append([steps[j] for j in to if j < len(steps)])
    changed = True
    while changed:
        changed = False
        for i, s in enumerate(steps):
            source, unfenced = leaves(s, i), unfenced_after(s, i)
            for t in after[i]:
                if source is not None and t.source is None:
                    t.source, changed = source, True
                if unfenced & ~t.unfenced:
                    t.unfenced |= unfenced
                    changed = True
    pairs = set()
    for s in steps:
        if s.kind in ("SYNCS", "SENDS") and s.source is not None:
            pairs.add((steps[s.source].place, s.place))
        if s.kind == "LOADS":
            pairs |= {(w.place, ("a load", 0)) for j, w in enumerate(steps)
                      if s.unfenced >> j & 1}
    return pairs


def read_place(line):
    """Returns file and line of ".loc 2 31 5, function_name $x, inlined_at 1 90 3". If a
    function of cuda/tile/ was inlined, returns the place outside cuda/tile/."""
    file, number = (int(n) for n in re.findall(r"\d+", line)[:2])
    outer = re.search(r"inlined_at (\d+) (\d+)", line)
    if outer and "cuda/tile/" in names.get(file, ""):
        file, number = int(outer[1]), int(outer[2])
    name = names.get(file, "?")
    return name[max(name.find("cuda/"), 0):], number


def pairs_of_file(path):
    with open(path, encoding="utf-8") as f:
        lines = f.read().splitlines()
    for line in lines:
        found = re.match(r'\s*\.file\s+(\d+)\s+"([^"]*)"', line)
        if found:
            names[int(found[1])] = found[2]
    pairs, kernels, inside, depth = set(), 0, False, 0
    for line in lines:
        if re.search(r"\.entry ", line):
            inside, steps, labels, place = True, [], {}, ("?", 0)
        was = depth
        depth += line.count("{") - line.count("}") if inside else 0
        label = re.match(r"\s*(\$[^ ;(]*):[^ ;(]*$", line)
        if re.match(r"\s*\.loc\s", line):
            place = read_place(line) if inside else None
        elif was and depth and label:
            if was == 1:                 # deeper: a wait loop in inline assembly
                labels.setdefault(label[1], len(steps))
        elif was and depth:
            steps += filter(None, (read_step(one, place) for one in line.split(";")))
        if was and not depth:
            pairs |= pairs_of_kernel(steps, labels)
            inside, kernels = False, kernels + 1
    if inside or not kernels:
        sys.exit(f"kcp_proxy.py: {path}: no whole kernel: compile the PTX again")
    return pairs


def text_of(tree, place):
    """Returns the text of a place's source line, because line numbers change."""
    file, number = place
    if number == 0:
        return "a load\tof the copy engine"
    with open(os.path.join(tree, file), encoding="utf-8") as f:
        return file + "\t" + f.read().splitlines()[number - 1].strip()


def pairs(tree, files):
    return {text_of(tree, a) + "\t" + text_of(tree, b)
            for path in files for a, b in pairs_of_file(path)}


def objects_of(build):
    """Returns PTX files whose source exists. An old build may have more PTX files."""
    found = glob.glob(build + "/ptx/**/*.ptx", recursive=True)
    return sorted(p for p in found
                  if os.path.exists(os.path.relpath(p, build + "/ptx")[:-4] + ".cu"))


def without_fence(tree, file, at, build, known):
    """Removes the fence in line `at` of a copy, and compiles objects that include the
    file until one has a new pair. Returns a note if no object has a new pair."""
    objects = [os.path.relpath(d, build)[:-2] for d in
               sorted(glob.glob(build + "/ptx/**/*.d", recursive=True))
               if file in open(d, encoding="utf-8").read()]
    with open(file, encoding="utf-8") as f:
        lines = f.read().splitlines(keepends=True)
    lines[at] = re.sub(FENCE, ";", lines[at], count=1)
    with open(os.path.join(tree, file), "w", encoding="utf-8") as f:
        f.writelines(lines)
    why = "no pair is new"
    for ptx in ("build/" + name + ".ptx" for name in objects):
        made = subprocess.run(["make", "-s", "-C", tree, "B=build", ptx], check=False,
                              capture_output=True, text=True)
        if made.returncode:
            why = made.stderr[-200:]
        elif pairs(tree, [os.path.join(tree, ptx)]) - known:
            why = ""
            break
    shutil.copy2(file, os.path.join(tree, file))
    os.utime(os.path.join(tree, file))
    return why


def plant(build, known):
    """Removes one fence at a time. Returns 0 if each removal gives a new pair except
    the removals counted in UNSEEN, else 1."""
    seen, missed = 0, {}
    with tempfile.TemporaryDirectory() as tree:
        files = ["Makefile", "ref", "cuda", *glob.glob("bench/*.mk"),
                 *glob.glob("book/*.mk"), *glob.glob("book/labs/*.mk"),
                 *glob.glob("tests/*.mk")]
        subprocess.run(["cp", "-R", "--parents", *files, tree], check=True)
        for file in sorted(glob.glob("cuda/**/*.cu*", recursive=True)):
            with open(file, encoding="utf-8") as f:
                lines = f.read().splitlines()
            for at, line in enumerate(lines):
                if file.startswith("cuda/tile") or not re.match(" *" + FENCE, line):
                    continue
                why = without_fence(tree, file, at, build, known)
                seen += not why
                if why:
                    missed[file] = missed.get(file, 0) + 1
                    print(f"kcp_proxy.py: without the fence of {file}:{at + 1}: {why}")
    print(f"kcp_proxy.py: {seen} removals of fences detected, {sum(missed.values())} not, "
          f"expected {sum(UNSEEN.values())} not")
    return int(missed != UNSEEN or seen == 0)


def main():
    take = argparse.ArgumentParser(prog="kcp_proxy.py")
    take.add_argument("build")
    take.add_argument("--plant", action="store_true")
    o = take.parse_args()
    files = objects_of(o.build)
    if not files:
        print(f"kcp_proxy.py: no PTX in {o.build} (no nvcc): nothing was read")
        return 0
    found = pairs(".", files)
    with open(LIST, encoding="utf-8") as f:
        known = {"\t".join(line.split("\t")[:4]) for line in f if not line.startswith("#")}
    for pair in sorted(found - known):
        print("kcp_proxy.py: no fence.proxy.async between: " + pair)
    for pair in sorted(known - found):
        print(f"kcp_proxy.py: {LIST}: no kernel has: {pair}")
    if found != known:
        return 1
    print(f"kcp_proxy.py: {len(files)} objects: {len(found)} pairs of places, all known")
    return plant(o.build, known) if o.plant else 0


if __name__ == "__main__":
    sys.exit(main())
