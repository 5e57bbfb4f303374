# KCP: context parallelism for delta-rule linear attention, in C, CUDA and NCCL.
#
#   make run        run the layer on real text over several ranks   RANKS= TEXT= STEPS=
#   make test       judge all stages and mutants, run all scripts   FULL=1 JOBS=
#   make check      judge, no scripts   STAGE= VARIANT= RANKS= SEED= FULL=1 STRICT=1
#   make check-gpus judge communication over NCCL, on all GPUs and on two GPUs   LIMIT=
#   make examples   build book/examples: KDA and GDN over ranks
#   make test-torch test the PyTorch module
#   make bench      time the newest kernels on a GPU (kcp-bench)
#   make proxy      search the kernels' PTX for missing proxy fences
#   make sanitize | sanitize-host | sanitize-threads    compute-sanitizer; ASan; TSan
#   make fuzz       feed random bytes to the C interface               SECONDS= SEED=
#   make mutate     change operators, one by one; count undetected changes  N= SEED=
#   make book | book-lint      build the book; check links and included code
#   make lab | grade | grade-all | try    write, grade labs   LAB= STAFF= LAUNCH= DIR=
#   make install | uninstall              PREFIX= DESTDIR=
#   make setup | clean | compile_commands.json
#
# CUDA_HOME= and NCCL_HOME=: folders of CUDA and NCCL (none: build without). ARCH=: the
# GPU (sm_90a). make setup installs missing packages with apt, or prints the command.

CC      ?= gcc
B       ?= build
WARN    := -Wall -Wextra -Werror -Wno-unused-parameter -Wno-missing-field-initializers
CFLAGS  := -std=c11 -D_POSIX_C_SOURCE=200809L -O3 -g -fPIC -fvisibility=hidden -ffp-contract=off $(WARN) \
           -Iref -I. $(EXTRA)
LDFLAGS := -rdynamic $(EXTRA)
LDLIBS   = -lpthread -lm -ldl
.DEFAULT_GOAL := help
# Reject unknown variables, because make check STAGES=07 would else judge all stages.
names    := ARCH B CC CFLAGS CHROMIUM CUDA_HOME DESTDIR DIR EXTRA FILES FULL JOBS JUDGE KCP_JITTER \
            LAB LABDIR LABFILE LABKIND LABWORK LAUNCH LDFLAGS LDLIBS LIMIT MPICC N NCCL_HOME \
            NVFLAGS PREFIX RANKS SECONDS SEED STAFF STAGE STEPS STRICT TABLE TEXT VARIANT \
            WARN WITHOUT has_crit
unread   := $(filter-out $(names),$(foreach v,$(.VARIABLES),\
              $(if $(findstring command line,$(origin $v)),$v)))
ifneq ($(strip $(unread)),)
$(error $(firstword $(unread)): no such variable; known: $(names))
endif
override FULL   := $(filter-out 0,$(FULL))
override STRICT := $(filter-out 0,$(STRICT))

# ---- what this machine has -----------------------------------------------------------
CUDA_HOME ?= $(firstword $(patsubst %/bin/nvcc,%,$(wildcard /usr/local/cuda/bin/nvcc)) \
             $(patsubst %/bin/nvcc,%,$(shell command -v nvcc 2>/dev/null)) none)
ifeq ($(filter none,$(CUDA_HOME))$(wildcard $(CUDA_HOME)/bin/nvcc),)
$(error CUDA_HOME=$(CUDA_HOME): no bin/nvcc there (CUDA_HOME=none: build without CUDA))
endif
ifneq ($(NCCL_HOME),)
ifeq ($(filter none,$(NCCL_HOME))$(wildcard $(NCCL_HOME)/include/nccl.h),)
$(error NCCL_HOME=$(NCCL_HOME): no include/nccl.h there (none: build without NCCL))
endif
endif
ARCH      ?= sm_90a
hash      := \#
comma     := ,
has_crit  := $(shell printf '$(hash)include <criterion/criterion.h>\nTest(a,b){}' | \
               $(CC) -x c - -o /dev/null -lcriterion 2>/dev/null && echo yes)
# The compiler and linker flags of mpicc. With MPICC=none, ranks cannot be processes.
MPICC     ?= mpicc
mpi_show  := $(if $(filter none,$(MPICC)),,$(shell $(MPICC) -show 2>/dev/null))
mpi_libs  := $(filter -L% -l% -Wl$(comma)-rpath%,$(mpi_show))
mpi_flags := $(if $(filter -lmpi%,$(mpi_libs)),-DKCP_WITH_MPI $(patsubst -I%,-isystem %,\
               $(filter -I%,$(mpi_show))))
