# free_port.sh -- finds free TCP ports for the scripts that start daemons or torchrun.
#
# Book: chapter 20.  Checked by: slurm.sh, torch.sh, which use them.
# Next: slurm.sh.
#
# free_ports N: prints the first of N adjacent free ports, drawn at random below the
# kernel's range for clients, so that concurrent runs rarely collide.
free_ports() {
    cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
        awk -v n="$1" -v seed="$(od -An -N3 -tu4 /dev/urandom)" '
            function value(hex,  i, x) {
                for (i = 1; i <= length(hex); i++)
                    x = 16 * x + index("123456789ABCDEF", substr(hex, i, 1))
                return x
            }
            $2 ~ /:/ { split($2, at, ":"); taken[value(at[2])] = 1 }
            END {
                srand(seed)
                for (tries = 0; tries < 1000; tries++) {
                    first = 10000 + int(rand() * (10000 - n))
                    for (i = 0; i < n && !((first + i) in taken); i++) continue
                    if (i == n) break
                }
                print first
            }'
}
