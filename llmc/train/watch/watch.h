// Room train/watch: the pages of --watch and --report: curves, ranks, scores of the runs below a folder.
// Called by main(). It knows runs by their files, and changes none. It knows no live process.
//
// The program behind --watch: a page of all runs below a folder.
#pragma once
#include <string>

#include "llmc/train/serve/serve.h"

inline namespace watch {

// Serves until a signal asks for the end. Prints the address.
int watch_runs(const std::string& folder, const PagePlace& place);

}  // namespace watch
