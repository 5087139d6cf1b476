#include "llmc/comm/agents/lease.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "llmc/base/check.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/disk/output_file.h"
#include "llmc/base/host/machine.h"
#include "llmc/base/json/json.h"
#include "llmc/base/json/json_value.h"
#include "llmc/base/progress.h"
#include "llmc/comm/agents/channel.h"
#include "llmc/comm/rendezvous/rendezvous_protocol.h"

inline namespace agents {

std::string this_machine() {
    char space[64] = {};
    (void)!readlink("/proc/self/ns/pid", space, sizeof space - 1);
    std::string boot;
    const Fd file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    char text[64] = {};
    if (file && ::read(file.fd, text, sizeof text - 1) > 0) boot = text;
    return boot.substr(0, boot.find('\n')) + " " + space;
}

static constexpr const char* kNoted = "/generation";
using EpochAndGeneration = std::pair<int64_t, int64_t>;

static EpochAndGeneration noted_in(const std::string& run_dir) {
    const std::string path = run_dir + kNoted;
    long long epoch = 0, generation = 0;
    if (file_exists(path)) (void)sscanf(read_file(path, 64).c_str(), "%lld %lld", &epoch, &generation);
    return {epoch, generation};
}

Lease::Lease(const std::string& run_dir) : run_dir_(run_dir), path_(run_dir + "/lease") {}

static std::string to_json(const LeaseText& t) {
    return JsonObject()
               .add("epoch", t.epoch).add("beat", t.beat).add("host", t.host).add("address", t.address)
               .add("port", t.port).add("machine", t.machine).add("process", t.process)
               .add("secret", t.secret).str() + "\n";
}

static std::optional<LeaseText> lease_of(const std::string& path) {
    try {
        if (!file_exists(path)) return std::nullopt;
        const Json j = parse_json(read_file(path, 4096));
        return LeaseText{.epoch = j.at("epoch").integer(), .beat = j.at("beat").integer(),
                         .host = j.at("host").string(), .address = j.at("address").string(),
                         .machine = j.at("machine").string(), .secret = j.at("secret").string(),
                         .port = int(j.at("port").integer()), .process = int(j.at("process").integer())};
    } catch (const JsonError&) {
        return LeaseText{};                     // unreadable: takeable when it stays so
    }
}

std::optional<LeaseText> Lease::read() {
    const std::optional<LeaseText> now = lease_of(path_);
    if (now != seen_ || seen_at_ == 0) seen_at_ = seconds_now();
    return seen_ = now;
}

bool Lease::may_take() {
    if (!seen_ || seconds_now() - seen_at_ > kTake) return true;
    static const std::string here = this_machine();
    return seen_->machine == here && kill(seen_->process, 0) != 0 && errno == ESRCH;
}

// expected: what the file has to hold; null: no file. Agents that write at once do so in turn.
bool Lease::write(const LeaseText& text, const LeaseText* expected) {
    const std::string turn = path_ + ".lock";
    const Fd lock(open(turn.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!lock) return false;
    struct flock whole = {};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    if (fcntl(lock.fd, F_OFD_SETLK, &whole) != 0 && (errno == EAGAIN || errno == EACCES)) return false;
    const std::optional<LeaseText> now = lease_of(path_);
    if (expected ? now != *expected : now.has_value()) return false;
    const mode_t before = umask(077);           // the secret is this user's alone
    const bool written = try_replace_file(path_, to_json(text)).empty();
    umask(before);
    return written;
}

bool Lease::take(const std::string& address, int port) {
    LeaseText mine;
    mine.address = address;
    mine.port = port;
    mine.epoch = std::max(seen_ ? seen_->epoch : 0, noted_in(run_dir_).first) + 1;
    mine.host = host_name();
    mine.machine = this_machine();
    mine.process = getpid();
    mine.secret = seen_ && !seen_->secret.empty() ? seen_->secret : hex_of(new_nonce().data());
    if (!write(mine, seen_ ? &*seen_ : nullptr)) return false;
    own = mine;
    renewed_at_ = seconds_now();
    return true;
}

bool Lease::keep(bool at_once) {
    const double now = seconds_now();
    if (!at_once && now - renewed_at_ < kRenew) return true;
    LeaseText next = own;
    next.beat++;
    if (write(next, &own)) {
        own = next;
        renewed_at_ = now;
        return true;
    }
    const std::optional<LeaseText> there = lease_of(path_);
    if (there && (there->epoch > own.epoch || there->process != own.process || there->machine != own.machine))
        return false;
    return now - renewed_at_ < kVoid;
}

void Lease::give_up() {
    const std::optional<LeaseText> there = lease_of(path_);
    if (!there || there->epoch != own.epoch) return;
    (void)unlink((run_dir_ + kNoted).c_str());          // epochs begin anew
    (void)unlink(path_.c_str());
}

bool owns_run_files(const std::string& run_dir, int64_t epoch, int64_t generation) {
    return noted_in(run_dir) <= EpochAndGeneration(epoch, generation);
}

bool claim_run_files(const std::string& run_dir, int64_t epoch, int64_t generation) {
    if (!owns_run_files(run_dir, epoch, generation)) return false;
    if (noted_in(run_dir) < EpochAndGeneration(epoch, generation))
        (void)try_replace_file(run_dir + kNoted, fmt::format("{} {}\n", epoch, generation));
    return true;
}

}  // namespace agents
