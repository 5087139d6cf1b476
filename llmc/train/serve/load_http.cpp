// Loads the embedded HTTP server.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "llmc/base/check.h"
#include "llmc/base/files.h"
#include "llmc/train/serve/serve.h"

// From memory: the object has no file.
static void* load_object(std::string_view object, const char* flag) {
    CHECK_INPUT(!object.empty(), "{}: this build has no cpp-httplib. Install libcpp-httplib-dev and run make "
                "again", flag);
    const Fd file(memfd_create("http", MFD_CLOEXEC));
    CHECK_INPUT(file && try_write_all(file.fd, object.data(), object.size()), "{}: no memory for the HTTP "
                "server: {}", flag, strerror(errno));
    void* const handle = dlopen(fmt::format("/proc/self/fd/{}", file.fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    CHECK_INPUT(handle, "{}: the HTTP server does not load here: {}. Install libcpp-httplib0.11, or run make "
                "again", flag, dlerror());
    return handle;
}

template <class F> static F* function_of(void* object, const char* name) {
    void* const found = dlsym(object, name);
    CHECK(found, "{} is not in the HTTP server", name);
    return reinterpret_cast<F*>(found);
}

Listening start_server(const HttpService& service, const char* flag, std::string_view object) {
    void* const loaded = load_object(object, flag);
    const auto start = function_of<void(const HttpService&, HttpServer&)>(loaded, "start_http");
    const StopServer stop{function_of<void(HttpServer&)>(loaded, "stop_http")};
    Listening server(new HttpServer, stop);
    start(service, *server);
    CHECK_INPUT(server->state, "{}: cannot listen on port {} of {}: {}. Choose another port by --port=N (0: "
                "any free one)", flag, service.port, service.host, strerror(server->error));
    return server;
}
