# labs.mk -- `make lab LAB=NN` writes a file with a gap; `make grade LAB=NN` judges it.
#
# A student's file becomes a shared object in a separate folder, LABDIR; the judge loads the
# object into a separate process. So a file that does not compile, or that crashes, affects
# only its own grading, and two gradings can run at once. LABWORK= is the folder of the
# students' files. STAFF= is a file with more tests, by the staff (book/staff.md).
# `make grade-all DIR= LAB=NN` grades a folder of submissions. LAB= is one step, such as
# 07c_chain (07c for short), or a number from 1 to 8 for all steps of a lab (weeks.tsv).

LABWORK  ?= book/labs/work
LABSTEPS  = $(if $(filter 1 2 3 4 5 6 7 8,$(LAB)),$(shell \
              sed -n 's/^$(LAB)	.*	//p' book/labs/weeks.tsv))
LABFILE   = $(firstword $(LABSTEPS:%=book/labs/%.lab) \
              $(wildcard book/labs/$(LAB).lab book/labs/$(LAB)_*.lab))
lab_warn := -Wno-error -Wno-unused-variable -Wno-unused-but-set-variable \
            -Wno-unused-function -Wno-return-type
lab_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -O0
lab_core := $(call obj,$(ref) $(comm))
lab_env   = B=$B MAKE="$(MAKE)" CC="$(CC)" NVCC="$(nvcc)" SEED="$(SEED)" LIMIT="$(LIMIT)" \
            LAUNCH="$(LAUNCH)" LAB_CFLAGS="$(CFLAGS) $(lab_warn)" \
            LAB_NVFLAGS="$(NVFLAGS) $(gencode)" LAB_CUDA="$(CUDA_HOME)"

.PHONY: lab grade grade-all try tried test-labs lab-known lab-judge lab-judges
lab-known:
	@test -n "$(LAB)" -a -f "$(LABFILE)" || { echo "LAB=$(LAB): found no such lab, \
	expected one of: 1 2 3 4 5 6 7 8 $(basename $(notdir $(wildcard book/labs/*.lab)))" >&2; exit 2; }
	@test -z "$(word 2,$(LABWORK))" || { echo "LABWORK=$(LABWORK): found a space, \
	expected a path without spaces" >&2; exit 2; }
lab grade: lab-known
	@LABWORK=$(LABWORK) $(lab_env) sh book/labs/$(if $(LABSTEPS),week.sh $@ $(LAB),$@.sh \
	  $(LABFILE)) $(STAFF)
grade-all: lab-known
	@for f in $(or $(LABSTEPS:%=book/labs/%.lab),$(LABFILE)); do \
	  $(lab_env) JOBS="$(JOBS)" sh book/labs/grade_all.sh $$f "$(DIR)" $(STAFF) || exit; done
try: lab-judges
	@LAB="$(or $(LABSTEPS),$(LAB))" JOBS="$(JOBS)" $(lab_env) sh book/labs/try.sh $B
test-labs: lab-judges
	@$(lab_env) sh tests/cli/labs.sh $B
# Writes a new points.tsv. Run this on a machine without a GPU, because a GPU changes points.
tried: lab-judges
	@{ head -1 book/labs/points.tsv; \
	  LAB= JOBS="$(JOBS)" $(lab_env) sh book/labs/try.sh $B; } >$B/points.tsv; \
	  mv $B/points.tsv book/labs/points.tsv

# The judge and the library for all submissions. grade.sh builds both once, under a lock,
# for C steps in $B/labs without CUDA. lab-judges builds the judges of all steps.
lab-judge: $B/kcp-check $B/kcp-lab-check $B/libkcp-lab.a
lab-judges: $(if $(nvcc),lab-judge)
	@$(MAKE) --no-print-directory -s B=$B/labs CUDA_HOME=none NCCL_HOME=none lab-judge
$B/libkcp-lab.a: $(lab_core)
	@rm -f $@ && ar rcs $@ $^
# kcp-lab-check judges labs of kind plan, check and exchange: 06, 07b, 09d, 07c, 07g, 07s.
lab_main := $(addprefix $B/book/labs/,check_main.o chain_main.o plan_main.o)
$B/kcp-lab-check: $(core) $(lab_main)
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) $(cuda_ldlibs) -ldl -o $@
# `asan` runs the student's file with sanitizers in the judge's process, to name the bad
# line. If a file of the library has the same functions, muldefs selects the student's.
# `bench` measures the times of the student's kernel and of the library's kernels.
ifneq ($(LABDIR),)
$(LABDIR)/asan: $(LABDIR)/lab.asan.o $(core)
	@$(CC) $(LDFLAGS) $(lab_asan) -Wl,-z,muldefs $^ $(wildcard $(LABDIR)/frame.o) \
	  $(if $(filter check exchange plan,$(LABKIND)),$(lab_main),$B/tests/judge/main.o) \
	  $(LDLIBS) $(cuda_ldlibs) -o $@
lab_obj := $(wildcard $(LABDIR)/lab.o $(LABDIR)/lab.cu.o)
$(LABDIR)/bench: $(lab_obj) $(core) $(benchobj)
	@$(CC) $(LDFLAGS) -Wl,-z,muldefs $^ $(LDLIBS) $(cuda_ldlibs) -lcublas -o $@
$(LABDIR)/check: $(lab_obj) $(core) $B/tests/judge/main.o
	@$(CC) $(LDFLAGS) -Wl,-z,muldefs $^ $(LDLIBS) $(cuda_ldlibs) -o $@
$(LABDIR)/text: $(lab_obj) $(call obj,$(ref) $(comm) $(mpi)) $(text_obj)
	@$(CC) $(LDFLAGS) -Wl,-z,muldefs $^ $(text_wrap:%=-Wl,--wrap=%) -lpthread -lm -ldl \
	  $(mpi_libs) $(cuda_ldlibs) -o $@
endif

# `make test` checks that a broken file affects no other file; FULL=1 also runs try.sh.
test_scripts += tests/cli/labs.sh $(if $(FULL),book/labs/try.sh)
