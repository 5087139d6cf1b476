# Tests: unity.mk compiles files of a folder of test/ together. Each folder has one binary, over the program's objects
# without main(). $(BUILD)/test/NAME is a link to the binary: started by that name, the binary runs the tests of
# NAME.cpp alone. Benches and tools in dev/ are binaries of their own.

OF_SCRIPTS   := data_scripts emulator_cute explore_page gpu_check gpu_lease house_rules libraries page quickstart \
                report_scripts script_inputs scripts
# those over emulated kernels
OVER_KERNELS := emulated_elastic emulated_fp8 emulated_meshes emulated_nccl_runs emulated_trace emulated_trainer \
                gpu_lease
# under sanitizers neither the trainer over the emulated kernels, the host's code once more, nor scripts
NOT_HERE     := $(if $(SANITIZE),emulated_% $(OF_SCRIPTS)) $(if $(filter cuda,$(DEVICE)),emulat% gpu_lease) \
                $(if $(filter emulated,$(DEVICE)),$(OVER_KERNELS))
# ONLY="NAME ...": there are no other tests, in a build of other flags that is for these alone
OF_TEST      := $(filter $(or $(ONLY:%=\%/%.cpp),%),$(call rooms,test/*,*.cpp))
OF_TEST      := $(filter-out test/emulator/% test/fuzz/%,$(OF_TEST))
source_of     = $(filter %/$1.cpp,$(OF_TEST))
room_of       = $(dir $(call source_of,$1))
TEST_NAMES   := $(filter-out $(NOT_HERE),$(notdir $(basename $(OF_TEST))))
NUMERIC      += $(shell grep -l '^namespace PRECISION' $(OF_TEST) $(wildcard dev/*.cpp) /dev/null)
# The precisions of a folder's tests, of those in TEST_PRECISIONS. Operations and models have all. Plans and programs
# have bf16, foreign formats fp64, logs fp32. The rest has bf16 and fp64.
TEST_PRECISIONS ?= $(PRECISIONS)
IN_BF16        := $(addprefix test/,base/ train/plan/ train/price/ train/run/)
IN_FP64        := test/train/save/formats/
IN_FP32        := test/train/log/
chosen          = $(or $(if $(filter $(IN_BF16),$1),bf16),$(if $(filter $(IN_FP64),$1),fp64),$(if \
                  $(filter $(IN_FP32),$1),fp32),$(if \
                  $(filter test/ops/% test/model/% test/emulated/,$1),$(EVERY)),bf16 fp64)
precisions_of   = $(or $(filter $(TEST_PRECISIONS),$(call chosen,$(call room_of,$1))),$(TEST_PRECISIONS))
TESTS        := $(TEST_NAMES:%=$(BUILD)/test/%)

# Groups of unity.mk: of each room what has no precision, and what has.
# Apart: those of test/emulated/ differ in flags and in what they link, math in flags; the others include after code
# or choose their precision.
APART   := $(filter test/emulated/% test/base/numbers/% %/trace.cpp %/cuda_graded_kernels.cpp %/cuda_guard.cpp,\
           $(OF_TEST))
IN_ROOMS := $(filter-out $(APART),$(OF_TEST))
ROOMS   := $(sort $(dir $(IN_ROOMS)))
of_room  = $(foreach f,$(IN_ROOMS),$(if $(filter $1,$(dir $f)),$f))
unite_room = $(call groups,$1common,$(filter-out $(NUMERIC),$2))$(call groups,$1numeric,$(filter $(NUMERIC),$2))
BEFORE  := $(UNITED)
$(foreach r,$(ROOMS),$(call unite_room,$r,$(call of_room,$r)))
OF_ROOMS := $(filter-out $(BEFORE),$(UNITED))
NUMERIC += $(foreach g,$(OF_ROOMS),$(if $(findstring /numeric_,$g),$g))
ON_GPU  += $(filter test/ops/cuda/%,$(OF_ROOMS))
$(foreach p,common fp32 bf16,$(patsubst %.cpp,$(BUILD)/$p/%.o,$(filter test/ops/cuda/%,$(OF_ROOMS) $(APART)))): \
    EXTRA = $(OVER_CUDA)
$(OF_ROOMS:%=$(BUILD)/unity/%): $(BUILD)/unity/%: FORCE
	@mkdir -p $(@D) && new=$@.$$$$ && awk -f dev/make/unite_tests.awk $(OF_$*) >$$new && \
	    { cmp -s $$new $@ && rm $$new || mv $$new $@; }       # .ci/run has two makes at once here

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
# a room's binary, and NAME as a link to it
binary_of    = in_$(subst /,_,$(patsubst test/%/,%,$1))
names_of     = $(foreach r,$(ROOMS),$(if $(filter $1,$(call binary_of,$r)),$(notdir $(basename $(call of_room,$r)))))
linked_of     = $(if $(filter in_%,$1),$(call names_of,$1),$1)
BINARIES     := $(foreach r,$(ROOMS),$(call binary_of,$r)) $(notdir $(basename $(APART)))
$(BINARIES:%=$(BUILD)/test/%): $(BUILD)/test/%: $$(sort $$(foreach n,$$(call linked_of,$$*),$$(call \
    test_objects,$$n) $$(call kernels_of,$$n))) $(LIBRARY)
	$(LINK)
CHECKED := $(BINARIES:%=$(CHECKS)/test/%)
$(CHECKED): $(CHECKS)/test/%: $$(sort $$(foreach n,$$(call linked_of,$$*),$$(call its_objects,$$n))) \
    $(CHECKS)/libcuda.a $(LIBRARY)
	$(LINK) --coverage
IN_BINARY := $(notdir $(basename $(IN_ROOMS)))
$(IN_BINARY:%=$(BUILD)/test/%) $(IN_BINARY:%=$(CHECKS)/test/%): $$(@D)/$$(call binary_of,$$(call room_of,$$(@F)))
	@ln -sfn $(<F) $@
$(BENCHES): $(BUILD)/dev/%: $$(call objects,dev/$$*.cpp) $$(call kernels_of,$$*) $(LIBRARY)
	$(LINK)

# what a test needs besides
$(BUILD)/test/emulator_checks: $(PLANTED)
$(OVER_KERNELS:%=$(BUILD)/test/%): | $(BUILD)/train_gpt $(EMULATED)/train_gpt
$(BUILD)/test/emulated_trainer: | $(EMULATED)/cuda_kernels
$(foreach t,nccl nccl_faults nccl_lost nccl_messages walk,$(BUILD)/test/emulated_$t): $(if \
    $(filter cpu,$(DEVICE)),$(OF_KERNELS))
$(foreach p,fp32 bf16,$(BUILD)/$p/test/emulated/emulated_walk.o): BACKEND := cuda
$(BUILD)/dev/cuda_kernels: $(call objects,train_gpt.cu)
$(BUILD)/dev/cuda_graded $(BUILD)/test/cuda_graded_kernels $(CHECKS)/test/cuda_graded_kernels: $(GRADED)
$(BUILD)/test/cuda_graded_kernels $(CHECKS)/test/cuda_graded_kernels: | $(BUILD)/dev/cuda_graded
$(BUILD)/dev/cuda_goldens $(BUILD)/test/emulator_goldens: $(GOLDENS)
$(BUILD)/test/cuda_guard $(CHECKS)/test/cuda_guard: | $(BUILD)/dev/cuda_bench
$(BUILD)/test/gpu_check: | $(BUILD)/dev/cuda_bench $(BUILD)/dev/cuda_goldens $(BUILD)/dev/cuda_machine
$(BUILD)/test/gpu_lease: | $(EMULATED)/cuda_kernels $(BUILD)/dev/cuda_bench $(BUILD)/dev/cuda_goldens \
    $(BUILD)/test/cuda_vector

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
# the trainer over NCCL, if this machine has its headers, beside one that starts without
gpu-check-nccl: $(BUILD)/train_gpt
	@mkdir -p $(BIN) && cp -f $< $(BIN)/train_gpt_nccl
test/test_gpt: $(BUILD)/test/test_gpt FORCE
	@cmp -s $< $@ || cp -f $< $@
