// The program behind --watch: a page of all runs below a folder.
#pragma once
#include <string>

#include "llmc/train/serve/serve.h"

// Serves until a signal asks for the end. Prints the address.
int watch_runs(const std::string& folder, const PagePlace& place);
