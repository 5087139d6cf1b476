#include "llmc/base/guard/generation.h"

#include <exception>

#include "llmc/base/guard/progress_page.h"

inline namespace guard {

void look_for_stop() {
    if (!own_generation || !progress_page || std::uncaught_exceptions()) return;
    if (progress_page->stopped >= own_generation) throw Lost();
}

void lose_rank(const char* file, int line, const std::string& message) {
    if (own_generation) throw Lost();
    fatal(kExitRestart, file, line, "{}", message);
}

}  // namespace guard
