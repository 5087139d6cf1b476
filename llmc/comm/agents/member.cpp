#include "llmc/comm/agents/member.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>

#include "llmc/base/check.h"
#include "llmc/base/console.h"
#include "llmc/base/context.h"
#include "llmc/base/disk/files.h"
#include "llmc/base/guard/generation.h"
#include "llmc/base/guard/obituary.h"
#include "llmc/base/guard/progress_page.h"

inline namespace agents {

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

void Membership::finish(int code) {
    own_generation = 0;
    agent.send(Say::Finished, Finish{plan.head.generation, seated.rank, code});
    close_images();
}

void Membership::report_slow(double factor) {
    agent.send(Say::Slow, SlowRank{plan.head.generation, seated.rank, 0, factor});
}

// ---------------------------------------------------------------------------------------------------------
// images

void Membership::close_images() {
    if (images_) munmap(images_, 2 * image_bytes_);
    if (file_ >= 0) close(file_);
    images_ = nullptr;
    file_ = -1;
    committed_ = -1;
}

Membership::~Membership() { close_images(); }

void Membership::open_images(uint64_t bytes, const std::string& head) {
    close_images();
    image_bytes_ = std::max<uint64_t>(bytes, 1);
    file_ = memfd_create("train_gpt images", MFD_CLOEXEC);
    void* memory = MAP_FAILED;
    if (file_ >= 0 && ftruncate(file_, off_t(2 * image_bytes_)) == 0)
        memory = mmap(nullptr, 2 * image_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
    CHECK_INPUT(memory != MAP_FAILED, "run.elastic: no memory for two images of {} of this rank's state: {}",
                human_bytes(double(image_bytes_)), system_reason());
    images_ = static_cast<std::byte*>(memory);
    const ImageSpace space = {.generation = plan.head.generation, .world = plan.head.world,
                              .rank = seated.rank, .bytes = image_bytes_, .file = file_, .unused = 0};
    agent.send(Say::Images, space, head);
}

std::byte* Membership::image(int64_t step) const {
    agent_page->writes = step + 1;
    may_die_at(DiesAt::Image);
    return images_ + size_t(step % 2) * image_bytes_;
}

void Membership::commit(int64_t step, const std::string& state) {
    may_die_at(DiesAt::Image);
    committed_ = step;
    agent.send(Say::Commit, ImageStep{plan.head.generation, step, seated.rank, 0}, state);
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
        return agent_page->safe_step >= committed_;
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

HeldImages::Head HeldImages::head(int rank) {
    ask(rank, Say::FetchHead, bytes_of(ImageStep{plan_.head.from, plan_.head.step, rank, 0}));
    const size_t length = std::min(size_t(got_.head<uint64_t>()), got_.rest<uint64_t>().size());
    const std::string_view rest = got_.rest<uint64_t>();
    return {std::string(rest.substr(0, length)), std::string(rest.substr(length))};
}

const std::byte* HeldImages::read(int rank, uint64_t at, uint64_t bytes) {
    ask(rank, Say::Fetch, bytes_of(ImagePart{plan_.head.from, plan_.head.step, rank, 0, at, bytes}));
    if (got_.bytes.size() != bytes)
        lose_rank(__FILE__, __LINE__, fmt::format("the image of rank {} is of another size", rank));
    return reinterpret_cast<const std::byte*>(got_.bytes.data());
}

}  // namespace agents
