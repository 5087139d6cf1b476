// Device memory is out of reach of host code, as on a GPU: between launches and copies its pages have no
// access rights, and a fault is reported with its place.
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

namespace emulator {

static std::mutex guard;
static int openers = 0;

static void fault(int number, siginfo_t* info, void* context) {
    if (!device_space().holds(info->si_addr) || current) {
        signal(number, SIG_DFL);                       // not ours: happens again
        return;
    }
    const auto at = static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP];
    const auto site = reinterpret_cast<Site>(at + 1);
    fprintf(stderr, "error: host code touches device memory at %s, in %s\n", place_of(site).c_str(),
            kernel_name(site).c_str());
    _exit(1);
}

static void set_rights(int rights) {
    static const bool watching = [] {
        struct sigaction action{};
        action.sa_sigaction = fault;
        action.sa_flags = SA_SIGINFO;
        return sigaction(SIGSEGV, &action, nullptr) == 0;
    }();
    const Space& space = device_space();
    const size_t pages = (device_bytes_in_use() + kHugePage - 1) / kHugePage;
    if (watching) mprotect(space.start, pages * kHugePage, rights);
}

DeviceOpen::DeviceOpen() {
    if (!settings.refuse_host) return;
    const std::lock_guard lock(guard);
    if (openers++ == 0) set_rights(PROT_READ | PROT_WRITE);
}

DeviceOpen::~DeviceOpen() {
    if (!settings.refuse_host) return;
    const std::lock_guard lock(guard);
    if (--openers == 0) set_rights(PROT_NONE);
}

}  // namespace emulator
