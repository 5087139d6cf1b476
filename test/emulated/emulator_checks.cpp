// The checks of the emulation find planted bugs, and tell kernel, line, block and thread; and they find
// nothing in the same kernels without the bug.
#include <cuda_runtime.h>

#include <vector>

#include "test/emulator/memory.h"
#include "test/emulator/planted.h"
#include "test/emulator/settings.h"
#include "test/emulator/testing.h"
#include "test/test.h"

static std::string report_of(const planted::Bug& bug) {
    emulator::settings.timeout = 0.1;
    float* data;
    cudaMalloc(&data, 1024 * sizeof(float));
    cudaMemset(data, 0, 1024 * sizeof(float));
    bug.start(data);
    cudaDeviceSynchronize();
    const cudaError_t error = cudaGetLastError();
    const std::string text = error == cudaSuccess ? "" : cudaGetErrorString(error);
    cudaFree(data);
    cudaGetLastError();
    return text;
}

static void check_reports(const planted::Bug* bugs, int count, const char* file) {
    for (int i = 0; i < count; i++) {
        const planted::Bug& bug = bugs[i];
        const std::string text = report_of(bug);
        EXPECT(text.find(bug.says) != std::string::npos, "%s: report should say \"%s\", is: %s", bug.name,
               bug.says, text.c_str());
        EXPECT(text.find("in void planted::") != std::string::npos, "%s: no kernel in: %s", bug.name,
               text.c_str());
        if (!bug.line) continue;
        const std::string place = fmt::format("test/emulator/{}:{}", file, bug.line);
        EXPECT(text.find("at " + place) != std::string::npos, "%s: report should name %s, is: %s", bug.name,
               place.c_str(), text.c_str());
        EXPECT(text.find(", block (") != std::string::npos && text.find(") thread (") != std::string::npos,
               "%s: no block and thread in: %s", bug.name, text.c_str());
    }
}
TEST(planted_bugs_are_found_with_their_place) {
    if (!emulator::checks_compiled_in) return test::skip("built without -fsanitize=thread,alignment");
    check_reports(planted::bugs, planted::count, "planted.cu");
    check_reports(planted::hopper_bugs, planted::hopper_count, "planted_hopper.cu");
    check_reports(planted::wgmma_bugs, planted::wgmma_count, "planted_wgmma.cu");
}

static void check_silence(const planted::Bug* sound, int count) {
    for (int i = 0; i < count; i++) {
        const std::string text = report_of(sound[i]);
        EXPECT(text.empty(), "%s: %s", sound[i].name, text.c_str());
    }
}
TEST(kernels_without_bugs_have_no_report) {
    emulator::in_every_order([] {
        check_silence(planted::sound, planted::count);
        check_silence(planted::hopper_sound, planted::hopper_count);
        check_silence(planted::wgmma_sound, planted::wgmma_count);
    });
}
