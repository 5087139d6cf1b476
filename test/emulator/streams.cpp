// Streams, events and errors of the CUDA runtime.
//
// Streams are eager or lazy. A lazy stream runs an operation as late as allowed: when somebody waits for it.
// Code that relies on the order of two streams without an event in between then sees stale data.
#include "test/emulator/streams.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "test/emulator/memory.h"
#include "test/emulator/scheduler.h"
#include "test/emulator/settings.h"

namespace emulator {

struct Stream {
    bool blocking;                             // with the default stream
    int device;
    std::deque<std::function<Progress()>> todo;
    uint64_t done = 0;                         // operations carried out
    std::recursive_mutex busy;                 // ranks are threads: freeing memory waits for every stream
    uint64_t queued() {
        const std::lock_guard lock(busy);
        return done + todo.size();
    }
};
struct Event {
    Stream* stream = nullptr;                  // null: not recorded
    uint64_t position = 0;                     // operations of the stream up to the event
    std::chrono::steady_clock::time_point time = {};
    bool timed = true;                         // the event was made with timing
};

static Stream default_stream{true, -1, {}, 0, {}};
static std::mutex guard;
static std::vector<Stream*> streams = {&default_stream};
static thread_local cudaError_t last_error = cudaSuccess;
static thread_local std::string launch_report;

cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

// Carries out the stream's operations up to a position. After a failure the rest is dropped.
static Progress advance(Stream& s, uint64_t position) {
    const DeviceOpen open;
    const std::lock_guard lock(s.busy);
    while (s.done < position && !s.todo.empty()) {
        const Progress p = s.todo.front()();
        if (p == Progress::Blocked) return p;
        s.todo.pop_front();
        s.done++;
        if (p == Progress::Done) continue;
        s.done += s.todo.size();
        s.todo.clear();
        return p;
    }
    return Progress::Done;
}

// ---------------------------------------------------------------------------------------------------------
// waiting for other threads

// Ranks that are processes cannot wake each other.
static auto patience() { return std::chrono::microseconds(settings.processes.empty() ? 20000 : 200); }
static std::mutex waiting;
static std::condition_variable changed;
static uint64_t changes = 0;
void (*while_blocked)() = nullptr;

void tell_of_change() {
    {
        const std::lock_guard lock(waiting);
        changes++;
    }
    changed.notify_all();
}

static uint64_t changes_so_far() {
    const std::lock_guard lock(waiting);
    return changes;
}

// Advances the stream. If blocked, does the work that other threads wait for, tries again, waits a moment.
static Progress attempt(Stream& s, uint64_t position) {
    const uint64_t seen = changes_so_far();
    Progress p = advance(s, position);
    if (p != Progress::Blocked) return p;
    while_blocked();
    p = advance(s, position);
    if (p != Progress::Blocked) return p;
    std::unique_lock lock(waiting);
    changed.wait_for(lock, patience(), [&] { return changes != seen; });
    return p;
}

static cudaError_t error_of(Progress p) {
    if (p == Progress::Blocked) return cudaErrorNotReady;
    return result(p == Progress::Done ? cudaSuccess : cudaErrorLaunchFailure);
}

static cudaError_t finish(Stream& s, uint64_t position) {
    Progress p = Progress::Blocked;
    while (p == Progress::Blocked) p = attempt(s, position);
    return error_of(p);
}

uint64_t queued(cudaStream_t stream) { return (stream ? stream : &default_stream)->queued(); }
Progress advance_to(cudaStream_t stream, uint64_t position) {
    return advance(stream ? *stream : default_stream, position);
}

static Progress of(bool ok) { return ok ? Progress::Done : Progress::Failed; }

// The default stream and the streams that were not created as non-blocking wait for each other.
cudaError_t add_step(Stream* stream, std::function<Progress()> operation, bool at_once) {
    Stream& s = stream ? *stream : default_stream;
    if (settings.lazy_streams && s.blocking) {
        const std::lock_guard lock(guard);
        for (Stream* other : streams)
            if (other != &s && other->blocking && (&s == &default_stream || other == &default_stream))
                s.todo.push_back(
                    [other, position = other->queued()] { return advance(*other, position); });
    }
    const std::lock_guard lock(s.busy);
    s.todo.push_back(std::move(operation));
    if (settings.lazy_streams && !at_once) return cudaSuccess;
    const Progress p = advance(s, s.queued());
    return p == Progress::Failed ? error_of(p) : cudaSuccess;
}
cudaError_t add(Stream* stream, std::function<bool()> operation) {
    return add_step(stream, [operation = std::move(operation)] { return of(operation()); }, false);
}

// The streams of this device, and the default stream.
static std::vector<Stream*> all_streams() {
    const std::lock_guard lock(guard);
    std::vector<Stream*> own;
    for (Stream* s : streams)
        if (s->device < 0 || s->device == current_device()) own.push_back(s);
    return own;
}

cudaError_t advance_blocking() {
    cudaError_t error = cudaSuccess;
    for (Stream* s : all_streams())
        if (s->blocking && error == cudaSuccess) error = finish(*s, s->queued());
    return error;
}

cudaError_t beside_collectives(const char* call) {
    const std::string why = waits_elsewhere();
    if (why.empty()) return cudaSuccess;
    launch_report = fmt::format("{} {}", call, why);
    return result(cudaErrorLaunchFailure);
}

void host_waited(const char* call) {
    if (settings.waits_file.empty()) return;
    const std::lock_guard lock(guard);
    size_t left = 0;
    for (Stream* s : streams) left += s->todo.size();
    try_append(settings.waits_file, fmt::format("{} {}\n", call, left));
}

cudaError_t enqueue(cudaStream_t stream, Launch launch) {
    const cudaError_t error = add(stream, [launch = std::move(launch)] {
        if (run(launch)) return true;
        launch_report = report();
        return false;
    });
    return error;
}

}  // namespace emulator

