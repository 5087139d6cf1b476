// Ends a launch that takes too much CPU time: an endless loop. Told with the place where it was found.
#pragma once

namespace emulator {
void watch_launch();
}
