// Energy that a GPU draws, as NVML counts it: the driver's library, loaded where it is there.
#pragma once
#include <chrono>
#include <memory>
#include <string>

// Of one device, for the rank that is the first of its process to ask for it: others that share the device
// get zeros, so that a sum over ranks is that of the devices. Processes that share one each count all of it.
struct EnergyMeter {
    EnergyMeter();
    // bus_id: "0000:17:00.0", or empty for what NVML does not know.
    explicit EnergyMeter(const std::string& bus_id, const char* library = "libnvidia-ml.so.1");
    ~EnergyMeter();
    EnergyMeter(EnergyMeter&&) noexcept;
    EnergyMeter& operator=(EnergyMeter&&) noexcept;

    void start();           // counts from here: what was drawn since the last reading does not
    void read();            // what was drawn since does
    double take();          // reads; joules that were counted since the last call; NaN: nobody knows

private:
    struct Nvml;
    std::unique_ptr<Nvml> nvml_;
    bool shared_ = false;               // another rank counts
    double joules_ = 0;
};
