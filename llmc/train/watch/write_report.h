// The program behind --report: a run as one HTML file, to send to someone.
#pragma once
#include <string>

// Writes the page with the run in its data; file: empty for RUN/report.html. Prints its path.
int write_report(const std::string& run_dir, std::string file);
