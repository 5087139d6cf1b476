# Tests: every NAME.cpp in a room of test/ is a binary of its own, $(BUILD)/test/NAME, over the whole program but its
# mains; so are benches and tools in dev/.

OF_SCRIPTS   := data_scripts emulator_cute explore_page gpu_check libraries page quickstart report_scripts \
                script_inputs scripts
OVER_KERNELS := emulated_meshes emulated_nccl_runs emulated_trace emulated_trainer # over the emulated kernels
# under sanitizers neither the trainer over the emulated kernels, the host's code once more, nor scripts
NOT_HERE     := $(if $(SANITIZE),emulated_% $(OF_SCRIPTS)) $(if $(filter cuda,$(DEVICE)),emulat%) \
                $(if $(filter emulated,$(DEVICE)),$(OVER_KERNELS))
OF_TEST      := $(filter-out test/emulator/% test/fuzz/%,$(call rooms,test/*,*.cpp))
source_of     = $(filter %/$1.cpp,$(OF_TEST))
TEST_NAMES   := $(filter-out $(NOT_HERE),$(notdir $(basename $(OF_TEST))))
TEST_SOURCES := $(foreach n,$(TEST_NAMES),$(call source_of,$n))
NUMERIC      += $(shell grep -l '^namespace PRECISION' $(TEST_SOURCES) $(wildcard dev/*.cpp) /dev/null)
TEST_PRECISIONS ?= $(PRECISIONS)        # of tests that have one; the program has all
# ... and those of the operations and of the model, which take seconds, in all
OF_OPERATIONS := adamw attention attention_window classifier decoder encoder layernorm matmul memory mixes packed_rows \
                 spread test_gpt
precisions_of  = $(if $(filter $(OF_OPERATIONS) cuda_% emulat%,$1),$(PRECISIONS),$(TEST_PRECISIONS))
TESTS        := $(TEST_NAMES:%=$(BUILD)/test/%)
LIBRARY      := $(BUILD)/libtrain_gpt.a
BENCHES      := $(patsubst dev/%.cpp,$(BUILD)/dev/%,$(filter-out \
                $(if $(filter cpu,$(DEVICE)),dev/cuda_kernels.cpp),$(wildcard dev/*.cpp)))

$(LIBRARY): $(call objects,$(filter-out train_gpt.cu,$(SOURCES)))
	@rm -f $@ && ar rcs $@ $^
.SECONDEXPANSION:
ON_CUDA := $(if $(filter cpu,$(DEVICE)),cuda_% emulat%,%)           # tests that link the kernels
# TESTS_OF=FOLDER: objects of tests come from the build there, so that a sanitizer looks at what they test alone.
# Those of the emulation share its headers, which know of sanitizers.
its_objects  = $(call objects,$(call source_of,$1) test/test.cpp,$(call precisions_of,$1))
from_there   = $(if $(and $(TESTS_OF),$(filter-out $(ON_CUDA),$1)),$(patsubst $(BUILD)/%,$(TESTS_OF)/%,$2),$2)
test_objects = $(call from_there,$1,$(its_objects))
kernels_of   = $(if $(filter $(ON_CUDA),$1),$(BUILD)/libcuda.a)
$(TESTS): $(BUILD)/test/%: $$(call test_objects,$$*) $$(call kernels_of,$$*) $(LIBRARY)
	$(LINK)
CHECKED := $(TESTS:$(BUILD)/%=$(CHECKS)/%)
$(CHECKED): $(CHECKS)/test/%: $$(call objects,$$(call source_of,$$*) test/test.cpp) $(CHECKS)/libcuda.a $(LIBRARY)
	$(LINK) --coverage
$(BENCHES): $(BUILD)/dev/%: $$(call objects,dev/$$*.cpp) $$(call kernels_of,$$*) $(LIBRARY)
	$(LINK)

# what a test needs besides
$(BUILD)/test/emulator_checks: $(BUILD)/common/test/emulator/planted.o
$(OVER_KERNELS:%=$(BUILD)/test/%): | $(BUILD)/train_gpt $(EMULATED)/train_gpt
$(BUILD)/test/emulated_trainer: | $(EMULATED)/cuda_kernels
$(foreach t,nccl nccl_faults walk,$(BUILD)/test/emulated_$t): $(if $(filter cpu,$(DEVICE)),$(OF_KERNELS))
$(foreach p,fp32 bf16,$(BUILD)/$p/test/emulated/emulated_walk.o): BACKEND := cuda
$(BUILD)/dev/cuda_kernels: $(call objects,train_gpt.cu)
$(BUILD)/dev/cuda_graded $(BUILD)/test/cuda_graded_kernels $(CHECKS)/test/cuda_graded_kernels: $(GRADED)
$(BUILD)/test/cuda_graded_kernels $(CHECKS)/test/cuda_graded_kernels: | $(BUILD)/dev/cuda_graded
$(BUILD)/dev/cuda_goldens $(BUILD)/test/emulator_goldens: $(BUILD)/common/test/ptx_goldens.o
$(BUILD)/test/cuda_guard $(CHECKS)/test/cuda_guard: | $(BUILD)/dev/cuda_bench
$(BUILD)/test/gpu_check: | $(BUILD)/dev/cuda_bench $(BUILD)/dev/cuda_goldens $(BUILD)/dev/cuda_machine

# Half the time to compile, and what they test is compiled in full.
$(BUILD)/common/test/%.o: OF_TESTS = $(COLDLY) -Wno-conversion
$(BUILD)/common/test/base/numbers/math.o $(foreach p,$(PRECISIONS),$(BUILD)/$p/test/%.o): \
    OF_TESTS = $(QUICKLY) -Wno-conversion
$(BUILD)/common/test/emulator/%.o: OF_TESTS = -Wno-conversion

# what scripts/gpu_check.sh runs, in one folder
BIN      ?= build/gpu_check_bin
ON_A_GPU := $(filter $(BUILD)/test/cuda_%,$(TESTS)) $(BUILD)/test/test_gpt \
            $(patsubst %,$(BUILD)/dev/cuda_%,bench goldens graded kernels machine)
gpu-check: $(BUILD)/train_gpt $(BUILD)/tokenize $(ON_A_GPU)
	@mkdir -p $(BIN) && cp -f $^ $(BIN)/
test/test_gpt: $(BUILD)/test/test_gpt FORCE
	@cmp -s $< $@ || cp -f $< $@
