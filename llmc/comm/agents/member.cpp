#include "llmc/comm/agents/member.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/progress_page.h"
#include "llmc/comm/agents/lease.h"

inline namespace agents {

static constexpr ImageStep kNothing = {0, kNoImage, 0, -1, kNeedsNone};
static constexpr double kForever = std::numeric_limits<double>::infinity();

Membership* member() {
    if (member_of_thread) return member_of_thread;
    static const std::unique_ptr<Membership> own = [] {
        const char* const text = getenv(kAgentVariable);
        auto m = text ? std::make_unique<Membership>() : nullptr;
        if (m) m->agent = MessageChannel(Socket(atoi(text)));
        if (m) agent_page = progress_page;
        return m;
    }();
    return own.get();
}

// The agent has ended, or ends the job.
[[noreturn]] static void leave(int code) {
    if (context.throw_on_fatal) throw Fatal(code, "the agent ends the job");
    ends_on_purpose();
    _exit(code);
}

// Images stay open until then: the agent may not have mapped them yet.
void Membership::await_plan() {
    own_generation = 0;
    agent.send(Say::Ready);
    for (;;) {
        const std::optional<Message> m = agent.await("a plan of the agents", kForever, true);
        if (!m) leave(kExitRestart);
        if (m->kind == Say::End) leave(m->head<int32_t>());
        if (m->kind != Say::Plan) continue;
        seated = m->head<Seated>();
        plan = plan_of(m->rest<Seated>());
        if (agent_page->stopped >= plan.head.generation) {      // over already
            agent.send(Say::Ready);
            continue;
        }
        close_images();
        own_generation = plan.head.generation;
        return;
    }
}

std::vector<std::string> Membership::exchange_doors(const std::string& own) {
    may_die_at(DiesAt::Door);
    agent.send(Say::Door, DoorOf{plan.head.generation, seated.rank, 0}, own);
    may_die_at(DiesAt::Door);
    for (;;) {
        const std::optional<Message> m = agent.await("the other ranks", kForever);
        if (!m) leave(kExitRestart);
        if (m->kind == Say::End) leave(m->head<int32_t>());
        if (m->kind != Say::Go || m->head<Generation>().generation != plan.head.generation) continue;
        std::vector<std::string> doors;
        std::string_view rest = m->rest<Generation>();
        for (uint32_t n; rest.size() >= sizeof n; rest.remove_prefix(n)) {
            memcpy(&n, rest.data(), sizeof n);
            rest.remove_prefix(sizeof n);
            doors.emplace_back(rest.substr(0, n));
        }
        return doors;
    }
}

void Membership::claim_files(const std::string& run_dir) const {
    if (seated.rank != 0) return;
    if (!claim_run_files(run_dir, plan.head.epoch, plan.head.generation)) leave_generation();
}

bool Membership::owns_files(const std::string& run_dir) const {
    return owns_run_files(run_dir, plan.head.epoch, plan.head.generation);
}

void Membership::finish(int code) {
    own_generation = 0;
    agent.send(Say::Finished, Finish{plan.head.generation, seated.rank, code});
    close_images();
}

void Membership::report_slow(double factor) {
    agent.send(Say::Slow, SlowRank{plan.head.generation, seated.rank, 0, factor});
}

void Membership::report_corrupt(int rank, bool sure, bool passed, const std::string& what) {
    constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
    CorruptRank c = {{plan.head.generation, passed ? passed_.step : kAll}, rank, sure, {}};
    set_word(c.what, what);
    agent.send(Say::Corrupt, c);
}

// ---------------------------------------------------------------------------------------------------------
// images

void Membership::close_images() {
    if (images_) munmap(images_, there_.size() * image_bytes_);
    if (file_ >= 0) close(file_);
    images_ = nullptr;
    file_ = -1;
    there_.clear();
    last_ = passed_ = kNothing;
}

Membership::~Membership() { close_images(); }

std::span<std::byte> Membership::open_images(uint64_t bytes, int places, const std::string& head) {
    close_images();
    image_bytes_ = std::max<uint64_t>(bytes, 1);
    there_.resize(size_t(places), kNothing);
    const size_t all = there_.size() * image_bytes_;
    file_ = memfd_create("train_gpt images", MFD_CLOEXEC);
    void* memory = MAP_FAILED;
    if (file_ >= 0 && ftruncate(file_, off_t(all)) == 0)
        memory = mmap(nullptr, all, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    CHECK_INPUT(memory != MAP_FAILED, "run.elastic: no memory for {} images of {} of this rank's state: {}",
                there_.size(), human_bytes(double(image_bytes_)), system_reason());
    images_ = static_cast<std::byte*>(memory);
    const ImageSpace space = {.generation = plan.head.generation, .world = plan.head.world,
                              .rank = seated.rank, .bytes = image_bytes_, .file = file_,
                              .places = int32_t(there_.size())};
    agent.send(Say::Images, space, head);
    return {images_, all};
}

std::byte* Membership::image(int64_t number, const std::array<int64_t, 2>& needs) {
    next_ = {plan.head.generation, number, seated.rank, -1, needs};
    const auto keeps = [](const ImageStep& s, int64_t step) {
        return step == s.step || step == s.needs[0] || step == s.needs[1];
    };
    // what the next image needs is the last one, or was needed by it
    const auto place = std::ranges::find_if(there_, [&](const ImageStep& s) {
        return s.step < 0 || (!keeps(last_, s.step) && !keeps(passed_, s.step));
    });
    CHECK(place != there_.end(), "run.elastic: no place for an image");
    next_.place = int32_t(place - there_.begin());
    agent_page->writes_place = next_.place;
    agent_page->writes = number + 1;
    *place = kNothing;
    may_die_at(DiesAt::Image);
    return images_ + size_t(next_.place) * image_bytes_;
}

void Membership::commit(const std::string& state) {
    may_die_at(DiesAt::Image);
    there_[size_t(next_.place)] = last_ = next_;
    agent.send(Say::Commit, last_, state);
    may_die_at(DiesAt::Image);
    agent_page->writes = 0;
}

void Membership::await_safe() {
    static constexpr Wait hasty = {.what = "a copy of the image on another node", .nap = 2e-4};
    static constexpr double kSilent = 10;           // seconds: then the other agents go on without this one
    uint64_t beats = agent_page->agent_beats;
    double heard = seconds_now();
    wait_until(hasty, [&] {
        agent.flush();
        if (beats != agent_page->agent_beats) {
            beats = agent_page->agent_beats;
            heard = seconds_now();
        }
        if (seconds_now() - heard > kSilent) leave_generation();
        return agent_page->safe_step >= last_.step;
    });
}

// ---------------------------------------------------------------------------------------------------------
// what agents hold

HeldImages::HeldImages(const Membership& m) : plan_(m.plan), secret_(word_text(m.seated.secret)) {}

MessageChannel& HeldImages::channel_of(int rank) {
    static constexpr double kPatience = 20;
    const Source& s = plan_.sources[size_t(rank)];
    for (auto& [source, channel] : open_)
        if (source.address == s.address && source.port == s.port) return channel;
    const double until = seconds_now() + kPatience;
    open_.emplace_back(s, call_agent(word_text(s.address), uint16_t(s.port), secret_, until));
    return open_.back().second;
}

void HeldImages::ask(int rank, Say kind, const std::string& bytes) {
    may_die_at(DiesAt::Fetch);
    MessageChannel& c = channel_of(rank);
    c.send(kind, bytes);
    const std::optional<Message> m = c.await("an image of the state", seconds_now() + 60);
    if (!m || m->kind != Say::Fetched)
        lose_rank(__FILE__, __LINE__, fmt::format("the image of rank {} is gone with its agent", rank));
    got_ = *m;
}

HeldImages::Head HeldImages::head(int rank, int64_t number) {
    ask(rank, Say::FetchHead, bytes_of(ImageStep{plan_.head.from, number, rank, 0, kNeedsNone}));
    const ImageHead h = got_.head<ImageHead>();
    const std::string_view rest = got_.rest<ImageHead>();
    const size_t length = std::min(size_t(h.bytes), rest.size());
    return {std::string(rest.substr(0, length)), std::string(rest.substr(length)), h.needs};
}

const std::byte* HeldImages::read(int rank, int64_t number, uint64_t at, uint64_t bytes) {
    ask(rank, Say::Fetch, bytes_of(ImagePart{plan_.head.from, number, rank, 0, at, bytes}));
    if (got_.bytes.size() != bytes)
        lose_rank(__FILE__, __LINE__, fmt::format("the image of rank {} is of another size", rank));
    return reinterpret_cast<const std::byte*>(got_.bytes.data());
}

}  // namespace agents
