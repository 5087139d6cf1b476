// Room train/explore: the page of --explore: settings as sliders, drawings of memory, step and speed.
// Called by main(). The room knows settings and the planner's answers. It knows no formula of time or memory.
//
// The program behind --explore: a page to plan with.
#pragma once
#include "llmc/train/explore/explore_service.h"
#include "llmc/train/serve/serve.h"

inline namespace explorer {

// Serves until a signal asks for the end. Prints the address.
int explore(const Exploration& exploration, const PagePlace& place);

}  // namespace explorer
