// Streams, for the emulated calls of the runtime and of NCCL.
#pragma once
#include <cuda_runtime.h>

#include <functional>
#include <string>

namespace emulator {

// Outcome of an operation. Blocked: the operation waits for another thread, and is tried again.
enum class Progress { Done, Failed, Blocked };

// Appends an operation to a stream (null: the default stream). The operation returns false on failure.
cudaError_t add(cudaStream_t stream, std::function<bool()> operation);
// The same; if at_once or streams are eager, runs the operation at once, unless an earlier operation waits.
cudaError_t add_step(cudaStream_t stream, std::function<Progress()> operation, bool at_once);
uint64_t queued(cudaStream_t stream);                  // operations ever added
Progress advance_to(cudaStream_t stream, uint64_t position);

// Wakes waiting threads. while_blocked: called by a waiting thread, for work that other threads wait for.
void tell_of_change();
extern void (*while_blocked)();

// Before a synchronous call: finishes the default stream and the streams that wait for the default stream.
cudaError_t advance_blocking();
// An error for a call that takes or frees memory while a collective of another thread waits for ranks.
// With ranks as threads, the call may wait for the collective, and the collective for the caller: a deadlock.
cudaError_t beside_collectives(const char* call);
std::string waits_elsewhere();

// The host has waited in this call: see EMU_WAITS.
void host_waited(const char* call);
// The error, remembered for cudaGetLastError().
cudaError_t result(cudaError_t error);

int current_device();                                  // of this thread

}  // namespace emulator
