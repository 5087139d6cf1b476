// Lanes of a traced step: the rank's thread, its device, and each axis with collectives in flight.
//
//     host            ops, collectives, waits and copies as the rank's thread makes them. Without a GPU these
//                     are the times of the ops; with one, of their launches. `host code` is what lies between
//                     them, from half a microsecond: with it the lane covers the step's `ms`
//     GPU             ops on the compute stream, collectives that the stream waits for
//     AXIS.VERB       a collective in flight: on CPUs from its start to the end of the wait for it, on a GPU
//                     on its own stream. Where two overlap the second has a lane "AXIS.VERB 2"
#pragma once
#include "llmc/comm/group.h"
#include "llmc/ops/timed.h"
#include "llmc/train/log/step_meter.h"
#include "llmc/train/report/chrome_trace.h"

inline namespace logs {

// What a GPU did, by the clock of the timeline.
struct TracedDevice {
    double origin = 0;                  // of mark 0, seconds
    std::vector<double> marks;          // seconds from mark 0; empty: the host runs the ops
    struct Axis { const char* name; std::vector<DeviceSpan> spans; };
    std::vector<Axis> axes;
};

// Lanes and events; the process has no name yet.
ChromeProcess lanes_of(const Walk& walk, const Timeline& timeline, StepSpan span,
                       const TracedDevice& device);

}  // namespace logs
