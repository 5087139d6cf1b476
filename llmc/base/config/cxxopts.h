// cxxopts, with the options of both programs.
#pragma once
#define CXXOPTS_NO_REGEX                    // its own parser: half the time to compile
#define CXXOPTS_VECTOR_DELIMITER '\0'       // names of files have commas
#include <cxxopts.hpp>