ifeq ($(filter none mpicc,$(MPICC))$(mpi_flags),)
$(error MPICC=$(MPICC): found no MPI compiler, expected mpicc, its path, or none)
endif
LDLIBS    += $(mpi_libs)

# ---- the folders -----------------------------------------------------------------------
obj      = $(patsubst %.cu,$B/%.cu.o,$(patsubst %.c,$B/%.o,$1))
ref      := $(wildcard ref/*.c ref/core/*.c)
base     := $(wildcard ref/base/*.c)
mpi      := $(wildcard comm/backend/mpi*.c)
# launch.c is part of every program, because kcp-check --paths prints launches.
comm     := $(filter-out $(mpi),$(wildcard comm/*.c comm/*/*.c)) cuda/host/launch.c
hostv    := $(filter-out $(comm),$(wildcard cuda/*/*.c))
judge    := $(filter-out tests/judge/main.c tests/judge/criterion.c,\
              $(wildcard tests/judge/*.c tests/[0-9]*/*.c))
include  $(wildcard cuda/cuda.mk)
core     := $(call obj,$(ref) $(base) $(comm) $(mpi) $(hostv) $(judge)) $(cuda_obj)

# Files that contain the flags and the list of objects. Objects and programs depend on
# these files, so changed flags (CUDA_HOME=none) or a removed source cause a rebuild.
kept = $(if $(findstring n,$(firstword -$(MAKEFLAGS))),$(wildcard $B/$1),$(shell \
         mkdir -p $B; s='$(subst ','\'',$(strip $2))'; printf '%s\n' "$$s" | \
         cmp -s - $B/$1 || printf '%s\n' "$$s" >$B/$1)$B/$1)
ifneq ($(filter-out help clean setup compile_commands.json,$(or $(MAKECMDGOALS),help)),)
flags_at := $(call kept,made.flags,$(CFLAGS) $(cuda_cflags))
list_at  := $(call kept,made.list,$(core) $(LDLIBS))
mpi_at   := $(call kept,made.mpi,$(mpi_flags) $(mpi_libs))
nvcc_at  := $(if $(cuda_obj),$(call kept,made.nvcc,$(NVFLAGS) $(ARCH)))
endif
$(cuda_obj): $(nvcc_at)
$(call obj,$(mpi)): $(mpi_at)
$(call obj,$(mpi)): with_mpi := $(mpi_flags)

# -MMD: the compiler lists the headers that each object depends on.
$B/%.o: %.c $(flags_at)
	@mkdir -p $(@D)
	@echo "  cc $<"
	@$(CC) $(CFLAGS) $(with_mpi) $(cuda_cflags) -MMD -MP -c $< -o $@

$B/kcp-check: $(core) $B/tests/judge/main.o $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) $(LDLIBS) $(cuda_ldlibs) -o $@
$B/kcp-test: $(core) $B/tests/judge/criterion.o $(list_at)
	@echo "  link $@"
	@$(CC) $(LDFLAGS) $(filter %.o,$^) -lcriterion $(LDLIBS) $(cuda_ldlibs) -o $@

-include bench/bench.mk bench/run.mk bench/text.mk book/book.mk book/examples.mk \
         book/torch.mk book/labs/labs.mk tests/fuzz.mk tests/processes.mk tests/proxy.mk

-include $(shell find $B -name '*.d' 2>/dev/null)

# ---- the commands ------------------------------------------------------------------------
.PHONY: help setup said test check clean install
help:
	@sed -n '3,21s/^# \{0,1\}//p' Makefile

setup:
	@sh .ci/setup $(if $(filter none,$(CUDA_HOME)),,cuda)

said:
	@$(if $(mpi_flags),true,echo "MPI not found (set MPICC=): ranks are threads, or use NCCL")
	@$(if $(has_crit),true,echo "Criterion not found: kcp-check, not kcp-test, runs the tests")
	@$(if $(filter none,$(CUDA_HOME)),echo "CUDA not found (CUDA_HOME=FOLDER if it is elsewhere): host variants only",true)
	@$(if $(filter none,$(CUDA_HOME))$(filter-out none,$(NCCL_HOME)),true,\
	  echo "NCCL not found (set NCCL_HOME=): ranks share one GPU")

flags = $(if $(STAGE),--stage '$(STAGE)') $(if $(VARIANT),--variant '$(VARIANT)') \
        $(if $(RANKS),--ranks '$(RANKS)') $(if $(SEED),--seed '$(SEED)') \
        $(if $(FULL),--full) $(if $(STRICT),--strict)
check: said $B/kcp-check
	@$B/kcp-check $(flags)

