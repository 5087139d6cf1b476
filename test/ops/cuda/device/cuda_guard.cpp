// A driver or a GPU that the program was not built for, as the emulation plays them.
#include "llmc/ops/cuda/device/guard.h"

#include <cstring>
#include <vector>

#include "llmc/base/context.h"
#include "llmc/ops/cuda/device/runtime.h"
#include "test/test.h"

TEST(the_kernel_that_is_asked_for_runs) {
    check_kernels_run_on(cuda_device().index);
    run_nothing();
    CUDA_CHECK(cudaDeviceSynchronize());
}

#ifdef CUDA_EMU
#include "test/emulator/settings.h"

using emulator::settings;

template <class F> static void expect_refused(F check, std::vector<const char*> words) {
    const Fatal e = test::fatal_of(check);
    EXPECT(e.code == kExitConfig, "code %d: %s", e.code, e.what());
    for (const char* word : words) EXPECT(strstr(e.what(), word), "no '%s' in '%s'", word, e.what());
}

struct Restored {
    const emulator::Settings before = settings;
    ~Restored() { settings = before; }
};

static const char* const kHeld = "this program: CUDA 13.0, code for sm_80, sm_86, ";

TEST(drivers) {
    const Restored restored;
    EXPECT(usable_devices() == settings.devices);
    settings.driver = 12020;
    expect_refused(usable_devices, {"driver is older", "a driver for CUDA 12.2", kHeld,
                                    "PTX of compute_80", "driver for CUDA 13.0 or newer",
                                    "make DEVICE=cuda CUDA_HOME=/usr/local/cuda-12.2"});
    settings.driver = 0;
    expect_refused(usable_devices, {"no CUDA device", "no driver", kHeld, "make DEVICE=cpu"});
    settings.driver = 13010, settings.devices = 0;
    expect_refused(usable_devices, {"no CUDA-capable device", "cudaErrorNoDevice", "a driver for CUDA 13.1",
                                    "CUDA_VISIBLE_DEVICES"});
}

TEST(gpus) {
    const Restored restored;
    const auto check = [] { check_kernels_run_on(0); };
    const auto expect_runs = [&](int arch, const char* binary, int driver) {
        settings.arch = arch, settings.binary = binary, settings.driver = driver;
        EXPECT(test::fatal_of(check).code == 0, "%d with %s: %s", arch, binary, test::fatal_of(check).what());
    };
    expect_runs(86, "80", 13000);               // of the same generation
    expect_runs(90, "80 90", 13000);
    expect_runs(103, "80 90 ptx80", 13010);     // compiled by the driver
    settings.name = "NVIDIA New", settings.arch = 103, settings.binary = "80 86 90";
    expect_refused(check, {"no code that runs on device 0", "cudaErrorNoKernelImageForDevice", "NVIDIA New",
                           "compute capability 10.3", "a driver for CUDA 13.1", kHeld,
                           "make DEVICE=cuda ARCH=103"});
    expect_runs(103, "100a ptx80", 13010);      // code of another GPU alone does not
    settings.arch = 103, settings.binary = "100a", settings.driver = 13010;
    expect_refused(check, {"cudaErrorNoKernelImageForDevice", "make DEVICE=cuda ARCH=103"});
    expect_runs(90, "90a", 13000);
    settings.arch = 90, settings.binary = "100", settings.driver = 13010;
    expect_refused(check, {"compute capability 9.0", "make DEVICE=cuda ARCH=90"});
    settings.arch = 80, settings.binary = "86";
    expect_refused(check, {"make DEVICE=cuda ARCH=80"});
    settings.arch = 120, settings.binary = "80 ptx80", settings.driver = 12080;
    expect_refused(check, {"cudaErrorUnsupportedPtxVersion", "ARCH=120", "a newer driver"});
    settings.arch = 75, settings.binary = "";
    expect_refused(check, {"too old", "compute capability 7.5", "8.0 or newer", "make DEVICE=cpu"});
}

TEST(a_program_ends_by_it) {
    const std::string program = test::build_folder() + "/dev/cuda_bench ceilings --size=8";
    for (const char* set : {"EMU_DRIVER=12020", "EMU_DEVICES=0", "EMU_ARCH=103 EMU_BINARY='80 90'",
                            "EMU_ARCH=75"}) {
        const test::Ran ran = test::run(std::string(set) + " " + program);
        EXPECT(ran.code == kExitConfig && ran.err.find("found: ") != std::string::npos, "%s: code %d, '%s'",
               set, ran.code, ran.err.c_str());
    }
}
#endif
