// Energy of a GPU, as counted by NVML, the driver's library, which is loaded if present.
#pragma once
#include <chrono>
#include <memory>
#include <string>

inline namespace logs {

// Counts a device for the first rank of a process on the device; other ranks of the process read zeros: the
// sum over ranks is the sum over devices. Processes sharing a device each count its whole energy.
struct EnergyMeter {
    // bus_id: "0000:17:00.0"; empty: a device unknown to NVML.
    explicit EnergyMeter(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");
    ~EnergyMeter();

    void start();           // counts from here on; energy since the last reading is dropped
    void read();            // adds the energy since the last reading
    double take();          // reads; joules counted since the last call; NaN: unknown

private:
    struct Nvml;
    std::unique_ptr<Nvml> nvml_;
    bool shared_ = false;               // another rank counts
    double joules_ = 0;
};

}  // namespace logs
