// A config for ranks that compute nothing.
#pragma once
#include "llmc/base/config/config.h"

inline Config config_of(int ranks, int tp = 1, int pp = 1) {
    Config c;
    c.run.threads = 1;
    c.run.precision = "fp32";
    c.parallel.ranks = ranks;
    c.parallel.tp = tp;
    c.parallel.pp = pp;
    c.train.batch_tokens = 12 * 64;
    c.train.micro_batch = 1;
    c.model.context = 64;
    return c;
}
