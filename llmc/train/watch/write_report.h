// The program behind --report: runs as one HTML file, to send to someone.
#pragma once
#include <string>
#include <vector>

inline namespace watch {

// Writes the page with the runs in its data; file: empty for report.html in the first folder. Prints its path
// and the number of damaged lines left out. Of a long run some 2,000 training rows stay, with the smallest
// and the largest loss and gradient norm of each interval.
int write_report(const std::vector<std::string>& folders, std::string file);

}  // namespace watch
