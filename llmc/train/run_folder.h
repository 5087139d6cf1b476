// The folder of a run, before anything is written there.
#pragma once
#include "llmc/base/config.h"

// run.dir can be made and written to. It may hold a run to go on with, or one that was stopped before its
// first checkpoint and starts anew; not a finished one that left no checkpoint, not others' files, and with
// checkpoint.resume=never no run at all. Leaves nothing behind.
void check_run_dir(const Config& cfg);
