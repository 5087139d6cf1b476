// The host waits for the device.
#pragma once
#include "llmc/ops/cuda/device/runtime.h"

// Called again and again while the host waits; may be null. A transport with kernels that may wait for other
// ranks checks here whether the other ranks are alive.
inline thread_local void (*while_host_waits)() = nullptr;
void host_waits_for(cudaStream_t stream);       // until the stream is empty
void host_waits_for(cudaEvent_t event);         // at once if the event was never recorded
