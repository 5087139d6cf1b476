# make                 ./train_gpt and ./tokenize for what this machine has
# make quickstart      text in, trained GPT out: one command
# make test            all tests; test-full adds sanitizers, fuzzers and the long lattices
# make check           floors, lengths, formatting, lint
# make bench           speeds, as tables and as JSON under dev/results/; bench-ranks: of several ranks;
#                      bench-checkpoint: of saving and loading
# make dev/ckpt        the tool that looks at checkpoints
#
# DEVICE=cpu   backend of the model           ARCH=native  CPU to build for (any -march)
# DNNL=0       matmul by plain loops          WERROR=1     warnings are errors (CI)
# SANITIZE=address,undefined | thread         MPI=0 NCCL=0 leave out (nothing uses them on one rank)

DEVICE ?= cpu
ARCH   ?= native
PYTHON ?= /usr/bin/python3
PRECISIONS := fp32 bf16 fp64

ifneq ($(DEVICE),cpu)
$(error DEVICE=$(DEVICE): this version builds for DEVICE=cpu only)
endif

comma  := ,
CCACHE := $(shell command -v ccache 2>/dev/null)
BUILD  := build/$(DEVICE)-$(ARCH)$(if $(filter 0,$(DNNL)),-nodnnl)$(if $(filter 0,$(MPI)),-nompi)$(if $(SANITIZE),-$(subst $(comma),-,$(SANITIZE)))

# No -ffast-math: NaN, infinity and rounding stay exact. The two -fno flags allow vectorization without changing a value.
# -Wno-restrict: GCC 12 warns of "text" + std::string (its bug 105651).
CXXFLAGS += -std=c++20 -O3 -march=$(ARCH) -fopenmp -fno-math-errno -fno-trapping-math \
            -Wall -Wextra -Wno-restrict -I. -MMD -MP $(if $(WERROR),-Werror) $(if $(DEBUG),-g) \
            $(if $(SANITIZE),-fsanitize=$(SANITIZE) -fno-omit-frame-pointer -g1 -O1)
LDFLAGS  += -fopenmp $(if $(SANITIZE),-fsanitize=$(SANITIZE))

# What the machine has: each library is found by linking against it, once per build folder.
-include $(BUILD)/found.mk
LDLIBS += -lz -lzstd -lxxhash $(if $(HAVE_DNNL),-ldnnl) $(MPI_LIBS) -lpthread

