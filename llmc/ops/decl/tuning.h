// tuning -- which way is the fastest, of those that an op has.
//
// What is chosen decides the order of sums, and so the last bits: choices are text, made on one rank, kept in
// a file and read by all. They are good for one kind of device and one version of its libraries; a text may
// hold those of several, one section each.

// Device memory that tune() takes; 0: nothing is to be chosen, or the device has no times to choose by.
size_t tuning_bytes(const ScratchSizes& s);

// Times every way of every op of a model of these sizes, on random data in `memory`, and chooses. Scratch has
// been lent; nothing else runs.
void tune(const ScratchSizes& s, void* memory);

// Runs what is chosen on a little data in `memory` against the simplest way there is, and ends the program
// where they differ by more than rounding does.
size_t trial_bytes(const ScratchSizes& s);              // 0: as above
void try_choices(const ScratchSizes& s, void* memory);

bool tuned(const ScratchSizes& s);                      // whether every op of these sizes has been chosen for
std::string choices(const std::string& others = "");    // with those of `others` that are for other devices
void use_choices(const std::string& text);              // those that are for this one