.PHONY: check-gpus
check-gpus: said $B/kcp-check $B/libkcp.so
	@LIMIT=$(LIMIT) python3 bench/check_gpus.py $B

# The sub-makes run after setup, to find what it installed. JOBS= sets how many jobs
# compile (default 2) and run (default 3, because scripts also wait) at once. The longest
# scripts are first, because make starts targets in order. Each prints when it ends.
at_once  = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j$(or $(JOBS),2))
longest := $(patsubst %,tests/cli/%.sh,run_cli torch labs cli cases lies mpi)
scripts  = $(foreach s,$(longest),$(filter $s,$(test_scripts))) \
           $(filter-out $(longest),$(test_scripts))
test: setup
	@$(MAKE) --no-print-directory $(at_once) test-needs
	@$(MAKE) --no-print-directory -j$(or $(JOBS),3) -Otarget test-here
	@! command -v python3 >/dev/null || python3 book/tables.py --readme --check
	@! command -v python3 >/dev/null || python3 bench/records.py stale $B
.PHONY: test-needs test-here judged $(scripts:%=run/%)
test-needs: $(if $(has_crit),$B/kcp-test,$B/kcp-check) $(test_needs)
test-here: said $(if $(has_crit),judged,by-stage) $(scripts:%=run/%)
judged: $B/kcp-test
	@FULL=$(FULL) STAGE=$(STAGE) SEED=$(SEED) $B/kcp-test -j2
# A make that a script starts gets the variables of this make, but not its job server.
$(scripts:%=run/%): run/%:
	@FULL=$(FULL) SEED=$(SEED) MAKEFLAGS='$(MAKEOVERRIDES)' sh $* $B

# Runs kcp-check (or the command JUDGE=) once per stage. Stage 00 checks the judge. With
# --quick, which judges only variants, the stages in `checks` (no variants) are omitted.
.PHONY: by-stage
JUDGE   ?= $B/kcp-check $(flags)
slowest := 13 15 16 00 14
checks  := 00 06 18 19 20
stages  := $(slowest) $(filter-out $(slowest),$(sort $(foreach d,$(wildcard tests/[0-9]*),\
             $(firstword $(subst _, ,$(notdir $d))))))
by-stage: $(if $(STAGE),stage/$(STAGE),$(patsubst %,stage/%,\
            $(if $(findstring --quick,$(JUDGE)),$(filter-out $(checks),$(stages)),$(stages))))
stage/%:
	@$(JUDGE) --stage $*

# The C code under the address and undefined-behaviour sanitizers.
.PHONY: sanitize-host
sanitize-host:
	@$(MAKE) --no-print-directory $(at_once) B=build/asan CUDA_HOME=none \
	  EXTRA="-fsanitize=address,undefined -fno-sanitize-recover=all -O1" build/asan/kcp-check
	@ASAN_OPTIONS=detect_leaks=1 $(MAKE) --no-print-directory $(at_once) -Otarget by-stage \
	  JUDGE="build/asan/kcp-check --quiet --quick --here"
	@ASAN_OPTIONS=detect_leaks=1 build/asan/kcp-check --quiet --here --stage 00
	@ASAN_OPTIONS=detect_leaks=1 build/asan/kcp-check --quiet --here --stage 20

# The library. A change of the interface raises the first number of its version.
PREFIX  ?= /usr/local
version := $(shell sed -n 's/.*return "\([0-9.]*\)".*/\1/p' ref/core/version.c)
soname  := libkcp.so.$(firstword $(subst ., ,$(version)))
public  := ref/kcp.h ref/models.def ref/comm.h comm/backend/kcp_mpi.h ref/stages.h ref/layer.h ref/ref.h
$B/libkcp.so: $(call obj,$(ref) $(comm)) $(cuda_lib_obj) $(list_at)
	@echo "  link $@"
	@$(CC) -shared $(LDFLAGS) -Wl,-soname,$(soname) $(filter %.o,$^) -lpthread -lm -ldl \
	  $(cuda_ldlibs) -o $@
	@ln -sf libkcp.so $B/$(soname)
# MPI has a separate library, so that libkcp.so needs no MPI.
$B/libkcp_mpi.so: $(call obj,$(mpi)) $B/libkcp.so
	@echo "  link $@"
	@$(CC) -shared $(LDFLAGS) -Wl,-soname,$(notdir $@) $(call obj,$(mpi)) -L$B -lkcp \
	  -Wl,-rpath,'$$ORIGIN' $(mpi_libs) -lpthread -o $@
