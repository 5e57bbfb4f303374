#!/bin/sh
# slurm.sh -- ranks under a real srun: a Slurm of its own, two nodes on one host.
#
# Book: chapter 20.  Checked by: make test, which runs it.  Next: processes.sh.
# Wants root and Debian's slurm-wlm (slurmctld, slurmd, munged); without, it says so.
# Nothing of a Slurm that runs here is touched: ports, keys and folders are its own.
# FULL=1 hands lab 14, with the right answer, to book/labs/lab.sbatch besides.
program=$(cd "${1:-build}" && pwd)/kcp-check
. "$(dirname "$0")/free_port.sh"
PATH=$PATH:/usr/sbin
for need in slurmctld slurmd munged srun sbatch; do
    command -v $need >/dev/null && continue
    echo "slurm.sh: no $need here: real Slurm was not tried"; exit 0
done
[ "$(id -u)" = 0 ] || { echo "slurm.sh: not root: real Slurm was not tried"; exit 0; }
W=$(mktemp -d) || exit 1
started="" failed=0
# A slurmd that is told to end while a job still ends may wait for ever.
stop() {
    i=0
    until [ -z "$(timeout 10 squeue -h 2>/dev/null)" ] || [ $i = 60 ]; do
        sleep 0.5; i=$((i + 1)); done
    for id in $started; do kill "$id" 2>/dev/null; done
    (sleep 10; kill -KILL $started) >/dev/null 2>&1 & dog=$!
    for id in $started; do wait "$id" 2>/dev/null; done
    kill $dog 2>/dev/null; wait $dog 2>/dev/null
    rm -rf "$W"
}
trap stop EXIT
# The job's key lies in ~/.kcp, as where a cluster shares the homes: here, a home of our
# own.
unset KCP_KEY_DIR KCP_SECRET KCP_TRUST_NETWORK KCP_RENDEZVOUS MASTER_ADDR MASTER_PORT
mkdir "$W/home"
export HOME="$W/home"
trap 'exit 1' INT TERM
wrong() { echo "slurm.sh: $*"; failed=1; }
chmod 755 "$W"
mkdir "$W/state" "$W/munge" && chmod 700 "$W/munge"
# Rank 0 waits on the job's first node, by its name: one that this host knows.
host=$(hostname) port=$(free_ports 3)
head -c 64 /dev/urandom >"$W/munge/key" && chmod 600 "$W/munge/key"
cat >"$W/slurm.conf" <<END
ClusterName=kcptest
SlurmctldHost=$host(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket=$W/munge.socket
SlurmUser=root
SlurmdUser=root
SlurmctldPort=$port
StateSaveLocation=$W/state
SlurmdSpoolDir=$W/spool.%n
SlurmctldPidFile=$W/ctld.pid
SlurmdPidFile=$W/d.%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
MailProg=/bin/true
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
NodeName=$host NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=8
NodeName=zz1 NodeHostname=$host NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=8
PartitionName=all Nodes=$host,zz1 Default=YES MaxTime=10 State=UP OverSubscribe=YES
END
export SLURM_CONF="$W/slurm.conf"
munged -F --force --key-file "$W/munge/key" --socket "$W/munge.socket" \
    --pid-file "$W/munge/pid" --log-file "$W/munge/log" --seed-file "$W/munge/seed" \
    >"$W/munged" 2>&1 & started="$started $!"
i=0
until [ -S "$W/munge.socket" ] || [ $i = 300 ]; do sleep 0.1; i=$((i + 1)); done
slurmctld -D >"$W/ctld" 2>&1 & started="$started $!"
for n in $host zz1; do
    mkdir "$W/spool.$n"
    slurmd -D -N $n >"$W/$n" 2>&1 & started="$started $!"
done
# A sinfo without slurmctld asks again and again; one that has ended is not waited for.
until=$(($(date +%s) + 180)) idle=
while [ -z "$idle" ] && [ "$(date +%s)" -lt $until ] && kill -0 $started 2>/dev/null; do
    timeout 10 sinfo -h -o '%D %t' 2>/dev/null | grep -q '^2 idle' && idle=yes ||
        sleep 0.5
done
[ "$idle" ] || { tail -n 5 "$W"/ctld "$W/$host" "$W/zz1" "$W"/munged
                 echo "slurm.sh: Slurm does not start here: not tried"; exit 1; }

# says WORDS srun's options: exit status 0, and WORDS.
says() {
    words=$1; shift
    KCP_TIMEOUT_S=60 timeout 240 srun "$@" >"$W/said" 2>&1 ||
        wrong "srun $*: $? $(cat "$W/said")"
    grep -q -- "$words" "$W/said" || wrong "no '$words' in: $(cat "$W/said")"
}
says '^4 processes of srun' -w "$host" -n 4 "$program" --exchange 10
says ' 0 numbers wrong' -N 2 -n 4 "$program" --exchange 10
says '^OK: .* 0 survived' -N 2 -n 4 "$program" --stage 14
says '  ok      ref .* 1 ok' -N 2 -n 3 "$program" --stage 13 --variant ref \
    --case 'live gdn H=1 HV=2 K=16 V=16 R=3 lengths=150,0,70 h0 dht'

[ -d "$W/home/.kcp" ] && [ -z "$(ls "$W/home/.kcp")" ] ||
    wrong "the key: $(ls -la "$W/home" "$W/home/.kcp")"
# No folder that both nodes see: one line says what to set, status 2.
cat >"$W/apart" <<'END'
export KCP_KEY_DIR="$1/node.$SLURM_NODEID"; exec "$2" --exchange 5
END
KCP_TIMEOUT_S=3 timeout 240 srun -N 2 -n 2 -W 0 sh "$W/apart" "$W" "$program" \
    >"$W/said" 2>&1 && wrong "no shared folder, and srun is content"
grep -q "rank 1.*is the folder shared? Else set KCP_SECRET .*KCP_TRUST_NETWORK=1" \
    "$W/said" || wrong "no shared folder: $(cat "$W/said")"

# One process of four ends in the middle of an exchange: the others say so, and wait for
# no timeout.
cat >"$W/rank" <<'END'
echo $$ >"$1/id.$SLURM_PROCID"; exec "$2" --exchange 0
END
KCP_TIMEOUT_S=60 timeout 240 srun -N 2 -n 4 -K0 -W 0 sh "$W/rank" "$W" "$program" \
    >"$W/said" 2>&1 & srun=$!
i=0
until grep -q 'exchange trials' "$W/said" || [ $i = 120 ]; do
    sleep 0.5; i=$((i + 1)); done
sleep 2
began=$(date +%s)
kill -KILL "$(cat "$W/id.2")"
wait $srun && wrong "a lost rank, and srun is content"
took=$(($(date +%s) - began))
[ $took -le 30 ] || wrong "the others took $took s"
[ "$(grep -c 'rank 2 was lost in exchange' "$W/said")" -ge 3 ] ||
    wrong "three ranks should name rank 2: $(cat "$W/said")"

# A lab as a student hands it in: one node, then two.
if [ -n "$FULL" ]; then
    mkdir "$W/work"
    src=$(sed -n 's/^file *//p' book/labs/14_halo.lab)
    region=$(sed -n 's/^region *//p' book/labs/14_halo.lab)
    awk -v r="$region" '/^[ \t]*\/\/< / && $2 == r { on = 0 } on
        /^[ \t]*\/\/> / && $2 == r { on = 1 }' "$src" >"$W/fill"
    awk -v fill="$W/fill" -f book/labs/new.awk book/labs/14_halo.lab "$src" \
        >"$W/work/14_halo.c"
    for nodes in 1 2; do
        LABWORK="$W/work" timeout 900 sbatch -W -o "$W/lab.$nodes" --nodes=$nodes \
            book/labs/lab.sbatch 14 >/dev/null || wrong "$(cat "$W/lab.$nodes")"
        for words in '^Score: 6/6' "^$((4 * nodes)) processes of srun" '^1 passed, 0 fa'
        do grep -q "$words" "$W/lab.$nodes" || wrong "sbatch: $(cat "$W/lab.$nodes")"
        done
        [ -z "$SAID" ] || { echo; echo "# sbatch --nodes=$nodes book/labs/lab.sbatch 14"
                            cat "$W/lab.$nodes"; } >>"$SAID"
    done
fi
[ $failed = 0 ] && echo "slurm.sh: $(srun --version): one node, two, a lost rank"
exit $failed
