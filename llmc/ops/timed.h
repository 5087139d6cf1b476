// Host work, or a wait of the host, on the timeline of a traced step.
#pragma once
#include "llmc/ops/timeline.h"
#include "llmc/ops/walk.h"

inline namespace any_backend {

// An event from here to the end of the scope. Without a timeline a test of a pointer.
struct Timed {
    Timeline* const timeline = context.walk ? context.walk->timeline : nullptr;
    explicit Timed(const char* name, Timeline::Kind kind = Timeline::Kind::Op, const char* axis = nullptr) {
        if (timeline)
            timeline->open({.name = name, .axis = axis, .kind = kind, .block = context.walk->block,
                            .micro = context.walk->micro});
    }
    ~Timed() { if (timeline) timeline->close(); }
    Timed(const Timed&) = delete;
};

}  // namespace any_backend