.PHONY: install uninstall prefix
prefix:
	@case '$(PREFIX)' in /*) ;; *) echo "PREFIX=$(PREFIX): expected a path that begins with /" >&2; \
	  exit 2 ;; esac
install: prefix $B/libkcp.so $(if $(mpi_flags),$B/libkcp_mpi.so)
	install -d '$(DESTDIR)$(PREFIX)/lib/pkgconfig' '$(DESTDIR)$(PREFIX)/include/kcp/stages' \
	  '$(DESTDIR)$(PREFIX)/lib/cmake/kcp' \
	  '$(DESTDIR)$(PREFIX)/share/doc/kcp' '$(DESTDIR)$(PREFIX)/share/kcp/mpi'
	install -m 755 $B/libkcp.so '$(DESTDIR)$(PREFIX)/lib/libkcp.so.$(version)'
	ln -sf libkcp.so.$(version) '$(DESTDIR)$(PREFIX)/lib/$(soname)'
	ln -sf $(soname) '$(DESTDIR)$(PREFIX)/lib/libkcp.so'
	$(if $(mpi_flags),install -m 755 $B/libkcp_mpi.so '$(DESTDIR)$(PREFIX)/lib/libkcp_mpi.so')
	install -m 644 $(public) '$(DESTDIR)$(PREFIX)/include/kcp/'
	install -m 644 $(mpi) '$(DESTDIR)$(PREFIX)/share/kcp/mpi/'
	install -m 644 ref/stages/*.def '$(DESTDIR)$(PREFIX)/include/kcp/stages/'
	install -m 644 ref/kcp-config.cmake ref/kcp-config-version.cmake \
	  '$(DESTDIR)$(PREFIX)/lib/cmake/kcp/'
	install -m 644 LICENSE CHANGELOG.md '$(DESTDIR)$(PREFIX)/share/doc/kcp/'
	printf 'prefix=%s\nName: kcp\nDescription: context parallelism for delta-rule linear attention\nVersion: $(version)\nLibs: -L"$${prefix}/lib" -lkcp\nCflags: -I"$${prefix}/include" -I"$${prefix}/include/kcp"\n' \
	  '$(PREFIX)' > '$(DESTDIR)$(PREFIX)/lib/pkgconfig/kcp.pc'

# Removes what install created, and folders that are then empty.
uninstall: prefix
	rm -f '$(DESTDIR)$(PREFIX)/lib/libkcp.so' '$(DESTDIR)$(PREFIX)/lib/$(soname)' \
	  '$(DESTDIR)$(PREFIX)/lib/libkcp_mpi.so' \
	  $(patsubst comm/backend/%,'$(DESTDIR)$(PREFIX)/share/kcp/mpi/%',$(mpi)) \
	  '$(DESTDIR)$(PREFIX)/lib/libkcp.so.$(version)' \
	  '$(DESTDIR)$(PREFIX)/lib/pkgconfig/kcp.pc' \
	  '$(DESTDIR)$(PREFIX)/lib/cmake/kcp/kcp-config.cmake' \
	  '$(DESTDIR)$(PREFIX)/lib/cmake/kcp/kcp-config-version.cmake' \
	  '$(DESTDIR)$(PREFIX)/share/doc/kcp/LICENSE' \
	  '$(DESTDIR)$(PREFIX)/share/doc/kcp/CHANGELOG.md'
	cd '$(DESTDIR)$(PREFIX)/include/kcp' 2>/dev/null && \
	  rm -f $(notdir $(public)) $(patsubst ref/%,%,$(wildcard ref/stages/*.def)) || true
	rmdir '$(DESTDIR)$(PREFIX)/include/kcp/stages' '$(DESTDIR)$(PREFIX)/include/kcp' \
	  '$(DESTDIR)$(PREFIX)/share/doc/kcp' '$(DESTDIR)$(PREFIX)/share/kcp/mpi' \
	  '$(DESTDIR)$(PREFIX)/share/kcp' '$(DESTDIR)$(PREFIX)/lib/cmake/kcp' \
	  '$(DESTDIR)$(PREFIX)/lib/cmake' 2>/dev/null || true

# For editors: the compile command of every file, from make -n.
.PHONY: compile_commands.json
compile_commands.json:
	@$(MAKE) --no-print-directory -n -B B=$B $B/kcp-check | awk -v dir='$(CURDIR)' ' \
	  function quoted(s) { gsub(/\\/, "\\\\", s); gsub(/"/, "\\\"", s); return "\"" s "\"" } \
	  / -c [^ ]+\.cu? / { file = $$0; sub(/.* -c /, "", file); sub(/ .*/, "", file); \
	    printf "%s{\"directory\":%s,\"command\":%s,\"file\":%s}", n++ ? ",\n" : "[\n", \
	      quoted(dir), quoted($$0), quoted(file) } \
	  END { print "\n]" }' >$@

clean:
	rm -rf $B
