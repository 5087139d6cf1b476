// Ranks that are processes, each with emulated devices of its own (EMU_PROCESSES). Their calls meet in a file
// that all of them map, a file for each id of NCCL: the hall. A rank posts its part of a meeting there; the
// last to arrive reads the parts from the memory of the processes and writes the results (process_vm_readv).
//
// Nobody tells a rank of a process that has died, as over NVLink: what waits for it waits for an abort.
#pragma once
#include "test/emulator/messages.h"

namespace emulator {

std::string new_hall_file();
std::shared_ptr<Hall> open_hall(const std::string& file);

// Posts this rank's part, and returns its place.
int post(Clique& c, const Key& key, const Meeting& wanted, int place, const Meeting::Part& part);
// This rank has arrived: whether the meeting is over, or the clique broken.
bool meet(Clique& c, int post);

// What every rank of `size` says under a name, by rank: kept for all. Empty: some rank has not said it.
bool say(Clique& c, const std::string& name, int rank, const Clique::Asked& words);
std::vector<Clique::Asked> heard(Clique& c, const std::string& name, int size);

// No meeting with this process of that communicator ends any more.
void leave(Clique& c);

}  // namespace emulator
