# KCP: context parallelism for delta-rule linear attention.
#
#   make run            the layer on real text over several ranks      RANKS= TEXT= STEPS=
#   make test           every stage checked, every mutant caught        FULL=1
#   make check          the judge alone          STAGE= VARIANT= RANKS= SEED= FULL=1
#   make bench | book | lab LAB= | grade LAB= | fuzz | sanitize | install PREFIX=

CC      ?= gcc
B       := build
WARN    := -Wall -Wextra -Werror -Wno-unused-parameter
CFLAGS  := -std=c11 -D_POSIX_C_SOURCE=200809L -O3 -g -ffp-contract=off $(WARN) -Iref $(EXTRA)
LDLIBS   = -lpthread -lm

REF     := $(wildcard ref/*.c)
COMM    := $(filter-out comm/nccl.c comm/mpi.c,$(wildcard comm/*.c))
HOSTV   := $(wildcard cuda/*/*.c)
STAGES  := $(filter-out tests/main.c tests/criterion.c tests/fuzz_%,$(wildcard tests/*.c))
obj      = $(patsubst %.c,$B/%.o,$1)

$B/%.o: %.c $(wildcard ref/*.h tests/*.h comm/*.h)
	@mkdir -p $(@D)
	$(CC) $(CFLAGS) -c $< -o $@
