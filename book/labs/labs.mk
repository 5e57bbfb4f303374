# labs.mk -- make lab LAB=NN writes the file with a gap; make grade LAB=NN judges it.
#
# A student's file is linked into its own kcp-grade-NN and nowhere else: one that does
# not compile, or crashes, is heard of by make grade LAB=NN alone.  LABWORK= is where
# the files lie, STAFF= a file of staff's own rows; see book/labs/README.md and STAFF.md.

LABWORK  ?= book/labs/work
LABFILE   = $(firstword $(wildcard book/labs/$(LAB).lab book/labs/$(LAB)_*.lab))
LABID     = $(basename $(notdir $(LABFILE)))
lab_warn := -Wno-error -Wno-unused-variable -Wno-unused-but-set-variable \
            -Wno-unused-function -Wno-return-type
lab_asan := -fsanitize=address,undefined -fno-sanitize-recover=all -O0
lab_main  = $B/tests/judge/main.o
graders  := $B/kcp-grade

.PHONY: lab grade try tried lab-known
lab-known:
	@test -n "$(LAB)" -a -f "$(LABFILE)" || { echo "LAB=$(LAB): found no such lab, \
	expected one of: $(basename $(notdir $(wildcard book/labs/*.lab)))" >&2; exit 2; }
	@test -z "$(word 2,$(LABWORK))" || { echo "LABWORK=$(LABWORK): found a space, \
	expected a path without" >&2; exit 2; }
lab: lab-known
	@LABWORK=$(LABWORK) sh book/labs/lab.sh $(LABFILE) $(STAFF)
grade: lab-known
	@B=$B LABWORK=$(LABWORK) MAKE="$(MAKE)" CC="$(CC)" NVCC="$(nvcc)" SEED="$(SEED)" \
	  LIMIT="$(LIMIT)" LAUNCH="$(LAUNCH)" sh book/labs/grade.sh $(LABFILE) $(STAFF)
try:
	@LAB=$(LAB) MAKE="$(MAKE)" CC="$(CC)" sh book/labs/try.sh $B
# tried.txt anew, as a machine without a GPU prints it: a head, the points, all the words.
tried: $B/tests/judge/main.o
	@LAB= SAID=$B/tried.said MAKE="$(MAKE)" CC="$(CC)" sh book/labs/try.sh $B \
	  >$B/tried.points && { sed '/^01_step/,$$d' book/labs/tried.txt; \
	  cat $B/tried.points $B/tried.said; } >$B/tried.new && \
	  mv $B/tried.new book/labs/tried.txt

.PHONY: FORCE
FORCE:
$B/grade/%.o: $(LABWORK)/%.c FORCE
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $(lab_warn) -c $< -o $@
$B/grade/%.asan.o: $(LABWORK)/%.c FORCE
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $(lab_warn) $(lab_asan) -c $< -o $@
$B/grade/%.cu.o: $(LABWORK)/%.cu FORCE
	@mkdir -p $(@D)
	@$(nvcc) $(NVFLAGS) $(gencode) -c $< -o $@

# The check of lab 07b is held to variants by a main of its own.
$(graders)-07b_check $(graders)-07b_check-asan: lab_main = $B/book/labs/check_main.o
$(graders)-%: $B/grade/%.o $(core) $B/tests/judge/main.o $B/book/labs/check_main.o
	@$(CC) $(LDFLAGS) $< $(core) $(lab_main) $(LDLIBS) $(cuda_ldlibs) -o $@
$(graders)-%-asan: $B/grade/%.asan.o $(core) $B/tests/judge/main.o $B/book/labs/check_main.o
	@$(CC) $(LDFLAGS) $(lab_asan) $< $(core) $(lab_main) $(LDLIBS) $(cuda_ldlibs) -o $@
$(graders)-%: $B/grade/%.cu.o $(core) $B/tests/judge/main.o
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) $(cuda_ldlibs) -o $@
$(graders)-bench-%: $B/grade/%.cu.o $(core) $(benchobj)
	@$(CC) $(LDFLAGS) $^ $(LDLIBS) $(cuda_ldlibs) -lcublas -o $@

# make test: a broken file breaks nothing else; with FULL=1 every lab is handed in.
test_scripts += tests/cli/labs.sh $(if $(FULL),book/labs/try.sh)
