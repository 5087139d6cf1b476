// The program behind --explore: a page to plan with.
#pragma once
#include "llmc/train/explore/explore_service.h"
#include "llmc/train/serve/serve.h"

// Serves until a signal asks for the end. Prints the address.
int explore(const Exploration& exploration, const PagePlace& place);
