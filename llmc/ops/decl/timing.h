// timing -- marks on the device's clock, and ranges that a profiler of the device shows. Where the host runs
// the ops, these functions do nothing.

// Makes the first `count` marks, so that set_mark() makes none of them within a step.
void make_marks(int count);
// Sets a mark, which the device reaches when earlier ops are complete. The host waits for nothing.
void set_mark(int mark);
// Seconds from mark 0 to each of the first `count` marks. REQUIRES: each was set. Waits for the last.
std::vector<double> read_marks(int count);

bool has_profiler();                    // a profiler shows the ranges of this process
void push_range(const char* name);
void pop_range();
