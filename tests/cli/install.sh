#!/bin/sh
# install.sh -- checks that make install installs the library, headers and kcp.pc,
# uninstall removes them, and make recompiles if one of its options changes.
# Book: chapter 08.
# Usage: install.sh BUILD.
B=${1:-build}
W=$(mktemp -d "${TMPDIR:-/tmp}/a place XXXXXX") || exit 2
one=$(mktemp -d) || exit 2
trap 'rm -rf "$W" "$one"' EXIT
here=$(cd "$(dirname "$0")/../.." && pwd)
stop() { echo "install.sh: $*"; exit 1; }
make -s -C "$here" B="$B" PREFIX="$W" install >"$W/log" 2>&1 || stop "$(tail -3 "$W/log")"
make -s -C "$here" B="$B" DESTDIR="$W/not/" PREFIX=here install 2>"$W/log"
[ ! -e "$W/not" ] || stop "a relative PREFIX is accepted"
make -n -C "$here" CUDA_HOME=none check FULL=0 STRICT=0 | grep -q -- '--full\|--strict' &&
    stop "FULL=0 or STRICT=0 has the effect of 1"

# ---- the library: only kcp_* is visible; it prints nothing, sets no signal
# handler, and never ends the process
so=$W/lib/libkcp.so
readelf --dyn-syms -W "$so" |
    awk '$5 ~ /GLOBAL|WEAK/ && $6 == "DEFAULT" && $7 ~ /^[0-9]/ { print $8 }' |
    grep -vE '^(kcp_|_init$|_fini$)' >"$W/visible" &&
    stop "libkcp.so: visible: $(head -3 "$W/visible" | tr '\n' ' ')"
streams='std(in|out|err)|v?f?printf|v?dprintf|f?put[cs]|put(c|s|char)|f?get[cs]|getline'
files='f(d|re)?open|f(read|write|close|flush)|v?f?scanf|tmpfile|perror|popen|syslog'
ends='_?_?exit|_Exit|quick_exit|abort|atexit|on_exit|signal|sig(action|procmask|wait)|'
ends="$ends"'pthread_sigmask|raise|kill|alarm|setitimer|system|fork|exec[lv]p?e?'
nm -D --undefined-only "$so" | sed 's/.* //; s/@.*//' |
    grep -xE "__($streams)_chk|$streams|$files|$ends" >"$W/calls" &&
    stop "libkcp.so calls $(tr '\n' ' ' <"$W/calls")"
version=$(sed -n 's/^Version: //p' "$W/lib/pkgconfig/kcp.pc")
readelf -d "$so" | grep -q "SONAME.*libkcp.so.${version%%.*}\]" || stop "no SONAME"
[ -f "$so.$version" ] || stop "no lib/libkcp.so.$version"
[ -s "$W/share/doc/kcp/LICENSE" ] || stop "LICENSE is not installed"

# ---- rebuilds after a changed option
compiles() {                     # LINE option...: make must print LINE
    words=$1; shift
    got=$(make --no-print-directory -C "$here" CUDA_HOME=none B="$one" "$@" \
        "$one/ref/base/tensor_set.o" 2>&1 | grep -v 'up to date')
    [ "$got" = "$words" ] || stop "make $*: $got"
}
compiles '  cc ref/base/tensor_set.c'
compiles ''
compiles '  cc ref/base/tensor_set.c' EXTRA=-DOTHER

# ---- each header compiles alone, as C and as C++; a program, and an example
for header in kcp comm layer ref kcp/kcp kcp/comm kcp/layer; do
    echo "#include <$header.h>" >"$W/alone.c"
    for as in "${CC:-cc} -std=c11" "${CXX:-c++} -std=c++17 -x c++"; do
        command -v "${as%% *}" >/dev/null || continue
        $as -Wall -Wextra -Werror -fsyntax-only -I"$W/include" -I"$W/include/kcp" "$W/alone.c" \
            >"$W/log" 2>&1 || stop "$header.h alone, $as: $(cat "$W/log")"
    done
done
cat >"$W/list.c" <<'C'
#include <kcp/layer.h>
#include <stdio.h>
int main(void)
{
    const struct kcp_variant *v[1024];
    struct kcp_layer layer;
    char why[200];
    const int n = kcp_variants("08", NULL, v, 1024);
    const int status = kcp_layer_gpu(&layer, KCP_BF16, NULL, why, sizeof why);
    printf("%d %d\n", n, status);
    return (status == KCP_OK) != (n > 0);
}
C
grep -qF -- '-I"${prefix}/include" -I"${prefix}/include/kcp"' "$W/lib/pkgconfig/kcp.pc" ||
    stop "kcp.pc: no folders for <kcp/layer.h> and <layer.h>"
for source in "$W/list.c" "$here/book/examples/kda.c"; do
    ${CC:-cc} -std=c11 -D_POSIX_C_SOURCE=200809L -I"$W/include" -I"$W/include/kcp" "$source" \
        -o "$W/$(basename "$source" .c)" -L"$W/lib" -lkcp >"$W/log" 2>&1 ||
        stop "$(tail -3 "$W/log")"
done
if command -v cmake >/dev/null; then
    mkdir "$W/project"
    printf '%s\n' 'cmake_minimum_required(VERSION 3.13)' 'project(p C)' \
        "find_package(kcp ${version%.*} REQUIRED)" 'add_executable(list ../list.c)' \
        'target_link_libraries(list kcp::kcp)' >"$W/project/CMakeLists.txt"
    (cmake -S "$W/project" -B "$W/project/b" -DCMAKE_PREFIX_PATH="$W" &&
        cmake --build "$W/project/b") >"$W/log" 2>&1 || stop "cmake: $(tail -3 "$W/log")"
fi
LD_LIBRARY_PATH="$W/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export LD_LIBRARY_PATH
found=$("$W/list") || stop "number of variants of 08 contradicts status of kcp_layer_gpu: $found"
[ "$("$W/kda" 2)" = "$("$B/kda" 2)" ] || stop "kda with libkcp.so prints $("$W/kda" 2)"

# ---- uninstall leaves the files of others; compile_commands.json
echo mine >"$W/include/kcp/mine.h"
make -s -C "$here" B="$B" PREFIX="$W" uninstall >"$W/log" 2>&1 || stop "$(cat "$W/log")"
left=$(cd "$W" && find lib include share -type f 2>/dev/null | tr '\n' ' ')
[ "$left" = "include/kcp/mine.h " ] || stop "uninstall left: $left"
make -s -C "$here" B="$B" CUDA_HOME=none compile_commands.json >"$W/log" 2>&1 ||
    stop "$(cat "$W/log")"
grep -q '"file":"ref/01_step.c"' "$here/compile_commands.json" ||
    stop "compile_commands.json lacks ref/01_step.c"
rm -f "$here/compile_commands.json"
echo "install.sh: kda runs with the installed library, which has ${found% *} GPU variants of 08"
