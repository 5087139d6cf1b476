// An NVML of a test's own, built by gcc, whose counter and power go by rules.
#pragma once
#include <filesystem>
#include <fstream>

#include "test/test.h"

namespace test {

// Knows device ffff:01:00.0. The counter goes up by 250 J with each reading, from a value that a float does
// not hold; power is 200 W.
inline std::string fake_nvml(const std::string& name, bool counter, bool power,
                             const std::string& init = "0") {
    const std::string dir = temporary_directory() + "/lib" + name, path = dir + "/libnvidia-ml.so.1";
    const std::string source = path + ".c";
    std::filesystem::create_directories(dir);
    std::ofstream file(source);
    file << "#include <string.h>\n"
            "static int here; static unsigned long long total = 123456789012ull;\n"
            "int nvmlInit_v2(void) { return " << init << "; }\n"
            "int nvmlShutdown(void) { return 0; }\n"
            "int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {\n"
            "    *device = &here; return strcmp(id, \"ffff:01:00.0\") ? 2 : 0; }\n";
    if (counter)
        file << "int nvmlDeviceGetTotalEnergyConsumption(void* d, unsigned long long* mj) {\n"
                "    *mj = total += 250000; return d == &here ? 0 : 2; }\n";
    else
        file << "int nvmlDeviceGetTotalEnergyConsumption(void* d, unsigned long long* mj) {\n"
                "    return (void)d, (void)mj, (void)total, 3; }\n";
    if (power)
        file << "int nvmlDeviceGetPowerUsage(void* d, unsigned* mw) {\n"
                "    *mw = 200000; return d == &here ? 0 : 2; }\n";
    file.close();
    const Ran built = run("gcc -shared -fPIC -o " + path + " " + source);
    EXPECT(built.code == 0, "%s", built.err.c_str());
    return path;
}
inline const std::string kFakeDevice = "ffff:01:00.0";

}  // namespace test
