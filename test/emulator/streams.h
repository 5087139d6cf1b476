// What the calls of the runtime and of NCCL share.
#pragma once
#include <cuda_runtime.h>

#include <functional>

namespace emulator {

// What became of an operation. Blocked: it waits for another thread, and is tried again.
enum class Progress { Done, Failed, Blocked };

// To the end of a stream (null: the default stream); returns false where it fails.
cudaError_t add(cudaStream_t stream, std::function<bool()> operation);
// The same; carried out at once, where nothing before it waits, if at_once or the streams are eager.
cudaError_t add_step(cudaStream_t stream, std::function<Progress()> operation, bool at_once);
uint64_t queued(cudaStream_t stream);                  // operations so far
Progress advance_to(cudaStream_t stream, uint64_t position);

// A thread that waits for others: they tell of every change, and while_blocked does what others wait for.
void tell_of_change();
extern void (*while_blocked)();

// Before a synchronous call: the default stream and those that wait for it.
cudaError_t advance_blocking();
// An error for a call that takes or frees memory while a collective of another thread waits for ranks.
// Between ranks that are threads, that call may wait for the collective, and the collective for its caller.
cudaError_t beside_collectives(const char* call);
std::string waits_elsewhere();

// The host has waited in this call: see EMU_WAITS.
void host_waited(const char* call);
// The error, remembered for cudaGetLastError().
cudaError_t result(cudaError_t error);

int current_device();                                  // of this thread

}  // namespace emulator