using namespace emulator;

const char* cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInsufficientDriver:
            return "CUDA driver version is insufficient for CUDA runtime version";
        case cudaErrorNoDevice: return "no CUDA-capable device is detected";
        case cudaErrorNoKernelImageForDevice:
            return "no kernel image is available for execution on the device";
        case cudaErrorUnsupportedPtxVersion:
            return "the provided PTX was compiled with an unsupported toolchain.";
        case cudaErrorInvalidDevice: return "invalid device ordinal";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorLaunchFailure: return launch_report.c_str();
        default: return "invalid argument";
    }
}
const char* cudaGetErrorName(cudaError_t error) {
    return error == cudaSuccess ? "cudaSuccess" : error == cudaErrorLaunchFailure ? "cudaErrorLaunchFailure"
         : error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : error == cudaErrorInsufficientDriver ? "cudaErrorInsufficientDriver"
         : error == cudaErrorNoDevice ? "cudaErrorNoDevice"
         : error == cudaErrorNoKernelImageForDevice ? "cudaErrorNoKernelImageForDevice"
         : error == cudaErrorUnsupportedPtxVersion ? "cudaErrorUnsupportedPtxVersion"
         : "cudaErrorInvalidValue";
}
cudaError_t cudaPeekAtLastError() { return last_error; }
cudaError_t cudaGetLastError() { return std::exchange(last_error, cudaSuccess); }

// ---------------------------------------------------------------------------------------------------------
// streams and events

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
    *stream = new Stream{flags != cudaStreamNonBlocking, current_device(), {}, 0, {}};
    const std::lock_guard lock(guard);
    streams.push_back(*stream);
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithFlags(stream, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const cudaError_t error = cudaStreamSynchronize(stream);
    const std::lock_guard lock(guard);
    std::erase(streams, stream);
    delete stream;
    return error;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* argument) {
    return add(stream, [=] { function(argument); return true; });
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const cudaError_t error = stream ? finish(*stream, stream->queued()) : advance_blocking();
    host_waited("cudaStreamSynchronize");
    return error;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    Stream& s = stream ? *stream : default_stream;
    const Progress p = attempt(s, s.queued());
    if (p != Progress::Blocked) host_waited("cudaStreamQuery");         // polling is waiting, too
    return error_of(p);
}
cudaError_t cudaDeviceSynchronize() {
    for (Stream* s : all_streams())
        if (const cudaError_t error = finish(*s, s->queued()); error != cudaSuccess) return error;
    host_waited("cudaDeviceSynchronize");
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
    *event = new Event{.timed = !(flags & cudaEventDisableTiming)};
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const cudaError_t error = cudaEventSynchronize(event);
    delete event;
    return error;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    if (event->timed && !settings.times_file.empty()) try_append(settings.times_file, "cudaEventRecord\n");
    event->stream = stream ? stream : &default_stream;
    const cudaError_t error = add(stream, [event] {
        event->time = std::chrono::steady_clock::now();
        return true;
    });
    event->position = event->stream->queued();
    return error;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
    if (!event->stream) return cudaSuccess;            // never recorded: no wait
    const auto wait = [from = event->stream, position = event->position] { return advance(*from, position); };
    return add_step(stream, wait, false);
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    if (!event->stream || event->stream->done >= event->position) return cudaSuccess;
    const cudaError_t error = finish(*event->stream, event->position);
    host_waited("cudaEventSynchronize");
    return error;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
    if (!event->stream || event->stream->done >= event->position) return cudaSuccess;
    const Progress p = attempt(*event->stream, event->position);
    if (p != Progress::Blocked) host_waited("cudaEventQuery");
    return error_of(p);
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
    *milliseconds = std::chrono::duration<float, std::milli>(to->time - from->time).count();
    return from->stream && to->stream ? cudaSuccess : result(cudaErrorInvalidResourceHandle);
}
