// The counter has a resolution of some 20 to 100 ms: figures of shorter steps are coarse, their sum is not.
// Where a GPU has no counter, power times time, at the mean of the power at both ends.
#include "llmc/train/log/energy.h"

#include <dlfcn.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <set>
#include <utility>

#include "llmc/base/progress.h"
#include "llmc/ops/timed.h"

inline namespace logs {

static constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();

// Devices that a rank of this process has a meter of.
static std::mutex guard;
static std::set<std::string> metered;

// Of nvml.h: functions return 0 for success; a device is a pointer.
using Device = void*;
struct EnergyMeter::Nvml {
    void* library = nullptr;
    int (*shutdown)() = nullptr;
    int (*energy)(Device, unsigned long long* millijoules) = nullptr;   // since the driver was loaded
    int (*power)(Device, unsigned* milliwatts) = nullptr;
    Device device = nullptr;
    std::string bus_id;                 // as in `metered`

    bool started = false;               // the library
    bool counts = false;                // by the counter; otherwise by power
    double last = 0, time = 0;          // reading of either, seconds of the clock; time 0: none yet

    // Joules so far, or watts now; NaN: no answer.
    double read() const {
        unsigned long long millijoules = 0;
        unsigned milliwatts = 0;
        if (counts ? energy(device, &millijoules) != 0 : power(device, &milliwatts) != 0) return kNotMeasured;
        return 1e-3 * (counts ? double(millijoules) : double(milliwatts));
    }
    bool open(const std::string& bus_id, const char* path);
    ~Nvml() {
        if (!bus_id.empty()) {
            const std::lock_guard lock(guard);
            metered.erase(bus_id);
        }
        if (started) shutdown();
        if (library) dlclose(library);
    }
};

template <class F> static bool find(void* library, const char* name, F*& function) {
    function = reinterpret_cast<F*>(dlsym(library, name));
    return function != nullptr;
}

bool EnergyMeter::Nvml::open(const std::string& id, const char* path) {
    int (*init)() = nullptr;
    int (*handle)(const char*, Device*) = nullptr;
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library || !find(library, "nvmlInit_v2", init) || !find(library, "nvmlShutdown", shutdown) ||
        !find(library, "nvmlDeviceGetHandleByPciBusId_v2", handle) || init() != 0)
        return false;
    started = true;
    if (handle(id.c_str(), &device) != 0 || !device) return false;
    counts = true;
    if (find(library, "nvmlDeviceGetTotalEnergyConsumption", energy) && std::isfinite(read())) return true;
    counts = false;
    return find(library, "nvmlDeviceGetPowerUsage", power) && std::isfinite(read());
}

EnergyMeter::~EnergyMeter() = default;

EnergyMeter::EnergyMeter(const std::string& bus_id, const char* library) {
    if (bus_id.empty()) return;
    const std::lock_guard lock(guard);
    if (metered.contains(bus_id)) { shared_ = true; return; }
    auto nvml = std::make_unique<Nvml>();
    if (!nvml->open(bus_id, library)) return;
    nvml->bus_id = bus_id;
    metered.insert(bus_id);
    nvml_ = std::move(nvml);
}

void EnergyMeter::start() {
    if (!nvml_) return;
    nvml_->time = seconds_now();
    nvml_->last = nvml_->read();
}

void EnergyMeter::read() {
    if (!nvml_ || nvml_->time == 0) return;
    const Timed span("energy", Timeline::Kind::Wait);
    const double now = nvml_->read(), time = seconds_now();
    joules_ += nvml_->counts ? now - nvml_->last : (now + nvml_->last) / 2 * (time - nvml_->time);
    nvml_->last = now;
    nvml_->time = time;
}

double EnergyMeter::take() {
    if (!nvml_ && !shared_) return kNotMeasured;
    read();
    return std::exchange(joules_, 0);
}

}  // namespace logs
