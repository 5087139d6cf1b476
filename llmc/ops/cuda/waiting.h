// The host waits for the device.
#pragma once
#include "llmc/ops/cuda/runtime.h"

// Where the device may wait for other ranks, who set this looks in the meantime whether they can still come.
inline thread_local void (*while_host_waits)() = nullptr;
void host_waits_for(cudaStream_t stream);       // all that is in it
void host_waits_for(cudaEvent_t event);         // if it was ever recorded
