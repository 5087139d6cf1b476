// The machine below this process, as Linux tells it. 0 or empty: it does not tell.
#pragma once
#include <cstddef>
#include <string>

size_t peak_resident_bytes();           // VmHWM: most memory that this process ever held
bool reset_peak_resident();             // VmHWM = what is held now; false where that is not allowed
size_t resident_bytes();
// What can still be allocated without swapping, control groups (of version 1 as well) included. host: a
// folder in place of the root, for tests.
size_t available_memory_bytes(const std::string& host = "");
size_t room_in_address_space();         // below `ulimit -v`; SIZE_MAX: no limit
std::string cpu_name();                 // "Intel(R) Xeon(R) Processor"
std::string host_name();
// Of any process since the machine started.
long out_of_memory_kills(const char* vmstat = "/proc/vmstat");
void return_freed_blocks();             // at once, to the system: plans count what is held, not what was
int cores();                            // that this process may run on
// As many open files as the hard limit allows: each shard is one, on each rank.
void allow_many_files();
