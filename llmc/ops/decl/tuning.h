// tuning -- which of the candidates (algorithms, tiles, fusions) runs each op, chosen by time.
//
// A choice decides the order of sums, and so the last bits. Choices are text: one rank makes them, a file
// keeps them, every rank reads the same file. A text has a section per kind of device and library version.

// Device memory for tune() and check_choices(); 0: no candidates, or no clock.
size_t tuning_bytes(const Walk& walk);

// Times every candidate of every recorded op, on random data in `memory`, and chooses the
// fastest. Scratch has been lent; nothing else runs. Calls progress() after each candidate.
void tune(const Walk& walk, void* memory, const std::function<void()>& progress);

// Runs every choice on random data in `memory` beside the simplest kernels. fatal() if results differ by more
// than rounding.
void check_choices(const Walk& walk, void* memory);

bool tuned(const Walk& walk);                      // every recorded op has a choice
std::string candidate_names();                          // of all kernels that this build chooses between
std::string choices(const std::string& others = "");    // and the sections of `others` for other devices
void use_choices(const std::string& text);              // the section for this device
