// The program behind --watch: a page of all runs below a folder.
#pragma once
#include <optional>
#include <string>

struct WatchOptions {
    std::string folder;
    int port = 8000;                        // 0: any free port
    std::optional<std::string> host;        // address to bind; none: 127.0.0.1, without a token
};

// Serves until a signal asks for the end. Prints the address.
int watch_runs(const WatchOptions& options);
