# bench.mk -- kcp-bench on a GPU, and what `make bench` prints on any machine.

benchobj := $B/bench/bench.o $B/bench/bench_cost.o $B/bench/bench_device.cu.o
$B/bench/bench_device.cu.o: bench/bench.h
$B/kcp-bench: $(core) $(benchobj)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) $(cuda_ldlibs) -lcublas -o $@
