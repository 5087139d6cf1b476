// The host waits for the device.
#pragma once
#include "llmc/base/guard/wait.h"
#include "llmc/ops/cuda/device/runtime.h"

inline namespace gpu {

// As waits for other ranks: kernels of collectives may keep the device waiting.
void host_waits_for(cudaStream_t stream);       // until the stream is empty
void host_waits_for(cudaEvent_t event);         // at once if the event was never recorded

}  // namespace gpu
