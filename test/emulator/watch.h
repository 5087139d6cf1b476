// Ends a launch that takes too much CPU time, an endless loop, with the place in the code as the message.
#pragma once

namespace emulator {
void watch_launch();
}
