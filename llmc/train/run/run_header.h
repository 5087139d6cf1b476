// What a run says of itself on the screen before it begins.
#pragma once
#include "llmc/train/run/log.h"

// origin: the checkpoint that the run goes on from; empty: a new run. Warns of text that is repeated often.
void print_header(const Config& cfg, const StartInfo& info, const std::string& origin);

std::string shown_rate(double tflops);          // 0.412, 989