# A file that opens `namespace PRECISION` is compiled once per precision.
SOURCES  := $(filter-out llmc/main.cpp llmc/tokenize.cpp,$(wildcard llmc/*/*.cpp llmc/ops/cpu/*.cpp)) train_gpt.cu
NUMERIC  := $(shell grep -l '^namespace PRECISION' $(SOURCES) /dev/null)
PLAIN    := $(filter-out $(NUMERIC),$(SOURCES))
objects   = $(foreach s,$(filter-out $(NUMERIC),$1),$(BUILD)/common/$(basename $s).o) \
            $(foreach p,$(PRECISIONS),$(patsubst %,$(BUILD)/$p/%.o,$(basename $(filter $(NUMERIC),$1))))
TOKENIZE_SOURCES := $(wildcard llmc/base/*.cpp llmc/io/*.cpp)

all: train_gpt tokenize
	@cat $(BUILD)/found.txt

$(BUILD)/train_gpt: $(call objects,$(SOURCES) llmc/main.cpp)
$(BUILD)/tokenize: $(call objects,$(TOKENIZE_SOURCES) llmc/tokenize.cpp)
$(BUILD)/train_gpt $(BUILD)/tokenize:
	$(LINK)
# the programs at the top are those of the flags that were given last
train_gpt tokenize: %: $(BUILD)/% FORCE
	@cmp -s $< $@ || cp -f $< $@

LINK    = @echo "link  $@" && mkdir -p $(@D) && $(CXX) $(LDFLAGS) $^ -o $@ $(LDLIBS)
COMPILE = @echo "c++   $<$(if $1, ($1))" && mkdir -p $(@D) && $(CCACHE) $(CXX) $(CXXFLAGS) $(if $1,-DPRECISION=$1) -DBACKEND=$(DEVICE) $(EXTRA) -x c++ -c $< -o $@

define precision_rules
$$(BUILD)/$1/%.o: %.cpp $$(BUILD)/found.mk
	$$(call COMPILE,$1)
$$(BUILD)/$1/%.o: %.cu $$(BUILD)/found.mk
	$$(call COMPILE,$1)
endef
$(foreach p,$(PRECISIONS),$(eval $(call precision_rules,$p)))
$(BUILD)/common/%.o: %.cpp $(BUILD)/found.mk
	$(call COMPILE,)

# ---------------------------------------------------------------------------------------------------------
# what was found

found = printf '%s\n' '\#include <$2>' 'int main() {}' | $(CXX) -std=c++20 -x c++ - -o /dev/null $3 >/dev/null 2>&1

$(BUILD)/found.mk: Makefile
	@mkdir -p $(@D) && rm -f $@.new $(BUILD)/found.txt
	@missing=""; \
	$(call found,zlib,zlib.h,-lz) || missing="$$missing zlib1g-dev"; \
	$(call found,zstd,zstd.h,-lzstd) || missing="$$missing libzstd-dev"; \
	$(call found,xxhash,xxhash.h,-lxxhash) || missing="$$missing libxxhash-dev"; \
	$(call found,json,nlohmann/json.hpp,) || missing="$$missing nlohmann-json3-dev"; \
	$(call found,cxxopts,cxxopts.hpp,) || missing="$$missing libcxxopts-dev"; \
	if [ -n "$$missing" ]; then echo "error: missing libraries. Install them with:  apt-get install$$missing" >&2; exit 1; fi
	@if [ "$(DNNL)" != 0 ] && $(call found,dnnl,oneapi/dnnl/dnnl.hpp,-ldnnl); then \
	    echo "HAVE_DNNL := 1" >> $@.new; echo "oneDNN    found: matmuls of fp32 and bf16" >> $(BUILD)/found.txt; \
	elif [ "$(DNNL)" = 0 ]; then echo "oneDNN    left out by DNNL=0: matmuls by plain loops" >> $(BUILD)/found.txt; \
	else echo "oneDNN    not found: matmuls by plain loops, slower (apt-get install libdnnl-dev)" >> $(BUILD)/found.txt; fi
	@echo "CUDA      left out: this version trains on the CPU" >> $(BUILD)/found.txt
	@flags="-DOMPI_SKIP_MPICXX $$(mpicxx -showme:compile 2>/dev/null)"; libs="$$(mpicxx -showme:link 2>/dev/null | sed 's/-lmpi_cxx//')"; \
	if [ "$(MPI)" = 0 ]; then echo "MPI       left out by MPI=0: ranks are threads of one process" >> $(BUILD)/found.txt; \
	elif [ -n "$$libs" ] && $(call found,mpi,mpi.h,$$flags $$libs); then \
	    echo "MPI_FLAGS := -DHAVE_MPI $$flags" >> $@.new; echo "MPI_LIBS := $$libs" >> $@.new; \
	    echo "MPI       found: ranks are processes of mpirun, or threads" >> $(BUILD)/found.txt; \
	else echo "MPI       not found: ranks are threads of one process (apt-get install libopenmpi-dev)" >> $(BUILD)/found.txt; fi
	@echo "NCCL      left out: this version trains on the CPU" >> $(BUILD)/found.txt
	@echo "CPU_FEATURES := $$(echo | $(CXX) -march=$(ARCH) -dM -E - | sed -n 's/^#define __\(SSE4_2\|POPCNT\|MOVBE\|LZCNT\|BMI2*\|GFNI\|F16C\|FMA\|AVX[A-Z0-9]*\)__ 1$$/\1/p' | sort | tr '\n' ' ')" >> $@.new
	@mv $@.new $@

# compiled for any x86-64: it has to run in order to say that the rest cannot
$(BUILD)/common/llmc/base/cpu_guard.o: CXXFLAGS := $(subst -march=$(ARCH),,$(CXXFLAGS))
$(BUILD)/common/llmc/base/cpu_guard.o: EXTRA = -DCPU_FEATURES='"$(CPU_FEATURES)"' -DCPU_ARCH='"$(ARCH)"'
$(BUILD)/common/llmc/ops/cpu/dnnl.o: EXTRA = $(if $(HAVE_DNNL),-DHAVE_DNNL)
$(BUILD)/common/llmc/comm/mpi.o: EXTRA = $(MPI_FLAGS)

# JSON and options: run once, and slow to compile with more
QUICK := base/config io/safetensors io/manifest train/run_state train/format_hf io/tokenizer_json tokenize
$(QUICK:%=$(BUILD)/common/llmc/%.o): CXXFLAGS += -O1

# the commit, in one small file that is compiled again when it changes
COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
$(BUILD)/commit: FORCE
	@mkdir -p $(@D) && echo '$(COMMIT)' | cmp -s - $@ || echo '$(COMMIT)' > $@
$(BUILD)/common/llmc/base/version.o: $(BUILD)/commit
$(BUILD)/common/llmc/base/version.o: EXTRA = -DCOMMIT='"$(COMMIT)"' $(if $(HAVE_DNNL),-DHAVE_DNNL)
FORCE:

# ---------------------------------------------------------------------------------------------------------
# tests: every test/NAME.cpp is a binary of its own, over the whole program but its mains

TEST_SOURCES := $(filter-out test/test.cpp,$(wildcard test/*.cpp))
NUMERIC      += $(shell grep -l '^namespace PRECISION' $(TEST_SOURCES) $(wildcard dev/*.cpp) /dev/null)
TESTS        := $(patsubst test/%.cpp,$(BUILD)/test/%,$(TEST_SOURCES))
LIBRARY      := $(BUILD)/libtrain_gpt.a
BENCHES      := $(patsubst dev/%.cpp,$(BUILD)/dev/%,$(wildcard dev/*.cpp))

$(LIBRARY): $(call objects,$(filter-out train_gpt.cu,$(SOURCES)))
	@rm -f $@ && ar rcs $@ $^
.SECONDEXPANSION:
$(TESTS): $(BUILD)/test/%: $$(call objects,test/$$*.cpp test/test.cpp) $(LIBRARY)
	$(LINK)
$(BENCHES): $(BUILD)/dev/%: $$(call objects,dev/$$*.cpp) $(LIBRARY)
	$(LINK)
test/test_gpt: $(BUILD)/test/test_gpt FORCE
	@cmp -s $< $@ || cp -f $< $@

tests: train_gpt tokenize dev/ckpt $(TESTS)
test: tests
	@BUILD=$(BUILD) PYTHON=$(PYTHON) test/run_all.sh $(TESTS)
test-full:
	@PYTHON=$(PYTHON) test/run_full.sh
check:
	@PYTHON=$(PYTHON) dev/check.sh
bench: train_gpt tokenize $(BENCHES)
	@BUILD=$(BUILD) PYTHON=$(PYTHON) dev/bench.sh
bench-ranks: train_gpt
	@PYTHON=$(PYTHON) dev/bench_ranks.sh
bench-checkpoint: $(BUILD)/dev/bench_checkpoint
	@BUILD=$(BUILD) dev/bench_checkpoint.sh
dev/ckpt: $(BUILD)/dev/ckpt FORCE
	@cmp -s $< $@ || cp -f $< $@
quickstart:
	@PYTHON=$(PYTHON) scripts/quickstart.sh
clean:
	rm -rf build train_gpt tokenize test/test_gpt dev/ckpt

.PHONY: all tests test test-full check bench bench-ranks bench-checkpoint quickstart clean FORCE
.SECONDARY:
-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
