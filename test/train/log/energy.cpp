// Energy against an NVML of the test's own, whose counter and power go by rules.
#include "llmc/train/log/energy.h"

#include <cmath>
#include <optional>
#include <thread>

#include "test/fake_nvml.h"

using std::string;
using namespace test;

static bool knows(EnergyMeter& meter) {
    meter.start();
    meter.read();
    return std::isfinite(meter.take());
}

TEST(the_counter_is_read) {
    EnergyMeter meter(kFakeDevice, fake_nvml("counter", true, true).c_str());
    EXPECT(meter.take() == 0, "before the first start");
    meter.start();
    EXPECT_NEAR(meter.take(), 250, 1e-3);           // a reading later
    EXPECT_NEAR(meter.take(), 250, 1e-3);
    meter.read();
    meter.start();                                  // energy in between does not count
    meter.read();
    EXPECT_NEAR(meter.take(), 750, 1e-3);
}

TEST(power_times_time_where_there_is_no_counter) {
    EnergyMeter meter(kFakeDevice, fake_nvml("power", false, true).c_str());
    meter.start();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    meter.read();
    const double joules = meter.take();
    EXPECT(joules >= 200 * 0.05 && joules < 200 * 10, "%g J", joules);
}

TEST(unknown_where_nvml_does_not_answer) {
    const string full = fake_nvml("full", true, true);
    EnergyMeter no_library(kFakeDevice, "libno-such.so"), no_device("0000:01:00.0", full.c_str()),
        no_gpu("", full.c_str()), nothing(kFakeDevice, fake_nvml("nothing", false, false).c_str()),
        fails(kFakeDevice, fake_nvml("fails", true, true, "9").c_str());
    for (EnergyMeter* meter : {&no_library, &no_device, &no_gpu, &nothing, &fails})
        EXPECT(!knows(*meter));
    EnergyMeter later(kFakeDevice, full.c_str());
    EXPECT(knows(later), "those before have taken the device");
}

TEST(a_device_counts_once) {
    const string path = fake_nvml("once", true, true);
    {
        std::optional<EnergyMeter> first(std::in_place, kFakeDevice, path.c_str());
        EnergyMeter second(kFakeDevice, path.c_str());
        first->start(), second.start();
        first->read(), second.read();
        EXPECT(first->take() > 0 && second.take() == 0);
        first.reset();
    }
    EnergyMeter third(kFakeDevice, path.c_str());
    EXPECT(knows(third));
}
