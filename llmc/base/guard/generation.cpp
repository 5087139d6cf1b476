#include "llmc/base/guard/generation.h"

#include <exception>

#include "llmc/base/context.h"
#include "llmc/base/guard/progress_page.h"

inline namespace guard {

void leave_generation(bool together) {
    if (context.progress) context.progress->beats++;        // a rank that leaves a long wait does not hang
    if (before_leaving) before_leaving(together);
    throw Lost();
}

void look_for_stop() {
    if (!own_generation || !agent_page || std::uncaught_exceptions()) return;
    if (agent_page->stopped >= own_generation) leave_generation();
}

void lose_rank(const char* file, int line, const std::string& message) {
    if (own_generation) leave_generation();
    fatal(kExitRestart, file, line, "{}", message);
}

}  // namespace guard
