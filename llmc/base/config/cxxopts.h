// cxxopts, as both programs compile it.
#pragma once
#define CXXOPTS_NO_REGEX                    // its own parser: half the time to compile
#define CXXOPTS_VECTOR_DELIMITER '\0'       // names of files have commas
#include <cxxopts.hpp>
