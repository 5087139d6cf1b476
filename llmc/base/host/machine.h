// Room base/host: the machine and the build: cores, memory, threads, versions, files kept for the user.
// Called at the start of programs, by the memory plan and by reports.
// The room knows no setting and no model.
//
// The machine below this process, as reported by Linux. 0 or empty: not reported.
#pragma once
#include <cstddef>
#include <string>

inline namespace host {

size_t peak_resident_bytes();           // VmHWM: peak memory of this process
bool reset_peak_resident();             // VmHWM = current memory; false: not permitted
size_t resident_bytes();
size_t resident_shared_bytes();         // the part of resident_bytes() that other processes may use as well:
                                        // code (RssFile), segments of shared memory (RssShmem)
// Memory available without swapping, control groups (of version 1 as well) included. host: a folder in place
// of the root, for tests.
size_t available_memory_bytes(const std::string& host = "");
size_t room_in_address_space();         // below `ulimit -v`; SIZE_MAX: no limit
std::string cpu_name();                 // "Intel(R) Xeon(R) Processor"
std::string host_name();
// Number of processes that the kernel's out-of-memory killer has killed since the machine started.
long out_of_memory_kills(const char* vmstat = "/proc/vmstat");
void return_freed_blocks();             // at once, to the system: plans count current memory, not past memory
int cores();                            // usable by this process
// Early in main(). A write beyond `ulimit -f` fails (EFBIG), and no SIGXFSZ ends the program. Threads get
// stacks of 8 MiB whatever `ulimit -s` is; the main thread gets as much as the hard limit allows, and too
// little is an error.
void meet_limits();
// Raises the limit on open files to the hard limit: each rank keeps each shard open.
void allow_many_files();

}  // namespace host
