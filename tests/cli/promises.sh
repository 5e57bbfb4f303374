#!/bin/sh
# promises.sh -- every test that the table of promises names is there.
#
# Book: chapter 20, "On a cluster".  Checked by: a row of its own that names no test.
# Usage: promises.sh BUILD.  Next: ../../book/20-clusters.md.
#
# A row ends with names in backquotes: a script, or a stage of the judge, then words that
# stand in it.
here=$(cd "$(dirname "$0")/../.." && pwd)
look() {                                  # reads rows: what is missing, a line each
    awk -F '|' '/^\| what happens/ { on = 1; next } on && !/^\|/ { on = 0 }
        on && !/---/ { print $4 }' | tr -d ' ' | while IFS= read -r row; do
        file=
        for name in $(echo "$row" | grep -o '`[^`]*`' | tr -d '`'); do
            case $name in
            *.sh|*.mk)
                file=$(find "$here/tests" "$here/bench" -name "$name" | head -1)
                [ -n "$file" ] || echo "$name: there is no such script" ;;
            [0-9][0-9]_*)
                file=$here/tests/$name
                [ "$name" != 00_judge ] || file=$here/tests/judge
                [ -d "$file" ] || echo "$name: there is no such stage" ;;
            *)  [ -n "$file" ] && tr -d ' ' <<END | grep -qF -- "$name" ||
$(find "$file" -type f -exec cat {} +)
END
                echo "$name: not in ${file#"$here"/}" ;;
            esac
        done
        [ -n "$file" ] || echo "a row that names no test: $row"
    done
}
rows=$(grep -c '^| .*`[a-z0-9_]*\.\(sh\|mk\)`\|^| .*`[0-9][0-9]_' "$here/book/20-clusters.md")
missing=$(look <"$here/book/20-clusters.md")
planted=$(printf '| what happens | x | held by |\n|--|--|--|\n| a | b | `none.sh`, `it` |\n' |
    look)
[ -n "$planted" ] || { echo "promises.sh: a test that is not there was not missed"; exit 1; }
[ -z "$missing" ] || { echo "$missing"; echo "promises.sh: not every promise has its test"
    exit 1; }
[ "$rows" -ge 20 ] || { echo "promises.sh: found $rows rows, expected 20 or more"; exit 1; }
echo "promises.sh: $rows promises, each with a test that is there"
