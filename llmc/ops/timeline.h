// The timeline of a step: when each op, collective, wait and copy of this rank began and ended.
//
// Ops and collectives come from their records in the walk: with a timeline, Walk::record() notes the time.
// Host work between them is named by a Timed scope.
//
// The end of an op is not recorded. An op ends where the rank begins its next op or Timed scope, or where the
// scope around the op ends. Microseconds of host code between two ops count as the first op; longer host work
// needs a Timed scope. Scopes, collectives and waits for collectives have exact ends.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

inline namespace any_backend {

struct Timeline {
    enum class Kind : uint8_t { Op, Collective, Wait, Copy };
    static constexpr uint64_t kNotStarted = ~uint64_t(0);

    struct Event {
        const char* name;               // of the op, the verb or the host work
        const char* axis = nullptr;     // of a collective, or of a wait for one
        Kind kind = Kind::Op;
        int32_t entry = -1;             // of the walk; -1: a Timed scope
        int32_t block = -1, micro = -1;
        double begin = 0, end = 0;      // seconds, by seconds_now()
        int32_t begin_mark = -1, end_mark = -1;     // on the device's clock; -1: none
        uint64_t ticket = kNotStarted;  // of a started collective
        double arrived = 0;             // end of the wait for a started collective; 0: none
    };

    // Ranges that a profiler shows (NVTX); names are copied.
    struct Ranges { void (*push)(const char* name); void (*pop)(); };

    std::vector<Event> events;          // in the order of `begin`
    void (*mark)(int) = nullptr;        // sets a mark on the device's clock; null: the host runs the ops
    int marks = 0;                      // set so far
    const Ranges* ranges = nullptr;     // null: no profiler
    bool records = true;                // false: only ranges

    Timeline() = default;
    Timeline(const Timeline&) = delete;

    // Times and marks of an event are set here, the rest by the caller.
    void op(const Event& what);         // ends as said above
    void open(const Event& what);
    void close();                       // the event opened last
    // The open event started a collective; arrived(): its wait has ended. group: any address.
    void started(const void* group, int verb, uint64_t ticket);
    void arrived(const void* group, int verb, uint64_t ticket);
    void finish();                      // closes every event

private:
    struct Flight { const void* group; int verb; uint64_t ticket; size_t event; };
    struct Now { double seconds; int32_t mark; };

    int32_t running = -1;               // op whose end is open
    std::vector<int32_t> opened;        // Timed scopes and collectives, the outermost first
    std::vector<Flight> flights;
    int32_t range_block = -1, range_micro = -1;     // of the range around ops
    bool in_range = false;

    Now now(bool ends);
    int32_t begin(const Event& what);
    void end(int32_t event, const Now& at);
    void group_ranges(const Event& what);
};

}  // namespace any_backend
