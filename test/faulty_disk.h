// A disk over another disk: counts writing operations and does harm at a chosen operation.
#pragma once
#include <algorithm>
#include <csignal>
#include <memory>
#include <unistd.h>

#include "llmc/io/files/disk.h"

namespace test {

struct Fault {
    enum Action { None, Kill, Error, Short } action = None;
    int64_t at = -1;              // operation, counted from 0
    size_t bytes = 0;             // of a write: what gets through before the harm is done
    int code = 0;                 // errno of Error
    bool lasting = false;         // all operations from there on fail as well, as on a full disk
};

struct FaultCount {
    int64_t operations = 0;
    std::vector<size_t> write_bytes;      // of each; 0 where it is no write
};

// Kill: SIGKILL to this process before the operation, or within a write after `bytes`.
inline Disk faulty_disk(const Disk& below, Fault fault, std::shared_ptr<FaultCount> count) {
    const auto hit = [fault, count](size_t bytes) {
        const int64_t n = count->operations++;
        count->write_bytes.push_back(bytes);
        return fault.action != Fault::None && (n == fault.at || (fault.lasting && n > fault.at));
    };
    const auto harm = [fault] {
        if (fault.action == Fault::Kill) kill(getpid(), SIGKILL);
        return fault.action == Fault::Error ? fault.code : 0;
    };
    // Runs the operation unless the fault takes its place.
    const auto guard = [hit, harm](auto operation) {
        return [=](auto&&... args) {
            if (hit(0))
                if (const int error = harm()) return error;
            return operation(args...);
        };
    };
    Disk d = below;
    d.make_folder = guard(below.make_folder);
    d.create = guard(below.create);
    d.append = guard(below.append);
    d.start_sync = guard(below.start_sync);
    d.sync = guard(below.sync);
    d.close = guard(below.close);
    d.sync_folder = guard(below.sync_folder);
    d.rename = guard(below.rename);
    d.remove = guard(below.remove);
    d.truncate = guard(below.truncate);
    d.write = [=](int file, const void* data, size_t bytes) -> ssize_t {
        if (!hit(bytes)) return below.write(file, data, bytes);
        const size_t through = std::min(bytes, fault.bytes);
        if (fault.action == Fault::Short) return below.write(file, data, std::max<size_t>(through, 1));
        if (through > 0) (void)below.write(file, data, through);
        if (const int error = harm()) return -error;
        return below.write(file, data, bytes);
    };
    return d;
}

}  // namespace test
