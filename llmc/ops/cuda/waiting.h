// The host waits for the device.
#pragma once
#include "llmc/ops/cuda/runtime.h"

// Called again and again while the host waits; null: nothing is. A transport whose kernels may wait for other
// ranks checks here that these ranks are still alive.
inline thread_local void (*while_host_waits)() = nullptr;
void host_waits_for(cudaStream_t stream);       // all that is in it
void host_waits_for(cudaEvent_t event);         // if it was ever recorded
