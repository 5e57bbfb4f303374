#!/bin/sh
# slurm.sh -- tests ranks under srun and sbatch in a private Slurm of two nodes on one host.
#
# Book: chapter 20.
# Needs root, Open MPI and Debian's slurm-wlm (slurmctld, slurmd, munged), else only prints
# a line. The private Slurm has separate ports, keys and folders, so a running Slurm is not
# affected. FULL=1 also submits lab 14's answer with book/labs/lab.sbatch.
export B="${1:-build}"                     # the lab's make reads B too
program=$(cd "$B" && pwd)/kcp-check
PATH=$PATH:/usr/sbin
for need in slurmctld slurmd munged srun sbatch mpirun; do
    command -v $need >/dev/null && continue
    echo "slurm.sh: $need not found: Slurm not tested"; exit 0
done
ldd "$program" | grep -q libmpi || { echo "slurm.sh: built without MPI"; exit 0; }
[ "$(id -u)" = 0 ] || { echo "slurm.sh: not root: Slurm not tested"; exit 0; }
W=$(mktemp -d) || exit 1
started="" failed=0
# A slurmd stopped while a job ends may hang, so stop() first waits for all jobs.
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
# Both nodes are this host, so traffic uses loopback, and ranks may outnumber cores.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 KCP_TIMEOUT_S=60 \
    OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
trap 'exit 1' INT TERM
wrong() { echo "slurm.sh: $*"; failed=1; }
chmod 755 "$W"
mkdir "$W/state" "$W/munge" && chmod 700 "$W/munge"
# Selects three ports below the ephemeral range. Concurrent runs select different ports.
host=$(hostname) port=$((10000 + $$ % 5000 * 3))
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
PartitionName=all Nodes=$host,zz1 Default=YES MaxTime=60 State=UP OverSubscribe=YES
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
# Waits at most 180 s for two idle nodes, and stops if a daemon has ended.
until=$(($(date +%s) + 180)) idle=
while [ -z "$idle" ] && [ "$(date +%s)" -lt $until ] && kill -0 $started 2>/dev/null; do
    timeout 10 sinfo -h -o '%D %t' 2>/dev/null | grep -q '^2 idle' && idle=yes ||
        sleep 0.5
done
[ "$idle" ] || { tail -n 5 "$W"/ctld "$W/$host" "$W/zz1" "$W"/munged
                 echo "slurm.sh: Slurm does not start: not tested"; exit 1; }

# expect WORDS COMMAND...: checks that COMMAND exits with status 0 and prints WORDS.
expect() {
    words=$1; shift
    timeout 240 "$@" >"$W/output" 2>&1 || wrong "$*: $? $(cat "$W/output")"
    grep -q -- "$words" "$W/output" || wrong "no '$words' in: $(cat "$W/output")"
}
one="srun --mpi=pmix -w $host -n 4"
expect '^4 processes of srun, MPI' $one "$program" --exchange 10
expect '^OK: .* 0 survived' $one "$program" --stage 14
# Without PMIx, kcp-check must fail: MPI_Init fails, or MPI_COMM_WORLD has one rank only.
timeout 60 srun --mpi=none -w "$host" -n 4 "$program" --exchange 5 >"$W/output" 2>&1 &&
    wrong "srun without PMIx: $(cat "$W/output")"
grep -q 'MPI knows of 1\|with-pmi' "$W/output" || wrong "$(cat "$W/output")"
# Two nodes: sbatch and mpirun.
cat >"$W/job" <<'END'
#!/bin/sh
exec mpirun "$@"
END
expect . sbatch -W -N 2 -n 4 -o "$W/out" "$W/job" "$program" --exchange 10
grep -q ' 0 numbers wrong' "$W/out" || wrong "two nodes: $(cat "$W/out")"
expect . sbatch -W -N 2 -n 3 -o "$W/out" "$W/job" "$program" --stage 13 --variant ref \
    --case 'live gdn H=1 HV=2 K=16 V=16 R=3 lengths=150,0,70 h0 dht'
grep -q '  ok      ref .* 1 ok' "$W/out" || wrong "two nodes: $(cat "$W/out")"

# If one process of four dies during an exchange, srun must end the others.
cat >"$W/rank" <<'END'
echo $$ >"$1/id.$SLURM_PROCID"; exec "$2" --exchange 0
END
timeout 240 $one -K1 sh "$W/rank" "$W" "$program" >"$W/output" 2>&1 & srun=$!
i=0
until grep -q 'exchange trials' "$W/output" || [ $i = 120 ]; do
    sleep 0.5; i=$((i + 1)); done
sleep 2
began=$(date +%s)
kill -KILL "$(cat "$W/id.2")"
wait $srun && wrong "srun returns 0 after a rank died"
took=$(($(date +%s) - began))
[ $took -le 30 ] || wrong "the other ranks ended only after $took s"
grep -q 'task 2: Killed' "$W/output" || wrong "srun should name rank 2: $(cat "$W/output")"

# Grades a lab as a student hands it in, first on one node, then on two nodes.
if [ -n "$FULL" ]; then
    mkdir "$W/work"
    awk -v edit=/dev/null -f book/labs/new.awk book/labs/14_halo.lab \
        "$(sed -n 's/^file *//p' book/labs/14_halo.lab)" >"$W/work/14_halo.c"
    for nodes in 1 2; do
        LABWORK="$W/work" timeout 900 sbatch -W -o "$W/lab.$nodes" --nodes=$nodes \
            book/labs/lab.sbatch 14 >/dev/null || wrong "$(cat "$W/lab.$nodes")"
        for words in '^Score: 6/6' "^$((4 * nodes)) processes of mpirun" '^1 passed, 0 fa'
        do grep -q "$words" "$W/lab.$nodes" || wrong "sbatch: $(cat "$W/lab.$nodes")"
        done
        [ -z "$SAID" ] || { echo; echo "# sbatch --nodes=$nodes book/labs/lab.sbatch 14"
                            cat "$W/lab.$nodes"; } >>"$SAID"
    done
fi
[ $failed = 0 ] && echo "slurm.sh: $(srun --version): passed on one node, on two nodes, with a lost rank"
exit $failed
